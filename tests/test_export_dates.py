"""Files by topic and date: every record once, nothing half, and a second run that finds nothing to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import pylogseg
from pylogseg.arrow import read_arrow
from pylogseg.errors import RequestError
from pylogseg.jobs import export_dates as module
from pylogseg.jobs.export import Form
from pylogseg.jobs.export_dates import COLUMNS, ExportedPart, clear_up, export_part_by_date
from pylogseg.reading.partition import OPEN_END, ReadOptions
from pylogseg.reading.wanted import Wanted, logs_of

DAY_MS = 86_400_000
FORM = Form("parquet", COLUMNS)


def make(folder: Path, days: list[int]) -> None:
    with pylogseg.open_log(folder, segment_bytes=3000, message_timestamp_before_max_ms=2**62) as log:
        for i, day in enumerate(days):
            log.append([(day * DAY_MS + i, b"k%d" % i, b"v" * 40)])


def export(disk: Path, out: Path, **options: Any) -> list[ExportedPart]:
    logs = logs_of(pylogseg.open_dir(disk))
    wanted = [Wanted.of(log, (0, OPEN_END), (None, None), ReadOptions()) for log in logs]
    return [export_part_by_date(part, out, FORM, **options) for log in wanted for part in log.by_segment()]


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
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert {part.state for part in export(tmp_path / "data", tmp_path / "out")} == {"unchanged"}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
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


def test_wild_timestamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More days than files may be open at a time; records without a time, or with one beyond any calendar."""
    monkeypatch.setattr(module, "_OPEN_FILES", 3)
    days = [i * 7 % 10 for i in range(60)]
    make(tmp_path / "data" / "t-0", days)
    batch = pylogseg.encode([(-1, b"k", b"none"), (2**62, b"k", b"far")], base_offset=1000)
    (tmp_path / "data" / "t-1").mkdir()
    (tmp_path / "data" / "t-1" / f"{1000:020d}.log").write_bytes(batch)
    done = export(tmp_path / "data", tmp_path / "out")
    assert len(rows(tmp_path / "out")) == 62
    assert any("__HIVE_DEFAULT_PARTITION__" in path for part in done for path, _, _ in part.files)


def test_what_died_is_cleared_up(tmp_path: Path) -> None:
    make(tmp_path / "data" / "t-0", [0] * 3)
    done = export(tmp_path / "data", tmp_path / "out")
    target = tmp_path / "out" / done[0].files[0][0]
    left, foreign = target.with_name(f".{target.name}.0123.tmp"), target.with_name(".somebody.tmp")
    left.touch()
    foreign.touch()
    clear_up(tmp_path / "out", done)
    assert (left.exists(), foreign.exists(), target.exists()) == (False, True, True)


def test_what_ends_leaves_nothing(tmp_path: Path) -> None:
    make(tmp_path / "data" / "t-0", [0, 1] * 30)

    class Ends(Exception):
        pass

    def advance(size: int) -> None:
        raise Ends

    with pytest.raises(Ends):
        export(tmp_path / "data", tmp_path / "out", advance=advance)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    (log,) = logs_of(pylogseg.open_dir(tmp_path / "data"))
    with pytest.raises(RequestError, match="by date are parquet or arrow"):
        export_part_by_date(Wanted.of(log, (0, 1), (None, None), ReadOptions()), tmp_path, Form("csv"))
