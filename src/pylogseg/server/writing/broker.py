"""`Broker`: a broker in this process, for tests and for trying things out."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylogseg.disk.disk import Disk
from pylogseg.env.remote import without_login
from pylogseg.errors import ClosedError, PylogsegError, RequestError
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.server.acls import Authorizer
from pylogseg.server.catalog import INTERNAL, TopicDefaults
from pylogseg.server.committed import CommittedByTopic, CommittedOffsets
from pylogseg.server.connection import Limits
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.security import Guard, Security
from pylogseg.server.server import Server, bind_socket
from pylogseg.server.service import Service
from pylogseg.server.sessions import FetchSessions
from pylogseg.server.writing.access import AclRights
from pylogseg.server.writing.clock import MovableClock
from pylogseg.server.writing.control import Control, ReceivedRequest, RequestFilter
from pylogseg.server.writing.handlers import WRITING
from pylogseg.server.writing.journal import LoadedGroups, OffsetsJournal, TransactionsJournal
from pylogseg.server.writing.memory import memory_topics
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.transaction_coordinator import TransactionCoordinator
from pylogseg.server.writing.writer import Writing
from pylogseg.values.internal.cluster import GROUP_RESOURCE

if TYPE_CHECKING:
    from pylogseg.log.append_result import Appended
    from pylogseg.reading.record import Record
    from pylogseg.reading.state import IsolationLevel

#: As a broker's ``socket.request.max.bytes``.
REQUEST_BYTES = 100 << 20
#: For tests a session may be short.
_SESSIONS_S = (0.1, 1800.0)


def broker_service(
    topics: Topics,
    guard: Guard | None = None,
    *,
    above: Callable[[], CommittedByTopic] | None = None,
    ids_from: int | None = None,
) -> Service:
    """Return the service behind a server's requests; groups and transactions continue from their stored state.

    They have their records in Kafka's own topics. Above a copy these are the copy's, which do not grow: there `above`
    returns the offsets that groups start with. Ids of producers begin with `ids_from`. Existing logs may remember
    producers; a cluster counts their ids from 0 on. So by default new ids begin far above, at a random number, and
    nobody has to keep a count. RequestError if the guard's ACLs would let nobody do anything.
    """
    clock = topics.clock
    kept, journal = (OffsetsJournal(topics), TransactionsJournal(topics)) if above is None else (None, None)
    loaded = LoadedGroups({}, {}, {}) if kept is None else kept.load()
    offsets = CommittedOffsets(above or (lambda: loaded.offsets), loaded.staged)
    groups = GroupCoordinator(offsets, kept, sessions=_SESSIONS_S, now=clock.seconds)
    groups.resume(loaded.groups)
    groups.settings_of = lambda group: topics.catalog.dynamic.get((GROUP_RESOURCE, group), {})
    first = 1 << 60 | secrets.randbits(50) << 10 if ids_from is None else ids_from
    new_id = itertools.count(first).__next__
    transactions = TransactionCoordinator(topics, groups, new_id, clock.now_ms, journal)

    def move_on() -> None:
        groups.wake()
        transactions.tick()

    clock.on_move, topics.on_change = move_on, groups.topics_changed
    writing = Writing(topics, transactions, new_id)
    service = Service(topics.catalog, groups, WRITING, writing=writing)
    _protect(service, topics, Guard(Security()) if guard is None else guard)
    if journal is not None:
        transactions.resume(journal.load())
    return service


def _protect(service: Service, topics: Topics, guard: Guard) -> None:
    """Admit the guard's users, and users that clients create; with ACLs, only for the allowed operations."""
    service.guard = guard
    if guard.users is not None:
        guard.users.take_others(lambda: topics.users)
    if not guard.acls:
        return
    if not (guard.super_users or guard.allows_without_acls or topics.acls.by_id):
        raise RequestError("ACLs without a super user: nobody could do anything (super_users, --super-user)")
    allows = guard.allows_without_acls
    service.rights = AclRights(Authorizer(lambda: topics.acls, guard.super_users, allows_without=allows))


class Broker(Server):
    """A broker of one node in this process: any Kafka client produces to it and consumes from it.

    Nothing has to be installed or started, and it is ready in milliseconds. Records are in memory, and gone when it is
    closed; or in a directory, which keeps them, with the offsets of groups and transactions. Batches go through the
    engine of this package, so they meet a broker's checks.

    Parameters
    ----------
    path : path, optional
        A log directory that keeps what is written; it is made if it is missing. By default all is in memory.
    above : path or sequence of path, optional
        Log directories of one broker, such as a copy, that no broker is writing to: their topics, records and group
        offsets are there at the beginning. Writes and deletions of clients stay in memory, and the files do not change.
    topics : mapping of str to int, or sequence of str
        Topics that are there from the beginning, with the number of their partitions.
    partitions : int
        Of a topic that is made without a number, or by being asked for.
    auto_create : bool
        True if a topic comes into being when a client asks for it.
    node_id : int, optional
        The broker's number; by default the directory's, otherwise 1.
    listen : str
        Address to listen on, ``host:port``; port 0 takes a free one.
    advertise : str, optional
        Address in the answers to clients, if it differs. By default the one that they connected to.
    security : Security
        Certificates for TLS, users with passwords, and ACLs; by default whoever can connect may do everything.
    max_connections : int
        Of clients, at one time.
    trace : callable, optional
        Called with a line of text for each request.

    Raises
    ------
    StorageError
        If the address is taken.
        If another process has the lock of a directory, or the disk fails.
    RequestError
        If an address or the name of a topic is none, or the directory is that of another node.
    CorruptionError
        If a file of the directory that is needed is damaged.

    Examples
    --------
    >>> import pylogseg
    >>> with pylogseg.Broker() as broker:
    ...     done = broker.produce("orders", b"tea", b"coffee", key=b"1")
    ...     [record.value for record in broker.records("orders")]
    [b'tea', b'coffee']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        above: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        topics: Mapping[str, int] | Sequence[str] = (),
        partitions: int = 1,
        auto_create: bool = True,
        node_id: int | None = None,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        security: Security = Security(),  # noqa: B008  (it cannot be changed)
        max_connections: int = 1000,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        if not isinstance(auto_create, bool):
            raise RequestError(f"auto_create must be True or False, not {auto_create!r}")
        self._path, self._auto_create = path, auto_create
        self._above = [above] if isinstance(above, (str, os.PathLike)) else list(above)
        _check_folders(path, self._above)
        self._node_id = None if node_id is None else _whole(node_id, "node_id", 0)
        self._partitions = _whole(partitions, "partitions", 1)
        self._guard, self._control = Guard(security), Control(WRITING)
        if isinstance(topics, str):
            raise RequestError(f"topics are a list of names, or names with numbers of partitions, not {topics!r}")
        counts = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, partitions)
        self._counts = {name: _whole(count, f"partitions of {name}", 1) for name, count in counts.items()}
        limits = Limits(connections=_whole(max_connections, "max_connections", 1), request_bytes=REQUEST_BYTES)
        service = self._make_service()
        try:
            super().__init__(service, listen, advertise=advertise, limits=limits, trace=trace)
        except BaseException:
            service.close()
            service.catalog.close()
            raise

    def _make_service(self) -> Service:
        defaults = TopicDefaults(self._partitions, auto_create=self._auto_create)
        if self._path is None:
            topics = memory_topics(defaults, self._above)
            topics.catalog.node_id = topics.catalog.node_id if self._node_id is None else self._node_id
        else:
            # The manager of logs is loaded by whoever keeps some.
            from pylogseg.server.writing.directory import directory_topics

            topics = directory_topics(self._path, defaults, self._node_id)
        try:
            with _as_request():
                for name, count in self._counts.items():
                    if name not in topics.catalog.topics:
                        topics.make(name, count)
            is_new = self._path is None and not self._above
            above = functools.partial(_copied_offsets, topics.catalog.disk) if self._above else None
            service = broker_service(topics, self._guard, above=above, ids_from=1 if is_new else None)
        except BaseException:
            topics.catalog.close()
            raise
        service.before, service.before_fetch = self._control.before, self._control.before_fetch
        return service

    def __repr__(self) -> str:
        """Return a short text."""
        where = "memory" if self._path is None else os.fspath(self._path)
        where += f" above {', '.join(os.fspath(path) for path in self._above)}" if self._above else ""
        how = "closed" if self._closed.is_set() else "stopped" if self.is_stopped else f"{len(self.topics)} topics"
        return f"<pylogseg.Broker at {self.bootstrap_servers}, in {where}: {how}>"

    # ---- what there is ----

    @property
    def clock(self) -> MovableClock:
        """The time of all that happens in the broker: `MovableClock.advance` moves it ahead.

        FetchSessions of groups, timeouts of transactions and timestamps that the broker sets follow it.
        """
        return self._topics.clock

    def create_topic(self, name: str, partitions: int | None = None, config: Mapping[str, Any] | None = None) -> None:
        """Make a topic.

        Parameters
        ----------
        name : str
            Of the topic.
        partitions : int, optional
            By default that of the broker.
        config : mapping, optional
            Settings by Kafka's names: ``{"cleanup.policy": "compact"}``.

        Raises
        ------
        RequestError
            If there is such a topic, or a name, number or setting is invalid.
        """
        settings = {key: str(value) for key, value in (config or {}).items()}
        count = self._partitions if partitions is None else _whole(partitions, "partitions", 1)
        with _as_request():
            self._open()
            self._topics.make(name, count, settings)

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Any = (),
        timestamp: Any = None,
        partition: int | None = None,
    ) -> Appended:
        """Append records, each in a batch of its own, as a producer would.

        Parameters
        ----------
        topic : str
            It comes into being by this, unless `auto_create` is off or the records are refused.
        *values : bytes, str or None
            Of the records. A text is stored as UTF-8.
        key : bytes, str or None
            Of all of them.
        headers : mapping, or pairs of name and value
            Of all of them.
        timestamp : int (ms) or datetime, optional
            By default the time of the broker's clock.
        partition : int, optional
            By default that which Kafka's producer chooses for the key; without a key the first.

        Returns
        -------
        Appended
            Of the last record: `first_offset` is its offset.

        Raises
        ------
        RequestError
            If there is no such topic or partition, or a record is invalid or breaks a rule of the topic.
        """
        from pylogseg.reading.arrow.encode import encode

        if not values:
            raise RequestError("produce needs a value for each record; None is a tombstone")
        if topic in INTERNAL:
            raise RequestError(f"clients may not write to {topic}")
        catalog = self._open().catalog
        with _as_request():
            is_new = topic not in catalog.topics and catalog.defaults.auto_create
            count = self._topics.make(topic, dry=True).count if is_new else self._topic(topic).count
            number = (0 if key is None else _chosen(key, count)) if partition is None else partition
            if number not in range(count):
                raise RequestError(f"{topic!r} has the partitions 0 to {count - 1}, not {number!r}")
            now_ms = self.clock.now_ms()
            batches = [
                encode([(timestamp, key, value, headers)], base_offset=0, timestamp_default_ms=now_ms)
                for value in values
            ]
            if is_new:  # nothing that was asked for is refused by now
                self._topics.make(topic)
            served = catalog.find(catalog.topics[topic], number)
            return [self._topics.append(served, batch) for batch in batches][-1]

    def records(
        self, topic: str, partition: int | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[Record]:
        """Return the present records of a topic.

        Parameters
        ----------
        topic : str
            Kafka's own ones, too, where there are any.
        partition : int, optional
            By default all, one after another.
        isolation_level : {"read_uncommitted", "read_committed"}
            ``read_committed`` leaves out the records of aborted transactions, and ends at the first open one.

        Returns
        -------
        list of Record
            As `pylogseg.read` gives them.

        Raises
        ------
        RequestError
            If there is no such topic or partition.
        """
        from pylogseg.owned.slices import OpenLog
        from pylogseg.reading.log_reader import ReadScope
        from pylogseg.reading.record import records_of
        from pylogseg.reading.state import Reading

        self._open()
        with _as_request():
            found_topic = self._topic(topic)
            numbers = sorted(found_topic.partitions) if partition is None else [partition]
            if partition is not None and partition not in found_topic.partitions:
                raise RequestError(f"{topic!r} has the partitions {sorted(found_topic.partitions)}, not {partition!r}")
            logs = [self.catalog.find(found_topic, number).log() for number in numbers]
        is_committed = isolation_level == "read_committed"
        ends = [log.last_stable_offset if is_committed else log.high_watermark for log in logs]
        sources = [OpenLog(log, end) for log, end in zip(logs, ends, strict=True)]
        scope = ReadScope.of(sources, reading=Reading(isolation_level))
        return [record for chunk in scope.chunks() for record in records_of(chunk)]

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition; none of one that has not come yet."""
        committed = self._open().groups.fetch_offsets(group)
        return {place: entry.offset for place, entry in sorted(committed.items())}

    def _topic(self, name: str) -> Any:
        topics = self.catalog.topics
        if name not in topics:
            raise RequestError(f"there is no topic {name!r}; there are {', '.join(topics) or 'none'}")
        return topics[name]

    @property
    def _topics(self) -> Topics:
        assert isinstance(self._service.writing, Writing)
        return self._service.writing.topics

    def _open(self) -> Service:
        if self._closed.is_set():
            raise ClosedError(f"{self!r}")
        if self.is_stopped and self._path is not None:
            raise ClosedError(f"{self!r}: its topics are in its directory; start() opens them again")
        return self._service

    # ---- a life ----

    @property
    def is_stopped(self) -> bool:
        """True if nobody can connect, since `stop`."""
        return self._hushed.is_set()

    def stop(self) -> None:
        """Stop, as a broker that is shut down: clients lose their connections, and find nobody at its port.

        Written records are kept. A directory is closed cleanly, and free for others until `start`.
        """
        if self.is_stopped:
            return
        service = self._service
        self._hush()
        if self._path is not None:
            service.stopping.set()
            service.close()
            service.catalog.close()
        self._socket = bind_socket(self.address)  # nobody else gets the port meanwhile

    def start(self) -> None:
        """Go on after `stop`, at the same port; a pause is over."""
        if self._closed.is_set():
            raise ClosedError(f"{self!r}")
        if not self.is_stopped:
            return
        if self._path is not None:
            self._service = self._make_service()
        self._service.sessions = FetchSessions()
        self.resume()
        self._listen()

    def reset(self) -> None:
        """Forget everything: topics and records, groups, producers, requests, failures, how far the clock was moved.

        Then there is what was there at the beginning. Clients lose their connections, and the port stays.

        Raises
        ------
        RequestError
            If the broker is that of a directory.
        """
        if self._path is not None:
            raise RequestError(f"{self!r}: only a broker in memory can forget its topics")
        before = self._open()
        self._control.clear()
        with self._mutex:
            self._service = self._make_service()
        before.stopping.set()
        before.close()
        self._hang_up()
        before.catalog.close()
        self._control.clear()

    # ---- what goes wrong ----

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The requests that clients have sent, in the order in which they came: the newest 10,000, of 64 MiB."""
        return self._control.requests.list_requests()

    def clear_requests(self) -> None:
        """Forget the requests so far."""
        self._control.requests.clear()

    def fail(
        self,
        api: str,
        error: str | int,
        times: int = 1,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> None:
        """Answer the next requests of an API with an error, and do not carry them out.

        Parameters
        ----------
        api : str
            Name of the request, as ``"Produce"``.
        error : str or int
            Kafka's name or number of the error, as ``"NOT_ENOUGH_REPLICAS"``.
        times : int
            For how many requests.
        topic : str, optional
            Only requests that name this topic fail, and only for it; for other topics they succeed.
        partition : int, optional
            Only for this partition of the topic.
        group : str, optional
            Only requests that name this group fail.

        Raises
        ------
        RequestError
            For another name, and where the requests of an API do not name topics, partitions or groups.
        """
        self._control.fail(api, error, times, RequestFilter(topic, partition, group))

    def disconnect(
        self,
        api: str,
        times: int = 1,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> None:
        """Close the connection on the next requests of an API, instead of an answer; see `fail` for the parameters."""
        self._control.fail(api, None, times, RequestFilter(topic, partition, group))

    def delay(
        self,
        api: str,
        seconds: float,
        times: int = 1,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> None:
        """Wait before the next requests of an API are looked at; a client that goes meanwhile has asked for nothing.

        Parameters and errors are those of `fail`, and a number of seconds of real time (not of the broker's clock). The
        whole request waits.
        """
        self._control.delay(api, seconds, times, RequestFilter(topic, partition, group))

    def heal(self) -> None:
        """Forget the failures and delays that were asked for and have not happened."""
        self._control.heal()

    def pause(self) -> None:
        """Answer nothing until `resume`; clients stay connected."""
        self._control.pause()

    def resume(self) -> None:
        """Answer again, first the requests from the pause."""
        self._control.resume()


@contextlib.contextmanager
def _as_request() -> Iterator[None]:
    """Turn an answer to a client into an error of this package."""
    try:
        yield
    except KafkaError as error:
        if isinstance(error.__cause__, PylogsegError):
            raise error.__cause__ from None
        raise RequestError(error.text or codes.name_of(error.code)) from None


def _check_folders(path: str | os.PathLike[str] | None, above: Sequence[str | os.PathLike[str]]) -> None:
    if path is not None and above:
        raise RequestError(f"a broker stores records in {path}, or in memory above {above[0]}: name one of them")
    for place in above if path is None else [path]:
        if "://" in os.fspath(place):
            what = "copy the files of an object store, and restore a tier first"
            raise RequestError(
                f"a broker needs directories of this machine, not {without_login(os.fspath(place))}: {what}"
            )


def _copied_offsets(disk: Disk) -> CommittedByTopic:
    """Return where groups stood when a copy was made."""
    # It brings pyarrow along, which takes longer than all else here.
    from pylogseg.server.group_offsets import group_offsets, has_groups

    return group_offsets(disk) if has_groups(disk) else {}


def _whole(value: Any, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RequestError(f"{name} must be a whole number from {least} on, not {value!r}")
    return value


def _chosen(key: bytes | str, count: int) -> int:
    """Return the partition that Kafka's producer chooses for a key."""
    import numpy as np

    from pylogseg._codec import murmur2_values

    key = key.encode() if isinstance(key, str) else key
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise RequestError(f"a key is bytes, text or None, not {type(key).__name__}")
    hashed = np.empty(1, np.int32)
    murmur2_values(np.array([0, len(key)]), key, hashed)
    return int(hashed[0] & 0x7FFFFFFF) % count
