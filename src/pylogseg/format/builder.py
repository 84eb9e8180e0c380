"""Record batches from columns: the division of records into batches, the bytes of records and headers, CRCs.

`build` distributes records over batches as a producer does; `rebuild` writes batches whose bounds are given, as
compaction does. Rules: `docs/format.md`, "Record batch header, magic 2", "Message, magic 0" and "Message, magic 1".
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from pylogseg._native import _encoder
from pylogseg._native._encoder import Columns
from pylogseg.errors import RequestError
from pylogseg.format.batch_head import LEAST_BATCH_BYTES
from pylogseg.format.batches import BATCH_DTYPE, BatchTable, joined_rows
from pylogseg.format.codecs import CODEC_NAMES, CODECS
from pylogseg.format.records import RecordColumns

Rows = npt.NDArray[Any]
#: The level of all codecs, or of each by its number; None, or a number that is not there, is the codec's default.
Levels = int | Mapping[int, int] | None

LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CODEC_MASK = 0x07

#: What the statuses of the encoder mean (`_native/kernels/record_write.pxd`).
REASONS = (
    "",
    "its key, value or headers lie outside of their buffer",
    "a header has no name, or its headers are malformed",
    "",
    "its offset is negative, or not above the previous record's",
    "its offset is too far from the base offset of its batch, or above the last offset",
    "it makes a batch larger than 2^31 - 1 bytes",
    "messages of magic 0 and 1 have no headers",
    "a batch has no records, more than there are, or an impossible range of offsets; or records are left over",
)

# Records of so many bytes are laid out at once before they are compressed: what more there is leaves the nearer caches,
# and less takes more changes between encoder and codec.
_SCRATCH_BYTES = 1 << 20

_ROOM = 9  # the kernel's status for an output that is too short


def codec_number(compression: str | int) -> int:
    if isinstance(compression, str) and compression in CODEC_NAMES:
        return CODEC_NAMES.index(compression)
    if isinstance(compression, int) and 0 <= compression < len(CODEC_NAMES):
        return compression
    raise RequestError(f"unknown compression {compression!r}: one of {', '.join(CODEC_NAMES)}")


class BatchKeywords(TypedDict, total=False):
    """The fields of batches as keywords of `encode`."""

    magic: int
    leader_epoch: int
    append_time_ms: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    delete_horizon_ms: int | None


def shared_row(
    *,
    magic: int = 2,
    compression: str | int = "none",
    leader_epoch: int = -1,
    append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
) -> Rows:
    """Return a batch row with the fields that all batches of one call share, checked by the rules of the format.

    Raises RequestError for what no batch may have: zstd, producers or epochs below magic 2, a transaction without a
    producer, a producer without epoch or sequence, a number that its field cannot hold.
    """
    codec = codec_number(compression)
    if magic not in (0, 1, 2):
        raise RequestError(f"unknown magic {magic}: expected 0, 1 or 2")
    if magic < 2:
        _check_legacy(
            magic, codec, leader_epoch, producer_id, base_sequence, transactional or control, delete_horizon_ms
        )
    if magic == 0 and append_time_ms is not None:
        raise RequestError("magic 0 has no timestamps, so no append time")
    if transactional and producer_id == -1:
        raise RequestError("a transactional batch needs a producer id")
    if producer_id != -1 and (producer_epoch < 0 or (base_sequence < 0 and not control)):
        raise RequestError(
            f"producer {producer_id} needs an epoch and a base sequence, not {producer_epoch} and {base_sequence}"
        )
    row = np.zeros(1, BATCH_DTYPE)
    flags = (append_time_ms is not None, transactional, control, delete_horizon_ms is not None)
    bits = (LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON)
    row["magic"] = magic
    row["attributes"] = codec | sum(bit for bit, flag in zip(bits, flags, strict=True) if flag)
    fields = {
        "leader_epoch": (leader_epoch, -1),
        "producer_id": (producer_id, -1),
        "producer_epoch": (producer_epoch, -1),
        "base_sequence": (base_sequence, -1),
        "max_timestamp": (-1 if append_time_ms is None else append_time_ms, -(2**63)),
        "base_timestamp": (0 if delete_horizon_ms is None else delete_horizon_ms, 0),
    }
    for name, (value, least) in fields.items():
        if not least <= value <= np.iinfo(BATCH_DTYPE[name]).max:
            raise RequestError(f"{name} {value} is out of range")
        row[name] = value
    return row


def _check_legacy(
    magic: int,
    codec: int,
    leader_epoch: int,
    producer_id: int,
    base_sequence: int,
    flagged: bool,
    delete_horizon_ms: int | None,
) -> None:
    if magic < CODECS[codec].lowest_magic:
        raise RequestError(f"{CODECS[codec].name} is not supported for magic {magic}")
    if producer_id != -1 or base_sequence != -1 or flagged:
        raise RequestError(f"magic {magic} knows no producers, transactions and control records")
    if leader_epoch != -1 or delete_horizon_ms is not None:
        raise RequestError(f"magic {magic} has no leader epoch and no delete horizon")


def build(
    columns: Columns,
    shared: Rows,
    *,
    batch_bytes: int = 16384,
    batch_records: int | None = None,
    level: int | None = None,
) -> tuple[bytearray, BatchTable]:
    """Encode records into as many batches as they need: the bytes, and the table that a scan of them would give.

    A batch takes records as long as it stays, uncompressed and with its header, within `batch_bytes`; at least one, and
    an uncompressed legacy message is always alone. Base sequences of `shared` go on from batch to batch. In a
    compressed legacy wrapper the table has the base offset and the count, which a scan cannot see.
    """
    if batch_bytes < 1 or (batch_records is not None and batch_records < 1):
        raise RequestError(f"a batch cannot have {batch_bytes} bytes and {batch_records} records")
    most = min(batch_records or 0x7FFFFFFF, 0x7FFFFFFF)
    if int(shared["magic"][0]) < 2 and int(shared["attributes"][0]) & CODEC_MASK == 0:
        most = 1
    work = _Building(columns, level, min(batch_bytes, 0x7FFFFFFF), most)
    parts: list[Rows] = []
    before, room = shared, 256
    while work.start < len(columns):
        rows = np.empty(room + 1, BATCH_DTYPE)
        rows[0] = before[0]
        count, status = work.run(rows, planned=False)
        if status:
            raise RequestError(f"record {work.start}: {REASONS[status]}")
        parts.append(rows[:count])
        before = rows[count : count + 1]
        if count == room:  # else it was not for want of rows that the call ended
            room = min(room * 4, 1 << 16)
    return work.result(joined_rows(parts))


def rebuild(columns: Columns, batches: BatchTable, *, level: Levels = None) -> tuple[bytearray, BatchTable]:
    """Encode records with their offsets into batches whose headers are given, as compaction does; bytes and new table.

    Each batch takes its ``count`` of the records, in order. Base offset, last offset, flags, codec, producer fields and
    leader epoch are kept, and where the flags say so the delete horizon (base timestamp) and the append time (max
    timestamp); else both come from the records. A batch of magic 2 and no records becomes the empty batch of 61 bytes
    that keeps its producer's state.
    """
    rows = np.array(batches.rows)
    rows["verdict"] = 0
    rows["attributes"][rows["count"] == 0] &= ~(CODEC_MASK | DELETE_HORIZON)
    work = _Building(columns, level)
    row = 0
    while row < len(rows):
        count, status = work.run(rows[row:], planned=True)
        row += count
        if status:
            raise RequestError(f"record {work.start}: batch {row}: {REASONS[status]}")
    if work.start < len(columns):
        raise RequestError(f"batches: batch {row}: {REASONS[-1]}")
    return work.result(rows)


class _Kept(threading.local):
    """Memory that a thread lays records out in, kept for its next call: fresh pages cost as much as filling them."""

    scratch: bytearray | None = None

    def take(self) -> bytearray:
        """Return the memory; nobody uses it until it is given back."""
        scratch, self.scratch = self.scratch, None
        return bytearray() if scratch is None else scratch

    def give(self, scratch: bytearray) -> None:
        """Keep memory, unless a very large batch made it grow."""
        if len(scratch) <= _SCRATCH_BYTES:
            self.scratch = scratch


_kept = _Kept()


class _Building:
    """One call of `build` or `rebuild`: the output, and the record at which it is."""

    def __init__(
        self, columns: Columns, level: Levels, batch_bytes: int = 16384, batch_records: int = 0x7FFFFFFF
    ) -> None:
        self.columns, self.level, self.batch_bytes, self.batch_records = columns, level, batch_bytes, batch_records
        self.start = self.likely = 0
        self.out, self.end = bytearray(), 0  # after `end` there is only room
        self.scratch = _kept.take()

    def run(self, rows: Rows, *, planned: bool) -> tuple[int, int]:
        """Write batches for as many rows as one call of the kernel does, and compress them: how many, and a status."""
        magic, codec = int(rows["magic"][0]), int(rows["attributes"][0]) & CODEC_MASK
        target, at = (self.scratch, 0) if codec else (self.out, self.end)
        if self.start == 0 or not target:
            self.likely = _encoder.likely_size(self.columns, magic, self.batch_bytes, self.batch_records)
            size = min(self.likely, _SCRATCH_BYTES) if codec else self.likely
            if len(target) < size:
                _encoder.resize(target, size)
        done = self.start
        self.start, count, end, status = _encoder.write(
            self.columns, done, rows, planned, target, at, self.batch_bytes, self.batch_records
        )
        if not codec:
            self.end = end
        elif count:
            self.compress(rows[:count], codec, magic, done)
        if status != _ROOM:
            return count, status
        if count == 0 or not codec:
            _encoder.resize(target, len(target) + max(len(target) // (1 if codec else 4), 4096))
        return count, 0

    def compress(self, rows: Rows, codec: int, magic: int, done: int) -> None:
        """Append batches whose records are in the scratch; its first record is record `done` of the call."""
        from pylogseg.format.compression import compressor  # codecs are loaded when they are needed

        level = self.level.get(codec) if isinstance(self.level, Mapping) else self.level
        pack = compressor(codec, magic=magic, level=level)
        row, body = 0, None
        while True:
            row, self.end, body = _encoder.pack(pack, rows, self.scratch, self.out, self.end, row, body)
            if body is None:
                return
            # Each growth may copy all: what is left of the records is taken to become as small as this batch.
            size, counts = len(body) + LEAST_BATCH_BYTES[magic], rows["count"]
            left = size * (len(self.columns) - done - int(counts[:row].sum())) // int(counts[row])
            _encoder.resize(self.out, self.end + max(size, min(left + left // 16, self.likely)))

    def result(self, rows: Rows) -> tuple[bytearray, BatchTable]:
        _kept.give(self.scratch)
        _encoder.resize(self.out, self.end)
        return self.out, BatchTable(rows)


def columns_to_encode(records: RecordColumns, *, base_offset: int | None = None) -> Columns:
    """Return decoded records as columns to encode; their payloads stay where they are.

    `base_offset` numbers them again and consecutively; without it they keep their offsets.
    """
    has_headers = bool(records.header_count.any())
    return Columns(
        len(records),
        np.ascontiguousarray(records.offset) if base_offset is None else None,
        np.ascontiguousarray(records.timestamp),
        np.ascontiguousarray(records.key_place),
        np.ascontiguousarray(records.key_size),
        np.ascontiguousarray(records.value_place),
        np.ascontiguousarray(records.value_size),
        np.ascontiguousarray(records.headers_place) if has_headers else None,
        np.ascontiguousarray(records.header_count) if has_headers else None,
        records.sources,
        base_offset or 0,
    )
