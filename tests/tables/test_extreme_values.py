"""Tests of values/json_text.py. Values at the ends of their types, in every door: exact, or null and named with exit
code 1; never another value.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from helpers.extreme_values import AS_TEXT, CASES, SCHEMA_IDS, Case, write_topics
from helpers.lake_tables import catalog_of, has_format, name_of, rows_of
from helpers.shell import Done, expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.values.json_text import json_text

__all__ = ["catalog_of"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("extreme") / "a #%ü")


class Answer(NamedTuple):
    """The JSON of each value, None for a null; the exit code, and what was said."""

    texts: list[str | None]
    code: int
    said: str


def how(topic: str, log: Path) -> list[Any]:
    return ["--schema", SCHEMA_IDS[topic], "--registry", log / "schemas"]


def parts_of(text: str) -> dict[str, str]:
    """Return the members of an object as they stand."""
    decoder, found, at = json.JSONDecoder(parse_float=str, parse_int=str), dict[str, str](), 1
    while text[at] != "}":
        name, end = decoder.raw_decode(text, at)
        _, stop = decoder.raw_decode(text, end + 1)
        found[name] = text[end + 1 : stop]
        at = stop + (text[stop] == ",")
    return found


def answer(topic: str, texts: list[Any], done: Done) -> Answer:
    found = [
        None if text in (None, "null") else parts_of(text)[case.field]
        for text, case in zip(texts, CASES[topic], strict=True)
    ]
    return Answer(found, done.code, done.err + done.text)


def of_lines(topic: str, done: Done, data: bytes) -> Answer:
    """Read JSON lines with a value; one that does not decode is a string."""
    texts = [line.removeprefix('{"value":').removesuffix("}") for line in data.decode().splitlines()]
    for text in texts:
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    return answer(topic, [text if text.startswith("{") else None for text in texts], done)


def of_column(topic: str, table: pa.Table, done: Done) -> Answer:
    table = table.sort_by("offset")
    column = table.column("value").combine_chunks()
    texts = json_text(column, table.schema.field("value")).to_pylist()
    by_offset = dict(zip(table.column("offset").to_pylist(), texts, strict=True))
    return answer(topic, [by_offset.get(n, "null") for n in range(len(CASES[topic]))], done)


def cat(topic: str, log: Path, out: Path) -> Answer:
    done = shell("cat", log, topic, "--value-as", "schema", *how(topic, log), "--fields", "value")
    return of_lines(topic, done, done.out)


def jsonl(topic: str, log: Path, out: Path) -> Answer:
    words = ["--to", "jsonl", "--value-as", "schema", "--columns", "value", *how(topic, log)]
    done = shell("export", log, topic, "--out", out / "f.jsonl", *words)
    return of_lines(topic, done, (out / "f.jsonl").read_bytes())


def in_csv(topic: str, log: Path, out: Path) -> Answer:
    words = ["--value-as", "schema", "--columns", "offset,value", *how(topic, log)]
    done = shell("export", log, topic, "--out", out / "f.csv", *words)
    rows = list(csv.reader(io.StringIO((out / "f.csv").read_bytes().decode())))[1:]
    bad = [case.text is None for case in CASES[topic]]  # raw there, which may be JSON
    return answer(topic, [None if b else value for (_, value), b in zip(rows, bad, strict=True)], done)


def sql(topic: str, log: Path, out: Path) -> Answer:
    query = f'select value from "{topic}" order by "offset"'
    done = shell("sql", log, query, "--value-as", "schema", *how(topic, log), "-O", "json")
    return of_lines(topic, done, done.out)


def file_of(form: str) -> Callable[[str, Path, Path], Answer]:
    def export(topic: str, log: Path, out: Path) -> Answer:
        done = shell("export", log, topic, "--out", out / f"f.{form}", "--value-type", "schema", *how(topic, log))
        return of_column(topic, ds.dataset(out / f"f.{form}", format=form).to_table(), done)

    return export


def in_python(read: Callable[..., pa.Table]) -> Callable[[str, Path, Path], Answer]:
    def door(topic: str, log: Path, out: Path) -> Answer:
        table = read(log, topic, decoding="value", registry=log / "schemas", schema=SCHEMA_IDS[topic])
        errors = [error for error in table.column("valueError").to_pylist() if error]
        return of_column(topic, table, Done(int(bool(errors)), b"", "\n".join(errors)))

    return door


def polars(log: Path, topic: str, **options: Any) -> pa.Table:
    pytest.importorskip("polars")
    return pylogseg.scan_polars(log, topic, **options).collect().to_arrow()


def pandas(log: Path, topic: str, **options: Any) -> pa.Table:
    pd = pytest.importorskip("pandas")
    table = pylogseg.read_arrow(log, topic, **options).read_all()
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame, schema=table.schema)


def table_of(kind: str) -> Callable[[str, Path, Path], Answer]:
    def lake(topic: str, log: Path, out: Path) -> Answer:
        if not has_format(kind):
            pytest.skip(f"duckdb's extension {kind} is not here")
        name = name_of(kind, out, topic)
        done = shell("lake", log, topic, name, "--to-end", "--value-as", "schema", *how(topic, log))
        assert "dead letter" in done.text
        return of_column(topic, rows_of(name), done)

    return lake


DOORS: dict[str, Callable[[str, Path, Path], Answer]] = {
    "cat": cat,
    "export to JSON lines": jsonl,
    "export to CSV": in_csv,
    "export to Parquet": file_of("parquet"),
    "export to Arrow": file_of("arrow"),
    "sql": sql,
    "read_arrow": in_python(lambda *given, **how: pylogseg.read_arrow(*given, **how).read_all()),
    "read_arrow of two jobs": in_python(lambda *given, **how: pylogseg.read_arrow(*given, jobs=2, **how).read_all()),
    "dataset": in_python(lambda *given, **how: pylogseg.dataset(*given, **how).to_table()),
    "polars": in_python(polars),
    "pandas": in_python(pandas),
    **{kind: table_of(kind) for kind in ("delta", "iceberg", "ducklake")},
}


@pytest.mark.parametrize("topic", CASES)
@pytest.mark.parametrize("door", DOORS)
def test_a_value_is_exact_or_null_and_named(log: Path, tmp_path: Path, door: str, topic: str) -> None:
    """A whole number became the nearest double, times lost digits or became infinite, and two fields became one."""
    pytest.importorskip("duckdb")
    got = DOORS[door](topic, log, tmp_path)
    wrong, is_cut = [], False
    for case, text in zip(CASES[topic], got.texts, strict=True):
        other = other_text(case, door)
        if text != (other or case.text):
            wrong.append(f"{case.field} {case.raw!r}: {text} instead of {other or case.text}")
        is_cut |= case.is_cut and other is not None
    assert wrong == []
    assert got.code == 1
    assert any(word in got.said for word in ("decode", "dead letter", "at byte", "double"))
    assert is_cut == ("digits below a microsecond" in got.said)


def other_text(case: Case, door: str) -> str | None:
    """Return the JSON of a value in the type that a door has for it, if that is another one."""
    if case.text is None:
        return None
    if door in ("polars", "iceberg", "ducklake") and case.field in AS_TEXT:  # they keep no note that text is JSON
        return json.dumps(case.text)
    return case.in_table if door in ("delta", "iceberg", "ducklake") else case.in_sql if door == "sql" else None


TWO_NAMES = {
    "avsc": '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"ID","type":"string"}]}',
    "json": '{"properties":{"in":{"properties":{"id":{"type":"integer"},"ID":{"type":"string"}}}}}',
}
VALUES = {"avsc": b"\2\2x", "json": b'{"in":{"id":1,"ID":"x"}}'}


@pytest.mark.parametrize("ending", TWO_NAMES)
def test_names_that_differ_in_case_only_are_told_apart_or_refused(tmp_path: Path, ending: str) -> None:
    """In SQL both fields had the value of the first one, and a run of Delta ended with the trace of a library."""
    (tmp_path / f"7.{ending}").write_text(TWO_NAMES[ending])
    with pylogseg.open_log(tmp_path / "log" / "orders-0") as log:
        log.append([{"value": b"\0\0\0\0\7" + VALUES[ending]}])
    words = ["--value-as", "schema", "--schema", "7", "--registry", tmp_path / f"7.{ending}"]
    expect(shell("cat", tmp_path / "log", *words, "--fields", "value"), 0, out='"id":1,"ID":"x"')
    for command in (
        ["sql", tmp_path / "log", "select value from orders", *words],
        *(["lake", tmp_path / "log", "orders", name_of(kind, tmp_path, "orders"), *words]
          for kind in ("delta", "iceberg")),
    ):  # fmt: skip
        done = shell(*command)
        assert done.code == 2, command
        assert "fields id and ID" in done.err
        assert done.err.count("\n") == 1
