"""Sessions of fetches (KIP-227): a client names its partitions once, and then only changes."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.wire import NO_ID, Values

NO_SESSION = 0
_FINAL, _INITIAL = -1, 0
_LAST_EPOCH = 2**31 - 1
_FIRST_WITH_IDS = 13
MOST_SESSIONS = 1000
#: Of all sessions: each takes a kilobyte.
MOST_PARTITIONS = 100_000
#: A session that was idle for so long makes room for another one.
_IDLE_SECONDS = 120.0

#: A topic, by its id or else by its name, and a partition.
SessionKey = tuple[bytes, str, int]


@dataclass(slots=True)
class Wanted:
    """A fetched partition, with the session's last answer about it."""

    topic: str
    topic_id: bytes
    number: int
    offset: int = 0
    max_bytes: int = 0
    epoch: int = -1
    last_epoch: int = -1
    high_watermark: int = -1
    log_start: int = -1


@dataclass
class FetchSession:
    """A fetch session: the partitions that a client reads."""

    number: int
    uses_ids: bool
    epoch: int
    wanted: OrderedDict[SessionKey, Wanted]
    used: float
    mutex: threading.Lock  #: Of all sessions.


@dataclass
class Round:
    """One fetch: the partitions to read, and the choice of answers to send."""

    wanted: list[Wanted] = field(default_factory=list)
    session: FetchSession | None = None
    is_incremental: bool = False  #: True if partitions of which there is nothing new are left out.
    error: int = codes.NONE  #: Of the whole request; then nothing is read.

    @property
    def number(self) -> int:
        return NO_SESSION if self.session is None else self.session.number

    def choose_answers(self, answers: Iterable[tuple[Wanted, dict[str, Any]]]) -> list[tuple[Wanted, dict[str, Any]]]:
        """Return the answers that are sent, and remember them; a partition that gave records goes to the end."""
        session = self.session
        if session is None:
            return list(answers)
        with session.mutex:
            return self._choose_changed(session, answers)

    def _choose_changed(
        self, session: FetchSession, answers: Iterable[tuple[Wanted, dict[str, Any]]]
    ) -> list[tuple[Wanted, dict[str, Any]]]:
        sent = []
        for item, row in answers:
            has_records = row["records"] != b""
            is_new = (
                has_records
                or row["errorCode"] != codes.NONE
                or row["highWatermark"] != item.high_watermark
                or row["logStartOffset"] != item.log_start
                or "divergingEpoch" in row
            )
            # After an error the next answer is told in any case: so the client learns that it is over.
            item.high_watermark = -1 if row["errorCode"] else row["highWatermark"]
            item.log_start = row["logStartOffset"]
            if has_records and self.is_incremental:  # when a session begins, the order is that of the request
                key = _key(item.topic_id, item.topic, item.number)
                if key in session.wanted:
                    session.wanted.move_to_end(key)
            if is_new or not self.is_incremental:
                sent.append((item, row))
        return sent


def _key(topic_id: bytes, topic: str, number: int) -> SessionKey:
    return (topic_id, "", number) if topic_id != NO_ID else (topic_id, topic, number)


class FetchSessions:
    """All sessions of this node."""

    def __init__(self, most: int = MOST_SESSIONS, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now = most, now
        self._mutex = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the least recently used first
        self._partitions = 0  # of all of them

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, values: Values, version: int) -> Round:
        """Return the partitions for the answer to a request."""
        number, epoch, uses_ids = values["sessionId"], values["sessionEpoch"], version >= _FIRST_WITH_IDS
        if epoch in (_FINAL, _INITIAL):
            with self._mutex:
                if number != NO_SESSION:
                    self._drop(number)
                wanted = OrderedDict(self._all(values))
                if epoch == _FINAL:
                    return Round(list(wanted.values()))
                return Round(list(wanted.values()), self._new(wanted, uses_ids))
        with self._mutex:
            session = self._sessions.get(number)
            if session is None:
                return Round(error=codes.FETCH_SESSION_ID_NOT_FOUND)
            if session.uses_ids != uses_ids:
                return Round(error=codes.FETCH_SESSION_TOPIC_ID_ERROR)
            if session.epoch != epoch:
                return Round(error=codes.INVALID_FETCH_SESSION_EPOCH)
            session.epoch = _next_epoch(epoch)
            session.used = self._now()
            self._sessions.move_to_end(number)
            before = len(session.wanted)
            self._change(session, values)
            self._partitions += len(session.wanted) - before
            if not session.wanted:
                self._drop(number)
                return Round()
            if self._partitions > MOST_PARTITIONS:  # it goes on without a session
                self._drop(number)
                return Round(error=codes.FETCH_SESSION_ID_NOT_FOUND)
            return Round(list(session.wanted.values()), session, True)

    def _all(self, values: Values) -> Iterable[tuple[SessionKey, Wanted]]:
        for topic in values["topics"]:
            name, topic_id = topic["topic"], topic["topicId"]
            for asked in topic["partitions"]:
                number = asked["partition"]
                yield (
                    _key(topic_id, name, number),
                    Wanted(
                        name,
                        topic_id,
                        number,
                        asked["fetchOffset"],
                        asked["partitionMaxBytes"],
                        asked["currentLeaderEpoch"],
                        asked["lastFetchedEpoch"],
                    ),
                )

    def _change(self, session: FetchSession, values: Values) -> None:
        for key, item in self._all(values):
            before = session.wanted.get(key)
            if before is None:
                session.wanted[key] = item
            else:
                before.offset, before.max_bytes = item.offset, item.max_bytes
                before.epoch, before.last_epoch = item.epoch, item.last_epoch
        for topic in values["forgottenTopicsData"]:
            for number in topic["partitions"]:
                session.wanted.pop(_key(topic["topicId"], topic["topic"], number), None)

    def _new(self, wanted: OrderedDict[SessionKey, Wanted], uses_ids: bool) -> FetchSession | None:
        """Make a session; None if there is no room."""
        if self._partitions + len(wanted) > MOST_PARTITIONS:
            return None
        if len(self._sessions) >= self._most and not self._make_room(len(wanted)):
            return None
        self._partitions += len(wanted)
        number = 0
        while number == NO_SESSION or number in self._sessions:
            number = random.randrange(1, 2**31)
        session = self._sessions[number] = FetchSession(number, uses_ids, 1, wanted, self._now(), self._mutex)
        return session

    def _make_room(self, size: int) -> bool:
        """Drop a session that was idle for long, or else a smaller one."""
        oldest = next(iter(self._sessions.values()))
        if self._now() - oldest.used < _IDLE_SECONDS:
            oldest = min(self._sessions.values(), key=lambda session: len(session.wanted))
            if len(oldest.wanted) >= size:
                return False
        self._drop(oldest.number)
        return True

    def _drop(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        self._partitions -= 0 if session is None else len(session.wanted)


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == _LAST_EPOCH else epoch + 1
