"""Tests of cli/schemas.py, values/schemas/schema.py and values/schemas/topic.py. Schemas from the topic of a registry,
as the registries' own answers have them, and rule by rule.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.values.schemas.schema import Reference, Schema, guid_of
from pylogseg.values.schemas.topic import SchemaTopic


def key(subject: str, version: int, **other: Any) -> bytes:
    return json.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1} | other).encode()


def value(subject: str, version: int, number: int, text: str = '"int"', **other: Any) -> bytes:
    return json.dumps({"subject": subject, "version": version, "id": number, "schema": text} | other).encode()


def topic(*records: tuple[bytes | None, bytes | None]) -> SchemaTopic:
    made = SchemaTopic()
    for record in records:
        made.add(*record)
    return made


def command(kind: str, value: Any, **fields: Any) -> tuple[bytes, bytes | None]:
    return json.dumps({"keytype": kind, "magic": 0} | fields).encode(), json.dumps(value).encode()


def test_as_the_registry_answers(shop: Path) -> None:
    expected = json.loads((shop / "expected" / "registry.json").read_text())
    found = [
        {
            "context": s.context,
            "subject": s.subject,
            "version": s.version,
            "id": s.id,
            "type": s.type,
            "guid": s.guid,
            "references": [each._asdict() for each in s.references],
            "deleted": s.deleted == "soft",
            "schema": s.text,
        }
        for s in pylogseg.Schemas.open(shop)
    ]
    assert found == expected
    rows = pylogseg.cluster_state(shop).rows("schemas")
    assert [row["guid"] for row in rows if row["deleted"] != "hard"] == [each["guid"] for each in expected]
    assert [row["subject"] for row in rows if row["deleted"] == "hard"] == ["gone-value", "emptied-value"]


def test_of_an_earlier_moment(shop: Path) -> None:
    assert [row["id"] for row in pylogseg.cluster_state(shop, {"_schemas-0": 5}).rows("schemas")] == [3, 1, 2]
    assert pylogseg.cluster_state(shop, 0).rows("schemas") == []


def test_contexts_ids_and_references(shop: Path) -> None:
    schemas = pylogseg.Schemas.open(shop)
    default, staging = schemas.by_id(1), schemas.by_id(1, ".staging")
    assert default is not None
    assert staging is not None
    assert (default.text, staging.subject) == ('"string"', ":.staging:orders-value")
    assert schemas.notes == [
        "_schemas: a key of the unknown type 'FUTURE' (1)",
        "_schemas: a key that is not a JSON object (1)",
    ]
    assert schemas.by_id(2, ".staging") is not None
    assert "the id 2 is not of context .staging" in schemas.notes[-1]
    customers = schemas.version("customers-value")
    assert customers is not None
    assert {name: s.id for name, s in schemas.references(customers).items()} == {"com.example.Address": 3}
    assert schemas.by_guid(customers.guid) == customers
    assert schemas.by_id(15) is None
    assert "deleted for good" in schemas.missing(15)
    assert schemas.missing(999) == "no schema 999"
    last = pylogseg.Schemas.open(shop, use_gone=True).by_id(15)
    assert last is not None
    assert (last.subject, last.deleted) == ("gone-value", "hard")


def test_keys_are_equal_by_content() -> None:
    karapace = b'{"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}'
    redpanda = key("a", 1, seq=7, node=0)
    assert [s.id for s in topic((key("a", 1), value("a", 1, 1)), (redpanda, value("a", 1, 5)))] == [5]
    for nothing in (None, b""):
        done = topic((key("a", 1), value("a", 1, 1)), (karapace, nothing))
        assert ([*done], [s.deleted for s in done.gone]) == ([], ["hard"])


def test_deletes() -> None:
    three = [(key("a", n), value("a", n, n, f'"t{n}"')) for n in (1, 2, 3)]
    soft = topic(*three, command("DELETE_SUBJECT", {"subject": "a", "version": 2}, subject="a"))
    assert [s.deleted for s in soft] == ["soft", "soft", "no"]
    soft.add(*command("CLEAR_SUBJECT", {"subject": "a"}, subject="a"))
    assert [s.version for s in soft] == [3]
    assert [s.version for s in soft.gone] == [1, 2]
    in_context = topic(
        (key(":.x:a", 1), value(":.x:a", 1, 1, deleted=True)),
        (key("a", 1), value("a", 1, 1, deleted=True)),
        command("CLEAR_SUBJECT", {"subject": ":.x:"}, subject=":.x:"),
    )
    assert [s.subject for s in in_context] == ["a"]


def test_the_first_text_of_an_id_counts() -> None:
    done = topic((key("a", 1), value("a", 1, 1)), (key("b", 1), value("b", 1, 1, '"long"')))
    assert [s.subject for s in done] == ["a"]
    assert done.notes == ["_schemas: SCHEMA: the id 1 was given to another text before (1)"]
    freed = topic((key("a", 1), value("a", 1, 1)), (key("a", 1), None), (key("b", 1), value("b", 1, 1, '"long"')))
    assert [s.subject for s in freed] == ["b"]


@pytest.mark.parametrize(
    "record",
    [
        (None, None), (b"no", b"{}"), (b"[1]", None), (b"\xff", None), (key("a", 1), b"no"), (key("a", 1), b"{}"),
        (b'{"keytype":"SCHEMA"}', b"{}"), (key("a", 1), value("a", 1, 1, schema=5)), (b'{"keytype":7}', None),
        (b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_what_is_passed_by_is_counted(record: tuple[bytes | None, bytes | None]) -> None:
    done = topic(record, (key("b", 1), value("b", 1, 2)))
    assert [s.subject for s in done] == ["b"]
    assert sum(done.left_out.values()) == 1


def test_guids_see_all_of_a_schema() -> None:
    rule = {"name": "n", "tags": ["b", "a"], "params": {"y": "2", "x": "1"}, "disabled": True}
    variants = [
        guid_of("t"),
        guid_of("t", [Reference("r", "s", 1)]),
        guid_of("t", [Reference("r", "s", 2)]),
        guid_of("t", [], {}),
        guid_of("t", [], {"tags": {"f": ["PII"]}}),
        guid_of("t", [], {"tags": {"f": ["PII"]}}, {"domainRules": [rule]}),
        guid_of("t", [], {"tags": {"f": ["PII"]}}, {"domainRules": [rule | {"disabled": False}]}),
    ]
    assert len(set(variants)) == len(variants)
    assert guid_of("t", [], None, {"domainRules": [rule]}) == guid_of(
        "t", [], None, {"domainRules": [rule | {"tags": ["a", "b"], "params": {"x": "1", "y": "2"}}]}
    )


def test_files(tmp_path: Path) -> None:
    (tmp_path / "13.avsc").write_text('"int"')
    (tmp_path / "01234567-89ab-cdef-0123-456789abcdef.json").write_text("{}")
    (tmp_path / "common.proto").write_text('syntax = "proto3";')
    (tmp_path / "notes.txt").write_text("x")
    schemas = pylogseg.Schemas.open(tmp_path)
    assert [(s.type, s.id) for s in schemas] == [("JSON", None), ("AVRO", 13), ("PROTOBUF", None)]
    number, named = schemas.by_id(13), schemas.by_guid("01234567-89ab-cdef-0123-456789abcdef")
    assert number is not None
    assert named is not None
    main = Schema("", "PROTOBUF", references=(Reference("common.proto", "common.proto", 1),))
    assert schemas.references(main)["common.proto"].type == "PROTOBUF"
    with pytest.raises(RequestError, match=r"refers to x, y version 1, which is not there"):
        schemas.references(Schema("", references=(Reference("x", "y", 1),)))
    with pytest.raises(pylogseg.StorageError, match="No such file"):
        pylogseg.Schemas.open(tmp_path / "none.avsc")


def test_command(shop: Path) -> None:
    done = shell("schemas", shop)
    assert done.code == 1  # keys were left out
    assert "\nold-value                     2  14  AVRO      soft     -               85e6d3ec" in done.text
    assert "FUTURE" in done.err
    assert shell("schemas", shop, "orders-key", "--text").text == '"string"\n'
    assert [json.loads(line)["id"] for line in shell("schemas", shop, "orders-value", "--json").out.splitlines()] == [
        2,
        5,
    ]
    assert shell("schemas", shop, "--id", "77").code == 2
    assert shell("schemas", shop, "none").code == 2
