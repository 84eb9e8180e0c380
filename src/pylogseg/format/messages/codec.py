"""One message as a dictionary and back, by the table of schemas.

A dictionary has every field of the message under its name in Kafka's JSON; one that the version does not have has its
default. UUIDs are in the text form, bytes that are no UTF-8 in a text are surrogate escapes. Tagged fields that the
table does not know are kept as bytes under `UNKNOWN_TAGS` in the dictionary of their struct, and written again.

This is the way of one message; columns of messages go through `program`. Every length is compared with the bytes that
are left before anything is made for it, and the depth is that of the schema, which no bytes can change.
"""

from __future__ import annotations

import copy
import functools
import struct
from collections.abc import Callable
from typing import Any

from pylogseg import _codec
from pylogseg.errors import RequestError
from pylogseg.format.messages.schema import SIZED, WIDTHS, Message, MessageField, Versions
from pylogseg.format.messages.schema import message as message_of
from pylogseg.format.uuids import format_uuid, parse_uuid

#: In the dictionary of a struct: tagged fields that the table does not know, tag to bytes.
UNKNOWN_TAGS = "unknownTags"

Read = Callable[[Any, int], tuple[Any, int]]
_Write = Callable[[Any], bytes]
_NUMBERS = {
    name: struct.Struct(code)
    for name, code in {
        "bool": ">?",
        "int8": ">b",
        "int16": ">h",
        "uint16": ">H",
        "int32": ">i",
        "uint32": ">I",
        "int64": ">q",
        "float64": ">d",
    }.items()
}


class MalformedError(ValueError):
    """Bytes that are no message of the version; for callers that know where the bytes lie."""


def decode_message(message: Message, version: int, data: bytes, at: int = 0) -> tuple[dict[str, Any], int]:
    """Decode the fields of a message.

    Parameters
    ----------
    message, version
        One of the versions that the table has.
    data, at
        The fields begin at a position of the bytes.

    Returns
    -------
    (fields, end) : tuple of dict and int
        The position behind the last field.

    Raises
    ------
    MalformedError
        If the bytes end too early, or hold a length that they do not allow.
    RequestError
        If the table has no such version.
    """
    try:
        return _reader(message.name, version)(data, at)
    except MalformedError:
        raise
    except ValueError as error:  # of a varint
        raise MalformedError(str(error)) from None


def encode_message(message: Message, version: int, fields: dict[str, Any]) -> bytes:
    """Encode the fields of a message; those that are not given have their defaults.

    Raises
    ------
    RequestError
        For a field that there is not, a value that does not fit, and one that the version cannot hold.
    """
    return _writer(message.name, version)(fields)


def defaults(fields: tuple[MessageField, ...]) -> dict[str, Any]:
    """The default of every field."""
    return {field.name: defaults(field.fields) if field.default == {} else copy.copy(field.default) for field in fields}


def has_default(field: MessageField, value: Any) -> bool:
    """Whether a value is the default of its field: Kafka then leaves out a tagged field."""
    if isinstance(value, dict):
        return field.default == {} and value == defaults(field.fields)
    return type(value) is type(field.default) and bool(value == field.default)


def in_version(fields: tuple[MessageField, ...], version: int, values: dict[str, Any]) -> dict[str, Any]:
    """The values without those that the version does not have; of structs that cannot be null."""

    def of(field: MessageField) -> Any:
        value = values[field.name]
        if field.type != "struct":
            return value
        if field.is_list:
            return [in_version(field.fields, version, item) for item in value]
        return in_version(field.fields, version, value)

    return {field.name: of(field) for field in fields if field.is_in(version)}


def _checked(name: str, version: int) -> Message:
    found = message_of(name)
    if not found.versions.has(version):
        first, last = found.versions
        raise RequestError(f"{name} has the versions {first} to {last}, not {version}")
    return found


@functools.lru_cache(maxsize=1024)
def _reader(name: str, version: int) -> Callable[[bytes, int], tuple[dict[str, Any], int]]:
    message = _checked(name, version)
    return _struct_reader(message.fields, version, message.flexible)


@functools.lru_cache(maxsize=1024)
def _writer(name: str, version: int) -> _Write:
    message = _checked(name, version)
    return _struct_writer(message.fields, version, message.flexible)


def is_flexible(field: MessageField, version: int, flexible: Versions) -> bool:
    """Whether a field has the flexible form in a version of its message."""
    return (flexible if field.flexible is None else field.flexible).has(version)


def least_bytes(field: MessageField, version: int, flexible: Versions) -> int:
    """The least bytes that an item of a list, or a value that is no list, takes; 1 at least."""
    compact = is_flexible(field, version, flexible)
    if field.type in WIDTHS:
        return WIDTHS[field.type]
    if field.type in SIZED:
        return 1 if compact else (2 if field.type == "string" else 4)
    inner = sum(
        (1 if is_flexible(item, version, flexible) else 4)
        if item.is_list
        else (1 if item.type == "struct" and item.nullable.has(version) else least_bytes(item, version, flexible))
        for item in field.fields
        if item.versions.has(version) and not item.tagged.has(version)
    )
    return max(inner + flexible.has(version), 1)


# ---- decode ----


def _struct_reader(
    fields: tuple[MessageField, ...], version: int, flexible: Versions
) -> Callable[[bytes, int], tuple[dict[str, Any], int]]:
    plain = [
        (field.name, _value_reader(field, version, flexible))
        for field in fields
        if field.versions.has(version) and not field.tagged.has(version)
    ]
    tagged = {
        field.tag: (field.name, _value_reader(field, version, flexible, tagged=True))
        for field in fields
        if field.tagged.has(version)
    }
    base = defaults(fields)
    nested = [name for name, value in base.items() if isinstance(value, (dict, list))]
    has_tags = flexible.has(version)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = base.copy()
        for name in nested:
            values[name] = copy.deepcopy(base[name])
        for name, of in plain:
            try:
                values[name], at = of(data, at)
            except MalformedError as error:
                raise MalformedError(f"{name}: {error}") from None
        return (values, _read_tags(data, at, tagged, values)) if has_tags else (values, at)

    return read


def _read_tags(data: bytes, at: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    count, at = _codec.decode_uvarint(data, at)
    if count > (len(data) - at) // 2:
        raise MalformedError(f"{count} tagged fields in {len(data) - at} bytes")
    last = -1
    for _ in range(count):
        tag, at = _codec.decode_uvarint(data, at)
        size, at = _codec.decode_uvarint(data, at)
        if tag <= last:
            raise MalformedError(f"tag {tag} comes after tag {last}")
        last, end = tag, at + size
        if end > len(data):
            raise MalformedError(f"tag {tag} needs {size} bytes, {len(data) - at} are left")
        if tag in tagged:
            name, read = tagged[tag]
            values[name], done = read(data[at:end], 0)
            if done != size:
                raise MalformedError(f"{name}: {size - done} bytes of {size} are left over")
        else:
            values.setdefault(UNKNOWN_TAGS, {})[tag] = data[at:end]
        at = end
    return at


def length_reader(compact: bool, code: str) -> Callable[[Any, int], tuple[int, int]]:
    """Return what reads a length or count; -1 is null."""
    if compact:

        def read(data: Any, at: int) -> tuple[int, int]:
            if at < len(data) and data[at] < 128:
                return data[at] - 1, at + 1
            length, at = _codec.decode_uvarint(data, at)
            return length - 1, at

        return read
    number = struct.Struct(code)
    size = number.size

    def read_fixed(data: Any, at: int) -> tuple[int, int]:
        if size > len(data) - at:
            raise MalformedError(f"the length needs {size} bytes, {len(data) - at} are left")
        length = number.unpack_from(data, at)[0]
        if length < -1:
            raise MalformedError(f"a length of {length}")
        return length, at + size

    return read_fixed


def _value_reader(field: MessageField, version: int, flexible: Versions, *, tagged: bool = False) -> Read:
    compact = is_flexible(field, version, flexible)
    nullable = field.nullable.has(version)
    if field.is_list:
        item: Read = (
            _struct_reader(field.fields, version, flexible)
            if field.type == "struct"
            else _scalar_reader(field.type, compact, False)
        )
        return _list_reader(field, version, flexible, item)
    if field.type == "struct":
        inner: Read = _struct_reader(field.fields, version, flexible)
        return _maybe_reader(inner, tagged) if nullable else inner
    return _scalar_reader(field.type, compact, nullable)


def _maybe_reader(inner: Read, tagged: bool) -> Read:
    """Return what reads a struct that may be null: behind a byte, or an unsigned varint if it is a tagged field."""

    def read(data: Any, at: int) -> tuple[Any, int]:
        if tagged:
            there, at = _codec.decode_uvarint(data, at)
            return (None, at) if there == 0 else inner(data, at)
        if at >= len(data):
            raise MalformedError("the bytes end before it")
        there = data[at]
        return (None, at + 1) if there >= 128 else inner(data, at + 1)

    return read


def _list_reader(field: MessageField, version: int, flexible: Versions, item: Read) -> Read:
    length_of = length_reader(is_flexible(field, version, flexible), ">i")
    least, nullable = least_bytes(field, version, flexible), field.nullable.has(version)

    def read(data: Any, at: int) -> tuple[Any, int]:
        count, at = length_of(data, at)
        if count < 0:
            if not nullable:
                raise MalformedError("it is null")
            return None, at
        if count > (len(data) - at) // least:
            raise MalformedError(f"{count} items in {len(data) - at} bytes")
        items = []
        for _ in range(count):
            value, at = item(data, at)
            items.append(value)
        return items, at

    return read


def _scalar_reader(kind: str, compact: bool, nullable: bool) -> Read:
    if kind in WIDTHS:
        width = WIDTHS[kind]
        unpack = format_uuid if kind == "uuid" else None
        number = _NUMBERS.get(kind)

        def read_fixed(data: bytes, at: int) -> tuple[Any, int]:
            if width > len(data) - at:
                raise MalformedError(f"{width} bytes are needed, {len(data) - at} are left")
            if unpack is not None:
                return unpack(data[at : at + 16]), at + 16
            assert number is not None
            return number.unpack_from(data, at)[0], at + width

        return read_fixed
    length_of = length_reader(compact, ">h" if kind == "string" else ">i")
    is_text = kind == "string"

    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, at = length_of(data, at)
        if length < 0:
            if not nullable:
                raise MalformedError("it is null")
            return None, at
        if length > len(data) - at:
            raise MalformedError(f"{length} bytes are needed, {len(data) - at} are left")
        raw = data[at : at + length]
        return (raw.decode("utf-8", "surrogateescape") if is_text else raw), at + length

    return read


# ---- encode ----


def _struct_writer(fields: tuple[MessageField, ...], version: int, flexible: Versions) -> _Write:
    plain = [
        (field, _value_writer(field, version, flexible))
        for field in fields
        if field.versions.has(version) and not field.tagged.has(version)
    ]
    tagged = sorted(
        (field.tag, field, _value_writer(field, version, flexible, tagged=True))
        for field in fields
        if field.tagged.has(version)
    )
    absent = [field for field in fields if not field.is_in(version)]
    known = {field.name for field in fields} | {UNKNOWN_TAGS}
    base, has_tags = defaults(fields), flexible.has(version)

    def write(values: Any) -> bytes:
        if not isinstance(values, dict):
            raise RequestError(f"a struct is a dictionary of its fields, not {values!r}")
        if not values.keys() <= known:
            raise RequestError(
                f"there are the fields {', '.join(sorted(known))}, not {', '.join(values.keys() - known)}"
            )
        for field in absent:
            if field.name in values and not has_default(field, values[field.name]):
                raise RequestError(f"version {version} has no field {field.name}: leave {values[field.name]!r} out")
        parts = [_named(field, of, values.get(field.name, base[field.name])) for field, of in plain]
        unknown = values.get(UNKNOWN_TAGS, {})
        if not has_tags:
            if unknown:
                raise RequestError(f"version {version} has no tagged fields")
            return b"".join(parts)
        extra = dict(unknown)
        for tag, field, of in tagged:
            value = values.get(field.name, base[field.name])
            if not has_default(field, value):
                extra[tag] = _named(field, of, value)
        parts.append(_codec.encode_uvarint(len(extra)))
        for tag in sorted(extra):
            parts += [_codec.encode_uvarint(tag), _codec.encode_uvarint(len(extra[tag])), extra[tag]]
        return b"".join(parts)

    return write


def _named(field: MessageField, write: _Write, value: Any) -> bytes:
    try:
        return write(value)
    except (RequestError, struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise RequestError(f"{field.name} {value!r}: {error}") from None


def length_writer(compact: bool, code: str) -> Callable[[int], bytes]:
    """Return what writes a length or count; -1 is null."""
    if compact:
        return lambda length: _codec.encode_uvarint(length + 1)
    return struct.Struct(code).pack


def _value_writer(field: MessageField, version: int, flexible: Versions, *, tagged: bool = False) -> _Write:
    compact = is_flexible(field, version, flexible)
    nullable = field.nullable.has(version)
    if field.is_list:
        item = (
            _struct_writer(field.fields, version, flexible)
            if field.type == "struct"
            else _scalar_writer(field.type, compact)
        )
        count_of = length_writer(compact, ">i")
        return _or_null(lambda items: count_of(len(items)) + b"".join(map(item, items)), count_of(-1), nullable)
    if field.type != "struct":
        null = b"" if field.type in WIDTHS else length_writer(compact, ">h" if field.type == "string" else ">i")(-1)
        return _or_null(_scalar_writer(field.type, compact), null, nullable)
    inner = _struct_writer(field.fields, version, flexible)
    if not nullable:
        return inner
    if tagged:
        return _or_null(lambda values: _counted(inner(values)), b"\0", nullable)
    return _or_null(lambda values: b"\1" + inner(values), b"\xff", nullable)


def _counted(raw: bytes) -> bytes:
    return bytes(_codec.encode_uvarint(len(raw) + 1)) + raw


def _or_null(write: _Write, null: bytes, nullable: bool) -> _Write:
    def of(value: Any) -> bytes:
        if value is not None:
            return write(value)
        if not nullable:
            raise RequestError("it must not be null")
        return null

    return of


def _scalar_writer(kind: str, compact: bool) -> _Write:
    if kind == "uuid":
        return parse_uuid
    if kind in WIDTHS:
        return _NUMBERS[kind].pack
    length_of = length_writer(compact, ">h" if kind == "string" else ">i")

    def write(value: Any) -> bytes:
        raw = value.encode("utf-8", "surrogateescape") if kind == "string" else bytes(value)
        return length_of(len(raw)) + raw

    return write
