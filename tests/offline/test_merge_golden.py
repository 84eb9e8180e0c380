"""Tests of cli/merge.py, offline/merging/report.py and transfer/segment_files.py. `merge` of the directories of one
real broker: nothing is to be healed, so every log has to come as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

from pylogseg import offline


def log_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.mark.parametrize(
    "name", ["broker-4.4/all", "broker-4.3/compact-3-cleaned", "broker-4.3/retention", "broker-4.3/txn"]
)
def test_logs_come_byte_for_byte(golden: Path, tmp_path: Path, name: str) -> None:
    sources = sorted((golden / name).glob("data?"))
    out = tmp_path / "out"
    result = offline.merge(sources, out, jobs=2)
    assert {each.state for each in result} == {"done"}
    assert result.exit_code == 0
    assert result.is_closed_clean
    for each in result:
        (source,) = [folder for disk in sources if (folder := disk / each.name).is_dir()]
        assert log_of(out / each.name) == log_of(source), each.name
        metadata = "partition.metadata"
        assert (out / each.name / metadata).read_bytes() == (source / metadata).read_bytes()
    expect(shell("verify", out), 0)


def test_a_result_that_was_cut_off_is_made_again(golden: Path, tmp_path: Path) -> None:
    """What a killed run left is removed; until the end, the result is not there."""
    sources = sorted((golden / "broker-4.3" / "txn").glob("data?"))
    left = tmp_path / ".out.pylogseg-unfinished" / "log" / "txn-a-0"
    left.mkdir(parents=True)
    (left / "00000000000000000000.log").write_bytes(b"a part")
    seen = []
    result = offline.merge(sources, tmp_path / "out", on_result=lambda one: seen.append((tmp_path / "out").exists()))
    assert result.exit_code == 0
    assert set(seen) == {False}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_stops_it_leaves_nothing(golden: Path, tmp_path: Path) -> None:
    sources = sorted((golden / "broker-4.3" / "txn").glob("data?"))

    def stop(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        offline.merge(sources, tmp_path / "out", on_bytes=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_the_sizes(golden: Path, tmp_path: Path) -> None:
    sources = sorted((golden / "broker-4.3" / "txn").glob("data?"))
    dry = offline.merge(sources, tmp_path / "out", dry_run=True)
    done = offline.merge(sources, tmp_path / "out")
    sizes = [
        [(each.name, each.segments_after, each.bytes_after) for each in result.partitions] for result in (dry, done)
    ]
    assert sizes[0] == sizes[1]


def test_partitions_that_no_source_has(golden: Path, tmp_path: Path) -> None:
    """One of two disks was forgotten: what only the other has is named, and is not passed over as if all were done."""
    sources = sorted((golden / "broker-4.4" / "all").glob("data?"))
    here, there = [{path.name for path in source.iterdir() if path.is_dir()} for source in sources]
    result = offline.merge(sources[:1], tmp_path / "out")
    assert result.exit_code == 1
    assert set(result.missing) == {name for name in there - here if not name.endswith("-delete")}
    assert any("no source has a replica" in note for note in result.notes)
    assert offline.merge(sources[:1], tmp_path / "one", topic=["codec-zstd-1"]).exit_code == 0
    result = offline.merge(sources[:1], tmp_path / "two", topic=["codec-*"], dry_run=True)
    assert result.missing == [f"codec-{name}-0" for name in ("gzip", "lz4", "none", "snappy", "zstd")]
    result = offline.merge(sources[:1], tmp_path / "two", topic=["codec-*"], partition=[1], dry_run=True)
    assert result.missing == []
    assert offline.merge(sources, tmp_path / "all", dry_run=True).exit_code == 0
