"""Select the partitions of a read, and the start and end offset in each."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from pylogseg.disk.disk import Partition, Segment
from pylogseg.disk.listing import open_dir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.codec_error import with_option
from pylogseg.format.names import FileKind, TopicPartition
from pylogseg.reading import scan
from pylogseg.reading.known_losses import NotedEnd, known_losses, noted_ends
from pylogseg.reading.logs import check_once, log_of
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.ranges import Extent, is_all_damage
from pylogseg.reading.seek import LogEnd, late_segments
from pylogseg.spark.options import EARLIEST, LATEST, Bound, SourceOptions

#: Topics that a pattern never matches, as in the Kafka source.
_INTERNAL = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"])
_NO_SUCH_TIME = -1

_log = logging.getLogger("pylogseg.spark")


def find_logs(paths: Sequence[str], options: SourceOptions) -> list[Partition]:
    """Return the partitions under paths that the options select, by topic and number; named ones must exist."""
    how: dict[str, Any] = {"storage_options": options.storage_options, "tier": options.tier}
    disk = open_dir(paths, memory_map=options.memory_map, **how)
    logs = [log for log in disk.partitions if not log.state] or list(disk.partitions)
    logs += [_of_file(segment) for segment in disk.loose]
    chosen = _chosen(logs, options)
    check_once(chosen)
    for log in chosen:
        if log.error is not None:
            raise StorageError(log.error.path, log.error.operation, log.error.reason, log.error.errno)
    if not options.include_active:
        return [replace(log, segments=log.segments[:-1]) for log in chosen]
    return chosen


def _of_file(segment: Segment) -> Partition:
    """Return a file that was named by itself as a log of its own."""
    folder = segment.files.split(segment.path)[0]
    return Partition(segment.files, segment.topic, segment.partition, folder, "", (segment,), (), segment.base_offset)


def _chosen(logs: list[Partition], options: SourceOptions) -> list[Partition]:
    if options.topics:
        _require({log.topic for log in logs}, options.topics, "subscribe")
        topics = set(options.topics)
        return [log for log in logs if log.topic in topics]
    if options.assigned:
        names = {(log.topic, log.partition): f"{log.topic}-{log.partition}" for log in logs}
        _require(set(names.values()), [f"{topic}-{number}" for topic, number in options.assigned], "assign")
        assigned = set(options.assigned)
        return [log for log in logs if (log.topic, log.partition) in assigned]
    if options.pattern:
        pattern = re.compile(options.pattern)
        return [log for log in logs if pattern.search(log.topic) and log.topic not in _INTERNAL]
    return logs


def _require(there: set[str], names: Iterable[str], option: str) -> None:
    missing = [name for name in names if name not in there]
    if missing:
        names_there = sorted(there)
        more = f" and {len(names_there) - 12} more" if len(names_there) > 12 else ""
        raise RequestError(
            f"{option}: no {', '.join(missing)} here; there are: {', '.join(names_there[:12]) or 'none'}{more}"
        )


def plan_extents(logs: Sequence[Partition], options: SourceOptions) -> list[Extent]:
    """Return the range of offsets of a batch read for each log; empty ones are left out.

    Raises RequestError for bounds that do not name the partitions that are read, and with ``failOnDataLoss`` for those
    outside a log, and for known losses.
    """
    keys = [(log.topic, log.partition) for log in logs]
    check_named(options.starting, keys, "starting")
    check_named(options.ending, keys, "ending")
    extents: list[Extent] = []
    noted = noted_ends(logs) if options.include_active else {}  # without the active segment a log ends earlier
    for log in logs:
        ends = LogEnds(log, options)
        first, end = ends.start(options.starting), ends.end(options.ending)
        ends.check_losses(noted.get(log.path), first, end)
        if first > end:
            raise RequestError(f"{ends.name} ({log.path}) would start at {first}, after its end {end}")
        first = max(first, ends.earliest)
        if first < end or is_all_damage(log.segments, end):
            extents.append(Extent(log, first, end))
    return extents


def check_named(bound: Bound, keys: Sequence[TopicPartition], which: Literal["starting", "ending"]) -> None:
    """Raise RequestError unless a bound without a default names the partitions that are read, and no other."""
    if bound.default is not None:
        return
    missing, odd = sorted(set(keys) - set(bound.of)), sorted(set(bound.of) - set(keys))
    if missing or odd:
        unnamed = f"; it does not name {_names(missing)}" if missing else ""
        unread = f"; it names {_names(odd)}, which is not read" if odd else ""
        option, numbers = f"{which}Offsets", " (-1 is latest, -2 earliest)"
        if bound.kind == "time":
            option, numbers = f"{option}ByTimestamp", ""
        raise RequestError(f"{option} must name every partition that is read{numbers}{unnamed}{unread}")


def _names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in keys)


class LogEnds:
    """Resolves the bounds of a read in one log. It looks for the end of the log once, and only if needed."""

    def __init__(self, log: Partition, options: SourceOptions) -> None:
        self._log, self._options = log, options
        self._end: LogEnd | None = None

    @property
    def name(self) -> str:
        return f"{self._log.topic}-{self._log.partition}"

    @property
    def earliest(self) -> int:
        return self._log.log_start_offset

    @property
    def latest(self) -> int:
        """Offset after the last record that a consumer would get."""
        return max(self._found_end.offset, self.earliest)

    @property
    def _found_end(self) -> LogEnd:
        if self._end is None:
            self._end = latest_end(self._log, self._options)
        return self._end

    def start(self, bound: Bound) -> int:
        """Return the first offset; without ``failOnDataLoss`` also if it is outside the log."""
        asked = bound.of.get((self._log.topic, self._log.partition), bound.default)
        assert asked is not None
        if bound.kind == "time":
            offset = self._at(asked)
            if offset != _NO_SUCH_TIME:
                return offset
            if self._options.no_match_is_latest:
                return self.latest
            raise RequestError(
                f"{self.name}: found no record with a timestamp of {asked} or later "
                "(startingOffsetsByTimestampStrategy=latest starts at the end)"
            )
        if asked in (EARLIEST, LATEST):
            return self.earliest if asked == EARLIEST else self.latest
        if asked < self.earliest:
            self._report_loss(f"starts at {self.earliest}, records from {asked} on are gone")
        elif asked > self.latest:
            self._report_loss(f"ends at {self.latest}, before the start {asked}")
        return asked

    def end(self, bound: Bound) -> int:
        """Return the offset after the last one."""
        asked = bound.of.get((self._log.topic, self._log.partition), bound.default)
        assert asked is not None
        if bound.kind == "time":
            offset = self._at(asked)
            if offset == _NO_SUCH_TIME:
                self._check_tail()
                return self.latest
            return offset
        if asked == LATEST:
            self._check_tail()
            return self.latest
        if asked > self.latest:
            self._report_loss(f"ends at {self.latest}, before the requested end {asked}")
        return min(asked, self.latest)

    def _check_tail(self) -> None:
        """Check for damage after the last good batch, which is not in any range of the plan."""
        raise_for_tail(self._log, self._found_end, self._options)

    def _at(self, timestamp_ms: int) -> int:
        """Return the first offset at or after a time, as a broker does, of records that a consumer would get.

        A broker looks into one segment. If only later ones have such records, as after a cleaning, warn that they are
        not found.
        """
        late = late_segments(self._log.segments, timestamp_ms, self.earliest)
        offset = next(late, None)
        if offset is not None:
            return offset if offset < self.latest else _NO_SUCH_TIME
        later = next((offset for offset in late if offset is not None and offset < self.latest), None)
        if later is not None:
            _log.warning(
                "%s (%s): no offset for time %d, though record %d is as late: like a broker's, the look-up ends in the "
                "first segment that had such records before a cleaning; a filter on the column timestamp finds all",
                self.name, self._log.path, timestamp_ms, later,
            )  # fmt: skip
        return _NO_SUCH_TIME

    def check_losses(self, noted: NotedEnd | None, first: int, end: int) -> None:
        """Report the known losses from an offset on, up to an end or behind the last record."""
        if noted is not None and noted.offset <= self.latest:
            noted = None
        stop = OPEN_END if end >= self.latest else end
        for loss in known_losses(self._log.path, self._log.segments, self.earliest, noted, first, stop):
            self._report_loss(f"has lost records: {loss}")

    def _report_loss(self, what: str) -> None:
        message = f"{self.name} ({self._log.path}) {what}"
        if self._options.fail_on_data_loss:
            raise RequestError(f"{message}; failOnDataLoss=false reads the rest")
        _log.warning("%s", message)


def raise_for_tail(log: Partition, end: LogEnd, options: SourceOptions) -> None:
    """Raise CorruptionError for damage that a reader of the whole log finds at the end.

    The end is after the last good batch or, with ``read_committed``, before the first one of an open transaction.
    """
    if options.reading.on_corrupt != "raise" or options.at_high_watermark:
        return
    with naming_option():
        scan.check_tail(log_of(log), end, options.reading.start())


@contextlib.contextmanager
def naming_option() -> Iterator[None]:
    """Let the remedies in errors name the options of Spark."""
    try:
        yield
    except CorruptionError as error:
        reason = error.reason.replace('on_corrupt="skip"', "onCorrupt=skip").replace('"stop" ends', "stop ends")
        reason = reason.replace("on_undecoded='raw'", "onUndecoded=raw").replace("'skip' leaves", "skip leaves")
        reason = with_option(reason, "maxDecompressedBytes")
        raise CorruptionError(error.path, error.position, reason, error.offset) from error


def latest_end(log: Partition, options: SourceOptions) -> LogEnd:
    """Return where a consumer would stop: end of the log, high watermark, or last stable offset.

    For ``read_committed`` the headers after the newest producer snapshot are read.
    """
    skips = options.reading.on_corrupt == "skip"
    reach = scan.consumer_end(log_of(log), options.reading.isolation_level, skips=skips)
    if not options.at_high_watermark:
        return reach
    end = min(reach.offset, _high_watermark(log))
    return LogEnd(end, reach.is_at_file_end and end == reach.offset)


def _high_watermark(log: Partition) -> int:
    """Return the high watermark; raise an error if the checkpoint lost its entry, as nothing would be read."""
    noted = OffsetCheckpoints(log.files, log.files.split(log.path)[0])
    file = noted.file(FileKind.HIGH_WATERMARKS)
    if why := noted.why_no_high_watermark(log.topic, log.partition):
        raise file.error or CorruptionError(file.path, 0, f"the high watermark of {log.name} is not known: {why}")
    if not file.is_read:
        raise StorageError(file.path, "read", file.problem)
    return noted.offsets(FileKind.HIGH_WATERMARKS).get((log.topic, log.partition), 0)
