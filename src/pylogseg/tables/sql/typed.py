"""The tables of topics with typed columns, by schemas that are looked for once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pylogseg.disk.disk import Disk
from pylogseg.errors import NotOwnError, RequestError
from pylogseg.reading.scan import Table
from pylogseg.tables.opening import open_disk_table
from pylogseg.values.decoding import Decoding, schemas_disk
from pylogseg.values.forms import for_duckdb
from pylogseg.values.internal.own_topics import is_own
from pylogseg.values.schemas.store import Schemas


class TypedTables:
    """Opens the tables of topics by `decoding`, or by `own` the topics that Kafka, Connect and a registry write.

    Schemas are on `disk`, unless `decoding` names a place; `note` gets a text for each topic with keys or values that
    stay bytes.
    """

    def __init__(
        self, decoding: Decoding | None, disk: Callable[[], Disk], note: Callable[[str, RequestError], None],
        own: Decoding | None = None,
    ) -> None:  # fmt: skip
        self._given, self._disk, self._note, self._own = decoding, disk, note, own

    @functools.cached_property
    def _decoding(self) -> Decoding | None:
        if self._given is None:
            return None
        registry = self._given.registry
        schemas = registry if isinstance(registry, Schemas) else Schemas.open(registry or schemas_disk(self._disk()))
        return replace(self._given, registry=schemas, form=for_duckdb)

    def open(self, topic: str, disk: Disk, **options: Any) -> Table:
        """Open the table of a topic; without a schema, where none was given, a column stays as it is."""
        if self._own is not None:
            with contextlib.suppress(NotOwnError):
                return open_disk_table(disk, decoding=replace(self._own, form=for_duckdb), **options)
        if self._decoding is None or is_own(topic):
            return open_disk_table(disk, **options)
        table, columns = None, list[str]()
        for which in self._decoding.columns:
            wanted = replace(self._decoding, columns=(*columns, which))
            try:
                table = open_disk_table(disk, decoding=wanted, **options)
            except RequestError as error:
                if self._decoding.schema is not None:
                    raise
                self._note(f"the {which}s of {topic} stay bytes", error)
            else:
                columns.append(which)
        return open_disk_table(disk, **options) if table is None else table
