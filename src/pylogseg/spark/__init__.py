"""Segments as Spark tables and streams: `spark.read.format("pylogseg")`, and functions on the same plans."""
