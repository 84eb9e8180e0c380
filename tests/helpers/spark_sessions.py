"""Spark sessions for tests and benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def small_session(builder: Any, scratch: Path, settings: Mapping[str, str]) -> Any:
    """Begin a session that takes little of the machine, listens on the loopback alone and runs this Python.

    Parameters
    ----------
    builder : SparkSession.Builder
        With its master and its name.
    scratch : Path
        Folder for what Spark writes by itself.
    settings : mapping of str to str
        Besides those that all have, or in place of them.

    Returns
    -------
    pyspark.sql.SparkSession
    """
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
