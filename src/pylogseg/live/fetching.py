"""The batches of a partition as a file for reading forward, with the bytes of the leader's segments.

Position 0 is the first batch of the first answer. Each answer is a piece of memory of its own, which lives as long as
somebody looks at it. From the second answer on, the next one is on its way while a piece is read.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.control import ControlKind
from pylogseg.format.messages import codes
from pylogseg.format.messages.control import control_kinds
from pylogseg.format.records import decode
from pylogseg.live.cluster import EARLIEST_LOCAL, Cluster, Leadership, PassingError, check_code
from pylogseg.live.connection import FETCH, BrokenConnectionError, BrokerConnection

_log = logging.getLogger(__name__)
#: The end of a log is not known before it is reached: until then a file has so many bytes.
UNKNOWN_SIZE = 1 << 48
#: Of a partition in an answer; the first is as large as the reader's first window.
PIECE_BYTES = 4 << 20
_ANSWER_BYTES = 50 << 20
_WAIT_MS = 500
#: Bytes that stay for who looks back, behind damage for example.
_KEPT_BYTES = 16 << 20
#: A leader that has the end, and sends nothing before it, has no batch there: so often it is asked. Of offsets in
#: remote storage an empty answer says nothing: the store may be slow.
_EMPTY_ANSWERS, _MOST_EMPTY_ANSWERS = 3, 60


#: A client that waits longer for quotas says so.
_LONG_WAIT_MS = 1000


class Removed(NamedTuple):
    """Offsets that retention removed while they were to be read."""

    first_offset: int
    next_offset: int


class _Piece(NamedTuple):
    start: int  #: Its position.
    data: memoryview
    aborted: list[int]  #: Positions of batches of aborted transactions.


class FetchedView:
    """An open range of a partition's log; see `pylogseg.env.filesystem.FileView`. For one thread."""

    def __init__(
        self, cluster: Cluster, path: str, topic: str, number: int, topic_id: bytes, ends: tuple[int, int, int]
    ) -> None:
        self.path = path
        #: Offsets that retention removed, for the reader to report.
        self.removed: list[Removed] = []
        #: Offsets at which the leader begins a segment, as far as its answers tell.
        self.borders: list[int] = []
        #: Of an answer, at most; an answer has one batch at least.
        self.piece_bytes = PIECE_BYTES
        self._cluster, self._topic, self._number, self._topic_id = cluster, topic, number, topic_id
        #: The last is the last stable offset, where a reading of committed records ends.
        self._next, self._end, self._stable = ends
        self._pieces: deque[_Piece] = deque()
        self._size, self._is_done, self._is_committed = 0, ends[0] >= ends[1], False
        self._leader = Leadership(-1, -1)
        self._link: BrokerConnection | None = None
        self._is_asked = False  #: True while an answer is on its way.
        self._answers, self._last_epoch = 0, -1
        self._follower = -1  #: A replica in the client's rack, to which the leader has sent this client (KIP-392).
        self._rack = cluster.settings.rack  #: Without one the leader sends nobody away.
        self._waited_ms = 0  #: As quotas had it.
        self._asked_bytes, self._short, self._cuts_batches = 0, 0, False

    # ---- a file ----

    def begin(self, first_offset: int, end_offset: int, *, is_committed: bool) -> int:
        """Choose the half-open range of offsets before anything is read; return the position to begin at."""
        if self._answers or self._pieces:
            return 0
        end = min(self._end, self._stable) if is_committed else self._end
        self._next, self._end = max(self._next, first_offset), min(end, end_offset)
        self._is_committed, self._is_done = is_committed, self._next >= self._end
        return 0

    def follow(self, leader_epoch: int) -> None:
        """Go on behind an earlier reading, whose batches have the epochs of leaders up to this one."""
        self._leader, self._last_epoch = Leadership(-1, leader_epoch), leader_epoch

    @property
    def size(self) -> int:
        """Size in bytes once the end was reached; before that, a number above any size."""
        return self._size if self._is_done else UNKNOWN_SIZE

    def read(self, position: int, size: int) -> memoryview:
        """Return bytes of one answer, up to `size`: fewer than asked for where it ends, none at the end of the log."""
        while position >= self._size and not self._is_done:
            self._fetch(size)
        for piece in reversed(self._pieces):
            if position >= piece.start:
                return piece.data[position - piece.start : position - piece.start + size]
        if position >= self._size:
            return memoryview(b"")
        reason = f"position {position} was read before, and is not kept: read from an offset again"
        raise StorageError(self.path, "read", reason)

    def drop(self, start: int, end: int) -> None:
        """Do nothing: fetched bytes are freed as soon as nothing refers to them."""

    def close(self) -> None:
        """Give the connection back, or close it if an answer is on its way."""
        link, self._link = self._link, None
        if link is not None and not self._is_asked:
            self._cluster.give(self._node, link)
        elif link is not None:
            link.close()
        self._is_done = True
        self._pieces.clear()

    def __enter__(self) -> FetchedView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- transactions ----

    def mask_committed(self, rows: BatchTable, segment: Any = None) -> tuple[npt.NDArray[np.bool_], int | None]:
        """Return a mask without batches of aborted transactions, which fetch answers name; and None, for no end."""
        kept = np.ones(len(rows), np.bool_)
        for piece in self._pieces:
            if piece.aborted:
                kept &= ~np.isin(rows.position, piece.aborted)
        return kept, None

    # ---- fetching ----

    def _fetch(self, size: int) -> None:
        """Add the next piece, or find the end."""
        piece_bytes = min(max(size, 1), self.piece_bytes) if not self._answers else self.piece_bytes
        empty = 0
        while not self._is_done:
            before = self._next
            has_piece = self._cluster.again(self.path, "fetch", lambda: self._attempt(piece_bytes))
            if has_piece or self._next != before:
                return
            empty += 1
            if empty >= _EMPTY_ANSWERS and not self._is_remote():
                self._is_done = True
            elif empty >= _MOST_EMPTY_ANSWERS:
                reason = f"no answer with batches from offset {self._next} on, which lies in remote storage"
                raise StorageError(self.path, "fetch", reason)

    def _attempt(self, piece_bytes: int) -> bool:
        """Take one answer; return whether it has a piece. A leader that moved is a PassingError."""
        try:
            link = self._link or self._connect()
            if not self._is_asked:
                self._ask(link, piece_bytes)
            self._is_asked = False
            answer = link.receive()
            if self._goes_to_follower(answer):
                return self._attempt(piece_bytes)
            return self._take(answer)
        except (PassingError, BrokenConnectionError):
            self._disconnect()
            if self._follower >= 0:  # the leader has what a follower lacks
                self._follower, self._rack = -1, ""
            raise

    def _connect(self) -> BrokerConnection:
        state = self._cluster.topics([self._topic]).get(self._topic)
        leader = None if state is None else state.leaders.get(self._number)
        if state is None or leader is None:
            raise PassingError(codes.UNKNOWN_TOPIC_OR_PARTITION)
        if state.topic_id != self._topic_id:
            raise StorageError(self.path, "fetch", "the topic was deleted and made again since it was listed")
        if leader.node < 0:
            raise PassingError(codes.LEADER_NOT_AVAILABLE)
        if self._leader.epoch >= 0 and leader.epoch > self._leader.epoch and self._last_epoch >= 0:
            self._check_truncation(leader)
        if leader != self._leader:
            self._leader, self._follower = leader, -1
        self._link = self._cluster.take(self._node)
        return self._link

    @property
    def _node(self) -> int:
        return self._leader.node if self._follower < 0 else self._follower

    def _check_truncation(self, leader: Leadership) -> None:
        """Raise StorageError if a new leader, elected without being in sync, lacks records that were read already."""
        end = self._cluster.epoch_end(self._topic, self._number, leader, self._last_epoch)
        if end is not None and end < self._next:
            reason = (
                f"the log was cut at offset {end} by an unclean election, and offsets up to {self._next} were read: "
                "the cluster has lost the records from there on"
            )
            raise StorageError(self.path, "fetch", reason)

    def _disconnect(self) -> None:
        link, self._link, self._is_asked = self._link, None, False
        if link is not None:
            link.close()

    def _ask(self, link: BrokerConnection, piece_bytes: int) -> None:
        self._asked_bytes = piece_bytes
        row = {
            "partition": self._number,
            "currentLeaderEpoch": self._leader.epoch,
            "fetchOffset": self._next,
            "lastFetchedEpoch": -1,
            "logStartOffset": -1,
            "partitionMaxBytes": piece_bytes,
        }
        topic = {"topic": self._topic, "topicId": self._topic_id, "partitions": [row]}
        values = {
            "replicaId": -1,
            "maxWaitMs": _WAIT_MS,
            "minBytes": 1,
            "maxBytes": _ANSWER_BYTES,
            "isolationLevel": int(self._is_committed),
            "sessionId": 0,
            "sessionEpoch": -1,
            "topics": [topic],
            "forgottenTopicsData": [],
            "rackId": self._rack,
        }
        # Topic ids came with version 13; without one, names do.
        link.send(FETCH, link.version(FETCH, 99 if any(self._topic_id) else 12), values)
        self._is_asked = True

    def _goes_to_follower(self, answer: dict[str, Any]) -> bool:
        """Go to the replica in this client's rack, if a leader's answer names one: it has no records then."""
        parts = [part for topic in answer["responses"] for part in topic["partitions"]]
        node = next((part.get("preferredReadReplica", -1) for part in parts), -1)
        if self._follower >= 0 or node in (-1, self._leader.node):
            return False
        _log.info("%s: read from node %d, in the same rack", self.path, node)
        if self._link is not None:
            self._cluster.give(self._leader.node, self._link)
        self._link, self._follower = None, node
        return True

    def _take(self, answer: dict[str, Any]) -> bool:
        check_code(answer.get("errorCode", 0), self.path, "fetch")
        throttle_ms = answer.get("throttleTimeMs", 0)
        if throttle_ms:
            self._wait_for_quota(throttle_ms)
        responses = answer["responses"]
        if not responses:  # as a quota lets a broker answer
            raise PassingError(codes.THROTTLING_QUOTA_EXCEEDED if throttle_ms else codes.UNKNOWN_TOPIC_OR_PARTITION)
        (part,) = responses[0]["partitions"]
        if part["errorCode"] == codes.OFFSET_OUT_OF_RANGE:
            if self._follower >= 0:
                raise PassingError(codes.OFFSET_OUT_OF_RANGE)
            self._skip_removed()
            return False
        check_code(part["errorCode"], self.path, "fetch")
        data = part["records"]
        rows = scan(data, crc=False).batches if data is not None and len(data) else None
        if rows is None or not len(rows):
            if data is not None and len(data):
                raise StorageError(self.path, "fetch", f"the answer at offset {self._next} begins with no batch")
            if throttle_ms:
                raise PassingError(codes.THROTTLING_QUOTA_EXCEEDED)
            return False if part["highWatermark"] >= self._end else self._wait(part["highWatermark"])
        self._note_border(len(data), rows, part["highWatermark"])
        self._add(data, rows, part.get("abortedTransactions") or ())
        if self._answers > 1 and not self._is_done and self._link is not None:
            self._ask(self._link, self.piece_bytes)
        return True

    def _wait_for_quota(self, throttle_ms: int) -> None:
        """Count the time for which a quota mutes the connection; log a warning once it becomes long."""
        before, self._waited_ms = self._waited_ms, self._waited_ms + throttle_ms
        if before < _LONG_WAIT_MS <= self._waited_ms:
            _log.warning(
                "%s: a quota of the cluster makes this client wait, %.1f s until now: --max-bytes-per-second reads "
                "slower by itself, and client.id names the quota",
                self.path,
                self._waited_ms / 1000,
            )
        time.sleep(throttle_ms / 1000)

    def _wait(self, mark: int) -> bool:
        if mark < self._next and self._follower < 0:  # a follower may learn it later
            raise StorageError(
                self.path, "fetch", f"the log ends at {mark}, below offset {self._next}: it was cut since it was listed"
            )
        raise PassingError(codes.OFFSET_NOT_AVAILABLE)  # a new leader learns its high watermark

    def _note_border(self, size: int, rows: BatchTable, mark: int) -> None:
        """Note where the leader begins a segment: an answer has bytes of one, and as many of them as were asked for.

        Such an answer ends with a part of a batch, if need be. A server that sends whole batches only leaves out the
        next one where it has no room, so that says nothing.
        """
        whole = rows.summary().end_position
        self._cuts_batches = self._cuts_batches or whole < size
        if self._short and (self._cuts_batches or int(rows.size[0]) <= self._short):
            self.borders.append(self._next)
        is_short = whole == size and int(rows.last_offset[-1]) + 1 < mark
        self._short = max(self._asked_bytes - size, 0) if is_short else 0

    def _add(self, data: memoryview, rows: BatchTable, aborted: Any) -> None:
        end = rows.summary().end_position
        data = data[:end]
        pairs = sorted((pair["firstOffset"], pair["producerId"]) for pair in aborted)
        self._pieces.append(_Piece(self._size, data, _aborted_places(rows, data, pairs, self._size) if pairs else []))
        self._size += end
        self._answers += 1
        last = rows.rows[-1]
        self._next, self._last_epoch = int(last["last_offset"]) + 1, int(last["leader_epoch"])
        kept = sum(len(piece.data) for piece in self._pieces)
        while len(self._pieces) > 2 and kept > _KEPT_BYTES:
            kept -= len(self._pieces.popleft().data)
        self._is_done = self._next >= self._end

    def _is_remote(self) -> bool:
        """Check whether the next offset lies in remote storage, as far as the leader tells."""
        start = self._cluster.offsets([(self._topic, self._number)], EARLIEST_LOCAL)[self._topic, self._number]
        return not isinstance(start, StorageError) and self._next < start

    def _skip_removed(self) -> None:
        """Go on at the start of the log: retention has overtaken the reader."""
        start = self._cluster.offsets([(self._topic, self._number)], -2)[self._topic, self._number]
        if isinstance(start, StorageError):
            raise start
        if start <= self._next:
            self._wait(-1)
        self.removed.append(Removed(self._next, min(start, self._end)))
        self._next, self._short = start, 0
        self._is_done = self._next >= self._end


def _aborted_places(rows: BatchTable, data: memoryview, pairs: list[tuple[int, int]], start: int) -> list[int]:
    """Return the positions of the batches of an answer that aborted transactions wrote, found as consumers find them.

    Each answer tells the aborted transactions of its range, also those that began before it.
    """
    places, aborting, left = list[int](), set[int](), deque(pairs)
    for row in np.flatnonzero(rows.is_transactional).tolist():
        while left and left[0][0] <= rows.last_offset[row]:
            aborting.add(left.popleft()[1])
        producer = int(rows.producer_id[row])
        if producer not in aborting:
            continue
        if not rows.is_control[row]:
            places.append(start + int(rows.position[row]))
        elif _is_abort(rows[row : row + 1], data):
            aborting.discard(producer)
    return places


def _is_abort(rows: BatchTable, data: memoryview) -> bool:
    columns, _ = decode(rows, data, 0)
    return bool(len(columns)) and control_kinds(columns)[0] == ControlKind.ABORT
