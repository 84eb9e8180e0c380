"""Groups and transactions of a report, by Kafka's own topics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pylogseg.disk.disk import Disk, Partition
from pylogseg.errors import CorruptionError, PylogsegError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.files.properties import parse_properties
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.inspect.stats.listing import shown_path
from pylogseg.reporting.commands import line
from pylogseg.reporting.facts import Command, FindingFact
from pylogseg.reporting.lags import group_rows, offset_rows
from pylogseg.values.internal import groups, transactions
from pylogseg.values.internal.cluster_state import cluster_state
from pylogseg.values.internal.producers import ProducerRow

#: Rows that are listed.
MOST_OFFSETS, MOST_GROUPS, MOST_TRANSACTIONS, MOST_REPLICAS = 5000, 1000, 1000, 5000


class ClusterFacts:
    """Reads the tables of `pylogseg.cluster_state` once; `notes` name the unreadable parts."""

    def __init__(self, disk: Disk, now_ms: int) -> None:
        self._disk, self._now_ms = disk, now_ms
        self._state = cluster_state(disk)
        self._errors: list[str] = []
        self._open: list[dict[str, Any]] = []
        self._paths = [shown_path(log_dir.files, log_dir.path) for log_dir in disk.log_dirs]

    @property
    def notes(self) -> list[str]:
        """Parts that were left out of the tables, and parts that could not be read."""
        return [*self._state.notes, *self._errors]

    @cached_property
    def _transactional(self) -> list[dict[str, Any]]:
        return self._rows("transactions") if transactions.TOPIC in self._disk.topics else []

    @property
    def names(self) -> dict[int, str]:
        """Transactional ids by producer."""
        return {row["producerId"]: row["transactionalId"] for row in self._transactional}

    def _rows(self, table: str) -> list[dict[str, Any]]:
        try:
            return self._state.rows(table)
        except PylogsegError as error:
            self._errors.append(f"{table}: {error}")
            return []

    def open_of(self, partition: Partition, producers: Sequence[ProducerRow]) -> tuple[dict[str, Any], ...]:
        """Return the transactions that are open in a partition, by its producers."""
        rows_of = {row["producerId"]: row for row in self._transactional}
        rows = tuple(
            self._open_row(transactions.open_row(partition.topic, partition.partition, producer, rows_of, self._now_ms))
            for producer in producers
            if producer.first_txn_offset >= 0
        )
        self._open += rows
        return rows

    def _open_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        shown = [Command("show", line("pylogseg", "transactions", *self._paths, "--open"))] if self._paths else []
        if row["abortCommand"]:
            shown.append(Command("mend", row["abortCommand"], "of Kafka's own tools, with a running cluster"))
        shown_row = {name: row[name] for name in _OF_OPEN}
        named = {name: row[name] and printable(row[name]) for name in ("topic", "transactionalId")}
        return {**shown_row, **named, "commands": shown}

    def tables(self) -> dict[str, Any]:
        """Return the facts of groups and transactions, by their names in `Facts`."""
        rows = self._rows("groups") if groups.TOPIC in self._disk.topics else []
        offsets, left = offset_rows(self._rows("group_offsets") if rows else [], self._state, self._now_ms)
        self._errors += [left] if left else []
        shown = {row["group"]: self._commands_of(row["group"]) for row in rows}
        return {
            "groups": tuple(group_rows(rows, offsets, shown)[:MOST_GROUPS]),
            "group_offsets": tuple(offsets[:MOST_OFFSETS]),
            "group_offsets_not_listed": max(0, len(offsets) - MOST_OFFSETS),
            "transactions": tuple(_transaction(row) for row in self._transactional[:MOST_TRANSACTIONS]),
            "open_transactions": tuple(self._open[:MOST_TRANSACTIONS]),
            **self._metadata(),
        }

    def _metadata(self) -> dict[str, Any]:
        """Return the replicas and the settings of topics, where the metadata is on the disk."""
        if METADATA_TOPIC not in self._disk.topics:
            return {}
        rows = [_replicas(row) for row in self._rows("partitions")]
        rows.sort(
            key=lambda row: (row["leader"] is not None, not row["isUnderReplicated"], row["topic"], row["partition"])
        )
        settings = (
            {
                "topic": printable(row["resource"]),
                "name": row["name"],
                "value": None if row["isSecret"] else printable(row["value"]),
            }
            for row in self._rows("configs")
            if row["resourceType"] == "TOPIC"
        )
        return {
            "replicas": tuple(rows[:MOST_REPLICAS]),
            "replicas_not_listed": max(0, len(rows) - MOST_REPLICAS),
            "topic_settings": tuple(settings),
        }

    def _commands_of(self, group: str) -> tuple[Command, ...]:
        return (Command("show", line("pylogseg", "groups", *self._paths, group, "--lag")),)

    def advice(self) -> Iterator[FindingFact]:
        for row in self._open:
            if row["hanging"]:
                reason = (
                    f"the transaction of producer {row['producerId']} from offset {row['startOffset']} on hangs: "
                    "consumers with read_committed and compaction stop there"
                )
                yield FindingFact(
                    level="advice",
                    kind="hanging-transaction",
                    reason=reason,
                    remedy="abort it with kafka-transactions.sh",
                    path=f"{row['topic']}-{row['partition']}",
                    topic=row["topic"],
                    partition=row["partition"],
                    offset=row["startOffset"],
                    commands=tuple(row["commands"]),
                )


def cluster_ids(disk: Disk) -> tuple[str, ...]:
    """Return the ids of clusters in `meta.properties` of log directories; none where they say nothing."""
    ids = set()
    for log_dir in disk.log_dirs:
        path = log_dir.files.join(log_dir.path, FileKind.META_PROPERTIES.value)
        with contextlib.suppress(CorruptionError, StorageError):
            ids.add(parse_properties(log_dir.files.read_all(path), path).get("cluster.id"))
    return tuple(sorted(printable(cluster_id) for cluster_id in ids if cluster_id))


def _replicas(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": printable(row["topic"]),
        "partition": row["partition"],
        "leader": row["leader"] if row["leader"] >= 0 else None,
        "leaderEpoch": row["leaderEpoch"],
        "replicas": list(row["replicas"]),
        "inSync": list(row["isr"]),
        "isUnderReplicated": len(row["isr"]) < len(row["replicas"]),
    }


#: Columns of `pylogseg.cluster_state` that the report has.
_OF_OPEN = (
    "topic", "partition", "producerId", "producerEpoch", "startOffset", "lastTimestamp", "ageMs", "transactionalId",
    "hanging",
)  # fmt: skip
_OF_TRANSACTIONS = (
    "transactionalId", "producerId", "producerEpoch", "state", "timeoutMs", "startTime", "lastUpdateTime",
)  # fmt: skip


def _transaction(row: Mapping[str, Any]) -> dict[str, Any]:
    names = [printable(f"{topic['topic']}-{n}") for topic in row["partitions"] for n in topic["partitions"]]
    shown = {name: row[name] for name in _OF_TRANSACTIONS}
    return {**shown, "transactionalId": printable(row["transactionalId"]), "partitions": names}
