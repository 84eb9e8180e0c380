"""Targets of hostile bytes: JSON that is made of texts and payloads, and values in JSON on their way to columns."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from helpers import hostile_logs, json_shapes, mutations
from pylogseg._native import _json, _text
from pylogseg.errors import RequestError
from pylogseg.values.schemas.frames import Framed, Named
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed_json import JsonEngine

#: What a writer of JSON has to look at: quotes, controls, what terminals act on, halves of characters, a mark.
_PIECES = [
    b'"', b"\\", b"\\u0061", b"\\u00", b"\\ud83d\\ude00", b"\\ud83d", b"\n", b"\r", b"\0", b"\x1b[2J", b"\x7f",
    b"\xc2\x9b", b"\xe2\x80\xae", b"\xc3\xbc", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\xff", b"\xed\xa0\x80", b"base64:",
    b"a", b"key", b" ", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"1.10", b"-0", b"1e400",
]  # fmt: skip
_NAMES = ["", "a", "aa", "b\u00fc", 'q"\\', "\U0001f600", "x\n", "\u2028", "key"]
_BAD = 99


def strings(rng: Random) -> None:
    """Whatever the bytes are, what is written for each is one value of JSON in UTF-8."""
    values = [_bytes(rng) for _ in range(rng.randrange(1, 6))]
    data = hostile_logs.exact(b"".join(values))
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    if rng.random() < 0.15:
        ends[rng.randrange(len(ends))] = rng.choice((-1, -(1 << 31), (1 << 31) - 1, len(data) + 1, rng.randrange(64)))
    kind = rng.randrange(3)
    out = _text.TextBuffer(rng.choice((0, 0, 1, 16, 64)))
    try:
        made = _text.json_strings(ends, data, kind, out)
    except RequestError:
        return
    raw, whole = bytes(out), bytes(data)
    assert made[0] == 0
    assert made[-1] == len(raw)
    for i in range(len(ends) - 1):
        text, value = raw[made[i] : made[i + 1]].decode(), whole[ends[i] : ends[i + 1]]
        found = json.loads(text)
        assert "\n" not in text
        if kind < 2:
            assert isinstance(found, str)
        with suppress(UnicodeDecodeError):
            if kind == 0:
                assert found == value.decode()


def parts(rng: Random) -> None:
    """Lines with parts of any type are lines again, that say the same; what are no lines is not read behind."""
    values = [_json_bytes(rng) for _ in range(rng.randrange(1, 5))]
    buffer = hostile_logs.exact(b"".join(values))
    size = np.array([len(value) for value in values], np.int32)
    place = np.cumsum(size, dtype=np.int64) - size
    status, ends = np.zeros(len(size), np.uint8), np.empty(len(size) + 1, np.int64)
    is_bare = rng.random() < 0.3
    lines: Any = _json.lines(place, size, (buffer,), status, is_bare, _BAD, ends)
    around = (0, 1) if is_bare else (5, 2)
    is_made_up = rng.random() < 0.3
    if is_made_up:
        values = [bytes(rng.choice(b'[[{]},:""a1\\u') for _ in range(rng.randrange(20))) for _ in values]
        lines = hostile_logs.exact(b"".join(values))
        ends, around = np.cumsum([0, *map(len, values)], dtype=np.int64), rng.choice(((0, 0), (0, 0), (1, 0), (2, 2)))
        if rng.random() < 0.3:
            ends[rng.randrange(len(ends))] = rng.choice((-1, 1 << 40, len(lines) + 1, rng.randrange(64)))
    table, names = _parts(rng)
    if rng.random() < 0.1:
        table[rng.randrange(len(table)), rng.randrange(5)] = rng.choice((-1, 9, 99, (1 << 31) - 1, -(1 << 31)))
    after = np.empty_like(ends)
    try:
        made = bytes(_json.with_parts(lines, ends, *around, table, names, after))
    except ValueError:
        return
    if is_made_up:
        return
    for i in range(len(values)):
        line = made[after[i] : after[i + 1]]
        assert (status[i] == 0) >= bool(line)
        if line:
            assert line.endswith(b"\n")
            one = json.loads(bytes(lines)[ends[i] : ends[i + 1]], parse_float=str, parse_int=str)
            _compare(one, json.loads(line, parse_float=str, parse_int=str))


def columns(rng: Random) -> None:
    """What a kernel takes is sound, and is what lines make of it; tables that are not sound are refused."""
    schema = json_shapes.schema(rng)
    made = JsonEngine(Schemas(), Schema(json.dumps(schema), "JSON"), 1, -_BAD)
    values = json_shapes.values(rng, schema, rng.randrange(1, 6))
    buffer = hostile_logs.exact(b"".join(value or b"" for value in values))
    size = np.array([-1 if value is None else len(value) for value in values], np.int32)
    place = np.cumsum(np.maximum(size, 0), dtype=np.int64) - np.maximum(size, 0)
    harmed_row = rng.randrange(len(values))
    if rng.random() < 0.1 and size[harmed_row] > 0:
        place[harmed_row] = rng.choice((1 << 40, 1 << 62, len(buffer)))
    room = rng.choice((1 << 24, 1 << 24, 1 << 12, rng.randrange(1 << 10)))
    framed = Framed([Named("given")], np.zeros(len(size), np.int32), place, size, (buffer,), room=room)
    with suppress(OverflowError):
        array, status, _, _ = made.decode(framed, np.zeros(len(size), np.int32), None)
        array.validate(full=True)
        assert len(array) == len(status) == len(values)
    table = made._columns.parts
    rows, nodes, taken = table.rows.copy(), made._columns._nodes.copy(), np.empty(len(size), np.uint8)
    harmed = rng.choice((rows, nodes))
    harmed[rng.randrange(len(harmed)), rng.randrange(harmed.shape[1])] = rng.choice(
        (-1, 0, 1, 2, 4, 8, 99, (1 << 31) - 1)
    )
    names = hostile_logs.exact(table.names.tobytes())
    with suppress(ValueError):
        _json.decode(
            place, size, (buffer,), np.zeros(len(size), np.uint8), rows, table.nodes, names, nodes, room, 9, 9, taken
        )


def _compare(one: Any, other: Any) -> None:
    """A part is as it was, or a string that holds its JSON."""
    if type(one) is not type(other) or not isinstance(one, dict | list):
        if one != other:
            assert isinstance(other, str)
            assert json.loads(other, parse_float=str, parse_int=str) == one
        return
    assert len(one) == len(other)
    for mine, their in (
        zip(one.values(), other.values(), strict=True) if isinstance(one, dict) else zip(one, other, strict=True)
    ):
        _compare(mine, their)


def _bytes(rng: Random) -> bytes:
    if rng.random() < 0.3:
        return _json_bytes(rng)
    return b"".join(rng.choice(_PIECES) for _ in range(rng.choice((0, 1, 3, 10, 40, 300))))


def _json_bytes(rng: Random) -> bytes:
    raw = _value(rng, rng.choice((0, 1, 2, 4))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3 and raw:
        return mutations.damaged(rng, raw)
    if rng.random() < 0.1:
        return b"".join(rng.choice(_PIECES) for _ in range(rng.randrange(30)))
    return raw


def _value(rng: Random, depth: int) -> str:
    kind = rng.randrange(9 if depth else 6)
    space = rng.choice(("", "", "", " ", "\n\t"))
    if kind < 6:
        return rng.choice(
            ("null", "true", "1.10", "1e400", "-0", "12345678901234567890.5", _string(rng, '\\"]},{['), '""')
        )
    inner = [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return f"[{space}{(space + ',').join(inner)}]"
    return "{" + ",".join(f"{_string(rng, rng.choice(_NAMES))}{space}:{space}{each}" for each in inner) + "}"


def _string(rng: Random, text: str) -> str:
    plain = json.dumps(text, ensure_ascii=rng.random() < 0.5)
    return plain.replace("a", "\\u0061") if rng.random() < 0.3 else plain


def _parts(rng: Random) -> tuple[Any, Any]:
    """A table of parts as `JsonEngine` makes it, level by level."""
    rows, names, level = [[rng.choice((1, 1, 2, 3, 0)), 0, 0, 0, 0]], bytearray(), 0
    while level < len(rows):
        kind = rows[level][0]
        inner = [""] if kind == 2 else sorted(rng.sample(_NAMES, rng.randrange(5)), key=str.encode) if kind == 1 else []
        if kind in (1, 2):
            rows[level][1:3] = [len(rows), len(inner)]
        for name in inner:
            raw = name.encode()
            rows.append(
                [rng.choice((0, 1, 2, 3, 3)) if len(rows) < 12 else rng.choice((0, 3)), 0, 0, len(names), len(raw)]
            )
            names += raw
        level += 1
    return np.array(rows, np.int32), hostile_logs.exact(bytes(names))
