"""Targets of hostile bytes: records as text, the search in payloads, the encoder, patches of headers."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
from reference import batch as slow

from helpers import hostile_logs, mutations
from pylogseg.errors import RequestError, Verdict
from pylogseg.format import patch, text
from pylogseg.format.batches import scan
from pylogseg.format.records import RecordColumns, decode
from pylogseg.reading.arrow.encode import encode

FIELDS = ("offset", "timestamp", "key", "value", "headers", "leaderEpoch", "position")
PLACES = ("key_place", "value_place", "headers_place")
SIZES = ("key_size", "value_size", "header_count")


def columns_of(rng: Random) -> tuple[RecordColumns, bool]:
    """Columns of hostile batches; sometimes with places that a caller made up."""
    data, heavy = mutations.file(rng)
    buffer = hostile_logs.exact(data)
    columns, _ = hostile_logs.decode_exactly(scan(buffer).batches, buffer)
    return columns, heavy


def made_up(rng: Random, columns: RecordColumns) -> RecordColumns:
    """The same with one place or size out of thin air."""
    name = rng.choice(PLACES + SIZES)
    array = getattr(columns, name).copy()
    top = 1 << (63 if name in PLACES else 31)
    near = rng.randrange(400)
    array[rng.randrange(len(array))] = rng.choice((-1, -top, top - 1, near, near | 1 << 29, (near << 40) % top))
    return dataclasses.replace(columns, **{name: array})


def texts(rng: Random) -> None:
    """JSON lines that a parser takes, CSV that a reader takes, Kafka's lines, and a search."""
    columns, heavy = columns_of(rng)
    if not len(columns):
        return
    if rng.random() < 0.4:
        with suppress(RequestError):
            _rendered(rng, made_up(rng, columns))
        return
    _rendered(rng, columns)
    if not heavy:
        _parsed(rng, columns)


def _rendered(rng: Random, columns: RecordColumns) -> None:
    programs = (
        text.json_lines(key=rng.choice(("text", "base64", "hex", "json")), value=rng.choice(("text", "json", "hex"))),
        text.csv(key=rng.choice(("text", "base64", "hex")), delimiter=rng.choice(",;|\t")),
        text.template("%t %p %o %T %k %s %K %S %R %h %%\\n\\x00", key=rng.choice(("text", "hex"))),
    )
    text.render(columns, rng.choice(programs))
    data = ~columns.batches.is_control[columns.batch]
    with suppress(RequestError):
        text.dump_lines(columns.take(data) if rng.random() < 0.5 else columns, payload=rng.random() < 0.7)
    with suppress(RequestError):
        ends = [rng.randrange(-1, 40) for _ in range(len(columns) + 1)]
        ends = sorted(ends) if rng.random() < 0.5 else ends
        decoded = text.Texts(np.array(ends, np.int32), bytes(rng.randrange(40)))
        text.dump_lines(columns, metadata=rng.random() < 0.5, texts=decoded)
    needle = rng.choice((b"", b"k", b"V1", b"\0\0", b"v" * 40))
    found = text.find(columns.value_place, columns.value_size, columns.sources, needle, ignore_case=False)
    for i in rng.sample(range(len(columns)), min(len(columns), 3)):
        value = columns.value(i)
        assert found[i] == (value is not None and needle in value)


def _parsed(rng: Random, columns: RecordColumns) -> None:
    """What parsers make of it: a line a record, and the offsets of the records."""
    lines = bytes(text.render(columns, text.json_lines(FIELDS, value="base64"))).decode().splitlines()
    rows = [json.loads(line) for line in bytes(text.render(columns, text.json_lines(FIELDS))).split(b"\n")[:-1]]
    assert [row["offset"] for row in rows] == columns.offset.tolist()
    assert [len(row["headers"] or ()) for row in rows] == columns.header_count.tolist()
    assert len(lines) >= len(rows)
    table = bytes(text.render(columns, text.csv(("offset", "key", "value")))).decode("utf-8", "surrogateescape")
    cells = list(csv.reader(io.StringIO(table.replace("\0", "0"), newline="")))
    assert [int(row[0]) for row in cells] == columns.offset.tolist()


def encoded(rng: Random) -> None:
    """What was decoded is encoded and decoded to the same, or refused with a reason."""
    columns, heavy = columns_of(rng)
    if rng.random() < 0.2:
        _patched(rng)
        return
    magic = rng.choice((0, 1, 2, 2, 2))
    codecs: Any = ("none", "none", "lz4") if heavy else ("none", "lz4", "snappy", "gzip", "zstd")
    options = {"magic": magic, "compression": rng.choice(codecs), "batch_bytes": rng.choice((1, 100, 16384))}
    options["base_offset"] = rng.choice((None, None, 0, 1000, 2**63 - 3))
    if len(columns) and rng.random() < 0.3:
        with suppress(RequestError):
            encode(made_up(rng, columns), **options)
        return
    try:
        raw = encode(columns, **options)
    except RequestError:
        return
    table = scan(raw).batches
    assert (table.verdict == Verdict.GOOD).all()
    again, damage = decode(table, raw)
    assert not damage
    if len(columns) < 100:
        assert [_kept(record, magic, options) for record in hostile_logs.records_of(columns)] == [
            _kept(record, magic, options) for record in hostile_logs.records_of(again)
        ]


def _kept(record: slow.Record, magic: int, options: dict[str, Any]) -> slow.Record:
    record = record._replace(offset=0) if options["base_offset"] is not None else record
    record = record._replace(timestamp=-1) if magic == 0 else record
    return record if magic == 2 else record._replace(headers=())


def _patched(rng: Random) -> None:
    """Headers written anew: what is no whole batch is refused and left alone; a CRC that held still holds."""
    data = np.array(hostile_logs.exact(mutations.batch(rng).data))
    before = bytes(data)
    position = rng.choice((0, 0, 1, -1, len(data)))
    number = rng.choice((0, 5, -1, 2**31, 2**63 - 1, 2**63))
    held = scan(data, max_rows=1).batches.verdict.tolist()
    try:
        rng.choice((
            lambda: patch.set_last_offset(data, number, position),
            lambda: patch.set_leader_epoch(data, number, position),
            lambda: patch.set_max_timestamp(data, number, append_time=rng.random() < 0.5, position=position),
        ))()  # fmt: skip
    except RequestError:
        assert bytes(data) == before
        return
    if held == [Verdict.GOOD] and position == 0:
        assert scan(data, max_rows=1).batches.verdict.tolist() == held
