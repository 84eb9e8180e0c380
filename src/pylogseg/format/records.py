"""Record columns: the records of many batches as arrays, with payloads as places in buffers.

Decoding copies no payload. It leaves, for every record, where its key, value and headers lie; what a consumer does
with them (copy, view, text, compare) is one of the gather kernels of `_records`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _gather, _records
from pylogseg.errors import Verdict
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.codec_error import DECOMPRESSED_LIMIT_BYTES as DECOMPRESSED_LIMIT_BYTES
from pylogseg.format.codec_error import RAISE_IT, ArenaFullError
from pylogseg.format.scratch import BODY_DTYPE as BODY_DTYPE
from pylogseg.format.scratch import COLUMN_NAMES, VIEW_DTYPE, Copies, Density, Scratch, allocate
from pylogseg.format.scratch import SOURCE_MASK as SOURCE_MASK
from pylogseg.format.scratch import SOURCE_SHIFT as SOURCE_SHIFT

#: The limit for work that rewrites batches or drops damaged ones: it must not take a large batch for damage. A
#: broker's cleaner holds the records of one batch in its heap, usually 1 GiB.
REWRITE_LIMIT_BYTES = 1 << 30
#: Records that are decoded at a time: their columns take 56 bytes each, though a record may be compressed to nothing.
SLOTS = 1 << 20
#: Bytes that are read from a file and decoded before the next ones. They stay in the third cache of a processor; the
#: system copies slower into fewer bytes, over and over, that are in the second.
_PIECE_BYTES = 768 << 10
#: What compressed batches that are read at a time become, and the least that there is room for beyond what is expected.
_UNPACKED_BYTES, _LEAST_BYTES = 4 << 20, 256 << 10
#: How many times as many records as the last time there is room for, and beyond that.
_MORE, _LEAST_ROOM = 1.125, 1024
#: A record of a compressed batch may have so many headers, or one for each 64 bytes that the batch may become, if that
#: is more: what is made of a header takes more memory than the header.
_LEAST_HEADERS_LIMIT = 1 << 16

#: What the statuses of the decoder mean (`_native/kernels/record.pxd`).
REASONS = (
    "",
    "the header declares more records than the bytes can hold, or a negative number",
    "a record's length is negative or runs past the end of the batch",
    "a record's fields run past its end, or a varint in it is malformed",
    "a record's fields end before its declared length does",
    "a record's headers have an impossible number or length",
    "bytes remain after the last declared record",
    "the batch ends before its last declared record",
    "an inner message is smaller than a message can be, or runs past the end",
    "an inner message of a compressed message is compressed itself",
    "the offset of a compressed message is below its last inner message's, and not 0",
    "a compressed message holds no inner message",
    "the body of the batch lies outside of its buffer",
    "an inner message has a magic other than 0 and 1",
    "the CRC does not hold",
)
_CRC_BAD = REASONS[-1]
_HEADER_COUNT = COLUMN_NAMES.index("header_count")
#: Columns that `read_and_decode` leaves out of records without headers.
_OF_NO_HEADERS = ("headers_place", "header_count", "batch")
#: Columns that it leaves out as well where the payloads are copied, and the sources that these copies are.
_COPIED_FROM = {"value_place": 2, "key_place": 3}


class Tally(NamedTuple):
    """Properties of all records of some columns.

    Attributes
    ----------
    lowest_offset, highest_offset : int
        Without records the greatest and the least offset there can be.
    null_keys, null_values : int
        How many are null.
    headers : int
        Headers of all records together.
    outside : int
        How many batches of magic 2 have a record outside of their own offsets, as far as the decoder counted.
    """

    lowest_offset: int
    highest_offset: int
    null_keys: int
    null_values: int
    headers: int
    outside: int = 0

    def with_more(self, other: Tally) -> Tally:
        """Combine with the properties of other records."""
        lowest = min(self.lowest_offset, other.lowest_offset)
        highest = max(self.highest_offset, other.highest_offset)
        return Tally(lowest, highest, *(mine + more for mine, more in zip(self[2:], other[2:], strict=True)))


_NO_RECORDS = Tally(2**63 - 1, -(2**63), 0, 0, 0)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Consecutive records of a log, as columns of equal length.

    Attributes
    ----------
    offset : numpy.ndarray of int64
    timestamp : numpy.ndarray of int64
        Milliseconds as a consumer sees them: the append time in a LogAppendTime batch; -1 none.
    key_place, value_place : numpy.ndarray of int64
        First byte of key and value, as places (see `SOURCE_SHIFT`).
    key_size, value_size : numpy.ndarray of int32
        Bytes; -1 is null.
    headers_place : numpy.ndarray of int64
        First byte after the count of headers.
    header_count : numpy.ndarray of int32
    batch : numpy.ndarray of int32
        Row of ``batches`` that the record came from.
    batches : BatchTable
    sources : tuple of buffers
        What the places point into: the file's bytes, and an arena of decompressed ones (may be empty). The columns
        keep them alive; a memory map stays mapped as long as any column of it lives.
    key_view, value_view : numpy.ndarray of VIEW_DTYPE, optional
        Keys and values as Arrow binary views whose buffers are the sources, where the decoder was asked for them.
    values, keys : Copies, optional
        The payloads copied, where the decoder was asked for that.
    counted : Tally, optional
        What the decoder counted; see `tally`.
    """

    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    key_place: npt.NDArray[np.int64]
    key_size: npt.NDArray[np.int32]
    value_place: npt.NDArray[np.int64]
    value_size: npt.NDArray[np.int32]
    headers_place: npt.NDArray[np.int64]
    header_count: npt.NDArray[np.int32]
    batch: npt.NDArray[np.int32]
    batches: BatchTable
    sources: tuple[Any, ...]
    key_view: npt.NDArray[Any] | None = None
    value_view: npt.NDArray[Any] | None = None
    values: Copies | None = None
    keys: Copies | None = None
    counted: Tally | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, which: Any) -> RecordColumns:
        """Some of the records: a slice (copies nothing), a mask or an index array (copies columns, not payloads).

        The copied payloads stay.
        """
        views = (None if view is None else view[which] for view in (self.key_view, self.value_view))
        return columns_of([getattr(self, name)[which] for name in COLUMN_NAMES], self.batches, self.sources, *views)

    def of_batches(self, batches: BatchTable) -> RecordColumns:
        """Return the records of some of the batches, as `take` does."""
        is_kept = np.isin(self.batches.rows["position"], batches.rows["position"])
        taken = self.take(is_kept[self.batch])
        return replace(taken, batch=(np.cumsum(is_kept, dtype=np.int32) - 1)[taken.batch], batches=batches)

    def tally(self) -> Tally:
        """Properties of all records; cached."""
        if self.counted is None:
            tally = Tally(
                int(self.offset.min(initial=_NO_RECORDS.lowest_offset)),
                int(self.offset.max(initial=_NO_RECORDS.highest_offset)),
                int(np.count_nonzero(self.key_size < 0)),
                int(np.count_nonzero(self.value_size < 0)),
                int(self.header_count.sum(dtype=np.int64)),
            )
            object.__setattr__(self, "counted", tally)
            return tally
        return self.counted

    def key(self, i: int) -> bytes | None:
        """Key of record `i`, copied; None is null."""
        return self.span(self.key_place[i], self.key_size[i])

    def value(self, i: int) -> bytes | None:
        """Return the value of record `i`, copied; None is null."""
        return self.span(self.value_place[i], self.value_size[i])

    def span(self, place: int, size: int) -> bytes | None:
        """Return the bytes of any span of these columns, copied; None for size -1."""
        if size <= 0:  # an empty one may lie anywhere
            return None if size < 0 else b""
        position = int(place) & SOURCE_MASK
        return bytes(memoryview(self.sources[int(place) >> SOURCE_SHIFT])[position : position + int(size)])

    def header_spans(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return all headers of all records, in order: name places and sizes, value places and sizes."""
        count = self.tally().headers
        spans = (
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.int64),
            np.empty(count, np.int32),
        )
        if count:
            _gather.header_spans(
                np.ascontiguousarray(self.headers_place), np.ascontiguousarray(self.header_count), self.sources, *spans
            )
        return spans


class PlainColumns(RecordColumns):
    """Columns of records without headers, of which some that are not `given` are made when they are asked for.

    Few ask: who takes views or copies of payloads needs no places.
    """

    __slots__ = ()

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # of what is not given
        if name not in (*_OF_NO_HEADERS, *_COPIED_FROM):
            raise AttributeError(name)
        column = _derive_column(name, len(self), self.batches, self.values, self.keys)
        object.__setattr__(self, name, column)
        return column


def _derive_column(name: str, count: int, batches: BatchTable, values: Copies | None, keys: Copies | None) -> Any:
    """Return a column of the first records, which have no headers: it follows from their batches and copies."""
    if name == "batch":
        return np.repeat(np.arange(len(batches), dtype=np.int32), batches.rows["count"])[:count]
    if name == "header_count":
        return np.zeros(count, np.int32)
    copies = {"value_place": values, "key_place": keys}.get(name)
    if copies is None:  # of headers, of which there are none
        return np.zeros(count, np.int64)
    return copies.ends[:count] | np.int64(_COPIED_FROM[name] << SOURCE_SHIFT)


def columns_of(
    arrays: list[npt.NDArray[Any]],
    batches: BatchTable,
    sources: tuple[Any, ...],
    *besides: Any,
    counted: Tally | None = None,
) -> RecordColumns:
    """Return columns from arrays in the order of `COLUMN_NAMES`, and from other attributes (`besides`)."""
    make: Any = RecordColumns
    columns: RecordColumns = make(*arrays, batches, sources, *besides, counted=counted)
    return columns


class BatchDamage(NamedTuple):
    """A batch whose records cannot be read, though its header can.

    Attributes
    ----------
    row : int
        Row in the batch table.
    reason : str
    """

    row: int
    reason: str

    @property
    def is_limit(self) -> bool:
        """True if a limit kept them from being read: the batch may be good."""
        return False


class BatchOverLimit(BatchDamage):
    """A batch that was not read because of a limit."""

    __slots__ = ()

    @property
    def is_limit(self) -> bool:
        """True: the batch may be good."""
        return True


def decode(
    batches: BatchTable,
    buffer: Any,
    file_position: int = 0,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    scratch: Scratch | None = None,
) -> tuple[RecordColumns, list[BatchDamage]]:
    """Decode the records of whole batches.

    Parameters
    ----------
    batches : BatchTable
        From `scan` of the same buffer; rows may have been left out. Rows found damaged get the verdict
        ``RECORDS_BAD``.
    buffer : buffer
        Kept alive by the result; nothing of it is copied, but what was compressed.
    file_position : int
        Where byte 0 of the buffer lies in its file, as in `scan`.
    limit_bytes : int
        A batch that would decompress to more is damaged.
    scratch : Scratch, optional
        Reused memory; the result then lives until the next call with the same scratch.

    Returns
    -------
    columns : RecordColumns
        The records of all good batches, control records among them.
    damage : list of BatchDamage
        The batches that were left out.
    """
    table = batches if batches.rows.flags.c_contiguous else BatchTable(np.ascontiguousarray(batches.rows))
    bodies, sources, damage = _bodies(table, buffer, file_position, limit_bytes, scratch)
    columns = _decode(table, bodies, sources, scratch, damage, crc=False)
    assert columns is not None
    if scratch is not None and len(table):
        size = int(table.rows["size"].sum(dtype=np.int64))
        scratch.density = Density.of(len(table), len(columns), len(sources[1]), size)
    columns = _without_many_headers(columns, damage, limit_bytes)
    for bad in damage:
        table.rows["verdict"][bad.row] = batches.rows["verdict"][bad.row] = Verdict.RECORDS_BAD
    return columns, damage


def check_and_decode(
    batches: BatchTable, buffer: Any, file_position: int, scratch: Scratch | None
) -> tuple[RecordColumns, list[BatchDamage]] | None:
    """`decode` for batches none of which is compressed, the CRC of each checked right before its records.

    So its bytes come from memory once. None, if there is one whose CRC does not hold, or too many records. Damage in
    spite of a good CRC gets no verdict here. The rows must be contiguous.
    """
    bodies, sources, damage = _bodies(batches, buffer, file_position, 0, scratch)
    if _records.capacity(batches.rows, bodies)[0] > SLOTS:  # too many at once: `decode_slices`
        return None
    columns = _decode(batches, bodies, sources, scratch, damage, crc=True)
    if columns is None:
        return None
    batches.rows["verdict"] = Verdict.GOOD
    if scratch is not None and len(batches):
        scratch.density = Density.of(len(batches), len(columns), 0, len(buffer))
    return columns, damage


class ReadAhead(NamedTuple):
    """Batches that were read and decoded in one step."""

    batches: BatchTable
    columns: RecordColumns  #: Their `batches` are those from `before` on.
    before: int
    memory: memoryview  #: The bytes that were read, but those whose records were copied: others may lie there.
    size: int  #: Bytes of the batches.


def read_and_decode(
    view: Any, position: int, size: int, first: int, last: int, codec: int, limit_bytes: int, scratch: Scratch
) -> ReadAhead | None:
    """Read good batches of one codec from a file and decode them, a piece that fits the cache after the other.

    Batches before the batch with the offset `first` are only checked. The window ends behind the batch with `last`, or
    before the first bytes that are no good batch. None if that is at once, or if the file ends, or cannot be read so;
    and if earlier batches are unknown.
    """
    per_byte = scratch.density
    if per_byte is None or (codec and not per_byte.unpacked):
        return None
    unpacker, unpacked = None, size
    if codec:
        from pylogseg.format import compression

        unpacker = compression.unpacker_of(codec, limit_bytes)
        if unpacker is None:
            return None
        size = min(size, int(_UNPACKED_BYTES / per_byte.unpacked) + _LEAST_BYTES)
        unpacked = min(int(size * per_byte.unpacked * _MORE) + _LEAST_BYTES, compression.ARENA_BYTES)
    whole = getattr(view, "whole", None)
    memory = scratch.window(size, is_kept=not codec) if whole is None else whole()[position : position + size]
    arena = scratch.reserve_unpacked(unpacked) if codec else None
    room = min(int(size * per_byte.records * _MORE) + _LEAST_ROOM, SLOTS)
    rows = np.empty(int(size * per_byte.batches * _MORE) + _LEAST_ROOM, BATCH_DTYPE)
    sources = (memory, b"" if arena is None else arena)
    arrays, besides = scratch.columns(room), scratch.besides(room, unpacked, sources)
    mapped = getattr(view, "file_map", None)
    file_map = None if codec or mapped is None else mapped()
    count, before, records, tally, done, filled, unpacked, plain = _records.read_and_decode(
        view.fileno() if whole is None else -1, position, memory, _PIECE_BYTES, first, last, rows,
        _output(arrays, besides), unpacker, arena, file_map,
    )  # fmt: skip
    if file_map is not None and not view.is_unchanged():
        return None
    counted = Tally(*tally)
    if filled < 0 or count == before or counted.outside or (codec and counted.headers > _most_headers(limit_bytes)):
        return None
    scratch.density = Density.of(count, records, unpacked, done).at_least(per_byte, 1 / _MORE)
    table = BatchTable(rows[:count])
    of = table[before:] if before else table
    memory = memory[:filled]
    columns = _first_of_copied(arrays, besides, records, of, (memory, *sources[1:]), scratch, counted, plain)
    return ReadAhead(table, columns, before, memory, done)


def _decode(
    table: BatchTable,
    bodies: npt.NDArray[Any],
    sources: tuple[Any, ...],
    scratch: Scratch | None,
    damage: list[BatchDamage],
    *,
    crc: bool,
) -> RecordColumns | None:
    """Decode bodies, and add to the damage; None where a CRC does not hold."""
    rows = table.rows
    room, bytes_room = _records.capacity(rows, bodies)
    arrays = allocate(room) if scratch is None else scratch.columns(room)
    besides = [] if scratch is None else scratch.besides(room, bytes_room, sources)
    output = _output(arrays, besides)
    row = count = 0
    tally = _NO_RECORDS
    while True:
        row, count, added, status, _ = _records.decode(rows, row, bodies, sources, count, output, crc=crc)
        tally = Tally(*added) if tally is _NO_RECORDS else tally.with_more(Tally(*added))
        if row == len(rows):
            break
        if REASONS[status] == _CRC_BAD:
            return None
        if bodies["size"][row] >= 0:
            damage.append(BatchDamage(row, REASONS[status]))
        row += 1
    damage.sort()
    return _columns(arrays, besides, count, table, sources, scratch, tally)


def decode_parts(
    batches: BatchTable,
    buffer: Any,
    file_position: int = 0,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    scratch: Scratch | None = None,
) -> Iterator[tuple[RecordColumns, list[BatchDamage]]]:
    """Decode the records of whole batches, in as many steps as it takes to hold little at once.

    Usually one; more where batches decompress to hundreds of times their size, or have very many records. A batch is
    never divided, whatever it holds: see `decode_slices`. The parameters are those of `decode`; a damage's rows count
    in ``batches`` of the columns beside it.
    """
    pending = runs(batches)[::-1]
    while pending:
        part = pending.pop()
        try:
            yield decode(part, buffer, file_position, limit_bytes=limit_bytes, scratch=scratch)
        except ArenaFullError:
            half = len(part) // 2
            pending += [part[half:], part[:half]]


class Slice(NamedTuple):
    """Some of the records that are decoded at a time.

    Only a batch of more than `SLOTS` records has several slices, and a slice of it holds records of no other.
    """

    columns: RecordColumns
    damage: list[BatchDamage]  #: Rows are those of the `batches` of the columns.
    continues: bool = False  #: True if the slice before this one had records of the first batch.
    ends: bool = True  #: True if no other slice has records of the last batch.


def without_outside(part: Slice) -> Slice:
    """Leave out, as damage, batches of magic 2 with a record that is outside of the batch's own offsets.

    A reader of a range would take or leave such a record by the range's end, and a consumer skips a lower offset.
    """
    columns = part.columns
    if not columns.tally().outside:
        return part
    rows = columns.batches.rows[columns.batch]
    is_outside = (columns.offset < rows["base_offset"]) | (columns.offset > rows["last_offset"])
    bad, first = np.unique(columns.batch[is_outside & (rows["magic"] == 2)], return_index=True)
    offsets = columns.offset[is_outside & (rows["magic"] == 2)][first]
    damage = [*part.damage]
    for row, offset in zip(bad.tolist(), offsets.tolist(), strict=True):
        of = columns.batches.rows[row]
        damage.append(BatchDamage(row, f"offset {offset} in a batch of {of['base_offset']} to {of['last_offset']}"))
    return part._replace(columns=columns.take(~np.isin(columns.batch, bad)), damage=sorted(damage))


def decode_slices(
    batches: BatchTable,
    buffer: Any,
    file_position: int = 0,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    scratch: Scratch | None = None,
) -> Iterator[Slice]:
    """Decode the records of whole batches, at most `SLOTS` at a time: for callers that do not need a batch as a whole.

    The records of a damaged batch are not among them, as with `decode`, whose parameters these are.
    """
    options: Any = {"limit_bytes": limit_bytes, "scratch": scratch}
    for part in runs(batches):
        if len(part) == 1 and part.count[0] > SLOTS and part.magic[0] == 2:
            yield from _slices_of_one(part, buffer, file_position, limit_bytes, scratch)
        else:
            for columns, damage in decode_parts(part, buffer, file_position, **options):
                yield Slice(columns, damage)


def runs(batches: BatchTable) -> list[BatchTable]:
    """Split batches into runs of at most `SLOTS` records; a batch with more is a run by itself."""
    counts = np.maximum(batches.rows["count"], 1)
    if int(counts.sum(dtype=np.int64)) <= SLOTS:
        return [batches]
    ends = np.cumsum(counts, dtype=np.int64)
    parts, begin = [], 0
    while begin < len(batches):
        done = int(ends[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(ends, done + SLOTS, "right")), begin + 1)
        parts.append(batches[begin:end])
        begin = end
    return parts


def _slices_of_one(
    batch: BatchTable, buffer: Any, file_position: int, limit_bytes: int, scratch: Scratch | None
) -> Iterator[Slice]:
    """Yield the records of one batch of magic 2, which is walked to its end before the first of them is given."""
    table = BatchTable(np.ascontiguousarray(batch.rows))
    bodies, sources, damage = _bodies(table, buffer, file_position, limit_bytes, scratch)
    room, bytes_room = _records.capacity(table.rows, bodies)
    if damage or room <= SLOTS:
        columns = _decode(table, bodies, sources, scratch, damage, crc=False)
        assert columns is not None
        columns = _without_many_headers(columns, damage, limit_bytes)
        slices = [Slice(columns, damage)]
    else:
        bad = _damage_of_one(table, bodies, sources, scratch, limit_bytes)
        if bad is None:
            yield from _good_slices(table, bodies, sources, scratch, bytes_room)
            return
        arrays: list[npt.NDArray[Any]] = [array[:0] for array in allocate(0)]
        slices = [Slice(columns_of(arrays, table, sources), [bad])]
    if slices[0].damage:
        batch.rows["verdict"] = table.rows["verdict"] = Verdict.RECORDS_BAD
    yield from slices


def _damage_of_one(
    table: BatchTable, bodies: npt.NDArray[Any], sources: tuple[Any, ...], scratch: Scratch | None, limit_bytes: int
) -> BatchDamage | None:
    """Check the records of one batch, decoding all of them through the same memory."""
    arrays = [array[:SLOTS] for array in (allocate(SLOTS) if scratch is None else scratch.columns(SLOTS))]
    output = _output(arrays, [])
    done = at = 0
    while done < table.count[0]:
        _, count, _, status, place = _records.decode(table.rows, 0, bodies, sources, 0, output, done=done, at=at)
        if status:
            return BatchDamage(0, REASONS[status])
        most = int(arrays[_HEADER_COUNT][:count].max(initial=0))
        if most > _most_headers(limit_bytes) and table.codec[0]:
            return BatchOverLimit(0, _many_headers(most, limit_bytes))
        done, at = done + count, int(place - bodies["place"][0])
    return None


def _good_slices(
    table: BatchTable, bodies: npt.NDArray[Any], sources: tuple[Any, ...], scratch: Scratch | None, bytes_room: int
) -> Iterator[Slice]:
    done, at, total = 0, 0, int(table.count[0])
    while done < total:
        room = min(SLOTS, total - done)
        arrays = [array[:room] for array in (allocate(room) if scratch is None else scratch.columns(room))]
        besides = [] if scratch is None else scratch.besides(room, bytes_room, sources)
        output = _output(arrays, besides)
        _, count, added, _, place = _records.decode(table.rows, 0, bodies, sources, 0, output, done=done, at=at)
        columns = _columns(arrays, besides, count, table, sources, scratch, Tally(*added))
        yield Slice(columns, [], done > 0, done + count == total)
        done, at = done + count, int(place - bodies["place"][0])


def _most_headers(limit_bytes: int) -> int:
    return max(limit_bytes >> 6, _LEAST_HEADERS_LIMIT)


def _many_headers(count: int, limit_bytes: int) -> str:
    return f"a record has {count} headers, more than {_most_headers(limit_bytes)}, the limit for one record: {RAISE_IT}"


def _without_many_headers(columns: RecordColumns, damage: list[BatchDamage], limit_bytes: int) -> RecordColumns:
    """Return records without compressed batches that have a record with too many headers: these are damage."""
    if columns.tally().headers <= _most_headers(limit_bytes):
        return columns
    many = (columns.header_count > _most_headers(limit_bytes)) & (columns.batches.codec[columns.batch] != 0)
    rows, first = np.unique(columns.batch[many], return_index=True)
    if not len(rows):
        return columns
    counts = columns.header_count[many][first]
    damage += [
        BatchOverLimit(row, _many_headers(n, limit_bytes))
        for row, n in zip(rows.tolist(), counts.tolist(), strict=True)
    ]
    damage.sort()
    return columns.take(~np.isin(columns.batch, rows))


def _output(arrays: list[npt.NDArray[Any]], besides: list[npt.NDArray[Any] | None]) -> _records.Output:
    raw: list[Any] = [
        None if array is None else array.view(np.uint8) if array.dtype == VIEW_DTYPE else array for array in besides
    ]
    return _records.Output(*arrays, *raw)


def _columns(
    arrays: list[npt.NDArray[Any]],
    besides: list[npt.NDArray[Any] | None],
    count: int,
    table: BatchTable,
    sources: tuple[Any, ...],
    scratch: Scratch | None,
    tally: Tally,
) -> RecordColumns:
    """Return the first records of the arrays that the decoder filled."""
    views, copies = _besides_of(besides, count, scratch)
    return columns_of([array[:count] for array in arrays], table, sources, *views, *copies, counted=tally)


def _first_of_copied(
    arrays: list[npt.NDArray[Any]],
    besides: list[npt.NDArray[Any] | None],
    count: int,
    table: BatchTable,
    sources: tuple[Any, ...],
    scratch: Scratch,
    tally: Tally,
    plain: int,
) -> RecordColumns:
    """Return the first records; their places are in the copies. The first `plain` ones lack columns to compute."""
    views, copies = _besides_of(besides, count, scratch)
    values, keys = copies or (None, None)
    copied = {"value_place": values, "key_place": keys}
    left_out = {*_OF_NO_HEADERS, *(name for name, copies in copied.items() if copies is not None)} if plain else set()
    columns: dict[str, Any] = {
        name: array[:count]
        for name, array in zip(COLUMN_NAMES, arrays, strict=True)
        if plain < count or name not in left_out
    }
    for name in left_out if plain < count else ():
        columns[name][:plain] = _derive_column(name, plain, table, values, keys)
    key_view, value_view = views or (None, None)
    moved = (b"" if copies is None else copies.data for copies in (values, keys))
    make = PlainColumns if plain == count else RecordColumns
    return make(
        **columns, batches=table, sources=(*sources, *moved), key_view=key_view, value_view=value_view, values=values,
        keys=keys, counted=tally,
    )  # fmt: skip


def _besides_of(
    besides: list[npt.NDArray[Any] | None], count: int, scratch: Scratch | None
) -> tuple[list[npt.NDArray[Any] | None], list[Copies | None]]:
    """Return the views of the first records, and the copies of their values and keys."""
    views = [None if view is None else view[:count] for view in besides[:2]]
    pairs: Any = zip(besides[2::2], besides[3::2], strict=True)
    copied = [None if pair[0] is None else Copies(*pair) for pair in pairs]
    return views, [] if scratch is None else scratch.trim_copies(copied, count)


def _bodies(
    batches: BatchTable, buffer: Any, file_position: int, limit_bytes: int, scratch: Scratch | None
) -> tuple[npt.NDArray[Any], tuple[Any, ...], list[BatchDamage]]:
    if len(batches) and batches.summary().is_compressed:
        # Codecs are loaded by the first compressed batch, not by the import.
        from pylogseg.format import compression

        arena = compression.Arena() if scratch is None else scratch.arena or compression.Arena(0, scratch.memory)
        if scratch is not None and scratch.with_arena:
            scratch.arena = arena
        bodies, data, errors = compression.fill_bodies(batches, buffer, file_position, limit=limit_bytes, arena=arena)
        return (
            bodies,
            (buffer, data),
            [(BatchOverLimit if error.is_limit else BatchDamage)(row, str(error)) for row, error in errors],
        )
    bodies = np.empty(len(batches), BODY_DTYPE)
    _records.plain_bodies(batches.rows, file_position, bodies)
    return bodies, (buffer, b""), []
