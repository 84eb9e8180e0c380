"""Found by Spark itself: it imports modules of this name's beginning, and registers their `DefaultSource`."""

from pylogseg.spark.source import PylogsegSource as DefaultSource

__all__ = ["DefaultSource"]
