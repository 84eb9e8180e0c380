"""The streaming reader: offsets by topic and partition, as the Kafka source writes them into a checkpoint."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pylogseg.disk.disk import Partition
from pylogseg.errors import RequestError
from pylogseg.format.names import TopicPartition
from pylogseg.reading.known_losses import known_losses, noted_ends
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.ranges import Extent
from pylogseg.spark._compat import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pylogseg.spark.logs import LogEnds, check_named, find_logs, latest_end, raise_for_tail
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import tasks_of
from pylogseg.spark.task import read_task
from pylogseg.spark.typed import with_new_schemas
from pylogseg.spark.worker import freeze_modules
from pylogseg.values.decoding import TypedBatches

#: ``{"orders": {"0": 23}}``: only the next offset to read, so that a checkpoint also fits the Kafka source.
StreamOffsets = dict[str, dict[str, int]]

#: The state of a log that was not looked at yet; that of one without a segment is None.
_UNKNOWN = object()

_log = logging.getLogger("pylogseg.spark")


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads appended records. One process holds it while the query runs; its copies in executors read.

    `warns`: a new query says that it begins at the end of the logs, which a table does not let expect.
    """

    def __init__(
        self,
        paths: list[str],
        options: SourceOptions,
        columns: tuple[str, ...],
        typed: TypedBatches | None = None,
        *,
        warns: bool = False,
    ) -> None:
        self._warns = warns
        self._paths, self._options, self._columns, self._typed = paths, options, columns, typed
        self._latest: dict[TopicPartition, tuple[Any, int]] = {}
        #: The end of the query with Trigger.AvailableNow.
        self._target: dict[TopicPartition, int] | None = None
        self._reached: dict[TopicPartition, int] | None = None
        self._last_batch = -math.inf

    def initialOffset(self) -> StreamOffsets:
        """Return the start of a query without a checkpoint."""
        logs = find_logs(self._paths, self._options)
        check_named(self._options.starting, [(log.topic, log.partition) for log in logs], "starting")
        starts = {(log.topic, log.partition): LogEnds(log, self._options).start(self._options.starting) for log in logs}
        self._reached = starts
        if self._warns:
            _log.warning(
                "%s: a stream of a table begins at the end of the logs, as one of Kafka's source does; to read what "
                "there is, name the option startingOffsets='earliest' in the query or in the table",
                ", ".join(self._paths),
            )
        return as_offsets(starts)

    def latestOffset(self, start: StreamOffsets | None = None, limit: Any = None) -> StreamOffsets:
        """Return the end of the next batch: the ends of the logs, reduced by the limits.

        Spark before 4.2 passes neither: the batch begins at the end of the last one, and the limit is of the options.
        """
        logs = {(log.topic, log.partition): log for log in find_logs(self._paths, self._options)}
        latest = self._ends_of(logs)
        self._latest = {key: self._latest[key] for key in logs}  # a deleted log has no end, and no lag
        if self._target is not None:
            latest = {key: self._target[key] for key in latest if key in self._target}
        begun = of_offsets(start) if start is not None else self._reached
        if begun is None:
            return as_offsets(latest)
        first = {key: begun.get(key, logs[key].log_start_offset) for key in latest}
        if not isinstance(limit, ReadAllAvailable):
            if self._waits(sum(max(0, end - first[key]) for key, end in latest.items())):
                return as_offsets(begun)
            latest = limit_ends(first, latest, self._options.max_offsets)
        return as_offsets(latest)

    def _waits(self, count: int) -> bool:
        """Check whether to wait for more offsets, ``maxTriggerDelay`` at most."""
        now = time.monotonic()
        if (
            count < self._options.min_offsets
            and self._target is None
            and now - self._last_batch < self._options.max_delay_seconds
        ):
            return True
        self._last_batch = now
        return False

    def _ends_of(self, logs: Mapping[TopicPartition, Partition]) -> dict[TopicPartition, int]:
        """Return the ends of logs; one is only searched again after a change of the last file.

        An end below what checkpoints note is a loss, unless a broker writes to the log.
        """
        states = {key: _state_of(log) for key, log in logs.items()}
        is_moving = self._options.at_high_watermark
        changed = {k: log for k, log in logs.items() if is_moving or self._latest.get(k, (_UNKNOWN,))[0] != states[k]}
        noted = noted_ends(changed.values()) if self._options.include_active else {}
        for key, log in changed.items():
            end = latest_end(log, self._options)
            raise_for_tail(log, end, self._options)
            losses = known_losses(
                log.path, log.segments, log.log_start_offset, noted.get(log.path), end.offset, OPEN_END
            )
            for loss in losses:
                self._report_loss(f"{log.name} ({log.path}) has lost records: {loss}")
            self._latest[key] = (states[key], max(end.offset, log.log_start_offset))
        return {key: self._latest[key][1] for key in logs}

    def getDefaultReadLimit(self) -> Any:
        """Return a limit of the options. Spark has no limit that is both, so `latestOffset` applies both."""
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        return ReadMinRows(self._options.min_offsets) if self._options.min_offsets else ReadAllAvailable()

    def reportLatestOffset(self) -> StreamOffsets | None:
        """Return the ends of the logs, for the progress of the query."""
        return as_offsets({key: end for key, (_, end) in self._latest.items()}) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the ends of the logs: later records are left to the next run."""
        logs = find_logs(self._paths, self._options)
        self._target = self._ends_of({(log.topic, log.partition): log for log in logs})

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        """Return the tasks of a batch; planned again, it has the same rows.

        With `failOnDataLoss`, records that are gone are a `RequestError` that names both offsets.
        """
        first, last = of_offsets(start), of_offsets(end)
        self._reached = last
        logs = {(log.topic, log.partition): log for log in find_logs(self._paths, self._options)}
        for topic, partition in sorted(first.keys() - last.keys()):
            self._report_loss(f"{topic}-{partition} is gone, it was read up to offset {first[topic, partition]}")
        extents = []
        for key, stop in last.items():
            log = logs.get(key)
            if log is None:
                self._report_loss(f"{key[0]}-{key[1]} is gone, it was to be read up to offset {stop}")
                continue
            begin = self._begin(log, first.get(key), stop)
            if begin < stop:
                for loss in known_losses(log.path, log.segments, log.log_start_offset, None, begin, stop):
                    self._report_loss(f"{log.name} ({log.path}) has lost records: {loss}")
                extents.append(Extent(log, begin, stop))
        return [InputPartition(task) for task in tasks_of(extents, self._options)]

    def _begin(self, log: Partition, asked: int | None, stop: int) -> int:
        """Return the first offset of a log that a batch reads."""
        name, earliest = f"{log.topic}-{log.partition}", log.log_start_offset
        if asked is None:
            if earliest > 0:
                self._report_loss(f"{name} is new and starts at {earliest}: records before that were not read")
            return earliest
        if stop < asked:
            self._report_loss(f"{name} ends at {stop} and was read up to {asked}: truncated, or created again")
        elif asked < earliest < stop:
            self._report_loss(f"{name} starts at {earliest}, records from {asked} on were not read yet")
        elif asked < stop <= earliest:
            self._report_loss(f"{name} starts at {earliest}, records from {asked} to {stop - 1} were not read yet")
        return max(asked, earliest)

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise RequestError(f"{what}; failOnDataLoss=false continues with the rest")
        _log.warning("%s", what)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        typed = with_new_schemas(self._typed, self._paths, self._options)
        yield from read_task(partition.value or (), self._options, self._columns, typed)
        freeze_modules()


def _state_of(log: Partition) -> Any:
    last = log.segments[-1] if log.segments else None
    return None if last is None else (last.path, last.size, last.modified_ms)


def as_offsets(found: Mapping[TopicPartition, int]) -> StreamOffsets:
    """Return offsets in the form of a checkpoint, sorted: Spark compares them as text."""
    offsets: StreamOffsets = {}
    for topic, partition in sorted(found):
        offsets.setdefault(topic, {})[str(partition)] = found[topic, partition]
    return offsets


def of_offsets(offsets: StreamOffsets) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): next for topic, of in offsets.items() for partition, next in of.items()}


def limit_ends(
    first: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about so many offsets (0: all), shared in proportion to the remaining offsets.

    A share below one counts as one, so that no partition starves.
    """
    left = {key: end - first[key] for key, end in latest.items() if end > first[key]}
    total = sum(left.values())
    if not most or total <= most:
        return dict(latest)
    ends = dict(latest)
    for key, count in left.items():
        share = most * (count / total)  # in this order, to end at the same offsets as the Kafka source
        ends[key] = min(latest[key], first[key] + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends
