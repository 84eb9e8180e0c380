"""Tests of format/layout.py. The layout table against vectors, and the document against the layout table."""

import re
from pathlib import Path
from typing import Any

import pytest

from pylogseg.format import layout
from pylogseg.format.layout import STRUCTURES, Structure
from pylogseg.format.messages.control import KRAFT_MESSAGES
from pylogseg.format.messages.schema import MessageField, message

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")

# Built by hand, or taken from Kafka's own tests, and what each says.
VECTORS = [
    (layout.LOG_OVERHEAD, "000000000000000500000010", (5, 16)),
    (
        layout.MESSAGE_V0,
        "0000000000000005000000101fecd70a0000000000016b0000000176",
        (5, 16, 0x1FECD70A, 0, 0, 1),
    ),
    (
        layout.MESSAGE_V1,
        "0000000000000005000000175c6979a5010800000000000003e8000000016bffffffff",
        (5, 23, 0x5C6979A5, 1, 8, 1000, 1),
    ),
    (
        layout.BATCH_HEADER,
        "000000000000000c0000004200000007024ab06694003000000000000000000000000600000000000000060000000000000009"
        "0001ffffffff000000012000000008000000010c00000000000300",
        (12, 66, 7, 2, 0x4AB06694, 0x30, 0, 6, 6, 9, 1, -1, 1),
    ),
    (layout.OFFSET_INDEX_ENTRY, "0000000400001068", (4, 4200)),
    (layout.TIME_INDEX_ENTRY, "00000000000007d00000006d", (2000, 109)),
    (
        layout.TXN_INDEX_ENTRY,
        "000000000000000f01c50000000000000089000000000000012b00000000000000c8",
        (0, 983493, 137, 299, 200),
    ),
    (layout.SNAPSHOT_HEADER, "00013d49ed2a00000001", (1, 0x3D49ED2A, 1)),
    (
        layout.SNAPSHOT_ENTRY,
        "0000000000000001000f00000004000000000000002a0000000400000000000003e8ffffffffffffffffffffffff",
        (1, 15, 4, 42, 4, 1000, -1, -1),
    ),
    (layout.CONTROL_KEY, "00000001", (0, 1)),
    (layout.END_TXN_MARKER, "000000000003", (0, 3)),
]
SIZES = [12, 22, 30, 61, 8, 12, 34, 10, 46, 4, 6]


@pytest.mark.parametrize(("structure", "raw", "values"), VECTORS, ids=lambda case: getattr(case, "name", ""))
def test_vectors(structure: Structure, raw: str, values: tuple[int, ...]) -> None:
    data = bytes.fromhex(raw)
    assert structure.struct.unpack_from(data) == values
    assert structure.struct.pack(*values) == data[: structure.size]


def test_every_structure_has_a_vector_and_its_size() -> None:
    assert [vector[0] for vector in VECTORS] == list(STRUCTURES)
    assert [structure.size for structure in STRUCTURES] == SIZES
    assert [structure.struct.size for structure in STRUCTURES] == SIZES


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_dtype_says_the_same(structure: Structure) -> None:
    dtype = structure.dtype
    assert dtype.itemsize == structure.size
    assert dtype.names == tuple(field.name for field in structure)
    for field in structure:
        kind, place = (dtype.fields or {})[field.name][:2]
        assert (place, kind.itemsize, kind.kind) == (field.offset, field.width, field.type[0])
        assert kind.itemsize == 1 or kind.newbyteorder(">") == kind
        assert structure[field.name] is field


def test_where_the_versions_agree() -> None:
    for structure in (layout.MESSAGE_V0, layout.MESSAGE_V1, layout.BATCH_HEADER):
        assert [field[:2] for field in structure][:2] == [field[:2] for field in layout.LOG_OVERHEAD]
        assert structure["magic"].offset == 16


def test_gaps_are_refused() -> None:
    with pytest.raises(ValueError, match="b is at 5, the field before it ends at 4"):
        Structure("x", (0, "i32", "a"), (5, "i32", "b"))
    with pytest.raises(KeyError):
        layout.LOG_OVERHEAD["magic"]


def _as_written(fields: tuple[MessageField, ...], version: int) -> str:
    parts = []
    for field in fields:
        kind = "array" if field.is_list else re.sub(r"(u?)int", lambda found: "u" if found[1] else "i", field.type)
        inner = f" ({_as_written(field.fields, version)})" if field.fields else ""
        if field.is_in(version):
            parts.append(f"{field.name} {kind}{inner}")
    return ", ".join(parts)


def test_document_has_the_same_kraft_records() -> None:
    rows: list[tuple[Any, ...]] = re.findall(r"^\| (\w+) \| (\d+) \| (version i16.*) \|$", DOCUMENT, re.MULTILINE)
    names = ("LeaderChange", "SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters")
    listed = [
        (name, str(version), _as_written(message(of).fields, version))
        for name, of in zip(names, KRAFT_MESSAGES.values(), strict=True)
        for version in range(message(of).versions.last + 1)
    ]
    assert rows == listed
