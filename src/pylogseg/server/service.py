"""State shared by all requests, and one request (`Call`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.server import acls
from pylogseg.server.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from pylogseg.server.budget import Budget, Pool
from pylogseg.server.catalog import Catalog, ServedPartition, Topic
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.security import Guard, Security
from pylogseg.server.sessions import FetchSessions
from pylogseg.server.table import Api, ApiTable

_AGAIN_SECONDS = 60.0
_MOST_HOSTS, _MOST_TEXTS = 1000, 10
_MOST_CHARACTERS = 300
_OTHERS = "more of this kind, which is not said one by one"


class ClientComplaints:
    """Logs a warning about a host when it comes first, and once a minute with how often it came meanwhile.

    Clients choose words of it: so many different ones are logged of a host, and of each only the beginning.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._mutex = threading.Lock()
        self._told: dict[str, dict[str, tuple[float, int]]] = {}

    def add(self, host: str, who: str, text: str) -> None:
        now, text = self._now(), _shorten(text)
        with self._mutex:
            texts = self._told.get(host)
            if texts is None:
                if len(self._told) >= _MOST_HOSTS:
                    del self._told[next(iter(self._told))]
                texts = self._told[host] = {}
            if text not in texts and len(texts) >= _MOST_TEXTS:
                for old in [line for line, (until, _) in texts.items() if until <= now and line != _OTHERS]:
                    del texts[old]
                text = text if len(texts) < _MOST_TEXTS else _OTHERS
            until, count = texts.get(text, (0.0, 0))
            if now < until:
                texts[text] = until, count + 1
                return
            texts[text] = now + _AGAIN_SECONDS, 0
        more = f" (and {count} times more since the last word of it)" if count else ""
        self._log.warning("%s: %s%s", _shorten(who), text, more)


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


_log = logging.getLogger(__name__)


def _bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


#: What whoever can connect may do to each type of resource, as bits.
_READING = {
    TOPIC: _bits(acls.READ, acls.DESCRIBE, acls.DESCRIBE_CONFIGS),
    GROUP: _bits(acls.READ, acls.DESCRIBE, acls.DESCRIBE_CONFIGS),
    CLUSTER: _bits(acls.DESCRIBE),
}
_WRITING = {kind: _bits(*operations) for kind, operations in acls.OPERATIONS.items()}
ANONYMOUS = "User:ANONYMOUS"


class Disconnected(Exception):
    """Raised instead of an answer, to end the connection; the text says why."""


class Endpoint(NamedTuple):
    """An address that clients get."""

    host: str
    port: int


class Rights(Protocol):
    """Permissions of clients by ACLs."""

    def answer(self, api: Api, call: Call) -> Values | None: ...
    def check_readable(self, call: Call, topic: str) -> None: ...
    def topics_that_may_be_described(self, call: Call) -> Callable[[str], bool]: ...
    def operations(self, call: Call, kind: int, name: str) -> int: ...


class Closable(Protocol):
    """Something to close when the server stops."""

    def close(self) -> None: ...


@dataclass
class Service:
    """State shared by all connections."""

    catalog: Catalog
    groups: GroupCoordinator
    table: ApiTable
    #: The most bytes of records in one answer, as a broker's ``fetch.max.bytes``.
    fetch_max_bytes: int = 55 << 20
    sessions: FetchSessions = field(default_factory=FetchSessions)
    guard: Guard = field(default_factory=lambda: Guard(Security()))
    complaints: ClientComplaints = field(default_factory=lambda: ClientComplaints(_log))
    pool: Pool = field(default_factory=Pool)
    stopping: threading.Event = field(default_factory=threading.Event)
    #: What the requests of clients that write meet, in a server that they may write to.
    writing: Closable | None = None
    #: Without it, whoever can connect may do all that is offered.
    rights: Rights | None = None
    #: Sees each request before it is answered, and may answer in the server's place.
    before: Callable[[Api, Call], Values | None] | None = None
    #: Sees each partition before it is fetched, and may raise KafkaError in the log's place.
    before_fetch: Callable[[Call, str, int], None] | None = None

    def answer(self, api: Api, call: Call) -> Values | None:
        """Answer a request, as far as its client may ask for it."""
        return api.handler(call) if self.rights is None else self.rights.answer(api, call)

    def check_readable(self, call: Call, topic: str) -> None:
        """Raise KafkaError for a topic that a client may not read."""
        if self.rights is not None:
            self.rights.check_readable(call, topic)

    def operations(self, call: Call, kind: int, name: str) -> int:
        """Return the operations that a client may do on a resource, as bits."""
        if self.rights is not None:
            return self.rights.operations(call, kind, name)
        return (_WRITING if self.catalog.logs.is_writable else _READING)[kind]

    def close(self) -> None:
        """Answer all waiting requests, and stop the timer."""
        self.groups.close()
        if self.writing is not None:
            self.writing.close()


class Call(NamedTuple):
    """A request, and who sent it."""

    service: Service
    version: int
    values: Values
    client_id: str
    host: str
    principal: str  #: Who the client has shown to be, as ``User:alice``.
    endpoint: Endpoint  #: The address that this client is told.
    #: Waits so many seconds, or until the client is gone or the server stops; returns whether the time is over.
    wait: Callable[[float], bool]
    #: What the request may still unfold to: rows of the answer that it has no items for are spent from it.
    budget: Budget

    @property
    def catalog(self) -> Catalog:
        return self.service.catalog

    def topic(self, name: str | None, topic_id: bytes = NO_ID) -> Topic | None:
        """Return a topic by its id if one is given, else by its name; None if it is not here."""
        return self.catalog.topics.get(name or "") if topic_id == NO_ID else self.catalog.by_id.get(topic_id)

    def operations(self, kind: int, name: str = CLUSTER_NAME) -> int:
        """Return the client's operations on a resource, as bits; none on a cluster that it may not describe."""
        allowed = self.service.operations(self, kind, name)
        return allowed if kind != CLUSTER or allowed & 1 << acls.DESCRIBE else 0

    def node(self) -> dict[str, Any]:
        """Return this node, as fields of a node of several answers."""
        return {"nodeId": self.catalog.node_id, "host": self.endpoint.host, "port": self.endpoint.port}


def check_epoch(served: ServedPartition, epoch: int) -> None:
    """Compare the leader epoch that a client knows; -1 is none."""
    if epoch < 0 or epoch == served.leader_epoch:
        return
    raise KafkaError(codes.FENCED_LEADER_EPOCH if epoch < served.leader_epoch else codes.UNKNOWN_LEADER_EPOCH)
