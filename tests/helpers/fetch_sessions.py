"""A model of Kafka's fetch sessions (KIP-227), and what asks a server the same and compares.

Requests are answered at once and data does not change, so the answer follows from what was asked before: a session that
is created tells all of its partitions; then it tells those that have records or an error, and a partition that gave
records goes to the end of its order. With a limit of one byte only the first partition that has a record gives any.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from helpers.kafka_clients import PATIENCE_S, RawClient

NAMES, IDS = 12, 16  #: Versions of Fetch: by names, and by ids.
UNLIMITED, ONE_BYTE = 50 << 20, 1
Part = tuple[str, int]


class Row(NamedTuple):
    """What is told of a partition."""

    error: int
    has_records: bool


@dataclass
class Session:
    """A session as the client and the model see it."""

    number: int
    version: int
    epoch: int = 1
    offsets: dict[Part, int] = field(default_factory=dict)  #: In the order in which they are read.
    told: set[Part] = field(default_factory=set)  #: Partitions whose high watermark the client knows.


class Sessions:
    """Sessions on a server, each answer compared with the model's.

    Parameters
    ----------
    address : str
    topics : sequence of str
        Some that are there; others are asked for too.
    """

    def __init__(self, address: str, topics: list[str]) -> None:
        self.client = RawClient(address)
        self.open: list[Session] = []
        self.ids: dict[str, bytes] = {}
        self.ranges: dict[Part, tuple[int, int]] = {}
        for found in self.client.ask(3, 12, {"topics": [{"name": name, "topicId": bytes(16)} for name in topics]})[
            "topics"
        ]:
            self.ids[found["name"]] = found["topicId"]
            for part in found["partitions"]:
                place = found["name"], part["partitionIndex"]
                self.ranges[place] = self._offset(place, -2), self._offset(place, -1)
        self.names = {topic_id: name for name, topic_id in self.ids.items()}

    def close(self) -> None:
        self.client.socket.close()

    def _offset(self, place: Part, timestamp: int) -> int:
        asked = {"partitionIndex": place[1], "timestamp": timestamp, "currentLeaderEpoch": -1}
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self.client.ask(2, 7, {"replicaId": -1, "topics": [{"name": place[0], "partitions": [asked]}]})
            row = found["topics"][0]["partitions"][0]
            if not row["errorCode"]:
                return int(row["offset"])
            assert time.monotonic() < until, f"{place}: error {row['errorCode']}"
            time.sleep(0.1)  # a broker that has just started does not lead all of them yet

    # ---- what a client does ----

    def without(self, version: int, wanted: dict[Part, int], limit: int) -> None:
        """Fetch without a session."""
        self._expect(self._ask(version, 0, -1, wanted, limit), 0, 0, self._rows(wanted, limit))

    def begin(self, version: int, wanted: dict[Part, int], limit: int, instead: Session | None = None) -> None:
        """Begin a session, perhaps in place of another one."""
        number = 0
        if instead is not None:
            self.open.remove(instead)
            number = instead.number
        found = self._ask(version, number, 0, wanted, limit)
        rows = self._rows(wanted, limit)
        self._expect(found, 0, None, rows)
        assert found["sessionId"] != 0, "there is room for a session"
        made = Session(found["sessionId"], version, 1, dict(wanted))
        made.told = {place for place, row in rows.items() if not row.error}
        self.open.append(made)

    def go_on(self, session: Session, changes: dict[Part, int], forgotten: list[Part], limit: int) -> None:
        """Fetch what changed."""
        found = self._ask(session.version, session.number, session.epoch, changes, limit, forgotten)
        session.epoch += 1
        session.offsets.update(changes)
        for place in forgotten:
            session.offsets.pop(place, None)
            session.told.discard(place)
        if not session.offsets:
            self.open.remove(session)
            self._expect(found, 0, 0, {})
            return
        rows = self._rows(session.offsets, limit)
        changed = {
            place: row for place, row in rows.items() if row.error or row.has_records or place not in session.told
        }
        self._expect(found, 0, session.number, changed)
        for place, row in rows.items():
            if row.error:
                session.told.discard(place)
            else:
                session.told.add(place)
            if row.has_records:
                session.offsets[place] = session.offsets.pop(place)

    def end(self, session: Session, wanted: dict[Part, int], limit: int) -> None:
        """End a session, with a last fetch; afterwards nobody knows it."""
        self.open.remove(session)
        self._expect(self._ask(session.version, session.number, -1, wanted, limit), 0, 0, self._rows(wanted, limit))
        self._expect(self._ask(session.version, session.number, session.epoch, {}, limit), 70, 0, {})

    def mistake(self, session: Session, off_by: int) -> None:
        """Use an epoch that is not the next one: nothing changes."""
        self._expect(self._ask(session.version, session.number, session.epoch + off_by, {}, UNLIMITED), 71, 0, {})

    def mix(self, session: Session) -> None:
        """Use names where the session has ids, or the other way round."""
        other = NAMES if session.version == IDS else IDS
        self._expect(self._ask(other, session.number, session.epoch, {}, UNLIMITED), 106, 0, {})

    # ---- both sides ----

    def _ask(
        self, version: int, number: int, epoch: int, wanted: dict[Part, int], limit: int, forgotten: Any = ()
    ) -> dict[str, Any]:
        return self.client.ask(
            1,
            version,
            {
                "maxWaitMs": 0,
                "minBytes": 1,
                "maxBytes": limit,
                "sessionId": number,
                "sessionEpoch": epoch,
                "topics": [
                    {"topic": topic, "topicId": self._id(topic),
                     "partitions": [{"partition": part, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}]}
                    for (topic, part), offset in wanted.items()
                ],
                "forgottenTopicsData": [
                    {"topic": topic, "topicId": self._id(topic), "partitions": [part]} for topic, part in forgotten
                ],
            },
        )  # fmt: skip

    def _id(self, topic: str) -> bytes:
        known = self.ids.get(topic, bytes(16))
        return known if known != bytes(16) else topic.encode().ljust(16, b"?")[:16]

    def _rows(self, wanted: dict[Part, int], limit: int) -> dict[Part, Row]:
        rows, left = {}, limit
        for place, offset in wanted.items():
            error = self._error(place, offset)
            has_records = not error and left > 0 and offset < self.ranges[place][1]
            if has_records and limit == ONE_BYTE:
                left = 0
            rows[place] = Row(error, has_records)
        return rows

    def _error(self, place: Part, offset: int) -> int:
        if place in self.ranges:
            first, end = self.ranges[place]
            return 0 if first <= offset <= end else 1
        return 3  # of a topic that is there; by an unknown id it would be 100

    def _expect(self, found: dict[str, Any], error: int, number: int | None, rows: dict[Part, Row]) -> None:
        told = {
            (topic["topic"] or self.names.get(topic["topicId"], "?"), part["partitionIndex"]): Row(
                part["errorCode"], bool(part["records"])
            )
            for topic in found["responses"]
            for part in topic["partitions"]
        }
        assert (found["errorCode"], told) == (error, rows), (
            f"told {(found['errorCode'], told)}, expected {(error, rows)}"
        )
        assert number in (None, found["sessionId"]), f"session {found['sessionId']}, expected {number}"
