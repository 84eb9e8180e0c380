"""Records as text: JSON lines, CSV, templates, the lines of Kafka's dump tool; and the search for bytes in them.

The output is compiled once, into a `TextProgram`; a kernel then runs it for all records without the GIL. Topic,
partition and segment are the same for all records of a call, so they are part of the program.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _text
from pylogseg._native._text import TextBuffer
from pylogseg.errors import RequestError, Verdict
from pylogseg.format.escape import readable
from pylogseg.format.records import RecordColumns

__all__ = [
    "CSV_FIELDS",
    "FIELD_NAMES",
    "JSON_FIELDS",
    "TextBuffer",
    "TextProgram",
    "Texts",
    "csv",
    "csv_header",
    "dump_lines",
    "find",
    "json_lines",
    "payload_of",
    "render",
    "template",
]

# What an operation writes: the numbers of _native/kernels/c/render.h.
_FIELD_OPS = {
    "offset": 1,
    "timestamp": 2,
    "timestampType": 3,
    "key": 4,
    "value": 5,
    "keySize": 6,
    "valueSize": 7,
    "headers": 8,
    "leaderEpoch": 9,
    "producerId": 10,
    "producerEpoch": 11,
    "sequence": 12,
    "isTransactional": 13,
    "position": 14,
}
#: Those that write what somebody put into a record.
PAYLOAD_OPS = tuple(_FIELD_OPS[name] for name in ("key", "value", "headers"))
_KEY_SIZE_BE, _VALUE_SIZE_BE = 15, 16
_CONSTANTS = ("topic", "partition", "segment")

_RAW, _JSON_TEXT, _BASE64, _HEX = 0, 1, 6, 7
_JSON_STYLES = {"text": _JSON_TEXT, "base64": 2, "hex": 3, "json": 4}
_CSV_STYLES = {"text": 5, "base64": _BASE64, "hex": _HEX}
_RAW_STYLES = {"text": _RAW, "base64": _BASE64, "hex": _HEX}

#: Every field that JSON lines and CSV know. Sizes of nulls are -1; ``position`` is that of the batch in its file.
FIELD_NAMES = (*_CONSTANTS, *_FIELD_OPS)
#: The fields of a JSON line, unless others are named: the schema of Spark's Kafka source.
JSON_FIELDS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
#: The same for CSV.
CSV_FIELDS = JSON_FIELDS

#: Before the base64 of bytes that are no text: `_native/kernels/c/quote.h` has it too.
MARK = "base64:"

_Part = bytes | tuple[int, int]


class TextProgram(NamedTuple):
    """A compiled output template."""

    ops: npt.NDArray[np.int32]  #: Rows of field, style, and start and size of the label before it.
    labels: bytes
    delimiter: int  #: Byte between the fields of CSV; 0 elsewhere.


class Texts(NamedTuple):
    """A text for each record, joined."""

    ends: npt.NDArray[np.int32]  #: Where each begins, and the end of the last.
    data: Any  #: Buffer of them.


def _program(parts: Iterable[_Part], delimiter: int = 0) -> TextProgram:
    """Join texts that meet, and make each the label of the field after it."""
    ops: list[tuple[int, int, int, int]] = []
    labels = bytearray()
    start = 0
    for part in parts:
        if isinstance(part, bytes):
            labels += part
        else:
            ops.append((*part, start, len(labels) - start))
            start = len(labels)
    ops.append((0, 0, start, len(labels) - start))
    return TextProgram(np.array(ops, np.int32), bytes(labels), delimiter)


#: Style of a payload that was decoded, and is JSON.
DECODED = "schema"


def plain_style(style: str, is_json: bool) -> str:
    """Return the style of a program for one of a command: decoded JSON stands in JSON lines as it is, else as text."""
    return style if style != DECODED else "json" if is_json else "text"


def _style(styles: dict[str, int], name: str, what: str) -> int:
    if name not in styles:
        raise RequestError(f"unknown format of the {what}: {name!r}; there are {', '.join(styles)}")
    return styles[name]


def _styles(styles: dict[str, int], key: str, value: str, headers: int) -> dict[str, int]:
    return {"key": _style(styles, key, "key"), "value": _style(styles, value, "value"), "headers": headers}


def _check_fields(fields: Sequence[str]) -> None:
    if isinstance(fields, str):
        raise RequestError("fields are a sequence of names, not one string")
    for field in fields:
        if field not in FIELD_NAMES:
            raise RequestError(f"unknown field {field!r}; there are {', '.join(FIELD_NAMES)}")


def _fields(
    fields: Sequence[str], constants: dict[str, Any], styles: dict[str, int], constant: Callable[[Any], str]
) -> Iterable[tuple[str, _Part]]:
    for field in fields:
        if field in _CONSTANTS:
            value = constants[field]
            yield field, constant(readable(value) if isinstance(value, str) else value).encode()
        else:
            yield field, (_FIELD_OPS[field], styles.get(field, _RAW))


def json_lines(
    fields: Sequence[str] = JSON_FIELDS,
    *,
    key: str = "text",
    value: str = "text",
    header: str = "text",
    topic: str | None = None,
    partition: int | None = None,
    segment: str | None = None,
) -> TextProgram:
    """Compile JSON lines: one object a record, on one line, in well-formed UTF-8 for any bytes.

    Characters that a terminal acts on (control characters, changes of the direction of text) are always escaped, and
    null is ``null``. `fields` are members in their order (`FIELD_NAMES`). Keys, values and values of headers are
    written as

    ``"text"``
        a string. Bytes that are not well-formed UTF-8 become ``base64:`` and their base64, and so does text that
        begins with ``base64:`` itself: `payload_of` gives the bytes back.
    ``"base64"``, ``"hex"``
        a string; standard alphabet with padding; small letters.
    ``"json"``
        the bytes as they are, if they are JSON in well-formed UTF-8 nested at most 512 deep; else as text, so a reader
        cannot tell the text ``1x`` from the JSON string ``"1x"``. Line breaks become spaces: they can only stand
        between tokens. Numbers and repeated names stay as they are.

    Headers are ``[{"key": name, "value": ...}, ...]`` in their order, repeated names kept, names as text.
    """
    _check_fields(fields)
    styles = _styles(_JSON_STYLES, key, value, _style(_JSON_STYLES, header, "headers")) | {"timestampType": _JSON_TEXT}
    constants = {"topic": topic, "partition": partition, "segment": segment}
    parts: list[_Part] = []
    for field, part in _fields(fields, constants, styles, json.dumps):
        parts += [f'{"," if parts else "{"}"{field}":'.encode(), part]
    return _program([*(parts or [b"{"]), b"}\n"])


def csv(
    fields: Sequence[str] = CSV_FIELDS,
    *,
    key: str = "text",
    value: str = "text",
    delimiter: str = ",",
    topic: str | None = None,
    partition: int | None = None,
    segment: str | None = None,
) -> TextProgram:
    r"""Compile CSV (RFC 4180, but lines end in ``\n``); `csv_header` gives the header row.

    Keys and values as in `json_lines`, but without escapes, since CSV has none: a payload with a NUL is base64 too.
    `delimiter` is an ASCII character that no number, base64 or quote has. A null is an empty field, an empty string is
    ``""``; headers are the JSON array of `json_lines`, quoted.
    """
    _check_fields(fields)
    if not fields:
        raise RequestError("CSV needs a field")
    between = _delimiter(delimiter)
    constants = {"topic": topic, "partition": partition, "segment": segment}

    def constant(value: Any) -> str:
        return "" if value is None else _csv_field(str(value), delimiter)

    parts: list[_Part] = []
    for _, part in _fields(fields, constants, _styles(_CSV_STYLES, key, value, _JSON_TEXT), constant):
        parts += [between if parts else b"", part]
    return _program([*parts, b"\n"], ord(delimiter))


def payload_text(payload: bytes | None) -> str | None:
    """Return a payload as JSON lines have it: text, or base64 with a mark; `payload_of` gives the bytes back.

    >>> payload_text(b"text"), payload_text(bytes([0xFF]))
    ('text', 'base64:/w==')
    """
    if payload is None:
        return None
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = MARK
    return MARK + base64.b64encode(payload).decode() if text.startswith(MARK) else text


def payload_of(written: str | None) -> bytes | None:
    """Return the bytes of a payload that JSON lines or CSV have as text.

    >>> payload_of("text"), payload_of("base64:AAE=").hex()
    (b'text', '0001')
    """
    if written is None or not written.startswith(MARK):
        return None if written is None else written.encode()
    return base64.b64decode(written.removeprefix(MARK), validate=True)


def csv_header(fields: Sequence[str] = CSV_FIELDS, delimiter: str = ",") -> bytes:
    """Return the first line of a CSV file: the names of the fields."""
    _check_fields(fields)
    return _delimiter(delimiter).join(field.encode() for field in fields) + b"\n"


def _delimiter(delimiter: str) -> bytes:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n\0+-/=':
        raise RequestError(f"{delimiter!r} cannot stand between the fields of CSV")
    return delimiter.encode()


def _csv_field(text: str, delimiter: str) -> str:
    if text and not any(c in text for c in ('"', "\r", "\n", delimiter)):
        return text
    return '"' + text.replace('"', '""') + '"'


_TEMPLATE = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9A-Fa-f]{1,2})|\\(?P<escape>.)|(?P<text>[^%\\]+|\\$)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0"}
_LETTERS = {"o": "offset", "T": "timestamp", "k": "key", "s": "value", "K": "keySize", "S": "valueSize", "h": "headers"}


def template(
    text: str, *, key: str = "text", value: str = "text", topic: str | None = None, partition: int | None = None
) -> TextProgram:
    r"""Compile a template, in the language of kcat's ``-f``; records end only with characters of the template.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in ms, ``%k`` key, ``%s`` value, ``%K`` and ``%S``
    their sizes in bytes (-1 for null), ``%R`` the value's size in four bytes, big-endian, ``%h`` headers as
    ``name=value,name=value`` (a null value is ``NULL``), ``%%`` a percent sign; ``\n``, ``\t``, ``\r``, ``\0``,
    ``\xNN`` (a byte, one or two digits); any other character after a backslash stands for itself. As ``"text"``, bytes
    are written as they are, and null is nothing. Raises RequestError for an unknown letter, or ``\x`` without a digit.
    """
    styles = _styles(_RAW_STYLES, key, value, _RAW)
    constants = {"t": topic, "p": partition}
    parts: list[_Part] = []
    for match in _TEMPLATE.finditer(text):
        if match["hex"]:
            parts.append(bytes([int(match["hex"], 16)]))
        elif match["escape"]:
            if match["escape"] == "x":
                raise RequestError(f"no hex digit after \\x at character {match.start()} of the template")
            parts.append(_ESCAPES.get(match["escape"], match["escape"].encode("utf-8", "surrogateescape")))
        elif match["text"]:
            parts.append(match["text"].encode("utf-8", "surrogateescape"))
        else:
            parts.append(_template_field(match["field"], constants, styles))
    return _program(parts)


def _template_field(letter: str, constants: dict[str, Any], styles: dict[str, int]) -> _Part:
    if letter == "%":
        return b"%"
    if letter == "R":
        return (_VALUE_SIZE_BE, _RAW)
    if letter in constants:
        return b"" if constants[letter] is None else readable(str(constants[letter])).encode()
    if letter not in _LETTERS:
        raise RequestError(f"unknown field %{letter} in the template; there are %t %p %o %T %k %s %K %S %R %h %%")
    field = _LETTERS[letter]
    return (_FIELD_OPS[field], styles.get(field, _RAW))


def render(
    columns: RecordColumns,
    program: TextProgram,
    out: TextBuffer | None = None,
    start: int = 0,
    stop: int | None = None,
) -> TextBuffer:
    """Write records as a program says, appended to `out`, whose memory is used again after ``clear``; return `out`.

    A file's ``write`` takes it as it is. Raises RequestError for a span that lies outside of its source, with the
    number of the record; the records before it are in `out`.
    """
    buffer = TextBuffer() if out is None else out
    _text.render(
        columns, program.ops, program.labels, program.delimiter, start, len(columns) if stop is None else stop, buffer
    )
    return buffer


def dump_lines(
    columns: RecordColumns,
    out: TextBuffer | None = None,
    *,
    start_batch: int = 0,
    stop_batch: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    batch_lines: bool = True,
    metadata: bool = True,
    payload: bool = True,
    texts: Texts | None = None,
) -> TextBuffer:
    """Write the lines of ``kafka-dump-log.sh --deep-iteration`` (Kafka 4.3): each batch, and its records after it.

    A batch without records has a line as well; CRCs have to be checked. By default all batches with all their records;
    `start` and `stop` choose records of these batches. `metadata` is offset, time, sizes, sequence and names of headers
    (not with ``--skip-record-metadata``), `payload` keys and values (``--print-data-log``), where bytes that are not
    UTF-8 become U+FFFD, as many as in Java. A record of a control batch gets its metadata and **no end of line**: the
    caller appends the marker's meaning. So such records are written one at a time. `texts` take the place of keys and
    values.
    """
    stop_batch = len(columns.batches) if stop_batch is None else stop_batch
    if start is None:
        start = int(np.searchsorted(columns.batch, start_batch))
    if stop is None:
        stop = int(np.searchsorted(columns.batch, stop_batch))
    if batch_lines and (columns.batches.verdict[start_batch:stop_batch] == Verdict.UNCHECKED).any():
        raise RequestError("a dump says whether CRCs hold: scan with crc=True")
    buffer = TextBuffer() if out is None else out
    what = 1 * metadata + 2 * payload + 4 * batch_lines
    _text.dump_lines(columns, start_batch, stop_batch, start, stop, what, buffer, *(texts or (None, None)))
    return buffer


def find(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    needle: bytes,
    *,
    ignore_case: bool = False,
) -> npt.NDArray[np.bool_]:
    """Return which spans hold a string of bytes; an empty one lies in every span that is not null.

    The spans are two columns of `RecordColumns`, or of its ``header_spans()``. `ignore_case` folds ASCII letters only.
    """
    hits = np.empty(len(place), np.uint8)
    _text.find(np.ascontiguousarray(place), np.ascontiguousarray(size), sources, needle, hits, ignore_case)
    return hits.view(np.bool_)
