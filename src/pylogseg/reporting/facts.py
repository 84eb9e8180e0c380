"""The facts of a report, as plain values: what the page shows, and what `pylogseg report --json` prints.

Times are milliseconds since 1970, sizes are bytes, ranges of offsets and positions are half-open. None means that it is
not known, or was not looked at; `ScopeFact` says which. Names in JSON are those of the fields in camel case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pylogseg.format.columns import TableColumn, declare_columns
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.inspect.stats.missing import MissingRange
from pylogseg.reporting.changes import Since

#: Raised when a field changes its meaning or goes; new fields do not raise it.
VERSION = 1


@dataclass(frozen=True)
class Command:
    """A command that shows or mends something, quoted for the shell."""

    what: str  #: ``show``, ``try`` (a dry run) or ``mend``.
    text: str
    note: str = ""  #: What to know before it is run; empty if nothing.


@dataclass(frozen=True)
class FindingFact:
    """Something that is wrong, or worth a look."""

    level: str  #: ``damage``, ``notice`` or ``advice`` (a setting, a transaction, a group: no fault of the files).
    kind: str
    reason: str
    remedy: str
    path: str
    topic: str | None
    partition: int | None
    position: int | None  #: First byte in the file.
    end_position: int | None  #: Byte after the last one, if it is known.
    offset: int | None
    last_offset: int | None
    commands: tuple[Command, ...]
    urgency: str = "advice"  #: Else one of `inspect.verify.findings.URGENCIES`.


@dataclass(frozen=True)
class ScopeFact:
    """What was read, and what was not."""

    mode: str  #: ``headers`` (and a sample of records) or ``full``.
    since_ms: int | None
    until_ms: int | None
    partitions: int  #: Whose segments were looked at: not those that await deletion, move here, or are strays.
    partitions_sampled: int  #: Of which records were decoded: with ``full`` those that are not empty, else the largest.
    segments: int
    size: int  #: Of the segments.
    segments_with_all_headers: int  #: Every batch header of them was read.
    segments_with_some_headers: int  #: So many headers that the rest was estimated.
    segments_read_whole: int  #: Every byte of them was read.
    headers: int  #: Batch headers that were read.
    records_decoded: int
    bytes_decoded: int  #: In the files, of the batches of these records.
    checked: tuple[str, ...]  #: Sentences.
    not_checked: tuple[str, ...]
    notes: tuple[str, ...]  #: What could not be read or was skipped.
    aggregated: str  #: Why partitions are not shown one by one; empty if they are.
    payloads: int  #: Records a partition whose keys and values are in the facts (``--sample``).


@dataclass(frozen=True)
class Series:
    """Records and bytes by time; one bucket is ``[start, start + step_ms)``."""

    step_ms: int
    starts: tuple[int, ...]  #: Ascending; buckets without records are left out.
    records: tuple[int, ...]
    bytes: tuple[int, ...]  #: Of whole batches, as stored.
    is_estimate: bool  #: Because headers were sampled.
    untimed: int = 0  #: Records without a time.


@dataclass(frozen=True)
class GrowthFact:
    """What was written until the time of the report, by the records' times."""

    last_hour_bytes: int
    last_day_bytes: int
    last_week_bytes: int
    bytes_per_day: float  #: Of the last week, or of the time since the first record if that is shorter.
    hours: Series  #: Of the last 7 days.
    days: Series  #: Of the last 90 days.


@dataclass(frozen=True)
class Sizes:
    """A distribution of sizes."""

    count: int
    total: int
    min: int | None
    mean: float | None
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True)
class Codec:
    """Batches of one codec."""

    name: str
    batches: int
    records: int
    stored_bytes: int
    body_bytes: int
    raw_bytes: int | None
    ratio: float | None


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


@dataclass(frozen=True)
class SampleFact:
    """What decoded records say; of all records with ``--full``, else of a sample."""

    is_all: bool
    records: int
    record_bytes: Sizes
    key_bytes: Sizes
    value_bytes: Sizes
    codecs: tuple[Codec, ...]
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


@dataclass(frozen=True)
class SegmentFact:
    """One file of batches."""

    name: str
    state: str  #: ``sealed``, ``active``, or a suffix that is left over: ``deleted``, ``cleaned``, ``swap``.
    base_offset: int
    next_offset: int | None
    size: int
    modified_ms: int
    first_timestamp: int | None
    largest_timestamp: int | None
    companions: tuple[str, ...]
    read: str  #: ``all`` (bytes), ``headers`` (all of them), ``some`` (headers), ``names`` (only by name and size).
    batches: int | None  #: Estimated if `read` is ``some``; as the records.
    records: int | None
    codecs: tuple[str, ...]
    damage: int  #: Findings in this file.
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


@dataclass(frozen=True)
class ProducerFact:
    """A producer of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    open_since_offset: int | None
    transactional_id: str | None


@dataclass(frozen=True)
class OpenFact:
    """A transaction that is open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    age_ms: int
    transactional_id: str | None
    hanging: bool
    commands: tuple[Command, ...]


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
    open: tuple[OpenFact, ...]


@dataclass(frozen=True)
class SettingFact:
    """A setting that counts for what is deleted."""

    name: str
    value: str
    source: str  #: ``set`` (by the topic or the broker), ``cleaner`` (its checkpoint), ``assumed`` (Kafka's default).


@dataclass(frozen=True)
class Freed:
    """What a cleaner would free."""

    segments: int | None
    bytes: int | None
    is_estimate: bool
    why: str  #: How it was found, or why it is not known.
    is_assumed: bool = False  #: By settings that are not known: in no sum.


@dataclass(frozen=True)
class CleaningFact:
    """What retention and compaction would do."""

    settings: tuple[SettingFact, ...]
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
    growth: GrowthFact
    sample: SampleFact | None
    #: None with `ScopeFact.since_ms` or `ScopeFact.until_ms`: for a part of a log it means nothing.
    missing: MissingFact | None
    producers: tuple[ProducerFact, ...]
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


@dataclass(frozen=True)
class PartitionInBrief:
    """A partition that was looked at, and is not among those that are shown one by one."""

    name: str
    topic: str | None
    partition: int | None
    state: str
    disk: str
    topic_id: str | None
    log_start_offset: int | None
    log_end_offset: int | None
    size: int


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
    growth: GrowthFact
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
    growth: GrowthFact
    full_in_days: float | None  #: At this rate, without deletions.
    locked_by: str | None  #: Who has the lock: a broker that runs.
    is_stopped_cleanly: bool | None


@dataclass(frozen=True)
class GroupFact:
    """A consumer group, as a row of ``pylogseg groups``."""

    group: str
    type: str
    state: str
    protocol_type: str | None
    members: int
    offsets: int
    lag: int | None  #: In records, the sum of its partitions.
    commands: tuple[Command, ...]
    lag_ms: int | None = None  #: The longest of its partitions, as the next one.
    age_ms: int | None = None
    not_known: int = 0  #: Offsets whose lag in time is not known, and in neither.


@dataclass(frozen=True)
class GroupOffsetFact:
    """An offset of a group, as a row of ``pylogseg groups --offsets``."""

    group: str
    topic: str
    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    commit_timestamp: int | None
    stale: bool  #: Of a topic that was deleted since.
    first_unread_timestamp: int | None = None  #: Of the first record that is there at the offset or behind it.
    lag_ms: int | None = None  #: From the first record that was not read to the partition's newest one.
    age_ms: int | None = None  #: From that record to the time of the report.
    why_not_known: str = ""  #: Why these two are not known; empty if they are.


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
    growth: GrowthFact
    groups: tuple[GroupFact, ...] = ()  #: Those that wait longest first, as their offsets.
    group_offsets: tuple[GroupOffsetFact, ...] = ()
    group_offsets_not_listed: int = 0
    transactions: tuple[dict[str, Any], ...] = ()  #: As rows of `pylogseg.cluster_state`.
    open_transactions: tuple[OpenFact, ...] = ()
    #: As rows of `pylogseg.cluster_state`, those without a leader or a replica in sync first.
    replicas: tuple[dict[str, Any], ...] = ()
    replicas_not_listed: int = 0
    topic_settings: tuple[dict[str, Any], ...] = ()  #: Topics' own, by the cluster's metadata; a secret is null.
    cluster_ids: tuple[str, ...] = ()  #: In `meta.properties` of the log directories.
    partitions_in_brief: tuple[PartitionInBrief, ...] = ()  #: That were looked at, and are not in `partitions`.
    since: Since | None = None  #: What changed since an earlier report, if one was given.


#: Partitions that are in the facts one by one.
MOST_PARTITIONS = 1000
