"""Tests of cli/cat.py, cli/output.py, cli/typed.py and values/typed_text.py. Values by their schemas in `cat` and
`export`.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.format.text import payload_of

LINES = {
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"properties": {"price": {"type": "number"}, "what": {}}}},
    }
}


def golden_values(shop: Path, topic: str) -> dict[tuple[int, int], Any]:
    text = gzip.decompress((shop / "expected" / "typed.jsonl.gz").read_bytes())
    lines = [line for line in map(json.loads, text.splitlines()) if line["topic"] == topic]
    return {(line["partition"], line["offset"]): line.get("value") for line in lines}


def test_cat_every_type(shop: Path) -> None:
    done = shell("cat", shop, "types", "--value-as", "schema")
    assert (done.code, done.err) == (0, "")
    expected = golden_values(shop, "types")
    for line in done.text.splitlines():
        row = json.loads(line, parse_float=Decimal)
        mine, their = row["value"], expected[row["partition"], row["offset"]]
        their["u"] = their["u"] and {name.rpartition(".")[2]: item for name, item in their["u"].items()}
        mine["u"] = mine["u"] and {name: item for name, item in mine["u"].items() if item is not None}
        for name in ("b", "fx"):
            mine[name], their[name] = payload_of(mine[name]), base64.b64decode(their[name])
        for name in ("dec", "decfx"):
            mine[name], their[name] = Decimal(mine[name]), Decimal(their[name])
        for name in ("tms", "tus", "ts", "tsu", "tsn", "lts", "ltsu"):  # digits of a second that are needed
            assert re.fullmatch(r".*:\d\d\.(\d{3}|\d{3}(?!000)\d{3}|\d{6}(?!000)\d{3})Z?", mine[name])
            mine[name], their[name] = (each.rstrip("Z").rstrip("0") for each in (mine[name], their[name]))
        if not isinstance(mine["d"], str):
            mine["d"] = float(mine["d"])
        if mine["u"] and "InU" in mine["u"]:
            mine["u"]["InU"]["x"] = float(mine["u"]["InU"]["x"])
        if not isinstance(mine["f"], str):
            mine["f"], their["f"] = (struct.pack("<f", value) for value in (mine["f"], their["f"]))
        assert list(mine.pop("dur")) == ["months", "days", "milliseconds"]
        del their["dur"]
        assert mine == their
    assert len(done.rows) == len(expected)


@pytest.mark.parametrize("options", [[], ["--merge", "time"], ["--jobs", "1"], ["--tail", "40"]])
def test_cat_what_does_not_decode(shop: Path, options: list[str]) -> None:
    done = shell("cat", shop, "orders", "--key-as", "schema", "--value-as", "schema", *options)
    expect(done, 1, "8 payloads could not be decoded; ", "the value of offset 31: no schema 999")
    found = {(row["partition"], row["offset"]): row for row in done.rows}
    expected = golden_values(shop, "orders")
    assert len(found) == len(expected)
    assert found[0, 33]["value"].startswith("base64:") or found[0, 33]["value"] == "\0\0\0"
    assert found[0, 32]["value"] == "plain text"
    assert found[0, 0]["value"] == expected[0, 0]
    assert found[0, 0]["key"] == "order-0"


def test_cat_templates_and_schemas(shop: Path) -> None:
    alone = shop / "data1" / "old-0"
    done = shell("cat", alone, "--value-as", "schema", "--registry", shop, "--schema", "13", "-f", "%o %s|")
    assert done.out == b'0 {"x":1}|1 {"x":2}|2 {"x":2}|'
    assert (
        b'0,"{""x"":1,""y"":null}"'
        in shell("cat", shop, "old", "--value-as", "schema", "--csv", "--fields", "offset,value").out
    )
    for wrong in (["--schema", "13"], ["--value-as", "schema", "--schema", "none-value"], ["--value-as", "typed"]):
        assert shell("cat", shop, "old", *wrong).code == 2


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_export(shop: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"orders.{form}"
    done = shell(
        "export",
        shop,
        "orders",
        "--out",
        target,
        "--value-type",
        "schema",
        "--columns",
        "partition,offset,value",
    )
    assert done.code == 1
    assert "8 payloads could not be decoded" in done.err
    table = pq.read_table(target) if form == "parquet" else pa.ipc.open_file(target).read_all()
    expected = pylogseg.read_arrow(
        shop, "orders", decoding="value", columns=["partition", "offset", "value"]
    ).read_all()
    assert table.column_names == expected.column_names
    assert table.to_pylist() == expected.to_pylist()
    skipped = tmp_path / f"skipped.{form}"
    more = ["--on-undecoded", "skip", "--registry", shop, "--schema", "orders-value:2"]
    done = shell("export", shop, "orders", "--out", skipped, "--value-type", "schema", *more)
    assert f"{len(expected) - 8} records in 1 file" in done.text  # and not those that are left out
    table = pq.read_table(skipped) if form == "parquet" else pa.ipc.open_file(skipped).read_all()
    assert table.num_rows == len(expected) - 8
    assert "valueRaw" not in table.column_names


def test_export_options(shop: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert shell("export", shop, "types", "--out", lake, "--value-type", "schema", "--key-type", "string").code == 0
    (path,) = lake.rglob("*.parquet")
    assert pq.read_schema(path).field("value").type.field("ts").type == pa.timestamp("ms", "UTC")
    for wrong in (["--schema", "1"], ["--on-undecoded", "skip"], ["--to", "jsonl", "--value-type", "schema"]):
        assert shell("export", shop, "old", "--out", tmp_path / "no", *wrong).code == 2
    done = shell(
        "export",
        shop,
        "orders",
        "--out",
        tmp_path / "x.parquet",
        "--value-type",
        "schema",
        "--on-undecoded",
        "raise",
    )
    assert done.code == 1
    assert not (tmp_path / "x.parquet").exists()


def test_several_topics_each_by_its_schemas(shop: Path, tmp_path: Path) -> None:
    """In the order of time as well; one without a schema stays text, with a note."""
    shutil.copytree(shop, tmp_path / "disk")
    with pylogseg.open_log(tmp_path / "disk" / "data1" / "plain-0") as log:
        log.append([(1_700_000_000_000, None, b"text")])
    names = ["types", "docs", "old", "plain"]
    fields = ["--fields", "topic,partition,offset,value", "--value-as", "schema"]
    alone = [shell("cat", tmp_path / "disk", name, *fields) for name in names[:3]]
    plain = b'{"topic":"plain","partition":0,"offset":0,"value":"text"}'
    for more in ([], ["--merge", "time"], ["--jobs", "1"]):
        done = shell("cat", tmp_path / "disk", *names, *fields, *more)
        expected = [line for each in alone for line in each.out.splitlines()]
        assert sorted(done.out.splitlines()) == sorted([*expected, plain])
        assert "note: the values of plain are printed as text: no schema is known for plain-value" in done.err
        assert done.code == 1  # one of docs does not decode, as alone
    assert max(each.code for each in alone) == 1
    assert shell("cat", tmp_path / "disk", "plain", *fields).code == 2


def test_errors_of_json_name_the_member(tmp_path: Path) -> None:
    (tmp_path / "7.json").write_text(json.dumps(LINES))
    values = [
        b'{"lines":[{"price":1},{"price":"12,5"}]}',
        b'{"lines":[{"price":1e400}]}',
        b'{"lines":[',
        b'{"id":1,"id":2}',
    ]
    with pylogseg.open_log(tmp_path / "t-0") as log:
        log.append([{"value": b"\0\0\0\0\7" + value} for value in values])
    where = [tmp_path / "t-0", "--value-as", "schema", "--registry", tmp_path / "7.json", "--schema", "7"]
    done = shell("cat", *where)
    assert (
        done.code,
        done.err.count('t-0/00000000000000000000.log: the value of offset 0: $.lines[1].price: "12,5" is not a number'),
    ) == (1, 1)
    table = pylogseg.read_arrow(tmp_path / "t-0", decoding="value", registry=tmp_path / "7.json", schema=7).read_all()
    assert table["valueError"].to_pylist() == [
        '$.lines[1].price: "12,5" is not a number',
        "$.lines[0].price: 1e400 does not fit in a double",
        "no JSON: expecting value, at byte 10 of its payload",
        "$.id: the object has this name 2 times",
    ]


def test_what_parquet_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A record without fields."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text('{"type": "record", "name": "E", "fields": []}')
    with pylogseg.open_log(tmp_path / "data" / "t-0") as log:
        log.append([{"value": b"\0\0\0\0\7"}])
    how = ["--value-type", "schema", "--registry", tmp_path / "schemas"]
    for out in ("x.parquet", "lake"):
        done = shell("export", tmp_path / "data", "t", "--out", tmp_path / out, *how)
        assert (done.code, "Parquet cannot hold" in done.err) == (2, True), done.err
    assert shell("export", tmp_path / "data", "t", "--out", tmp_path / "x.arrow", *how).code == 0


def _typed_orders(root: Path) -> list[Any]:
    """Five orders, of which one does not decode, with keys of text; returns the options that decode them."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    root.mkdir(exist_ok=True)
    (root / "7.avsc").write_text(json.dumps(schema))
    with pylogseg.open_log(root / "orders-0") as log:
        values = [b"\0\0\0\0\7" + bytes([2 * number]) for number in (5, 6, 55)]
        log.append([(None, f"k{i}", value) for i, value in enumerate([*values, b"id 5?", None])])
    return ["--value-as", "schema", "--registry", root / "7.avsc", "--schema", "7"]


def test_grep_searches_what_it_prints(shop: Path, tmp_path: Path) -> None:
    """Typed values match as the JSON they are printed as; what does not decode as its bytes, and it is said."""
    how = _typed_orders(tmp_path)
    done = shell("grep", "5", tmp_path, "orders", *how, "--fields", "offset,value")
    lines = ['{"offset":0,"value":{"id":5}}', '{"offset":2,"value":{"id":55}}', '{"offset":3,"value":"id 5?"}']
    assert (done.code, done.text.splitlines()) == (2, lines)
    assert "1 payload could not be decoded; " in done.err
    for more in (["--merge", "time"], ["--internal"]):
        assert shell("grep", "5", tmp_path, "orders", *how, *more).code == 2
    how += ["--offset", "0:3"]
    assert shell("grep", "-E", '"id":5+}', tmp_path, *how, "-c").out == b"2\n"
    assert shell("grep", "5", tmp_path, *how, "-v", "--fields", "value").text == '{"value":{"id":6}}\n'
    assert shell("grep", "7", tmp_path, *how).code == 1
    assert shell("grep", "5", tmp_path, *how, "-f", r"%k=%s\n", "-n", "1").text == 'k0={"id":5}\n'
    for options in (["--key-as", "text"], ["--key-as", "schema", "--schema", "none"], ["--csv"]):
        plain, red = (shell("grep", "5", tmp_path, *how, *options, "--color", when) for when in ("never", "always"))
        assert re.sub(rb"\x1b\[[0-9;]*m", b"", red.out) == plain.out
    assert b"\x1b[1;31m5\x1b[0m" in shell("grep", "5", tmp_path, *how, "--csv", "--color", "always").out
    assert shell("grep", "GroupMetadata", shop, "--internal").code in (0, 1)


def test_grep_in_both_decoded(shop: Path) -> None:
    """Keys and values: matches in them are coloured too."""
    how = ["--key-as", "schema", "--value-as", "schema", "--color", "always", "--csv", "--fields", "offset,key,value"]
    done = shell("grep", "order-0", shop, "orders", *how, "-n", "1")
    assert b"\x1b[1;31morder-0\x1b[0m" in done.out


def test_export_text(shop: Path, tmp_path: Path) -> None:
    """JSON lines have what `cat` prints, CSV too; records that do not decode stay, go, or end it."""
    disk = tmp_path / "disk"
    how = _typed_orders(disk)
    for form, options in (("jsonl", []), ("csv", ["--csv"])):
        fields = "topic,offset,key,value"
        printed = shell("cat", disk, "orders", *how, *options, "--fields", fields)
        done = shell("export", disk, "orders", *how, "--columns", fields, "--out", tmp_path / f"x.{form}")
        assert (printed.code, done.code) == (1, 1)
        assert "1 payload could not be decoded" in done.err
        assert (tmp_path / f"x.{form}").read_bytes() == printed.out
    lake = tmp_path / "lake"
    done = shell("export", disk, "orders", *how, "--to", "jsonl", "--out", lake, "--on-undecoded", "skip")
    assert "4 records in 1 file" in done.text
    (path,) = lake.rglob("*.jsonl")
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [{"id": n} for n in (5, 6, 55)] + [
        None
    ]
    done = shell("export", disk, "orders", *how, "--out", tmp_path / "no.jsonl", "--on-undecoded", "raise")
    assert (done.code, (tmp_path / "no.jsonl").exists()) == (1, False)
    assert "orders-0/00000000000000000000.log, the value of offset 3" in done.err
    assert (
        "no frame: nothing names the schema; --on-undecoded raw keeps such bytes, skip leaves the record out"
        in done.err
    )
    for wrong in (["--schema", "7"], ["--on-undecoded", "skip"], ["--value-type", "schema"], ["--show-secrets"],
                  ["--internal", "--value-as", "schema"], ["--internal", "--on-undecoded", "skip"]):  # fmt: skip
        assert shell("export", shop, "old", "--out", tmp_path / "no.jsonl", *wrong).code == 2


def test_export_own_topics_as_text(golden: Path, tmp_path: Path) -> None:
    disk = golden / "broker-4.3" / "txn" / "data0"
    fields = "partition,offset,key,value"
    printed = shell("cat", disk, "__consumer_offsets", "--internal", "--fields", fields)
    target = tmp_path / "offsets.jsonl"
    done = shell("export", disk, "__consumer_offsets", "--internal", "--columns", fields, "--out", target)
    assert (done.code, printed.code) == (0, 0)
    assert target.read_bytes() == printed.out
    assert b'"OffsetCommit' in printed.out or b'"data":{' in printed.out


def test_what_unfolds_to_much_is_printed(tmp_path: Path) -> None:
    """Fewer records are decoded at a time; nothing ends."""
    inner = {"type": "record", "name": "In", "fields": [{"name": f"f{i}", "type": "long"} for i in range(900)]}
    schema = {"type": "record", "name": "T", "fields": [{"name": "x", "type": ["null", inner]}]}
    (tmp_path / "7.avsc").write_text(json.dumps(schema))
    with pylogseg.open_log(tmp_path / "t-0") as log:
        log.append([{"value": b"\0\0\0\0\7\0"}] * 5000)
    done = shell("cat", tmp_path, "t", "--value-as", "schema", "--registry", tmp_path / "7.avsc", "--fields", "value")
    assert (done.code, done.err, done.out) == (0, "", b'{"value":{"x":null}}\n' * 5000)
