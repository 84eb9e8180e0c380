"""Requests that change a cluster beside its logs: topics, their settings, and the offsets of groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from pylogseg.errors import StorageError
from pylogseg.format.messages import codes
from pylogseg.live.cluster import PATIENCE_S, Cluster, PassingError, check_code
from pylogseg.live.connection import BrokerConnection
from pylogseg.live.describing import describe_topics, own_settings

_T = TypeVar("_T")
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS = 8, 9, 10, 19
ALTER_CONFIGS, DELETE_OFFSETS = 44, 47
#: Kinds of keys that FindCoordinator takes.
OF_GROUP, OF_TRANSACTION = 0, 1
#: Errors of coordinators that end by themselves.
COORDINATING = frozenset((codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR))
_TOPIC, _SET, _DELETE = 2, 0, 1
_TIMEOUT_MS = 30_000
#: So long it may take until a broker has what the controller has accepted.
_SPREAD_S = 5.0

_Place = tuple[str, int]


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, with the text that its client gave."""

    offset: int
    metadata: str


def check_coordinator(code: int, path: str, operation: str) -> None:
    """Raise PassingError or StorageError for the code that a coordinator answers with, if it is not 0."""
    if code in COORDINATING:
        raise PassingError(code)
    check_code(code, path, operation)


def ask_for_coordinator(cluster: Cluster, path: str, key: str, kind: int) -> int:
    """Return the node that coordinates a group or a transactional id."""

    def attempt() -> int:
        with cluster.connection() as link:
            answer = link.ask(FIND_COORDINATOR, {"key": key, "keyType": kind}, most=3)
        check_coordinator(answer["errorCode"], path, "find the coordinator")
        return int(answer["nodeId"])

    return cluster.again(path, "find the coordinator", attempt)


def create_topic(cluster: Cluster, name: str, partitions: int, replicas: int = -1) -> None:
    """Create a topic, by default with as many replicas as the cluster chooses; wait until its partitions are led."""
    path = f"{cluster.url}/{name}"
    topic = {"name": name, "numPartitions": partitions, "replicationFactor": replicas}
    with cluster.connection() as link:
        answer = link.ask(CREATE_TOPICS, {"topics": [topic], "timeoutMs": _TIMEOUT_MS})
    (row,) = answer["topics"]
    if row["errorCode"] not in (codes.NONE, codes.TOPIC_ALREADY_EXISTS):
        raise _refusal(path, "create", row)
    until = time.monotonic() + PATIENCE_S
    while True:
        state = cluster.topics([name]).get(name)
        if state is not None and len(state.leaders) == partitions and all(x.node >= 0 for x in state.leaders.values()):
            return
        if time.monotonic() > until:
            raise StorageError(path, "create", f"its partitions have no leaders after {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def read_topic_settings(cluster: Cluster, name: str) -> tuple[dict[str, str], set[str]]:
    """Return the settings that a topic has of its own, and the names of all that the cluster knows."""
    (row,) = describe_topics(cluster, [name])
    if row["errorCode"]:
        raise _refusal(f"{cluster.url}/{name}", "read the settings", row)
    return own_settings(row), {config["name"] for config in row["configs"]}


def alter_settings(cluster: Cluster, name: str, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
    """Set settings of a topic, and remove others, all or none; wait a while until the brokers say so, too."""
    rows = [{"name": key, "configOperation": _SET, "value": value} for key, value in values.items()]
    rows += [{"name": key, "configOperation": _DELETE, "value": None} for key in removed]
    if not rows:
        return
    with cluster.connection() as link:
        answer = link.ask(ALTER_CONFIGS, {"resources": [_resource(name, configs=rows)]})
    (row,) = answer["responses"]
    path = f"{cluster.url}/{name}"
    if row["errorCode"]:
        raise _refusal(path, "change the settings", row)
    until = time.monotonic() + _SPREAD_S
    while time.monotonic() < until:
        own, _ = read_topic_settings(cluster, name)
        if all(_is_same(own.get(key), value) for key, value in values.items()) and not own.keys() & set(removed):
            return
        time.sleep(0.05)


def _is_same(one: str | None, other: str) -> bool:
    """Compare two values of a setting: a broker writes numbers in a form of its own."""
    try:
        return one == other or (one is not None and float(one) == float(other))
    except ValueError:
        return False


def commit_group_offsets(cluster: Cluster, group: str, offsets: Mapping[_Place, CommittedOffset]) -> dict[_Place, int]:
    """Commit offsets of a group that has no members; return the error codes of refused partitions."""
    topics = _by_topic(
        (topic, {"partitionIndex": number, "committedOffset": wanted.offset, "committedMetadata": wanted.metadata})
        for (topic, number), wanted in offsets.items()
    )
    asked = [{"name": name, "partitions": rows} for name, rows in topics.items()]

    def attempt(link: BrokerConnection) -> dict[_Place, int]:
        answer = link.ask(OFFSET_COMMIT, {"groupId": group, "topics": asked}, most=9)
        refusals = _codes(answer["topics"])
        for code in refusals.values():
            if code in COORDINATING:
                raise PassingError(code)
        return {place: code for place, code in refusals.items() if code}

    return _ask_group(cluster, group, "commit offsets", attempt)


def read_group_offsets(cluster: Cluster, group: str, places: Iterable[_Place]) -> dict[_Place, CommittedOffset]:
    """Return the offsets that a group has committed; partitions without one are left out."""
    topics = _by_topic(places)
    asked = [{"name": name, "partitionIndexes": numbers} for name, numbers in topics.items()]

    def attempt(link: BrokerConnection) -> dict[_Place, CommittedOffset]:
        answer = link.ask(OFFSET_FETCH, {"groupId": group, "topics": asked}, most=7)
        check_coordinator(answer["errorCode"], _path(cluster, group), "read offsets")
        offsets = {}
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                check_coordinator(row["errorCode"], _path(cluster, group), "read offsets")
                if row["committedOffset"] >= 0:
                    place = topic["name"], row["partitionIndex"]
                    offsets[place] = CommittedOffset(row["committedOffset"], row["metadata"] or "")
        return offsets

    return _ask_group(cluster, group, "read offsets", attempt)


def delete_group_offsets(cluster: Cluster, group: str, places: Iterable[_Place]) -> None:
    """Delete the committed offsets of a group for partitions."""
    topics = _by_topic((topic, {"partitionIndex": number}) for topic, number in places)
    asked = [{"name": name, "partitions": rows} for name, rows in topics.items()]

    def attempt(link: BrokerConnection) -> None:
        answer = link.ask(DELETE_OFFSETS, {"groupId": group, "topics": asked})
        check_coordinator(answer["errorCode"], _path(cluster, group), "delete offsets")

    _ask_group(cluster, group, "delete offsets", attempt)


def _ask_group(cluster: Cluster, group: str, operation: str, attempt: Callable[[BrokerConnection], _T]) -> _T:
    path = _path(cluster, group)

    def ask() -> _T:
        with cluster.connection(ask_for_coordinator(cluster, path, group, OF_GROUP)) as link:
            return attempt(link)

    return cluster.again(path, operation, ask)


def _path(cluster: Cluster, group: str) -> str:
    return f"{cluster.url}: group {group}"


def _resource(name: str, **more: Any) -> dict[str, Any]:
    return {"resourceType": _TOPIC, "resourceName": name, **more}


def _refusal(path: str, operation: str, row: Mapping[str, Any]) -> StorageError:
    text = codes.name_of(row["errorCode"])
    return StorageError(path, operation, f"{text}: {row['errorMessage']}" if row["errorMessage"] else text)


def _by_topic(rows: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    topics: dict[str, list[_T]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return topics


def _codes(topics: Iterable[Mapping[str, Any]]) -> dict[_Place, int]:
    return {(topic["name"], row["partitionIndex"]): row["errorCode"] for topic in topics for row in topic["partitions"]}
