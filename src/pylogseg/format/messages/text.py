"""Messages as the JSON of Kafka's tools: fields in the schema's order, tagged ones unless they have their default."""

from __future__ import annotations

import base64
import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any

from pylogseg.format.messages.codec import default_of, is_default
from pylogseg.format.messages.framing import Part
from pylogseg.format.messages.schema import Message, MessageField
from pylogseg.format.messages.schema import message as message_of

_Text = Callable[[Any], str]
_LOWER_HEX = re.compile(r"(\\\\)|\\u00([0-9a-f]{2})")
_CAPITAL = re.compile(r"(?<!^)([A-Z])")
_SURROGATES = re.compile("[\ud800-\udfff]+")


def text_of(message: Message, version: int, fields: dict[str, Any]) -> str:
    """Return the fields of a message as JSON, as Kafka's converter writes them."""
    return _text(message.name, version)(fields)


def key_text(part: Part) -> str:
    """Return the key of a coordinator's record as Kafka's dump tool shows it."""
    return f'{{"type":"{part.number}","data":{_data(part)}}}'


def value_text(part: Part, data: str | None = None) -> str:
    """Return the value of a coordinator's record in the same way."""
    return f'{{"version":"{part.version}","data":{data or _data(part)}}}'


def framed_text(part: Part) -> str:
    """Return a record of the metadata log in the same way."""
    name = _CAPITAL.sub(r"_\1", part.message.name if part.message else "").upper()
    return f'{{"type":"{name}","version":{part.version},"data":{_data(part)}}}'


def _data(part: Part) -> str:
    assert part.message is not None
    assert part.fields is not None
    return text_of(part.message, part.version, part.fields)


def java_string(text: str) -> str:
    r"""Return a text as Jackson writes it: control characters with capital digits, all else as it is.

    >>> java_string("a\x1f\n")
    '"a\\u001F\\n"'
    """
    written = json.dumps(text, ensure_ascii=False)
    if "\\u" in written:
        written = _LOWER_HEX.sub(lambda found: found[1] or f"\\u00{found[2].upper()}", written)
    if written.isascii():
        return written
    # Bytes that are no UTF-8 are U+FFFD to Java.
    return _SURROGATES.sub(
        lambda found: found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), written
    )


def java_double(value: float) -> str:
    """Return a number as Java prints it.

    >>> java_double(12.5), java_double(1e7), java_double(-0.0), java_double(0.00012)
    ('12.5', '1.0E7', '-0.0', '1.2E-4')
    """
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:.17f}".rstrip("0")
    digits = re.sub(r"[-.]|e.*", "", repr(value)).lstrip("0").rstrip("0") or "0"
    exponent = int(f"{value:e}".split("e")[1])
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


@functools.lru_cache(maxsize=1024)
def _text(name: str, version: int) -> _Text:
    return _struct_text(message_of(name).fields, version)


def _struct_text(fields: tuple[MessageField, ...], version: int) -> _Text:
    parts = [
        (field.name, f'"{field.name}":', _value_text(field, version), field.tagged.has(version), default_of(field))
        for field in fields
        if field.is_in(version)
    ]

    def write(values: Any) -> str:
        shown = [
            label + of(values[name])
            for name, label, of, is_tagged, default in parts
            if not (is_tagged and is_default(values[name], default))
        ]
        return "{" + ",".join(shown) + "}"

    return write


def _value_text(field: MessageField, version: int) -> _Text:
    item = _struct_text(field.fields, version) if field.type == "struct" else _SCALARS.get(field.type, str)
    if field.is_list:
        return lambda items: "null" if items is None else "[" + ",".join(map(item, items)) + "]"
    return lambda value: "null" if value is None else item(value)


def _bytes_text(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


_SCALARS: dict[str, _Text] = {
    "string": java_string,
    "bytes": _bytes_text,
    "records": _bytes_text,
    "uuid": lambda value: f'"{value}"',
    "bool": lambda value: "true" if value else "false",
    "float64": java_double,
}
