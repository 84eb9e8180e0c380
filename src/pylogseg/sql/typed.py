"""The tables of topics with typed columns, by schemas that are looked for once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pylogseg.arrow.decoding import Decoding, schemas_disk
from pylogseg.arrow.forms import for_duckdb
from pylogseg.catalog.disk import Disk
from pylogseg.datasets.dataset import TableDataset
from pylogseg.datasets.opening import dataset
from pylogseg.errors import RequestError
from pylogseg.messages.framing import HOMES
from pylogseg.schemas.store import Schemas
from pylogseg.schemas.topic import TOPIC


class TypedTables:
    """Opens the tables of topics.

    Parameters
    ----------
    decoding : Decoding
    disk : callable
        Returns all that is at the paths: where schemas are, unless `decoding` names a place.
    note : callable
        Told of a topic whose keys or values stay bytes, and why.
    """

    def __init__(self, decoding: Decoding, disk: Callable[[], Disk], note: Callable[[str, RequestError], None]) -> None:
        self._given, self._disk, self._note = replace(decoding, form=for_duckdb), disk, note

    @functools.cached_property
    def _decoding(self) -> Decoding:
        given = self._given.registry
        schemas = given if isinstance(given, Schemas) else Schemas.open(given or schemas_disk(self._disk()))
        return replace(self._given, registry=schemas)

    def open(self, topic: str, disk: Disk, **options: Any) -> TableDataset:
        """Open the table of a topic; without a schema, where none was given, a column stays as it is."""
        if topic in HOMES or topic == TOPIC:
            return dataset(disk, **options)
        found, columns = None, list[str]()
        for which in self._decoding.columns:
            wanted = replace(self._decoding, columns=(*columns, which))
            try:
                found = dataset(disk, decode=wanted, **options)
            except RequestError as error:
                if self._given.schema is not None:
                    raise
                self._note(f"the {which}s of {topic} stay bytes", error)
            else:
                columns.append(which)
        return dataset(disk, **options) if found is None else found
