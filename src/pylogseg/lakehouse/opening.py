"""Which table a text means: ``delta:PATH``, ``iceberg:[FOLDER/]NAMESPACE.TABLE``, ``ducklake:CATALOG/TABLE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pylogseg.errors import RequestError
from pylogseg.lakehouse.sinks import Sink

#: Stands for the name of a topic in the name of a table.
TOPIC = "{topic}"
#: What the name of the table of dead letters ends in.
DEAD = "~dlq"
_KINDS = ("delta", "iceberg", "ducklake")


class TableName(NamedTuple):
    """The name of a table, in parts."""

    kind: str
    place: str  #: Of a catalog: a folder or a file; empty if there is none.
    name: str  #: For Delta the path.

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Return the parts of a text."""
        kind, colon, rest = text.partition(":")
        if not colon or kind not in _KINDS or not rest or rest.endswith("/"):
            raise RequestError(
                f"{text}: expected delta:FOLDER, iceberg:NAMESPACE.TABLE (of a catalog), "
                "iceberg:FOLDER/NAMESPACE.TABLE or ducklake:FILE/TABLE"
            )
        if "://" in rest:
            raise RequestError(f"{text}: tables are written to folders of this machine only, for the time being")
        if kind == "delta":
            return cls(kind, "", rest)
        place, slash, name = rest.rpartition("/")
        return cls(kind, place or slash, name)

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


def sink_of(table: TableName, catalog: str | None = None, properties: Mapping[str, str] | None = None) -> Sink:
    """Return a table, whether it is there or not; RequestError if its package is not installed."""
    given = {} if properties is None else dict(properties)
    if table.kind != "iceberg" and (catalog is not None or given):
        raise RequestError(f"{table.kind}:{table.name}: a catalog and its properties are for Iceberg")
    try:
        if table.kind == "delta":
            from pylogseg.lakehouse.delta import DeltaSink

            return DeltaSink(table.name)
        if table.kind == "iceberg":
            from pylogseg.lakehouse.iceberg import IcebergSink

            if not table.place:
                return IcebergSink(catalog, table.name, given)
            if catalog is not None or given:
                raise RequestError(f"iceberg:{table.place}/{table.name}: a folder has its own catalog: name none")
            return IcebergSink.in_folder(table.place, table.name)
        from pylogseg.lakehouse.ducklake import DuckLakeSink

        return DuckLakeSink(table.place, table.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("deltalake", "pyiceberg", "sqlalchemy", "duckdb"):
            raise
        raise RequestError(f"{error.name} is not installed: run pip install 'pylogseg[{table.kind}]'") from None
