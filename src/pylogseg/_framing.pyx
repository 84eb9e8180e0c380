"""The compiled door to the framing of compressed payloads: block tables and sizes of many batches at once, xxHash32.

The codecs themselves are other packages', whose functions are called for each block or payload.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pylogseg._kernels cimport framing


cdef const uint8_t *address(const uint8_t[::1] view) noexcept:
    """First byte of a view; an empty one has no byte to point at."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""


def xxh32(buffer, seed: int = 0) -> int:
    """xxHash32 of a buffer."""
    cdef const uint8_t[::1] view = buffer
    cdef const uint8_t *data = address(view)
    cdef uint32_t start = seed
    cdef uint32_t result
    with nogil:
        result = framing.xxh32(data, view.shape[0], start)
    return result


def lz4_blocks(buffer, start, end, unchecked, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Block tables of payloads that are plain lz4 frames.

    Parameters
    ----------
    buffer : buffer
        The bytes of the file.
    start, end : array of int64
        Payloads, as positions in the buffer.
    unchecked : array of uint8
        Not 0 where the header checksum is not looked at (magic 0).
    limit : int
        Payloads whose blocks have room for more bytes than that are not plain.
    row : int
        The payload to begin with.
    counts : array of int32
        Filled: blocks of each payload; -1 where it is not plain.
    blocks : writable buffer
        Filled: 16 bytes for each block (`BLOCK_DTYPE` of `format/compression.py`), those of plain payloads alone.

    Returns
    -------
    row, used : int
        The payload to go on with, len(start) when done, and the blocks filled. A payload with more blocks than
        the whole of ``blocks`` holds counts as not plain, so that every call gets on.
    """
    return tables(buffer, start, end, unchecked, limit, row, counts, blocks, False)


def xerial_blocks(buffer, start, end, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Block tables of payloads that are plain xerial snappy streams; the parameters are those of `lz4_blocks`."""
    return tables(buffer, start, end, None, limit, row, counts, blocks, True)


def zstd_frame(buffer, position: int) -> tuple[int, int, int]:
    """Measure the zstd frame at a position without decompressing it.

    Returns
    -------
    end, declared, most : int
        Position behind the frame; its content size, -1 where the header has none; the bytes that its blocks
        can become at most.

    Raises
    ------
    ValueError
        Where there is no whole frame.
    """
    cdef const uint8_t[::1] view = buffer
    cdef int64_t start = position
    cdef framing.ZstdFrame frame
    cdef int status
    cdef const uint8_t *base = address(view)
    if not 0 <= start <= view.shape[0]:
        raise IndexError(f"position {start} is outside of a buffer of {view.shape[0]} bytes")
    with nogil:
        status = framing.zstd_frame(base + start, view.shape[0] - start, &frame)
    if status != framing.ZSTD_OK:
        raise ValueError(ZSTD_REASONS[status])
    return start + frame.end, frame.declared, frame.most


ZSTD_REASONS = ("", "the stream ends early", "no frame", "a reserved bit is set", "a block of unknown type")


def zstd_rooms(
    const uint8_t[::1] buffer, const int64_t[::1] start, const int64_t[::1] end, int64_t limit, int64_t[::1] rooms
) -> None:
    """Fill, for each payload, the most bytes that it becomes; -1 unless it is one frame, known to keep to the limit."""
    fill_rooms(buffer, start, end, limit, rooms, framing.zstd_room)


def gzip_rooms(
    const uint8_t[::1] buffer, const int64_t[::1] start, const int64_t[::1] end, int64_t limit, int64_t[::1] rooms
) -> None:
    """Fill, for each payload, the bytes that it says it becomes; -1 unless it is one member, sure to keep to the limit."""
    fill_rooms(buffer, start, end, limit, rooms, framing.gzip_room)


ctypedef int64_t (*Room)(const uint8_t *at, int64_t size, int64_t limit) noexcept nogil


cdef void fill_rooms(
    const uint8_t[::1] buffer, const int64_t[::1] start, const int64_t[::1] end, int64_t limit, int64_t[::1] rooms, Room room_of
) except *:
    cdef const uint8_t *base = address(buffer)
    cdef int64_t row
    if end.shape[0] != start.shape[0] or rooms.shape[0] != start.shape[0]:
        raise ValueError("the arrays differ in length")
    with nogil:
        for row in range(start.shape[0]):
            rooms[row] = framing.NOT_PLAIN
            if 0 <= start[row] <= end[row] <= buffer.shape[0]:
                rooms[row] = room_of(base + start[row], end[row] - start[row], limit)


cdef tuple tables(
    const uint8_t[::1] buffer,
    const int64_t[::1] start,
    const int64_t[::1] end,
    const uint8_t[::1] unchecked,
    int64_t limit,
    int64_t row,
    int32_t[::1] counts,
    uint8_t[::1] blocks,
    bint xerial,
):
    cdef int64_t rows = start.shape[0]
    cdef int64_t room = blocks.shape[0] // <int64_t>sizeof(framing.Block)
    cdef int64_t used = 0
    cdef int found
    cdef const uint8_t *base = address(buffer)
    cdef framing.Block *out = <framing.Block *><void *>address(blocks)
    if end.shape[0] != rows or counts.shape[0] != rows or (not xerial and unchecked.shape[0] != rows):
        raise ValueError("the arrays differ in length")
    if row < 0:
        raise ValueError("the row is negative")
    with nogil:
        while row < rows:
            if start[row] < 0 or end[row] < start[row] or end[row] > buffer.shape[0]:
                found = framing.NOT_PLAIN
            elif xerial:
                found = framing.xerial_blocks(base, start[row], end[row], limit, out + used, room - used)
            else:
                found = framing.lz4_blocks(
                    base, start[row], end[row], not unchecked[row], limit, out + used, room - used
                )
            if found == framing.NO_ROOM:
                if used:
                    break
                found = framing.NOT_PLAIN
            counts[row] = found
            if found > 0:
                used += found
            row += 1
    return row, used


def run_blocks(into, failure, memoryview source, memoryview target, const uint8_t[::1] blocks, int64_t[::1] marks, bint exact) -> int:
    """Decompress blocks one behind the other by a library's function, until one fails.

    Parameters
    ----------
    into : callable
        ``into(block, room)`` for memory views of a block and of where it goes, or ``into(block, room, size)``; returns
        the bytes it made.
    failure : type or tuple of type
        What it raises.
    source : memoryview of uint8
        The bytes of the file.
    target : memoryview of uint8
        Where the bytes go.
    blocks : buffer
        As `lz4_blocks` and `xerial_blocks` fill them.
    marks : array of int64
        One more than blocks. The first says where in the target to begin; filled: where each block ends.
    exact : bool
        Whether the room of a block is what it becomes (snappy), not the most of it (lz4).

    Returns
    -------
    int
        Blocks that were decompressed; all that the target has room for, if none fails.

    Raises
    ------
    ValueError
        For arrays of unequal lengths, and a first mark below 0.
    """
    cdef int64_t count = blocks.shape[0] // <int64_t>sizeof(framing.Block)
    cdef const framing.Block *block = <const framing.Block *><const void *>address(blocks)
    cdef int64_t used, made, room, i
    if marks.shape[0] != count + 1:
        raise ValueError("the arrays differ in length")
    if marks[0] < 0:
        raise ValueError("the first mark is negative")
    for i in range(count):
        used = marks[i]
        room = block[i].room if block[i].room >= 0 else -<int64_t>block[i].room
        if room > len(target) - used:
            return i
        piece = source[block[i].position:block[i].position + block[i].size]
        if block[i].room < 0:
            target[used:used + room] = piece
            made = room
        else:
            try:
                made = into(piece, target[used:used + room]) if exact else into(piece, target[used:used + room], room)
            except failure:
                return i
            if made > room or (exact and made != room):
                return i
        marks[i + 1] = used + made
    return count


def run_payloads(
    quick, failure, memoryview source, const int64_t[::1] start, const int64_t[::1] end, const int64_t[::1] first,
    const int64_t[::1] room, uint8_t[::1] target, int64_t row, int64_t[::1] marks, uint8_t[::1] failed
) -> int:
    """Decompress payloads one behind the other by a library's function that makes `bytes`.

    Parameters
    ----------
    quick : callable
        ``quick(payload, room)`` for a memory view and the bytes that it may become.
    failure : type or tuple of type
        What it raises.
    source : memoryview of uint8
        The bytes of the file.
    start, end : array of int64
        Payloads, as positions in the source.
    first, room : array of int64
        Room to try first, and room to try where that is too little.
    target : array of uint8
        Where the bytes go.
    row : int
        The payload to begin with.
    marks : array of int64
        One more than payloads. That of the row says where in the target to begin; filled: where each payload ends.
    failed : array of uint8
        Filled: whether a payload could not be had; it then takes no bytes.

    Returns
    -------
    int
        The payload to go on with: the number of them, or the first that the target has no room for.

    Raises
    ------
    ValueError
        For arrays of unequal lengths, and a row or a mark outside of them.
    """
    cdef int64_t rows = start.shape[0]
    cdef int64_t used
    cdef bytes data
    if end.shape[0] != rows or first.shape[0] != rows or room.shape[0] != rows or failed.shape[0] != rows or marks.shape[0] != rows + 1:
        raise ValueError("the arrays differ in length")
    if not 0 <= row <= rows or marks[row] < 0:
        raise ValueError("the row or its mark is out of range")
    for row in range(row, rows):
        payload = source[start[row]:end[row]]
        failed[row] = 0
        try:
            data = quick(payload, first[row])
        except failure:
            data = b""
            try:
                if room[row] > first[row]:
                    data = quick(payload, room[row])
            except failure:
                pass
            failed[row] = not data
        used = marks[row]
        if len(data) > target.shape[0] - used:
            return row
        if data:
            memcpy(&target[used], <const uint8_t *>data, len(data))
        marks[row + 1] = used + len(data)
    return rows
