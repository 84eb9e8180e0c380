"""A duckdb connection of the user's that has a dataset as a table."""

from __future__ import annotations

from typing import Any

from pylogseg.errors import RequestError, install_text


def with_table(dataset: Any, name: str, connection: Any = None) -> Any:
    """Return a connection, by default a new one in memory, that has a dataset as a table; queries read from it."""
    try:
        import duckdb
    except ImportError as error:
        raise RequestError(f"to_duckdb needs duckdb ({error}): {install_text('sql')}") from error
    connection = duckdb.connect() if connection is None else connection
    connection.register(name, dataset)
    return connection
