"""The result of `diff --by-content`: how a log differs from its mirror, by records and not by offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pylogseg.format.columns import TableColumn, declare_columns, get_columns
from pylogseg.format.words import count_text
from pylogseg.offline.comparing import Difference, Differences
from pylogseg.values.internal.mirror_map import MirrorRuns

#: A `double` record is another one of the same content in B, a `moved` one stands elsewhere in B.
AlignedKind = Literal["missing", "extra", "double", "moved", "changed"]
KINDS: tuple[AlignedKind, ...] = ("missing", "double", "moved", "changed", "extra")
OF_B = ("extra", "double")


@declare_columns(
    TableColumn("kind", "string", "missing, extra, double, moved or changed"),
    TableColumn("first", "int64", "offset in A; of extra and double ones in B", source="first_offset"),
    TableColumn("last", "int64", "offset, inclusive", source="last_offset"),
    TableColumn("records", "int64", "their number"),
    TableColumn("at", "int64", "offset on the other side: of the first one, or where it would stand"),
    TableColumn("fields", "list<string>", "parts of a record that changed", is_optional=True),
)
class AlignedRange(NamedTuple):
    """Records next to each other that differ from the other side in the same way.

    Attributes
    ----------
    kind : {"missing", "extra", "double", "moved", "changed"}
        Not in B, not in A, once more in B, elsewhere in B, or in both with another value or headers.
    first_offset, last_offset : int
        Inclusive; in B for extra and double ones, else in A.
    records : int
    at : int
        Offset on the other side: of the first record, or where it would stand.
    fields : tuple of str
        Parts that changed: ``"value"``, ``"headers"``.
    """

    kind: AlignedKind
    first_offset: int
    last_offset: int
    records: int
    at: int
    fields: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The range as a line for people."""
        offsets = str(self.first_offset) + (f"-{self.last_offset}" if self.last_offset > self.first_offset else "")
        here, there = ("B", "A") if self.kind in OF_B else ("A", "B")
        what = ", ".join(self.fields) or count_text(self.records, "record")
        return f"{self.kind:<8}{here} {offsets:<24}{there} {self.at:<16}{what}"

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in A, for sorting."""
        return (self.at, self.first_offset) if self.kind in OF_B else (self.first_offset, -1)


@declare_columns(
    *(column for column in get_columns(Difference) if column.name not in ("ranges", "rangesNotListed", "damaged")),
    TableColumn("double", "int64", "records that B has once more"),
    TableColumn("moved", "int64", "records that are elsewhere in B"),
    TableColumn("before", "int64", "missing ones before the first record that both have"),
    TableColumn("behind", "int64", "missing ones behind the last record that both have"),
    TableColumn("notAligned", "int64", "missing and extra ones in windows without any pair", source="not_aligned"),
    TableColumn("runs", "int64", "runs of offsets with one difference"),
    TableColumn("ranges", "list<struct>", "the first ones", fields=get_columns(AlignedRange)),
    TableColumn("rangesNotListed", "int64", "ranges beyond these", source="unlisted"),
    TableColumn("damaged", "bool", "a part of A or B could not be read", source="is_damaged"),
)
@dataclass
class AlignedDifference(Difference):
    """The differences between a log and its mirror, by content.

    Attributes
    ----------
    double, moved : int
        Records that B has twice; records in another place of B.
    before, behind : int
        Missing ones before the first and behind the last record of both sides.
    not_aligned : int
        Missing and extra ones in windows without any pair.
    runs : int
        Runs of pairs with one difference of offsets, and nothing between them.
    map : MirrorRuns
        These runs, and the end of A if B has all below it. Damage leaves it empty, since a map has to be exact.
    append_times : tuple of (bool, bool)
        True if A or B has times of its broker.
    """

    double: int = 0
    moved: int = 0
    before: int = 0
    behind: int = 0
    not_aligned: int = 0
    runs: int = 0
    map: MirrorRuns = field(default_factory=MirrorRuns, repr=False)
    append_times: tuple[bool, bool] = (False, False)
    is_common: bool = field(default=False, repr=False)

    @property
    def is_same(self) -> bool:
        """True if each record is once on both sides, in the same order, and there is no damage."""
        return super().is_same and not (self.double or self.moved)

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        if self.path_a is None or self.path_b is None or (self.is_damaged and not self._counts()):
            yield from super().lines()
            return
        if self.is_same:
            left = self.before + self.behind
            aside = f", {count_text(left, 'record')} of A outside" if self.is_common and left else ""
            yield f"{self.name}: the same, {count_text(self.records_a - left, 'record')}{aside}, {self._runs()}"
            return
        yield (
            f"{self.name}: {self._counts()} ({self.records_a:,} records in A, {self.records_b:,} in B), {self._runs()}"
        )
        if self.before or self.behind:
            yield (
                f"  of the missing ones {self.before:,} are before the first record that both have, "
                f"{self.behind:,} behind the last (--common skips these)"
            )
        if self.not_aligned:
            yield f"  {self.not_aligned:,} records were not aligned: nothing near them is the same (--window)"
        if self.append_times[0] != self.append_times[1]:
            side = "B" if self.append_times[1] else "A"
            yield f"  {side} has times of its broker: --ignore-timestamps compares without times"
        yield from (f"  {part.text}" for part in self.ranges)
        if self.unlisted:
            yield f"  and {self.unlisted:,} more ranges (--max-ranges lists more)"

    def _counts(self) -> str:
        return ", ".join(f"{getattr(self, kind):,} {kind}" for kind in KINDS if getattr(self, kind))

    def _runs(self) -> str:
        return "no map of offsets" if self.is_damaged else f"{count_text(self.runs, 'run')} of offsets"


@declare_columns(
    *(column for column in get_columns(Differences) if column.name != "damaged"),
    TableColumn("double", "int64", "records that B has once more"),
    TableColumn("moved", "int64", "records that are elsewhere in B"),
    TableColumn("damaged", "bool", "not all could be read", source="is_damaged"),
)
@dataclass
class AlignedDifferences(Differences):
    """The result of `diff_by_content`: iterate over it once, for the partitions; then it has their sums.

    Attributes
    ----------
    double, moved : int
        Sums of `AlignedDifference`.
    """

    double: int = 0
    moved: int = 0

    def __iter__(self) -> Iterator[AlignedDifference]:
        for row in super().__iter__():
            assert isinstance(row, AlignedDifference)
            self.double, self.moved = self.double + row.double, self.moved + row.moved
            yield row

    parts = __iter__
