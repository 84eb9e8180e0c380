#!/usr/bin/env python3
"""Tables that others write from a live broker, audited against its disk: Connect's Iceberg sink, Spark's Kafka source.

    table_sinks.py connect [nested]   a worker of Connect with Iceberg's sink, killed twice while it writes; offsets in
                                      a flat column, or in a struct
    table_sinks.py spark              batches of Spark's Kafka source to Parquet, one of them twice

Producers write to three partitions: plain records, committed and aborted transactions, null keys and null values. Of
each sink there are two: one reads committed records, one all. What a consumer gets says what the tables must have:
`audit` has to find each record once in the first, tombstones aside where the sink writes none; in the other the aborted
records, all of them and nothing else. With `spark` the batch that was written twice has to be double.

Needs Java 17, Maven and confluent-kafka; `spark` a pyspark for which Maven has the connector (see spark_source.py).
Two minutes each. Exit code 0 if all is well.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as kafka

import pylogseg
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.audit_result import Audit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1]))

from one_broker import Broker  # noqa: E402  (a neighbour, which is no package)

TOPIC = "orders"
ISOLATIONS = ("committed", "uncommitted")
_DAY_MS = 86_400_000


def produce(servers: str, first: int, count: int) -> None:
    """Write records: of ten, two are plain, five of a transaction that is committed, three of one that is aborted."""
    plain = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
    writer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": "orders", "linger.ms": 5})
    writer.init_transactions()
    for start in range(first, first + count, 100):
        for share, producer, ends in ((2, plain, None), (5, writer, "commit"), (3, writer, "abort")):
            if ends:
                writer.begin_transaction()
            for number in range(start, start + 10 * share):
                # The sink makes no table of a null value that comes first.
                value = None if number % 17 == 16 else json.dumps({"id": number, "share": share, "text": "x" * 50})
                producer.produce(
                    TOPIC, value, None if number % 5 == 0 else f"{number % 7}", number % 3,
                    timestamp=1_700_000_000_000 + number * _DAY_MS // 4000,
                )  # fmt: skip
            producer.flush()
            if ends:
                getattr(writer, f"{ends}_transaction")()


def consumed(servers: str, isolation: str) -> dict[tuple[int, int], bool]:
    """Partition and offset of each record that a consumer gets, and whether it is a tombstone."""
    consumer = kafka.Consumer({
        "bootstrap.servers": servers, "group.id": f"check-{isolation}", "isolation.level": f"read_{isolation}",
        "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([kafka.TopicPartition(TOPIC, number, 0) for number in range(3)])
    found: dict[tuple[int, int], bool] = {}
    left = 3
    while left:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            left -= 1
        else:
            found[message.partition(), message.offset()] = message.value() is None
    consumer.close()
    return found


def said(found: Audit) -> str:
    """The sums of an audit, without zeros."""
    row = to_row(found)
    counts = {name: row[name] for name in ("rows", "present", "double", "changed")}
    for about in ("missing", "foreign", "unchecked"):
        counts |= {f"{about}.{name}": count for name, count in row[about].items()}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def check(what: str, found: Audit, rows: int, expected: dict[tuple[int, int], bool], aborted: int, double: int) -> bool:
    """Compare what an audit says with what consumers got."""
    tombstones = 0 if found.columns.has_tombstones else sum(expected.values())
    row = to_row(found)
    wanted = {
        "rows": rows,
        "present": len(expected) - tombstones,
        "lost": 0,
        "tombstone": tombstones,
        "aborted": aborted,
        "double": double,
        "changed": 0,
        "whole": True,
    }
    got = {
        "lost": row["missing"]["lost"],
        "tombstone": row["missing"]["tombstone"],
        "aborted": row["foreign"]["aborted"],
        **{name: row[name] for name in ("rows", "present", "double", "changed", "whole")},
    }
    others = sum(row["foreign"].values()) - row["foreign"]["aborted"]
    is_well = got == wanted and not others and row["right"] == (not aborted and not double)
    print(f"{what}: {said(found)}: {'as consumers say' if is_well else f'EXPECTED {wanted}'}", flush=True)
    return is_well


def audited(broker: Broker, table: Any) -> Audit:
    """Audit a table of all that the broker's disks have."""
    return pylogseg.audit([broker.folder / "data0", broker.folder / "data1"], table, TOPIC, complete=True)


# ---- Connect ----


def connect_jars(folder: Path) -> Path:
    """The worker, the sink and what they need."""
    target = folder / "jars"
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(HERE / "connect-pom.xml"),
         "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies", f"-DoutputDirectory={target}"],
        check=True, timeout=600,
    )  # fmt: skip
    return target


def sink(folder: Path, servers: str, isolation: str, *, nested: bool) -> Path:
    """The settings of a sink."""
    settings = {
        "name": isolation,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": 2,
        "topics": TOPIC,
        "consumer.override.isolation.level": f"read_{isolation}",
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.tables": f"kafka.{isolation}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": (folder / "warehouse").as_uri(),
        "iceberg.control.topic": f"control-{isolation}",
        "iceberg.control.group-id-prefix": f"cg-control-{isolation}",
        "iceberg.control.commit.interval-ms": 3000,
        "iceberg.control.commit.timeout-ms": 10000,
        "iceberg.kafka.bootstrap.servers": servers,
        "transforms": "metadata",
        "transforms.metadata.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        "transforms.metadata.nested": str(nested).lower(),  # for both: it is a static field of the transformation
    }
    path = folder / f"{isolation}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@contextlib.contextmanager
def worker(folder: Path, jars: Path, servers: str, by: signal.Signals, *, nested: bool) -> Iterator[None]:
    """A worker of Connect with both sinks, ended by a signal."""
    settings = folder / "worker.properties"
    settings.write_text(
        f"bootstrap.servers={servers}\nkey.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n"
        "value.converter=org.apache.kafka.connect.json.JsonConverter\nvalue.converter.schemas.enable=false\n"
        f"offset.storage.file.filename={folder}/offsets\noffset.flush.interval.ms=2000\nlisteners=http://127.0.0.1:0\n"
    )
    sinks = [str(sink(folder, servers, isolation, nested=nested)) for isolation in ISOLATIONS]
    with open(folder / "worker.log", "ab") as log:
        process = subprocess.Popen(
            ["java", "-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
             "org.apache.kafka.connect.cli.ConnectStandalone", str(settings), *sinks],
            stdout=log, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
        try:
            yield
            if process.poll() is not None:
                sys.exit(f"the worker has ended: {(folder / 'worker.log').read_text()[-3000:]}")
        finally:
            process.send_signal(by)
            process.wait(60)


def rows_in(folder: Path, isolation: str) -> int:
    """How many rows a table of the sink has now."""
    with contextlib.suppress(pylogseg.errors.PylogsegError, ValueError):  # none yet
        from pyiceberg.table import StaticTable

        found = sorted((folder / "warehouse" / "kafka" / isolation / "metadata").glob("v*.metadata.json"),
                       key=lambda path: int(path.name[1:].partition(".")[0]))  # fmt: skip
        snapshot = StaticTable.from_metadata(str(found[-1])).current_snapshot() if found else None
        if snapshot is not None and snapshot.summary is not None:
            return int(snapshot.summary.additional_properties["total-records"])
    return 0


def connect(folder: Path, broker: Broker) -> bool:
    """Let Connect's sink write both tables, kill it twice in between, and audit them."""
    jars, nested = connect_jars(folder), sys.argv[2:] == ["nested"]
    for isolation in ISOLATIONS:
        broker("client", "create-topic", f"control-{isolation}", 1)
    servers = broker.address
    for first in (0, 4000):
        with worker(folder, jars, servers, signal.SIGKILL, nested=nested):
            produce(servers, first, 4000)
            wait(folder, {isolation: rows_in(folder, isolation) + 1 for isolation in ISOLATIONS}, 120)
    everything = {isolation: consumed(servers, isolation) for isolation in ISOLATIONS}
    rows = {isolation: len(of) - sum(of.values()) for isolation, of in everything.items()}
    with worker(folder, jars, servers, signal.SIGTERM, nested=nested):
        wait(folder, rows, 180)
    broker("stop")
    good, every = (everything[isolation] for isolation in ISOLATIONS)
    aborted = sum(not is_null for place, is_null in every.items() if place not in good)
    tables = [folder / "warehouse" / "kafka" / isolation for isolation in ISOLATIONS]
    return all([
        check("read_committed", audited(broker, tables[0]), rows["committed"], good, 0, 0),
        check("read_uncommitted", audited(broker, tables[1]), rows["uncommitted"], good, aborted, 0),
    ])  # fmt: skip


def wait(folder: Path, rows: dict[str, int], seconds: int) -> None:
    """Wait until tables have so many rows."""
    until = time.monotonic() + seconds
    while any(rows_in(folder, isolation) < count for isolation, count in rows.items()):
        if time.monotonic() > until:
            have = {isolation: rows_in(folder, isolation) for isolation in rows}
            sys.exit(f"{have} rows, expected {rows}: {(folder / 'worker.log').read_text()[-3000:]}")
        time.sleep(0.5)


# ---- Spark ----


def spark(folder: Path, broker: Broker) -> bool:
    """Let Spark's Kafka source write three batches to a table for each isolation, one of them twice."""
    from spark_source import session

    running, servers = session(folder), broker.address
    produce(servers, 0, 6000)
    everything = {isolation: consumed(servers, isolation) for isolation in ISOLATIONS}
    good, every = (everything[isolation] for isolation in ISOLATIONS)
    aborted = sum(place not in good for place in every)
    is_well = True
    for isolation, of in everything.items():
        table = folder / isolation
        for first, end in ((0, 700), (700, 1500), (700, 1500), (1500, -1)):
            ends = {"startingOffsets": first, "endingOffsets": end}
            options = {name: json.dumps({TOPIC: dict.fromkeys("012", at)}) for name, at in ends.items()}
            frame = running.read.format("kafka").options(
                **options, **{"subscribe": TOPIC, "kafka.bootstrap.servers": servers,
                              "kafka.isolation.level": f"read_{isolation}"}
            ).load()  # fmt: skip
            frame.write.mode("append").parquet(str(table))
        double = sum(700 <= offset < 1500 for _, offset in of)
        strange = aborted if isolation == "uncommitted" else 0
        is_well &= check(f"read_{isolation}", audited(broker, table), len(of) + double, good, strange, double)
    running.stop()
    return is_well


def main() -> None:
    what = {"connect": connect, "spark": spark}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="pylogseg-sinks-") as name:
        folder = Path(name)
        broker = Broker(folder / "broker")
        broker("start")
        try:
            broker("client", "create-topic", TOPIC, 3)
            is_well = what(folder, broker)
        finally:
            if (folder / "broker" / "run" / "pid").exists():
                with contextlib.suppress(SystemExit):
                    broker("kill")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
