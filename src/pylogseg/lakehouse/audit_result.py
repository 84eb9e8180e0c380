"""The result of an audit: how the records of each partition are in a table, and the faults of the table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pylogseg.format.columns import SPREAD, TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.moments import iso_text
from pylogseg.format.outcome import Outcome
from pylogseg.format.words import count_text
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.foreign import TableFinding
from pylogseg.walker.gaps import Gap

#: Why the table does not have a record, or an offset.
Reason = Literal[
    "aborted", "control", "compacted", "belowLogStart", "deadLetters", "tombstone", "notYet", "notLookedAt", "lost",
]  # fmt: skip
REASONS: tuple[Reason, ...] = (
    "aborted", "control", "compacted", "belowLogStart", "deadLetters", "tombstone", "notYet", "notLookedAt", "lost",
)  # fmt: skip
#: Why a row is not one of the log's records.
Strange = Literal["aborted", "control", "beyondEnd", "absent", "noPartition"]
STRANGE: tuple[Strange, ...] = ("aborted", "control", "beyondEnd", "absent", "noPartition")
#: Why a row cannot be compared with the log: it may be right.
UNCHECKED = ("belowLogStart", "compacted", "notLookedAt")


_COUNTS = (
    TableColumn("present", "int64", "records of the log that the table has, changed ones among them"),
    TableColumn("double", "int64", "rows beyond the first of each offset"),
    TableColumn("changed", "int64", "records with a row whose key or value is another one"),
    TableColumn("missing", "map<string, int64>", "offsets without a row, by reason"),
    TableColumn("foreign", "map<string, int64>", "offsets with a row that the log has no record of, by reason"),
    TableColumn("unchecked", "map<string, int64>", "offsets with a row that the log has no longer, by reason"),
)
_VERDICT = (
    TableColumn("right", "bool", "each record is there once, and nothing else", source="is_right"),
    TableColumn("whole", "bool", "all was looked at", source="is_whole"),
)


@declare_columns(
    TableColumn("kind", "string", "double, changed, lost, foreign or notLookedAt"),
    TableColumn("first", "int64", "offset", source="first_offset"),
    TableColumn("last", "int64", "offset, inclusive", source="last_offset"),
    TableColumn("records", "int64", "offsets in it that this is about"),
    TableColumn("reason", "string", "of foreign rows, or the columns that changed", is_optional=True),
)
class AuditRange(NamedTuple):
    """Adjacent offsets with the same answer.

    Attributes
    ----------
    kind : {"double", "changed", "lost", "foreign", "notLookedAt"}
    reason : str
        Of foreign rows, see `STRANGE`; of changed ones that were decoded the columns, as ``value.amount``; else empty.
    first_offset, last_offset : int
        Inclusive.
    records : int
        The number of offsets in it with this answer.
    """

    kind: str
    reason: str
    first_offset: int
    last_offset: int
    records: int

    @property
    def text(self) -> str:
        """The range as a line for people."""
        offsets = str(self.first_offset) + (f"-{self.last_offset}" if self.last_offset > self.first_offset else "")
        kind = "unknown" if self.kind == "notLookedAt" else self.kind
        reason = f": {_WORDS.get(self.reason, self.reason)}" if self.reason else ""
        return f"{kind:<8}{offsets:<24}{count_text(self.records, 'offset')}{reason}"


@declare_columns(
    TableColumn("files", "list<string>", "the two"),
    TableColumn("addedBy", "list<string>", "snapshots or versions, as far as the format says", source="origins"),
    TableColumn("rows", "int64", "of the second one that are double"),
)
class DoubleFiles(NamedTuple):
    """Two files that have rows of the same offsets, or one that has them twice.

    Attributes
    ----------
    files : tuple of (str, str)
    origins : tuple of (str or None, str or None)
        The snapshots or versions that added them, as far as the format says.
    rows : int
        Rows of the second one that are double.
    """

    files: tuple[str, str]
    origins: tuple[str | None, str | None]
    rows: int

    @property
    def text(self) -> str:
        """The two files as a line for people."""
        one, other = (
            os.path.basename(path) + (f" ({origin})" if origin else "")
            for path, origin in zip(self.files, self.origins, strict=True)
        )
        return f"{count_text(self.rows, 'row')} of {one} again in {other}"


@declare_columns(
    TableColumn("kind", "string", "lost, double or changed"),
    TableColumn("since", "int64", "first millisecond since 1970", "ms", source="since_ms"),
    TableColumn("until", "int64", "after the last one", "ms", source="until_ms"),
    TableColumn("rows", "int64", "of the table"),
    TableColumn("records", "int64", "of the log"),
)
class TimeRange(NamedTuple):
    """An hour in which a table without offsets has other rows than the log has records.

    Attributes
    ----------
    kind : {"lost", "double", "changed"}
        Fewer rows than records, more (double, or no records of the log), or as many with other contents.
    since_ms, until_ms : int
        Milliseconds since 1970, half-open.
    rows, records : int
        Of the table, and of the log.
    """

    kind: str
    since_ms: int
    until_ms: int
    rows: int
    records: int

    @property
    def text(self) -> str:
        """The hour as a line for people."""
        since = iso_text(self.since_ms).replace(":00.000Z", "Z")
        return f"{self.kind:<8}{since:<24}an hour: {count_text(self.rows, 'row')} of {self.records:,} records"


@declare_columns(
    line_type("partition"),
    TableColumn("partition", "string", "its name", source="name"),
    *_VERDICT,
    TableColumn("rows", "int64", "of the table that belong to it"),
    *_COUNTS,
    TableColumn("logStartOffset", "int64", "the first offset of the log"),
    TableColumn("lastStableOffset", "int64", "above it, transactions may be open"),
    TableColumn("nextOffset", "int64", "after the last one of the log", source="end_offset"),
    TableColumn("ranges", "list<struct>", "of offsets, the first ones", fields=get_columns(AuditRange)),
    TableColumn("rangesNotListed", "int64", "ranges beyond these", source="unlisted"),
    TableColumn("doubleFiles", "list<struct>", "the pairs with the most rows", fields=get_columns(DoubleFiles)),
    TableColumn("gaps", "list<struct>", "parts of the log that could not be read", fields=get_columns(Gap)),
    TableColumn("times", "list<struct>", "without offsets: the hours that differ", fields=get_columns(TimeRange)),
)
@dataclass
class PartitionAudit:
    """How the records of one partition are in a table.

    Attributes
    ----------
    name : str
        Of the partition.
    rows : int
        Rows of the table that belong to it, dead letters among them.
    present : int
        Records of the log that the table has, changed ones among them.
    double : int
        Rows beyond the first of each offset.
    changed : int
        Records with a row whose key or value is another one.
    missing : dict of str to int
        Offsets without a row, by reason: ``aborted`` (of an aborted transaction), ``control`` (a marker), ``compacted``
        (the cleaner removed the record), ``belowLogStart``, ``deadLetters`` (it has a row there), ``tombstone`` (a null
        value, for which the sink writes no row), ``notYet`` (above all rows of the table, or in a transaction that is
        still open), ``notLookedAt`` (damage), ``lost`` (none of these).
    foreign : dict of str to int
        Offsets with a row that is no record of the log, by reason: ``aborted``, ``control``, ``beyondEnd`` (at or above
        the log end offset), ``absent`` (the log has no such offset), ``noPartition`` (the source has no such log).
    unchecked : dict of str to int
        Offsets with a row that the log has no longer, so that it cannot be compared, by reason: ``belowLogStart``,
        ``compacted``, ``notLookedAt``.
    ranges : list of AuditRange
        The first ones, by offset.
    unlisted : int
        Ranges beyond these.
    double_files : list of DoubleFiles
        The pairs with the most rows first.
    log_start_offset, end_offset : int
        What the log has, half-open.
    last_stable_offset : int
        Above it, transactions may be open.
    gaps : list of Gap
        Parts of the log that could not be read.
    times : list of TimeRange
        Of a table without offsets: the hours that differ. Counts are of rows and records then, ``changed`` of hours.
    is_quick : bool
        Counts were compared, and no row was read.
    """

    name: str
    rows: int = 0
    present: int = 0
    double: int = 0
    changed: int = 0
    missing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    foreign: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STRANGE, 0))
    unchecked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(UNCHECKED, 0))
    ranges: list[AuditRange] = field(default_factory=list)
    unlisted: int = 0
    double_files: list[DoubleFiles] = field(default_factory=list)
    log_start_offset: int = 0
    end_offset: int = 0
    last_stable_offset: int = 0
    gaps: list[Gap] = field(default_factory=list)
    times: list[TimeRange] = field(default_factory=list)
    is_quick: bool = False

    @property
    def lost(self) -> int:
        """Records that ought to be in the table and are not."""
        return self.missing["lost"]

    @property
    def is_right(self) -> bool:
        """True if no record is double, changed or lost, and no row foreign."""
        return not (self.double or self.changed or self.lost or any(self.foreign.values()))

    @property
    def is_whole(self) -> bool:
        """True if nothing of the log was left out for damage, a key or a deletion."""
        hidden = any(gap.is_loss for gap in self.gaps)
        return not (hidden or self.missing["notLookedAt"] or self.unchecked["notLookedAt"])

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        yield f"{self.name}: {_verdict(self)} ({_rows_text(self.rows, self.missing['deadLetters'])})"
        reasons = [f"{count:,} {_WORDS[name]}" for name, count in self.missing.items() if count and name != "lost"]
        if reasons:
            yield f"  not in the table: {', '.join(reasons)}"
        unchecked = [f"{count:,} {_WORDS[reason]}" for reason, count in self.unchecked.items() if count]
        if unchecked:
            yield f"  in the table, and not in the log to compare with: {', '.join(unchecked)}"
        yield from (f"  {part.text}" for part in self.ranges)
        yield from (f"  {hour.text}" for hour in self.times)
        if self.unlisted:
            yield f"  and {self.unlisted} more ranges (--max-ranges lists more)"
        yield from (f"  {pair.text}" for pair in self.double_files)
        if self.changed * 2 > self.present > 0:
            yield "  most of the records differ: was the topic deleted and made again, or are these the wrong columns?"


@declare_columns(
    line_type("summary"),
    TableColumn("table", "string", "its name"),
    TableColumn("format", "string", "of the table"),
    TableColumn("version", "string", "snapshot or version that was read"),
    TableColumn("preset", "string", "program whose columns it has", source="columns.preset"),
    TableColumn("columns", "struct", "by role", source=lambda audit: {c.role: c.name for c in audit.columns.columns}),
    TableColumn("quick", "bool", "counts were compared, and no row was read", source="is_quick"),
    TableColumn(
        "compared", "list<string>", "parts of a record", source=lambda audit: [] if audit.is_quick else audit.compared
    ),
    *_VERDICT,
    TableColumn("partitions", "int64", "their number", source=lambda audit: len(audit.partitions)),
    TableColumn("files", "int64", "data files"),
    TableColumn("rows", "int64", "of the table"),
    TableColumn("otherRows", "int64", "of topics or partitions that were not selected"),
    TableColumn("deadLetters", "int64", "rows of the table of dead letters"),
    TableColumn(SPREAD, "struct", "sums over the partitions", source="counts", fields=_COUNTS),
)
@dataclass
class Audit(Outcome):
    """The result of `pylogseg.audit`.

    Attributes
    ----------
    table, format : str
        Of the table.
    version : str or None
        The snapshot or version that was read.
    columns : TableColumns
        The columns of the table by their role.
    files, rows : int
        Data files and rows of the table, rows of other topics and dead letters among them.
    dead_letters : int
        Rows of the table of dead letters.
    other_rows : int
        Rows of topics or partitions that were not selected.
    partitions : list of PartitionAudit
        By name.
    findings : list of TableFinding
        Findings about the table as a whole.
    is_quick : bool
        Counts were compared, and no row was read.
    """

    table: str
    format: str
    version: str | None
    columns: TableColumns
    files: int = 0
    rows: int = 0
    other_rows: int = 0
    dead_letters: int = 0
    partitions: list[PartitionAudit] = field(default_factory=list)
    findings: list[TableFinding] = field(default_factory=list)
    is_quick: bool = False

    @property
    def compared(self) -> list[str]:
        """The compared parts of a record: ``key``, ``value``, and of decoded ones their columns (``value.amount``)."""
        time = ["timestamp"] if self.columns.by_time else []
        return [*self.columns.compared, *time, *(column.role.rstrip(".") for column in self.columns.decoded)]

    @property
    def is_right(self) -> bool:
        """True if no record is double, changed or lost, no row foreign, and no row hidden."""
        return all(entry.is_right for entry in self.partitions) and not any(entry.is_wrong for entry in self.findings)

    @property
    def is_whole(self) -> bool:
        """True if all of the log and of the table was looked at."""
        return all(entry.is_whole for entry in self.partitions) and not any(f.kind == "unread" for f in self.findings)

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if something is wrong, 2 if something could not be looked at."""
        return 1 if not self.is_right else 0 if self.is_whole else 2

    def parts(self) -> Iterator[PartitionAudit | TableFinding]:
        """Yield the partitions, then the findings about the table."""
        yield from self.partitions
        yield from self.findings

    def lines(self) -> Iterator[str]:
        """Yield a line about the comparison, then the sums."""
        if self.other_rows:
            yield f"{count_text(self.other_rows, 'row')} of other topics and partitions were left out"
        if self.is_quick:
            yield "compared: counts of rows by ranges of offsets; single offsets, keys and values were not looked at"
        elif self.columns.by_time:
            yield f"compared: {', '.join(self.compared)} hour by hour, without offsets, which is weaker"
        elif self.compared != ["key", "value"]:
            typed = " (decoded ones are compared with --value-as schema)" if self.columns.typed else ""
            yield f"compared: {', '.join(['offsets', *self.compared])}{typed}"
        counts = self.counts
        total = PartitionAudit("", **counts, is_quick=self.is_quick)
        hidden = sum(finding.rows or 0 for finding in self.findings if finding.kind == "hidden")
        verdict = _verdict(total, self.is_whole) + (f", {hidden:,} hidden" if hidden else "")
        version = f", {self.version}" if self.version else ""
        yield (
            f"{self.table} ({self.format}{version}): {count_text(len(self.partitions), 'partition')}, "
            f"{_rows_text(self.rows, self.dead_letters)} in {count_text(self.files, 'file')}: {verdict}"
        )

    @property
    def counts(self) -> dict[str, Any]:
        """Sums over the partitions."""
        total: Counter[str] = Counter()
        missing, foreign, unchecked = (dict.fromkeys(names, 0) for names in (REASONS, STRANGE, UNCHECKED))
        for part in self.partitions:
            total.update(present=part.present, double=part.double, changed=part.changed)
            for into, counts in ((missing, part.missing), (foreign, part.foreign), (unchecked, part.unchecked)):
                for name, count in counts.items():
                    into[name] += count
        records = {name: total[name] for name in ("present", "double", "changed")}
        return {**records, "missing": missing, "foreign": foreign, "unchecked": unchecked}


#: Reasons as people read them.
_WORDS = {
    "aborted": "aborted",
    "control": "control records",
    "compacted": "compacted away",
    "belowLogStart": "below the log start offset",
    "deadLetters": "in the dead letters",
    "tombstone": "tombstones",
    "notYet": "not yet",
    "notLookedAt": "not looked at",
    "beyondEnd": "behind the end of the log",
    "absent": "at offsets that the log does not have",
    "noPartition": "of a partition that the source does not have",
}


def _rows_text(rows: int, letters: int) -> str:
    return count_text(rows - letters, "row") + (f" and {count_text(letters, 'dead letter')}" if letters else "")


def _verdict(row: PartitionAudit, is_whole: bool | None = None) -> str:
    is_whole = row.is_whole if is_whole is None else is_whole
    foreign = sum(row.foreign.values())
    wrong = {"double": row.double, "changed": row.changed, "lost": row.lost, "foreign": foreign}
    counts = ", ".join(f"{count:,} {name}" for name, count in wrong.items() if count)
    if counts:
        return counts
    if row.is_quick and is_whole:
        return "counts as in the log"
    return "each record once" if is_whole else "no fault in the parts that could be compared"
