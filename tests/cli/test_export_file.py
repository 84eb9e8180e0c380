"""Tests of cli/export.py and values/strings.py. `pylogseg export` to one file, and keys and values as strings."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shell import damaged, expect, pylogseg

import pylogseg as package
from pylogseg.format.text import payload_of


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The records of a file of any form."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".arrow":
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all().to_pylist()
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file)) if path.suffix == ".csv" else [json.loads(line) for line in file]


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_all_partitions_in_one_file(form: str, examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / f"all.{form}"
    done = pylogseg("export", examples, "--out", out)
    assert (done.code, done.err) == (0, "")
    records = list(package.read(examples))
    assert done.text.startswith(f"{out}: {len(records):,} records in 1 file, ")
    rows = rows_of(out)
    assert [(r["topic"], int(r["partition"]), int(r["offset"])) for r in rows] == [
        (r.topic, r.partition, r.offset) for r in records
    ]
    if form in ("parquet", "arrow"):
        assert [(r["key"], r["value"]) for r in rows] == [(r.key, r.value) for r in records]
    assert list(out.parent.iterdir()) == [out]


def test_duckdb_reads_strings(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "txn.parquet"
    assert pylogseg("export", examples, "txn-a", "-O", out, "--key-type", "string", "--value-type", "string").code == 0
    found = duckdb.sql(f"select key, value from '{out}' where value like 'commit%' and partition = 1").fetchall()
    expected = [
        (r.key.decode(), r.value.decode())
        for r in package.read(examples, "txn-a-1")
        if (r.value or b"")[:6] == b"commit"
    ]
    assert found == expected != []


def test_what_is_there_stays(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    assert pylogseg("export", examples, "txn-a", "-O", out).code == 0
    before = out.read_bytes()
    done = pylogseg("export", examples, "txn-b", "-O", out)
    assert (done.code, done.err) == (2, f"pylogseg: {out} exists already: replace it with --overwrite\n")
    assert out.read_bytes() == before
    folder = damaged(examples / "codec-none-1", tmp_path / "codec-none-1", "00000000000000000190.log", 100)
    assert pylogseg("export", folder, "-O", out, "--overwrite").code == 1
    assert out.read_bytes() == before
    done = pylogseg("export", folder, "-O", out, "--overwrite", "--on-corrupt", "skip", "--json")
    expect(done, 1, "CRC mismatch")
    expected = [r.offset for r in package.read(folder, on_corrupt="skip")]
    assert [row["offset"] for row in rows_of(out)] == expected
    assert done.rows == [{"path": str(out), "records": len(expected), "size": out.stat().st_size}]
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "codec-none-1"}


def test_no_record_is_a_file_too(examples: Path, tmp_path: Path) -> None:
    for form in ("parquet", "csv"):
        done = pylogseg("export", examples, "txn-a", "--until", 1, "-O", tmp_path / f"none.{form}")
        assert done.text.startswith(f"{tmp_path}/none.{form}: 0 records in 1 file, ")
        assert rows_of(tmp_path / f"none.{form}") == []


def test_a_folder_may_be_called_like_a_file(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake.parquet"
    out.mkdir()
    assert pylogseg("export", examples, "txn-b", "-O", out).code == 0
    assert len(list(out.rglob("topic=txn-b/partition=0/*.parquet"))) == 1


def strange(folder: Path) -> Path:
    (folder / "t-0").mkdir()
    values = [b"plain", "é".encode(), b"ab\xff", None, b"base64:eA==", b"", b"\xc3"]
    records = [(i, b"\xfe" if i == 6 else b"k%d" % i, value) for i, value in enumerate(values)]
    (folder / "t-0" / f"{0:020d}.log").write_bytes(package.encode(records, base_offset=40))
    return folder / "t-0"


def test_no_text_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    folder = strange(tmp_path)
    for out in (tmp_path / "a.parquet", tmp_path / "lake", tmp_path / "a.arrow"):
        done = pylogseg("export", folder, "-O", out, "--value-type", "string")
        assert (done.code, done.out) == (2, b"")
        assert done.err == (
            f"pylogseg: {folder}/{0:020d}.log: offset 42: the value is not UTF-8: its byte 2 is 0xff "
            "(invalid start byte). --value-type binary keeps bytes, --not-utf8 base64 or null converts such values\n"
        )
        assert not out.exists() or not list(out.rglob("*.parquet"))
    assert (
        "offset 46: the key is not UTF-8: its byte 0"
        in pylogseg("export", folder, "-O", out, "--key-type", "string").err
    )


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_no_text_may_become_null_or_base64(form: str, tmp_path: Path) -> None:
    folder, out = strange(tmp_path), tmp_path / f"a.{form}"
    records = list(package.read(folder))
    options = ["-O", out, "--key-type", "string", "--value-type", "string", "--overwrite", "--not-utf8"]
    assert pylogseg("export", folder, *options, "null").code == 0
    assert [row["value"] for row in rows_of(out)] == ["plain", "é", None, None, "base64:eA==", "", None]
    assert [row["key"] for row in rows_of(out)][-2:] == ["k5", None]
    assert pylogseg("export", folder, *options, "base64").code == 0
    rows = rows_of(out)
    assert [row["value"] for row in rows][2:5] == ["base64:YWL/", None, "base64:YmFzZTY0OmVBPT0="]
    assert [(payload_of(row["key"]), payload_of(row["value"])) for row in rows] == [(r.key, r.value) for r in records]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["a.csv", "--value-type", "string"], "--value-type is for Parquet and Arrow files; for csv use --value-as"),
        (
            ["a.parquet", "--value-as", "hex"],
            "--value-as hex is for CSV and JSON lines; for parquet use --value-type",
        ),
        (["a.parquet", "--to", "csv"], "a.parquet and --to csv contradict each other"),
        (["a.parquet", "--not-utf8", "null"], "--not-utf8 null needs --key-type string"),
        (["a.csv", "--columns", "nothing"], "unknown field 'nothing'"),
    ],
)
def test_wrong_requests_write_nothing(options: list[str], words: str, examples: Path, tmp_path: Path) -> None:
    expect(pylogseg("export", examples, "txn-b", "-O", tmp_path / options[0], *options[1:]), 2, words)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(examples: Path, tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path / "lake")
    done = pylogseg("export", examples, "txn-b", "-O", tmp_path / "lake")
    advice = "give a folder, or a name that ends in .parquet, .arrow, .csv or .jsonl"
    assert (done.code, done.err) == (2, f"pylogseg: --out {tmp_path / 'lake'} is a file: {advice}\n")
