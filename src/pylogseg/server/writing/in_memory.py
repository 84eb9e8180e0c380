"""Servers that keep what is written in memory, above files or above nothing."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable

from pylogseg.server.coordinator import Offsets
from pylogseg.server.writing.coordination import Transactions
from pylogseg.server.writing.groups import WrittenGroups
from pylogseg.server.writing.handlers import WRITING
from pylogseg.server.writing.journal import OffsetsKept, TransactionsKept
from pylogseg.server.writing.topics import WritableCatalog
from pylogseg.server.writing.writer import Writer

#: As a broker's ``socket.request.max.bytes``.
REQUEST_BYTES = 100 << 20


def memory_writer(
    catalog: WritableCatalog,
    load: Callable[[], Offsets] = dict,
) -> Writer:
    """Return what the requests of a server meet; groups start with the offsets that `load` returns.

    Above nothing, groups and transactions have their records in Kafka's own topics. Above a copy these are the copy's.
    """
    is_new = not catalog.disk
    kept, journal = (OffsetsKept(catalog), TransactionsKept(catalog)) if is_new else (None, None)
    groups = WrittenGroups(load, now=catalog.clock.seconds, kept=kept)
    new_id = producer_ids(is_new=is_new)
    transactions = Transactions(catalog, groups, new_id, catalog.clock.now_ms, journal)
    return Writer(catalog=catalog, groups=groups, table=WRITING, transactions=transactions, new_id=new_id)


def producer_ids(*, is_new: bool) -> Callable[[], int]:
    """Return a source of ids for producers.

    Logs that others wrote know producers, whose ids a cluster counts from 0 on: there they begin far above those, at a
    number that is drawn, so that nobody has to keep a count.
    """
    first = 1 if is_new else 1 << 60 | secrets.randbits(50) << 10
    return itertools.count(first).__next__
