"""A cluster as a client knows it: nodes, topics, leaders, offsets; a request that meets a moved leader goes again."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import StorageError
from pylogseg.format.messages import codes
from pylogseg.format.names import TopicPartition
from pylogseg.live.connection import (
    LEADER_EPOCH,
    LIST_OFFSETS,
    LOG_DIRS,
    METADATA,
    BrokenConnectionError,
    BrokerConnection,
    keep_idle,
    take_idle,
)
from pylogseg.live.settings import ClientSettings

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: Times that ListOffsets takes for the ends of a log, and for its first offset that is not in remote storage only.
EARLIEST, LATEST, EARLIEST_LOCAL = -2, -1, -4
#: So long a request is sent again while leaders move.
PATIENCE_S = 30.0
#: So long a partition may be without a leader before it counts as one that cannot be read.
ELECTION_S = 5.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 1.0
#: Newer versions of a request have more answers than are known here.
_MOST_VERSIONS = {LIST_OFFSETS: 9}
#: Errors that end by themselves, with newer metadata.
_PASSING = frozenset(
    (
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER,
        codes.REQUEST_TIMED_OUT,
        codes.REPLICA_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
        codes.UNKNOWN_TOPIC_ID,
        codes.FETCH_SESSION_TOPIC_ID_ERROR,
        codes.INCONSISTENT_TOPIC_ID,
    )
)


class Leadership(NamedTuple):
    """The leader of a partition, and since which epoch it leads."""

    node: int  #: -1: there is none now.
    epoch: int


class EpochEnd(NamedTuple):
    """Where the records of a leader epoch end in a log, as a leader says."""

    leader_epoch: int  #: Of the leader that was asked.
    offset: int | None  #: None if it does not know the epoch.


class TopicState(NamedTuple):
    """A topic as the cluster's metadata has it."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, Leadership]


class PassingError(Exception):
    """An error of Kafka that may end by itself; `code` is its number."""

    def __init__(self, code: int) -> None:
        super().__init__(codes.name_of(code))
        self.code = code


def check_code(code: int, path: str, operation: str) -> None:
    """Raise PassingError or StorageError for the code of an answer that is not 0."""
    if not code:
        return
    if code in _PASSING:
        raise PassingError(code)
    number = errno.EACCES if code in _DENIED else None
    raise StorageError(path, operation, codes.name_of(code), number)


_DENIED = (codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED)


class Cluster:
    """Connections to a cluster, of any number of threads; each connection serves one thread at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings, self.url = settings, CLUSTER_SCHEME + settings.address
        self.cluster_id = ""
        self._lock = threading.Lock()
        self._nodes: dict[int, tuple[str, int]] = {}

    def __reduce__(self) -> Any:
        return Cluster, (self.settings,)

    def __repr__(self) -> str:
        return f"<pylogseg.live.Cluster {self.url}>"

    @contextlib.contextmanager
    def connection(self, node: int | None = None) -> Iterator[BrokerConnection]:
        """Yield a connection to a node, or to any; it is kept for others unless it breaks."""
        link = self.take(node)
        try:
            yield link
        except BaseException:
            link.close()
            raise
        self.give(node, link)

    def take(self, node: int | None) -> BrokerConnection:
        """Return an idle connection to a node, or a new one, for `give` or `BrokerConnection.close`."""
        link = take_idle((self.settings, node))
        if link is not None:
            return link
        with self._lock:
            addresses = [self._nodes[node]] if node is not None and node in self._nodes else []
        failure: StorageError | None = None
        for host, port in addresses or self.settings.servers:
            try:
                return BrokerConnection(self.settings, host, port)
            except BrokenConnectionError as error:
                failure = failure or error
        raise failure or StorageError(self.url, "connect", f"no address of node {node}")

    def give(self, node: int | None, link: BrokerConnection) -> None:
        """Keep a connection without requests under way for the next who needs one."""
        keep_idle((self.settings, node), link)

    def again(self, path: str, operation: str, attempt: Callable[[], _T]) -> _T:
        """Return the result of an attempt; repeat it while its error may end by itself.

        Leaders move within seconds; after `PATIENCE_S` the error is a StorageError about the path.
        """
        until, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except PassingError as error:
                if time.monotonic() > until:
                    number = errno.ENOENT if error.code == codes.UNKNOWN_TOPIC_OR_PARTITION else None
                    raise StorageError(path, operation, f"{error}, for {PATIENCE_S:.0f} s", number) from None
            except BrokenConnectionError:
                if time.monotonic() > until or not self._nodes:  # nobody has answered yet
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_S)

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicState]:
        """Return topics by name, by default all that this client may see; topics that do not exist are left out."""
        asked = None if names is None else [{"name": name, "topicId": bytes(16)} for name in names]

        def attempt() -> dict[str, TopicState]:
            with self.connection() as link:
                # From version 12 on a topic may be asked for by its id; names do for all.
                answer = link.ask(METADATA, {"topics": asked, "allowAutoTopicCreation": False})
            self.cluster_id = answer.get("clusterId") or self.cluster_id
            with self._lock:
                self._nodes = {node["nodeId"]: (node["host"], node["port"]) for node in answer["brokers"]}
            topics = {}
            for topic in answer["topics"]:
                if topic["errorCode"] in (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.INVALID_TOPIC):
                    continue
                if topic["errorCode"] != codes.LEADER_NOT_AVAILABLE:
                    check_code(topic["errorCode"], f"{self.url}/{topic['name']}", "list")
                leaders = {
                    row["partitionIndex"]: Leadership(row["leaderId"], row.get("leaderEpoch", -1))
                    for row in topic["partitions"]
                }
                state = TopicState(topic["name"], topic.get("topicId", bytes(16)), leaders)
                topics[state.name] = state
            return topics

        return self.again(self.url, "list", attempt)

    def offsets(
        self, partitions: Iterable[TopicPartition], time_ms: int, *, is_committed: bool = False
    ) -> dict[TopicPartition, int | StorageError]:
        """Return an offset of each partition: of a time, or of one end of the log; -1 where no record is so late.

        One that its leader does not tell has its error instead.
        """

        def ask(left: set[TopicPartition], told: dict[TopicPartition, int | StorageError]) -> dict[TopicPartition, str]:
            def row_of(number: int, leader: Leadership, _: TopicPartition) -> dict[str, Any]:
                return {"partitionIndex": number, "currentLeaderEpoch": leader.epoch, "timestamp": time_ms}

            def request(topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
                asked = [{"name": topic, "partitions": parts} for topic, parts in topics.items()]
                return {"replicaId": -1, "isolationLevel": int(is_committed), "topics": asked}

            return self._ask_leaders(left, told, LIST_OFFSETS, row_of, request, lambda row, _: int(row["offset"]))

        return self._ask_all(partitions, "ask for offsets", ask)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd | StorageError]:
        """Return where the records of a leader epoch, or of an earlier one, end in each log; None is the present epoch.

        One that its leader does not tell has its error instead.
        """

        def ask(
            left: set[TopicPartition], told: dict[TopicPartition, EpochEnd | StorageError]
        ) -> dict[TopicPartition, str]:
            def row_of(number: int, leader: Leadership, key: TopicPartition) -> dict[str, Any]:
                epoch = epochs[key]
                asked = leader.epoch if epoch is None else epoch
                return {"partition": number, "currentLeaderEpoch": leader.epoch, "leaderEpoch": asked}

            def request(topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
                asked = [{"topic": topic, "partitions": parts} for topic, parts in topics.items()]
                return {"replicaId": -1, "topics": asked}

            def value_of(row: dict[str, Any], leader: Leadership) -> EpochEnd:
                return EpochEnd(leader.epoch, None if row["endOffset"] < 0 else int(row["endOffset"]))

            return self._ask_leaders(left, told, LEADER_EPOCH, row_of, request, value_of)

        return self._ask_all(epochs, "ask for epochs", ask)

    def _ask_all(
        self,
        partitions: Iterable[TopicPartition],
        operation: str,
        ask: Callable[[set[TopicPartition], dict[TopicPartition, _T | StorageError]], Any],
    ) -> dict[TopicPartition, _T | StorageError]:
        """Ask until all partitions have answered, or one has no leader for too long; `ask` returns the open ones."""
        answers: dict[TopicPartition, _T | StorageError] = {}
        left = set(partitions)
        until, pause = time.monotonic() + ELECTION_S, _FIRST_PAUSE_S
        while left:
            reasons = ask(left, answers)
            left = set(reasons)
            if left and time.monotonic() > until:
                for topic, number in left:
                    path = f"{self.url}/{topic}-{number}"
                    answers[topic, number] = StorageError(path, operation, reasons[topic, number])
                break
            if left:
                time.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE_S)
        return answers

    def _ask_leaders(
        self,
        partitions: set[TopicPartition],
        answers: dict[TopicPartition, _T | StorageError],
        request: int,
        row_of: Callable[[int, Leadership, TopicPartition], dict[str, Any]],
        values_of: Callable[[dict[str, list[dict[str, Any]]]], dict[str, Any]],
        value_of: Callable[[dict[str, Any], Leadership], _T],
    ) -> dict[TopicPartition, str]:
        """Ask the leaders once; return why some partitions have no answer yet."""
        topics = self.topics(sorted({topic for topic, _ in partitions}))
        by_node: dict[int, dict[str, list[dict[str, Any]]]] = {}
        reasons: dict[TopicPartition, str] = {}
        leaders: dict[TopicPartition, Leadership] = {}
        for topic, number in partitions:
            state = topics.get(topic)
            leader = None if state is None else state.leaders.get(number)
            if leader is None or leader.node < 0:
                reasons[topic, number] = "no such partition" if leader is None else "it has no leader now"
                continue
            leaders[topic, number] = leader
            row = row_of(number, leader, (topic, number))
            by_node.setdefault(leader.node, {}).setdefault(topic, []).append(row)
        for node, rows in by_node.items():
            try:
                with self.connection(node) as link:
                    answer = link.ask(request, values_of(rows), most=_MOST_VERSIONS.get(request, 99))
            except BrokenConnectionError as error:
                reasons |= dict.fromkeys((key for key in leaders if leaders[key].node == node), str(error))
                continue
            for rows_of_topic in answer["topics"]:
                name = rows_of_topic["name"] if "name" in rows_of_topic else rows_of_topic["topic"]
                for row in rows_of_topic["partitions"]:
                    key = name, row["partitionIndex"] if "partitionIndex" in row else row["partition"]
                    try:
                        check_code(row["errorCode"], f"{self.url}/{key[0]}-{key[1]}", "ask")
                        answers[key] = value_of(row, leaders[key])
                    except PassingError as error:
                        reasons[key] = str(error)
                    except StorageError as error:
                        answers[key] = error
        return reasons

    def sizes(self, topics: Iterable[TopicState]) -> dict[tuple[str, int], int]:
        """Return the bytes of the leaders' segments, as far as this client may ask for them."""
        by_node: dict[int, dict[str, list[int]]] = {}
        for topic in topics:
            for number, leader in topic.leaders.items():
                by_node.setdefault(leader.node, {}).setdefault(topic.name, []).append(number)
        sizes: dict[tuple[str, int], int] = {}
        for node, rows in by_node.items():
            asked = [{"topic": topic, "partitions": numbers} for topic, numbers in rows.items()]
            try:
                with self.connection(node) as link:
                    answer = link.ask(LOG_DIRS, {"topics": asked})
            except StorageError as error:
                _log.info("%s; sizes are estimated", error)
                continue
            for folder in answer["results"]:
                for topic in folder["topics"]:
                    for row in topic["partitions"]:
                        if not row["isFutureKey"]:
                            sizes[topic["name"], row["partitionIndex"]] = row["partitionSize"]
        return sizes

    def epoch_end(self, topic: str, number: int, leader: Leadership, epoch: int) -> int | None:
        """Return where the records of a leader epoch end in the log; None if the leader does not know."""
        row = {"partition": number, "currentLeaderEpoch": leader.epoch, "leaderEpoch": epoch}
        values = {"replicaId": -1, "topics": [{"topic": topic, "partitions": [row]}]}
        with self.connection(leader.node) as link:
            answer = link.ask(LEADER_EPOCH, values)
        part = answer["topics"][0]["partitions"][0]
        check_code(part["errorCode"], f"{self.url}/{topic}-{number}", "ask for epochs")
        return None if part["endOffset"] < 0 else int(part["endOffset"])
