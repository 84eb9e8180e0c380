"""Segments as Spark tables and streams: `spark.read.format("pylogseg")`, and functions on the same plans."""

from pylogseg._lazy import load_lazily

# The planner's process imports this package and needs little of it.
__getattr__, __dir__, __all__ = load_lazily(__name__)
