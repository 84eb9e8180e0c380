"""Tests of inspect/dump/batches.py and inspect/dump/kafka_log.py. The lines of Kafka's dump tool, against what that
tool printed of the golden files.
"""

from __future__ import annotations

import dataclasses
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.drawn_columns import PAYLOAD, RECORDS, build
from hypothesis import given
from hypothesis import strategies as st
from reference import text as reference
from reference.text import Record

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import BATCH_DTYPE, scan
from pylogseg.format.records import RecordColumns, decode

MARKERS = {0: b"ABORT", 1: b"COMMIT"}


def log_sections(dump: str) -> Iterator[tuple[str, str]]:
    """The name of each .log file in a dump, and the lines about its batches."""
    for section in ("\n" + dump).split("\nDumping ")[1:]:
        name, _, lines = section.partition("\n")
        if name.endswith(".log"):
            lines = lines.partition("\n")[2]  # "Log starting offset"
            yield (
                name,
                re.split("\n(?:Found [0-9]+ invalid bytes|Non-consecutive offsets|Mismatches) ", lines)[0].strip("\n"),
            )


def segment_lines(data: bytes, payload: bool = True) -> tuple[bytes, bool]:
    """All lines about a log, and whether they are whole: only transaction markers are understood here."""
    columns, damage = decode(scan(data).batches, data)
    assert not damage
    out = text.TextBuffer()
    batches = columns.batches
    whole = True
    start = 0
    for row in [*np.flatnonzero(batches.is_control), len(batches)]:
        text.dump_lines(columns, out, start_batch=start, stop_batch=int(row), payload=payload)
        start = int(row) + 1
        if row == len(batches):
            break
        first, last = np.searchsorted(columns.batch, [row, row + 1])
        text.dump_lines(columns, out, start_batch=row, stop_batch=row + 1, start=first, stop=first)
        for i in range(first, last):
            text.dump_lines(columns, out, start_batch=row, stop_batch=row + 1, start=i, stop=i + 1, batch_lines=False)
            kind = int.from_bytes((columns.key(i) or b"")[2:4], "big")
            if kind in MARKERS:
                epoch = int.from_bytes((columns.value(i) or b"")[2:6], "big", signed=True)
                out.append(b" endTxnMarker: %s coordinatorEpoch: %d\n" % (MARKERS[kind], epoch))
            else:
                out.append(b"\n")
                whole = False
    return bytes(out), whole


def compare(lines: bytes, whole: bool, expected: str) -> int:
    # Only "\n" ends a line of these dumps: a payload may hold any other character.
    got, want = lines.decode().strip("\n").split("\n"), expected.split("\n")
    if whole:
        assert got == want
    else:
        assert len(got) == len(want)
        assert all(w.startswith(g) for g, w in zip(got, want, strict=True))
    return len(got)


def test_replays(golden: Path) -> None:
    compared = 0
    for dump in sorted(golden.glob("replay/*/dump.txt")):
        if dump.parent.name == "recover-unknown-magic":  # the scan ends at magic 5, Kafka's tool reads on
            continue
        for name, expected in log_sections(dump.read_bytes().decode()):
            compared += compare(*segment_lines((dump.parent / name).read_bytes()), expected)
    assert compared > 2000


@pytest.mark.parametrize(
    "folder", ["codecs", "txn", "txn-old", "compact-1-cleaned", "compact-5-cleaned", "retention", "metadata"]
)
def test_broker_directories(golden: Path, folder: str) -> None:
    compared = 0
    root = golden / "broker-4.3" / folder
    for dump in sorted(root.glob("dump/*/*.txt.gz")):
        if dump.name.startswith("__"):  # those were printed by the decoders of internal topics
            continue
        payload = not dump.name.startswith("large")  # its records of 900 KB were printed without
        for name, expected in log_sections(gzip.decompress(dump.read_bytes()).decode()):
            if (root / name).is_file():
                compared += compare(*segment_lines((root / name).read_bytes(), payload), expected)
    assert compared > 0 or folder == "metadata"


def batch_rows(*fields: dict[str, int]) -> np.ndarray:
    rows = np.zeros(len(fields), BATCH_DTYPE)
    for i, names in enumerate(fields):
        for name, value in ({"magic": 2} | names).items():
            rows[name][i] = value
    return rows


@given(RECORDS, st.integers(0, 2), st.sampled_from([-1, 0, 5, 0x7FFFFFFE]), st.booleans())
def test_lines_of_records(records: list[Record], batch: int, sequence: int, metadata: bool) -> None:
    rows = batch_rows({"base_sequence": -1}, {"base_sequence": sequence, "attributes": 8}, {})
    records = [record._replace(offset=i, batch=batch) for i, record in enumerate(records)]
    base = int(rows["base_sequence"][batch])
    expected = [
        reference.dump_record(
            record,
            ("CreateTime", "LogAppendTime", "CreateTime")[batch],
            reference.increment(base, record.offset) if base >= 0 else -1,
            metadata=metadata,
        )
        + "\n"
        for record in records
    ]
    out = text.dump_lines(build(records, rows), batch_lines=False, metadata=metadata)
    assert bytes(out).decode() == "".join(expected)


@given(
    PAYLOAD
    | st.lists(st.sampled_from([b"\xed", b"\xa0", b"\x80", b"\xf0\x9f", b"\xf4\x90", b"\xe0", b"a"])).map(b"".join)
)
def test_malformed_text_as_in_java(data: bytes) -> None:
    out = bytes(text.dump_lines(build([Record(0, 0, None, data)]), batch_lines=False, metadata=False))
    assert out.decode() == "| payload: " + reference.java_text(data) + "\n"


@pytest.mark.parametrize(
    ("data", "replacements"),  # what `new String(bytes, UTF_8)` of Java 17 gives
    [
        ("ed", 1),
        ("eda0", 1),
        ("eda080", 1),
        ("eda08080", 2),
        ("eda041", 1),
        ("ed9f", 1),
        ("e2", 1),
        ("e282", 1),
        ("e080", 2),
        ("e08080", 3),
        ("f09f98", 1),
        ("f09f41", 1),
        ("f0808080", 4),
        ("f4908080", 4),
        ("f5808080", 4),
        ("c0af", 2),
        ("c2", 1),
        ("ff", 1),
        ("80", 1),
        ("edbfbfedbfbf", 2),
    ],
)
def test_replacements_that_java_makes(data: str, replacements: int) -> None:
    out = bytes(text.dump_lines(build([Record(0, 0, None, bytes.fromhex(data))]), batch_lines=False, metadata=False))
    assert out.decode().count("\ufffd") == replacements


def test_lines_of_batches() -> None:
    rows = batch_rows(
        {
            "base_offset": 5,
            "last_offset": 9,
            "count": 3,
            "base_sequence": 0x7FFFFFFE,
            "producer_id": 1 << 40,
            "producer_epoch": 3,
            "leader_epoch": 4,
            "attributes": 0x78 | 4,
            "base_timestamp": 77,
            "max_timestamp": 88,
            "size": 100,
            "crc": 0xFFFFFFFF,
            "position": 1 << 31,
        },
        {"magic": 1, "last_offset": 12, "attributes": 8 | 2, "max_timestamp": -1, "verdict": 2, "leader_epoch": -1},
        {"magic": 0, "last_offset": 13, "attributes": 8, "max_timestamp": -1},
    )
    assert bytes(text.dump_lines(build([], rows))).decode().splitlines() == [
        "baseOffset: 5 lastOffset: 9 count: 3 baseSequence: 2147483646 lastSequence: 2 "
        "producerId: 1099511627776 producerEpoch: 3 "
        "partitionLeaderEpoch: 4 isTransactional: true isControl: true "
        "deleteHorizonMs: OptionalLong[77] position: 2147483648 "
        "LogAppendTime: 88 size: 100 magic: 2 compresscodec: zstd crc: 4294967295 isvalid: true",
        "offset: 12 position: 0 LogAppendTime: -1 size: 0 magic: 1 compresscodec: snappy crc: 0 isvalid: false",
        "offset: 13 position: 0 NoTimestampType: -1 size: 0 magic: 0 compresscodec: none crc: 0 isvalid: true",
    ]


def message(magic: int, key: bytes | None, value: bytes | None, spoil: int = 0) -> bytes:
    """A legacy message; `spoil` changes its CRC."""
    body = bytes([magic, 0]) + (b"" if magic == 0 else (1700).to_bytes(8, "big"))
    for part in (key, value):
        body += b"\xff\xff\xff\xff" if part is None else len(part).to_bytes(4, "big") + part
    body = (zlib.crc32(body) ^ spoil).to_bytes(4, "big") + body
    return (3).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("spoil", [0, 1])
def test_lines_of_old_messages(magic: int, key: bytes | None, value: bytes | None, spoil: int) -> None:
    data = message(magic, key, value, spoil)
    columns, damage = decode(scan(data).batches, data)
    assert not damage
    time = ("NoTimestampType: -1", "CreateTime: 1700")[magic]
    crc = int.from_bytes(data[12:16], "big")
    sizes = [-1 if part is None else len(part) for part in (key, value)]
    valid = "false" if spoil else "true"
    record = f"| offset: 3 {time} keySize: {sizes[0]} valueSize: {sizes[1]} isValid: {valid} crc: {crc}"
    record += "" if key is None else f" key: {key.decode()}"
    record += "" if value is None else f" payload: {value.decode()}"
    batch = (
        f"offset: 3 position: 0 {time} size: {len(data)} magic: {magic} compresscodec: none crc: {crc} isvalid: {valid}"
    )
    assert bytes(text.dump_lines(columns)).decode().splitlines() == [batch, record]
    # A wrapper of the other magic around the same message (KAFKA-4298): the record's own CRC is found all the same.
    columns.batches.rows["magic"] = 1 - magic
    assert f"isValid: {valid} crc: {crc}" in bytes(text.dump_lines(columns, batch_lines=False)).decode()


def test_a_key_that_no_message_surrounds() -> None:
    columns = build([Record(0, 0, b"k" * 40, b"v")], batch_rows({"magic": 1}))
    for place in (0, 5, 20, 39, 1 << 39):
        moved = dataclasses.replace(columns, key_place=np.array([place]), key_size=np.array([1], np.int32))
        with pytest.raises(RequestError, match="record 0"):
            text.dump_lines(moved)


def test_a_control_record_waits_for_its_meaning() -> None:
    columns = build([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], batch_rows({"attributes": 0x30, "base_sequence": -1}))
    line = b"| offset: 0 CreateTime: 1 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
    assert bytes(text.dump_lines(columns, batch_lines=False)) == line
    assert bytes(text.dump_lines(columns, batch_lines=False, metadata=False)) == b""


def many() -> RecordColumns:
    """Batches of 0 to 4 records."""
    counts = [3, 0, 1, 4, 0, 0, 2, 1]
    numbers = [row for row, count in enumerate(counts) for _ in range(count)]
    return build(
        [Record(i, i, b"\xff" * (i * 50), b"v" * (i * 40), ((b"name", b"x"),), row) for i, row in enumerate(numbers)],
        batch_rows(*({"count": count} for count in counts)),
    )


def test_ranges_and_growth() -> None:
    columns = many()
    whole = bytes(text.dump_lines(columns))
    assert whole.count(b"\n") == 8 + 11
    for capacity in (1, 150, 400, 1000, 70000):
        assert bytes(text.dump_lines(columns, text.TextBuffer(capacity))) == whole
    for cut in range(len(columns.batches) + 1):
        out = text.dump_lines(columns, stop_batch=cut)
        assert bytes(text.dump_lines(columns, out, start_batch=cut)) == whole
    assert bytes(text.dump_lines(columns, start_batch=3, stop_batch=4, start=5, stop=6, batch_lines=False)) in whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"start_batch": -1},
        {"stop_batch": 9},
        {"start": 4, "stop": 3},
        {"stop": 12},
        {"stop_batch": 2, "stop": 5},
        {"start_batch": 3, "start": 0},
    ],
)
def test_ranges_that_do_not_fit(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        text.dump_lines(many(), **wrong)


def test_texts_in_place_of_contents() -> None:
    columns = many()
    plain = bytes(text.dump_lines(columns, payload=False)).splitlines(keepends=True)
    parts = [f" text {i}\n{i}" for i in range(len(columns))]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    texts = text.Texts(ends, "".join(parts).encode())
    due = iter(parts)
    whole = "".join(
        line[:-1] + next(due) + "\n" if line.startswith("|") else line for line in map(bytes.decode, plain)
    ).encode()
    for capacity in (1, 150, 70000):
        assert bytes(text.dump_lines(columns, text.TextBuffer(capacity), texts=texts)) == whole
    short = bytes(text.dump_lines(columns, batch_lines=False, metadata=False, texts=texts))
    assert short == "".join(f"|{part}\n" for part in parts).encode()
    first = int(np.searchsorted(columns.batch, 3))
    rest = text.Texts(ends[first:], texts.data)
    assert whole.endswith(bytes(text.dump_lines(columns, start_batch=3, texts=rest)))
    for wrong in (
        text.Texts(ends[1:], texts.data),
        text.Texts(ends + np.int32(1), texts.data),
        text.Texts(ends - np.int32(1), texts.data),
        text.Texts(ends[::-1].copy(), texts.data),
        text.Texts(ends, b""),
    ):
        with pytest.raises(RequestError):
            text.dump_lines(columns, texts=wrong)


def test_unchecked_crcs_are_not_called_valid() -> None:
    with pytest.raises(RequestError, match="crc"):
        text.dump_lines(build([], batch_rows({"verdict": 1})))


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 60), min_size=3, max_size=3),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20), min_size=3, max_size=3),
    st.integers(-1, 2),
)
def test_hostile_columns_end_in_lines_or_an_error(places: list[int], sizes: list[int], magic: int) -> None:
    columns = build([Record(0, 0, b"key", b"value", ((b"h", b"w"), (b"i", None)))], batch_rows({"magic": magic}))
    names = ("key_place", "value_place", "headers_place", "key_size", "value_size", "header_count")
    numbers = (np.array([n], np.int64 if i < 3 else np.int32) for i, n in enumerate((*places, *sizes)))
    try:
        out = text.dump_lines(dataclasses.replace(columns, **dict(zip(names, numbers, strict=True))))
    except RequestError:
        return
    assert bytes(out).count(b"\n") >= 2
