#!/usr/bin/env python3
"""Spark's own Kafka source and ours, on one live broker and its files: equal rows, equal schemas, one checkpoint.

    spark_source.py GOLDEN [SCENARIO ...]

GOLDEN is the unpacked `golden/broker-4.3`; a broker is started on a copy of each SCENARIO (a folder of it; txn, codecs,
retention and compact-3-cleaned if none is named). For each of them,

1. every topic is read by `format("kafka")` and by `format("pylogseg")`, with both isolation levels, headers, offsets
   and times, and compared as Arrow tables with their schemas; internal topics, which Spark's source leaves out even
   where they are named, with what a consumer is given;
2. what one of them refuses has to be refused by the other;
3. a rate-limited stream of all topics has to end each batch at the same offsets, with the same rows.

With the first one, two streaming queries also go between the broker and its files by their checkpoints while producers
append (one begins at the broker, one at the files): each record has to come once.

Needs Java 17 and Maven, and a pyspark for which Maven has the connector (4.2.0 is the newest). Takes four minutes to
six for a scenario. Exit code 0 if all is well.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession, functions

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from helpers.spark_sessions import small_session

# A neighbour, which is no package:
from one_broker import Broker

HERE = Path(__file__).resolve().parent
SCENARIOS = ("txn", "codecs", "retention", "compact-3-cleaned")
ISOLATIONS = ("read_uncommitted", "read_committed")
COLUMNS = ("partition", "offset", "value")
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
    settings = {"spark.jars": jars(folder), "spark.sql.shuffle.partitions": "2"}
    return small_session(SparkSession.builder.master("local[2]"), folder, settings)


class CopiedBroker(Broker):
    """A broker on a copy of a scenario."""

    @property
    def directories(self) -> str:
        """Its log directories, as an option has them."""
        return json.dumps([str(self.folder / name) for name in ("data0", "data1")])

    @property
    def internal_topics(self) -> list[str]:
        """Those of its own topics that a consumer may read."""
        found = {path.name.rpartition("-")[0] for path in self.folder.glob("data?/__*-*")}
        return sorted(found - {"__cluster_metadata"})


def both(reader: Any, broker: CopiedBroker, options: dict[str, str]) -> tuple[Any, Any]:
    """The same read of both sources; `reader` is `spark.read` or `spark.readStream`, made anew for each."""
    kafka = reader().format("kafka").option("kafka.bootstrap.servers", broker.address).options(**options).load()
    files = reader().format("pylogseg").option("path", broker.directories).options(**options).load()
    return kafka, files


def extent(frame: Any, of: str, shift: int) -> dict[str, dict[str, int]]:
    """The largest offset or timestamp (in milliseconds) of each partition with records, shifted, as options have it."""
    found: dict[str, dict[str, int]] = {}
    number = functions.unix_millis(frame["timestamp"]) if of == "timestamp" else frame["offset"]
    for row in frame.groupBy("topic", "partition").agg(functions.max(number).alias("last")).collect():
        found.setdefault(row.topic, {})[str(row.partition)] = max(int(row.last) + shift, 0)
    return found


def assign(partitions: dict[str, dict[str, int]]) -> str:
    """Option `assign` for partitions; those without records are not named."""
    return json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in partitions.items()})


def reads(kafka: Any) -> dict[str, dict[str, str]]:
    """Options to compare, made from what the broker has."""
    ends = extent(kafka, "offset", -5)
    assigned = {"assign": assign(ends)}
    middle = json.dumps(extent(kafka, "offset", -20))
    moment = str(1_700_000_005_000)
    times = json.dumps(extent(kafka, "timestamp", -3000))
    return {
        "everything": {"subscribePattern": ".*"},
        "a part of a name": {"subscribePattern": min(ends)[1:-1]},
        "headers": {"subscribePattern": "|".join(sorted(ends)), "includeHeaders": "true"},
        "split": {"subscribePattern": ".*", "minPartitions": "40"},
        "capped": {"subscribePattern": ".*", "maxRecordsPerPartition": "50"},
        "offsets": {**assigned, "startingOffsets": middle, "endingOffsets": json.dumps(ends)},
        "what is left": {**assigned, "startingOffsets": json.dumps({t: dict.fromkeys(p, 0) for t, p in ends.items()}),
                         "failOnDataLoss": "false"},
        "a time": {"subscribePattern": ".*", "startingTimestamp": moment,
                   "startingOffsetsByTimestampStrategy": "latest"},
        "up to a time": {"subscribePattern": ".*", "endingTimestamp": moment},
        "times": {**assigned, "startingOffsetsByTimestamp": times},
        "the last times": {**assigned, "startingOffsetsByTimestamp": json.dumps(extent(kafka, "timestamp", 0)),
                           "startingOffsetsByTimestampStrategy": "latest"},
        "up to times": {**assigned, "endingOffsetsByTimestamp": times},
        "a time and offsets": {**assigned, "endingOffsetsByTimestamp": times, "endingOffsets": middle},
    }  # fmt: skip


def compare(spark: SparkSession, broker: CopiedBroker) -> int:
    """Read everything by both sources; how many reads differ."""
    different = 0
    kafka, _ = both(lambda: spark.read, broker, {"subscribePattern": ".*"})
    for name, options in reads(kafka).items():
        for isolation in ISOLATIONS:
            frames = both(lambda: spark.read, broker, {**options, "kafka.isolation.level": isolation})
            theirs, ours = (outcome(lambda frame=frame: frame) for frame in frames)
            if "refused" not in (theirs[0], ours[0]):
                different += not equal(f"{name}, {isolation}", *frames)
                continue
            different += theirs[0] != ours[0]
            print(f"  {name}, {isolation}: kafka {': '.join(theirs)}\n    pylogseg {': '.join(ours)}", flush=True)
    return different


def internal(spark: SparkSession, broker: CopiedBroker) -> int:
    """Read each internal topic by its name, and consume it; how many reads differ."""
    different = 0
    for topic in broker.internal_topics:
        for isolation in ISOLATIONS:
            options = {"subscribe": topic, "kafka.isolation.level": isolation}
            kafka, files = both(lambda: spark.read, broker, options)
            consumed = map(json.loads, broker("consume", topic, "--isolation", isolation).splitlines())
            expected = sorted(
                (
                    record["partition"],
                    record["offset"],
                    record["timestamp"],
                    _bytes(record["key"]),
                    _bytes(record["value"]),
                )
                for record in consumed
            )
            rows = files.select("partition", "offset", functions.unix_millis("timestamp"), "key", "value").collect()
            found = sorted((*row[:3], row.key, row.value) for row in rows)
            same = found == expected and kafka.isEmpty()
            print(f"  {topic}, {isolation}: {len(expected)} records, {'equal' if same else 'DIFFERENT'}", flush=True)
            different += not same
    return different


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def equal(name: str, kafka: Any, files: Any) -> bool:
    """Whether two DataFrames have the same schema and rows; says so, and what differs first."""
    expected, found = (frame.toArrow().sort_by(KEYS) for frame in (kafka, files))
    same = bool(kafka.schema == files.schema and expected.equals(found))
    print(f"  {name}: {len(expected)} rows, {'equal' if same else 'DIFFERENT'}", flush=True)
    if not same:
        if kafka.schema != files.schema:
            print(f"    schemas: {kafka.schema.simpleString()} and {files.schema.simpleString()}")
        rows = zip(expected.to_pylist(), found.to_pylist(), strict=False)
        first = next((row for row in rows if row[0] != row[1]), None)
        print(f"    {len(found)} rows of ours; first difference: {first}")
    return same


def odd_options(topic: str, partitions: dict[str, int]) -> list[dict[str, str]]:
    """Options that make no sense, or do not fit the topic."""
    one, behind = json.dumps({topic: {"0": 0}}), json.dumps({topic: dict.fromkeys(partitions, 10**9)})
    late, all_at = str(99_999_999_999_999), json.dumps({topic: dict.fromkeys(partitions, 1)})
    of_topic: list[dict[str, str]] = [
        {"startingOffsets": "latest"}, {"startingOffsets": "soon"}, {"startingOffsets": behind},
        {"startingOffsets": json.dumps({topic: dict.fromkeys(partitions, -1)})},
        {"startingOffsets": json.dumps({topic: dict.fromkeys(partitions, -3)})},
        {"startingOffsets": behind, "failOnDataLoss": "false"},
        {"endingOffsets": "earliest"}, {"endingOffsets": json.dumps({topic: dict.fromkeys(partitions, -2)})},
        {"endingOffsets": behind}, {"endingOffsets": behind, "failOnDataLoss": "false"},
        {"startingOffsets": behind, "endingOffsets": all_at},
        {"startingTimestamp": late}, {"startingTimestamp": "now"},
        {"startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"},
        {"startingTimestamp": "2000", "endingTimestamp": "1000"},
        {"startingOffsetsByTimestampStrategy": "never"}, {"kafka.isolation.level": "read_none"},
        {"minPartitions": "0"}, {"minPartitions": "many"}, {"maxRecordsPerPartition": "0"},
        {"failOnDataLoss": "maybe"}, {"includeHeaders": "maybe"}, {"subscribePattern": ".*"}, {"assign": one},
    ]  # fmt: skip
    if len(partitions) > 1:
        of_topic += [{"startingOffsets": one}, {"endingOffsets": one}, {"startingOffsetsByTimestamp": one}]
    return [
        *({"subscribe": topic, **options} for options in of_topic),
        {"subscribe": "no-such-topic"}, {"subscribePattern": "no-such-.*"}, {"subscribePattern": "("},
        {"subscribe": ""}, {"assign": topic},
    ]  # fmt: skip


def refused_here_only(topic: str) -> list[dict[str, str]]:
    """What the Kafka source takes in silence: a time that it means as `latest`, a partition that is not there."""
    return [{"subscribe": topic, "startingTimestamp": "-1"}, {"assign": json.dumps({topic: [0, 77]})}]


def outcome(frame: Any) -> tuple[str, str]:
    """What comes of a read: so many rows, or a refusal and the words of it."""
    try:
        return f"{frame().count()} rows", ""
    except Exception as error:  # any: what is refused, and how, is the question
        lines = [line for line in str(error).splitlines() if "Error" in line or "Exception" in line]
        return "refused", (lines or str(error).splitlines() or [repr(error)])[-1].strip()[:300]


def refusals(spark: SparkSession, broker: CopiedBroker) -> int:
    """Try odd options on both sources; how many came out otherwise."""
    kafka, _ = both(lambda: spark.read, broker, {"subscribePattern": ".*"})
    topic, partitions = max(extent(kafka, "offset", 0).items(), key=lambda item: (len(item[1]), item[0]))
    alike, stricter = odd_options(topic, partitions), refused_here_only(topic)
    refused = different = 0
    spark.sparkContext.setLogLevel("OFF")  # it would print each refusal as well
    for options in alike + stricter:
        quick = {**options, "kafkaConsumer.pollTimeoutMs": "3000"}
        theirs, ours = (
            outcome(lambda options=quick, which=which: both(lambda: spark.read, broker, options)[which])
            for which in (0, 1)
        )
        refused += ours[0] == "refused"
        if (theirs[0] == ours[0]) == (options in stricter):
            different += 1
            print(f"  {options}\n    kafka: {': '.join(theirs)}\n    pylogseg: {': '.join(ours)}", flush=True)
    spark.sparkContext.setLogLevel("ERROR")
    print(
        f"  {len(alike + stricter)} odd options, {refused} refused here ({len(stricter)} here only): "
        f"{different} come out otherwise than expected",
        flush=True,
    )
    return different


def stream(frame: Any, folder: Path) -> tuple[int, list[Any]]:
    """Run a query over what is there, into Parquet; how many rows came, and where the batches of its checkpoint end."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()
    logs = [path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdecimal()]
    ends = [json.loads(path.read_text().splitlines()[-1]) for path in sorted(logs, key=lambda path: int(path.name))]
    return sum(progress["numInputRows"] for progress in query.recentProgress), ends


def batches(spark: SparkSession, broker: CopiedBroker, folder: Path) -> int:
    """The same rate-limited query by both sources: rows, and the end of each batch; how many differ."""
    different = 0
    for isolation in ISOLATIONS:
        options = {"subscribePattern": ".*", "startingOffsets": "earliest", "includeHeaders": "true",
                   "maxOffsetsPerTrigger": "157", "kafka.isolation.level": isolation}  # fmt: skip
        frames, ends = [], []
        for kind, frame in zip(("kafka", "pylogseg"), both(lambda: spark.readStream, broker, options), strict=True):
            place = folder / f"stream-{isolation}-{kind}"
            ends.append(stream(frame, place)[1])
            frames.append(spark.read.parquet(str(place / "rows")))
        same = ends[0] == ends[1]
        print(f"  {len(ends[0])} batches, {'equal ends' if same else f'OTHER ENDS: {ends}'}", flush=True)
        different += (not same) + (not equal(f"a stream, {isolation}", *frames))
    return different


def move(spark: SparkSession, broker: CopiedBroker, folder: Path, first: str) -> int:
    """One query that goes between the broker and its files; how many records were lost or doubled."""
    topic, place = f"moves-{first}", folder / f"moves-{first}"
    broker("client", "create-topic", topic, 2)
    for run in range(4):
        broker("client", "produce", topic, 300, f"{first}{run}")
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "250",
                   "kafka.isolation.level": "read_committed"}  # fmt: skip
        kafka, files = both(lambda: spark.readStream, broker, options)
        theirs = (first == "kafka") == (run % 2 == 0)
        count, ends = stream((kafka if theirs else files).select(*COLUMNS), place)
        print(f"  {'kafka' if theirs else 'pylogseg'}: {count} rows, {len(ends)} batches so far", flush=True)
    written = spark.read.parquet(str(place / "rows")).collect()
    kafka, _ = both(lambda: spark.read, broker, {"subscribe": topic, "kafka.isolation.level": "read_committed"})
    there = kafka.select(*COLUMNS).collect()
    doubled, lost = len(written) - len(set(written)), len(set(there) - set(written))
    print(f"  {len(there)} records: {lost} lost, {doubled} doubled", flush=True)
    return doubled + lost


def main(arguments: list[str]) -> int:
    """Compare all scenarios, then move a query."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    golden, *names = arguments
    missing = [name for name in names or SCENARIOS if not any(Path(golden, name).glob("data?"))]
    if missing:
        print(f"no data directories of {', '.join(missing)} in {golden}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-spark-"))
    warnings.simplefilter("ignore")  # options of a broker have no effect on files
    spark = session(folder)
    wrong = 0
    try:
        for name in names or SCENARIOS:
            broker = CopiedBroker(folder / name)
            for directory in Path(golden, name).glob("data?"):
                shutil.copytree(directory, broker.folder / directory.name)
            if name == "txn-old":  # its metadata log is older than controllers that find each other
                (broker.folder / "run").mkdir()
                (broker.folder / "run" / "static").touch()
            broker("start")
            try:
                print(name, flush=True)
                wrong += internal(spark, broker) + compare(spark, broker) + refusals(spark, broker)
                wrong += batches(spark, broker, broker.folder)
                if name == (names or SCENARIOS)[0]:
                    for first in ("kafka", "pylogseg"):
                        print(f"a stream between the broker and its files, {first} first", flush=True)
                        wrong += move(spark, broker, folder, first)
            finally:
                broker("stop")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Spark {pyspark.__version__}: " + ("all equal" if not wrong else f"{wrong} differences"))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
