"""What changed since an earlier report, as plain values: a part of the facts of a report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartitionChange:
    """A partition that is not as it was."""

    what: str  #: ``cut`` (its end moved back), ``gone``, ``recreated`` (another topic id), ``new``, ``moved``.
    name: str
    topic: str | None
    partition: int | None
    disk: str
    start_before: int | None
    start_after: int | None
    end_before: int | None
    end_after: int | None
    size_before: int | None
    size_after: int | None
    records_per_day: float | None  #: By the end; only of a partition that moved.
    bytes_per_day: float | None  #: By the size: what was deleted counts against it.


@dataclass(frozen=True)
class FindingChange:
    """A finding of one of the reports."""

    what: str  #: ``new`` or ``gone``.
    level: str
    urgency: str
    kind: str
    reason: str
    path: str
    topic: str | None
    partition: int | None


@dataclass(frozen=True)
class GroupChange:
    """Where a group stood, and stands."""

    what: str  #: ``stuck`` (behind, and read nothing), ``behind`` (more), ``gone``, ``new``, ``caught up``, ``same``.
    group: str
    lag_before: int | None
    lag_after: int | None
    lag_ms_before: int | None
    lag_ms_after: int | None
    age_ms_before: int | None
    age_ms_after: int | None
    read: int | None  #: By how much its offsets moved, together; None if none is in both reports.


@dataclass(frozen=True)
class SettingChange:
    """A topic's own setting; None is not set."""

    topic: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ReplicasChange:
    """Who has a partition, by the cluster's metadata."""

    topic: str
    partition: int
    leader_before: int | None
    leader_after: int | None
    replicas_before: tuple[int, ...]
    replicas_after: tuple[int, ...]
    in_sync_before: tuple[int, ...]
    in_sync_after: tuple[int, ...]


@dataclass(frozen=True)
class Since:
    """What changed since an earlier report; each list has the worst first."""

    made_ms: int  #: When that was made.
    span_ms: int  #: From then to this report.
    source: str  #: Its file.
    command: str  #: That made it.
    verdict: str  #: Its own.
    size_before: int
    size_after: int
    partitions: tuple[PartitionChange, ...]
    partitions_same: int
    findings: tuple[FindingChange, ...]
    findings_same: int
    groups: tuple[GroupChange, ...]
    settings: tuple[SettingChange, ...]
    replicas: tuple[ReplicasChange, ...]
    not_listed: int  #: Changes of all kinds that are not in the lists.
    notes: tuple[str, ...]  #: What could not be compared, and why.
