"""A server that clients write to, put together of its topics, groups, transactions and rights."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable

from pylogseg.errors import RequestError
from pylogseg.server.acls import Authorizer
from pylogseg.server.committed import CommittedOffsets, Offsets
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.security import Guard, Security
from pylogseg.server.service import Service
from pylogseg.server.writing.access import AclRights
from pylogseg.server.writing.handlers import WRITING
from pylogseg.server.writing.journal import LoadedGroups, OffsetsJournal, TransactionsJournal
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.transaction_coordinator import TransactionCoordinator
from pylogseg.server.writing.writer import Writing
from pylogseg.values.internal.cluster import GROUP_RESOURCE

#: As a broker's ``socket.request.max.bytes``.
REQUEST_BYTES = 100 << 20
#: For tests a session may be short.
_SESSIONS_S = (0.1, 1800.0)


def broker_service(
    topics: Topics,
    guard: Guard | None = None,
    *,
    above: Callable[[], Offsets] | None = None,
    ids_from: int | None = None,
) -> Service:
    """Return what the requests of a server meet; groups and transactions go on where they stood.

    They have their records in Kafka's own topics. Above a copy these are the copy's, which do not grow: there `above`
    returns the offsets that groups start with. Ids of producers begin with `ids_from`. Logs that others wrote know
    producers, whose ids a cluster counts from 0 on: by default they begin far above those, at a number that is drawn,
    so that nobody has to keep a count. RequestError if the guard's ACLs would let nobody do anything.
    """
    clock = topics.clock
    kept, journal = (OffsetsJournal(topics), TransactionsJournal(topics)) if above is None else (None, None)
    found = LoadedGroups({}, {}, {}) if kept is None else kept.load()
    offsets = CommittedOffsets(above or (lambda: found.offsets), found.staged)
    groups = GroupCoordinator(offsets, kept, sessions=_SESSIONS_S, now=clock.seconds)
    groups.resume(found.groups)
    groups.settings_of = lambda group: topics.catalog.dynamic.get((GROUP_RESOURCE, group), {})
    first = 1 << 60 | secrets.randbits(50) << 10 if ids_from is None else ids_from
    new_id = itertools.count(first).__next__
    transactions = TransactionCoordinator(topics, groups, new_id, clock.now_ms, journal)

    def moved() -> None:
        groups.wake()
        transactions.tick()

    clock.on_move, topics.on_change = moved, groups.topics_changed
    writing = Writing(topics, transactions, new_id)
    service = Service(topics.catalog, groups, WRITING, writing=writing)
    _protect(service, topics, Guard(Security()) if guard is None else guard)
    if journal is not None:
        transactions.resume(journal.load())
    return service


def _protect(service: Service, topics: Topics, guard: Guard) -> None:
    """Let in whom a guard lets in, and users that clients make; where it asks for ACLs, only for what these allow."""
    service.guard = guard
    if guard.users is not None:
        guard.users.take_others(lambda: topics.users)
    if not guard.acls:
        return
    if not (guard.super_users or guard.allows_without_acls or topics.acls.by_id):
        raise RequestError("ACLs without a super user: nobody could do anything (super_users, --super-user)")
    allows = guard.allows_without_acls
    service.rights = AclRights(Authorizer(lambda: topics.acls, guard.super_users, allows_without=allows))
