"""Kafka's requests and responses as dictionaries and back, by the table of schemas; nothing here reads or writes.

A field has its name in the schema; one that a version does not have has its default when it is read, and is left out
when it is written, so that a handler fills in everything and each version takes what it has. UUIDs are 16 bytes.

Functions are made once for each message and version, at the first use. Neighbours of fixed size are one `struct`.
Where the records of an answer go, anything that has a `size` may stand: its length is written, and the object itself
comes out among the parts, for whoever sends them.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pylogseg._codec import decode_uvarint, encode_uvarint
from pylogseg.format.messages.codec import is_flexible, least_bytes, length_reader, length_writer
from pylogseg.format.messages.schema import WIDTHS, Message, MessageField, Versions, message, numbered
from pylogseg.server.budget import Budget

Data = bytes | memoryview
Values = dict[str, Any]
_Read = Callable[[Data, int, Budget], tuple[Any, int]]
_Write = Callable[[Any, list[Any]], None]

_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
NO_ID = bytes(16)
#: Of a text in bytes, in the flexible form too, as in Kafka: in the other one a length has no more.
_MOST_TEXT = 2**15 - 1
API_VERSIONS = 18
_HEAD = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")
#: For what has no lists.
_ANY = Budget()
#: What is raised for bytes that end too early, and by what reads lengths and varints: `MalformedError` is a ValueError.
_MALFORMED = (struct.error, IndexError, ValueError)


class MalformedRequest(ValueError):
    """Bytes that are no request of the version that their header names."""


class Header(NamedTuple):
    """The header of a request; the body begins at `end`."""

    key: int
    version: int
    correlation: int
    client: str | None
    end: int


# ---- whole messages ----


def request_of(key: int) -> Message | None:
    """Return the request of a key, if the table has it."""
    return numbered("clients", "request").get(key)


def response_of(key: int) -> Message:
    """Return the response of a key that has a request."""
    return numbered("clients", "response")[key]


def read_header(data: Data) -> Header:
    """Read the header of a request.

    The body begins at an unknown place where the key or the version is not known: there `end` is -1. MalformedRequest
    if the bytes end before it does.
    """
    try:
        key, version, correlation = _HEAD.unpack_from(data)
        client, at = _nullable_text(data, _HEAD.size, _ANY)
        of = request_of(key)
        if of is None or not of.versions.has(version):
            return Header(key, version, correlation, client, -1)
        if of.flexible.has(version):
            at = _read_tags(data, at, {}, {}, _ANY)
    except _MALFORMED as error:
        raise MalformedRequest(f"a header in {len(data)} bytes: {error}") from None
    return Header(key, version, correlation, client, at)


def decode(of: Message, version: int, data: Data, at: int = 0, budget: Budget | None = None) -> tuple[Values, int]:
    """Decode a request or response; returns its fields and where they end. Bytes behind them are ignored, as in Kafka.

    The items of its lists are taken from the budget before they are made, or TooMuch is raised. MalformedRequest if the
    bytes end too early, or hold a length that they do not allow.
    """
    try:
        return _reader(of.name, version)(data, at, budget or Budget())
    except _MALFORMED as error:
        raise MalformedRequest(f"{of.name} {version}: {error}") from None


def encode(of: Message, version: int, values: Values) -> list[Any]:
    """Encode a request or response, as pieces of bytes and the holes between them."""
    parts: list[Any] = []
    _writer(of.name, version)(values, parts)
    return parts


def answer(key: int, version: int, correlation: int, values: Values) -> list[Any]:
    """Return a whole frame with a response: bytes, and the holes between them."""
    of = response_of(key)
    parts: list[Any] = [_INT32.pack(correlation)]
    # The answer to ApiVersions is read by clients that do not yet know which versions there are.
    if of.flexible.has(version) and key != API_VERSIONS:
        parts.append(b"\0")
    _writer(of.name, version)(values, parts)
    return framed(parts)


def request(key: int, version: int, correlation: int, client: str | None, values: Values) -> bytes:
    """Return a whole frame with a request, as a client sends it."""
    of = request_of(key)
    assert of is not None
    parts: list[Any] = [_HEAD.pack(key, version, correlation)]
    _text_writer(False, True)(client, parts)
    if of.flexible.has(version):
        parts.append(b"\0")
    _writer(of.name, version)(values, parts)
    return b"".join(framed(parts))


def framed(parts: Iterable[Any]) -> list[Any]:
    """Put the size of a frame in front of its parts, and join neighbours that are bytes."""
    joined: list[Any] = []
    run: list[bytes] = [b""]
    size = 0
    for part in parts:
        if isinstance(part, bytes):
            run.append(part)
            size += len(part)
        else:
            joined.append(b"".join(run))
            joined.append(part)
            run = []
            size += part.size
    joined.append(b"".join(run))
    joined[0] = _INT32.pack(size) + joined[0]
    return joined


@functools.lru_cache(maxsize=1024)
def _reader(name: str, version: int) -> _Read:
    of = message(name)
    return _struct_reader(of.fields, version, of.flexible)


@functools.lru_cache(maxsize=1024)
def _writer(name: str, version: int) -> _Write:
    of = message(name)
    return _struct_writer(of.fields, version, of.flexible)


# ---- defaults ----


def _default(field: MessageField) -> Any:
    if field.default is None:
        return None
    if field.is_list:
        return ()
    if field.type == "struct":
        return {inner.name: _default(inner) for inner in field.fields}
    return NO_ID if field.type == "uuid" else field.default


def _runs(fields: Iterable[MessageField]) -> list[list[MessageField]]:
    """Group neighbours of fixed size; every other field stands alone."""
    runs: list[list[MessageField]] = []
    for field in fields:
        fixed = field.type in WIDTHS and not field.is_list
        if fixed and runs and runs[-1][0].type in WIDTHS and not runs[-1][0].is_list:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _plain(fields: tuple[MessageField, ...], version: int) -> list[MessageField]:
    return [field for field in fields if field.versions.has(version) and not field.tagged.has(version)]


def _layout(run: list[MessageField]) -> struct.Struct | None:
    """Return the layout of a run of fixed size."""
    if run[0].is_list or run[0].type not in WIDTHS:
        return None
    return struct.Struct(">" + "".join(_CODES[field.type] for field in run))


# ---- decode ----


def _struct_reader(fields: tuple[MessageField, ...], version: int, flexible: Versions) -> _Read:
    """Make a function for a struct out of a text with a line for each run: it takes half the time of a loop."""
    names: dict[str, Any] = {"read_tags": _read_tags}
    values = {field.name: f"default_{field.name}" for field in fields}
    names |= {f"default_{field.name}": _default(field) for field in fields}
    lines = []
    for run in _runs(_plain(fields, version)):
        first, layout = run[0].name, _layout(run)
        if layout is not None:
            names[f"unpack_{first}"] = layout.unpack_from
            lines += [f"{''.join(f'value_{field.name}, ' for field in run)} = unpack_{first}(data, at)"]
            lines += [f"at += {layout.size}"]
        else:
            names[f"read_{first}"] = _value_reader(run[0], version, flexible)
            lines += [f"value_{first}, at = read_{first}(data, at, budget)"]
        values |= {field.name: f"value_{field.name}" for field in run}
    lines += [f"values = {{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"]
    if flexible.has(version):
        names["tagged"] = {
            field.tag: (field.name, _value_reader(field, version, flexible, tagged=True))
            for field in fields
            if field.tagged.has(version)
        }
        lines += ["if at < len(data) and data[at] == 0:", "    return values, at + 1"]
        lines += ["at = read_tags(data, at, tagged, values, budget)"]
    lines += ["return values, at"]
    made: _Read = _function("read(data, at, budget)", lines, names)
    return made


def _function(head: str, lines: list[str], names: dict[str, Any]) -> Any:
    """Make a function of lines that use some names; what varies in the lines are names of fields in our own table."""
    exec("\n    ".join([f"def {head}:", *lines]), names)
    return names[head.partition("(")[0]]


def _read_tags(data: Data, at: int, tagged: dict[int, tuple[str, _Read]], values: Values, budget: Budget) -> int:
    count, at = decode_uvarint(data, at)
    if count > (len(data) - at) // 2:
        raise MalformedRequest(f"{count} tagged fields in {len(data) - at} bytes")
    for _ in range(count):
        tag, at = decode_uvarint(data, at)
        size, at = decode_uvarint(data, at)
        end = at + size
        if end > len(data):
            raise MalformedRequest(f"tag {tag} needs {size} bytes, {len(data) - at} are left")
        if tag in tagged:
            name, of = tagged[tag]
            values[name], done = of(data[at:end], 0, budget)
            if done > size:
                raise MalformedRequest(f"{name} needs more than its {size} bytes")
        at = end
    return at


def _value_reader(field: MessageField, version: int, flexible: Versions, *, tagged: bool = False) -> _Read:
    nullable = field.nullable.has(version)
    if field.is_list:
        return _list_reader(field, version, flexible, nullable)
    if field.type == "struct":
        inner = _struct_reader(field.fields, version, flexible)
        return _maybe_reader(inner, tagged) if nullable else inner
    return _scalar_reader(field.type, is_flexible(field, version, flexible), nullable)


def _maybe_reader(inner: _Read, tagged: bool) -> _Read:
    """Return what reads a struct that may be null: behind a byte, or an unsigned varint if it is a tagged field."""

    def read(data: Data, at: int, budget: Budget) -> tuple[Any, int]:
        if tagged:
            there, at = decode_uvarint(data, at)
            return (None, at) if there == 0 else inner(data, at, budget)
        return (None, at + 1) if data[at] >= 128 else inner(data, at + 1, budget)

    return read


def _list_reader(field: MessageField, version: int, flexible: Versions, nullable: bool) -> _Read:
    compact, name = is_flexible(field, version, flexible), field.name
    length_of, least = length_reader(compact, ">i"), least_bytes(field, version, flexible)
    is_struct = field.type == "struct"
    item = _struct_reader(field.fields, version, flexible) if is_struct else _scalar_reader(field.type, compact, False)

    def read(data: Data, at: int, budget: Budget) -> tuple[Any, int]:
        count, at = length_of(data, at)
        if count < 0:
            if not nullable:
                raise MalformedRequest(f"{name}: it is null")
            return None, at
        if count > (len(data) - at) // least:
            raise MalformedRequest(f"{name}: {count} items in {len(data) - at} bytes")
        items: list[Any] = []
        if not count:
            return items, at
        budget.spend(count)
        for _ in range(count):
            value, at = item(data, at, budget)
            items.append(value)
        return items, at

    return read


def _scalar_reader(kind: str, compact: bool, nullable: bool) -> _Read:
    if kind in WIDTHS:
        layout = struct.Struct(">" + _CODES[kind])
        return lambda data, at, _: (layout.unpack_from(data, at)[0], at + layout.size)
    is_text = kind == "string"
    length_of = length_reader(compact, ">h" if is_text else ">i")

    def read(data: Data, at: int, budget: Budget) -> tuple[Any, int]:
        length, at = length_of(data, at)
        if length < 0:
            if not nullable:
                raise MalformedRequest(f"a {kind} is null")
            return None, at
        end = at + length
        if end > len(data):
            raise MalformedRequest(f"a {kind} of {length} bytes, {len(data) - at} are left")
        if is_text:
            if length > _MOST_TEXT:
                raise MalformedRequest(f"a string of {length} bytes, {_MOST_TEXT} are allowed")
            return str(data[at:end], "utf-8", "replace"), end
        return (bytes(data[at:end]) if kind == "bytes" else memoryview(data)[at:end]), end

    return read


_nullable_text = _scalar_reader("string", False, True)


# ---- encode ----


def _struct_writer(fields: tuple[MessageField, ...], version: int, flexible: Versions) -> _Write:
    names: dict[str, Any] = {f"default_{field.name}": _default(field) for field in fields}
    names["write_tags"] = _write_tags
    lines = []
    for run in _runs(_plain(fields, version)):
        first, layout = run[0].name, _layout(run)
        given = ", ".join(f"get({field.name!r}, default_{field.name})" for field in run)
        if layout is not None:
            names[f"pack_{first}"] = layout.pack
            lines += [f"append(pack_{first}({given}))"]
        else:
            names[f"write_{first}"] = _value_writer(run[0], version, flexible)
            lines += [f"write_{first}({given}, out)"]
    tagged = sorted(
        (field.tag, field.name, _default(field), _value_writer(field, version, flexible, tagged=True))
        for field in fields
        if field.tagged.has(version)
    )
    if flexible.has(version):
        names["tagged"] = tagged
        lines += ["write_tags(values, tagged, out)" if tagged else "append(b'\\0')"]
    made: _Write = _function("write(values, out)", ["get, append = values.get, out.append", *lines], names)
    return made


def _write_tags(values: Values, tagged: list[tuple[int, str, Any, _Write]], out: list[Any]) -> None:
    count, body = 0, []
    for tag, name, default, of in tagged:
        value = values.get(name, default)
        if value is default or value == default or (default == () and not value and value is not None):
            continue
        inner: list[Any] = []
        of(value, inner)
        raw = b"".join(inner)
        body += [encode_uvarint(tag), encode_uvarint(len(raw)), raw]
        count += 1
    out.append(encode_uvarint(count))
    out += body


def _value_writer(field: MessageField, version: int, flexible: Versions, *, tagged: bool = False) -> _Write:
    compact, nullable = is_flexible(field, version, flexible), field.nullable.has(version)
    if field.is_list:
        return _list_writer(field, version, flexible, nullable)
    if field.type == "struct":
        inner = _struct_writer(field.fields, version, flexible)
        return _maybe_writer(inner, tagged) if nullable else inner
    if field.type in WIDTHS:
        layout = struct.Struct(">" + _CODES[field.type])
        return lambda value, out: out.append(layout.pack(value))
    if field.type == "string":
        return _text_writer(compact, nullable)
    return _bytes_writer(field.name, compact, nullable)


def _maybe_writer(inner: _Write, tagged: bool) -> _Write:
    def write(value: Any, out: list[Any]) -> None:
        if value is None:
            out.append(b"\0" if tagged else b"\xff")
        else:
            out.append(b"\1")
            inner(value, out)

    return write


def _list_writer(field: MessageField, version: int, flexible: Versions, nullable: bool) -> _Write:
    compact = is_flexible(field, version, flexible)
    length_of = length_writer(compact, ">i")
    null = length_of(-1) if nullable else length_of(0)
    if field.type in WIDTHS:
        code = _CODES[field.type]

        def write_numbers(items: Any, out: list[Any]) -> None:
            out.append(null if items is None else length_of(len(items)))
            if items:
                out.append(struct.pack(f">{code * len(items)}", *items))

        return write_numbers
    item: _Write = (
        _struct_writer(field.fields, version, flexible)
        if field.type == "struct"
        else (_text_writer(compact, False) if field.type == "string" else _bytes_writer(field.name, compact, False))
    )

    def write(items: Any, out: list[Any]) -> None:
        out.append(null if items is None else length_of(len(items)))
        for each in items or ():
            item(each, out)

    return write


def _text_writer(compact: bool, nullable: bool) -> _Write:
    length_of = length_writer(compact, ">h")
    null = length_of(-1) if nullable else length_of(0)  # what a version cannot say is empty in it

    def write(value: Any, out: list[Any]) -> None:
        if value is None:
            out.append(null)
        else:
            raw = value.encode("utf-8", "replace")
            out.append(length_of(len(raw)) + raw)

    return write


def _bytes_writer(name: str, compact: bool, nullable: bool) -> _Write:
    length_of = length_writer(compact, ">i")
    null = length_of(-1) if nullable else length_of(0)

    def write(value: Any, out: list[Any]) -> None:
        if value is None:
            out.append(null)
        elif isinstance(value, (bytes, memoryview, bytearray)):
            out.append(length_of(len(value)))
            out.append(bytes(value))
        else:
            out.append(length_of(value.size))
            out.append(value)

    return write
