"""A server whose directory keeps what is written: records, offsets of groups, transactions."""

from __future__ import annotations

from pylogseg.server.coordinator import Offsets
from pylogseg.server.writing.coordination import Transactions
from pylogseg.server.writing.groups import WrittenGroups
from pylogseg.server.writing.handlers import WRITING
from pylogseg.server.writing.in_memory import producer_ids
from pylogseg.server.writing.journal import OffsetsKept, TransactionsKept
from pylogseg.server.writing.owned import OwnedCatalog
from pylogseg.server.writing.writer import Writer


def lasting_writer(catalog: OwnedCatalog) -> Writer:
    """Return what the requests of a server meet; groups and transactions go on where they stood."""
    kept, journal = OffsetsKept(catalog), TransactionsKept(catalog)
    offsets, pending, members = kept.load()
    staged: dict[int, Offsets] = {
        producer: {
            group: {place: each for place, each in found.items() if each is not None} for group, found in groups.items()
        }
        for producer, groups in pending.items()
    }
    groups = WrittenGroups(lambda: offsets, now=catalog.clock.seconds, kept=kept, staged=staged)
    groups.resume(members)
    new_id = producer_ids(is_new=False)
    transactions = Transactions(catalog, groups, new_id, catalog.clock.now_ms, journal)
    transactions.resume(journal.load())
    return Writer(catalog=catalog, groups=groups, table=WRITING, transactions=transactions, new_id=new_id)
