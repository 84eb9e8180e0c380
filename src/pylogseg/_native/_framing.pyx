"""Framing of compressed payloads: block tables and sizes of many batches at once, xxHash32.

The codecs themselves come from other packages, whose functions are called for each block or payload.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pylogseg._native.kernels.buffers cimport address
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport framing


cdef enum:
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def xxh32(buffer, seed: int = 0) -> int:
    """Compute the xxHash32 of a buffer."""
    cdef const uint8_t[::1] view = buffer
    cdef const uint8_t *data = address(view)
    cdef uint32_t start = seed
    cdef uint32_t result
    with nogil:
        result = framing.xxh32(data, view.shape[0], start)
    return result


def lz4_blocks(buffer, start, end, unchecked, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Fill the block tables of payloads that are plain lz4 frames.

    Parameters
    ----------
    buffer : buffer
        The bytes of the file.
    start, end : array of int64
        Payloads, as positions in the buffer.
    unchecked : array of uint8
        Not 0 if the header checksum is ignored (magic 0).
    limit : int
        Payloads whose blocks have room for more bytes are not plain.
    row : int
        The first payload.
    counts : array of int32
        Filled: the number of blocks of each payload; -1 if it is not plain.
    blocks : writable buffer
        Filled: 16 bytes for each block of a plain payload (`BLOCK_DTYPE` of `format/compression.py`).

    Returns
    -------
    row, used : int
        The next payload, len(start) when done, and the number of blocks filled. A payload with more blocks than all of
        ``blocks`` can hold counts as not plain, so that every call makes progress.
    """
    return tables(buffer, start, end, unchecked, limit, row, counts, blocks, False)


def xerial_blocks(buffer, start, end, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Fill the block tables of payloads that are plain xerial snappy streams; parameters as for `lz4_blocks`."""
    return tables(buffer, start, end, None, limit, row, counts, blocks, True)


def zstd_frame(buffer, position: int) -> tuple[int, int, int]:
    """Measure the zstd frame at a position without decompressing it.

    Returns
    -------
    end, declared, most : int
        Position after the frame; its content size, -1 if the header has none; the most bytes that its blocks
        decompress to.

    Raises
    ------
    ValueError
        If there is no whole frame.
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
    """Fill the most decompressed bytes of each payload; -1 unless it is one frame that surely keeps to the limit."""
    fill_rooms(buffer, start, end, limit, rooms, framing.zstd_room)


def gzip_rooms(
    const uint8_t[::1] buffer, const int64_t[::1] start, const int64_t[::1] end, int64_t limit, int64_t[::1] rooms
) -> None:
    """Fill the declared size of each payload; -1 unless it is one member that surely keeps to the limit."""
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


cdef bytes payload_of(quick, failure, Span piece, int64_t room, int64_t first_room):
    """Decompress the piece that is shown, by a library's function; None where that fails or there is no room."""
    if room <= 0:
        return None
    try:
        return quick(piece, min(room, first_room))
    except failure:
        if room <= first_room:
            return None
    try:
        return quick(piece, room)
    except failure:
        return None


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


cdef class Bodies:
    """The bodies that a run fills, and the rows that it leaves to the careful readers."""
    cdef header.Body *all
    cdef int64_t count
    cdef object held
    cdef list late

    def __cinit__(self, uint8_t[::1] bodies, list late):
        self.held, self.late = bodies, late
        self.all = <header.Body *><void *>address(bodies)
        self.count = bodies.shape[0] // <int64_t>sizeof(header.Body)

    cdef int fill(self, int64_t row, int64_t begin, int64_t size) except -1:
        """Set the body of a row, in the arena; a negative size if it cannot be decompressed."""
        if size < 0:
            self.late.append(row)
        elif 0 <= row < self.count:
            self.all[row].place = begin | <int64_t>1 << header.SOURCE_SHIFT
            self.all[row].size = size
        else:
            raise IndexError(f"row {row} is out of range of {self.count} bodies")
        return 0


cdef class Span:
    """A piece of a buffer, itself a buffer of bytes: shown to a library, then moved on.

    A new memory view for every piece would cost more than the call of a library for a short one.
    """
    def __cinit__(self, buffer, bint is_readonly):
        cdef const uint8_t[::1] view = buffer
        self.held, self.is_readonly = view, is_readonly
        self.base, self.total = <uint8_t *>address(view), view.shape[0]
        self.at, self.size = self.base, 0

    cdef int show(self, int64_t begin, int64_t size) except -1:
        if begin < 0 or size < 0 or size > self.total - begin:
            raise IndexError(f"{size} bytes at {begin} are outside of a buffer of {self.total}")
        self.at, self.size = self.base + begin, size
        return 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, self.is_readonly, flags)


cdef class Unpacker:
    """Decompresses payloads of batches of magic 2, one after the other, for one thread.

    Parameters
    ----------
    codec : int
    call, failure : callable, type or tuple of type
        A library's function, as `run_payloads` (zstd, gzip) or `run_blocks` (lz4, snappy) takes it, and what it raises.
    limit : int
        Most bytes of a payload.
    first_room : int
        As of `run_payloads`.
    careful : callable
        ``careful(payload)`` for payloads that are not plain: returns bytes, None of what cannot be decompressed.
    """
    def __cinit__(self, int codec, call, failure, int64_t limit, int64_t first_room, careful):
        if not GZIP <= codec <= ZSTD:
            raise ValueError(f"codec {codec}")
        self.codec, self.call, self.failure, self.careful = codec, call, failure, careful
        self.limit, self.first_room = limit, first_room

    cdef const uint8_t *unpack(self, Span source, int64_t begin, int64_t size, Span target, int64_t used, int64_t *made) except? NULL:
        cdef int64_t room
        cdef int count
        source.show(begin, size)
        made[0], self.data = -1, None
        if self.codec == LZ4 or self.codec == SNAPPY:
            if self.codec == LZ4:
                count = framing.lz4_blocks(source.base, begin, begin + size, True, self.limit, self.blocks, UNPACKER_BLOCKS)
            else:
                count = framing.xerial_blocks(source.base, begin, begin + size, self.limit, self.blocks, UNPACKER_BLOCKS)
            made[0] = self.by_blocks(source, count, target, used)
            if made[0] >= 0:
                return target.base + used
        else:
            if self.codec == ZSTD:
                room = framing.zstd_room(source.at, size, self.limit)
            else:
                room = framing.gzip_room(source.at, size, self.limit)
            self.data = payload_of(self.call, self.failure, source, room, self.first_room)
        if self.data is None:
            source.show(begin, size)
            self.data = self.careful(memoryview(source))
        if self.data is None:
            return NULL
        made[0] = len(self.data)
        return self.data

    cdef int64_t by_blocks(self, Span source, int count, Span target, int64_t used) except -2:
        """Decompress the blocks that were found, back to back; return the bytes, -1 where that fails."""
        cdef const framing.Block *block
        cdef int64_t begin = used, room, made
        cdef int i
        if count < 0:
            return -1
        for i in range(count):
            block = &self.blocks[i]
            room = abs(<int64_t>block.room)
            source.show(block.position, block.size)
            if room > target.total - used:
                return -1
            target.show(used, room)
            if block.room < 0:    # stored
                made = min(source.size, room)
                memcpy(target.at, source.at, made)
            else:
                try:
                    made = self.call(source, target, room) if self.codec == LZ4 else self.call(source, target)
                except self.failure:
                    return -1
                if not 0 <= made <= room or (self.codec == SNAPPY and made != room):
                    return -1
            used += made
        return used - begin


def run_blocks(
    into, failure, const uint8_t[::1] source, uint8_t[::1] target, int64_t used, const uint8_t[::1] blocks, const int32_t[::1] counts,
    const int64_t[::1] rows, int64_t first, uint8_t[::1] bodies, list late, bint exact
) -> tuple[int, int, int]:
    """Decompress payloads block by block by a library's function, back to back.

    Parameters
    ----------
    into : callable
        ``into(block, room)`` or ``into(block, room, size)``, with buffers for a block and its output; returns the
        number of bytes written. After its return the buffers are used for other blocks.
    failure : type or tuple of type
        The errors that it raises.
    source : buffer
        The bytes of the file.
    target : buffer
        The output, from byte `used` on.
    used : int
    blocks : buffer
        As `lz4_blocks` and `xerial_blocks` fill them.
    counts : array of int32
        Number of blocks of each payload, -1 if it is not plain.
    rows : array of int64
        The row of each payload.
    first : int
        The first payload.
    bodies : buffer
        Items of `BODY_DTYPE`. Filled for the row of each payload that was decompressed.
    late : list
        The rows of the others are appended to it.
    exact : bool
        Whether the room of a block is its exact size (snappy) or the most bytes (lz4).

    Returns
    -------
    next, used, needed : int
        The next payload, and the bytes of the target in use. If the target has no room for that payload, the bytes that
        it needs; 0 if all payloads are done.

    Raises
    ------
    ValueError, IndexError
        For arrays of unequal lengths, too high counts of blocks, and rows, payloads or bytes out of range.
    """
    cdef int64_t table = blocks.shape[0] // <int64_t>sizeof(framing.Block)
    cdef const framing.Block *block = <const framing.Block *><const void *>address(blocks)
    cdef int64_t at = 0, begin, end, room, made, payload, i
    cdef Bodies filled = Bodies(bodies, late)
    cdef Span piece = Span(source, True), place = Span(target, False)
    if rows.shape[0] != counts.shape[0]:
        raise ValueError("the arrays differ in length")
    if used < 0 or not 0 <= first <= rows.shape[0]:
        raise IndexError("the first payload or byte is out of range")
    for payload in range(rows.shape[0]):
        begin, end = used, at + max(counts[payload], 0)
        if end > table:
            raise ValueError("the payloads have more blocks than there are")
        if payload < first:
            at = end
            continue
        room = 0
        for i in range(at, end):
            room += abs(<int64_t>block[i].room)
        if room > target.shape[0] - used:
            return payload, used, used + room
        made = 0 if counts[payload] >= 0 else -1
        while at < end and made >= 0:
            room = abs(<int64_t>block[at].room)
            piece.show(block[at].position, block[at].size)
            if block[at].room < 0:
                made = min(piece.size, room)
                memcpy(&target[used], piece.at, made)
            else:
                place.show(used, room)
                try:
                    made = into(piece, place) if exact else into(piece, place, room)
                except failure:
                    made = -1
                if made > room or (exact and made != room):
                    made = -1
            used += max(made, 0)
            at += 1
        at = end
        filled.fill(rows[payload], begin, used - begin if made >= 0 else -1)
        if made < 0:
            used = begin
    return rows.shape[0], used, 0


def run_payloads(
    quick, failure, const uint8_t[::1] source, uint8_t[::1] target, int64_t used, const int64_t[::1] start, const int64_t[::1] end,
    const int64_t[::1] rooms, int64_t first_room, const int64_t[::1] rows, int64_t first, uint8_t[::1] bodies, list late
) -> tuple[int, int, int]:
    """Decompress payloads back to back by a library's function that returns `bytes`.

    Parameters
    ----------
    quick : callable
        ``quick(payload, room)`` with a buffer, which is used for others after its return, and the most bytes.
    start, end : array of int64
        Payloads, as positions in the source.
    rooms : array of int64
        The most bytes of each; a payload without room is skipped.
    first_room : int
        Room to try first if a payload's own is larger, because most payloads need less.

    For the other parameters, the results and the errors see `run_blocks`.
    """
    cdef int64_t payload, room, size
    cdef bytes data
    cdef Bodies filled = Bodies(bodies, late)
    cdef Span piece = Span(source, True)
    if end.shape[0] != rows.shape[0] or rooms.shape[0] != rows.shape[0] or start.shape[0] != rows.shape[0]:
        raise ValueError("the arrays differ in length")
    if used < 0 or not 0 <= first <= rows.shape[0]:
        raise IndexError("the first payload or byte is out of range")
    for payload in range(first, rows.shape[0]):
        data, room = None, rooms[payload]
        if room > 0:
            piece.show(start[payload], end[payload] - start[payload])
            data = payload_of(quick, failure, piece, room, first_room)
        size = len(data) if data else -1
        if size > target.shape[0] - used:
            return payload, used, used + size
        if size > 0:
            memcpy(&target[used], <const uint8_t *>data, size)
        filled.fill(rows[payload], used, size)
        used += max(size, 0)
    return rows.shape[0], used, 0
