"""Tests of offline/by_executor.py and reading/marks.py. What an earlier run made is unchanged if the logs are, and not
by their size and time alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg import offline
from pylogseg.offline import Blank, by_executor
from pylogseg.reading.logs import logs_of
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.tables import COLUMNS, TableExport, export_parts, plan_parts

OLD, NEW, NOW = b"secret!", b"-------", 1_700_000_000_000


def _blank(log: Path, root: Path) -> None:
    offline.redact(root, keys=[b"k1"], blank=Blank(("value",), NEW), now_ms=NOW)


def _flip(log: Path, root: Path) -> None:
    change_byte(log, -1)  # in a file that ends in the middle of a batch


def _remove(log: Path, root: Path) -> None:
    log.rename(log.with_suffix(".away"))


def _made(root: Path, torn: bool = False) -> Path:
    with pylogseg.open_log(root / "t-0") as log:
        log.append([(NOW, b"k0", b"kept")])
        log.append([(NOW, b"k1", OLD)])
    path = root / "t-0" / f"{0:020d}.log"
    if torn:
        path.write_bytes(path.read_bytes()[:-3])
    return path


def _keeping_time(path: Path, change: Callable[[], None]) -> None:
    before = path.stat()
    change()
    if path.exists():
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("what", ["again", "blank", "magic 1", "torn", "gone", "older note"])
def test_a_mark(what: str, tmp_path: Path) -> None:
    path = _made(tmp_path, torn=what == "torn")
    if what == "magic 1":
        path.write_bytes(pylogseg.encode([(NOW, b"k", OLD)], magic=1))
    (segment,) = pylogseg.open_dir(tmp_path).segments
    mark = mark_of(segment)
    assert is_marked(segment, mark)
    if what == "older note":
        mark = mark[:2]
    elif what != "again":
        change = {"blank": _blank, "gone": _remove}.get(what, _flip)
        _keeping_time(path, lambda: change(path, tmp_path))
    assert is_marked(segment, mark) == (what == "again")
    if what == "gone":  # and what could not be read then is not known to be the same
        assert not is_marked(segment, mark_of(segment))


def test_export_after_a_value_was_blanked(tmp_path: Path) -> None:
    path, values = _made(tmp_path / "data"), []
    for _ in range(2):
        table = TableExport(tmp_path / "out", Form("parquet", COLUMNS), "read_uncommitted")
        with table.open_run():
            ((part,),) = plan_parts(
                logs_of(pylogseg.open_dir(tmp_path / "data")), table, Selection(), Reading().start()
            )
            (done,) = export_parts([part], table)
        values.append(pq.read_table(tmp_path / "out" / done.files[0][0], partitioning=None)["value"].to_pylist())
        _keeping_time(path, lambda: _blank(path, tmp_path / "data"))
    assert values == [[b"kept", OLD], [b"kept", NEW]]


def test_notes_of_an_executor(tmp_path: Path) -> None:
    path = _made(tmp_path)
    folder = str(path.parent)
    note = by_executor.note_of(folder, "how")
    assert by_executor.is_made_of((folder, note, "how"), lambda _: None)
    assert not by_executor.is_made_of((folder, note, "otherwise"), lambda _: None)
    assert not by_executor.is_made_of((folder, {**note, "log_start": 1}, "how"), lambda _: None)
    assert not by_executor.is_made_of(
        (folder, {**note, "files": [[path.name, *note["files"][path.name][:2]]]}, "how"), lambda _: None
    )
    _keeping_time(path, lambda: _blank(path, tmp_path))
    assert not by_executor.is_made_of((folder, note, "how"), lambda _: None)
