"""Tests of cli/lake.py. `lake --follow` beside a broker to which clients write transactions, and which compacts and
deletes.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import wait_for
from helpers.lake_tables import log_rows, name_of, plain, rows_of

import pylogseg
from pylogseg.owned.manager.settings import BrokerSettings

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

PATIENCE_S = 60
CONFIG = {"cleanup.policy": "compact,delete", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
#: Offsets below the end of a table that stay in the log.
KEPT = 40


def following(data: Path, table: str) -> subprocess.Popen[str]:
    """Another process that keeps a table up to date."""
    words = [sys.executable, "-m", "pylogseg", "lake", str(data), "orders", table, "--follow", "--every", "100ms"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


class Writer:
    """Two producers whose transactions overlap, each with its own keys and values; `committed` by place."""

    def __init__(self, servers: str) -> None:
        self.random, self.number = random.Random(5), 0
        self.committed: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}
        self.aborted = 0
        self._producers = [
            confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"t{i}", "linger.ms": 0})
            for i in range(2)
        ]
        for each in self._producers:
            each.init_transactions(PATIENCE_S)

    def round(self) -> None:
        """Begin two transactions, write to both partitions, end them in any order, each as it comes."""
        written: list[list[Any]] = [[], []]
        for each in self._producers:
            each.begin_transaction()
        for n in range(20):
            which, self.number = n % 2, self.number + 1
            value = None if n % 7 == 0 else b"%d" % self.number
            told = functools.partial(self._told, written[which])
            key = b"k%d" % self.random.randrange(8)
            self._producers[which].produce("orders", value, key, n // 2 % 2, on_delivery=told)
        for each in self._producers:
            assert each.flush(PATIENCE_S) == 0
        for which in self.random.sample((0, 1), 2):
            if self.random.random() < 0.3:
                self._producers[which].abort_transaction(PATIENCE_S)
                self.aborted += len(written[which])
            else:
                self._producers[which].commit_transaction(PATIENCE_S)
                self.committed.update(written[which])

    @staticmethod
    def _told(written: list[Any], error: Any, message: Any) -> None:
        assert error is None, error
        written.append(((message.partition(), message.offset()), (message.key(), message.value())))


@pytest.mark.long
def test_tables_beside_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each committed record once, none that was aborted; each that is in the log is in the tables."""
    often = functools.partial(BrokerSettings, log_cleaner_backoff_ms=20)
    monkeypatch.setattr("pylogseg.server.writing.directory.BrokerSettings", often)
    data, tables = tmp_path / "data", [name_of(kind, tmp_path / kind, "orders") for kind in ("delta", "iceberg")]
    with pylogseg.Broker(data) as broker:
        broker.create_topic("orders", 2, CONFIG)
        writer, client = (
            Writer(broker.bootstrap_servers),
            admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers}),
        )
        writer.round()
        running = [following(data, table) for table in tables]
        for number in range(12):
            writer.round()
            # A third and a fourth run beside those that follow.
            ends = [pylogseg.lake(data, table, "orders")[0].offsets for table in tables]
            for partition in range(2) if number > 5 else ():
                least = min(each.get(partition, (0, 0))[1] for each in ends) - KEPT
                place = confluent_kafka.TopicPartition("orders", partition, max(least, 0))
                next(iter(client.delete_records([place]).values())).result(PATIENCE_S)
            time.sleep(0.1)
        wait_for(lambda: len(list(data.glob("orders-0/*.log"))) < 12)
        for each in running:
            each.send_signal(signal.SIGINT)
        said = [each.communicate(timeout=PATIENCE_S) for each in running]
        assert [each.returncode for each in running] == [130, 130], said
    for table in tables:
        pylogseg.lake(data, table, "orders")
        rows = plain(rows_of(table))
        found = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
        assert len(found) == len(rows)
        assert found.items() <= writer.committed.items()
        there = log_rows(data, "orders")
        assert {(row["partition"], row["offset"]) for row in there} <= found.keys()
        audit = pylogseg.audit(data, table, "orders")
        assert audit.is_right, audit
        assert sum(each.unchecked["compacted"] for each in audit.partitions) > 0
        assert len(there) < len(found) <= len(writer.committed)
    assert writer.aborted > 0
