"""The versions of all that matters, for the report of a fault: `pylogseg --version --verbose`."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator

from pylogseg.format.codecs import CODECS
from pylogseg.lakehouse.formats import FORMATS

#: Every package that changes what pylogseg does or how fast: its dependencies, and those of its extras.
_PACKAGES = (
    "numpy",
    "pyarrow",
    "sortedcontainers",
    *sorted({library for codec in CODECS for library in codec.libraries}),
    "click",
    "rich",
    "fsspec",
    "s3fs",
    "polars",
    "duckdb",
    "pyspark",
    "pandas",
    "cryptography",
    "pycryptodome",
    *(re.split("[<>=]", package)[0] for of in FORMATS.values() for package in of.packages),
)


def lines() -> Iterator[str]:
    """Yield a line for the Python, one for the system, and one for each package."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    yield f"{'python':18}{platform.python_version()} ({platform.python_implementation()}, {_lock(has_lock)})"
    yield f"{'system':18}{platform.platform()}, {platform.machine()}"
    yield from (f"{name:18}{_find_version(name)}" for name in dict.fromkeys(_PACKAGES))


def _lock(has_lock: bool) -> str:
    return "with the interpreter's lock" if has_lock else "free-threaded"


def _find_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"
