"""`diff --by-content`: compare a log with its mirror, whose records have other offsets, and make the map of these."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _keymap
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.folders import not_here
from pylogseg.env.executor import Advance, WorkKeywords, Workload, choose_executor
from pylogseg.errors import RequestError
from pylogseg.format.keywords import split_keywords
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.offline.aligned_findings import AlignmentFindings
from pylogseg.offline.aligned_result import AlignedDifference, AlignedDifferences
from pylogseg.offline.aligning import FACTOR, ROW, WINDOW, HashRows, Stream, align
from pylogseg.offline.comparing import (
    FROM_THE_END,
    DiffKeywords,
    DiffQuestion,
    in_ascending_order,
    pair_logs,
)
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.reading.offset_range import OPEN_END, OffsetRange
from pylogseg.reading.selection import Selection
from pylogseg.reading.stable_offset import last_stable_offset
from pylogseg.reading.state import ReadState
from pylogseg.tables.question import Question
from pylogseg.tables.reader import Reader, Source
from pylogseg.values.internal.mirror_map import MirrorRuns
from pylogseg.walker.gaps import Gap

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Hashes = npt.NDArray[np.uint64]


def diff_by_content(
    a: Source,
    b: Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    common: bool = False,
    ignore_timestamps: bool = False,
    max_ranges: int = 1000,
    window: int = WINDOW,
    **how: Unpack[DiffKeywords],
) -> AlignedDifferences:
    """Compare topics with their mirrors, partition by partition, where the same record has another offset.

    Records are the same if key, value, timestamp and headers are. Both sides are aligned by the order of their records,
    and the pairs are a map of offsets. Control records are left out, and by default those of aborted transactions.

    Parameters
    ----------
    a, b : path, URL, Disk or Partition
        As for `diff`; where each side is one log, these two are compared.
    topic : str or list of str, optional
        Topics, partitions or patterns, by their names in A; all live partitions by default.
    partition : int or list of int, optional
        Only partitions with these numbers.
    rename : dict of str to str, optional
        Topics of A and their names in B. One ``*`` stands for any text: ``{"*": "source.*"}`` is what MirrorMaker does.
        Then other topics of B are left out.
    common : bool
        Leave out the records before the first one that both sides have, and behind the last one.
    ignore_timestamps : bool
        Records may have other timestamps: of a topic in which the broker sets them.
    max_ranges : int
        Ranges listed for each partition; all are counted.
    window : int
        Records of each side that are compared at a time, 40 bytes each on each side. A record that is further away
        counts as missing and extra; a second one, as extra.
    isolation_level : {"read_committed", "read_uncommitted"}
        The latter also compares records of aborted transactions: of a mirror whose consumer reads them.
    **how
        Other keywords of `diff`.

    Returns
    -------
    AlignedDifferences
        An iterable with an `AlignedDifference` for each partition of either side, by name.

    Raises
    ------
    RequestError
        If a name is on neither side, or two topics have one name.
    StorageError
        If the disk fails.
    CorruptionError
        While iterating, with ``on_corrupt="raise"``.
    """
    if window < 2:
        raise RequestError(f"window must be 2 records or more, not {window}")
    workers, asked = split_keywords(how, WorkKeywords, DiffQuestion)
    if isinstance(a, Reader) or isinstance(b, Reader):
        raise RequestError("diff_by_content takes no reader: give it the paths, and the reader's options as keywords")
    asked = {"isolation_level": "read_committed"} | asked
    sides = [Question.of("diff_by_content", side, topic, partition, DiffQuestion, asked) for side in (a, b)]
    _, choice, selection, reading, _ = sides[0]
    disks = [side.open() for side in sides]
    rules = Renames(rename or {})
    logs = [
        logs_of(disk, from_log_start=selection.from_log_start)
        for disk in _chosen(disks[0], rules.undone(disks[1]), choice)
    ]
    pairs = pair_logs(*logs)
    offset = selection.offsets.absolute(FROM_THE_END)
    selection = replace(selection, topics=(), partitions=(), offsets=OffsetRange())
    state = replace(reading, control=False, skip_unreadable=True).start(scratch=Scratch)
    secret = int.from_bytes(os.urandom(8), "little"), int.from_bytes(os.urandom(8), "little")
    targets = {log.path: rules.name_in_b(log.name) for log in logs[1]}
    comparison = _ContentComparison(
        offset, selection, state, secret, targets, common, ignore_timestamps, max_ranges, window
    )
    sizes = [sum(segment.size for log in both if log for segment in log.segments) for _, *both in pairs]
    load = Workload("pylogseg diff", sizes, workers.pop("on_bytes", None))
    return AlignedDifferences(iter(choose_executor(**workers).map(comparison.run, pairs, load)))


class Renames:
    """Names of topics in A and B; the first rule that fits counts."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        for name, other in rules.items():
            if not name or not other or name.count("*") > 1 or name.count("*") != other.count("*"):
                raise RequestError(f"rename {name}={other}: give two names, or two with one * each")
        self._rules = tuple(rules.items())

    def name_in_b(self, name: str) -> str:
        """Return the name of a topic or partition of A in B."""
        topic, dash, number = name.rpartition("-")
        return next((other + dash + number for rule in self._rules if (other := _put(topic, *rule)) is not None), name)

    def undone(self, disk: Disk) -> Disk:
        """Return disk B with its mirrored topics renamed as on A, without topics that no rule covers."""
        if not self._rules:
            return disk

        def in_a(topic: str) -> str:
            return next((name for a, b in self._rules if (name := _put(topic, b, a)) is not None), "")

        kept = [replace(p, topic=in_a(p.topic)) for p in disk.partitions if in_a(p.topic)]
        loose = [replace(segment, topic=in_a(segment.topic)) for segment in disk.loose if in_a(segment.topic)]
        if not kept and not loose and disk:
            rules = ", ".join(f"{a}={b}" for a, b in self._rules)
            raise RequestError(f"rename {rules}: B has no topic of such a name")
        return replace(disk, partitions=tuple(kept), loose=tuple(loose))


def _put(name: str, rule: str, other: str) -> str | None:
    """Return a name by a rule; None if the rule is for other names."""
    head, star, tail = rule.partition("*")
    if not star:
        return other if name == rule else None
    if len(name) <= len(head) + len(tail) or not name.startswith(head) or not name.endswith(tail):
        return None
    return other.replace("*", name[len(head) : len(name) - len(tail)])


def _chosen(a: Disk, b: Disk, choice: PartitionChoice) -> list[Disk]:
    """Return the partitions of both sides that names and numbers select; RequestError for a name on neither side."""
    if choice.is_all:
        return [a, b]
    places = [(p.topic, p.partition) for disk in (a, b) for p in disk.partitions]
    places += [(segment.topic, segment.partition) for disk in (a, b) for segment in disk.loose]
    for name in choice.names:
        named = PartitionChoice((name,))
        if not any(named.takes(*place) for place in places):
            raise not_here(name, (f"{topic}-{number}" for topic, number in places), "on either side")
    choice.check_numbers(number for _, number in places)
    return [
        replace(
            disk,
            partitions=tuple(p for p in disk.partitions if p.is_live and choice.takes(p.topic, p.partition)),
            loose=tuple(segment for segment in disk.loose if choice.takes(segment.topic, segment.partition)),
        )
        for disk in (a, b)
    ]


class _ContentComparison(NamedTuple):
    offset: tuple[int | None, int | None]
    selection: Selection
    state: ReadState
    secret: tuple[int, int]
    targets: dict[str, str]  #: Names in B, by paths.
    common: bool
    ignore_timestamps: bool
    max_ranges: int
    window: int

    def run(self, pair: tuple[str, LogFiles | None, LogFiles | None], advance: Advance) -> AlignedDifference:
        """Compare the two logs of a partition."""
        name, a, b = pair
        row = AlignedDifference(name, a.path if a else None, b.path if b else None, is_common=self.common)
        if a is None or b is None:
            return row
        row.log_starts = a.log_start_offset, b.log_start_offset
        first, end = self.offset[0] or 0, OPEN_END if self.offset[1] is None else self.offset[1]
        # A range of offsets is one of A; the records of B have others.
        sides = [
            _HashedLog(self, a, max(first, a.log_start_offset), end, advance),
            _HashedLog(self, b, b.log_start_offset, OPEN_END, advance),
        ]
        findings = AlignmentFindings(row, self.max_ranges, self.window)
        for step in align(sides[0].stream, sides[1].stream, self.window):
            findings.add(step)
        findings.end()
        row.gaps = [gap for side in sides for gap in side.gaps]
        row.append_times = sides[0].has_append_time, sides[1].has_append_time
        row.compared = max(first, a.log_start_offset), min(end, sides[0].end)
        row.map = MirrorRuns(name, self.targets[b.path])
        if not row.is_damaged:
            row.map.runs = findings.runs()
            row.runs = len(row.map.runs)
            if end >= OPEN_END:
                findings.add_end(row.map, sides[0].end)
        return row


class _HashedLog:
    """One side: the hashes of its records, as a stream."""

    def __init__(self, how: _ContentComparison, log: LogFiles, first: int, end: int, advance: Advance) -> None:
        self.gaps: list[Gap] = []
        self.has_append_time = False
        self._how = how
        state = replace(how.state, gaps=self.gaps, on_bytes=advance)
        self._reader, self._is_ahead = LogReader(log, first, end, how.selection, state), False
        self.stream = Stream(self._read, first)

    @property
    def end(self) -> int:
        """Where a consumer's reading of it ends."""
        log, level = self._reader.log, self._how.state.reading.isolation_level
        stable = last_stable_offset(list(log.segments), log.snapshots) if level == "read_committed" else None
        return log.log_end_offset if stable is None else min(stable, log.log_end_offset)

    def _read(self, first_offset: int) -> Iterator[HashRows]:
        reader = replace(self._reader, first_offset=max(first_offset, self._reader.first_offset))
        if self._is_ahead:  # its gaps and bytes are noted when the stream comes there
            reader = reader.apart()
        self._is_ahead = True
        return self._hash_chunks(reader)

    def _hash_chunks(self, reader: LogReader) -> Iterator[HashRows]:
        least = 0
        for chunk in reader.chunks():
            columns = in_ascending_order(chunk.columns, least)
            if len(columns):
                least = int(columns.offset[-1]) + 1
                self.has_append_time |= bool((columns.batches.timestamp_type == 1).any())
                yield hash_records(columns, self._how.secret, ignore_timestamps=self._how.ignore_timestamps)


def hash_records(columns: RecordColumns, secret: tuple[int, int], *, ignore_timestamps: bool = False) -> HashRows:
    """Return the offsets and hashes of records; nobody without the secret finds two records with one hash."""
    rows = np.zeros(len(columns), ROW)
    identity, value, headers = (np.zeros(len(columns), np.uint64) for _ in range(3))
    _mix(secret, columns.key_place, columns.key_size, columns.sources, identity)
    if not ignore_timestamps:
        _mix_numbers(secret, np.asarray(columns.timestamp, np.int64), np.ones(len(columns), np.int64), identity)
    _mix(secret, columns.value_place, columns.value_size, columns.sources, value)
    if columns.tally().headers:
        name, name_size, of, of_size = columns.header_spans()
        every = np.zeros(len(name), np.uint64)
        _mix(secret, name, name_size, columns.sources, every)
        _mix(secret, of, of_size, columns.sources, every)
        _mix_numbers(secret, every, np.asarray(columns.header_count, np.int64), headers)
    rows["offset"], rows["identity"], rows["value"] = columns.offset, identity, value
    rows["whole"] = (identity * FACTOR + value) * FACTOR + headers
    return rows


def _mix(secret: tuple[int, int], place: Any, size: Any, sources: tuple[Any, ...], into: _Hashes) -> None:
    if len(into):
        _keymap.hash_spans(secret, np.ascontiguousarray(place), np.ascontiguousarray(size), sources, into)


def _mix_numbers(secret: tuple[int, int], numbers: npt.NDArray[Any], counts: npt.NDArray[np.int64], into: Any) -> None:
    """Mix numbers of 64 bits in, of each record so many."""
    ends = np.cumsum(counts) * 8
    _mix(secret, ends - counts * 8, (counts * 8).astype(np.int32), (np.ascontiguousarray(numbers).view("u1"),), into)
