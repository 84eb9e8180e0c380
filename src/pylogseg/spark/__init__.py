"""Segments as Spark tables and streams: `spark.read.format("pylogseg")`, and functions on the same plans."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogseg.spark.frames import batches, read, read_segments, register, segments
    from pylogseg.spark.lagging import lag

# Loaded on first use: the planner's process imports this package and needs little of it.
_HOMES = {
    "batches": "pylogseg.spark.frames",
    "lag": "pylogseg.spark.lagging",
    "read": "pylogseg.spark.frames",
    "read_segments": "pylogseg.spark.frames",
    "register": "pylogseg.spark.frames",
    "segments": "pylogseg.spark.frames",
}

__all__ = ["batches", "lag", "read", "read_segments", "register", "segments"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pylogseg.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
