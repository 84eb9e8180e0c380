"""Iceberg tables as `lake` and `audit` open them: by the catalog, in SQLite, of their folder, and with their ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pylogseg.errors import RequestError
from pylogseg.lakehouse.ledger import LEDGER, Ledger
from pylogseg.lakehouse.stores import local_path

#: A table belongs to a catalog of SQLite by the catalog's name, too.
CATALOG_OF_FOLDER = "pylogseg"
#: Name of the sequence number of the snapshot that the ledger among the table's properties was committed with.
SEQUENCE = "pylogseg.sequence-number"
_REMEDY = (
    "the folder was copied or moved, and Iceberg's metadata has whole paths: name the folder in which the table was "
    "made (move it back there), or write the table anew"
)


def catalog_of_folder(folder: str) -> tuple[str, dict[str, str]]:
    """Return the file and the properties of the catalog of a folder."""
    folder = os.path.abspath(folder)
    file = os.path.join(folder, "catalog.db")
    # Readers take the path of a URL as it is, and cut it where a fragment or a parameter of a URL begins.
    location = folder if any(mark in folder for mark in "#;") else f"file://{_as_in_a_url(folder)}"
    return file, {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": location}


def _as_in_a_url(folder: str) -> str:
    path = folder.replace(os.sep, "/")
    return path if path.startswith("/") else f"/{path}"


def load_in_folder(catalog: Any, identifier: tuple[str, ...], folder: str, name: str) -> Any:
    """Load a table; RequestError if it lies outside of the folder of its catalog."""
    try:
        table = catalog.load_table(identifier)
    except FileNotFoundError as error:
        raise RequestError(f"{name}: the metadata that the catalog names is not there ({error}): {_REMEDY}") from error
    check_below(table.location(), folder, name)
    check_below(table.metadata_location, folder, name)
    return table


def check_below(location: str, folder: str, name: str) -> None:
    """Refuse a location on this machine that is not below a folder."""
    path, is_local = local_path(location)
    real, above = os.path.realpath(path), os.path.realpath(folder)
    if is_local and not f"{real}{os.sep}".startswith(f"{above.rstrip(os.sep)}{os.sep}"):
        raise RequestError(f"{name}: its files lie in {path}, outside of {os.path.abspath(folder)}: {_REMEDY}")


def newest_ledger(table: Any, name: str) -> Ledger | None:
    """Return the ledger of the newest snapshot that has one, along its ancestors: others' commits do not hide it."""
    oldest = None
    for snapshot in _ancestors(table):
        text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(LEDGER)
        if text is not None:
            return Ledger.parse(text, name)
        oldest = snapshot
    # Snapshots may have expired, also that of the newest ledger, which the table's properties repeat.
    text, number = (table.properties.get(key) for key in (LEDGER, SEQUENCE))
    if oldest is None or text is None:
        return None
    if number is not None and int(number) > (oldest.sequence_number or 0):
        raise RequestError(
            f"{name}: it was set back to a snapshot from before the newest ledger, and the snapshots that have an "
            "older one were expired: nothing says which offsets it has; write another table"
        )
    return Ledger.parse(text, name)


def _ancestors(table: Any) -> Iterator[Any]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        above = snapshot.parent_snapshot_id
        snapshot = None if above is None else table.snapshot_by_id(above)
