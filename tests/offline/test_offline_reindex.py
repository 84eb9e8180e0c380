"""Tests of cli/reindex.py and offline/reindexing.py. `reindex`: the files that Kafka's recovery makes, and no other is
written; cut short, all of them are usable.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import scenarios
from helpers.offline_world import BATCHES, CONFIG, DIR, check_cut_short, contents, files, run, world
from helpers.shell import pylogseg as shell

from pylogseg import offline
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.offline.result import Result

BESIDE = (".index", ".timeindex", ".txnindex", ".snapshot")
#: Of the golden damaged partition.
INTERVAL = {"index.interval.bytes": "512", "segment.bytes": "4096"}


def beside(folder: Path) -> dict[str, bytes]:
    """Indexes, snapshots and epochs of a partition; an empty transaction index counts as none."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in BESIDE}
    found["epochs"] = (folder / "leader-epoch-checkpoint").read_bytes()
    return {name: data for name, data in found.items() if data or not name.endswith(".txnindex")}


def strip(folder: Path) -> None:
    """Take away all that a recovery makes anew."""
    for path in folder.iterdir():
        if path.suffix in BESIDE or path.name == "leader-epoch-checkpoint":
            path.unlink()


@pytest.mark.parametrize("case", ["intact", "no-helpers", "no-helpers-clean", "transactions"])
def test_as_a_broker(golden: Path, tmp_path: Path, case: str) -> None:
    source = golden / "broker-4.3" / "damage" / case
    folder = Path(shutil.copytree(source / "in", tmp_path / "data" / "damaged-1"))
    (result,) = offline.reindex(folder, config=INTERVAL)
    want, got = beside(source / "after"), beside(folder)
    # A broker gives the partition a leader epoch of its own, and takes a snapshot where it stops.
    del want["epochs"], got["epochs"]
    assert got == want
    assert result.state == ("done" if "no-helpers" in case else "unchanged")
    assert offline.reindex(folder, config=INTERVAL).partitions[0].state == "unchanged"


@pytest.mark.parametrize("scenario", ["transactions", "idempotent-producers", "leader-epochs", "timestamps"])
def test_as_kafkas_recovery(kafka: Any, tmp_path: Path, scenario: str) -> None:
    """Everything beside the log is gone: Kafka makes it again when it starts as after a crash."""
    operations = []
    for op in scenarios.SCENARIOS[scenario]():
        if op["op"] in ("close", "crash", "file", "open"):
            break
        operations.append(op)
    names = [f"@{end}{suffix}" for end in ("first", "last") for suffix in (".index", ".timeindex")]
    operations += [
        {"op": "close"},
        {"op": "capture", "keep": "closed"},
        *({"op": "file", "action": "delete", "name": name} for name in names),
        {"op": "open", "clean": False},
        {"op": "close"},
        {"op": "capture", "keep": "recovered"},
    ]
    _, work = kafka.replay(operations)
    mine = Path(shutil.copytree(work / "closed", tmp_path / "t-0"))
    for path in mine.glob("*index"):
        path.write_bytes(b"")
    config = {key: str(value) for key, value in operations[0]["config"].items()}
    result = offline.reindex(mine, config=config, now_ms=operations[0].get("now"))
    assert [part_result.reason for part_result in result.failed] == []
    assert beside(mine) == beside(work / "recovered")


def test_only_what_is_asked_for(golden: Path, tmp_path: Path) -> None:
    intact = golden / "broker-4.3" / "damage" / "intact" / "in"
    for kind, suffix in (("offset", ".index"), ("time", ".timeindex"), ("snapshots", ".snapshot")):
        folder = Path(shutil.copytree(intact, tmp_path / kind / "damaged-1"))
        for path in folder.iterdir():
            if path.suffix in (".index", ".timeindex", ".snapshot"):
                path.write_bytes(b"nonsense".ljust(24, b"\xff"))
        (result,) = offline.reindex(folder, [kind], config=INTERVAL)  # type: ignore[list-item]
        got, want = beside(folder), beside(intact)
        right = {name for name in want if got.get(name) == want[name]}
        assert {name for name in right if name != "epochs"} == {name for name in want if name.endswith(suffix)}
        assert result.numbers["filesWritten"] == len([row for row in result.rows if row["path"].endswith(suffix)])


def test_what_tells_more_than_the_log_stays(golden: Path, tmp_path: Path) -> None:
    """A snapshot and epochs of batches that are gone: made anew only where that is asked for."""
    source = golden / "broker-4.3" / "damage" / "intact" / "in"
    folder = Path(shutil.copytree(source, tmp_path / "damaged-1"))
    epochs = folder / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n1 7\n")
    before = beside(folder)
    (result,) = offline.reindex(folder, config=INTERVAL)
    assert result.state == "unchanged"
    assert beside(folder) == before
    offline.reindex(folder, ["epochs"], config=INTERVAL)
    assert epochs.read_text().splitlines()[2:] == ["0 0"]
    epochs.write_text("nonsense")
    (newest, *_) = sorted(folder.glob("*.snapshot"), reverse=True)
    right = newest.read_bytes()
    newest.write_bytes(right[:-1])
    (result,) = offline.reindex(folder, config=INTERVAL)
    assert result.numbers == {"filesWritten": 2, "filesRemoved": 0}
    assert newest.read_bytes() == right


def test_a_log_that_is_not_in_order_is_left_alone(golden: Path, tmp_path: Path) -> None:
    for case, state in (("torn-tail", "skipped"), ("bit-second", "failed"), ("leftover-swap", "skipped")):
        folder = Path(shutil.copytree(golden / "broker-4.3" / "damage" / case / "in", tmp_path / case / "damaged-1"))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        result = offline.reindex(folder, config=INTERVAL)
        (part_result,) = result
        assert part_result.state == state, part_result.reason
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        if state == "failed":
            assert isinstance(part_result.error, CorruptionError)
            assert "repair" in part_result.remedy


def sparsely(path: str, **options: Any) -> Result:
    """With fewer entries, so that all indexes differ."""
    return offline.reindex(path, **{**options, "config": {**CONFIG, "index.interval.bytes": "400"}})


def test_cut_short() -> None:
    before = contents(world())
    changed = world()
    result = run(sparsely, changed)
    assert all(part_result.numbers["filesWritten"] for part_result in result)
    different = {path for path, data in files(changed).items() if files(world()).get(path) != data}
    assert {parse_file_name(path.rpartition("/")[2]).kind for path in different if "users" in path} == {
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
    }

    def judge(found: Any) -> None:
        assert set(found) == set(BATCHES)
        assert found == before

    check_cut_short(sparsely, judge)


def test_into() -> None:
    check_cut_short(sparsely, lambda found: None, into="/copy", topic=["users-1"])


def test_a_run_that_was_killed_is_taken_up_again() -> None:
    disk = world()
    disk.write_synced(f"{DIR}/users-0/{0:020}.index.cleaned", b"half")
    (first, _) = run(sparsely, disk)
    assert first.state == "done"
    assert not disk.exists(f"{DIR}/users-0/{0:020}.index.cleaned")


def test_in_the_shell(golden: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden / "broker-4.3" / "damage" / "intact" / "in", tmp_path / "damaged-1"))
    strip(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    interval = [word for key, value in INTERVAL.items() for word in ("-c", f"{key}={value}")]
    dry = shell("reindex", folder, *interval, "--dry-run", "--json").rows
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    real = shell("reindex", folder, *interval, "--json").rows
    assert [row for row in dry if row["type"] == "file"] == [row for row in real if row["type"] == "file"]
    made = {row["path"]: row["after"] for row in real if row["type"] == "file"}
    assert {path: Path(path).stat().st_size for path in made} == made
    assert shell("verify", folder).code == 0
    assert "unchanged" in shell("reindex", folder, *interval, "--only", "time").text
    with pytest.raises(RequestError, match="'what' cannot be rebuilt"):
        offline.reindex(folder, ["what"])  # type: ignore[list-item]
