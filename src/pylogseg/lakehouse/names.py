"""Which table a text means, such as ``delta:PATH`` or ``ducklake:FILE/TABLE``: the same for reading and writing."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from pylogseg.disk.outside import check_outside
from pylogseg.errors import RequestError, install_text
from pylogseg.format.names import check_topic

#: Stands for the name of a topic in the name of a table.
TOPIC = "{topic}"
#: What the name of the table of dead letters ends in.
DEAD = "~dlq"
KINDS = ("delta", "iceberg", "ducklake")
EXPECTED = (
    "expected delta:FOLDER, iceberg:[CATALOG:]NAMESPACE.TABLE, iceberg:FOLDER/NAMESPACE.TABLE or ducklake:FILE/TABLE"
)


#: No folder of a table has such a name.
_NO_NAMES = ("", ".", "..")


class NoTableError(RequestError):
    """There is no table of this name."""


class TableName(NamedTuple):
    """The name of a table, in parts."""

    kind: str
    place: str  #: Of a catalog: a folder or a file; empty if there is none.
    name: str  #: For Delta the path.
    catalog: str | None = None  #: Of Iceberg, in the settings of pyiceberg; None for its default one.

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Return the parts of a text."""
        kind, colon, rest = text.partition(":")
        if not colon or kind not in KINDS or not rest or rest.endswith("/"):
            raise RequestError(f"{text}: {EXPECTED}")
        if kind == "delta":
            return cls(kind, "", rest)
        place, slash, name = rest.rpartition("/")
        if kind == "iceberg":
            catalog, _, name = ("", "", name) if slash else name.rpartition(":")
            namespace, _, table = name.partition(".")
            if not {namespace, table}.isdisjoint(_NO_NAMES):
                raise RequestError(f"{text}: {EXPECTED}")
            return cls(kind, place or slash, name, catalog or None)
        if not place or name in _NO_NAMES:
            raise RequestError(f"{text}: {EXPECTED}")
        return cls(kind, place, name)

    @property
    def identifier(self) -> tuple[str, str]:
        """Namespace and name of a table of Iceberg: a dot ends the namespace, others belong to the table."""
        namespace, _, table = self.name.partition(".")
        return namespace, table

    @property
    def text(self) -> str:
        """The name as a text."""
        catalog = "" if self.catalog is None else f"{self.catalog}:"
        place = f"{self.place.rstrip('/')}/" if self.place else ""
        return f"{self.kind}:{catalog}{place}{self.name}"

    def of_topic(self, topic: str) -> TableName:
        """Return the name for a topic; RequestError for what is no topic's name, since it becomes a path."""
        check_topic(topic)
        return self._replace(place=self.place.replace(TOPIC, topic), name=self.name.replace(TOPIC, topic))

    @property
    def dead(self) -> TableName:
        """The name of the table of its dead letters."""
        return self._replace(name=f"{self.name}{DEAD}")

    @property
    def has_topic(self) -> bool:
        """True if each topic has another table."""
        return TOPIC in self.name or TOPIC in self.place


def in_order(table: Any, topic: Any) -> tuple[Any, Any]:
    """Return table and topic; a caller may give the topic first, as the shell has it: its name is no path."""
    is_topic_first = isinstance(table, str) and _is_topic(table) and topic is not None
    several = topic if isinstance(topic, list | tuple) else [topic]
    if is_topic_first and not all(isinstance(each, str) and _is_topic(each) for each in several):
        return topic, table
    return table, topic


def _is_topic(name: str) -> bool:
    return not (":" in name or "/" in name or os.sep in name or os.path.exists(name))


#: In a path of this machine, by format: marks that some library reads as another path.
_ALWAYS, _ESCAPES = r"[\x00-\x1f\x7f\\]", r"%[0-9A-Fa-f]{2}"
_MISREAD = {"delta": rf"{_ALWAYS}|{_ESCAPES}", "iceberg": rf"{_ALWAYS}|{_ESCAPES}|[?]", "ducklake": _ALWAYS}


def check_path(table: TableName) -> None:
    """Refuse a path that the libraries of a format take for another one: nobody would find all files of a table."""
    path = table.name if table.kind == "delta" else table.place
    whole = os.path.abspath(path)
    mark = None if "://" in path or not path else re.search(_MISREAD[table.kind], whole.replace(os.sep, "/"))
    if mark is not None:
        raise RequestError(
            f"{table.text}: the path {whole} has {mark[0]!r}, which libraries of {table.kind} read as "
            "something else: give the folder another name"
        )
    if "://" not in path and path:
        check_outside(path)


def missing_package(package: str, extra: str) -> RequestError:
    """Return the error for a package that a format needs."""
    return RequestError(f"{package} is not installed: run {install_text(extra)}")
