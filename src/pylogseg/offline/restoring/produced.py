"""The result of a restore into a running cluster, and the map of offsets where records get new ones."""

from __future__ import annotations

import csv
import io
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pylogseg.disk.notes import joined_lines
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.columns import SPREAD, TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.outcome import Outcome, TextTable
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.findings import Finding

#: What was measured with one broker, for an estimate: markers, burned offsets and bytes in a second.
_MARKERS, _BURNED, _BYTES = 1_000, 1_000_000, 40_000_000


@declare_columns(
    TableColumn("first", "int64", "offset in the source", source="first_offset"),
    TableColumn("next", "int64", "offset behind the last record in the source", source="next_offset"),
    TableColumn("target", "int64", "offset of the first record in the cluster", source="target_offset"),
)
class MovedRange(NamedTuple):
    """Consecutive records that have consecutive offsets in the cluster, too."""

    first_offset: int
    next_offset: int
    target_offset: int


@declare_columns(
    line_type("partition"),
    TableColumn("partition", "string", "its name", source="name"),
    TableColumn("state", "string", "done, unchanged, skipped or failed"),
    TableColumn("reason", "string", "why it was skipped or failed", source=lambda row: row.reason or None),
    TableColumn("remedy", "string", "the recommended action", source=lambda row: row.remedy or None),
    TableColumn("logStart", "int64", "first offset in the cluster"),
    TableColumn("logEnd", "int64", "offset after the last one in the cluster"),
    TableColumn("records", "int64", "in the partition, those of aborted transactions too"),
    TableColumn("batches", "int64", "that carry them"),
    TableColumn("encoded", "int64", "of these, batches that are encoded again, since the source has holes in them"),
    TableColumn("bytes", "int64", "of the source's segments", "bytes"),
    TableColumn("burned", "int64", "offsets that are used up below the first record"),
    TableColumn("markers", "int64", "offsets that empty transactions take"),
    TableColumn("aborted", "int64", "transactions with records that are aborted"),
    TableColumn("resumedAt", "int64", "the end of the partition when the command began, if it was not empty"),
    TableColumn("map", "list<struct>", "with new offsets: where records went", fields=get_columns(MovedRange)),
    TableColumn("notes", "list<string>", "for people"),
)
@dataclass
class ProducedLog:
    """A partition that is restored into a running cluster.

    Attributes
    ----------
    name : str
    state : {"done", "unchanged", "skipped", "failed"}
        Done, or planned; all was there already; left out; given up.
    reason, remedy : str
        Why it was skipped or failed, and what to do about that.
    not_done : bool
        True if somebody asked for a partition that was skipped.
    log_start, log_end : int
        Offsets in the cluster.
    records, batches, encoded, bytes, burned, markers, aborted : int
        Counts; see the columns.
    resumed_at : int or None
        Where the partition ended when the command began, if it was not empty.
    map : list of MovedRange
        With new offsets: where the records went.
    notes : list of str
        Remarks for people.
    error : PylogsegError or None
    """

    name: str
    state: Literal["done", "unchanged", "skipped", "failed"] = "done"
    reason: str = ""
    remedy: str = ""
    not_done: bool = False
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    batches: int = 0
    encoded: int = 0
    bytes: int = 0
    burned: int = 0
    markers: int = 0
    aborted: int = 0
    resumed_at: int | None = None
    map: list[MovedRange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: PylogsegError | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Topic and number."""
        topic, _, number = self.name.rpartition("-")
        return topic, int(number)

    @property
    def seconds(self) -> float:
        """About how long it takes to produce."""
        return self.markers / _MARKERS + self.burned / _BURNED + self.bytes / _BYTES

    def skip(self, reason: str, *, not_done: bool = False) -> None:
        """Mark the partition as left out."""
        self.state, self.reason, self.not_done = "skipped", reason, not_done

    def fail(self, reason: str, remedy: str = "", error: PylogsegError | None = None) -> None:
        """Mark the partition as given up."""
        self.state, self.reason, self.remedy, self.error = "failed", reason, remedy, error

    def add_moved(self, first: int, following: int, target: int) -> None:
        """Note that a range of records begins at an offset of the cluster."""
        last = self.map[-1] if self.map else None
        if last is not None and last.next_offset == first and target - first == last.target_offset - last.first_offset:
            self.map[-1] = last._replace(next_offset=following)
        else:
            self.map.append(MovedRange(first, following, target))

    def target_of(self, offset: int) -> int:
        """Return the offset in the cluster of the first record that is not below one in the source."""
        row = bisect_right(self.map, offset, key=lambda moved: moved.first_offset) - 1
        if row >= 0 and offset < self.map[row].next_offset:
            return self.map[row].target_offset + offset - self.map[row].first_offset
        return self.map[row + 1].target_offset if row + 1 < len(self.map) else self.log_end

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        if self.state in ("skipped", "failed"):  # `Produced` has a line for all that were skipped
            yield f"{self.name}: {self.state}: {self.reason}" + (f"; {self.remedy}" if self.remedy else "")
        elif self.state == "unchanged":
            yield f"{self.name}: all of it is there already, the same, up to offset {self.log_end}"
        else:
            resumed = "" if self.resumed_at is None else f", from offset {self.resumed_at} on"
            yield f"{self.name}: {count_text(self.records, 'record')}, up to offset {self.log_end}{resumed}"
        yield from (f"  note: {note}" for note in self.notes)


@declare_columns(
    line_type("summary"),
    TableColumn("source", "string", "where the logs come from"),
    TableColumn("target", "string", "URL of the cluster"),
    TableColumn("offsets", "string", "keep: as in the source; new: other ones"),
    TableColumn("dryRun", "bool", "nothing was written"),
    TableColumn(SPREAD, "map<string, int64>", "partitions by state", source="states"),
    TableColumn("groups", "int64", "offsets of groups that are committed"),
    TableColumn("groupsFailed", "list<string>", "offsets that were refused"),
    TableColumn("notes", "list<string>", "for people"),
    TableColumn("doubts", "list<string>", "unknown facts"),
    TableColumn("lacking", "list<struct>", "records known to be missing from the source", fields=get_columns(Finding)),
)
@dataclass
class Produced(Outcome):
    """The result of a restore into a running cluster: iterate over it for the partitions, by name.

    Attributes
    ----------
    source, target : str
    offsets : {"keep", "new"}
    dry_run : bool
        True for a plan.
    partitions : list of ProducedLog
    groups : int
        Offsets of groups that are committed, or would be.
    groups_failed : list of str
        Offsets that the coordinators refused, and why.
    notes : list of str
    doubts : list of str
        Facts that are missing.
    lacking : list of Finding
        Records that the source has lost.
    """

    source: str
    target: str
    offsets: Literal["keep", "new"] = "keep"
    dry_run: bool = False
    partitions: list[ProducedLog] = field(default_factory=list)
    groups: int = 0
    groups_failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    lacking: list[Finding] = field(default_factory=list)

    def __iter__(self) -> Iterator[ProducedLog]:
        return iter(self.partitions)

    parts = __iter__

    @property
    def exit_code(self) -> int:
        """2 if the cluster or a disk failed, 1 if a partition, a group or a fact is missing."""
        if any(isinstance(row.error, StorageError) for row in self):
            return 2
        is_short = any(row.state == "failed" or row.not_done for row in self)
        return int(is_short or bool(self.groups_failed or self.doubts or self.lacking))

    @property
    def states(self) -> dict[str, int]:
        """Numbers of partitions by state."""
        states = [row.state for row in self]
        return {state: states.count(state) for state in ("done", "unchanged", "skipped", "failed")}

    def warnings(self) -> Iterator[str]:
        """Yield refusals and doubts."""
        yield from self.groups_failed
        topics = {row.name.rpartition("-")[0] for row in self}
        yield from (f"not known: {doubt}" for doubt in joined_lines(self.doubts, topics))

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the plan, if it is one, then why partitions were skipped, notes and the total."""
        rows = [row for row in self if row.state in ("done", "unchanged")]
        if self.dry_run and rows:
            yield TextTable.of(
                rows,
                {
                    "PARTITION": lambda row: row.name,
                    "START": lambda row: row.log_start,
                    "END": lambda row: row.log_end,
                    "RECORDS": lambda row: row.records,
                    "BURNED": lambda row: row.burned,
                    "MARKERS": lambda row: row.markers,
                    "ABORTED": lambda row: row.aborted,
                    "SIZE": lambda row: size_text(row.bytes),
                    "SECONDS": lambda row: round(row.seconds, 1),
                },
                right=("SIZE",),
            )
        for reason, count in Counter(row.reason for row in self if row.state == "skipped").items():
            yield f"{count_text(count, 'partition')} skipped: {reason}"
        topics = {row.name.rpartition("-")[0] for row in self}
        yield from (f"note: {note}" for note in joined_lines(self.notes, topics))
        would = "would be " if self.dry_run else ""
        groups = f", {count_text(self.groups, 'offset')} of groups {would}committed" if self.groups else ""
        records = count_text(sum(row.records for row in rows), "record")
        same = "" if self.dry_run or self.offsets == "new" else "; fetched again, they are the same in both isolations"
        if self.offsets == "new" and not self.dry_run:
            same = "; fetched again, they are the same by the map"
        if not rows:
            same = ""
        yield (f"{count_text(len(rows), 'partition')} {would}restored to {self.target}, {records}{same}{groups}")


def encode_map(rows: Sequence[ProducedLog], *, as_json: bool) -> str:
    """Return the map of offsets as a table: CSV with a header, or a list in JSON."""
    names = ("topic", "partition", "first", "next", "target")
    table = [(*row.place, *moved) for row in rows for moved in row.map]
    if as_json:
        return json.dumps([dict(zip(names, line, strict=True)) for line in table]) + "\n"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(table)
    return text.getvalue()
