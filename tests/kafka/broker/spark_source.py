#!/usr/bin/env python3
"""Spark's own Kafka source and ours, on one live broker and its files: equal rows, equal schemas, one checkpoint.

    spark_source.py GOLDEN [SCENARIO ...]

GOLDEN is the unpacked `golden/broker-4.3`; a broker is started on a copy of each SCENARIO (txn, codecs and retention
if none is named). Every topic is read by `format("kafka")` and by `format("pylogseg")` with both isolation levels,
headers, offsets and times, and compared as Arrow tables. Then one streaming query goes from the broker to the files and
back with its checkpoint while a producer appends: each record has to come once.

Needs Java 17 and Maven, and a pyspark for which Maven has the connector (4.2.0 is the newest). Takes some minutes. Exit
code 0 if all is well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
SCENARIOS = ("txn", "codecs", "retention")
KEYS = [(name, "ascending") for name in ("topic", "partition", "offset")]


def jars(folder: Path) -> str:
    """The connector of this version of Spark and what it needs, as Spark wants them named."""
    target = folder / "jars"
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(HERE / "spark-pom.xml"), f"-Dspark.version={pyspark.__version__}",
         "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies", f"-DoutputDirectory={target}"],
        check=True, timeout=600,
    )  # fmt: skip
    return ",".join(map(str, sorted(target.glob("*.jar"))))


def session(folder: Path) -> SparkSession:
    """A session with the connector."""
    os.environ |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.jars": jars(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Broker:
    """broker.sh on a copy of a scenario."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, *arguments: object) -> str:
        """Run a command of broker.sh; what it prints."""
        parts = ["bash", HERE / "broker.sh", command, self.folder, *arguments]
        done = subprocess.run(list(map(str, parts)), capture_output=True, encoding="utf-8", check=False, timeout=600)
        if done.returncode:
            sys.exit(f"broker.sh {command}: {done.stderr[-3000:]}")
        return done.stdout

    @property
    def servers(self) -> str:
        """Address."""
        return f"127.0.0.1:{(self.folder / 'run' / 'port').read_text().strip()}"

    @property
    def directories(self) -> str:
        """Its log directories, as an option has them."""
        return json.dumps([str(self.folder / name) for name in ("data0", "data1")])


def both(reader: Any, broker: Broker, options: dict[str, str]) -> tuple[Any, Any]:
    """The same read of both sources; `reader` is `spark.read` or `spark.readStream`, made anew for each."""
    kafka = reader().format("kafka").option("kafka.bootstrap.servers", broker.servers).options(**options).load()
    files = reader().format("pylogseg").option("path", broker.directories).options(**options).load()
    return kafka, files


def reads(kafka: Any) -> dict[str, dict[str, str]]:
    """Options to compare, made from what all records look like: the middle of each partition, and a time in between."""
    rows = kafka.groupBy("topic", "partition").agg({"offset": "max", "timestamp": "max"}).collect()
    middle: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for row in rows:
        last = row["max(offset)"]
        middle.setdefault(row.topic, {})[str(row.partition)] = max(last - 20, 0)
        ends.setdefault(row.topic, {})[str(row.partition)] = max(last - 5, 0)
    pattern = "|".join(sorted(middle))
    # Partitions without records are not named, so each topic is assigned by its numbers.
    assigned = json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in middle.items()})
    moment = str(1_700_000_005_000)
    return {
        "everything": {"subscribePattern": ".*"},
        "headers": {"subscribePattern": pattern, "includeHeaders": "true"},
        "split": {"subscribePattern": ".*", "minPartitions": "40"},
        "offsets": {"assign": assigned, "startingOffsets": json.dumps(middle), "endingOffsets": json.dumps(ends)},
        "a time": {"subscribePattern": ".*", "startingTimestamp": moment,
                   "startingOffsetsByTimestampStrategy": "latest"},
        "up to a time": {"subscribePattern": ".*", "endingTimestamp": moment},
    }  # fmt: skip


def compare(spark: SparkSession, broker: Broker) -> int:
    """Read everything by both sources; how many reads differ."""
    different = 0
    everything, _ = both(lambda: spark.read, broker, {"subscribePattern": ".*"})
    for name, options in reads(everything).items():
        for isolation in ("read_uncommitted", "read_committed"):
            kafka, files = both(lambda: spark.read, broker, {**options, "kafka.isolation.level": isolation})
            expected, found = (frame.toArrow().sort_by(KEYS) for frame in (kafka, files))
            same = kafka.schema == files.schema and expected.equals(found)
            different += not same
            print(f"  {name}, {isolation}: {len(expected)} rows, {'equal' if same else 'DIFFERENT'}", flush=True)
            if not same:
                show(kafka.schema, files.schema, expected, found)
    return different


def show(theirs: Any, ours: Any, expected: Any, found: Any) -> None:
    """What differs first."""
    if theirs != ours:
        print(f"    schemas: {theirs.simpleString()} and {ours.simpleString()}")
    rows = zip(expected.to_pylist(), found.to_pylist(), strict=False)
    print(f"    {len(found)} rows of ours; first difference: {next((row for row in rows if row[0] != row[1]), None)}")


def move(spark: SparkSession, broker: Broker, folder: Path) -> int:
    """One query that reads the broker, then its files, then the broker; how many records were lost or doubled."""
    broker("client", "create-topic", "moves", 2)
    for number, kind in enumerate(("kafka", "pylogseg", "kafka", "pylogseg")):
        broker("client", "produce", "moves", 300, f"run{number}")
        options = {"subscribe": "moves", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "250"}
        kafka, files = both(lambda: spark.readStream, broker, options)
        frame = (kafka if kind == "kafka" else files).select("partition", "offset", "value")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(folder / "out"))
        query.awaitTermination()
        print(f"  {kind}: {sum(progress['numInputRows'] for progress in query.recentProgress)} rows", flush=True)
    written = spark.read.parquet(str(folder / "out")).collect()
    kafka, _ = both(lambda: spark.read, broker, {"subscribe": "moves"})
    there = kafka.select("partition", "offset", "value").collect()
    doubled, lost = len(written) - len(set(written)), len(set(there) - set(written))
    print(f"  {len(there)} records: {lost} lost, {doubled} doubled", flush=True)
    return doubled + lost


def main(arguments: list[str]) -> int:
    """Compare all scenarios, then move a query."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    golden, *names = arguments
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-spark-"))
    spark = session(folder)
    wrong = 0
    try:
        for name in names or SCENARIOS:
            broker = Broker(folder / name)
            for directory in Path(golden, name).glob("data?"):
                shutil.copytree(directory, broker.folder / directory.name)
            broker("start")
            try:
                print(f"{name}: by offset, time, isolation", flush=True)
                wrong += compare(spark, broker)
                if name == (names or SCENARIOS)[0]:
                    print("a stream from the broker to its files and back", flush=True)
                    wrong += move(spark, broker, folder)
            finally:
                broker("stop")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Spark {pyspark.__version__}: " + ("all equal" if not wrong else f"{wrong} differences"))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
