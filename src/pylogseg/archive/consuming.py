"""Questions of a drill to a broker, over Kafka's protocol as its clients ask them: ends of logs, records, offsets of
groups.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any, Literal

import numpy as np

from pylogseg.errors import CorruptionError, StorageError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.control import ControlKind
from pylogseg.format.messages import codes
from pylogseg.format.messages.control import control_kinds
from pylogseg.format.records import RecordColumns, decode, decode_parts
from pylogseg.live.connection import BrokerConnection
from pylogseg.live.settings import settings_of

Isolation = Literal["read_uncommitted", "read_committed"]
#: Keys of requests, with the versions that Kafka 3.1 and all later ones have.
_FETCH, _LIST_OFFSETS, _METADATA, _OFFSET_FETCH, _FIND = (1, 12), (2, 7), (3, 12), (9, 7), (10, 3)
_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES = 8 << 20
_WAIT_MS = 500
_PAUSE_S = 0.2
#: Errors of a broker that has just started, which end by themselves.
_SOON = frozenset(
    (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
    )
)


class DrillClient:
    """One connection to a broker that leads all partitions; a late answer is a StorageError."""

    def __init__(self, address: str, patience_s: float = 60.0) -> None:
        self.address, self._patience_s = address, patience_s
        settings = settings_of(address, {"cluster": {"client.id": "pylogseg-drill"}})
        self._link = BrokerConnection(settings, *settings.servers[0])

    def __enter__(self) -> DrillClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def _ask(self, of: tuple[int, int], values: dict[str, Any]) -> dict[str, Any]:
        self._link.send(*of, values)
        return self._link.receive()

    def _ask_patiently(self, of: tuple[int, int], values: dict[str, Any], what: str, *path: Any) -> dict[str, Any]:
        """Ask until there is no error that ends by itself; return the part of the answer that has its error code."""
        end = time.monotonic() + self._patience_s
        while True:
            found: Any = self._ask(of, values)
            for step in path:
                found = found[step]
            if not found["errorCode"]:
                return dict(found)
            error = codes.name_of(found["errorCode"])
            if error not in _SOON or time.monotonic() > end:
                raise StorageError(self.address, f"ask for {what}", error)
            time.sleep(_PAUSE_S)

    def topic_ids(self, partitions: Collection[tuple[str, int]]) -> dict[str, bytes]:
        """Return the ids of the topics of partitions, when these all have a leader."""
        end = time.monotonic() + self._patience_s
        while True:
            asked = [{"name": topic, "topicId": bytes(16)} for topic in sorted({topic for topic, _ in partitions})]
            found = self._ask(_METADATA, {"topics": asked, "allowAutoTopicCreation": False})["topics"]
            rows = [row for t in found for row in t["partitions"] if (t["name"], row["partitionIndex"]) in partitions]
            rows += found
            errors = {codes.name_of(row["errorCode"]) for row in rows if row["errorCode"]}
            if not errors:
                return {topic["name"]: topic["topicId"] for topic in found}
            if not errors <= _SOON or time.monotonic() > end:
                raise StorageError(self.address, "ask for topics", ", ".join(sorted(errors)))
            time.sleep(_PAUSE_S)

    def ends(self, topic: str, number: int) -> tuple[int, int, int]:
        """Return where a log starts, where its high watermark is, and its last stable offset."""
        asked = ((_EARLIEST, 0), (_LATEST, 0), (_LATEST, 1))
        start, end, stable = (self._offset(topic, number, *each) for each in asked)
        return start, end, stable

    def _offset(self, topic: str, number: int, timestamp: int, isolation: int) -> int:
        row = {"partitionIndex": number, "timestamp": timestamp, "currentLeaderEpoch": -1}
        values = {"replicaId": -1, "isolationLevel": isolation, "topics": [{"name": topic, "partitions": [row]}]}
        found = self._ask_patiently(_LIST_OFFSETS, values, f"{topic}-{number}", "topics", 0, "partitions", 0)
        return int(found["offset"])

    def records(
        self, topic: str, number: int, isolation: Isolation, below: int, *, lacks_end: bool = False
    ) -> Iterator[RecordColumns]:
        """Yield all records of a partition that a consumer gets, below an offset at most.

        CorruptionError for a batch that is not whole. StorageError if nothing comes any more before the end; where a
        cleaner has removed the last batches while they were archived, `lacks_end`, that is the end.
        """
        start, end, stable = self.ends(topic, number)
        is_committed = isolation == "read_committed"
        position, end, aborting = start, min(below, stable if is_committed else end), set[int]()
        patience_s = self._patience_s / 6 if lacks_end else self._patience_s
        name, until = f"{topic}-{number}", time.monotonic() + patience_s
        while position < end:
            row = self._fetch(topic, number, position, int(is_committed))
            data = row["records"] or b""
            rows = scan(data).batches
            if (rows.verdict != Verdict.GOOD).any():
                raise CorruptionError(f"{self.address}: {name}", 0, f"a damaged batch at offset {position}", position)
            if not len(rows):
                if time.monotonic() > until:
                    if lacks_end:
                        return
                    reason = f"nothing came from offset {position} on, and the log ends at {end}"
                    raise StorageError(self.address, f"consume {name}", reason)
                continue
            kept = _choose(rows, data, row["abortedTransactions"] or (), aborting) if is_committed else ~rows.is_control
            for columns, damage in decode_parts(rows[kept], data):
                if damage:
                    raise CorruptionError(f"{self.address}: {name}", 0, damage[0].reason, position)
                yield columns.take((columns.offset >= start) & (columns.offset < end))
            position, until = int(rows.last_offset[-1]) + 1, time.monotonic() + patience_s

    def _fetch(self, topic: str, number: int, position: int, isolation: int) -> dict[str, Any]:
        row = {"partition": number, "currentLeaderEpoch": -1, "fetchOffset": position, "lastFetchedEpoch": -1,
               "logStartOffset": -1, "partitionMaxBytes": _FETCH_BYTES}  # fmt: skip
        values = {"replicaId": -1, "maxWaitMs": _WAIT_MS, "minBytes": 1, "maxBytes": _FETCH_BYTES, "sessionId": 0,
                  "isolationLevel": isolation, "sessionEpoch": -1, "forgottenTopicsData": [], "rackId": "",
                  "topics": [{"topic": topic, "partitions": [row]}]}  # fmt: skip
        return self._ask_patiently(_FETCH, values, f"{topic}-{number}", "responses", 0, "partitions", 0)

    def fetch_committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets of a group, by topic and partition."""
        self._ask_patiently(_FIND, {"key": group, "keyType": 0}, f"the coordinator of {group}")
        asked = {"groupId": group, "topics": None, "requireStable": False}
        found = self._ask_patiently(_OFFSET_FETCH, asked, f"group {group}")
        return {
            (topic["name"], row["partitionIndex"]): row["committedOffset"]
            for topic in found["topics"]
            for row in topic["partitions"]
        }


def _choose(rows: BatchTable, data: bytes, aborted: Any, aborting: set[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which batches a consumer of committed records takes, as Java's does; `aborting` goes on from before."""
    waiting = sorted(((each["firstOffset"], each["producerId"]) for each in aborted), reverse=True)
    kept = ~rows.is_control
    for at in np.flatnonzero(rows.is_transactional | rows.is_control).tolist():
        while waiting and waiting[-1][0] <= rows.last_offset[at]:
            aborting.add(waiting.pop()[1])
        producer = int(rows.producer_id[at])
        if not rows.is_control[at]:
            kept[at] = producer not in aborting
        elif producer in aborting:
            columns, _ = decode(rows[at : at + 1], data)
            if (control_kinds(columns) == ControlKind.ABORT).any():
                aborting.discard(producer)
    return kept
