"""Distribute rows to the writers of their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.offline.aligning import Numbers
from pylogseg.offline.restoring.partition import PartitionWriter, RestoreOptions
from pylogseg.reading.arrow.functions import kafka_partition
from pylogseg.transfer.staging import Staging, WrittenPart

#: Bytes of records that all writers of a task may hold.
_WAITING_BYTES = 64 << 20
#: The columns of a write, with their possible types.
COLUMNS = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "timestamp": ("timestamp", "bigint"),
    "timestampType": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write."""

    root: str  #: The folder for the partitions' folders.
    topic: str = ""  #: The topic of all rows; empty if there is a column.
    partitions: int = 0  #: Number of partitions of a topic, for rows without a partition; 0 if not given.
    restore: RestoreOptions = field(default_factory=RestoreOptions)


def write_rows(
    tables: Iterable[pa.RecordBatch], staging: Staging, task: str, options: WriteOptions
) -> list[WrittenPart]:
    """Write the rows of a task into the staging folder.

    Raises RequestError for rows that cannot be written; then nothing of the attempt counts.
    """
    rows = _RowWriter(staging.attempt_folder(task), options)
    try:
        for table in tables:
            rows.write(table)
        return [writer.close() for writer in rows.writers.values()]
    except BaseException:
        for writer in rows.writers.values():
            writer.abandon()
        raise


class _RowWriter:
    """The writers of one task."""

    def __init__(self, folder: str, options: WriteOptions) -> None:
        self._folder, self._options = folder, options
        self._storage = LocalStorage()
        self._without_key = 0
        self.writers: dict[tuple[str, int], PartitionWriter] = {}

    def write(self, table: pa.RecordBatch) -> None:
        if not table.num_rows:
            return
        topics, codes = self._topics(table)
        numbers = self._partitions(table)
        records = table.select([name for name in table.schema.names if name in COLUMNS])
        which = codes * (1 << 32) + numbers
        changes = np.flatnonzero(np.diff(which)) + 1
        if len(changes) >= 4 * len(np.unique(which)):  # rows of many partitions, interleaved
            order = np.argsort(which, kind="stable")
            records, which = records.take(pa.array(order)), which[order]
            changes = np.flatnonzero(np.diff(which)) + 1
        bounds = [0, *changes.tolist(), len(which)]
        for first, end in pairwise(bounds):
            topic, number = topics[int(which[first]) >> 32], int(which[first]) & 0xFFFFFFFF
            self._writer(topic, number).write(records.slice(first, end - first))
        self._flush_some()

    def _topics(self, table: pa.RecordBatch) -> tuple[list[str], Numbers]:
        if self._options.topic:
            return [self._options.topic], np.zeros(table.num_rows, np.int64)
        column = table.column("topic")
        if column.null_count:
            raise RequestError('a topic is null: set option("topic", "orders") for all rows')
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _partitions(self, table: pa.RecordBatch) -> Numbers:
        """Return the partition of each row: from the column, then the key as in Kafka's producer; otherwise any."""
        count = table.num_rows
        given = table.column("partition") if "partition" in table.schema.names else pa.nulls(count, pa.int32())
        numbers: Numbers = given.fill_null(-1).to_numpy().astype(np.int64)
        if (numbers[given.is_valid().to_numpy(zero_copy_only=False)] < 0).any():
            raise RequestError(f"partition {int(numbers.min())} is negative")
        open_ = numbers < 0
        if not open_.any():
            return numbers
        partitions = self._options.partitions
        if not partitions:
            raise RequestError('a partition is null: set option("partitions", 12), the number of partitions')
        keys = table.column("key") if "key" in table.schema.names else pa.nulls(count, pa.binary())
        hashed = kafka_partition(keys, partitions).fill_null(-1).to_numpy().astype(np.int64)
        numbers[open_] = hashed[open_]
        anywhere = np.flatnonzero(numbers < 0)
        numbers[anywhere] = (self._without_key + np.arange(len(anywhere))) % partitions
        self._without_key += len(anywhere)
        return numbers

    def _writer(self, topic: str, number: int) -> PartitionWriter:
        found = self.writers.get((topic, number))
        if found is None:
            found = PartitionWriter(self._storage, self._folder, topic, number, self._options.restore)
            self.writers[topic, number] = found
        return found

    def _flush_some(self) -> None:
        """Flush the writers that hold the most bytes, until all together hold few."""
        waiting = sum(writer.waiting_bytes for writer in self.writers.values())
        if waiting > _WAITING_BYTES:
            for writer in sorted(self.writers.values(), key=lambda writer: -writer.waiting_bytes):
                waiting -= writer.waiting_bytes
                writer.flush()
                if waiting <= _WAITING_BYTES // 2:
                    break
