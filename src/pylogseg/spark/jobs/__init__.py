"""Spark jobs for whole disks: records stay in the workers, and a table of results is returned."""

from pylogseg._lazy import offered

__getattr__, __dir__, __all__ = offered(__name__)
