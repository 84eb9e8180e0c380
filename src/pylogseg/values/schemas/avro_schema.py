"""Avro schemas: their JSON as types, with references to other schemas, and the fingerprint of their canonical form.

Not by fastavro (1.13): it takes records without fields, names that are there twice, unions in unions and sizes of -1,
ends with KeyError or TypeError for others, and refuses names of references and logical types that do not count.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogseg.errors import RequestError
from pylogseg.format import bounded_json
from pylogseg.values.schemas.columns import DEEPEST

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}
#: No default: None is one.
MISSING: Any = object()
_EMPTY_CRC = 0xC15D213AA4D7A795


@dataclass
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = MISSING
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class AvroType:
    """A type; records can contain themselves."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def inner(self) -> AvroType:
        """The items of an array, the values of a map."""
        assert self.items is not None
        return self.items

    @property
    def short_name(self) -> str:
        """The name without its namespace; of other types the kind."""
        return self.name.rpartition(".")[2] or self.kind


def parse_avro(text: str, references: Mapping[str, str] | None = None, title: str = "the schema") -> AvroType:
    """Parse the JSON of an Avro schema, or the name of a primitive type; `title` names it in errors.

    `references` are texts of schemas by their names.
    """
    try:
        return _AvroParser(references or {}).text(text)
    except RequestError as error:
        raise RequestError(f"{title} is not an Avro schema: {error}") from None
    except RecursionError:
        raise RequestError(f"{title} is not an Avro schema: it is nested too deeply") from None


class _AvroParser:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = dict(references)
        self._named: dict[str, AvroType] = {}

    def text(self, text: str) -> AvroType:
        try:
            parsed = bounded_json.loads(text)
        except ValueError as error:
            if _NAME.fullmatch(text.strip()):  # a name alone, as some registries keep primitives
                parsed = text.strip()
            else:
                raise RequestError(f"not JSON: {error}") from None
        return self._type(parsed, "", 0)

    def _type(self, given: Any, namespace: str, depth: int) -> AvroType:
        if depth > 4 * DEEPEST:
            raise RequestError("nested too deeply")
        if isinstance(given, list):
            branches = tuple(self._type(branch, namespace, depth + 1) for branch in given)
            if any(branch.kind == "union" for branch in branches):
                raise RequestError("a union directly in a union")
            return AvroType("union", branches=branches)
        if isinstance(given, str):
            return AvroType(given) if given in PRIMITIVES else self._of_name(given, namespace)
        if not isinstance(given, dict):
            raise RequestError(f"{json.dumps(given)[:80]} is not a type")
        kind = given.get("type")
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in (*PRIMITIVES, *_COMPLEX)):
            return self._type(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise RequestError(f"{json.dumps(given)[:80]} has no type")
        if kind in PRIMITIVES:
            return _with_logic(AvroType(kind), given)
        if kind in ("array", "map"):
            name = "items" if kind == "array" else "values"
            if name not in given:
                raise RequestError(f"an {kind} has no {name!r}")
            return AvroType(kind, items=self._type(given[name], namespace, depth + 1))
        return self._define(kind, given, namespace, depth)

    def _of_name(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate not in self._named and candidate in self._references:
                self._type(_json(self._references.pop(candidate), candidate), "", 0)
            if candidate in self._named:
                return self._named[candidate]
        raise RequestError(f"the name {full!r} is not defined")

    def _define(self, kind: str, given: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"a {kind} has no name")
        space = given.get("namespace")
        if "." in name:
            full = name
        else:
            space = space if isinstance(space, str) else namespace
            full = f"{space}.{name}" if space else name
        inside = full.rpartition(".")[0]
        if full in self._named:
            raise RequestError(f"the name {full!r} is defined twice")
        aliases = tuple(_full(alias, inside) for alias in _texts(given.get("aliases")))
        named_type = self._named[full] = AvroType("record" if kind == "error" else kind, full, aliases)
        if kind == "enum":
            named_type.symbols = tuple(_texts(given.get("symbols")))
            default = given.get("default")
            named_type.default = default if isinstance(default, str) and default in named_type.symbols else None
        elif kind == "fixed":
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                raise RequestError(f"the size of {full} must be a whole number of at least 0, not {size!r}")
            named_type.size = size
            _with_logic(named_type, given)
        else:
            fields = given.get("fields")
            if not isinstance(fields, list):
                raise RequestError(f"the record {full} has no fields")
            named_type.fields += [self._field(entry, full, inside, depth) for entry in fields]
            if len({field.name for field in named_type.fields}) < len(named_type.fields):
                raise RequestError(f"the record {full} has a field twice")
        return named_type

    def _field(self, given: Any, of: str, namespace: str, depth: int) -> AvroField:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str) or "type" not in given:
            raise RequestError(f"a field of {of} has no name or no type")
        kind = self._type(given["type"], namespace, depth + 1)
        if "logicalType" in given and kind.kind in PRIMITIVES and not kind.logical:
            kind = AvroType(kind.kind)  # not the field's, by the specification: Java ignores it too
        return AvroField(given["name"], kind, given.get("default", MISSING), tuple(_texts(given.get("aliases"))))


_COMPLEX = ("array", "map", "record", "error", "enum", "fixed")


def _json(text: str, name: str) -> Any:
    try:
        return bounded_json.loads(text)
    except ValueError as error:
        raise RequestError(f"the text of {name} is not JSON: {error}") from None


def _texts(given: Any) -> list[str]:
    return [text for text in given if isinstance(text, str)] if isinstance(given, list) else []


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logic(made: AvroType, given: Mapping[str, Any]) -> AvroType:
    """Take the logical type, if it is one that this type can have; others are ignored, as the specification says."""
    logical = given.get("logicalType")
    if not isinstance(logical, str):
        return made
    is_fixed = made.kind == "fixed"
    if logical == "decimal" and made.kind in ("bytes", "fixed"):
        precision, scale = given.get("precision"), given.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
            return made
        holds = precision <= 76 and (not is_fixed or 10**precision <= 1 << max(8 * min(made.size, 32) - 1, 0))
        if holds:  # 32 bytes have 76 digits
            made.logical, made.precision, made.scale = logical, precision, scale
    elif _LOGICAL.get(logical) == made.kind or (logical == "duration" and is_fixed and made.size == 12):
        made.logical = logical
    return made


def fingerprint(text: str) -> int | None:
    """Return CRC-64-AVRO of a schema's canonical form, as a signed number; None if it is no schema."""
    try:
        raw = _canonical(bounded_json.loads(text), "").encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    state, table = _EMPTY_CRC, _crc_table()
    for byte in raw:
        state = (state >> 8) ^ table[(state ^ byte) & 255]
    return state - (1 << 64) if state >> 63 else state


@functools.cache
def _crc_table() -> list[int]:
    """The part that each byte adds: a schema of a stranger may have megabytes."""
    table = list(range(256))
    for _ in range(8):
        table = [(state >> 1) ^ (_EMPTY_CRC if state & 1 else 0) for state in table]
    return table


def _canonical(given: Any, namespace: str) -> str:
    """The parsing canonical form: full names, only decoding attributes, in a fixed order, without spaces."""
    if isinstance(given, list):
        return "[" + ",".join(_canonical(branch, namespace) for branch in given) + "]"
    if isinstance(given, str):
        return _quote(given if given in PRIMITIVES else _full(given, namespace))
    kind = given["type"]
    if not isinstance(kind, str) or kind in PRIMITIVES:
        return _canonical(kind, namespace)
    if kind in ("array", "map"):
        name = "items" if kind == "array" else "values"
        return f'{{"type":"{kind}","{name}":{_canonical(given[name], namespace)}}}'
    if kind not in _COMPLEX:
        return _quote(_full(kind, namespace))
    space = given.get("namespace", namespace)
    full = _full(given["name"], space)
    parts = [f'"name":{_quote(full)}', f'"type":"{kind}"']
    inside = full.rpartition(".")[0]
    if kind in ("record", "error"):
        fields = (f'{{"name":{_quote(f["name"])},"type":{_canonical(f["type"], inside)}}}' for f in given["fields"])
        parts.append('"fields":[' + ",".join(fields) + "]")
    elif kind == "enum":
        parts.append('"symbols":[' + ",".join(map(_quote, given["symbols"])) + "]")
    else:
        parts.append(f'"size":{int(given["size"])}')
    return "{" + ",".join(parts) + "}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
