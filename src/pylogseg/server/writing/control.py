"""The control of a broker by a test: errors that it asks for, a pause, the list of requests."""

from __future__ import annotations

import difflib
import functools
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pylogseg.errors import RequestError
from pylogseg.format.kafka_table import errors
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values, request_of
from pylogseg.server.service import Call, Disconnected
from pylogseg.server.table import Api, ApiTable, Rows
from pylogseg.server.writing.failures import fail, join_topics

#: Requests that are remembered, and what they take of memory; the oldest go first.
_MOST_REQUESTS, MOST_REQUEST_BYTES = 10_000, 64 << 20
_LOOK_SECONDS = 0.05
_PRODUCE, _FETCH, _OFFSET_FETCH = 0, 1, 9
_WANTED = "a test wants this error"


class ReceivedRequest(NamedTuple):
    """A request that a client has sent.

    Attributes
    ----------
    api : str
        Its name, as ``"Produce"``.
    version : int
    client_id : str
    values : dict
        Its fields, by Kafka's names in the schema; records of Produce are their number of bytes. Where a topic comes by
        its id, there is its name, too.
    """

    api: str
    version: int
    client_id: str
    values: dict[str, Any]


class RequestFilter(NamedTuple):
    """The matching requests: by topic, partition of it, or group; None is any."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None

    def check(self, api: Api) -> None:
        """Raise RequestError where the requests of an API do not name such things."""
        if self.topic is not None and _depth(api) == 0:
            raise RequestError(f"{api.name} has no errors of single topics: leave out topic")
        if self.partition is not None and (self.topic is None or _depth(api) < 2):
            needs = "has no errors of single partitions: leave out partition" if self.topic else "needs a topic too"
            raise RequestError(f"partition={self.partition!r} of {api.name} {needs}")
        if self.group is not None and not _group_fields(api.key):
            raise RequestError(f"{api.name} names no group: leave out group")

    def is_in(self, api: Api, call: Call) -> bool:
        """Return whether a request names it."""
        if self.group is not None and self.group not in _groups(api.key, call.values):
            return False
        if self.topic is None:
            return True
        lists = api.rows_of(call.version)
        return any(map(self.chooser(call, lists), call.values[lists[0].request] or ()))

    def chooser(self, call: Call, lists: tuple[Rows, ...]) -> Callable[[Any], bool]:
        """Return a predicate that takes a topic's row of the request, or a topic's name."""

        def is_meant(row: Any) -> bool:
            name = row if isinstance(row, str) else _name_of(row)
            topic = None if isinstance(row, str) else call.topic(name, row.get("topicId", NO_ID))
            is_topic = self.topic == (name if topic is None else topic.name)
            return is_topic and (self.partition is None or self.partition in map(_number, row[lists[1].request]))

        return is_meant


@dataclass
class _Rule:
    """The fate of some requests, and their number: an error, a closed connection (None), or a delay."""

    named: RequestFilter
    left: int
    code: int | None = None
    seconds: float = 0.0


class Requests:
    """The latest requests."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._bytes = 0
        self._kept: deque[tuple[ReceivedRequest, int]] = deque()

    def add(self, seen: ReceivedRequest) -> None:
        """Remember one; the oldest ones make room for it."""
        size = _size_of(seen.values)
        with self._mutex:
            self._kept.append((seen, size))
            self._bytes += size
            while len(self._kept) > 1 and (len(self._kept) > _MOST_REQUESTS or self._bytes > MOST_REQUEST_BYTES):
                self._bytes -= self._kept.popleft()[1]

    def list_requests(self) -> list[ReceivedRequest]:
        """Return the requests, the oldest first."""
        with self._mutex:
            return [seen for seen, _ in self._kept]

    def clear(self) -> None:
        with self._mutex:
            self._kept.clear()
            self._bytes = 0


class Control:
    """Stands between the clients and the broker."""

    def __init__(self, table: ApiTable) -> None:
        self._table = table
        self.requests = Requests()
        self._mutex = threading.Lock()
        self._failures: defaultdict[int, list[_Rule]] = defaultdict(list)
        self._delays: defaultdict[int, list[_Rule]] = defaultdict(list)
        self._running = threading.Event()
        self._running.set()

    def before(self, api: Api, call: Call) -> Values | None:
        """Look at a request before it is answered; return the answer that a test wants instead."""
        key = api.key
        values = _with_names(_without_records(key, call.values), call)
        self.requests.add(ReceivedRequest(api.name, call.version, call.client_id, values))
        while not self._running.wait(_LOOK_SECONDS):
            call.wait(0.001)  # it raises if the client has gone, or the server stops
        # Of the sessions that it reads only the fetch itself knows the topics.
        self._delay(key, call, lambda named: not (key == _FETCH and named.topic) and named.is_in(api, call))
        rule = self._next(
            self._failures[key],
            lambda rule: not (key == _FETCH and rule.named.topic) and rule.named.is_in(api, call),
        )
        if rule is None:
            return None
        if rule.code is None:
            raise Disconnected("a test wants it")
        if key == _PRODUCE and call.values["acks"] == 0:
            raise Disconnected(f"a test wants error {rule.code}, and the client waits for no answer")
        return fail(api, call, rule.code, _WANTED) if rule.named.topic is None else _fail_in_part(api, call, rule)

    def before_fetch(self, call: Call, topic: str, number: int) -> None:
        """Apply a test's orders to a partition of a fetch; raises the ordered error."""

        def is_meant(named: RequestFilter) -> bool:
            return named.topic == topic and named.partition in (None, number)

        self._delay(_FETCH, call, is_meant)
        rule = self._next(self._failures[_FETCH], lambda rule: is_meant(rule.named))
        if rule is None:
            return
        if rule.code is None:
            raise Disconnected("a test wants it")
        raise KafkaError(rule.code)

    def _delay(self, key: int, call: Call, is_meant: Callable[[RequestFilter], bool]) -> None:
        rule = self._next(self._delays[key], lambda rule: is_meant(rule.named))
        if rule is not None:
            call.wait(rule.seconds)

    def _next(self, rules: list[_Rule], is_meant: Callable[[_Rule], bool]) -> _Rule | None:
        if not rules:
            return None
        with self._mutex:
            rule = next(filter(is_meant, rules), None)
            if rule is not None:
                rule.left -= 1
                if rule.left <= 0:
                    rules.remove(rule)
            return rule

    def fail(self, api: str, error: str | int | None, times: int, named: RequestFilter) -> None:
        """Answer the next requests of an API with an error; None closes the connection instead."""
        self._add(self._failures, api, _Rule(named, times, None if error is None else code_of(error)))

    def delay(self, api: str, seconds: float, times: int, named: RequestFilter) -> None:
        """Let the next requests of an API wait."""
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
            raise RequestError(f"a delay is a number of seconds from 0 on, not {seconds!r}")
        self._add(self._delays, api, _Rule(named, times, seconds=seconds))

    def _add(self, rules: defaultdict[int, list[_Rule]], api: str, rule: _Rule) -> None:
        record = self._api_of(api)
        rule.named.check(record)
        if not isinstance(rule.left, int) or rule.left < 1:
            raise RequestError(f"times must be at least 1, got {rule.left!r}")
        with self._mutex:
            rules[record.key].append(rule)

    def _api_of(self, name: str) -> Api:
        for api in self._table.apis.values():
            if api.name.lower() == name.lower():
                return api
        names = sorted(api.name for api in self._table.apis.values())
        raise RequestError(f"{name!r} is not a request that is answered here: {', '.join(names)}")

    def heal(self) -> None:
        """Forget the failures and delays that were asked for."""
        with self._mutex:
            for rules in (*self._failures.values(), *self._delays.values()):
                rules.clear()

    def clear(self) -> None:
        """Forget all, requests too, and answer."""
        self.heal()
        self.requests.clear()
        self.resume()

    def pause(self) -> None:
        """Answer nothing until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()


# ---- what a request names ----


def _name_of(row: dict[str, Any]) -> str | None:
    name: str | None = row["topic"] if "topic" in row else row["name"]
    return name


def _number(row: Any) -> int:
    """Return the partition of a row, which may be its number alone."""
    return (
        row
        if isinstance(row, int)
        else int(next(row[name] for name in ("index", "partition", "partitionIndex") if name in row))
    )


@functools.cache
def _group_fields(key: int) -> tuple[str, ...]:
    of = request_of(key)
    assert of is not None
    fields = [field.name for field in of.fields if field.entity == "groupId"]
    return (*fields, "groups") if key == _OFFSET_FETCH else tuple(fields)


def _groups(key: int, values: Values) -> set[str]:
    groups: set[str] = set()
    for name in _group_fields(key):
        value = values[name]
        groups |= (
            {value}
            if isinstance(value, str)
            else {group if isinstance(group, str) else group["groupId"] for group in value or ()}
        )
    return groups


def _with_names(values: Values, call: Call) -> Values:
    """Return the fields of a request with the names of topics that it has by their ids."""

    def add_name(row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        row = {name: [*map(add_name, part)] if isinstance(part, (list, tuple)) else part for name, part in row.items()}
        if row.get("topicId", NO_ID) != NO_ID:
            topic = call.topic(None, row["topicId"])
            name = "topic" if "topic" in row else "name"
            row[name] = row.get(name) or (None if topic is None else topic.name)
        return row

    copy: Values = add_name(values)
    return copy


def _size_of(value: Any) -> int:
    """Return the bytes of memory that the fields of a request take, without their names."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sys.getsizeof(value) + sum(map(_size_of, inner))


def _without_records(key: int, values: Values) -> Values:
    """Return the fields of a request without the batches in it, which are too much to remember."""
    if key != _PRODUCE:
        return values
    topics = []
    for topic in values["topicData"]:
        rows = [{"index": part["index"], "records": len(part["records"] or b"")} for part in topic["partitionData"]]
        topics.append({**topic, "partitionData": rows})
    return {**values, "topicData": topics}


def code_of(error: str | int) -> int:
    """Return the code of an error by Kafka's name, as ``"NOT_ENOUGH_REPLICAS"``; RequestError if there is none."""
    table = {name: code for name, code in errors().items() if code != codes.NONE}
    if isinstance(error, str) and error.upper() in table:
        return table[error.upper()]
    if isinstance(error, int) and error in table.values():
        return error
    alike = difflib.get_close_matches(str(error).upper(), table, 3)
    hint = f"did you mean {', '.join(alike)}?" if alike else f"they have the numbers -1, and 1 to {max(table.values())}"
    raise RequestError(f"{error!r} is not an error of Kafka's: {hint}")


def _fail_in_part(api: Api, call: Call, rule: _Rule) -> Values:
    """Return the answer to a request of which a topic, or a partition of it, fails; the rest of it is done."""
    rows = api.rows_of(call.version)
    is_meant = rule.named.chooser(call, rows)
    wanted, rest = [], []
    for topic in call.values[rows[0].request]:
        if not is_meant(topic):
            rest.append(topic)
        elif rule.named.partition is None:
            wanted.append(topic)
        else:
            inner = rows[1].request
            is_one = [_number(part) == rule.named.partition for part in topic[inner]]
            wanted.append({**topic, inner: [part for part, yes in zip(topic[inner], is_one, strict=True) if yes]})
            if not all(is_one):
                rest.append({**topic, inner: [part for part, yes in zip(topic[inner], is_one, strict=True) if not yes]})
    assert rule.code is not None
    failure = fail(api, call._replace(values={**call.values, rows[0].request: wanted}), rule.code, _WANTED)
    if not rest:
        return failure
    done = call.service.answer(api, call._replace(values={**call.values, rows[0].request: rest}))
    assert done is not None
    return {**done, rows[0].answer: join_topics([*done.get(rows[0].answer, ()), *failure[rows[0].answer]], rows)}


def _depth(api: Api) -> int:
    """Return the depth of single errors in an answer: 1 topics, 2 also partitions."""
    if api.key == _FETCH:
        return 2
    return len(api.rows) if api.rows and {"name", "topic"} & set(api.rows[0].copied) else 0
