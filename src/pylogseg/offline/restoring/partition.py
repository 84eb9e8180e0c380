"""Write one new partition from tables of records: segments with indexes, leader epochs, `partition.metadata`.

The records are appended to a `Log`, like those that a replica fetches: it rolls, indexes and keeps leader epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError
from pylogseg.format.batches import scan
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.names import partition_folder_name
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.arrow.inputs import timestamps_ms
from pylogseg.transfer.checked import cut_pieces, piece_bytes
from pylogseg.transfer.staging import WrittenPart

#: Bytes of records that are encoded and appended at once.
_PIECE_BYTES = 4 << 20
#: Bytes of batches that are appended in one call.
_APPEND_BYTES = 512 << 10
_FOR_EVER_MS = 2**63 - 1
_APPEND_TIME = 1


class TableKeywords(TypedDict, total=False):
    """Keywords of `restore` for records of a table: fields of `RestoreOptions`, and rules for transactions."""

    committed: bool
    without_transactions: bool
    compression: str
    batch_bytes: int
    segment_bytes: int


@dataclass(frozen=True)
class RestoreOptions:
    """Options for writing partitions.

    Attributes
    ----------
    offsets : {"keep", "assign"}
        True if records keep their ascending offsets; False if they are numbered from `base_offset` on.
    base_offset : int
        Offset of the first record, if offsets are assigned.
    compression : str
        Codec of the batches, as `pylogseg.encode` takes it.
    batch_bytes : int
        The most bytes of a batch before compression.
    segment_bytes : int
        A segment is full at this size.
    timestamp_type : {"keep", "create", "append"}
        The timestamp type of the batches: ``keep`` uses the column ``timestampType`` (``create`` without one).
    leader_epoch : int
        WrittenPart into all batches.
    topic_ids : mapping of str to str
        Topic ids of the target cluster, 22 characters each, for `partition.metadata`.
    """

    offsets: Literal["keep", "assign"] = "keep"
    base_offset: int = 0
    compression: str = "none"
    batch_bytes: int = 16384
    segment_bytes: int = 1 << 30
    timestamp_type: Literal["keep", "create", "append"] = "keep"
    leader_epoch: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.offsets not in ("keep", "assign"):
            raise RequestError(f"invalid offsets {self.offsets!r}; expected 'keep' or 'assign'")
        if self.timestamp_type not in ("keep", "create", "append"):
            raise RequestError(f"invalid timestampType {self.timestamp_type!r}; expected 'keep', 'create' or 'append'")
        if self.compression not in CODEC_NAMES:
            raise RequestError(f"unknown compression {self.compression!r}; expected one of {', '.join(CODEC_NAMES)}")
        if not 1 <= self.batch_bytes <= self.segment_bytes:
            raise RequestError(
                f"a batch of {self.batch_bytes} bytes must fit in a segment of {self.segment_bytes}: "
                "batchBytes is at least 1 and at most segmentBytes"
            )
        if self.base_offset < 0 or self.leader_epoch < 0:
            raise RequestError(f"offsets and epochs begin at 0, not {self.base_offset} and {self.leader_epoch}")


class PartitionWriter:
    """Takes the records of one partition in their order."""

    def __init__(self, storage: Storage, parent: str, topic: str, partition: int, options: RestoreOptions) -> None:
        self._storage, self._options = storage, options
        self.topic, self.partition = topic, partition
        self.folder = storage.join(parent, partition_folder_name(topic, partition))
        self._log: Log | None = None
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0  #: Of the records that wait for `flush`.
        self._next = options.base_offset
        self._records = 0
        self._max_timestamp = -1

    def write(self, table: pa.RecordBatch) -> None:
        """Take records.

        Raises RequestError for offsets that do not ascend, and for a timestamp that is null; the error names the first.
        """
        self._check_times(table)
        if self._options.offsets == "keep":
            self._check_offsets(table)
        self._waiting.append(table)
        self.waiting_bytes += table.nbytes
        if self.waiting_bytes >= _PIECE_BYTES:
            self.flush()

    def _check_times(self, table: pa.RecordBatch) -> None:
        """Refuse a null: readers give it for a timestamp that their column cannot hold."""
        if "timestamp" not in table.schema.names or not table.column("timestamp").null_count:
            return
        row = int(np.flatnonzero(table.column("timestamp").is_null())[0])
        has_offset = "offset" in table.schema.names
        where = f"offset {table.column('offset')[row]}" if has_offset else f"row {row} of {table.num_rows}"
        raise RequestError(
            f"{self.topic}-{self.partition}, {where}: its timestamp is null. If it did not fit the column, take "
            "milliseconds as whole numbers instead. For a record without a timestamp, write -1 ms"
        )

    def _check_offsets(self, table: pa.RecordBatch) -> None:
        if "offset" not in table.schema.names:
            raise RequestError(
                f"{self.topic}-{self.partition}: there is no column 'offset' to keep; use offsets=assign for new ones"
            )
        column = table.column("offset")
        if column.null_count:
            raise RequestError(f"{self.topic}-{self.partition}: an offset is null; use offsets=assign for new ones")
        offsets = column.to_numpy()
        before = np.concatenate(([self._next - 1], offsets[:-1]))
        bad = np.flatnonzero(offsets <= before)
        if len(bad):
            at = int(bad[0])
            raise RequestError(
                f"{self.topic}-{self.partition}: offset {offsets[at]} comes after {before[at]}; offsets must ascend: "
                "sort by topic, partition and offset within partitions, or use offsets=assign"
            )
        if len(offsets):
            self._next = int(offsets[-1]) + 1

    def flush(self) -> None:
        """Encode and append the waiting records."""
        if self._waiting:
            for part, is_append_time in self._by_time_type(pa.Table.from_batches(self._waiting)):
                self._append(part, is_append_time)
        self._waiting, self.waiting_bytes = [], 0

    def _by_time_type(self, table: pa.Table) -> list[tuple[pa.Table, bool]]:
        """Cut records into ranges that may share batches: with the broker's time, a batch has one timestamp."""
        times, count = timestamps_ms(table), table.num_rows
        by_broker = has_append_time(table, times, self._options.timestamp_type)
        if not by_broker.any():
            return [(table, False)]
        changes = (np.diff(by_broker.astype(np.int8)) != 0) | (by_broker[1:] & (np.diff(times) != 0))
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
        return [
            (table.slice(first, end - first), bool(by_broker[first])) for first, end in pairwise(bounds) if end > first
        ]

    def _append(self, table: pa.Table, is_append_time: bool) -> None:
        options = self._options
        keep = options.offsets == "keep"
        first = int(table.column("offset")[0].as_py()) if keep else self._next
        append_time = int(timestamps_ms(table.slice(0, 1))[0]) if is_append_time else -1
        data = encode(
            table,
            compression=options.compression,
            batch_bytes=options.batch_bytes,
            base_offset=None if keep else first,
            leader_epoch=options.leader_epoch,
            timestamp_type="append" if is_append_time else "create",
            append_time_ms=append_time if is_append_time else None,
        )
        if not keep:
            self._next += table.num_rows
        self._records += table.num_rows
        log = self._open_log(first)
        rows = scan(data, crc=False).batches
        self._max_timestamp = max(self._max_timestamp, int(rows.max_timestamp.max()))
        for piece in cut_pieces(rows, min(_APPEND_BYTES, options.segment_bytes)):
            log.append_as_follower(piece_bytes(piece, data, 0), options.leader_epoch)

    def _open_log(self, first_offset: int) -> Log:
        if self._log is None:
            options = self._options
            # Roll by size only: by time, old records would make a segment for each week.
            config = LogConfig.of(segment_bytes=options.segment_bytes, segment_ms=_FOR_EVER_MS)
            self._log = Log.open(
                # After a roll, flush at once.
                Environment(self._storage, SystemClock(), CollectingScheduler()),
                self.folder,
                config,
                Start(clean=True, log_start_offset=first_offset),
                topic_id=options.topic_ids.get(self.topic),
            )
        return self._log

    def close(self) -> WrittenPart:
        """Write the waiting records, force all files to the disk, and return a summary.

        Raises RequestError if there was no record.
        """
        self.flush()
        log = self._log
        if log is None:
            raise RequestError(f"{self.topic}-{self.partition}: there are no records")
        log.flush()
        log.close()
        self._storage.sync_folder(self.folder)
        segments = list(log.segments)
        return WrittenPart(
            self.topic,
            self.partition,
            self.folder,
            log.log_start_offset,
            log.log_end_offset,
            self._records,
            len(segments),
            sum(segment.size for segment in segments),
            self._max_timestamp,
        )

    def abandon(self) -> None:
        """Close the files as they are, without writing."""
        if self._log is not None:
            self._log.close_handles()


def has_append_time(table: pa.Table, times: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the records that are written with the broker's time, under `RestoreOptions.timestamp_type`.

    An unknown broker's time counts as no timestamp.
    """
    has_time: npt.NDArray[np.bool_] = times != -1
    if kind == "append":
        return has_time
    if kind == "create" or "timestampType" not in table.schema.names:
        return np.zeros(table.num_rows, np.bool_)
    mask: npt.NDArray[np.bool_] = table.column("timestampType").fill_null(0).to_numpy() == _APPEND_TIME
    return mask & has_time
