"""Tests of env/interrupts.py and tables/sql/session.py. Ctrl-C in a scan: it ends soon, no thread goes on, and nothing
half-written stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.checks import wait_for
from helpers.depth import diagonals
from helpers.shell import environment, process

from pylogseg import encode

#: So many partitions that no machine has scanned them before a test ends: links to one segment of a few KiB, the values
#: of which become 16 MB.
PARTITIONS = 3000
_FILTER = "pc.field('value') == b'no record has it'"
_SCRIPT = """
import signal, sys, threading
import pyarrow.compute as pc
import pylogseg

signal.signal(signal.SIGINT, signal.default_int_handler)
logs = pylogseg.dataset(sys.argv[1])
{before}
print("begins", flush=True)
begun = threading.Timer(0.3, print, ["works"], {{"flush": True}})
begun.daemon = True
begun.start()
try:
    {work}
except BaseException as error:
    print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
    begun.join()
    # Those of duckdb itself wait for its next query.
    left = [each.name for each in threading.enumerate() if each.name.startswith("pylogseg")]
    print("left:", *left, flush=True)
    sys.exit(130)
print("was not interrupted")
"""


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic that takes minutes to scan."""
    root = tmp_path_factory.mktemp("endless")
    value = bytes(1 << 10)
    segment = root / "segment"
    segment.write_bytes(encode(pa.table({"value": [value] * (16 << 10)}), compression="zstd", batch_bytes=1 << 20))
    for number in range(PARTITIONS):
        folder = root / "logs" / f"orders-{number}"
        folder.mkdir(parents=True)
        os.link(segment, folder / f"{0:020d}.log")
    return root / "logs"


def interrupted(path: Path, work: str, before: str = "") -> list[str]:
    """Lines of a program that is interrupted while it does some work, not while it does what comes before."""
    running = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT.format(work=work, before=before), path], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    with running:
        assert running.stdout is not None
        lines = [running.stdout.readline().strip() for _ in range(2)]
        assert lines == ["begins", "works"]
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 130, said
    return [line.strip() for line in said.splitlines()]


@pytest.mark.parametrize("use_threads", [True, False])
def test_a_table_of_a_dataset(endless: Path, use_threads: bool) -> None:
    lines = interrupted(endless, f"logs.to_table(filter={_FILTER}, use_threads={use_threads})")
    assert lines == ["KeyboardInterrupt", "left:"]


def test_a_stream(endless: Path) -> None:
    work = "pylogseg.read_arrow(sys.argv[1], filter={}, jobs=3).read_all()"
    *_, left = interrupted(endless, work.format(_FILTER))
    assert left == "left:"


def test_duckdb(endless: Path) -> None:
    """With one thread, which sees the signal: of several, one that takes all batches keeps that thread waiting."""
    pytest.importorskip("duckdb")
    before = "import duckdb; duckdb.sql('set threads = 1'); duckdb.sql('select 1 from logs limit 0').fetchall()"
    query = "select count(*) from logs where octet_length(value) = 7"
    *_, left = interrupted(endless, f"duckdb.sql({query!r}).fetchall()", before)  # its imports swallow interrupts
    assert left == "left:"


@pytest.mark.parametrize(
    ("output", "condition"),
    diagonals(["json", "FILE.parquet"], ["octet_length(value) < 1000 or offset < 3", "value = 'no record has it'"], 2),
)
def test_sql(endless: Path, tmp_path: Path, output: str, condition: str) -> None:
    """Also if the table itself filters, and finds nothing."""
    pytest.importorskip("duckdb")
    target: Any = output.replace("FILE", str(tmp_path / "found"))
    query = f"select offset, value from records where {condition}"
    home = tmp_path / "tmp"
    home.mkdir()
    with process("sql", endless, query, "--output", target, env={**environment(), "TMPDIR": str(home)}) as running:
        wait_for(lambda: list(home.iterdir()))  # where a query may put what does not fit into memory
        time.sleep(1)  # wherever it is then
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=120) == 130
    assert list(tmp_path.iterdir()) == [home]
    assert list(home.iterdir()) == []
