"""Tests of values/decoding.py, values/roles.py and values/typed_engines.py. Every Avro record of the golden topics, as
fastavro decoded it; and those that do not decode, with the reason.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.typed_values import plain, without_logic

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.values.decoding import Decoding, decode_column
from pylogseg.values.schemas.schema import Schema

TYPED_COLUMNS = ["topic", "partition", "offset", "value"]


@pytest.fixture(scope="module")
def lines(shop: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in gzip.decompress((shop / "expected" / "typed.jsonl.gz").read_bytes()).splitlines()
    ]


def of(lines: list[dict[str, Any]], topic: str) -> dict[tuple[int, int], dict[str, Any]]:
    return {(line["partition"], line["offset"]): line for line in lines if line["topic"] == topic}


def decoded(shop: Path, topic: str, **options: Any) -> pa.Table:
    table = pylogseg.read_arrow(shop, topic, columns=TYPED_COLUMNS, **{"decoding": "value"} | options).read_all()
    table.validate(full=True)
    return table


def rows(table: pa.Table, *, logic: bool = False) -> dict[tuple[int, int], Any]:
    """Values by partition and offset, in the form of `raw`; with `logic` the fields as Python has them."""
    found = {}
    for batch in table.to_batches():
        values = batch.column("value")
        fields = list(values.type)
        arrays = [values.field(i) if logic else without_logic(values.field(i)) for i in range(len(fields))]
        bare = pa.StructArray.from_arrays(arrays, [f.name for f in fields], mask=values.is_null())
        where = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        for at, row in zip(where, bare.to_pylist(), strict=True):
            found[at] = row if logic else plain(row, bare.type)
    return found


@pytest.mark.parametrize("topic", ["customers", "list", "orders", "staging", "guid", "old"])
def test_values(shop: Path, lines: list[dict[str, Any]], topic: str) -> None:
    expected = of(lines, topic)
    context = ".staging" if topic == "staging" else "."
    ids = {line["schema"] for line in expected.values() if "raw" in line}
    assert ids
    for number in ids:  # each by the schema it was written by
        decoding = Decoding(schema=number, context=context, recursion=6)
        found = rows(decoded(shop, topic, decoding=decoding))
        checked = 0
        for at, line in expected.items():
            if line.get("schema") == number and "raw" in line:
                assert json.dumps(found[at], sort_keys=True) == json.dumps(line["raw"], sort_keys=True), (at, number)
                checked += 1
        assert checked


def test_every_type(shop: Path, lines: list[dict[str, Any]]) -> None:
    table = decoded(shop, "types")
    found, typed = rows(table), rows(table, logic=True)
    for at, line in of(lines, "types").items():
        mine, raw, value = found[at], dict(line["raw"]), line["value"]
        member = (
            {name: item for name, item in mine.pop("u").items() if item is not None} if mine["u"] else mine.pop("u")
        )
        their = raw.pop("u")
        assert member == (their and {name.rpartition(".")[2]: item for name, item in their.items()})
        for name in ("dec", "decfx"):
            del raw[name], mine[name]
            assert str(typed[at][name]) == value[name]
        duration = struct.pack("<III", *mine.pop("dur").values())
        assert base64.b64encode(duration).decode() == raw.pop("dur")
        assert json.dumps(mine, sort_keys=True) == json.dumps(raw, sort_keys=True)
        assert typed[at]["day"] is None or str(typed[at]["day"]) == value["day"]


def test_newest_schema_reads_all(shop: Path, lines: list[dict[str, Any]]) -> None:
    """Without a word the newest version of the subject is the reader's; older values are resolved."""
    found = rows(decoded(shop, "orders"))
    for at, line in of(lines, "orders").items():
        raw = line.get("raw")
        if raw is not None and line["schema"] == 2:
            raw = {name: item for name, item in raw.items() if name != "obsolete"} | {"tags": {}, "placed": 0}
            raw["client"] = raw.pop("customer")
            raw["lines"] = [each | {"gift": False} for each in raw["lines"]]
        assert json.dumps(found[at], sort_keys=True) == json.dumps(raw, sort_keys=True), at


def test_what_does_not_decode(shop: Path, lines: list[dict[str, Any]]) -> None:
    table = decoded(shop, "orders")
    found = {(row["partition"], row["offset"]): row for row in table.to_pylist()}
    raw = {
        (row["partition"], row["offset"]): row["value"]
        for row in pylogseg.read_arrow(shop, "orders", columns=TYPED_COLUMNS).read_all().to_pylist()
    }
    bad = {at: line["error"] for at, line in of(lines, "orders").items() if "error" in line}
    assert len(bad) == 8
    for at, row in found.items():
        if at not in bad:
            assert (row["valueRaw"], row["valueError"]) == (None, None)
            continue
        assert row["valueRaw"] == raw[at]
        assert row["value"] is None
        # Behind the path of the member.
        assert re.sub(r"^\$[^:]*: ", "", row["valueError"]).startswith(bad[at]), (row["valueError"], bad[at])
    assert "still in the log" in found[0, 37]["valueError"]
    skipped = decoded(shop, "orders", on_undecoded="skip")
    assert skipped.num_rows == table.num_rows - len(bad)
    assert skipped.column_names == TYPED_COLUMNS
    with pytest.raises(pylogseg.CorruptionError, match=r"orders-0, the value of offset 31.*no schema 999") as caught:
        decoded(shop, "orders", on_undecoded="raise")
    assert caught.value.offset == 31
    rescued = Decoding(registry=pylogseg.Schemas.open(shop, use_gone=True))
    errors = decoded(shop, "orders", decoding=rescued).column("valueError").to_pylist()
    assert "no schema 15" not in str(errors)


def test_keys_and_headers(shop: Path, lines: list[dict[str, Any]]) -> None:
    both = pylogseg.read_arrow(
        shop, "orders", decoding=["key", "value"], columns=["partition", "offset", "key", "value"]
    )
    for row in both.read_all().to_pylist():
        assert row["key"] == of(lines, "orders")[row["partition"], row["offset"]].get("key")
        assert row["keyError"] is None
    errors = {row["offset"]: row["valueError"] for row in decoded(shop, "guid", schema=2).to_pylist()}
    assert errors[9] == "no schema 00000000-0000-0000-0000-000000000005"


@pytest.mark.parametrize("topic", ["apicurio-4", "apicurio-8", "apicurio-headers", "glue", "single-object"])
def test_other_registries(shop: Path, lines: list[dict[str, Any]], topic: str) -> None:
    schemas = pylogseg.Schemas.open(shop)
    old = schemas.by_id(13)
    assert old is not None
    schemas.add(Schema(old.text, guid="01234567-89ab-cdef-0123-456789abcdef"))
    frame: Any = "apicurio" if topic == "apicurio-8" else "auto"
    found = rows(decoded(shop, topic, decoding=Decoding(schema=13, registry=schemas, frame=frame)))
    good = [at for at, line in of(lines, topic).items() if line.get("writer") == "Old" and found[at] is not None]
    assert good
    for at in good:
        assert found[at] == of(lines, topic)[at]["value"]
    if topic not in ("apicurio-4", "apicurio-headers"):
        assert len(good) == len(found)


def test_columns_from_elsewhere(shop: Path) -> None:
    raw = pylogseg.read_arrow(shop, "old", columns=["value"]).read_all()["value"]
    expected = pylogseg.read_arrow(shop, "old", decoding="value", columns=["value"]).read_all()["value"].to_pylist()
    assert decode_column(raw, "old-value", shop).to_pylist() == expected
    assert decode_column(pa.array([None, b"\2"], pa.binary()), '"int"', frame="plain").to_pylist() == [None, 1]
    with pytest.raises(pylogseg.CorruptionError, match=r"value 1 of the column.*no frame"):
        decode_column(pa.array([None, b"\2"], pa.binary()), '"int"')
    assert decode_column(pa.array([b"x", b"\2"], pa.large_binary()), '"int"', on_undecoded="null").to_pylist() == [
        None,
        None,
    ]


def test_choosing_the_schema(shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.avsc"
    file.write_text('{"type":"record","name":"Old","fields":[{"name":"x","type":"long"}]}')
    for schema in (str(file), file, file.read_text(), "old-value:1", "old-value", 13, {"value": 13}):
        assert decoded(shop, "old", schema=schema).column("value").to_pylist()[1]["x"] == 2
    alone = shop / "data1" / "old-0"  # `_schemas` is on the other disk
    with_schemas = pylogseg.read_arrow(alone, decoding="value", registry=shop, columns=["value"]).read_all()
    assert [row["x"] for row in with_schemas["value"].to_pylist()] == [1, 2, 2]
    without = pylogseg.read_arrow(alone, decoding="value", schema=file, columns=["value"]).read_all()
    assert [row and row["x"] for row in without["value"].to_pylist()] == [1, None, None]
    assert without["valueError"].to_pylist()[1].startswith("bytes behind the value")
    for schema, said in (("none-value", "there is no schema"), (77, "no schema 77"), ("{", "is not an Avro schema")):
        with pytest.raises(RequestError, match=said):
            decoded(shop, "old", schema=schema)
    with pytest.raises(RequestError, match="different schemas"):
        decoded(shop, ["old", "orders"])
    with pytest.raises(RequestError, match="need decoding="):
        pylogseg.read_arrow(shop, "old", schema=13)
    for wrong in ({"decoding": "values"}, {"decoding": []}, {"on_undecoded": "no"}, {"views": True}):
        with pytest.raises(RequestError):
            decoded(shop, "old", **wrong)
    with pytest.raises(RequestError, match="not among the columns"):
        pylogseg.read_arrow(shop, "old", decoding="value", columns=["offset"])
