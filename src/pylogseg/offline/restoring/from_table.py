"""Records of an exported table as partitions, for `restore`."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.target import Target
from pylogseg.errors import RequestError
from pylogseg.offline.comparing_table import compare_partitions
from pylogseg.offline.restoring.adopting import Arrival
from pylogseg.offline.restoring.partition import RestoreOptions
from pylogseg.offline.restoring.rows import WriteOptions, write_rows
from pylogseg.offline.restoring.source import RestoreOrder, RestoreSource
from pylogseg.offline.restoring.tables import RecordRange, Tables
from pylogseg.offline.result import PartitionResult
from pylogseg.transfer.contents import Content
from pylogseg.transfer.staging import WrittenPart
from pylogseg.walker.gaps import offsets_text

#: Missing ranges of offsets that are named.
_FEW = 5
_REMEDY = (
    "export it with --isolation-level read_committed, or confirm by --committed that all of it was committed, or leave "
    "out the records of transactions by --without-transactions"
)


class FromTable(RestoreSource):
    """Records that an export wrote."""

    has_producers = False

    def __init__(
        self,
        tables: Tables,
        choice: PartitionChoice,
        options: RestoreOptions,
        committed: bool,
        without: bool,
    ) -> None:
        self._tables, self._options, self._without = tables, options, without
        found = tables.partitions()
        names = Target("the table", tuple(found), None, True).chosen(choice)
        self._parts = {name: found[name] for name in names}
        if without and (silent := [name for name, part in self._parts.items() if part.transactional is None]):
            raise RequestError(
                f"{silent[0]}: the table has no column isTransactional to find the records of transactions"
            )
        for part in self._parts.values():
            if not (committed or without or part.is_committed) and part.transactional != 0:
                raise RequestError(_why_undecided(part))
        self.partitions = [self._new_result(part) for part in self._parts.values()]

    def _new_result(self, part: RecordRange) -> PartitionResult:
        left = (part.transactional or 0) if self._without else 0
        result = PartitionResult(part.name, "", numbers={"records": part.records - left})
        result.log_start, result.log_end = part.first_offset, part.end_offset
        if left:
            result.notes.append(f"{left:,} records of transactions are left out")
        if missing := self._tables.between(part.name):
            more = f" and {len(missing) - _FEW} more ranges" if len(missing) > _FEW else ""
            ranges = ", ".join(offsets_text(first, end) for first, end in missing[:_FEW]) + more
            result.notes.append(
                f"{ranges} between two files of the table are in none: markers, what the cleaner removed, or a file is "
                "missing (compare with what the export wrote)"
            )
        return result

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        return self._tables.groups(names)

    def only(self, names: Collection[str]) -> FromTable:
        some = copy.copy(self)
        some._tables, some._parts = self._tables.only(names), {name: self._parts[name] for name in names}
        some.partitions, some.lacking = [PartitionResult(name, "") for name in names], ()
        return some

    def size(self, names: Iterable[str]) -> int:
        return self._tables.only([*names]).size_bytes

    def contents(self, names: Iterable[str], arrivals: Mapping[str, Arrival]) -> dict[str, Content]:
        parts = {name: self._parts[name] for name in names}
        left = {name: (part.transactional or 0) if self._without else 0 for name, part in parts.items()}
        return {n: Content(each.first_offset, each.end_offset, each.records - left[n]) for n, each in parts.items()}

    def is_same(self, name: str, target: str, there: Content, wanted: Content) -> bool:
        """Compare the records one by one."""
        if there[:3] != wanted[:3]:
            return False
        rows = self._tables.read([name], lambda size: None, without_transactions=self._without)
        return all(is_same for _, _, is_same in compare_partitions(rows, target, self._options.timestamp_type))

    def write(self, order: RestoreOrder) -> list[WrittenPart]:
        restore = RestoreOptions(**{**vars(self._options), "topic_ids": order.ids})
        rows = self._tables.read(order.names, order.on_bytes, without_transactions=self._without)
        return write_rows(rows, order.staging, "restore", WriteOptions(order.staging.root, restore=restore))


def _why_undecided(part: RecordRange) -> str:
    if part.transactional is None:
        return f"{part.name}: the table does not show which records were committed; {_REMEDY}"
    return (
        f"{part.name}: {part.transactional:,} of {part.records:,} records were part of transactions, and the table "
        f"does not show which of those were committed; {_REMEDY}"
    )
