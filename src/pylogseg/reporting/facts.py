"""The facts of a report, as plain values, for the page and for `pylogseg report --json`.

Times are milliseconds since 1970, sizes are bytes, ranges of offsets and positions are half-open. None means unknown,
or not looked at; `ScopeFact` says which. Names in JSON are those of the fields in camel case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pylogseg.disk.columns import SIZES
from pylogseg.format.columns import TableColumn, declare_columns, get_columns
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.inspect.stats.missing import MissingRange
from pylogseg.inspect.stats.sketch import Histogram
from pylogseg.reporting.series import Growth, Series

#: Raised when a field changes its meaning or goes; new fields do not raise it.
VERSION = 1


@dataclass(frozen=True)
class Command:
    """A command that shows or mends something, quoted for the shell."""

    what: str  #: ``show``, ``try`` (a dry run) or ``mend``.
    text: str
    note: str = ""  #: What to know before it is run; empty if nothing.


@dataclass(frozen=True, kw_only=True)
class FindingFact:
    """Something that is wrong, or worth a look."""

    level: str  #: ``damage``, ``notice`` or ``advice`` (a setting, a transaction, a group: no fault of the files).
    kind: str
    reason: str
    remedy: str
    path: str
    topic: str | None = None
    partition: int | None = None
    position: int | None = None  #: First byte in the file.
    end_position: int | None = None  #: Byte after the last one, if it is known.
    offset: int | None = None
    last_offset: int | None = None
    commands: tuple[Command, ...]
    urgency: str = "advice"  #: Else one of `inspect.verify.findings.URGENCIES`.


@dataclass
class ScopeFact:
    """The parts of a disk that the report read, and the parts that it left out."""

    mode: str  #: ``headers`` (and a sample of records) or ``full``.
    since_ms: int | None
    until_ms: int | None
    partitions: int = 0  #: Whose segments were looked at: not those that await deletion, move here, or are strays.
    #: Of which records were decoded: with ``full`` those that are not empty, else the largest.
    partitions_sampled: int = 0
    segments: int = 0
    size: int = 0  #: Of the segments.
    segments_with_all_headers: int = 0  #: Every batch header of them was read.
    segments_with_some_headers: int = 0  #: So many headers that the rest was estimated.
    segments_read_whole: int = 0  #: Every byte of them was read.
    headers: int = 0  #: Batch headers that were read.
    records_decoded: int = 0
    bytes_decoded: int = 0  #: In the files, of the batches of these records.
    checked: tuple[str, ...] = ()  #: Sentences.
    not_checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: What could not be read or was skipped.
    aggregated: str = ""  #: Why partitions are not shown one by one; empty if they are.
    payloads: int = 0  #: Records a partition whose keys and values are in the facts (``--sample``).


@dataclass(frozen=True)
class HotKey:
    """A key with many records, bytes, or one large record."""

    key: str | None  #: Escaped text; None unless keys were asked for with ``--sample``.
    key_bytes: int | None
    offset: int  #: Of a record with this key.
    path: str  #: The segment of that record.
    records: int | None
    bytes: int | None


@dataclass(frozen=True)
class Payload:
    """A record that was asked for by ``--sample``."""

    offset: int
    timestamp_ms: int | None
    key: str | None  #: Escaped text, cut to `SHOWN_BYTES`; as the value.
    value: str | None
    key_bytes: int
    value_bytes: int
    headers: tuple[tuple[str, str | None], ...]
    key_is_decoded: bool = False  #: It is JSON by a schema, cut to five times as much; as the value.
    value_is_decoded: bool = False
    why_not_decoded: str = ""  #: Which of them the schema does not fit, and why; empty otherwise.


@declare_columns(
    *(TableColumn(f"{kind}Bytes", "struct", f"sizes of {kind}s", fields=SIZES) for kind in ("record", "key", "value")),
    with_fields=True,
)
@dataclass(frozen=True)
class SampleFact:
    """Facts of decoded records; of all records with ``--full``, else of a sample."""

    is_all: bool
    records: int
    record_bytes: Histogram
    key_bytes: Histogram
    value_bytes: Histogram
    codecs: tuple[dict[str, Any], ...]  #: Batches by codec.
    null_keys: int
    tombstones: int
    headers: int
    distinct_keys: int
    distinct_keys_exact: bool
    keys_by_records: tuple[HotKey, ...]
    keys_by_bytes: tuple[HotKey, ...]
    largest: tuple[HotKey, ...]
    weights_missed: int  #: Counts of the hottest keys are at most so many records too low.
    payloads: tuple[Payload, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SegmentFact:
    """One file of batches."""

    name: str
    state: str  #: ``sealed``, ``active``, or a suffix that is left over: ``deleted``, ``cleaned``, ``swap``.
    base_offset: int
    next_offset: int | None = None
    size: int
    modified_ms: int = 0
    first_timestamp: int | None = None
    largest_timestamp: int | None = None
    companions: tuple[str, ...] = ()
    read: str = "names"  #: Else ``all`` (bytes), ``headers`` (all of them) or ``some`` (headers).
    batches: int | None = None  #: Estimated if `read` is ``some``; as the records.
    records: int | None = None
    codecs: tuple[str, ...] = ()
    damage: int = 0  #: Findings in this file.
    merged: int = 1  #: Of `state` ``merged``: the number of segments that are shown as one.
    is_gone: bool = False  #: It vanished while the report was made.
    error: str | None = None


@declare_columns(
    TableColumn("ranges", "list<struct>", "the first ranges of missing offsets; not those of markers", fields=(
        TableColumn("first", "int64", "first missing offset", source="first_offset"),
        TableColumn("last", "int64", "last missing offset", source=lambda gap: gap.end_offset - 1),
        TableColumn("count", "int64", "missing offsets", source=lambda gap: gap.end_offset - gap.first_offset),
        TableColumn("reason", "string", "markers, log start, compaction, damage or not explained"),
    )),
    with_fields=True,
)  # fmt: skip
@dataclass(frozen=True)
class MissingFact:
    """Numbers of missing offsets by reason; `between` is not told apart before records are read."""

    markers: int | None
    below_log_start: int
    compaction: int
    damage: int
    not_explained: int
    ranges: tuple[MissingRange, ...]  #: The first ones; not those of markers.
    ranges_not_listed: int
    is_all: bool  #: True if every header of the partition was read: else a missing offset may be overlooked.


@declare_columns(
    TableColumn("aborted", "list<struct>", "aborted transactions, by the transaction indexes", fields=(
        TableColumn("producerId", "int64", "producer id"),
        TableColumn("firstOffset", "int64", "first offset of its records"),
        TableColumn("lastOffset", "int64", "offset of the marker"),
    )),
    with_fields=True,
)  # fmt: skip
@dataclass(frozen=True)
class TransactionsFact:
    """Transactions of a partition."""

    transactional_batches: int | None
    commits: int | None  #: Markers; None if records were not read.
    aborts: int | None
    aborted: tuple[AbortedTxn, ...]
    aborted_not_listed: int
    open: tuple[dict[str, Any], ...]  #: As rows of `pylogseg.cluster_state`, with commands.


@dataclass(frozen=True)
class Freed:
    """The space that a cleaner would free."""

    segments: int | None
    bytes: int | None
    is_estimate: bool
    why: str  #: How it was found, or why it is not known.
    is_assumed: bool = False  #: By settings that are not known: in no sum.


@dataclass(frozen=True)
class CleaningFact:
    """The effect of retention and compaction."""

    #: Those that count for what is deleted, with `source`: ``set`` (by the topic or the broker), ``cleaner`` (its
    #: checkpoint) or ``assumed`` (Kafka's default).
    settings: tuple[dict[str, str], ...]
    settings_source: str  #: A sentence.
    policy: str | None  #: ``delete``, ``compact``, ``compact,delete``; None if it is not known.
    assumed_policy: str  #: What is computed with.
    cleaned_to: int | None  #: In the cleaner's checkpoint.
    clean_bytes: int | None  #: None for a log that is not compacted; as those after it.
    dirty_bytes: int | None
    dirty_ratio: float | None
    retention_now: Freed
    retention_in_a_week: Freed  #: Of the bytes that are there now.
    compaction_now: Freed
    compaction_in_a_week: Freed
    size_in_a_week: int | None  #: Nothing is deleted by settings that are only assumed.
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class PartitionFact:
    """One replica of a partition."""

    name: str  #: As ``orders-3``; the path of a file that was named by itself.
    topic: str | None
    partition: int | None
    state: str  #: ``live``, ``unreadable``, ``delete``, ``future``, ``stray``.
    path: str
    disk: str  #: `DiskFact.path`, or the folder that it lies in.
    log_start_offset: int | None
    log_end_offset: int | None
    size: int
    disk_bytes: int
    first_timestamp: int | None
    newest_timestamp: int | None
    read: str  #: The least of its segments' `read`.
    batches: int | None  #: Estimated if `read` is ``some``; as those after it.
    records: int | None
    control_batches: int | None
    empty_batches: int | None
    codecs: tuple[str, ...]
    timestamp_types: tuple[str, ...]
    magics: tuple[int, ...]
    segments: tuple[SegmentFact, ...]
    series: Series
    growth: Growth
    sample: SampleFact | None
    #: None with `ScopeFact.since_ms` or `ScopeFact.until_ms`: for a part of a log it means nothing.
    missing: MissingFact | None
    producers: tuple[dict[str, Any], ...]  #: Those that wrote last first.
    producers_not_listed: int
    transactions: TransactionsFact
    leader_epochs: tuple[EpochEntry, ...]
    cleaning: CleaningFact | None
    damage: int  #: Findings of this level, as the next one.
    notices: int
    commands: tuple[Command, ...]  #: That show more of it.
    segments_not_listed: int = 0  #: Of those in rows of the state ``merged``.
    topic_id: str | None = None
    error: str | None = None


#: What is kept of a partition that is not shown.
IN_BRIEF = tuple(
    column
    for column in get_columns(PartitionFact)
    if column.name
    in ("name", "topic", "partition", "state", "disk", "topicId", "logStartOffset", "logEndOffset", "size")
)


@dataclass(frozen=True)
class TopicFact:
    """The live partitions of a topic."""

    name: str
    partitions: int
    segments: int
    size: int
    disk_bytes: int
    batches: int | None
    records: int | None
    first_timestamp: int | None
    newest_timestamp: int | None
    codecs: tuple[str, ...]
    ratio: float | None  #: Of the decoded records.
    policy: str | None  #: None if it is not known; as those after it.
    dirty_ratio: float | None
    freed_now: int | None
    freed_in_a_week: int | None
    growth: Growth
    series: Series
    damage: int
    notices: int
    is_internal: bool


@dataclass(frozen=True)
class DiskFact:
    """A log directory."""

    path: str
    partitions: int
    segments: int
    size: int
    disk_bytes: int
    free_bytes: int | None  #: Of the file system; None if it is not local.
    total_bytes: int | None
    growth: Growth
    full_in_days: float | None  #: At this rate, without deletions.
    locked_by: str | None  #: Who has the lock: a broker that runs.
    is_stopped_cleanly: bool | None


@dataclass(frozen=True)
class Since:
    """The changes since an earlier report; each list has the worst first.

    The rows have the names of ``--json``: a column of both reports is ``endBefore`` and ``endAfter``.
    """

    made_ms: int  #: When that was made.
    span_ms: int  #: From then to this report.
    source: str  #: Its file.
    command: str  #: That made it.
    verdict: str  #: Its own.
    size_before: int
    size_after: int
    #: By `what`: ``cut`` (its end moved back), ``gone``, ``recreated`` (another topic id), ``new``, ``moved``. Only of
    #: one that moved there are `recordsPerDay`, by the end, and `bytesPerDay`: what was deleted counts against it.
    partitions: tuple[dict[str, Any], ...]
    partitions_same: int
    findings: tuple[dict[str, Any], ...]  #: By `what`: ``new`` or ``gone``.
    findings_same: int
    #: By `what`: ``stuck`` (behind, and read nothing), ``behind`` (more), ``gone``, ``new``, ``caught up``, ``same``.
    #: `read` is by how much its offsets moved, together; None if none is in both reports.
    groups: tuple[dict[str, Any], ...]
    settings: tuple[dict[str, Any], ...]  #: Topics' own; None is not set.
    replicas: tuple[dict[str, Any], ...]  #: Who has a partition, by the cluster's metadata.
    not_listed: int  #: Changes of all kinds that are not in the lists.
    notes: tuple[str, ...]  #: What could not be compared, and why.


@dataclass(frozen=True)
class Facts:
    """All of a report."""

    version: int
    pylogseg: str  #: The version of the package.
    made_ms: int
    took_ms: int
    paths: tuple[str, ...]
    command: str  #: That makes this report again.
    verdict: str  #: A sentence, which claims no more than was looked at.
    damage: int
    notices: int
    advice: int
    scope: ScopeFact
    unread: int  #: What was not looked at, for want of a key or of permission; among the notices too.
    unknown: int  #: Findings of which it is not known whether they are damage; among the notices too.
    findings: tuple[FindingFact, ...]  #: The most urgent first.
    findings_not_listed: int
    disks: tuple[DiskFact, ...]
    topics: tuple[TopicFact, ...]
    partitions: tuple[PartitionFact, ...]  #: Of more than `MOST_PARTITIONS`, those with findings, and the largest.
    partitions_not_listed: int
    names_not_listed: tuple[str, ...]  #: Of partitions that are on the disk, and not in `partitions`.
    command_of_others: str  #: That makes a report of one of them, its name being ``NAME``.
    series: Series
    growth: Growth
    #: As rows of ``pylogseg groups``, those that wait longest first, as their offsets. `lag` is the sum over a group's
    #: partitions, `lagMs` and `ageMs` are the longest of them; `notKnown` counts offsets whose lag is in neither.
    groups: tuple[dict[str, Any], ...] = ()
    #: As rows of ``pylogseg groups --offsets``, with the time of the first unread record. `lagMs` is from it to the
    #: partition's newest record, `ageMs` to the time of the report; `whyNotKnown` says why these are null.
    group_offsets: tuple[dict[str, Any], ...] = ()
    group_offsets_not_listed: int = 0
    transactions: tuple[dict[str, Any], ...] = ()  #: As rows of `pylogseg.cluster_state`.
    open_transactions: tuple[dict[str, Any], ...] = ()  #: As rows of `pylogseg.cluster_state`, with commands.
    #: As rows of `pylogseg.cluster_state`, those without a leader or a replica in sync first.
    replicas: tuple[dict[str, Any], ...] = ()
    replicas_not_listed: int = 0
    topic_settings: tuple[dict[str, Any], ...] = ()  #: Topics' own, by the cluster's metadata; a secret is null.
    cluster_ids: tuple[str, ...] = ()  #: In `meta.properties` of the log directories.
    #: That were looked at, and are not in `partitions`, with the columns `IN_BRIEF`.
    partitions_in_brief: tuple[dict[str, Any], ...] = ()
    since: Since | None = None  #: What changed since an earlier report, if one was given.


#: Partitions that are in the facts one by one.
MOST_PARTITIONS = 1000
