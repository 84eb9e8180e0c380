"""Results of offline commands, for each partition and for the log directory."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

from pylogseg.disk.notes import joined_lines
from pylogseg.env.overlay import FileChange
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.columns import SPREAD, TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.outcome import Outcome
from pylogseg.format.words import count_text, names_text, size_text
from pylogseg.inspect.verify.findings import Finding
from pylogseg.log.recovery_keep import KeepError
from pylogseg.log.recovery_report import Action, LoadReport
from pylogseg.transfer.checkpoints import CHECKPOINTS, Entries

#: Noun and participle for the sums of `PartitionResult.numbers`.
_COUNTED = {
    "recordsRemoved": ("record", "removed"),
    "recordsDeleted": ("record", "deleted"),
    "recordsBlanked": ("record", "blanked"),
    "offsetsGone": ("offset", "removed"),
    "offsetsMissing": ("offset", "missing"),
    "segmentsDeleted": ("segment", "deleted"),
    "segmentsRewritten": ("segment", "rewritten"),
    "recoveredSegments": ("segment", "checked"),
    "cutBytes": ("byte", "cut off"),
    "droppedSegments": ("segment", "dropped"),
    "removedFiles": ("file", "removed"),
    "rebuiltIndexes": ("index file", "rebuilt"),
    "filesWritten": ("file", "written"),
    "filesRemoved": ("file", "removed"),
}
#: What opening a log did, by `ActionKind`; what is in brackets is for more than one.
_DONE = {
    "cut": "segment(s) cut",
    "emptied": "segment(s) emptied",
    "dropped": "segment(s) dropped",
    "replaced": "file(s) replaced",
    "swapped": "swap file(s) renamed",
    "split": "segment(s) split",
    "leftover": "leftover(s) removed",
    "orphan": "orphan index(es) removed",
    "index": "index(es) rebuilt",
    "snapshot": "snapshot(s) removed",
    "epochs": "file(s) of leader epochs updated",
    "created": "segment(s) created",
    "garbage": "segment(s) with garbage left as they are",
    "hidden": "segment(s) with hidden batches left as they are",
    "unreached": "segment(s) with batches that a broker does not reach left as they are",
    "short": "log(s) shorter than checkpoints say left as they are",
}
_ENDING = re.compile(r"[(](.*?)[)]")
#: Of `PartitionResult.numbers`: places in a log.
_OFFSETS = ("logStartBefore", "endBefore", "firstGone", "committed")
State = Literal["done", "unchanged", "skipped", "failed"]


class CheckpointChange(NamedTuple):
    """A changed entry of a checkpoint of the log directory.

    Attributes
    ----------
    file : str
        Name of the checkpoint.
    topic, partition : str, int
    before, after : int or None
        Offsets; None for no entry.
    """

    file: str
    topic: str
    partition: int
    before: int | None
    after: int | None


def checkpoint_changes(before: Entries, after: Entries) -> list[CheckpointChange]:
    """Return the entries that differ, by checkpoint and partition."""
    return [
        CheckpointChange(kind.value, *key, before[kind].get(key), after[kind].get(key))
        for kind in CHECKPOINTS
        for key in sorted({*before[kind], *after[kind]})
        if before[kind].get(key) != after[kind].get(key)
    ]


@declare_columns(
    line_type("partition"),
    TableColumn("partition", "string", "its name", source="name"),
    TableColumn("path", "string", "of its folder; with --into the new one"),
    TableColumn("state", "string", "done, unchanged, skipped or failed"),
    TableColumn("reason", "string", "why it was skipped or failed", source=lambda row: row.reason or None),
    TableColumn("remedy", "string", "the recommended action", source=lambda row: row.remedy or None),
    TableColumn("logStart", "int64", "log start offset afterwards; null if the log was not opened"),
    TableColumn("logEnd", "int64", "log end offset afterwards"),
    TableColumn("bytesBefore", "int64", "of all segments", "bytes"),
    TableColumn("bytesAfter", "int64", "of all segments", "bytes"),
    TableColumn("segmentsBefore", "int32", "their number"),
    TableColumn("segmentsAfter", "int32", "their number"),
    TableColumn(SPREAD, "map<string, int64>", "numbers that the command counts", source="known_numbers"),
    TableColumn("notes", "list<string>", "for people"),
    TableColumn("doubts", "list<string>", "unknown facts, with the values that were taken instead"),
    TableColumn("replicas", "list<int64>", "brokers that hold the partition, by the cluster's metadata"),
    TableColumn("notDone", "bool", "it was skipped although it was asked for"),
    TableColumn("recovery", "struct", "at the opening of the log", source="report", fields=get_columns(LoadReport)),
    TableColumn(
        "changes",
        "list<struct>",
        "of a dry run: how its files would differ",
        fields=get_columns(FileChange),
        is_optional=True,
    ),
)
@dataclass
class PartitionResult:
    """The result for one partition.

    Attributes
    ----------
    name, path : str
        Of its folder; with ``into`` the new one.
    state : {"done", "unchanged", "skipped", "failed"}
        Changed; nothing to change; skipped; given up.
    reason, remedy : str
        Why it was skipped or failed, and the remedy.
    not_done : bool
        True if it was skipped although the user asked for it, by name or by the command.
    is_locked : bool
        True if encrypted records were left out for want of a key.
    log_start, log_end : int or None
        Offsets afterwards; None if the log was not opened.
    bytes_before, bytes_after : int
        Of all segments, indexes not counted.
    segments_before, segments_after : int
    numbers : dict of str to int
        What the command counts, by names in camel case: ``{"recordsRemoved": 7}``.
    unknown : set of str
        The counts of these that are only a minimum.
    notes : list of str
        Notes for people.
    doubts : list of str
        Unknown facts that were needed, each with the value that was taken instead.
    rows : list of dict
        Details, one for each line of ``--json``; each has a ``"type"``.
    report : LoadReport
        What had to be put in order when the log was opened, as a broker does.
    replicas : tuple of int
        Brokers that hold the partition, as far as the cluster's metadata says: the other ones stay as they are.
    loses_records : bool
        True if records went that the other replicas are supposed to have: the controller of the cluster is then told
        that this broker was not stopped in order.
    error : PylogsegError or None
    changes : list of FileChange
        In a dry run: how its files would differ.
    """

    name: str
    path: str
    state: State = "done"
    reason: str = ""
    remedy: str = ""
    not_done: bool = False
    is_locked: bool = False
    log_start: int | None = None
    log_end: int | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    report: LoadReport = field(default_factory=LoadReport)
    replicas: tuple[int, ...] = ()
    loses_records: bool = False
    error: PylogsegError | None = None
    changes: list[FileChange] = field(default_factory=list)

    def skip(self, reason: str, remedy: str = "", *, not_done: bool = False) -> None:
        """Mark the partition as skipped; `not_done` if it should have been changed."""
        self.state, self.reason, self.remedy, self.not_done = "skipped", reason, remedy, not_done

    def fail(self, error: PylogsegError) -> None:
        """Mark the partition as given up."""
        self.state, self.reason, self.error = "failed", str(error), error

    def absorb(self, other: PartitionResult) -> None:
        """Add notes about the partition from elsewhere."""
        self.notes += other.notes
        self.doubts += other.doubts
        self.rows += other.rows
        self.numbers |= other.numbers
        self.not_done |= other.not_done
        self.is_locked |= other.is_locked

    def is_shown(self, verbose: bool) -> bool:
        """True if it was looked at, and changed; with `verbose` also if there was nothing to change."""
        return self.state == "done" or (verbose and self.state == "unchanged")

    def lines(self, verbose: bool = False, dry_run: bool = False) -> Iterator[str]:
        """Yield lost records and a failure for people; with `verbose` also harmless changes."""
        yield from self.action_lines(verbose, dry_run)
        if self.state == "failed":
            yield f"FAILED  {self.path}"
            yield f"        {self.reason}"
            if self.remedy:
                yield f"        remedy: {self.remedy}"
            yield from (f"        {self.name}: {line}" for line in self.details())
            yield from (f"        {self.name}: {_change_text(change)}" for change in self.changes if verbose)

    def action_lines(self, verbose: bool = False, dry_run: bool = False) -> Iterator[str]:
        """Yield lost records for people; with `verbose` also harmless changes."""
        actions = self.report.actions
        for _, group in groupby(actions, lambda action: (action.kind, action.reason, action.bytes_gone > 0)):
            first, *others = group
            if first.is_damage:
                for action in (first, *others):
                    yield from action.lines(dry_run=dry_run)
            elif verbose:
                yield from first.lines(len(others), dry_run=dry_run)

    def details(self) -> Iterator[str]:
        """Yield changes, notes and doubts."""
        if done := done_text(self.report.actions):
            yield f"recovered, as a starting broker does: {done}"
        yield from (str(action) for action in self.report.actions if action.bytes_gone and not action.is_damage)
        yield from self.notes
        yield from self.doubts

    @property
    def known_numbers(self) -> dict[str, int | None]:
        """The numbers, None for unknown ones."""
        return {name: None if name in self.unknown else number for name, number in self.numbers.items()}


@declare_columns(
    line_type("summary"),
    TableColumn("logDirectory", "string", "that was changed", source="log_dir"),
    TableColumn("dryRun", "bool", "all this only would be"),
    TableColumn(SPREAD, "map<string, int64>", "partitions by state, and sums over those not skipped", source="counts"),
    TableColumn("checkpoints", "list<struct>", "entries that changed", fields=get_columns(CheckpointChange)),
    TableColumn("cleanShutdown", "bool", "a broker that starts trusts the directory", source="is_closed_clean"),
    TableColumn("otherReplicas", "string", "unchanged", source=lambda _: "unchanged"),
    TableColumn("missing", "list<string>", "partitions that were asked for and are not here"),
    TableColumn("lacking", "list<struct>", "records known to be missing", fields=get_columns(Finding)),
    TableColumn("refused", "int64", "findings that keep a broker from starting", source=lambda row: len(row.refusals)),
    TableColumn("notes", "list<string>", "for people"),
    TableColumn("doubts", "list<string>", "small files that say less than they should"),
    TableColumn(
        "changes",
        "list<struct>",
        "of a dry run: how files of the directory itself would differ",
        fields=get_columns(FileChange),
    ),
)
@dataclass
class Result(Outcome):
    """The result of one command: iterate over it for the partitions, in the order of their names.

    Attributes
    ----------
    partitions : list of PartitionResult
    log_dir : str or None
        The log directory that was changed; None for a partition's folder that lies in none.
    dry_run : bool
        True if all this only would be.
    notes : list of str
        About the log directory, and where the settings come from.
    doubts : list of str
        Small files of the log directory that say less than they should, each with the value that was taken instead.
    checkpoints : list of CheckpointChange
        Changed entries of the log directory's checkpoints.
    changes : list of FileChange
        In a dry run: how the files of the log directory itself would differ.
    is_closed_clean : bool
        True if a broker that starts now trusts the whole log directory.
    was_closed_clean : bool
        True if it would have before the command.
    missing : list of str
        Partitions that were asked for and are not here.
    node_id : int or None
        The id of the directory's broker; None if unknown.
    sources : list of str
        Log directories that were only read, if the result was made of several.
    clients : list of str
        After a restore: effects on clients of its partitions.
    lacking : list of Finding
        Records that the source lacks.
    refusals : list of Finding
        After a recovery: findings that keep a broker from starting, independent of its logs.
    """

    partitions: list[PartitionResult] = field(default_factory=list)
    log_dir: str | None = None
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    checkpoints: list[CheckpointChange] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)
    is_closed_clean: bool = False
    was_closed_clean: bool = False
    missing: list[str] = field(default_factory=list)
    node_id: int | None = None
    sources: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    lacking: list[Finding] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)

    def __iter__(self) -> Iterator[PartitionResult]:
        return iter(self.partitions)

    parts = __iter__

    @property
    def failed(self) -> list[PartitionResult]:
        """Partitions that failed."""
        return [result for result in self.partitions if result.state == "failed"]

    @property
    def exit_code(self) -> int:
        """For a shell: 2 if the disk failed or a key was missing, 1 if not all was done, known or kept."""
        if any(is_of_disk(result.error) for result in self.failed):
            return 2
        if any(result.is_locked for result in self.partitions):
            return 2
        not_done = any(part.not_done or part.doubts or part.report.is_damage for part in self.partitions)
        return int(bool(self.failed or self.missing or not_done or self.doubts or self.lacking or self.refusals))

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of partitions by state, and the totals."""
        states = [part_result.state for part_result in self.partitions]
        return {**{state: states.count(state) for state in get_args(State)}, **self.totals()}

    def lines(self, verbose: bool = False, nothing: str = "") -> Iterator[str]:
        """Yield details of partitions and a summary, the total last; `nothing` is for a result without a change."""
        looked_at = [part_result for part_result in self if part_result.is_shown(verbose=True)]
        details = (f"{part_result.name}: {line}" for part_result in looked_at for line in part_result.details())
        yield from _join(details, self, verbose)
        for part_result in self if verbose else ():
            if part_result.is_shown(verbose):
                yield from (f"{part_result.name}: {_change_text(change)}" for change in part_result.changes)
        if nothing and looked_at and not any(part_result.state in ("done", "failed") for part_result in self):
            yield nothing
        yield from _summary(self, verbose)
        if self.dry_run:
            files = sum(len(part_result.changes) for part_result in self)
            hint = f" ({count_text(files, 'file')} would differ: --verbose lists them)" if files and not verbose else ""
            yield f"dry run: nothing was changed{hint}"
        yield _total(self)

    def short_lines(self) -> Iterator[str]:
        """Yield losses and the total."""
        yield from _losses(self)
        yield _total(self)

    def totals(self) -> dict[str, int]:
        """Sums over all partitions that were not skipped.

        ``partitions``, ``changed``, ``bytesBefore``, ``bytesAfter``, and what the command counted, by the names in
        `PartitionResult.numbers`: offsets of partitions are no counts, and have no sum.
        """
        taken = [result for result in self.partitions if result.state != "skipped"]
        sums = {
            "partitions": len(taken),
            "changed": sum(result.state == "done" for result in taken),
            "bytesBefore": sum(result.bytes_before for result in taken),
            "bytesAfter": sum(result.bytes_after for result in taken),
        }
        for result in taken:
            for name, number in result.numbers.items():
                if name not in _OFFSETS:
                    sums[name] = sums.get(name, 0) + number
        return sums


def merged(path: str, results: Sequence[Result]) -> Result:
    """Merge the results of several log directories; names of checkpoints become their paths."""
    return Result(
        [part_result for result in results for part_result in result],
        path,
        any(result.dry_run for result in results),
        [f"{result.log_dir}: {note}" for result in results for note in result.notes],
        [doubt for result in results for doubt in result.doubts],
        [
            change._replace(file=f"{result.log_dir}/{change.file}")
            for result in results
            for change in result.checkpoints
        ],
        [change for result in results for change in result.changes],
        all(result.is_closed_clean for result in results),
        any(result.was_closed_clean and not result.is_closed_clean for result in results),
        node_id=next((result.node_id for result in results), None),
        lacking=[finding for result in results for finding in result.lacking],
    )


def is_of_disk(error: PylogsegError | None) -> bool:
    """Check whether an error is a disk error and not damaged data."""
    if isinstance(error, KeepError):  # by itself a refusal; else a copy could not be written
        return isinstance(error.__cause__, StorageError)
    return isinstance(error, StorageError)


def is_full(error: PylogsegError | None) -> bool:
    """Check whether there was no room on the disk."""
    return isinstance(error, StorageError) and is_of_disk(error) and error.reason in _NO_ROOM


_NO_ROOM = [os.strerror(number) for number in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))]


# ---- lines for people ----


def done_text(actions: Iterable[Action]) -> str:
    """Return the actions of a recovery as text: ``7 leftovers removed, 1 index rebuilt``."""
    counts = Counter(action.kind.value for action in actions)
    plural = {kind: r"\1" if count > 1 else "" for kind, count in counts.items()}
    return ", ".join(f"{count:,} {_ENDING.sub(plural[kind], _DONE[kind])}" for kind, count in counts.items())


def _join(lines: Iterable[str], result: Result, verbose: bool) -> Iterable[str]:
    """Return lines; without `verbose`, equal lines of several partitions as one."""
    return lines if verbose else joined_lines(lines, {part_result.name.rpartition("-")[0] for part_result in result})


def _losses(result: Result, verbose: bool = False) -> Iterator[str]:
    if result.refusals:
        yield f"a broker will not start on this log directory: {count_text(len(result.refusals), 'finding')} above"
    if lost := sum(action.is_damage for part_result in result for action in part_result.report.actions):
        yield f"lost in {count_text(lost, 'place')}: records that may have been written whole"
    yield from (f"not known: {doubt}" for doubt in _join(result.doubts, result, verbose))


def _summary(result: Result, verbose: bool) -> Iterator[str]:
    would = "would be " if result.dry_run else ""
    left: dict[tuple[str, str], list[str]] = {}
    for part_result in result:
        if part_result.state == "skipped":
            topic = part_result.name.rpartition("-")[0]
            left.setdefault(
                (part_result.reason.replace(f"topic {topic} ", "topic {} "), part_result.remedy), []
            ).append(topic)
    for (reason, remedy), topics in sorted(left.items(), key=lambda item: -len(item[1])):
        why = _of_topics(reason, list(dict.fromkeys(topics)))
        yield f"{count_text(len(topics), 'partition')} skipped: {why}" + (f"; {remedy}" if remedy else "")
    yield from _losses(result, verbose)
    yield from _join(result.notes, result, verbose)
    for file in dict.fromkeys(change.file for change in result.checkpoints):
        changes = [change for change in result.checkpoints if change.file == file]
        entries = names_text([_entry_text(change) for change in changes])
        yield f"{file} {would}rewritten, {len(changes):,} of its entries: {entries}"
    if result.log_dir is not None and not result.dry_run and not result.is_closed_clean:
        yield f"a broker will recover this log directory when it starts: {_why_unclean(result)}"
    yield _replicas(result)
    if result.clients:
        yield "what clients will see:"
        yield from (f"- {line}" for line in result.clients)


def _why_unclean(result: Result) -> str:
    if result.was_closed_clean:
        return "this command removed the clean shutdown marker, since a partition failed half way"
    return "there was no clean shutdown"


def _of_topics(reason: str, topics: list[str]) -> str:
    """Return a reason that several topics share, with their names in the place of ``{}``."""
    if len(topics) > 1:
        reason = reason.replace("topic {} is not", "topics {} are not").replace("topic {}", "topics {}")
    return reason.replace("{}", names_text(topics))


def _total(result: Result) -> str:
    """Return the total: partitions, records, bytes."""
    sums, would = result.totals(), "would be " if result.dry_run else ""
    before, after = sums["bytesBefore"], sums["bytesAfter"]
    done = "merged" if result.sources else "changed"
    parts = [f"{sums['changed']:,} of {count_text(len(result.partitions), 'partition')} {would}{done}"]
    parts += [f"{count_text(sums[name], one)} {what}" for name, (one, what) in _COUNTED.items() if sums.get(name)]
    if result.sources:  # nothing shrinks: something new is made
        return f"TOTAL: {', '.join(parts)}; segments {size_text(after)}"
    moved = f"{size_text(abs(before - after))} {'freed' if after <= before else 'more'}"
    return f"TOTAL: {', '.join(parts)}; segments {size_text(before)} to {size_text(after)}, {moved}"


def _entry_text(change: CheckpointChange) -> str:
    before, after = ("none" if offset is None else str(offset) for offset in (change.before, change.after))
    return f"{change.topic}-{change.partition} {before} to {after}"


def _replicas(result: Result) -> str:
    if result.sources:
        return f"nothing was changed in {', '.join(result.sources)}"
    chosen = [part_result for part_result in result if part_result.state == "done"] or list(result)
    brokers = sorted({broker for part_result in chosen for broker in part_result.replicas} - {result.node_id})
    counts = {len(part_result.replicas) for part_result in chosen}
    if counts == {1} and (result.node_id is None or not brokers):
        return "these partitions have no other replicas"
    named = f" (these partitions have replicas on brokers {', '.join(map(str, brokers))})" if brokers else ""
    return f"other replicas are unchanged{named}: the command works on this disk only"


def _change_text(change: FileChange) -> str:
    """Return how a dry run would change a file."""
    if change.before is None:
        return f"would create {change.path}, {change.after} bytes"
    if change.after is None:
        return f"would remove {change.path}, {change.before} bytes"
    sizes = f"{change.before} bytes" if change.before == change.after else f"{change.before} to {change.after} bytes"
    return f"would change {change.path} from position {change.position} on, {sizes}"
