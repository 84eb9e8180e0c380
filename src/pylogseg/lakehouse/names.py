"""Which table a text means, such as ``delta:PATH`` or ``ducklake:FILE/TABLE``: the same for reading and writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pylogseg.errors import RequestError

#: Stands for the name of a topic in the name of a table.
TOPIC = "{topic}"
#: What the name of the table of dead letters ends in.
DEAD = "~dlq"
KINDS = ("delta", "iceberg", "ducklake")
EXPECTED = (
    "expected delta:FOLDER, iceberg:[CATALOG:]NAMESPACE.TABLE, iceberg:FOLDER/NAMESPACE.TABLE or ducklake:FILE/TABLE"
)
#: A table belongs to a catalog of SQLite by the catalog's name, too.
CATALOG_OF_FOLDER = "pylogseg"


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
            if not namespace or not table:
                raise RequestError(f"{text}: {EXPECTED}")
            return cls(kind, place or slash, name, catalog or None)
        if not place:
            raise RequestError(f"{text}: {EXPECTED}")
        return cls(kind, place, name)

    @property
    def text(self) -> str:
        """The name as a text."""
        catalog = "" if self.catalog is None else f"{self.catalog}:"
        place = f"{self.place.rstrip('/')}/" if self.place else ""
        return f"{self.kind}:{catalog}{place}{self.name}"

    def of_topic(self, topic: str) -> TableName:
        """Return the name for a topic."""
        return self._replace(place=self.place.replace(TOPIC, topic), name=self.name.replace(TOPIC, topic))

    @property
    def dead(self) -> TableName:
        """The name of the table of its dead letters."""
        return self._replace(name=f"{self.name}{DEAD}")

    @property
    def has_topic(self) -> bool:
        """Whether each topic has another table."""
        return TOPIC in self.name or TOPIC in self.place


def catalog_of_folder(folder: str) -> tuple[str, dict[str, str]]:
    """Return the file and the properties of the catalog, in SQLite, of the Iceberg tables in a folder."""
    folder = os.path.abspath(folder)
    file = os.path.join(folder, "catalog.db")
    return file, {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": Path(folder).as_uri()}


def missing_package(package: str, extra: str) -> RequestError:
    """Return the error for a package that a format needs."""
    return RequestError(f"{package} is not installed: run pip install 'pylogseg[{extra}]'")
