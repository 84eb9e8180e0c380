"""Tests of lakehouse/ducklake.py. Where the tables of `lake` lie: folders with any name, folders that were copied or
moved, topics with any name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.lake_tables import catalog_of, log_rows, name_of, plain, rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import RequestError

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

NAMES = (
    "a b", "a#b", "a%b", "100%", "a?b", "ü", "名", "a'b", "a+b", "a&b", "a[b", "x[0-9]", "a*b", "date=5", "a:b", "a;b",
    'a"b', "a{b", "a,b", "~t", "-dash", "a%20b", "a%23b", "a\\b", "a\nb",
)  # fmt: skip
#: What the libraries of a format, or SQLAlchemy for the catalog, take for another path.
REFUSED = {
    "delta": ("a%20b", "a%23b", "a\\b", "a\nb"),
    "iceberg": ("a%20b", "a%23b", "a\\b", "a\nb", "a?b"),
    "ducklake": ("a\\b", "a\nb"),
}


def append(data: Path, count: int, folder: str = "orders-0") -> Path:
    with pylogseg.open_log(data / folder) as log:
        first = log.log_end_offset
        log.append([{"key": b"k", "value": b"%d" % n} for n in range(first, first + count)])
    return data


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_other_libraries_read_a_table_in_a_folder_with_any_name(tmp_path: Path, kind: str, name: str) -> None:
    """A URI would escape some characters, and a reader that does not looks for the files elsewhere."""
    data, out = append(tmp_path / "data", 5), tmp_path / "out" / name
    table = name_of(kind, out, "orders")
    if name in REFUSED[kind]:
        with pytest.raises(RequestError, match="give the folder another name"):
            pylogseg.lake(data, table)
        assert not (tmp_path / "out").exists()
        return
    for count in (5, 3):
        pylogseg.lake(data, table, clean=True)
        assert plain(rows_of(table)) == log_rows(data, "orders")
        assert pylogseg.audit(data, table).is_right
        append(data, count)
    if kind == "iceberg":
        import polars

        read = polars.scan_iceberg(catalog_of(out).load_table(("kafka", "orders")))
        assert read.select("offset").collect().height == 10
        assert pylogseg.audit(data, out / "kafka" / "orders").is_right


def test_a_name_with_dots_is_the_same_table_for_both_commands(tmp_path: Path, kind: str) -> None:
    data, table = append(tmp_path / "data", 5, "a.b.c-0"), name_of(kind, tmp_path / "out", "{topic}")
    pylogseg.lake(data, table)
    assert pylogseg.audit(data, table.replace("{topic}", "a.b.c")).is_right


@pytest.mark.parametrize("how", ["copied", "moved"])
def test_a_folder_that_was_copied_or_moved(tmp_path: Path, kind: str, how: str) -> None:
    """Nothing is written into, or removed from, a folder that was not named."""
    data, first, other = append(tmp_path / "data", 5), tmp_path / "first", tmp_path / "other"
    pylogseg.lake(data, name_of(kind, first, "orders"))
    if how == "copied":
        shutil.copytree(first, other)
        append(data, 5)
        pylogseg.lake(data, name_of(kind, first, "orders"))
    else:
        first.rename(other)
    append(data, 5)
    before = files_in(first) if first.exists() else None
    table = name_of(kind, other, "orders")
    if kind == "delta":
        pylogseg.lake(data, table, clean=True)
        assert plain(rows_of(table)) == log_rows(data, "orders")
        assert pylogseg.audit(data, table).is_right
    else:
        done = shell("lake", data, table, "--clean")
        assert (done.code, done.out) == (2, b"")
        assert "copied or moved" in done.err or kind == "ducklake"
        done = shell("audit", data, table)
        assert (done.code, done.out) == (2, b"") or kind == "ducklake"
        if kind == "iceberg":
            done = shell("audit", data, other / "kafka" / "orders")
            assert (done.code, "copied or moved" in done.err) == (2, True)
    assert before == (files_in(first) if first.exists() else None)


def test_a_folder_by_another_name_of_it(tmp_path: Path, kind: str) -> None:
    """A symbolic link is the folder itself, whichever of the two names was there first."""
    data, real, link = append(tmp_path / "data", 5), tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    if kind == "ducklake":
        pytest.skip("duckdb compares paths as they are written")
    for folder in (link, real, link):
        pylogseg.lake(data, name_of(kind, folder, "orders"))
        append(data, 5)
    assert len(rows_of(name_of(kind, real, "orders"))) == 15


@pytest.mark.parametrize("folder", ["..-0", ".-0", "old copy-0", "a;b-0"])
def test_a_folder_that_is_no_topics_is_no_path(tmp_path: Path, kind: str, folder: str) -> None:
    """It is a fault; the other topics are written."""
    data = append(append(tmp_path / "data", 5), 5, "zeta-0")
    shutil.copytree(data / "orders-0", data / folder)
    place = tmp_path / "above" / "place"
    expect(shell("lake", data, name_of(kind, place, "{topic}")), 1, f"no topic can have the name of {folder!r}")
    for topic in ("orders", "zeta"):
        assert len(rows_of(name_of(kind, place, topic))) == 5
    assert {path.name for path in (tmp_path / "above").iterdir()} == {"place"}


@pytest.mark.parametrize("name", ["iceberg:{}/ns...", "iceberg:{}/...t", "ducklake:{}/f/..", "ducklake:{}/f/."])
def test_a_table_that_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="expected delta:FOLDER"):
        pylogseg.lake(append(tmp_path / "data", 5), name.format(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
