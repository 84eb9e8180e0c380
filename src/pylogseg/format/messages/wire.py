"""Kafka's requests and responses as dictionaries and back, in their frames; nothing here reads or writes.

A field has its name in the schema; one that a version does not have has its default when it is read, and is left out
when it is written, so that a handler fills in everything and each version takes what it has. UUIDs are 16 bytes.
Where the records of an answer go, anything that has a `size` may stand: its length is written, and the object itself
comes out among the parts, for whoever sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from pylogseg.format.messages.codec import ByteView, MessagePlan, Policy, Spend, allow_any_length, plan_of
from pylogseg.format.messages.schema import Message, Versions, by_number, field_of

Values = dict[str, Any]

NO_ID = bytes(16)
#: Bytes that are no UTF-8 are what they are to Java.
CLIENTS = Policy(ids_are_text=False, text_errors="replace", is_exact=False)
API_VERSIONS = 18
_KEY = struct.Struct(">hh")
_INT32 = struct.Struct(">i")
_HEADER = {"requestApiKey": "int16", "requestApiVersion": "int16", "correlationId": "int32", "clientId": "string"}
_HEADER_FIELDS = tuple(
    field_of({"name": name, "type": kind, "versions": "1+", "nullable": "1+", "flexible": "none"})
    for name, kind in _HEADER.items()
)
#: Without tags, and with them. The name of the client has the oldest form in both.
_HEADERS = [MessagePlan(_HEADER_FIELDS, version, Versions(2, 2), CLIENTS) for version in (1, 2)]


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
    return by_number("clients", "request").get(key)


def response_of(key: int) -> Message:
    """Return the response of a key that has a request."""
    return by_number("clients", "response")[key]


def read_header(data: ByteView) -> Header:
    """Read the header of a request.

    For an unknown key or version, nobody knows where the body begins: `end` is -1. MalformedRequest if the bytes end
    before it does.
    """
    try:
        key, version = _KEY.unpack_from(data)
        of = request_of(key)
        schema = of if of is not None and of.versions.has(version) else None
        values, end = _HEADERS[schema is not None and schema.flexible.has(version)].read(data, 0, allow_any_length)
    except (struct.error, ValueError) as error:
        raise MalformedRequest(f"a header in {len(data)} bytes: {error}") from None
    return Header(key, version, values["correlationId"], values["clientId"], -1 if schema is None else end)


def decode_body(
    of: Message, version: int, data: ByteView, at: int = 0, spend: Spend = allow_any_length
) -> tuple[Values, int]:
    """Decode a request or response; returns its fields and where they end. Bytes behind them are ignored, as in Kafka.

    `spend` counts the items of a list before they are made, and may raise. MalformedRequest if the
    bytes end too early, or hold a length that they do not allow.
    """
    try:
        return plan_of(of.name, version, CLIENTS).read(data, at, spend)
    except ValueError as error:
        raise MalformedRequest(f"{of.name} {version}: {error}") from None


def answer(key: int, version: int, correlation: int, values: Values) -> list[Any]:
    """Return a whole frame with a response: bytes, and the holes between them."""
    of = response_of(key)
    parts: list[Any] = [_INT32.pack(correlation)]
    # The answer to ApiVersions is read by clients that do not yet know which versions there are.
    if of.flexible.has(version) and key != API_VERSIONS:
        parts.append(b"\0")
    plan_of(of.name, version, CLIENTS).write(values, parts)
    return frame_parts(parts)


def request(key: int, version: int, correlation: int, client: str | None, values: Values) -> bytes:
    """Return a whole frame with a request, as a client sends it."""
    of = request_of(key)
    assert of is not None
    parts: list[Any] = []
    _HEADERS[of.flexible.has(version)].write(
        dict(zip(_HEADER, (key, version, correlation, client), strict=True)), parts
    )
    plan_of(of.name, version, CLIENTS).write(values, parts)
    return b"".join(frame_parts(parts))


def frame_parts(parts: Iterable[Any]) -> list[Any]:
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
