"""Sealed segments of a broker's disk that its tier should have, and has not."""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Iterator, Sequence

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Partition, Segment
from pylogseg.disk.tier.joined import DiskWithTier
from pylogseg.disk.tier.slices import TieredLog
from pylogseg.disk.tier.uploads import BrokenUpload
from pylogseg.errors import PylogsegError
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.inspect.verify.missing import Checkpoints
from pylogseg.inspect.verify.partition import Reports
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.values.internal.cluster import ClusterMetadata
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
    """Find segments of a tiered partition that a broker would have uploaded by now.

    Those are the segments before the active one that end at or below the high watermark and the first open
    transaction, as soon as ``remote.copy.lag.ms`` or ``remote.copy.lag.bytes`` (Kafka 4.4) has passed.
    """
    files = part.files
    if not isinstance(files, DiskWithTier) or files.tier is None or part.state or part.error is not None:
        return
    log = files.uploaded_log(part.path)
    config = _config(part, cluster)
    if config is None and log is None:
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
        sizes = itertools.accumulate((segment.size for segment in reversed(part.segments)), initial=0)
        newer = {segment.base_offset: size for segment, size in zip(reversed(part.segments), sizes, strict=False)}
        pairs = [pair for pair in pairs if _is_due(pair, newer[pair[0].base_offset], config)]
    covered = _list_uploaded(log)
    reached = max((last for _, last in covered), default=0)
    for run in _runs([pair for pair in pairs if not _is_covered(pair[0], covered)]):
        yield _finding(part, run, reached)


def _config(part: Partition, cluster: ClusterMetadata | None) -> LogConfig | None:
    """Return the settings of a topic; None if unknown."""
    is_known = cluster is not None and not cluster.refused_settings(part.topic)
    fields = cluster.fields_of_topic(part.topic) if cluster is not None and is_known else None
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


def _list_uploaded(log: TieredLog | None) -> list[tuple[int, int]]:
    """Return the ranges of offsets of a log that were uploaded, half-open and ascending, with others in between."""
    covered: list[tuple[int, int]] = []
    for piece in [] if log is None else log.segments:
        # What an upload with a damaged manifest has is not known; that it is damaged is a finding by itself.
        end = _UNENDING if isinstance(piece.upload, BrokenUpload) else piece.end_offset
        if covered and piece.first_offset <= covered[-1][1]:
            covered[-1] = covered[-1][0], max(covered[-1][1], end)
        else:
            covered.append((piece.first_offset, end))
    return covered


def _is_covered(segment: Segment, covered: Sequence[tuple[int, int]]) -> bool:
    place = bisect.bisect_right(covered, segment.base_offset, key=lambda each: each[0]) - 1
    return place >= 0 and covered[place][1] >= (segment.next_base or 0)


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
        reason += f"; it has offsets up to {reached - 1}, and a broker never uploads lower ones later"
    return Finding(run[0][0].path, "tier-unsent", False, reason, None, first, end - 1)
