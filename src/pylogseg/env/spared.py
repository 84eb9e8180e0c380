"""Imports of others' packages without the parts of these that a command does not need, and that take long to load."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: What pyarrow and duckdb do without: other formats of its datasets, stores that are read by fsspec here, and pandas.
_LEFT_OUT = frozenset(
    [
        "pandas",
        "pyarrow._azurefs",
        "pyarrow._dataset_orc",
        "pyarrow._dataset_parquet",
        "pyarrow._dataset_parquet_encryption",
        "pyarrow._gcsfs",
        "pyarrow._hdfs",
        "pyarrow._s3fs",
    ]
)
#: With this, pyarrow reads the docstrings of its options, for those that it gives its functions of columns.
_DOCSTRINGS = "pyarrow.vendored.docscrape"


@contextlib.contextmanager
def spare_imports() -> Iterator[None]:
    """Import pyarrow and duckdb without `_LEFT_OUT`, and functions of pyarrow without the docstrings of their options.

    Only for a process of our own: what was left out stays so.
    """
    finder, docstrings = _NotNeeded(), ModuleType(_DOCSTRINGS)
    docstrings.__dict__["NumpyDocString"] = _NoDocstring
    sys.meta_path.insert(0, finder)
    placed = sys.modules.setdefault(_DOCSTRINGS, docstrings)
    try:
        yield
    finally:
        if placed is docstrings:
            del sys.modules[_DOCSTRINGS]
        sys.meta_path.remove(finder)


class _NotNeeded:
    """A finder that says of some modules that they are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse modules that are left out; other finders handle the rest."""
        if name in _LEFT_OUT:
            raise ModuleNotFoundError("not needed by this command", name=name)


class _NoDocstring:
    """A docstring whose sections are all empty."""

    def __init__(self, text: str) -> None:
        """Take the text of a docstring."""

    def __getitem__(self, section: str) -> list[Any]:
        return []
