"""Tests of format/codec_error.py and format/zstd_frames.py. A process that gets no memory and no
descriptors any more: nothing is said about the data, and nothing of it is cut.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from helpers import forked
from helpers.handmade import batch, record
from helpers.shell import Done, environment
from helpers.trees import contents

from pylogseg.errors import ExhaustedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are others there")

#: Runs a command with so many descriptors, or bytes of memory, more than it has.
_LIMITED = """
import os, resource, runpy, sys
name, more = sys.argv[1], int(sys.argv[2])
if name == "RLIMIT_AS":
    more += int(open("/proc/self/statm").read().split()[0]) * 4096
else:
    more += len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(getattr(resource, name), (more, more))
sys.argv = ["pylogseg", *sys.argv[3:]]
runpy.run_module("pylogseg", run_name="__main__")
"""
READERS = ("ls", "verify", "stats", "cat", "grep")
COMMANDS = {
    "ls": ("ls",),
    "verify": ("verify",),
    "stats": ("stats",),
    "cat": ("cat", "--on-corrupt", "skip"),
    "grep": ("grep", "-e", "v"),
    "recover": ("recover", "--jobs", "1"),
    "repair": ("repair", "--jobs", "1"),
    "compact": ("compact", "--force", "--jobs", "1"),
}


@pytest.fixture
def logs(tmp_path, monkeypatch) -> Path:
    """Two segments, of batches which need 128 MiB to be decompressed, as the level 22 of zstd may."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "d" / "t-0"
    folder.mkdir(parents=True)
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    for base in (0, 3):
        pack = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        payload = pack.compress(b"".join(record(n, 0, b"k%d" % n, b"v" * 50) for n in range(3))) + pack.flush()
        (folder / f"{base:020d}.log").write_bytes(batch(payload, 3, base=base))
    return folder.parent


def limited(limit: str, more: int, *words: object) -> Done:
    done = subprocess.run(forked.python(_LIMITED, limit, more, *words), env=environment(), capture_output=True)
    return Done(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("limit", "more"), [("RLIMIT_AS", 64 << 20), ("RLIMIT_NOFILE", 1), ("RLIMIT_NOFILE", 2)])
def test_too_little_of_it_is_no_damage(logs, name, limit, more):
    words, before = (*COMMANDS[name], logs), contents(logs)
    done = limited(limit, more, *words)
    assert {path: data for path, data in contents(logs).items() if path.endswith(".log")} == before
    said = done.err + done.text
    if done.code:
        assert done.code == 2 or (done.code == 1 and "FAILED" in said)
        assert "Too many open files" in said or "out of memory" in said
        assert not any(word in said for word in ("amage", "fault of pylogseg", "Traceback"))
    elif name in READERS:
        assert done == limited("RLIMIT_NOFILE", 900, *words)


def test_it_travels_to_other_processes():
    error = ExhaustedError("a", "open", "Too many open files", 24)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
