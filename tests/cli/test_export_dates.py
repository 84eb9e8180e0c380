"""Tests of tables/export/notes.py, tables/export/tables.py and values/strings.py. Files by topic and date: every record
once, nothing half, and a second run that finds nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg as shell

import pylogseg
import pylogseg.offline
from pylogseg.disk import columns
from pylogseg.errors import RequestError
from pylogseg.reading.logs import logs_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading
from pylogseg.tables.export import tables as module
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.notes import NOTES, read_state
from pylogseg.tables.export.tables import COLUMNS, ExportedPart, TableExport, export_parts, plan_parts
from pylogseg.tables.short_forms import read_arrow

DAY_MS = 86_400_000
FORM = Form("parquet", COLUMNS)


def make(folder: Path, days: list[int]) -> None:
    with pylogseg.open_log(folder, segment_bytes=3000, message_timestamp_before_max_ms=2**62) as log:
        for i, day in enumerate(days):
            log.append([(day * DAY_MS + i, b"k%d" % i, b"v" * 40)])


def export(
    disk: Path,
    out: Path,
    *,
    advance: Any = None,
    form: Form = FORM,
    dry_run: bool = False,
    overwrite: bool = False,
    times: Any = (None, None),
    keep_deleted: bool = True,
    **how: Any,
) -> list[ExportedPart]:
    reading = Reading(**how)
    table = TableExport(out, form, reading.isolation_level, dry_run=dry_run, overwrite=overwrite)
    with table.open_run():
        selection = Selection(since=times[0], until=times[1])
        logs = logs_of(pylogseg.open_dir(disk))
        groups = plan_parts(logs, table, selection, reading.start(), keep_deleted=keep_deleted)
        return [part for group in groups for part in export_parts(group, table, advance)]


def rows(out: Path) -> pa.Table:
    found = ds.dataset(out, format="parquet", partitioning="hive").to_table()
    return found.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def test_every_record_once(tmp_path: Path) -> None:
    days = [i // 50 for i in range(120)] + [5, 1, 5, 1]
    make(tmp_path / "data" / "orders-0", days)
    make(tmp_path / "data" / "orders-1", days[:30])
    done = export(tmp_path / "data", tmp_path / "out")
    assert {part.state for part in done} == {"written"}
    got = rows(tmp_path / "out")
    expected = read_arrow(str(tmp_path / "data")).read_all()
    for name in ("partition", "offset", "timestamp", "key", "value"):
        assert got[name].to_pylist() == expected[name].to_pylist(), name
    wanted_days = Counter(f"1970-01-0{day + 1}" for day in days + days[:30])
    assert Counter(str(date)[:10] for date in got["date"].to_pylist()) == wanted_days
    assert sum(count for part in done for _, count, _ in part.files) == len(expected)


def test_again_and_what_changed(tmp_path: Path) -> None:
    make(tmp_path / "data" / "t-0", [0] * 60)
    dry = export(tmp_path / "data", tmp_path / "out", dry_run=True)
    assert {part.state for part in dry} == {"to do"}
    assert not (tmp_path / "out").exists()
    first = export(tmp_path / "data", tmp_path / "out")
    assert len(first) > 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*-*")}
    assert len(before) > 2 * len(first)
    assert {part.state for part in export(tmp_path / "data", tmp_path / "out")} == {"unchanged"}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*-*")} == before
    with pylogseg.open_log(tmp_path / "data" / "t-0") as log:
        log.append([(3 * DAY_MS, b"k", b"new")])
    (tmp_path / "out" / first[0].files[0][0]).unlink()
    assert [part.state for part in export(tmp_path / "data", tmp_path / "out")] == [
        "written",
        *["unchanged"] * (len(first) - 2),
        "written",
    ]
    assert len(rows(tmp_path / "out")) == 61


def test_files_of_records_that_are_gone_go_too(tmp_path: Path) -> None:
    """A segment that the cleaner wrote anew no longer has records of a day."""
    make(tmp_path / "data" / "t-0", [0, 0, 1])
    export(tmp_path / "data", tmp_path / "out")
    segment = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    first = pylogseg.scan(segment.read_bytes()).batches
    segment.write_bytes(segment.read_bytes()[: int(first.position[2])])
    export(tmp_path / "data", tmp_path / "out")
    assert [str(date) for date in rows(tmp_path / "out")["date"].to_pylist()] == ["1970-01-01"] * 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_command_writes_what_changed(tmp_path: Path, jobs: int) -> None:
    """The rows and files of the functions; a line for each file."""
    disk, out, other = tmp_path / "data", tmp_path / "out", tmp_path / "other"
    for number in range(2):
        make(disk / f"t-{number}", [i // 20 for i in range(60)])
    done = export(disk, other)
    words = ("export", disk, "--out", out, "--by-date", "--jobs", jobs)
    first = shell(*words, "--json")
    assert (first.code, {row["state"] for row in first.rows}) == (0, {"written"})
    assert [*first.rows[0]] == [column.name for column in columns.EXPORTED]
    assert [(row["path"], row["records"]) for row in first.rows] == [
        (str(out / name), records) for part in done for name, records, _ in part.files
    ]
    assert rows(out) == rows(other)
    with pylogseg.open_log(disk / "t-1") as log:
        log.append([(3 * DAY_MS, b"k", b"new")])
    again = shell(*words)
    assert (again.code, "121 records" in again.text, " unchanged" in again.text) == (0, True, True)
    assert len(rows(out)) == 121


def test_the_command_tells_of_damage(tmp_path: Path) -> None:
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 100)
    hurt = sorted((disk / "t-0").glob("*.log"))[1]
    change_byte(hurt, 200)
    words = ("export", disk, "--out", out, "--by-date")
    done = shell(*words, "--on-corrupt", "skip")
    assert (done.code, f"t-0: segment {int(hurt.stem)}: " in done.err) == (1, True)
    assert offsets(out) == in_log(disk, on_corrupt="skip")
    assert shell(*words).code == 1
    (tmp_path / "back").mkdir()
    refused = shell("restore", out, tmp_path / "back")
    assert (refused.code, "did not finish" in refused.err) == (1, True)
    for more in (["--key", "k"], ["--latest"], ["--value-type", "string"], ["--to", "csv"]):
        assert shell(*words, *more).code == 2
    assert shell("export", disk, "--out", tmp_path / "one.parquet", "--by-date").code == 2


def test_wild_timestamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More days than files may be open at a time; records without a time, or with one beyond any calendar."""
    monkeypatch.setattr(module, "_OPEN_FILES", 3)
    make(tmp_path / "data" / "t-0", [i * 7 % 10 for i in range(60)])
    batch = pylogseg.encode([(-1, b"k", b"none"), (2**62, b"k", b"far")], base_offset=1000)
    (tmp_path / "data" / "t-1").mkdir()
    (tmp_path / "data" / "t-1" / f"{1000:020d}.log").write_bytes(batch)
    done = export(tmp_path / "data", tmp_path / "out")
    assert len(rows(tmp_path / "out")) == 62
    assert any("__HIVE_DEFAULT_PARTITION__" in path for part in done for path, _, _ in part.files)


def test_what_died_is_cleared_up(tmp_path: Path) -> None:
    """A run that was killed leaves files that are not whole; any later run removes them, whatever it has to do."""
    make(tmp_path / "data" / "t-0", [0] * 3)
    export(tmp_path / "data", tmp_path / "out")
    left = tmp_path / "out" / NOTES / "writing-0123"
    left.mkdir()
    (left / "date=1970-01-01-0-0.parquet.0123").touch()
    assert {part.state for part in export(tmp_path / "data", tmp_path / "out")} == {"unchanged"}
    assert not left.exists()


def test_what_ends_leaves_nothing(tmp_path: Path) -> None:
    make(tmp_path / "data" / "t-0", [0, 1] * 30)

    class Ends(Exception):
        pass

    def advance(size: int) -> None:
        raise Ends

    with pytest.raises(Ends):
        export(tmp_path / "data", tmp_path / "out", advance=advance)
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["table.json"]
    with pytest.raises(RequestError, match="by date are parquet or arrow"):
        TableExport(tmp_path, Form("csv"), "read_uncommitted")


# ---- again, after the log has changed ----


def offsets(out: Path) -> list[int]:
    return sorted(rows(out)["offset"].to_pylist())


def in_log(disk: Path, **options: Any) -> list[int]:
    return sorted(read_arrow(str(disk), **options).read_all()["offset"].to_pylist())


def transactions(folder: Path, first: int, end: int, *, ends: bool = True) -> None:
    """Transactions of two producers that overlap; every third aborts, and without `ends` the last stays open."""
    with pylogseg.open_log(folder, segment_bytes=1500, retention_ms=-1) as log:
        for n in range(first, end):
            one, other = log.producer(7 + n % 2), log.producer(7 + (n + 1) % 2)
            if not one.has_open_transaction:
                one.begin()
            one.append([(n, b"k%d" % n, b"v" * 40)] * 5)
            if other.has_open_transaction:
                (other.abort if n % 3 == 0 else other.commit)()
        if ends:
            (log.producer(7 + (end - 1) % 2)).commit()


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("on_corrupt", ["raise", "stop", "skip"])
def test_a_log_that_grew(tmp_path: Path, isolation_level: Any, on_corrupt: Any) -> None:
    how = {"isolation_level": isolation_level, "on_corrupt": on_corrupt}
    disk, out = tmp_path / "data", tmp_path / "out"
    for first, end, ends in ((0, 20, True), (20, 40, False), (40, 41, True), (41, 60, True)):
        transactions(disk / "t-0", first, end, ends=ends)
        done = export(disk, out, **how)
        assert offsets(out) == in_log(disk, isolation_level=isolation_level)
        assert "written" in {part.state for part in done}
        assert {part.state for part in export(disk, out, **how)} == {"unchanged"}
    assert "unchanged" in {part.state for part in done}


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("on_corrupt", ["raise", "stop"])
def test_a_log_that_retention_shortened(tmp_path: Path, isolation_level: Any, on_corrupt: Any) -> None:
    """What is no more in the log stays in the table, once; or goes if that is asked for."""
    how = {"isolation_level": isolation_level, "on_corrupt": on_corrupt}
    disk, out = tmp_path / "data", tmp_path / "out"
    transactions(disk / "t-0", 0, 40)
    export(disk, out, **how)
    everything = offsets(out)
    for path in sorted((disk / "t-0").glob("*.log"))[:4]:
        for companion in path.parent.glob(f"{path.stem}.*"):
            companion.unlink()
    transactions(disk / "t-0", 40, 50)
    export(disk, out, **how)
    left = in_log(disk, isolation_level=isolation_level)
    assert min(left) > 0
    assert offsets(out) == sorted({*everything, *left})
    export(disk, out, keep_deleted=False, **how)
    assert offsets(out) == left


def test_records_deleted_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 60)
    export(disk, out)
    (disk / "log-start-offset-checkpoint").write_text("0\n1\nt 0 30\n")
    assert in_log(disk) == list(range(30, 60))
    assert {part.state for part in export(disk, out)} == {"unchanged"}
    make(disk / "t-0", [0] * 3)
    export(disk, out)
    assert offsets(out) == list(range(63))
    export(disk, out, keep_deleted=False)
    assert offsets(out) == list(range(30, 63))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_log_that_was_compacted(tmp_path: Path, isolation_level: Any) -> None:
    """The cleaner merges segments: those that are gone keep no file."""
    disk, out = tmp_path / "data", tmp_path / "out"
    for round in range(3):
        with pylogseg.open_log(disk / "t-0", segment_bytes=1500, retention_ms=-1) as log:
            for n in range(60):
                log.append([(n * DAY_MS // 9, b"k%d" % (n % 11), b"%d" % round * 40)])
        export(disk, out, isolation_level=isolation_level)
        assert offsets(out) == in_log(disk)
        before = len(list((disk / "t-0").glob("*.log")))
        pylogseg.offline.compact(disk, force=True)
        assert len(list((disk / "t-0").glob("*.log"))) < before
        export(disk, out, isolation_level=isolation_level)
        assert offsets(out) == in_log(disk)
    assert {part.state for part in export(disk, out, isolation_level=isolation_level)} == {"unchanged"}


def test_another_log_of_that_name(tmp_path: Path) -> None:
    """The topic was deleted and made again, or the log was truncated; or another replica has other segments."""
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 60)
    export(disk, out)
    shutil.rmtree(disk)
    make(disk / "t-0", [1] * 10)
    export(disk, out)
    assert offsets(out) == list(range(10))
    for base in (5, 35):
        shutil.rmtree(disk)
        (disk / "t-0").mkdir(parents=True)
        batch = pylogseg.encode([(0, b"k", b"v")] * 30, base_offset=base)
        (disk / "t-0" / f"{base:020d}.log").write_bytes(batch)
        export(disk, out)
        assert offsets(out) == list(range(base + 30))
        assert {part.state for part in export(disk, out)} == {"unchanged"}


def test_times_that_are_asked_for_add_up(tmp_path: Path) -> None:
    """A run never takes away what the table has and the log too; what nobody asked for is not added."""
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [n // 10 for n in range(60)])
    for day in range(4):
        export(disk, out, times=(day * DAY_MS, (day + 1) * DAY_MS))
        assert offsets(out) == list(range(10 * (day + 1)))
    with pylogseg.open_log(tmp_path / "one" / "t-0") as log:
        log.append([(n * DAY_MS, b"k", b"v") for n in range(5)])
    export(tmp_path / "one", tmp_path / "other", times=(0, DAY_MS))
    with pytest.raises(RequestError, match="would leave a gap between"):
        export(tmp_path / "one", tmp_path / "other", times=(3 * DAY_MS, None))
    export(disk, out)
    assert offsets(out) == list(range(60))
    assert {part.state for part in export(disk, out, times=(5 * DAY_MS, None))} == {"unchanged"}
    assert offsets(out) == list(range(60))


@pytest.mark.parametrize("how", ["skip", "stop"])
def test_a_partial_export_is_not_taken_for_a_whole_one(tmp_path: Path, how: Any) -> None:
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 100)
    hurt = sorted((disk / "t-0").glob("*.log"))[1]
    good = hurt.read_bytes()
    times = os.stat(hurt)
    hurt.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
    os.utime(hurt, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = export(disk, out, on_corrupt=how)
    assert offsets(out) == in_log(disk, on_corrupt=how)
    assert [part.problem is not None for part in done][:2] == [False, True]
    again = export(disk, out, on_corrupt=how)
    assert [part.problem for part in again] == [part.problem for part in done]
    with pytest.raises(pylogseg.CorruptionError):
        export(disk, out)
    assert read_state(out)["state"] == "writing"
    (tmp_path / "back").mkdir()
    with pytest.raises(pylogseg.errors.IncompleteError, match="did not finish, and parts may be missing"):
        pylogseg.offline.restore(out, tmp_path / "back")
    # Another run with the first one's wish, then with a whole disk.
    other: Any = "stop" if how == "skip" else "skip"
    export(disk, out, on_corrupt=other)
    assert offsets(out) == in_log(disk, on_corrupt=other)
    hurt.write_bytes(good)
    export(disk, out)
    assert offsets(out) == list(range(100))
    assert read_state(out)["state"] == "whole"


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_damage_after_the_last_offset_of_a_segment(tmp_path: Path, isolation_level: Any) -> None:
    disk = tmp_path / "data"
    make(disk / "t-0", [0] * 100)
    hurt = sorted((disk / "t-0").glob("*.log"))[1]
    hurt.write_bytes(hurt.read_bytes() + b"no batch" * 9)
    with pytest.raises(pylogseg.CorruptionError):
        read_arrow(str(disk), isolation_level=isolation_level).read_all()
    with pytest.raises(pylogseg.CorruptionError):
        export(disk, tmp_path / "out", isolation_level=isolation_level)
    export(disk, tmp_path / "skipped", isolation_level=isolation_level, on_corrupt="skip")
    assert offsets(tmp_path / "skipped") == list(range(100))


def test_a_run_that_died_between_files_and_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each place where names change hands: the next run ends in the table of the log as it is then."""
    disk = tmp_path / "data"

    class Dies(BaseException):
        pass

    for death in range(9):
        out = tmp_path / f"out-{death}"
        shutil.rmtree(disk, ignore_errors=True)
        make(disk / "t-0", [0, 0, 1, 1, 2])
        if death % 2:
            export(disk, out)
            with pylogseg.open_log(disk / "t-0") as log:
                log.append([(5 * DAY_MS, b"k", b"v")])
        calls = iter(range(100))

        def replacing(
            source: Any, target: Any, *, _replace: Any = os.replace, _calls: Any = calls, _death: int = death
        ) -> None:
            if next(_calls) == _death:
                raise Dies
            _replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(module.os, "replace", replacing)
            with contextlib.suppress(Dies):
                export(disk, out)
        # Meanwhile the cleaner takes a day's records out.
        segment = disk / "t-0" / f"{0:020d}.log"
        batches = pylogseg.scan(segment.read_bytes()).batches
        segment.write_bytes(segment.read_bytes()[: int(batches.position[2])])
        export(disk, out)
        assert offsets(out) == [0, 1], death
        assert not [path for path in out.rglob("*") if "tmp" in path.name or "writing" in path.name]


def test_what_a_table_is_does_not_change(tmp_path: Path) -> None:
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 10)
    export(disk, out)
    for form, isolation_level, words in (
        (Form("parquet", ("offset", "value")), "read_uncommitted", "the table has columns partition, "),
        (Form("arrow", COLUMNS), "read_uncommitted", "the table has form parquet, and arrow"),
        (FORM, "read_committed", "the table has isolation_level read_uncommitted"),
    ):
        for dry_run in (True, False):
            with pytest.raises(RequestError, match=words):
                export(disk, out, form=form, isolation_level=isolation_level, dry_run=dry_run)
    assert offsets(out) == list(range(10))
    few = Form("parquet", ("offset", "value"))
    assert {part.state for part in export(disk, out, form=few, overwrite=True, dry_run=True)} == {"to do"}
    foreign = out / "topic=t" / "mine.txt"
    foreign.touch()
    export(disk, out, form=few, overwrite=True)
    assert ds.dataset(out / "topic=t" / "date=1970-01-01").schema.names == ["offset", "value"]
    assert foreign.exists()
    (out / NOTES / "table.json").unlink()
    with pytest.raises(RequestError, match="an earlier version"):
        export(disk, out)


def test_one_export_at_a_time(tmp_path: Path) -> None:
    make(tmp_path / "data" / "t-0", [0] * 3)
    table = TableExport(tmp_path / "out", FORM, "read_uncommitted")
    with table.open_run(), pytest.raises(pylogseg.StorageError, match="lock"):
        export(tmp_path / "data", tmp_path / "out")


def test_notes_name_no_other_files(tmp_path: Path) -> None:
    """A note that somebody changed does not make an export delete what it has not written."""
    disk, out = tmp_path / "data", tmp_path / "out"
    make(disk / "t-0", [0] * 3)
    export(disk, out)
    precious = tmp_path / "precious.parquet"
    precious.touch()
    (note,) = (out / NOTES).glob("t-0-*.json")
    said = json.loads(note.read_text())
    said["files"] += [
        ["../precious.parquet", 0, 0],
        [str(precious), 0, 0],
        ["topic=t/date=1/../../../precious.parquet", 0, 0],
    ]
    note.write_text(json.dumps(said))
    export(disk, out)
    assert precious.exists()


def test_two_files_for_one_part(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make(tmp_path / folder / "t-0", [0] * 3)
    logs = [log for folder in ("a", "b") for log in logs_of(pylogseg.open_dir(tmp_path / folder))]
    with pytest.raises(RequestError, match="the same part of the same partition"):
        plan_parts(logs, TableExport(tmp_path / "out", FORM, "read_uncommitted"), Selection(), Reading().start())
