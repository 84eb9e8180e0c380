"""Tests of cli/truncate.py, log/truncation.py and offline/truncating.py. `truncate`: what a broker's truncation leaves,
at every offset; and nothing else is lost when it is cut short.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scenarios
from helpers.offline_world import CONFIG, DIR, NOW, Contents, check_cut_short, contents, files, run, world
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg import offline
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler

BEFORE = contents(world())
NAME = "users-0"


def test_every_offset() -> None:
    """The records in front of the batch that holds the offset stay, and the log goes on at the offset."""
    for to in range(60):
        disk = world()
        (result,) = run(offline.truncate, disk, to=to, topic=[NAME])
        kept = BEFORE[NAME][: min(to // 4 * 4, 56)]
        assert contents(disk) == {**BEFORE, NAME: kept}
        assert result.log_end == min(to // 4 * 4, 56)
        assert result.state == ("done" if to < 56 else "unchanged")
        if to < 56:
            assert result.numbers == {
                "endBefore": 56,
                "firstGone": to // 4 * 4,
                "offsetsGone": 56 - to // 4 * 4,
                "belowHighWatermark": 56 - to // 4 * 4,
            }
            assert any("lies inside a batch" in note for note in result.notes) == (to % 4 > 0)


def test_into_a_gap_between_batches(tmp_path: Path) -> None:
    """The log ends behind the batch in front of the gap, for the checkpoints as for the next who opens it."""
    with pylogseg.open_log(tmp_path / "t-0", index_interval_bytes=0) as log:
        for base in (0, 2, 20, 40):
            log.engine.append_as_follower(
                pylogseg.encode([(NOW, b"k", b"v")] * 2, base_offset=base, leader_epoch=0),
                0,
            )
    for to, end in ((30, 22), (22, 22), (20, 4), (19, 4), (5, 4), (4, 4), (3, 2)):
        (result,) = offline.truncate(tmp_path, to)
        assert (result.log_end, result.state) == (end, "unchanged" if to in (22, 19, 5, 4) else "done")
        point = parse_offset_checkpoint((tmp_path / "recovery-point-offset-checkpoint").read_bytes())
        assert point == {("t", 0): end}
        with pylogseg.open_log(tmp_path / "t-0") as log:
            assert log.log_end_offset == end


def test_the_same_files_as_the_engine() -> None:
    """Down to the byte: what a broker leaves that truncates and stops."""
    for to in (0, 7, 30, 41):
        by_command, by_engine = world(), world()
        run(offline.truncate, by_command, to=to, topic=[NAME])
        clock = ManualClock(NOW + 100_000)
        scheduler = ManualScheduler(clock)
        config = LogConfig.from_properties(CONFIG)
        log = Log.open(Environment(by_engine, clock, scheduler), f"{DIR}/{NAME}", config, Start(True, 0, 56))
        log.update_high_watermark(56)
        log.truncate_to(to // 4 * 4)
        log.flush()
        log.close()
        scheduler.advance(config.file_delete_delay_ms)
        assert files(by_command, f"{DIR}/{NAME}") == files(by_engine, f"{DIR}/{NAME}")


def test_checkpoints_follow() -> None:
    disk = world()
    disk.write_synced(f"{DIR}/cleaner-offset-checkpoint", encode_offset_checkpoint({("users", 0): 40, ("users", 1): 4}))
    result = run(offline.truncate, disk, to=25, topic=[NAME])

    def checkpoint(name: str) -> dict[tuple[str, int], int]:
        return dict(parse_offset_checkpoint(disk.read_all(f"{DIR}/{name}-offset-checkpoint")))

    assert checkpoint("recovery-point") == {("users", 0): 24, ("users", 1): 8}
    assert checkpoint("replication") == {("users", 0): 24, ("users", 1): 8}
    assert checkpoint("cleaner") == {("users", 0): 20, ("users", 1): 4}
    assert {change.file for change in result.checkpoints} == {
        f"{name}-offset-checkpoint" for name in ("recovery-point", "replication", "cleaner")
    }
    # The controller has to know that this replica lost what it had.
    assert b"7" not in disk.read_all(f"{DIR}/.kafka_cleanshutdown")


def keeps_to(offset: int) -> Callable[[Contents], None]:
    def judge(found: Contents) -> None:
        assert found["users-1"] == BEFORE["users-1"]
        records = found[NAME]
        assert records == BEFORE[NAME][: len(records)]
        assert len(records) >= offset

    return judge


@pytest.mark.parametrize("to", [52, 25])
def test_cut_short(to: int) -> None:
    check_cut_short(offline.truncate, keeps_to(to // 4 * 4), to=to, topic=[NAME])


def test_everything_cut_short() -> None:
    check_cut_short(offline.truncate, keeps_to(0), to=0, topic=[NAME])


def test_into() -> None:
    check_cut_short(offline.truncate, lambda found: None, into="/copy", to=25, topic=[NAME])


def test_as_kafka(kafka: Any, tmp_path: Path) -> None:
    """One truncation after the other; Kafka's log is closed and opened in between, as ours is."""
    operations = [*scenarios.SCENARIOS["truncation"]()][:-1]
    first = next(i for i, op in enumerate(operations) if op["op"] == "truncate")
    offsets = [43, 31, 27, 22, 20, 10, 3]

    def reopened(name: str) -> list[dict[str, Any]]:
        keep = {"op": "capture", "keep": name}
        return [{"op": "close"}, {"op": "open", "clean": True}, {"op": "close"}, keep, {"op": "open", "clean": True}]

    steps = [step for to in offsets for step in ({"op": "truncate", "offset": to}, *reopened(f"after-{to}"))]
    operations = [*operations[:first], *reopened("before"), *steps]
    _, folder = kafka.replay(operations)
    mine = Path(shutil.copytree(folder / "before", tmp_path / "data" / "t-0"))
    for kind in ("recovery-point", "replication"):
        (mine.parent / f"{kind}-offset-checkpoint").write_bytes(encode_offset_checkpoint({("t", 0): 32}))
    (mine.parent / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":1}')
    for to in offsets:
        config = {key: str(value) for key, value in operations[0]["config"].items()}
        result = offline.truncate(mine, to, config=config, now_ms=operations[0]["now"])
        assert [part_result.reason for part_result in result.failed] == []
        assert on_disk(mine) == on_disk(folder / f"after-{to}"), to


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".deleted")}


def test_in_the_shell(examples: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(examples, tmp_path / "data"))
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    dry = expect(shell("truncate", data / "txn-a-0", "--to", 100, "--dry-run", "--json"), 0)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    real = shell("truncate", data / "txn-a-0", "--to", 100, "--json")
    rows = [{**done.rows[-2], "changes": None} for done in (dry, real)]
    assert rows[0] == rows[1]
    assert [record.offset for record in pylogseg.read(data, "txn-a-0")][-1] < 100
    planned = {change["path"]: change["after"] for change in dry.rows[-2]["changes"]}
    for path, size in planned.items():
        assert (Path(path).stat().st_size if Path(path).exists() else None) == size
    assert shell("verify", data, "txn-a-0").code == 0
    for arguments in (["--to", 10], ["txn-a", "--to", 10], ["txn-a-0", "--to", -1], ["txn-a-0"]):
        assert shell("truncate", data, *arguments).code == 2
