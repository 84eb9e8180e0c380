"""The formats of tables, and which table a text means, such as ``delta:PATH``: the same for reading and writing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pylogseg.disk.outside import check_outside
from pylogseg.errors import RequestError, StorageError, install_command
from pylogseg.format.names import check_topic
from pylogseg.lakehouse.library_errors import library_errors

#: Stands for the name of a topic in the name of a table.
TOPIC = "{topic}"
#: What the name of the table of dead letters ends in.
DEAD = "~dlq"
#: No folder of a table has such a name.
_NO_NAMES = ("", ".", "..")
#: In a path of this machine: marks that some library reads as another path.
_ALWAYS, _ESCAPES = r"[\x00-\x1f\x7f\\]", r"%[0-9A-Fa-f]{2}"


class NoTableError(RequestError):
    """There is no table of this name."""


class TableFormat(NamedTuple):
    """A format of tables.

    The function `open_sink` of the module with its name opens a table to write, `open_it` of ``foreign_...`` to read.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()  #: Of the extra with its name, as `pyproject.toml` has them.
    #: Names of tables that are written, after the format's name and a colon, each with what it means.
    forms: Mapping[str, str] = MappingProxyType({})
    #: Returns place, name and catalog of a text after the colon; None if it is no name.
    parse: Callable[[str], tuple[str, str, str | None] | None] = lambda text: None
    in_folder: bool = False  #: True if a folder may be a table.
    in_file: bool = False  #: True if a file may be one.
    recognises: Callable[[str], bool] = lambda path: False  #: True for a path that is such a table.
    misread: str = _ALWAYS  #: Marks of a path that some library reads as another one.
    #: How tables in an object store are named, if there may be some; True if the name has its URL.
    in_store: str = ""
    takes_url: bool = False
    options: str = ""  #: The things that options are for, if there may be some, and of which tables.
    takes_options: Callable[[TableName], bool] = lambda table: False
    layouts: tuple[str, ...] = ()  #: Besides the flat one.


class TableName(NamedTuple):
    """The name of a table, in parts."""

    kind: str
    place: str  #: Of a catalog: a folder or a file; empty if there is none.
    name: str  #: For Delta the path.
    catalog: str | None = None  #: Of Iceberg, in the settings of pyiceberg; None for its default one.

    @classmethod
    def parse(cls, text: str) -> TableName:
        kind, _, rest = text.partition(":")
        parts = FORMATS[kind].parse(rest) if kind in FORMATS and rest and not rest.endswith("/") else None
        if parts is None:
            raise RequestError(f"{text}: expected {NAMES_TEXT}")
        return cls(kind, *parts)

    @property
    def format(self) -> TableFormat:
        return FORMATS[self.kind]

    @property
    def identifier(self) -> tuple[str, str]:
        """Namespace and name of a table of Iceberg: a dot ends the namespace, others belong to the table."""
        namespace, _, table = self.name.partition(".")
        return namespace, table

    @property
    def text(self) -> str:
        catalog = "" if self.catalog is None else f"{self.catalog}:"
        place = f"{self.place.rstrip('/')}/" if self.place else ""
        return f"{self.kind}:{catalog}{place}{self.name}"

    def of_topic(self, topic: str) -> TableName:
        """Return the name for a topic; RequestError for an invalid topic's name, since it becomes a path."""
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
    if is_topic_first and not all(isinstance(text, str) and _is_topic(text) for text in several):
        return topic, table
    return table, topic


def _is_topic(name: str) -> bool:
    return not (":" in name or "/" in name or os.sep in name or os.path.exists(name))


# ---- the formats ----


def _parse_iceberg(text: str) -> tuple[str, str, str | None] | None:
    place, slash, name = text.rpartition("/")
    catalog, _, name = ("", "", name) if slash else name.rpartition(":")
    namespace, _, table = name.partition(".")
    return (place or slash, name, catalog or None) if {namespace, table}.isdisjoint(_NO_NAMES) else None


def _parse_ducklake(text: str) -> tuple[str, str, str | None] | None:
    place, _, name = text.rpartition("/")
    return (place, name, None) if place and name not in _NO_NAMES else None


def _is_iceberg(path: str) -> bool:
    metadata = os.path.join(path, "metadata")
    in_folder = os.path.isdir(metadata) and any(name.endswith(".metadata.json") for name in os.listdir(metadata))
    return in_folder or path.endswith(".metadata.json")


def _is_ducklake(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(16)
    return head.startswith(b"SQLite format 3") or head[8:12] == b"DUCK"


_ALL = (
    TableFormat(
        "delta",
        "Delta",
        ("deltalake>=1.6",),
        {"FOLDER": "(which may be a URL)"},
        lambda text: ("", text, None),
        in_folder=True,
        recognises=lambda path: os.path.isdir(os.path.join(path, "_delta_log")),
        misread=rf"{_ALWAYS}|{_ESCAPES}",
        in_store="Delta, as delta:s3://BUCKET/FOLDER",
        takes_url=True,
        options="the store of Delta (aws_endpoint_url=...)",
        takes_options=lambda table: True,
    ),
    TableFormat(
        "iceberg",
        "Iceberg",
        ("pyiceberg>=0.12", "sqlalchemy>=2.0.18"),
        {
            "[CATALOG:]NAMESPACE.TABLE": "of a catalog that pyiceberg is set up for",
            "FOLDER/NAMESPACE.TABLE": "of a catalog in that folder",
        },
        _parse_iceberg,
        in_folder=True,
        in_file=True,
        recognises=_is_iceberg,
        misread=rf"{_ALWAYS}|{_ESCAPES}|[?]",
        in_store="a table of a catalog that has its warehouse there, as iceberg:CATALOG:NAMESPACE.TABLE",
        options="the catalog of iceberg:CATALOG:NAMESPACE.TABLE (uri=...)",
        takes_options=lambda table: not table.place,
        layouts=("redpanda",),
    ),
    TableFormat("parquet", "Parquet", in_folder=True, in_file=True),
    TableFormat(
        "ducklake",
        "DuckLake",
        ("duckdb>=1.5.6",),
        {"FILE/TABLE": ""},
        _parse_ducklake,
        in_file=True,
        recognises=_is_ducklake,
    ),
)
#: All formats, by their names.
FORMATS = {entry.name: entry for entry in _ALL}


def list_words(words: list[str], last: str = "or") -> str:
    """Return words as a sentence has them.

    >>> list_words(["Delta", "Iceberg", "DuckLake"])
    'Delta, Iceberg or DuckLake'
    """
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


#: The texts for people: names of tables that are written, and what else is a table to read.
NAMES_TEXT = list_words([f"{entry.name}:{form}" for entry in _ALL for form in entry.forms])
TABLE_TEXT = (
    f"a folder of {list_words([entry.title for entry in _ALL if entry.in_folder])}, "
    f"a file of {list_words([entry.title for entry in _ALL if entry.in_file])}, or {NAMES_TEXT}"
)


def check_path(table: TableName) -> None:
    """Refuse a path with characters that the libraries of a format decode: readers would look for files elsewhere."""
    path = table.place or (table.name if table.format.takes_url else "")
    whole = os.path.abspath(path)
    mark = None if "://" in path or not path else re.search(table.format.misread, whole.replace(os.sep, "/"))
    if mark is not None:
        raise RequestError(
            f"{table.text}: the path {whole} has {mark[0]!r}, which libraries of {table.kind} read as "
            "something else: give the folder another name"
        )
    if "://" not in path and path:
        check_outside(path)


@contextlib.contextmanager
def format_errors(needed: TableFormat, table: str, operation: str) -> Iterator[None]:
    """Raise errors as `library_errors` does; for a package that is not installed a RequestError."""
    try:
        with library_errors(table, operation):
            yield
    except StorageError as error:
        cause = error.__cause__
        name = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
        if name not in (re.split(r"[<>=]", package)[0] for package in needed.packages):
            raise
        command = install_command(needed.packages)
        raise RequestError(f"{name} is not installed: run {command}") from None
