"""Sealed segments of a broker's disk that its tier should have, and has not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from pylogseg.catalog.disk import Partition, Segment
from pylogseg.catalog.folders import readable_topic_id
from pylogseg.config import LogConfig
from pylogseg.errors import CorruptionError, PylogsegError, StorageError
from pylogseg.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind
from pylogseg.internal_topics.cluster import ClusterMetadata
from pylogseg.lineage.chains import Lineage
from pylogseg.tier.joined import DiskWithTier
from pylogseg.tier.slices import whole_log
from pylogseg.tier.uploads import BrokenUpload, Upload
from pylogseg.verify.findings import Finding, Level
from pylogseg.verify.missing import Checkpoints
from pylogseg.verify.partition import Reports
from pylogseg.verify.segment_report import SegmentReport
from pylogseg.walker.gaps import offsets_text

_UNENDING = 2**63 - 1
_Sealed = tuple[Segment, SegmentReport]


def check_unsent(
    part: Partition,
    taken: Reports,
    level: Level,
    checkpoints: Checkpoints,
    cluster: ClusterMetadata | None,
    not_checked: list[str],
) -> Iterator[Finding]:
    """Find what a broker would have uploaded by now of a partition of a disk with a tier.

    Those are the segments before the active one that end at or below the high watermark and the first open
    transaction, as soon as ``remote.copy.lag.ms`` or ``remote.copy.lag.bytes`` (Kafka 4.4) has passed.
    """
    files = part.files
    if not isinstance(files, DiskWithTier) or files.tier is None or part.state:
        return
    topic_id = readable_topic_id(files, part.path)
    uploads = files.tier.by_partition.get((part.topic, part.partition, topic_id or ""), [])
    config = _config(part, cluster)
    if config is None and not uploads:
        not_checked.append(f"whether {part.name} should have been uploaded: its settings are not known")
        return
    if config is not None and (not config.remote_storage_enable or config.remote_log_copy_disable):
        return
    watermark = checkpoints.of(FileKind.HIGH_WATERMARKS, (part.topic, part.partition))
    if level < Level.INDEXES or watermark is None:
        why = "there is no high watermark of it here" if watermark is None else "--level indexes"
        not_checked.append(f"which segments of {part.name} should have been uploaded ({why})")
        return
    end = min([watermark, *taken.ongoing.values()])
    sealed = [(segment, report) for segment, report in zip(part.segments, taken.reports, strict=True)
              if files.slice_of(segment.path) is None and segment.next_base is not None]  # fmt: skip
    pairs = [pair for pair in sealed if (pair[0].next_base or 0) <= end]
    if config is not None:
        newer = {
            id(pair[0]): sum(s.size for s in part.segments if s.base_offset > pair[0].base_offset) for pair in pairs
        }
        pairs = [pair for pair in pairs if _is_due(pair, newer[id(pair[0])], config)]
    covered = list(_covered(part, uploads))
    reached = max((last for _, last in covered), default=0)
    for run in _runs([pair for pair in pairs if not _is_covered(pair[0], covered)]):
        yield _finding(part, run, reached)


def _config(part: Partition, cluster: ClusterMetadata | None) -> LogConfig | None:
    """Return the settings of a topic; None if they are not known."""
    fields = None if cluster is None else cluster.fields_of_topic(part.topic)
    try:
        return None if fields is None else LogConfig().with_changes(**fields)
    except PylogsegError:
        return None


def _is_due(pair: _Sealed, newer_bytes: int, config: LogConfig) -> bool:
    """Check whether a broker uploads a segment already: one of both lags is enough."""
    lag_ms, lag_bytes = int(config.remote_copy_lag_ms), int(config.remote_copy_lag_bytes)
    if not lag_ms or not lag_bytes:
        return True
    if lag_ms < 0:
        lag_ms = int(config.retention_ms if config.local_retention_ms == -2 else config.local_retention_ms)
    if lag_bytes < 0:
        lag_bytes = int(config.retention_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes)
    is_old = lag_ms >= 0 and time.time_ns() // 1_000_000 - pair[1].max_timestamp >= lag_ms
    return is_old or (lag_bytes >= 0 and newer_bytes >= lag_bytes)


def _covered(part: Partition, uploads: Sequence[Upload]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets of this log that were uploaded, half-open and ascending."""
    file = part.files.join(part.path, FileKind.LEADER_EPOCHS.value)
    try:
        epochs = parse_leader_epochs(part.files.read_all(file), file)
    except (CorruptionError, StorageError):
        epochs = []
    start = min((upload.segment.start_offset for upload in uploads), default=0)
    lineage = Lineage.of(epochs, start, _UNENDING) if epochs else None
    name = part.topic, part.partition, uploads[0].segment.topic_id if uploads else ""
    for piece in whole_log(name, uploads, lineage).segments:
        # What an upload with a damaged manifest has is not known; that it is damaged is a finding by itself.
        yield piece.first_offset, _UNENDING if isinstance(piece.upload, BrokenUpload) else piece.end_offset


def _is_covered(segment: Segment, covered: Sequence[tuple[int, int]]) -> bool:
    reached = segment.base_offset
    for first, end in covered:
        if first <= reached < end:
            reached = end
    return reached >= (segment.next_base or 0)


def _runs(pairs: Sequence[_Sealed]) -> Iterator[list[_Sealed]]:
    """Yield segments that follow each other."""
    run: list[_Sealed] = []
    for pair in pairs:
        if run and run[-1][0].next_base != pair[0].base_offset:
            yield run
            run = []
        run.append(pair)
    if run:
        yield run


def _finding(part: Partition, run: Sequence[_Sealed], reached: int) -> Finding:
    first, end = run[0][0].base_offset, run[-1][0].next_base or 0
    size, newest = sum(segment.size for segment, _ in run), max(report.max_timestamp for _, report in run)
    count = f"{len(run):,} sealed segment{' is' if len(run) == 1 else 's are'}"
    when = f", newest timestamp {newest}" if newest >= 0 else ""
    reason = f"{part.name}: {count} not in the tier ({offsets_text(first, end)}, {size:,} bytes{when})"
    if reached > end:
        reason += f"; it has offsets up to {reached - 1}, and a broker does not go back to upload those below"
    return Finding(run[0][0].path, "tier-unsent", False, reason, None, first, end - 1)
