"""The result of `copy`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pylogseg.disk.notes import joined_lines
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.format.columns import SPREAD, TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.outcome import Outcome
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.findings import Finding
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.walker.gaps import offsets_text

_STATES = ("copied", "unchanged", "gone", "skipped", "stopped", "failed")


@declare_columns(
    line_type("summary"),
    TableColumn("source", "string", "a log directory"),
    TableColumn("target", "string", "the new one"),
    TableColumn("dryRun", "bool", "nothing was written"),
    TableColumn(SPREAD, "map<string, int64>", "partitions by state", source="states"),
    TableColumn("bytes", "int64", "of all segments", "bytes", source=lambda copy: sum(row.bytes for row in copy)),
    TableColumn("cleanShutdown", "bool", "the copy has the clean shutdown marker", source="is_marked_clean"),
    TableColumn("notes", "list<string>", "about the log directory"),
    TableColumn("doubts", "list<string>", "small files that say less than they should"),
    TableColumn("unread", "list<string>", "files that cannot be read, and are not in the copy"),
    TableColumn("lacking", "list<struct>", "records known to be missing, and damage", fields=get_columns(Finding)),
)
@dataclass
class Copied(Outcome):
    """The result of `copy`: iterate over it for the partitions, in the order of their names.

    Attributes
    ----------
    source, target : str
        The log directories; the source holds the partition's folder.
    partitions : list of PartitionCopy
    notes : list of str
        About the log directory.
    doubts : list of str
        Small files that say less than they should, each with its replacement in the copy.
    unread : list of str
        Checkpoints and small files of the log directory that cannot be read, and why; they are not in the copy.
    dry_run : bool
        True if nothing was written.
    is_marked_clean : bool
        True if the copy has the clean shutdown marker: the source had it all the time, so no broker ran, and no record
        is missing.
    lacking : list of Finding
        Records that the source, and so the copy, lacks; and damage that headers show.
    """

    source: str
    target: str
    partitions: list[PartitionCopy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    dry_run: bool = False
    is_marked_clean: bool = False
    lacking: list[Finding] = field(default_factory=list)
    made: str = field(default="copy", repr=False)  #: The word for what the run makes.

    def __iter__(self) -> Iterator[PartitionCopy]:
        return iter(self.partitions)

    parts = __iter__

    @property
    def exit_code(self) -> int:
        """2 if a partition or a small file could not be read, 1 if records are missing, damaged or not known."""
        if self.unread or any(row.state == "failed" for row in self):
            return 2
        is_less = any(row.is_damaged or row.removed or row.state == "stopped" for row in self)
        return int(bool(self.lacking or self.doubts or is_less))

    def warnings(self) -> Iterator[str]:
        """Yield the parts of the source that the copy lacks."""
        for row in self:
            if row.state == "failed" and not row.looks:
                yield f"{row.name} is not in the {self.made}: {row.reason}"
            elif row.state in ("failed", "stopped"):
                yield f"{row.name} ends at offset {row.log_end} in the {self.made}: {row.reason}"
            for first, end in row.removed:
                yield f"{row.name}: {offsets_text(first, end)} are not in the {self.made}: retention removed them first"
        yield from (f"{unread}; it is not in the copy" for unread in self.unread)

    def lines(self) -> Iterator[str]:
        """Yield doubts and notes, then the total."""
        rows = [row for row in self if row.state == "copied"]
        topics = {row.name.rpartition("-")[0] for row in self}
        yield from (f"not known: {doubt}" for doubt in joined_lines(self.doubts, topics))
        yield from (f"note: {note}" for note in joined_lines(self.notes, topics))
        if (
            rows and not self.dry_run and not self.source.startswith(CLUSTER_SCHEME)
        ):  # each batch of a cluster was checked
            yield "checksums of sealed segments were not computed: pylogseg verify does that"
        same = sum(row.state == "unchanged" for row in self)
        yield (
            f"{'would copy' if self.dry_run else 'copied'} {count_text(len(rows), 'partition')}, "
            f"{size_text(sum(row.bytes for row in rows))}, to {self.target}"
            + (f"; {count_text(same, 'partition')} had nothing new" if same else "")
            + ("; a broker trusts it as it is (clean shutdown)" if self.is_marked_clean and not self.doubts else "")
        )

    @property
    def states(self) -> dict[str, int]:
        """Numbers of partitions by state."""
        states = [partition.state for partition in self.partitions]
        return {state: states.count(state) for state in _STATES}
