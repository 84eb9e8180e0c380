"""The fault of a value in JSON that does not decode: the member, its type, and the type that it should have."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa

from pylogseg.format.escape import json_fault
from pylogseg.values.roles import ROLE_KEY
from pylogseg.values.schemas.columns import member_path

_WORDS = {pa.string(): "a string", pa.int64(): "an integer", pa.float64(): "a number", pa.bool_(): "a boolean"}
_BITS = 63
_SHOWN = 40
#: Objects of Python take up to 60 times the bytes of a value: in one that is longer nobody looks for the member.
_LONGEST = 1 << 20
_UNKNOWN = "a value of another type than the schema has"
#: Numbers of so many digits, or with such an exponent, that a double may not be equal to one, or is zero.
_ODD_NUMBERS = re.compile(rb"-?\d[\d.]{15,}(?:[eE][-+]?\d+)?|-?\d[\d.]*[eE]-\d{3,}")


class _Number(NamedTuple):
    """A number as it stands."""

    text: str


class _Object(NamedTuple):
    members: list[tuple[str, Any]]


def mismatch(raw: bytes, field: pa.Field) -> str:
    """Return why a value does not decode to a field.

    >>> mismatch(b'{"lines": [{"price": 1}, {"price": "12,5"}]}', pa.field("v", pa.struct(
    ...     [("lines", pa.list_(pa.struct([("price", pa.float64())])))])))
    '$.lines[1].price: "12,5" is not a number'
    """
    if len(raw) > _LONGEST:
        return f"no JSON of the schema's types; its {len(raw)} bytes are too many to say where"
    try:
        text = raw.decode()
        value = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_word, object_pairs_hook=_Object
        )
    except UnicodeDecodeError as error:
        return f"no JSON: not UTF-8, at byte {error.start} of its payload"
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        return f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}, at byte {at} of its payload"
    except (ValueError, RecursionError) as error:
        return f"no JSON: {json_fault(error)}"
    return _find_fault(value, field, "$") or _UNKNOWN


def is_inexact(raw: bytes, field: pa.Field) -> bool:
    """Check whether a value has a whole number for a double, and no double is equal to it; or too small a number."""
    odd = (match[0].decode() for match in _ODD_NUMBERS.finditer(raw))
    return any(map(_double_fault, odd)) and (len(raw) > _LONGEST or not mismatch(raw, field).endswith(_UNKNOWN))


def _double_fault(text: str) -> str | None:
    """Return why a double does not hold a number; fractions are the nearest double."""
    number = float(text)
    if math.isinf(number):
        return "does not fit in a double"
    if text.removeprefix("-").isdecimal():
        return None if int(text) == int(number) else f"is not a double: the nearest is {int(number)}"
    is_zero = number != 0 or not re.search("[1-9]", text.lower().partition("e")[0])
    return None if is_zero else "is too small for a double"


def _refuse_word(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def _find_fault(value: Any, field: pa.Field, path: str) -> str | None:
    kind = field.type
    if value is None or (field.metadata or {}).get(ROLE_KEY) == b"json":
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, _Object):
            return f"{path}: {_shorten(value)} is not an object"
        times = Counter(name for name, _ in value.members)
        for member in kind:
            if times[member.name] > 1:
                return f"{member_path(path, member.name)}: the object has this name {times[member.name]} times"
        of = {member.name: member for member in kind}
        inner = (_find_fault(member, of[name], member_path(path, name)) for name, member in value.members if name in of)
        return next((fault for fault in inner if fault), None)
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            return f"{path}: {_shorten(value)} is not an array"
        items = (_find_fault(item, kind.value_field, f"{path}[{i}]") for i, item in enumerate(value))
        return next((fault for fault in items if fault), None)
    if pa.types.is_null(kind):
        return f"{path}: {_shorten(value)} is not null"
    if isinstance(value, _Number) and pa.types.is_integer(kind):
        digits = value.text.removeprefix("-")
        if not digits.isdecimal():
            return f"{path}: {_shorten(value)} is not an integer without a fraction or an exponent"
        return (
            f"{path}: {_shorten(value)} does not fit in 64 bits"
            if len(digits) > 20 or not -(1 << _BITS) <= int(value.text) < 1 << _BITS
            else None
        )
    if isinstance(value, _Number) and pa.types.is_floating(kind):
        fault = _double_fault(value.text)
        return None if fault is None else f"{path}: {_shorten(value)} {fault}"
    is_it = (isinstance(value, str), isinstance(value, bool))
    wanted = (pa.types.is_string(kind), pa.types.is_boolean(kind))
    if is_it == wanted and any(is_it):
        return None
    return f"{path}: {_shorten(value)} is not {_WORDS[kind]}"


def _shorten(value: Any) -> str:
    if isinstance(value, _Object):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = value.text if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "\u2026"
