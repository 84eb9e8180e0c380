"""The four codecs with exactly Kafka's framing, and the bodies of many batches decompressed into one arena.

Which library does what, and why (wheels for CPython 3.10 to 3.14 on Linux x86-64 and aarch64, macOS and Windows;
licences that fit Apache-2.0; microseconds on one 16 KiB batch of one machine, for comparison only):

======  ==================================  =======  ====================================================
codec   library                             licence  reading; the next best
======  ==================================  =======  ====================================================
lz4     cramjam (blocks; frames are ours)   MIT      1.3 us
snappy  cramjam (blocks; xerial is ours)    MIT      2.7 us
zstd    python-zstandard                    BSD-3    11.5 us; cramjam 22, compression.zstd 22
gzip    isal (reading)                      PSF-2.0  20.7 us; zlib-ng 28, zlib 39
gzip    deflate (libdeflate; writing)       MIT      92 us to write; zlib-ng 105, zlib 162
======  ==================================  =======  ====================================================

python-lz4 (BSD-3) serves the levels of lz4 other than 9. libdeflate also reads, but knows neither an output limit that holds nor a second member; isal also writes, but in
four levels that compress less. python-zstandard has no wheels for free-threaded builds: there, as from Python 3.14
on unless it is installed, cramjam reads and writes zstd. Without isal or deflate, zlib of the standard library serves.

All of these let go of the GIL while they work, so threads use all cores (zstd contexts are kept per thread).

Reading never makes more than a limit, nor takes memory by a length that the bytes cannot bear out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt

from pylogseg import _framing
from pylogseg.format import gzip_members, lz4_frame, xerial, zstd_frames
from pylogseg.format.batches import CODEC_NAMES, BatchTable
from pylogseg.format.codec_error import CodecError as CodecError
from pylogseg.format.codec_error import over
from pylogseg.format.records import BODY_DTYPE, DECOMPRESSED_LIMIT_BYTES, SOURCE_SHIFT

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

#: Levels that Kafka's configuration allows, the ends included; codecs that are not here have none.
LEVELS = {GZIP: (1, 9), LZ4: (1, 17), ZSTD: (-131072, 22)}

#: What Kafka uses by default. For gzip -1 stands for 6.
DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}

#: A row of a block table, as in `_kernels/framing.pxd`.
BLOCK_DTYPE = np.dtype([("position", "i8"), ("size", "i4"), ("room", "i4")])

_ARENA = 1 << SOURCE_SHIFT
_V2_HEADER_BYTES = 61
_KEY_AT = {0: 18, 1: 26}
# Rows of a block table at a time; a payload with more blocks than this goes the careful way.
_BLOCK_ROWS = 4096


def codec_number(codec: int | str) -> int:
    """The number of a codec that is given by number or name; `CodecError` where there is none."""
    if isinstance(codec, str):
        if codec in CODEC_NAMES:
            return CODEC_NAMES.index(codec)
    elif 0 <= codec < len(CODEC_NAMES):
        return int(codec)
    raise CodecError(f"{codec!r} is no codec; the codecs are {', '.join(CODEC_NAMES)} (0 to {len(CODEC_NAMES) - 1})")


def decompress(codec: int | str, data: Any, *, magic: int = 2, limit: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Decompress the payload of one batch.

    Parameters
    ----------
    codec : int or str
        Number or name, as in `CODEC_NAMES`.
    data : buffer
        The bytes behind a magic 2 header, or the value of a compressed message of magic 0 or 1.
    magic : int
        Of the batch. lz4 differs (KAFKA-3160), and zstd is not known before 2.
    limit : int
        Most bytes to make.

    Returns
    -------
    bytes

    Raises
    ------
    CodecError
        For any bytes that are not what the codec and Kafka's framing allow, and for more than `limit` bytes.
    """
    return _payload(codec_number(codec), memoryview(data).cast("B"), magic, limit)


def _payload(number: int, view: memoryview, magic: int, limit: int) -> bytes:
    if number == GZIP:
        return gzip_members.decompress(view, limit)
    if number == SNAPPY:
        return xerial.decompress(view, limit)
    if number == LZ4:
        return lz4_frame.decompress(view, limit, magic=magic)
    if number == ZSTD:
        _check_zstd(magic)
        return zstd_frames.decompress(view, limit)
    if len(view) > limit:
        raise over(limit)
    return bytes(view)


def compress(codec: int | str, data: Any, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress the payload of one batch with the framing of Kafka's own writers.

    Parameters
    ----------
    codec, magic
        As for `decompress`.
    data : buffer
        Records (magic 2), or whole inner messages (0 and 1).
    level : int, optional
        In the range of `LEVELS`; `DEFAULT_LEVELS` otherwise. snappy has none. For lz4, 9 is the fast compressor
        and every other level the thorough one, which knows no difference above 12.

    Returns
    -------
    bytes

    Raises
    ------
    CodecError
        For a codec or level that does not exist.
    """
    number = codec_number(codec)
    view = memoryview(data).cast("B")
    check_level(number, level)
    if number == GZIP:
        return gzip_members.compress(view, level)
    if number == SNAPPY:
        return xerial.compress(view)
    if number == LZ4:
        return lz4_frame.compress(view, magic=magic, level=level)
    if number == ZSTD:
        _check_zstd(magic)
        return zstd_frames.compress(view, level)
    return bytes(view)


def check_level(codec: int, level: int | None) -> None:
    """Raise `CodecError` for a level that Kafka's configuration does not allow."""
    if level is None or level == DEFAULT_LEVELS.get(codec):
        return
    if codec not in LEVELS:
        raise CodecError(f"{CODEC_NAMES[codec]} has no levels")
    first, last = LEVELS[codec]
    if not first <= level <= last:
        raise CodecError(f"{CODEC_NAMES[codec]} has levels {first} to {last}, not {level}")


def _check_zstd(magic: int) -> None:
    if magic < 2:
        raise CodecError(f"zstd is not supported in batches of magic {magic}")


class Arena:
    """Memory for decompressed bytes, which grows and is used again by the next `fill_bodies` with it.

    Parameters
    ----------
    capacity : int
        Bytes to begin with.

    Notes
    -----
    What `fill_bodies` returns keeps its memory alive, but the next call with the same arena overwrites it; who keeps
    the bytes passes a fresh arena, or none. One thread at a time uses an arena.
    """

    __slots__ = ("memory",)

    def __init__(self, capacity: int = 0) -> None:
        self.memory: npt.NDArray[np.uint8] = np.empty(capacity, np.uint8)

    def reserve(self, size: int, used: int) -> memoryview:
        """Memory of at least `size` bytes, the first `used` of which are kept."""
        if size > len(self.memory):
            # Untouched memory costs nothing until it is written, so doubling is cheap.
            larger = np.empty(max(size, 2 * len(self.memory)), np.uint8)
            larger[:used] = self.memory[:used]
            self.memory = larger
        return memoryview(self.memory)


def fill_bodies(
    table: BatchTable,
    buffer: Any,
    file_position: int,
    *,
    limit: int = DECOMPRESSED_LIMIT_BYTES,
    arena: Arena | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8], list[tuple[int, CodecError]]]:
    """Find the bodies of all batches of a table, and decompress those that are compressed.

    Parameters
    ----------
    table : BatchTable
    buffer : buffer
        The bytes of the file that the table was scanned from.
    file_position : int
        Where byte 0 of the buffer lies in the file.
    limit : int
        Most bytes that one batch may become.
    arena : Arena, optional
        Memory to use again; a fresh one by default.

    Returns
    -------
    bodies : numpy.ndarray of BODY_DTYPE
        For each row, where its body lies: in source 0 (the buffer) or source 1 (the arena).
    data : numpy.ndarray of uint8
        The used part of the arena, a view.
    errors : list of (int, CodecError)
        Rows whose body could not be had (their size is -1), in ascending order.
    """
    view = memoryview(buffer).cast("B")
    bodies = np.empty(len(table), BODY_DTYPE)
    head = np.where(table.magic == 2, _V2_HEADER_BYTES, 0)
    bodies["place"] = table.position - file_position + head
    bodies["size"] = table.size - head
    codec = table.codec
    # Kafka does not touch the payload of a compressed batch without records.
    bodies["size"][(codec != NONE) & (table.magic == 2) & (table.count == 0)] = 0
    rows = np.flatnonzero((codec != NONE) & ((table.magic != 2) | (table.count != 0)))
    work = _Work(table, view, limit, Arena() if arena is None else arena, bodies, codec)
    payload_rows = work.payloads(rows)
    work.arena.reserve(4 * int(bodies["size"][payload_rows].sum()), 0)
    for number in np.unique(codec[payload_rows]).tolist():
        work.run(number, payload_rows[codec[payload_rows] == number])
    work.errors.sort(key=lambda error: error[0])
    return bodies, work.arena.memory[: work.used], work.errors


class _Work:
    """One call of `fill_bodies`: what it fills, and how far the arena is used."""

    def __init__(
        self,
        table: BatchTable,
        view: memoryview,
        limit: int,
        arena: Arena,
        bodies: npt.NDArray[Any],
        codec: npt.NDArray[np.int16],
    ) -> None:
        self.table, self.view, self.limit, self.arena = table, view, limit, arena
        self.bodies, self.codec = bodies, codec
        self.used = 0
        self.errors: list[tuple[int, CodecError]] = []

    def fail(self, row: int, error: CodecError) -> None:
        self.bodies["size"][row] = -1
        self.errors.append((row, error))

    def payloads(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Turn the bodies of compressed rows into their payloads; the rows that have one."""
        bodies = self.bodies
        begins = bodies["place"][rows]
        ends = begins + bodies["size"][rows]
        outside = (begins < 0) | (ends < begins) | (ends > len(self.view))
        for row in rows[outside].tolist():
            self.fail(row, CodecError("the batch lies outside of the buffer"))
        for row in rows[~outside & (self.table.magic[rows] != 2)].tolist():
            start, size = bodies[row].item()
            try:
                bodies[row] = _wrapper_value(self.view, start, start + size, int(self.table.magic[row]))
            except CodecError as error:
                self.fail(row, error)
        return rows[bodies["size"][rows] >= 0]

    def run(self, codec: int, rows: npt.NDArray[np.intp]) -> None:
        """Decompress the payloads of rows that have one codec."""
        if codec == SNAPPY:
            self.snappy(rows)
        elif codec == LZ4:
            self.lz4(rows)
        elif codec == ZSTD:
            self.store(rows, self.zstd(rows))
        else:
            self.store(rows, self.careful(rows))

    def columns(self, rows: npt.NDArray[np.intp]) -> Iterator[tuple[int, int, memoryview]]:
        """Row, magic and payload of each of the rows."""
        view, begins = self.view, self.bodies["place"][rows]
        ends = (begins + self.bodies["size"][rows]).tolist()
        for row, magic, start, end in zip(
            rows.tolist(), self.table.magic[rows].tolist(), begins.tolist(), ends, strict=True
        ):
            yield row, magic, view[start:end]

    def careful(self, rows: npt.NDArray[np.intp]) -> Iterator[bytes | CodecError]:
        """Each payload decompressed by the function for one payload."""
        codec, limit = int(self.codec[rows[0]]) if len(rows) else NONE, self.limit
        for _, magic, payload in self.columns(rows):
            try:
                if codec > ZSTD:
                    codec_number(codec)
                yield _payload(codec, payload, magic, limit)
            except CodecError as error:
                yield error

    def zstd(self, rows: npt.NDArray[np.intp]) -> Iterator[bytes | CodecError]:
        """Each payload decompressed: at once where a kernel found one frame that keeps to the limit."""
        limit, quick = self.limit, zstd_frames.quick()
        begins = self.bodies["place"][rows]
        rooms = np.empty(len(rows), np.int64)
        _framing.zstd_rooms(self.view, begins, begins + self.bodies["size"][rows], limit, rooms)
        for room, (_, magic, payload) in zip(rooms.tolist(), self.columns(rows), strict=True):
            try:
                if quick is not None and room > 0 and magic == 2:
                    yield quick(payload, max_output_size=room)
                else:
                    yield _payload(ZSTD, payload, magic, limit)
            except CodecError as error:
                yield error
            except zstd_frames.Failure as error:
                yield CodecError(f"zstd: {error}")

    def store(self, rows: npt.NDArray[np.intp], produced: Iterator[bytes | CodecError]) -> None:
        """Put what was decompressed into the arena."""
        used = self.used
        memory = self.arena.reserve(0, 0)
        places: list[int] = []
        sizes: list[int] = []
        for data in produced:
            places.append(used)
            if isinstance(data, CodecError):
                sizes.append(-1)
                self.errors.append((int(rows[len(places) - 1]), data))
                continue
            end = used + len(data)
            if end > len(memory):
                memory = self.arena.reserve(end, used)
            memory[used:end] = data
            sizes.append(len(data))
            used = end
        self.bodies["place"][rows] = np.array(places, np.int64) | _ARENA
        self.bodies["size"][rows] = sizes
        self.used = used

    def snappy(self, rows: npt.NDArray[np.intp]) -> None:
        """Decompress plain xerial streams block by block, all others carefully."""

        def tables(start: Any, end: Any, row: int, counts: Any, blocks: Any) -> tuple[int, int]:
            return _framing.xerial_blocks(self.view, start, end, self.limit, row, counts, blocks)

        self._blocks(rows, tables, self._snappy_blocks)

    def lz4(self, rows: npt.NDArray[np.intp]) -> None:
        """Decompress plain lz4 frames block by block, all others carefully."""
        unchecked = (self.table.magic[rows] == 0).astype(np.uint8)

        def tables(start: Any, end: Any, row: int, counts: Any, blocks: Any) -> tuple[int, int]:
            return _framing.lz4_blocks(self.view, start, end, unchecked, self.limit, row, counts, blocks)

        self._blocks(rows, tables, self._lz4_blocks)

    def _blocks(
        self,
        rows: npt.NDArray[np.intp],
        tables: Callable[[Any, Any, int, Any, Any], tuple[int, int]],
        run: Callable[[npt.NDArray[Any]], list[int]],
    ) -> None:
        start = self.bodies["place"][rows]
        end = start + self.bodies["size"][rows]
        counts = np.empty(len(rows), np.int32)
        blocks = np.empty(min(_BLOCK_ROWS, 64 + 2 * len(rows)), BLOCK_DTYPE)
        careful: list[npt.NDArray[np.intp]] = []
        row = 0
        while row < len(rows):
            first = row
            row, count = tables(start, end, row, counts, blocks.view(np.uint8))
            chunk, chunk_counts = rows[first:row], counts[first:row]
            plain = chunk_counts >= 0
            careful += chunk[~plain], self._place(chunk[plain], chunk_counts[plain], run(blocks[:count]))
        late = np.concatenate(careful)
        self.store(late, self.careful(late))

    def _place(
        self, rows: npt.NDArray[np.intp], counts: npt.NDArray[np.int32], marks: list[int]
    ) -> npt.NDArray[np.intp]:
        """Bodies of plain rows from the arena positions between their blocks; the rows that were not finished."""
        behind = np.cumsum(counts)
        done = int(np.searchsorted(behind, len(marks) - 1, side="right"))
        between = np.array(marks, np.int64)
        places = between[behind[:done] - counts[:done]]
        self.bodies["place"][rows[:done]] = _ARENA | places
        self.bodies["size"][rows[:done]] = between[behind[:done]] - places
        return rows[done:]

    def _snappy_blocks(self, blocks: npt.NDArray[Any]) -> list[int]:
        """Decompress blocks until one fails; the arena positions before the first and behind each."""
        view, into = self.view, cramjam.snappy.decompress_raw_into
        marks = np.concatenate(([0], np.cumsum(blocks["room"], dtype=np.int64))) + self.used
        places = marks.tolist()
        memory = self.arena.reserve(places[-1], self.used)
        count = 0
        try:
            for start, end, place, place_end in zip(
                blocks["position"].tolist(), (blocks["position"] + blocks["size"]).tolist(), places, places[1:]
            ):
                if into(view[start:end], memory[place:place_end]) != place_end - place:
                    break
                count += 1
        except cramjam.DecompressionError:
            pass  # the row goes the careful way, which says what is wrong
        self.used = places[count]
        return places[: count + 1]

    def _lz4_blocks(self, blocks: npt.NDArray[Any]) -> list[int]:
        """Decompress blocks until one fails; the arena positions before the first and behind each."""
        view, into = self.view, cramjam.lz4.decompress_block_into
        used = self.used
        memory = self.arena.reserve(used + 1, used)
        marks = [used]
        columns = (blocks["position"], blocks["position"] + blocks["size"], blocks["room"])
        try:
            for start, end, room in zip(*(column.tolist() for column in columns), strict=True):
                most = used + abs(room)
                if most > len(memory):
                    memory = self.arena.reserve(most, used)
                if room < 0:
                    memory[used:most] = view[start:end]
                    used = most
                else:
                    used += into(view[start:end], memory[used:most], room)
                marks.append(used)
        except cramjam.DecompressionError:
            pass  # the row goes the careful way, which says what is wrong
        self.used = used
        return marks


def _wrapper_value(view: memoryview, start: int, end: int, magic: int) -> tuple[int, int]:
    """Place and size of the value of a compressed message of magic 0 or 1."""
    key_at = start + _KEY_AT[magic]
    # Writers leave the key null; Kafka's reader passes over one.
    value_at = key_at + 4 + max(_length(view, key_at, end), 0)
    size = _length(view, value_at, end)
    if size < 0:
        raise CodecError(f"a compressed message of magic {magic} with a null value")
    if size > end - value_at - 4:
        raise CodecError(f"the value of a compressed message, {size} bytes, runs past its end")
    return value_at + 4, size


def _length(view: memoryview, position: int, end: int) -> int:
    if position + 4 > end:
        raise CodecError("a compressed message ends before its value")
    return int.from_bytes(view[position : position + 4], "big", signed=True)
