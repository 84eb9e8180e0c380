"""The table of Kafka's messages: names, types, versions and tags of their fields.

`schemas.json` is made from the schema files in Kafka's jars (`tests/kafka/schemas.py`); nobody writes in it by hand.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.errors import RequestError

#: Bytes of the types that have always the same number of them.
WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
#: Types of a length and so many bytes.
SIZED = ("string", "bytes", "records")


class Versions(NamedTuple):
    """Versions from `first` to `last`, both included; none if `last` is less."""

    first: int
    last: int

    def has(self, version: int) -> bool:
        """True if a version is among them."""
        return self.first <= version <= self.last


_NONE = Versions(0, -1)


class MessageField(NamedTuple):
    """A field of a message or of a struct in it.

    Attributes
    ----------
    name : str
        As in the JSON of Kafka's tools.
    type : str
        One of `WIDTHS` or `SIZED`, or ``"struct"``; of a list the type of its items.
    is_list : bool
    versions, tagged, nullable : Versions
        Versions of the message with the field, with it as a tagged field, and with null allowed.
    tag : int
        -1 none.
    flexible : Versions or None
        Versions with the flexible form of the field, if they differ from the message's.
    default : object
        The value of an absent field; a list is empty, a struct has the defaults of its fields.
    entity : str
        The kind of thing that the value names, as ``"groupId"`` or ``"brokerId"``; empty if the schema has none.
    fields : tuple of MessageField
        Of a struct.
    """

    name: str
    type: str
    is_list: bool
    versions: Versions
    tagged: Versions
    nullable: Versions
    tag: int
    flexible: Versions | None
    default: Any
    entity: str
    fields: tuple[MessageField, ...]

    def is_in(self, version: int) -> bool:
        """True if a version has the field, tagged or not."""
        return self.versions.has(version) or self.tagged.has(version)


@dataclass(frozen=True, eq=False)
class Message:
    """A message of Kafka's; there is one object for each.

    Attributes
    ----------
    name : str
    home : str
        The part of Kafka that it belongs to; a number is unique in a home, for each kind.
    kind : str
        ``"coordinator-key"``, ``"coordinator-value"``, ``"metadata"``, ``"data"``, ``"request"`` or ``"response"``.
    number : int or None
        Type of the record, or API key.
    versions, flexible : Versions
        Those that there are, and those in the flexible form.
    """

    name: str
    home: str
    kind: str
    number: int | None
    versions: Versions
    flexible: Versions
    _rows: list[dict[str, Any]] = field(repr=False)

    @functools.cached_property
    def fields(self) -> tuple[MessageField, ...]:
        """Made when somebody asks: a program needs few of the messages."""
        return tuple(map(field_of, self._rows))


def _versions(text: str) -> Versions:
    if text == "none":
        return _NONE
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), 2**15 - 1)
    return Versions(int(first), int(last if dash else first))


def _default(row: dict[str, Any], kind: str, is_list: bool) -> Any:
    text = row.get("default")
    if text == "null":
        return None
    if is_list:
        return []
    if kind in ("struct", "string"):
        return text or "" if kind == "string" else {}
    if kind in SIZED:
        return b""
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "uuid":
        return "A" * 22
    if kind == "float64":
        return float(text or 0)
    return int(str(text or 0), 0)


def field_of(row: dict[str, Any]) -> MessageField:
    """The field that a row of the table, or of a schema of Kafka's, describes."""
    is_list = row["type"].startswith("[]")
    kind = row["type"].removeprefix("[]")
    kind = kind if kind in WIDTHS or kind in SIZED else "struct"
    return MessageField(
        row["name"],
        kind,
        is_list,
        _versions(str(row.get("versions", "none")).lower()),
        _versions(row.get("tagged", "none")),
        _versions(row.get("nullable", "none")),
        row.get("tag", -1),
        _versions(row["flexible"]) if "flexible" in row else None,
        _default(row, kind, is_list),
        row.get("entity", ""),
        tuple(map(field_of, row.get("fields", ()))),
    )


@functools.cache
def _table() -> dict[str, Any]:
    text = pkgutil.get_data(
        "pylogseg.format.messages", "schemas.json"
    )  # importlib.resources takes longer than the table
    assert text is not None
    return dict(json.loads(text))


@functools.cache
def public_settings(resource: str) -> frozenset[str]:
    """Names of the settings of a type of resource, as ``"TOPIC"``, that are not passwords to Kafka."""
    return frozenset(_table()["settings"].get(resource, ()))


@functools.cache
def messages() -> dict[str, Message]:
    """All messages of the table by name."""
    return {
        name: Message(
            name,
            row["home"],
            row["kind"],
            row.get("number"),
            _versions(row["versions"]),
            _versions(row["flexible"]),
            row["fields"],
        )
        for name, row in _table()["messages"].items()
    }


def message(name: str) -> Message:
    """The message of a name; RequestError if there is none."""
    try:
        return messages()[name]
    except KeyError:
        raise RequestError(f"Kafka has no message {name!r}; names are {', '.join(sorted(messages()))}") from None


@functools.cache
def by_number(home: str, kind: str) -> dict[int, Message]:
    """Messages of a home and kind by their numbers."""
    return {
        entry.number: entry
        for entry in messages().values()
        if entry.home == home and entry.kind == kind and entry.number is not None
    }
