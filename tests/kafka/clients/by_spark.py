"""The capabilities by Spark's own Kafka source (`answers.py` says how it is called; the jars stand in SPARK_JARS)."""

from __future__ import annotations

import os
import tempfile
import warnings

import answers
from answers import by_topic, main, row
from pyspark.sql import SparkSession

warnings.filterwarnings("ignore")
_sessions = []


def session():
    """The one session."""
    if not _sessions:
        builder = SparkSession.builder.master("local[2]").config("spark.jars", os.environ["SPARK_JARS"])
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "512m",
            "spark.log.level": "OFF",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
        }.items():
            builder = builder.config(name, value)
        _sessions.append(builder.getOrCreate())
    return _sessions[0]


def options(bootstrap, topics, **more):
    """What the source needs."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(sorted(topics)),
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        **more,
    }


def row_of(each):
    """A record with all its fields."""
    headers = [(one.key, one.value) for one in each.headers or ()]
    stamp = int(each.millis)
    return row(each.partition, each.offset, stamp, each.timestampType, None, each.key, each.value, headers)


def read(bootstrap, topics, **more):
    """All records of a batch query."""
    frame = session().read.format("kafka").options(**options(bootstrap, topics, endingOffsets="latest", **more)).load()
    found = frame.selectExpr("*", "unix_millis(timestamp) as millis").collect()
    return by_topic(((each.topic, row_of(each)) for each in found), topics)


def records(bootstrap, spec):
    """All records."""
    return read(bootstrap, spec["topics"], **{"kafka.isolation.level": "read_uncommitted"})


def committed(bootstrap, spec):
    """The same with read_committed."""
    return read(bootstrap, spec["topics"], **{"kafka.isolation.level": "read_committed"})


def legacy(bootstrap, spec):
    """Records of formats 0 and 1."""
    return read(bootstrap, spec["legacy"])


def times(bootstrap, spec):
    """Records from a time on."""
    found = {}
    for moment in spec["times"][:3]:
        more = {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": "latest"}
        asked = options(bootstrap, spec["topics"], endingOffsets="latest", **more)
        asked.pop("startingOffsets")
        frame = session().read.format("kafka").options(**asked).load()
        rows = frame.groupBy("topic", "partition").agg({"offset": "min"}).collect()
        found[moment] = sorted(list(each) for each in rows)
    return found


def stream(bootstrap, spec):
    """All records of a query with the trigger AvailableNow, in batches of at most 2,000 records."""
    seen = []
    asked = options(bootstrap, spec["topics"], maxOffsetsPerTrigger="2000")
    frame = session().readStream.format("kafka").options(**asked).load()
    picked = frame.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) as millis")

    def keep(batch, number):
        seen.append(sorted(list(each) for each in batch.collect()))

    with tempfile.TemporaryDirectory() as folder:
        query = picked.writeStream.foreachBatch(keep).option("checkpointLocation", folder)
        query.trigger(availableNow=True).start().awaitTermination(150)
    return seen


CAPABILITIES = {
    "records": records,
    "committed": committed,
    "legacy": legacy,
    "times": times,
    "stream": stream,
}

if __name__ == "__main__":
    answers.LONGEST_S = 180.0
    session()  # which takes longer than all that is asked
    main(CAPABILITIES, None)
