"""Tests of cli/streams.py. Ctrl-C while nobody reads the output: a pipe that is full does not keep the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.shell import environment

from pylogseg import encode

if sys.platform == "win32":
    pytest.skip("signals of POSIX", allow_module_level=True)

import fcntl
import struct
import termios

#: A command, with the buffer that Python 3.14 gives every pipe: older ones have 4 KiB, which rows seldom wait in.
_COMMAND = """
import sys
sys.stdout = open(1, "w", 128 << 10, closefd=False)
from pylogseg.__main__ import main
main()
"""
#: How long a process has to end, and to fill a pipe, on a machine that does much beside it.
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition whose values no pipe holds."""
    root = tmp_path_factory.mktemp("logs")
    folder = root / "orders-0"
    folder.mkdir()
    rows = pa.table({"value": [b"v" * (100 + 37 * number % 3000) for number in range(3000)]})
    (folder / f"{0:020d}.log").write_bytes(encode(rows))
    return root


def is_full(pipe: int) -> bool:
    """Wait until what waits in a pipe has been the same for a while."""
    before, since, end = -1, time.monotonic(), time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        (now,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        if now != before:
            before, since = now, time.monotonic()
        elif now and time.monotonic() - since > 0.5:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "{}", "orders-0"),
        ("grep", "v", "{}"),
        ("sql", "{}", "select * from orders", "--output", "json"),
        ("sql", "{}", "select * from orders", "--output", "csv"),
        ("dump", "{}/orders-0", "--records"),
    ],
    ids=lambda words: f"{words[0]}-{words[-1]}",
)
def test_it_ends(log_dir: Path, words: tuple[str, ...]) -> None:
    given = [sys.executable, "-c", _COMMAND, *(word.format(log_dir) for word in words)]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as running:
        try:
            assert running.stdout is not None
            assert is_full(running.stdout.fileno())
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=_PATIENCE_S) == 130
        finally:
            running.kill()
