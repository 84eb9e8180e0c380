"""Tests of reading/bounds.py. Ranges of time choose by the time of each record; an export replaces an earlier one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.shell import pylogseg

import pylogseg as package


@pytest.fixture
def disordered(tmp_path: Path) -> Path:
    """Several segments of records whose timestamps go up and down, inside of batches too; some compressed."""
    rng = random.Random(17)
    with package.open_log(tmp_path / "log" / "t-0", segment_bytes=2000) as log:
        for i in range(60):
            log.append(
                [(1_000_000 + rng.randrange(500), b"k", b"v" * 20) for _ in range(5)],
                compression="gzip" if i % 3 else None,
            )
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("since", "until"),
    [(None, 1_000_100), (1_000_400, None), (1_000_200, 1_000_210), (0, 1_000_001), (2_000_000, None)],
)
def test_each_record_is_chosen_by_its_time(disordered: Path, since: int | None, until: int | None) -> None:
    wanted = [
        record.offset
        for record in package.read(disordered)
        if (since is None or record.timestamp >= since) and (until is None or record.timestamp < until)
    ]
    assert [record.offset for record in package.read(disordered, timestamp=(since, until))] == wanted
    table = package.read_arrow(disordered, timestamp=(since, until)).read_all()
    assert table.column("offset").to_pylist() == wanted
    options = [] if since is None else ["--since", since]
    options += [] if until is None else ["--until", until]
    for jobs in (1, 2):
        done = pylogseg("cat", disordered, "--fields", "offset", "-j", jobs, *options)
        assert [json.loads(line)["offset"] for line in done.out.splitlines()] == wanted
    assert int(pylogseg("grep", "-c", "v", disordered, *options).out) == len(wanted)


def test_a_time_index_that_lies_takes_no_record_away(disordered: Path) -> None:
    for path in sorted((disordered / "t-0").glob("*.timeindex")):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data) - 11, 12):
            data[at : at + 8] = (1_000_000 + at).to_bytes(8, "big")
        path.write_bytes(data)
    wanted = [record.offset for record in package.read(disordered) if record.timestamp >= 1_000_450]
    assert [record.offset for record in package.read(disordered, timestamp=1_000_450)] == wanted


def exported(out: Path) -> list[int]:
    return sorted(o for path in out.rglob("*.parquet") for o in pq.read_table(path).column("offset").to_pylist())


def test_an_export_replaces_an_earlier_one_whole(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert pylogseg("export", examples, "txn-a", "codec-none", "--out", out).code == 0
    first = exported(out)
    other = {path: path.read_bytes() for path in (out / "topic=codec-none").rglob("*.parquet")}
    folder = next(out.glob("topic=txn-a/partition=0"))
    (folder / "README").write_text("mine")
    committed = [r.offset for r in package.read(examples, "txn-a", isolation_level="read_committed")]
    done = pylogseg("export", examples, "txn-a", "--out", out, "--isolation-level", "read_committed", "--overwrite")
    assert done.code == 0
    assert exported(out / "topic=txn-a") == sorted(committed)
    assert {path: path.read_bytes() for path in (out / "topic=codec-none").rglob("*.parquet")} == other
    assert (folder / "README").read_text() == "mine"
    assert pylogseg("export", examples, "txn-a", "--out", out, "--until", 1, "--overwrite").code == 0
    assert exported(out / "topic=txn-a") == []
    assert pylogseg("export", examples, "txn-a", "codec-none", "--out", out, "--overwrite").code == 0
    assert exported(out) == first


def test_parquet_has_bytes(examples: Path, tmp_path: Path) -> None:
    done = pylogseg("export", examples, "txn-a", "--out", tmp_path / "out", "--value-as", "json")
    assert (done.code, "is for CSV and JSON lines" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
