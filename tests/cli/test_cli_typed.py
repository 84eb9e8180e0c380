"""Values by their schemas in `cat` and `export`."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.arrow.typed_text import json_text


@pytest.fixture(scope="module")
def folder(golden: Path) -> Path:
    return golden / "inside" / "schemas"


def golden_values(folder: Path, topic: str) -> dict[tuple[int, int], Any]:
    text = gzip.decompress((folder / "expected" / "typed.jsonl.gz").read_bytes())
    lines = [line for line in map(json.loads, text.splitlines()) if line["topic"] == topic]
    return {(line["partition"], line["offset"]): line.get("value") for line in lines}


def test_cat_every_type(folder: Path) -> None:
    done = shell("cat", folder, "types", "--value-as", "schema")
    assert (done.code, done.err) == (0, "")
    expected = golden_values(folder, "types")
    for row in done.rows:
        mine, their = row["value"], expected[row["partition"], row["offset"]]
        their["u"] = their["u"] and {name.rpartition(".")[2]: item for name, item in their["u"].items()}
        if not isinstance(mine["f"], str):
            mine["f"], their["f"] = (struct.pack("<f", value) for value in (mine["f"], their["f"]))
        assert list(mine.pop("dur")) == ["months", "days", "milliseconds"]
        del their["dur"]
        assert mine == their
    assert len(done.rows) == len(expected)


@pytest.mark.parametrize("options", [[], ["--merge", "time"], ["--jobs", "1"], ["--tail", "40"]])
def test_cat_what_does_not_decode(folder: Path, options: list[str]) -> None:
    done = shell("cat", folder, "orders", "--key-as", "schema", "--value-as", "schema", *options)
    assert done.code == 1
    assert "8 payloads could not be decoded; " in done.err
    assert "the value of offset 31: no schema 999" in done.err
    found = {(row["partition"], row["offset"]): row for row in done.rows}
    expected = golden_values(folder, "orders")
    assert len(found) == len(expected)
    assert found[0, 33]["value"].startswith("base64:") or found[0, 33]["value"] == "\0\0\0"
    assert found[0, 32]["value"] == "plain text"
    assert found[0, 0]["value"] == expected[0, 0]
    assert found[0, 0]["key"] == "order-0"


def test_cat_templates_and_schemas(folder: Path) -> None:
    alone = folder / "data1" / "old-0"
    done = shell("cat", alone, "--value-as", "schema", "--registry", folder, "--schema", "13", "-f", "%o %s|")
    assert done.out == b'0 {"x":1}|1 {"x":2}|2 {"x":2}|'
    assert (
        b'0,"{""x"":1,""y"":null}"'
        in shell("cat", folder, "old", "--value-as", "schema", "--csv", "--fields", "offset,value").out
    )
    for wrong in (["--schema", "13"], ["--value-as", "schema", "--schema", "none-value"], ["--value-as", "typed"]):
        assert shell("cat", folder, "old", *wrong).code == 2
    assert shell("cat", folder, "old", "orders", "--value-as", "schema").code == 2
    assert shell("grep", "x", folder, "old", "--value-as", "schema").code == 2


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_export(folder: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"orders.{form}"
    done = shell(
        "export", folder, "orders", "--out", target, "--value-type", "schema", "--columns", "partition,offset,value"
    )
    assert done.code == 1
    assert "8 payloads could not be decoded" in done.err
    table = pq.read_table(target) if form == "parquet" else pa.ipc.open_file(target).read_all()
    expected = pylogseg.read_arrow(
        folder, "orders", decode="value", columns=["partition", "offset", "value"]
    ).read_all()
    assert table.column_names == expected.column_names
    assert table.to_pylist() == expected.to_pylist()
    skipped = tmp_path / f"skipped.{form}"
    more = ["--undecoded", "skip", "--registry", folder, "--schema", "orders-value:2"]
    shell("export", folder, "orders", "--out", skipped, "--value-type", "schema", *more)
    table = pq.read_table(skipped) if form == "parquet" else pa.ipc.open_file(skipped).read_all()
    assert table.num_rows == len(expected) - 8
    assert "valueRaw" not in table.column_names


def test_export_options(folder: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert shell("export", folder, "types", "--out", lake, "--value-type", "schema", "--key-type", "string").code == 0
    (path,) = lake.rglob("*.parquet")
    assert pq.read_schema(path).field("value").type.field("ts").type == pa.timestamp("ms", "UTC")
    for wrong in (["--schema", "1"], ["--undecoded", "skip"], ["--to", "jsonl", "--value-type", "schema"]):
        assert shell("export", folder, "old", "--out", tmp_path / "no", *wrong).code == 2
    done = shell(
        "export", folder, "orders", "--out", tmp_path / "x.parquet", "--value-type", "schema", "--undecoded", "raise"
    )
    assert done.code == 1
    assert not (tmp_path / "x.parquet").exists()


def test_json_text() -> None:
    values = [
        {"a": [1, None], "s": 'q"\\\n\u2028', "m": [('k"', 1.5)]},
        None,
        {"a": None, "s": None, "m": None},
        {"a": [], "s": "", "m": []},
    ]
    kind = pa.struct([("a", pa.list_(pa.int64())), ("s", pa.string()), ("m", pa.map_(pa.string(), pa.float64()))])
    array = pa.array([*values[:1], *values], kind)[1:]
    found = [json.loads(text) for text in json_text(array).to_pylist()]
    expected = [value and value | {"m": None if value["m"] is None else dict(value["m"])} for value in values]
    assert found == expected
    for array, text in (
        (pa.array([{}], pa.struct([])), ["{}"]),
        (pa.array([10**14], pa.timestamp("s")), ["100000000000000"]),
        (pa.array([True, None]), ["true", "null"]),
        (pa.array([b"\0", None], pa.binary(1)), ['"AA=="', "null"]),
        (pa.nulls(2), ["null", "null"]),
    ):  # fmt: skip
        assert json_text(array).to_pylist() == text
