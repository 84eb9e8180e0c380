"""The Spark session of a command."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pylogseg.errors import RequestError

#: The master that spark-submit or SPARK_HOME names; without one, all cores of this machine.
DEFAULT_MASTER = "default"


@contextlib.contextmanager
def session(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Open a session, and stop it with the command; RequestError if there is none at this master."""
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
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # of pyspark, py4j or grpc
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        has_java = "JAVA_HOME" in os.environ or shutil.which("java") is not None or master.startswith("sc://")
        remedy = "" if has_java else "; it needs Java: set JAVA_HOME, or put java on the path"
        raise RequestError(f"no session of Spark at {master}: {first}{remedy}") from error
    try:
        yield spark
    finally:
        spark.stop()
