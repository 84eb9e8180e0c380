"""The Spark session of a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

#: The master that spark-submit or SPARK_HOME names; without one, all cores of this machine.
DEFAULT_MASTER = "default"


@contextlib.contextmanager
def session(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Open a session, and stop it with the command."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("pylogseg")
    defaults = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    if master.startswith("sc://"):
        builder, defaults = builder.remote(master), {}  # Spark Connect: these are the server's
    elif master != DEFAULT_MASTER:
        builder = builder.master(master)
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()
