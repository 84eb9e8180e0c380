"""One message as a dictionary and back, by the table of schemas: of a record in a file, or of a request.

A dictionary has every field of the message under its name in Kafka's JSON; one that the version does not have has its
default. All other differences between files and connections are a `Policy`.

This is the way of one message; columns of messages go through `program`. Functions are made once for each message,
version and policy, at the first use. Every length is compared with the remaining bytes before memory is taken for it.
The schema limits the depth, and no bytes can change it. Errors name the field, and the structs around it.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pylogseg._codec import decode_uvarint, encode_uvarint
from pylogseg.errors import RequestError
from pylogseg.format.messages.schema import SIZED, WIDTHS, Message, MessageField, Versions
from pylogseg.format.messages.schema import message as message_of
from pylogseg.format.uuids import format_uuid, parse_uuid

#: In the dictionary of a struct: tagged fields that the table does not know, tag to bytes.
UNKNOWN_TAGS = "unknownTags"

ByteView = bytes | memoryview
#: What is called with the number of items of each list, before they are made.
Spend = Callable[[int], None]
FieldReader = Callable[[ByteView, int, Spend], tuple[Any, int]]
FieldWriter = Callable[[Any, list[Any]], None]

_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
#: Kafka neither writes nor reads a longer text, also where the form of its length would hold it.
MOST_TEXT_BYTES = 2**15 - 1
_TOO_LONG = f"a text of {{:,}} bytes, Kafka allows {MOST_TEXT_BYTES:,}"
#: In a text for `_function`: the fields of the line that raised, and the number of the line behind the head.
_RUN, _FIRST_LINE = "runs[error.__traceback__.tb_lineno]", 2
#: What is raised for values that do not fit.
_FAULTS = (RequestError, struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError)


class MalformedError(ValueError):
    """Bytes that are no message of the version; for callers that know where the bytes lie."""


@dataclass(frozen=True, eq=False)
class Policy:
    """The form of values in dictionaries, and how strict `writer` is."""

    #: UUIDs are Kafka's text, else 16 bytes.
    ids_are_text: bool
    #: What becomes of bytes that are no UTF-8 in a text, and the other way.
    text_errors: str
    #: For what is written again as it was: tagged fields that the table does not know are kept under `UNKNOWN_TAGS`,
    #: and what the version cannot hold is refused. Else whoever fills in a dictionary gives all that any version has:
    #: fields that this one does not have are left out, and a null that it cannot say is empty.
    is_exact: bool


FILES = Policy(ids_are_text=True, text_errors="surrogateescape", is_exact=True)


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
        The position behind the last field. UUIDs are in the text form, bytes that are no UTF-8 in a text are surrogate
        escapes, and tagged fields that the table does not know are bytes under `UNKNOWN_TAGS`.

    Raises
    ------
    MalformedError
        If the bytes end too early, or hold a length that they do not allow.
    RequestError
        If the table has no such version.
    """
    try:
        return plan_of(message.name, version, FILES).read(data, at, allow_any_length)
    except ValueError as error:  # also of a varint
        raise MalformedError(str(error)) from None


def encode_message(message: Message, version: int, fields: dict[str, Any]) -> bytes:
    """Encode the fields of a message; fields that are not given have their defaults.

    Raises
    ------
    RequestError
        For a field that there is not, a value that does not fit, and one that the version cannot hold.
    """
    out: list[bytes] = []
    plan_of(message.name, version, FILES).write(fields, out)
    return b"".join(out)


def allow_any_length(items: int) -> None:
    """Allow lists of any length that the bytes have."""


@functools.lru_cache(maxsize=2048)
def plan_of(name: str, version: int, policy: Policy) -> MessagePlan:
    """Return the plan of a message; RequestError if the table has no such version."""
    message = message_of(name)
    if not message.versions.has(version):
        first, last = message.versions
        raise RequestError(f"{name} has the versions {first} to {last}, not {version}")
    return MessagePlan(message.fields, version, message.flexible, policy)


# ---- what a version says of a field ----


def is_flexible(field: MessageField, version: int, flexible: Versions) -> bool:
    """True if a field has the flexible form in a version of its message."""
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


def default_of(field: MessageField, policy: Policy = FILES) -> Any:
    if field.default == {}:
        return {inner.name: default_of(inner, policy) for inner in field.fields}
    if field.type == "uuid" and not (field.is_list or policy.ids_are_text):
        return bytes(16)
    return [] if field.default == [] else field.default


def is_default(value: Any, default: Any) -> bool:
    """True if a value is the default: Kafka then leaves out a tagged field."""
    return value is default or bool(value == default) or (default == [] and value == ())


def in_version(fields: tuple[MessageField, ...], version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that a version has; structs must not be null."""
    kept = {field.name: values[field.name] for field in fields if field.is_in(version)}
    for field in fields:
        if field.type == "struct" and field.name in kept:
            value = kept[field.name]
            kept[field.name] = (
                [in_version(field.fields, version, item) for item in value]
                if field.is_list
                else in_version(field.fields, version, value)
            )
    return kept


@functools.lru_cache(maxsize=256)
def _array(code: str, count: int) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


def _function(head: str, lines: list[str], names: dict[str, Any]) -> Any:
    """Make a function of lines, in half the time of a loop; only values of our own table vary in the lines."""
    exec("\n    ".join([f"def {head}:", *lines]), names)
    return names[head.partition("(")[0]]


class MessagePlan:
    """The reader and the writer of a version of a message."""

    def __init__(self, fields: tuple[MessageField, ...], version: int, flexible: Versions, policy: Policy) -> None:
        self._fields, self._version, self._flexible, self._policy = fields, version, flexible, policy
        self._has_tags = flexible.has(version)
        self._codes = _CODES if policy.ids_are_text else {**_CODES, "uuid": "16s"}

    @functools.cached_property
    def read(self) -> FieldReader:
        """Decodes a message; also says where it ends. ValueError for malformed bytes."""
        return self._struct_reader(self._fields)

    @functools.cached_property
    def write(self) -> FieldWriter:
        """Adds the bytes of a message to a list; RequestError for values that do not fit.

        Where records go, anything that has a `size` may stand: its length is written, and the object itself is added.
        """
        return self._struct_writer(self._fields)

    def _runs(self, fields: tuple[MessageField, ...]) -> list[tuple[list[MessageField], struct.Struct | None]]:
        """Group neighbours of fixed size, with their layout; each other field stands alone, and none is tagged."""
        plain = [field for field in fields if field.versions.has(self._version) and not self._is_tagged(field)]
        runs = [list(run) for _, run in itertools.groupby(plain, lambda field: self._is_fixed(field) or field.name)]
        codes = ["".join(self._codes[field.type] for field in run) if self._is_fixed(run[0]) else "" for run in runs]
        return [(run, struct.Struct(f">{code}") if code else None) for run, code in zip(runs, codes, strict=True)]

    def _is_fixed(self, field: MessageField) -> bool:
        return field.type in self._codes and not field.is_list

    def _is_compact(self, field: MessageField) -> bool:
        return is_flexible(field, self._version, self._flexible)

    def _is_nullable(self, field: MessageField) -> bool:
        return field.nullable.has(self._version)

    def _is_tagged(self, field: MessageField) -> bool:
        return field.tagged.has(self._version)

    # ---- decode ----

    def _struct_reader(self, fields: tuple[MessageField, ...]) -> FieldReader:
        runs: dict[int, list[MessageField]] = {}
        names: dict[str, Any] = {"faults": (struct.error, ValueError), "malformed": _explain_malformed, "runs": runs}
        # Lists and dictionaries of a default are made by each call: who gets them may change them.
        values = {field.name: repr(default_of(field, self._policy)) for field in fields}
        lines = ["try:"]
        for run, layout in self._runs(fields):
            first, into = run[0].name, "".join(f"value_{field.name}, " for field in run)
            values |= {field.name: f"value_{field.name}" for field in run}
            names[f"read_{first}"] = layout.unpack_from if layout else self._value_reader(run[0])
            runs[len(lines) + _FIRST_LINE] = run
            if layout:
                lines += [f"    {into}= read_{first}(data, at)", f"    at += {layout.size}"]
            else:
                lines += [f"    {into}at = read_{first}(data, at, spend)"]
        lines += [f"    values = {{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"]
        lines += [f"except faults as error: raise malformed(error, {_RUN}, len(data) - at) from None"]
        if self._has_tags:
            names["read_tags"] = self._tags_reader(fields)
            lines += ["if at < len(data) and data[at] == 0: return values, at + 1"]
            lines += ["at = read_tags(data, at, spend, values)"]
        reader: FieldReader = _function("read(data, at, spend)", [*lines, "return values, at"], names)
        return reader

    def _tags_reader(self, fields: tuple[MessageField, ...]) -> Callable[[ByteView, int, Spend, dict[str, Any]], int]:
        tagged = {field.tag: (field.name, self._value_reader(field)) for field in filter(self._is_tagged, fields)}
        keeps_unknown = self._policy.is_exact

        def read(data: ByteView, at: int, spend: Spend, values: dict[str, Any]) -> int:
            count, at = decode_uvarint(data, at)
            if count > (len(data) - at) // 2:
                raise MalformedError(f"{count} tagged fields in {len(data) - at} bytes")
            last = -1
            for _ in range(count):
                tag, at = decode_uvarint(data, at)
                size, at = decode_uvarint(data, at)
                if tag <= last:
                    raise MalformedError(f"tag {tag} comes after tag {last}")
                last, end = tag, at + size
                if end > len(data):
                    raise MalformedError(f"tag {tag} needs {size} bytes, {len(data) - at} are left")
                if tag in tagged:
                    name, of = tagged[tag]
                    try:
                        values[name], done = of(data[at:end], 0, spend)
                    except ValueError as error:
                        raise MalformedError(f"{name}: {error}") from None
                    if done != size:
                        raise MalformedError(f"{name}: {size - done} bytes of {size} are left over")
                elif keeps_unknown:
                    values.setdefault(UNKNOWN_TAGS, {})[tag] = bytes(data[at:end])
                at = end
            return at

        return read

    def _value_reader(self, field: MessageField) -> FieldReader:
        is_struct = field.type == "struct"
        of = self._struct_reader(field.fields) if is_struct else self._scalar_reader(field)
        if field.is_list:
            return self._list_reader(field, of)
        return _maybe_reader(of, self._is_tagged(field)) if is_struct and self._is_nullable(field) else of

    def _list_reader(self, field: MessageField, item: FieldReader) -> FieldReader:
        length_of = _length_reader(self._is_compact(field), "i", self._is_nullable(field))
        least, code = least_bytes(field, self._version, self._flexible), _CODES.get(field.type)

        def read(data: ByteView, at: int, spend: Spend) -> tuple[Any, int]:
            count, at = length_of(data, at)
            if count <= 0:
                return None if count else [], at
            if count > (len(data) - at) // least:
                raise MalformedError(f"{count} items in {len(data) - at} bytes")
            spend(count)
            if code is not None:
                return list(_array(code, count).unpack_from(data, at)), at + count * least
            items = []
            for _ in range(count):
                value, at = item(data, at, spend)
                items.append(value)
            return items, at

        return read

    def _scalar_reader(self, field: MessageField) -> FieldReader:
        kind, compact = field.type, self._is_compact(field)
        if kind in WIDTHS:
            unpack, width = struct.Struct(">" + _CODES.get(kind, "16s")).unpack_from, WIDTHS[kind]
            is_text = kind == "uuid" and self._policy.ids_are_text

            def read_fixed(data: ByteView, at: int, _: Spend) -> tuple[Any, int]:
                if width > len(data) - at:
                    raise _cut_off(width, len(data) - at)
                value = unpack(data, at)[0]
                return format_uuid(value) if is_text else value, at + width

            return read_fixed
        nullable = self._is_nullable(field) and not field.is_list
        length_of = _length_reader(compact, "h" if kind == "string" else "i", nullable)
        is_text, errors = kind == "string", self._policy.text_errors

        def read(data: ByteView, at: int, _: Spend) -> tuple[Any, int]:
            if compact and at < len(data) and 0 < data[at] < 128:  # most are short
                length, at = data[at] - 1, at + 1
            else:
                length, at = length_of(data, at)
            if length < 0:
                return None, at
            end = at + length
            if end > len(data):
                raise _cut_off(length, len(data) - at)
            if is_text:
                if length > MOST_TEXT_BYTES:
                    raise MalformedError(_TOO_LONG.format(length))
                return str(data[at:end], "utf-8", errors), end
            return (bytes(data[at:end]) if kind == "bytes" else memoryview(data)[at:end]), end

        return read

    # ---- encode ----

    def _struct_writer(self, fields: tuple[MessageField, ...]) -> FieldWriter:
        runs: dict[int, list[MessageField]] = {}
        names: dict[str, Any] = {"faults": _FAULTS, "refusal": self._refusal, "runs": runs}
        lines = ["get, append = values.get, out.append", "try:", "    pass"]
        if self._policy.is_exact:
            names["check"] = self._checker(fields)
            lines.insert(0, "check(values)")
        for run, layout in self._runs(fields):
            first = run[0].name
            runs[len(lines) + _FIRST_LINE] = run
            names[f"write_{first}"] = layout.pack if layout else self._value_writer(run[0])
            arguments = ", ".join(f"get({field.name!r}, {default_of(field, self._policy)!r})" for field in run)
            lines += [f"    append(write_{first}({arguments}))" if layout else f"    write_{first}({arguments}, out)"]
        lines += [f"except faults as error: raise refusal(error, {_RUN}, values) from None"]
        if self._has_tags:
            tagged = list(filter(self._is_tagged, fields))
            if tagged or self._policy.is_exact:
                names |= {"write_tags": self._tags_writer(tagged), "tags": {UNKNOWN_TAGS, *(f.name for f in tagged)}}
                lines += ["if not values.keys().isdisjoint(tags): return write_tags(values, out)"]
            lines += ["append(b'\\0')"]
        writer: FieldWriter = _function("write(values, out)", lines, names)
        return writer

    def _refusal(self, error: Exception, run: list[MessageField], values: dict[str, Any]) -> RequestError:
        """Say which of some fields, one behind the other, cannot be written: a layout does not."""
        culprit = run[-1]
        for field in run[:-1]:
            try:
                self._scalar_writer(field)(values.get(field.name, default_of(field, self._policy)), [])
            except _FAULTS:
                culprit = field
                break
        shown = "" if isinstance(error, RequestError) else f" {values.get(culprit.name)!r}"
        return RequestError(f"{culprit.name}{shown}: {error}")

    def _tags_writer(self, fields: list[MessageField]) -> FieldWriter:
        tagged = [(field, default_of(field, self._policy), self._value_writer(field)) for field in fields]

        def write(values: dict[str, Any], out: list[Any]) -> None:
            extra = dict(values.get(UNKNOWN_TAGS, ()))
            for field, default, of in tagged:
                value = values.get(field.name, default)
                if value is not default and not is_default(value, default):
                    inner: list[Any] = []
                    try:
                        of(value, inner)
                    except _FAULTS as error:
                        raise self._refusal(error, [field], values) from None
                    extra[field.tag] = b"".join(inner)
            out.append(encode_uvarint(len(extra)))
            for tag in sorted(extra):
                out += (encode_uvarint(tag), encode_uvarint(len(extra[tag])), extra[tag])

        return write

    def _checker(self, fields: tuple[MessageField, ...]) -> Callable[[Any], None]:
        allowed = {field.name for field in fields} | {UNKNOWN_TAGS}
        absent = [(field.name, default_of(field, self._policy)) for field in fields if not field.is_in(self._version)]
        if not self._has_tags:
            absent.append((UNKNOWN_TAGS, {}))

        def check(values: Any) -> None:
            if not isinstance(values, dict):
                raise RequestError(f"a struct is a dictionary of its fields, not {values!r}")
            if not values.keys() <= allowed:
                there, odd = ", ".join(sorted(allowed)), ", ".join(values.keys() - allowed)
                raise RequestError(f"there are the fields {there}, not {odd}")
            for name, default in absent:
                if name in values and not is_default(values[name], default):
                    raise RequestError(f"version {self._version} has no field {name}: leave {values[name]!r} out")

        return check

    def _value_writer(self, field: MessageField) -> FieldWriter:
        is_struct, nullable = field.type == "struct", self._is_nullable(field)
        of = self._struct_writer(field.fields) if is_struct else self._scalar_writer(field)
        if field.is_list:
            length_of = _length_writer(self._is_compact(field), "i")
            return _list_writer(field, of, length_of, self._null(length_of, nullable))
        return _maybe_writer(of, self._is_tagged(field)) if is_struct and nullable else of

    def _scalar_writer(self, field: MessageField) -> FieldWriter:
        kind, errors = field.type, self._policy.text_errors
        if kind in WIDTHS:
            pack = struct.Struct(">" + _CODES.get(kind, "16s")).pack
            if kind == "uuid" and self._policy.ids_are_text:
                pack = parse_uuid
            return lambda value, out: out.append(pack(value))
        length_of = _length_writer(self._is_compact(field), "h" if kind == "string" else "i")
        null = self._null(length_of, self._is_nullable(field) and not field.is_list)

        def write_text(value: Any, out: list[Any]) -> None:
            if value is None:
                out.append(null())
            else:
                raw = value.encode("utf-8", errors)
                if len(raw) > MOST_TEXT_BYTES:
                    raise RequestError(_TOO_LONG.format(len(raw)))
                out.append(length_of(len(raw)) + raw)

        def write_bytes(value: Any, out: list[Any]) -> None:
            if value is None:
                out.append(null())
            elif isinstance(value, (bytes, bytearray, memoryview)):
                raw = bytes(value)
                out += (length_of(len(raw)), raw)
            elif kind == "records":
                out += (length_of(value.size), value)
            else:
                raise TypeError("it must be bytes")

        return write_text if kind == "string" else write_bytes

    def _null(self, length_of: Callable[[int], bytes], nullable: bool) -> Callable[[], bytes]:
        """Return a function that writes null; if the version has no null, it writes an empty value or refuses."""
        null = length_of(-1 if nullable else 0)
        return _no_null if self._policy.is_exact and not nullable else lambda: null


# ---- decode ----


def _explain_malformed(error: Exception, run: list[MessageField], left: int) -> MalformedError:
    """Say in which of some fields, one behind the other, the bytes are wrong."""
    if isinstance(error, struct.error):  # a layout does not say which
        while WIDTHS[run[0].type] <= left:
            left -= WIDTHS[run[0].type]
            run = run[1:]
        error = _cut_off(WIDTHS[run[0].type], left)
    return MalformedError(f"{run[0].name}: {error}")


def _cut_off(size: int, left: int) -> MalformedError:
    return MalformedError(f"{size} bytes are needed, {left} are left")


def _length_reader(compact: bool, code: str, nullable: bool) -> Callable[[ByteView, int], tuple[int, int]]:
    """Return a function that reads a length or count; -1 is null."""
    number, least = _array(code, 1), 0 if nullable else 1
    size = number.size

    def read(data: ByteView, at: int) -> tuple[int, int]:
        if at < len(data) and least <= data[at] < 128:
            return data[at] - 1, at + 1
        length, at = decode_uvarint(data, at)
        if length < least:
            raise MalformedError("it is null")
        return length - 1, at

    def read_fixed(data: ByteView, at: int) -> tuple[int, int]:
        if size > len(data) - at:
            raise MalformedError(f"the length needs {size} bytes, {len(data) - at} are left")
        length = number.unpack_from(data, at)[0]
        if length < least - 1:
            raise MalformedError("it is null" if length == -1 else f"a length of {length}")
        return length, at + size

    return read if compact else read_fixed


def _maybe_reader(inner: FieldReader, is_tagged: bool) -> FieldReader:
    """Return a function that reads a nullable struct, behind a byte or (if tagged) an unsigned varint."""

    def read(data: ByteView, at: int, spend: Spend) -> tuple[Any, int]:
        if is_tagged:
            there, at = decode_uvarint(data, at)
            return (None, at) if there == 0 else inner(data, at, spend)
        if at >= len(data):
            raise MalformedError("the bytes end before it")
        return (None, at + 1) if data[at] >= 128 else inner(data, at + 1, spend)

    return read


# ---- encode ----


def _length_writer(compact: bool, code: str) -> Callable[[int], bytes]:
    """Return a function that writes a length or count; -1 is null."""
    return (lambda length: encode_uvarint(length + 1)) if compact else _array(code, 1).pack


def _maybe_writer(inner: FieldWriter, is_tagged: bool) -> FieldWriter:
    def write(value: Any, out: list[Any]) -> None:
        if value is None:
            out.append(b"\0" if is_tagged else b"\xff")
        elif is_tagged:
            own: list[Any] = []
            inner(value, own)
            raw = b"".join(own)
            out += [encode_uvarint(len(raw) + 1), raw]
        else:
            out.append(b"\1")
            inner(value, out)

    return write


def _list_writer(
    field: MessageField, item: FieldWriter, length_of: Callable[[int], bytes], null: Callable[[], bytes]
) -> FieldWriter:
    code = _CODES.get(field.type)

    def write(items: Any, out: list[Any]) -> None:
        if items is None:
            out.append(null())
            return
        out.append(length_of(len(items)))
        if code is None:
            for element in items:
                item(element, out)
        elif len(items):
            out.append(_array(code, len(items)).pack(*items))

    return write


def _no_null() -> NoReturn:
    raise RequestError("it must not be null")
