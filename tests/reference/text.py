"""Records as text, slowly: what `pylogseg.format.text` is compared with."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One record, with what its batch says of it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    batch: int = 0


def plain(data: bytes | None, form: str) -> Any:
    """A payload as `json.loads` should give it back."""
    if data is None:
        return None
    if form == "base64":
        return base64.b64encode(data).decode()
    if form == "hex":
        return data.hex()
    if form == "json":
        try:
            return json.loads(data.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            pass
    try:
        if not data.startswith(b"base64:"):
            return data.decode()
    except UnicodeDecodeError:
        pass
    return "base64:" + base64.b64encode(data).decode()


def _refuse(word: str) -> None:
    raise ValueError(word)


def json_object(record: Record, form: str) -> dict[str, Any]:
    """The fields of a record that do not depend on its batch."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": plain(record.key, form),
        "value": plain(record.value, form),
        "headers": [{"key": plain(name, "text"), "value": plain(value, form)} for name, value in record.headers],
    }


def csv_field(data: bytes | None, form: str, delimiter: bytes) -> bytes:
    """One field of RFC 4180; a null is empty, an empty string is quoted."""
    if data is None:
        return b""
    if form != "text":
        data = plain(data, form).encode()
    elif b"\0" in data:
        data = b"base64:" + base64.b64encode(data)
    else:
        data = plain(data, "text").encode()
    if data and not any(c in data for c in (b'"', b"\r", b"\n", delimiter)):
        return data
    return b'"' + data.replace(b'"', b'""') + b'"'


def headers_as_kcat(record: Record) -> bytes:
    """What kcat prints for %h."""
    return b",".join(name + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


def java_text(data: bytes) -> str:
    """What Java's ``new String(bytes, UTF_8)`` gives.

    A malformed sequence becomes one U+FFFD as in Python, but for encoded surrogates: Java takes ED and what continues
    it together, Python replaces each byte.
    """
    out = []
    i = 0
    while i < len(data):
        if data[i] == 0xED and i + 1 < len(data) and 0xA0 <= data[i + 1] <= 0xBF:
            out.append("\ufffd")
            i += 3 if i + 2 < len(data) and data[i + 2] & 0xC0 == 0x80 else 2
            continue
        for size in (1, 2, 3, 4):
            try:
                out.append(data[i : i + size].decode())
                break
            except UnicodeDecodeError as error:
                if size == 4 or i + size >= len(data) or error.reason != "unexpected end of data":
                    out.append("\ufffd")
                    size = error.end - error.start
                    break
        i += size
    return "".join(out)


def increment(sequence: int, delta: int) -> int:
    """A sequence number `delta` later: 0 comes behind 2^31 - 1."""
    return (sequence + delta) & 0x7FFFFFFF


def dump_record(record: Record, time: str, sequence: int, *, metadata: bool = True) -> str:
    """A record line of Kafka's dump tool, for magic 2."""

    def size(data: bytes | None) -> int:
        return -1 if data is None else len(data)

    words = []
    if metadata:
        names = ",".join(java_text(name) for name, _ in record.headers)
        words += [
            f"offset: {record.offset} {time}: {record.timestamp}",
            f"keySize: {size(record.key)} valueSize: {size(record.value)}",
        ]
        words += [f"sequence: {sequence} headerKeys: [{names}]"]
    if record.key is not None:
        words += [f"key: {java_text(record.key)}"]
    if record.value is not None:
        words += [f"payload: {java_text(record.value)}"]
    return "| " + " ".join(words) if words else ""
