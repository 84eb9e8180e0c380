"""Control records: markers that end transactions, and what KRaft writes about itself.

A control record is the key and value of a record in a batch with attribute bit 5. Keys and transaction markers are
fixed structures; the values of KRaft's records use Kafka's flexible serialization, driven here by the field lists of
`layout.KRAFT_RECORDS`. Rules: `docs/format.md`, "Control records".
"""

from __future__ import annotations

import base64
import binascii
import enum
import struct
from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import CONTROL_KEY, END_TXN_MARKER, KRAFT_RECORDS, KRaftFields


class ControlKind(enum.IntEnum):
    """Kind of a control record. The value is the number in its key, except for ``UNKNOWN``."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @property
    def ends_transaction(self) -> bool:
        """True if it is a marker: a commit or an abort."""
        return self in (ControlKind.ABORT, ControlKind.COMMIT)


_KRAFT_NAMES = {
    ControlKind.LEADER_CHANGE: "LeaderChange",
    ControlKind.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlKind.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlKind.KRAFT_VERSION: "KRaftVersion",
    ControlKind.KRAFT_VOTERS: "KRaftVoters",
}


class ControlKey(NamedTuple):
    """The key of a control record."""

    kind: ControlKind  #: `UNKNOWN` for a type that is not in the list; readers skip such records.
    version: int  #: Any version above 0 is read as 0.
    type: int  #: The number as stored.


class ControlRecord(NamedTuple):
    """A decoded control record."""

    key: ControlKey
    fields: dict[str, Any]  #: The value's, under the names of Kafka's JSON, in the order of the bytes; UUIDs as text.
    rest: bytes = b""  #: What the known fields leave over: of a newer version, or the value of an unknown kind.


def decode_control_key(key: Any, path: str = "<control record>", position: int = 0) -> ControlKey:
    """Read the key of a control record; CorruptionError if it is shorter than 4 bytes or has a negative version."""
    view = byte_view(b"" if key is None else key)
    if len(view) < CONTROL_KEY.size:
        raise CorruptionError(path, position, f"control record key of {len(view)} bytes, it needs {CONTROL_KEY.size}")
    version, number = CONTROL_KEY.struct.unpack_from(view)
    if version < 0:
        raise CorruptionError(path, position, f"control record key of version {version}")
    known = ControlKind.ABORT <= number <= ControlKind.KRAFT_VOTERS
    return ControlKey(ControlKind(number) if known else ControlKind.UNKNOWN, version, number)


def decode_control(key: Any, value: Any, path: str = "<control record>", position: int = 0) -> ControlRecord:
    """Decode a control record; `path` and `position` are the value's, for errors.

    A newer version is read as the newest known one. Raises CorruptionError if the key or the value is cut off, has a
    negative version, or holds a length that its bytes do not allow.
    """
    head = decode_control_key(key, path, position)
    data = b"" if value is None else bytes(byte_view(value))
    if head.kind is ControlKind.UNKNOWN:
        return ControlRecord(head, {}, data)
    if len(data) < 2:
        raise CorruptionError(path, position, f"{head.kind.name} value of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise CorruptionError(path, position, f"{head.kind.name} value of version {version}")
    if not head.kind.ends_transaction:
        versions = KRAFT_RECORDS[_KRAFT_NAMES[head.kind]]
        fields, rest = _decode_fields(data, versions[min(version, len(versions) - 1)], path, position)
        return ControlRecord(head, fields, rest)
    if len(data) < END_TXN_MARKER.size:
        reason = f"{head.kind.name} marker of {len(data)} bytes, it needs {END_TXN_MARKER.size}"
        raise CorruptionError(path, position, reason)
    _, epoch = END_TXN_MARKER.struct.unpack_from(data)
    return ControlRecord(head, {"version": version, "coordinatorEpoch": epoch}, data[END_TXN_MARKER.size :])


def encode_control(kind: ControlKind, fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """Make key and value of a control record from the fields of `decode_control`; ``version`` is 0 by default.

    Raises RequestError if a field is missing, is unknown, or does not fit its type.
    """
    if kind is ControlKind.UNKNOWN:
        raise RequestError("a control record of an unknown kind cannot be made")
    values = {"version": 0, **fields}
    key = CONTROL_KEY.struct.pack(0, kind)
    if not kind.ends_transaction:
        name = _KRAFT_NAMES[kind]
        versions = KRAFT_RECORDS[name]
        if not 0 <= values["version"] < len(versions):
            raise RequestError(f"{name} has no version {values['version']}")
        return key, _encode_struct(values, versions[values["version"]], name)
    if values.keys() != {"version", "coordinatorEpoch"}:
        raise RequestError(f"a marker has the fields version and coordinatorEpoch, not {', '.join(values)}")
    try:
        return key, END_TXN_MARKER.struct.pack(values["version"], values["coordinatorEpoch"])
    except struct.error as error:
        raise RequestError(f"marker {fields}: {error}") from None


# ---- UUIDs ----


def format_uuid(raw: bytes) -> str:
    """Return the text of a UUID as Kafka writes it: URL-safe base64 without padding, 22 characters.

    >>> format_uuid(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(raw)[:22].decode()


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of a UUID from the text that `format_uuid` gives; RequestError for another form."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    # A last character with bits beyond the 128 would be another text for the same number.
    if len(raw) != 16 or format_uuid(raw) != text:
        raise RequestError(f"{text!r} is not a UUID: 16 bytes as 22 characters of URL-safe base64")
    return raw


# ---- flexible serialization ----

_NUMBERS = {name: struct.Struct(code) for name, code in {"i16": ">h", "u16": ">H", "i32": ">i", "i64": ">q"}.items()}


def _decode_fields(data: bytes, fields: KRaftFields, path: str, position: int) -> tuple[dict[str, Any], bytes]:
    try:
        values, end = _decode_struct(data, 0, fields)
    except ValueError as error:  # UnicodeDecodeError is one
        raise CorruptionError(path, position, f"control record value of {len(data)} bytes: {error}") from None
    return values, data[end:]


def _decode_struct(data: bytes, at: int, fields: KRaftFields) -> tuple[dict[str, Any], int]:
    values = {}
    for name, kind, *inner in fields:
        values[name], at = _decode_field(data, at, name, kind, inner)
    return values, _skip_tagged_fields(data, at)


def _decode_field(data: bytes, at: int, name: str, kind: str, inner: list[KRaftFields]) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _NUMBERS[kind].unpack(_take(data, at, _NUMBERS[kind].size, name))[0], at + _NUMBERS[kind].size
    if kind == "uuid":
        return format_uuid(_take(data, at, 16, name)), at + 16
    if kind == "struct":
        return _decode_struct(data, at, inner[0])
    length, at = _codec.decode_uvarint(data, at)
    if length == 0:
        raise ValueError(f"{name} is null")
    if kind == "string":
        return _take(data, at, length - 1, name).decode(), at + length - 1
    # An item takes one byte at least, so a count above what is left is a lie, found before anything is made for it.
    if length - 1 > len(data) - at:
        raise ValueError(f"{name} has {length - 1} items in {len(data) - at} bytes")
    items = []
    for _ in range(length - 1):
        item, at = _decode_struct(data, at, inner[0])
        items.append(item)
    return items, at


def _skip_tagged_fields(data: bytes, at: int) -> int:
    count, at = _codec.decode_uvarint(data, at)
    if count > len(data) - at:
        raise ValueError(f"{count} tagged fields in {len(data) - at} bytes")
    for _ in range(count):
        _, at = _codec.decode_uvarint(data, at)
        size, at = _codec.decode_uvarint(data, at)
        _take(data, at, size, "tagged field")
        at += size
    return at


def _take(data: bytes, at: int, size: int, name: str) -> bytes:
    if size > len(data) - at:
        raise ValueError(f"{name} needs {size} bytes at {at}, {len(data) - at} are left")
    return data[at : at + size]


def _encode_struct(values: dict[str, Any], fields: KRaftFields, name: str) -> bytes:
    names = [field[0] for field in fields]
    if sorted(values) != sorted(names):
        raise RequestError(f"{name} has the fields {', '.join(names)}, not {', '.join(values)}")
    # The byte at the end is the count of tagged fields: none.
    return b"".join(_encode_field(values[field[0]], *field) for field in fields) + b"\0"


def _encode_field(value: Any, name: str, kind: str, *inner: KRaftFields) -> bytes:
    if kind == "uuid":
        return parse_uuid(value)
    if kind == "struct":
        return _encode_struct(value, inner[0], name)
    if kind == "string":
        text: bytes = value.encode()
        return _codec.encode_uvarint(len(text) + 1) + text
    if kind == "array":
        items = [_encode_struct(item, inner[0], name) for item in value]
        return _codec.encode_uvarint(len(items) + 1) + b"".join(items)
    try:
        return _NUMBERS[kind].pack(value)
    except struct.error:
        raise RequestError(f"{name} {value!r} is not an {kind}") from None
