"""Tests of lakehouse/files.py. A run of `lake` for which there is no room, at several moments: it says so, and the next
one goes on.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from helpers.lake_tables import latest_rows, log_rows, name_of, plain, rows_of
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import StorageError

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


def append(data: Path, first: int) -> None:
    with pylogseg.open_log(data / "orders-0", segment_bytes=100_000) as log:
        log.append([{"key": b"%d" % (n % 7), "value": os.urandom(5_000)} for n in range(first, first + 40)])


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("latest", [False, True])
def test_no_room(small: Path, tmp_path: Path, kind: str, latest: bool) -> None:
    data, table, filler = tmp_path / "data", name_of(kind, small / "out", "orders"), small / "filler"
    append(data, 0)
    pylogseg.lake(data, table, latest=latest)
    for number, room in enumerate((0, 4096, 100_000, 210_000), 1):
        append(data, 40 * number)
        free = os.statvfs(small)
        filler.write_bytes(bytes(max(free.f_bavail * free.f_bsize - room, 0)))
        with pytest.raises(StorageError, match=r"space|full") if room < 100_000 else contextlib.suppress(StorageError):
            pylogseg.lake(data, table, latest=latest)
        if not room:
            done = shell("lake", data, table, *(["--latest"] if latest else []))
            assert (done.code, "Traceback" in done.err) == (2, False)
        filler.unlink()
        pylogseg.lake(data, table, latest=latest, clean=True)
        assert plain(rows_of(table)) == (latest_rows(data) if latest else log_rows(data, "orders"))
