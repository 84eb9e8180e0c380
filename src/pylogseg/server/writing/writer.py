"""What a request meets in a server that is written to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from pylogseg.errors import RequestError
from pylogseg.server import codes
from pylogseg.server.codes import KafkaError
from pylogseg.server.security import Guard
from pylogseg.server.service import TOPIC, Call, Service
from pylogseg.server.wire import Values
from pylogseg.server.writing.access import answered
from pylogseg.server.writing.acls import READ, Authorizer, Who
from pylogseg.server.writing.coordination import Transactions
from pylogseg.server.writing.groups import WrittenGroups
from pylogseg.server.writing.topics import WritableCatalog
from pylogseg.values.internal.cluster import GROUP_RESOURCE


@dataclass(kw_only=True)
class Writer(Service):
    """What all connections share; see `Service`."""

    catalog: WritableCatalog
    groups: WrittenGroups
    transactions: Transactions
    #: Who may do what; without it, whoever can connect may do everything.
    authorizer: Authorizer | None = None
    new_id: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    def __post_init__(self) -> None:
        self.catalog.clock.on_move = self._moved
        self.catalog.on_change = self.groups.topics_changed
        self.groups.settings_of = lambda group: self.catalog.dynamic.get((GROUP_RESOURCE, group), {})

    def _moved(self) -> None:
        self.groups.wake()
        self.transactions.tick()

    def protect(self, guard: Guard) -> None:
        """Let in whom a guard lets in, and users that clients make; where it asks for ACLs, only for what these allow.

        Raises RequestError if nobody could do anything then.
        """
        self.guard = guard
        if guard.users is not None:
            guard.users.take_others(lambda: self.catalog.users)
        if guard.acls:
            if not (guard.super_users or guard.allows_without_acls or self.catalog.acls.by_id):
                raise RequestError("ACLs without a super user: nobody could do anything (super_users, --super-user)")
            allows = guard.allows_without_acls
            self.authorizer = Authorizer(lambda: self.catalog.acls, guard.super_users, allows_without=allows)

    def answer(self, key: int, call: Call) -> Values | None:
        """Answer a request, as far as its client may ask for it."""
        handler = self.table.handlers[key]
        return handler(call) if self.authorizer is None else answered(self.authorizer, key, call, handler)

    def check_readable(self, call: Call, topic: str) -> None:
        """Raise KafkaError for a topic that a client may not read."""
        who = Who(call.principal, call.host)
        if self.authorizer is not None and not self.authorizer.allows(who, READ, TOPIC, topic):
            raise KafkaError(codes.TOPIC_AUTHORIZATION_FAILED)

    def operations(self, call: Call, kind: int, name: str) -> int:
        """Return what a client may do to a resource, as bits."""
        if self.authorizer is None:
            return super().operations(call, kind, name)
        return self.authorizer.operations(Who(call.principal, call.host), kind, name)

    def close(self) -> None:
        """Answer all that wait, and stop looking at the time."""
        super().close()
        self.transactions.close()


def writer_of(call: Call) -> Writer:
    """Return what a request meets."""
    assert isinstance(call.service, Writer)
    return call.service
