"""Tests of reading/arrow/texts.py. Offsets, payloads and names of headers at the ends of what a log has, in every door,
and restored: all the same.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from helpers.extreme_values import BASES, ODD, write_records
from helpers.lake_tables import has_format, name_of, rows_of
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.format.text import payload_of
from pylogseg.reading.arrow.texts import readable_strings

Rows = list[tuple[Any, ...]]
COLUMNS = ["partition", "offset", "key", "value", "headers"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("extreme") / "a #%ü")


@pytest.fixture(scope="module")
def truth(log: Path) -> Rows:
    rows = [
        (number, record.offset, record.key, record.value,
         [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers])
        for number in range(len(BASES)) for record in pylogseg.read(log / f"orders-{number}")
    ]  # fmt: skip
    assert [(row[1], row[2]) for row in rows] == [(base + i, odd) for base in BASES for i, odd in enumerate(ODD)]
    return rows


def rows_in(table: pa.Table) -> Rows:
    """Return the rows of a table, with the bytes of names of headers."""
    rows = table.select(COLUMNS).to_pylist()
    pairs = [[(payload_of(each["key"]), each["value"]) for each in row["headers"] or []] for row in rows]
    found = [(row["partition"], row["offset"], row["key"], row["value"], headers)
             for row, headers in zip(rows, pairs, strict=True)]  # fmt: skip
    return sorted(found, key=lambda row: row[:2])


def of_json(rows: list[dict[str, Any]]) -> Rows:
    return [
        (row["partition"], row["offset"], payload_of(row["key"]), payload_of(row["value"]),
         [(payload_of(each["key"]), payload_of(each["value"])) for each in row["headers"] or []])
        for row in rows
    ]  # fmt: skip


def of_csv(data: bytes) -> Rows:
    """Read CSV; an empty field without quotes is null, which Python's reader does not tell from an empty text."""
    rows = list(csv.DictReader(io.StringIO(data.decode().replace(',"",', ',"<empty>",'))))
    for row in rows:
        for name in ("key", "value"):
            row[name] = {"": None, "<empty>": ""}.get(row[name], row[name])  # type: ignore[assignment]
    return of_json([
        {**row, "partition": int(row["partition"]), "offset": int(row["offset"]), "headers": json.loads(row["headers"])}
        for row in rows
    ])  # fmt: skip


def export(form: str) -> Callable[[Path, Path], Rows]:
    def door(log: Path, out: Path) -> Rows:
        done = shell("export", log, "--out", out / f"f.{form}", "--columns", ",".join(COLUMNS))
        assert (done.code, done.err) == (0, "")
        if form in ("csv", "jsonl"):
            data = (out / f"f.{form}").read_bytes()
            return of_csv(data) if form == "csv" else of_json([json.loads(line) for line in data.splitlines()])
        return rows_in(ds.dataset(out / f"f.{form}", format=form).to_table())

    return door


def table_of(kind: str) -> Callable[[Path, Path], Rows]:
    def door(log: Path, out: Path) -> Rows:
        if not has_format(kind):
            pytest.skip(f"duckdb's extension {kind} is not here")
        name = name_of(kind, out, "orders")
        done = shell("lake", log, "orders", name, "--to-end")
        assert (done.code, done.err) == (0, "")
        assert shell("audit", log, "orders", name).code == 0
        return rows_in(rows_of(name))

    return door


def sql(log: Path, out: Path) -> Rows:
    pytest.importorskip("duckdb")
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    done = shell("sql", log, f"select {names} from orders order by 1, 2", "-O", "json")
    assert (done.code, done.err) == (0, "")
    return of_json(done.rows)


def cat(log: Path, out: Path) -> Rows:
    done = shell("cat", log)
    assert (done.code, done.err) == (0, "")
    return sorted(of_json(done.rows), key=lambda row: row[:2])


def polars(log: Path, out: Path) -> Rows:
    pytest.importorskip("polars")
    return rows_in(pylogseg.scan_polars(log).collect().to_arrow())


def pandas(log: Path, out: Path) -> Rows:
    pytest.importorskip("pandas")
    table = pylogseg.read_arrow(log, columns=COLUMNS).read_all()
    return rows_in(pa.Table.from_pandas(table.to_pandas(), schema=table.schema))


def appended(log: Path, out: Path) -> Rows:
    """Append the columns of each partition to a log of our own, which numbers records again."""
    found: Rows = []
    for number, base in enumerate(BASES):
        with pylogseg.open_log(out / "new" / f"orders-{number}") as made:
            made.append(pylogseg.read_arrow(log / f"orders-{number}", columns=["key", "value", "headers"]).read_all())
        table = pylogseg.read_arrow(out / "new" / f"orders-{number}").read_all()
        found += [(row[0], base + row[1], *row[2:]) for row in rows_in(table)]
    return found


DOORS: dict[str, Callable[[Path, Path], Rows]] = {
    "read_arrow": lambda log, out: rows_in(pylogseg.read_arrow(log).read_all()),
    "read_arrow of two jobs": lambda log, out: rows_in(pylogseg.read_arrow(log, jobs=2).read_all()),
    "views": lambda log, out: rows_in(pylogseg.read_arrow(log, views=True).read_all()),
    "dataset": lambda log, out: rows_in(pylogseg.dataset(log).to_table()),
    "cat": cat,
    "sql": sql,
    "polars": polars,
    "pandas": pandas,
    "append": appended,
    **{form: export(form) for form in ("csv", "jsonl", "parquet", "arrow")},
    **{kind: table_of(kind) for kind in ("delta", "iceberg", "ducklake")},
}


@pytest.mark.parametrize("door", DOORS)
def test_a_record_is_exact(log: Path, truth: Rows, tmp_path: Path, door: str) -> None:
    """Bytes of a header's name that are no UTF-8 became U+FFFD in all columns, so that two names were one."""
    assert DOORS[door](log, tmp_path) == truth


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_an_export_is_restored_as_it_was(log: Path, truth: Rows, tmp_path: Path, form: str) -> None:
    (tmp_path / "to").mkdir()
    assert shell("export", log, "--out", tmp_path / "out", "--to", form).code == 0
    assert shell("restore", tmp_path / "out", tmp_path / "to", "--committed").code == 0
    assert shell("diff", log, tmp_path / "to").code == 0
    assert rows_in(pylogseg.read_arrow(tmp_path / "to").read_all()) == truth


@pytest.mark.parametrize("name", ["base64:/w==", "base64:/w", "base64:", "base64:!", "base64:AAE=", "k"])
def test_names_of_headers_in_columns_are_bytes_and_back(name: str, tmp_path: Path) -> None:
    """A text that no reader writes stands for itself, and comes back as what a reader writes for it."""
    headers = pa.array([[(name, b"v")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        log.append(pa.table({"value": pa.array([b"v"]), "headers": headers}))
    (record,) = pylogseg.read(tmp_path / "orders-0")
    wanted = b"\xff" if name == "base64:/w==" else name.encode()
    assert record.headers == ((wanted.decode("utf-8", "surrogateescape"), b"v"),)
    ((pair,),) = pylogseg.read_arrow(tmp_path / "orders-0").read_all().column("headers").to_pylist()
    assert payload_of(pair["key"]) == wanted
    assert readable_strings(pa.array([wanted])).to_pylist() == [pair["key"]]
