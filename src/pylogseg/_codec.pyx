"""Bindings of the kernels for varints, checksums, the scan of batch headers, and searches by offset and time.

Functions on buffers: no files, no clock, no state. Each checks its arguments, releases the GIL and turns a status
into a result or one exception. The kernels are in `_native/kernels/`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pylogseg._native.kernels.buffers cimport address
from pylogseg._native.kernels cimport append
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels cimport search as index
from pylogseg._native.kernels cimport varint
from pylogseg._native.kernels.endian cimport load_be32, load_be64
from pylogseg._native.kernels.readat cimport read_at

import os

import numpy as np

checksum.pls_crc_init()


# ---- varints ----

def encode_uvarint(value: int) -> bytes:
    """Encode a 32-bit number as an unsigned varint; a negative one as its two's complement, as in Kafka."""
    if not -(1 << 31) <= value < (1 << 32):
        raise OverflowError(f"{value} does not fit in 32 bits")
    return written(<uint32_t>(value & 0xFFFFFFFF))


def encode_varint(value: int) -> bytes:
    """Encode a signed 32-bit number as a ZigZag varint of 1 to 5 bytes."""
    cdef int32_t number = value
    return written(varint.zigzag(number))


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64-bit number as a ZigZag varint of 1 to 10 bytes."""
    cdef int64_t number = value
    return written(varint.zigzag64(number))


cdef bytes written(uint64_t raw):
    cdef uint8_t[10] out
    cdef uint8_t *end = varint.write_uvarint(out, raw)
    return (<const char *>out)[:end - out]


cdef const uint8_t *cursor_at(const uint8_t[::1] view, int64_t position) except NULL:
    if not 0 <= position <= view.shape[0]:
        raise IndexError(f"position {position} is outside of a buffer of {view.shape[0]} bytes")
    return address(view) + position


cdef refuse(int status, int64_t position, str kind):
    if status == varint.VARINT_SHORT:
        raise ValueError(f"{kind} at position {position} is cut off by the end of the buffer")
    if status == varint.VARINT_LONG:
        raise ValueError(f"{kind} at position {position} is too long: its last byte still has the top bit set")


def decode_uvarint(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode an unsigned 32-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef uint32_t value = 0
    refuse(varint.read_uvarint(&p, address(buffer) + buffer.shape[0], &value), position, "unsigned varint")
    return value, p - address(buffer)


def decode_varint(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode a ZigZag 32-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int32_t value = 0
    refuse(varint.read_varint(&p, address(buffer) + buffer.shape[0], &value), position, "varint")
    return value, p - address(buffer)


def decode_varlong(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode a ZigZag 64-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int64_t value = 0
    refuse(varint.read_varlong(&p, address(buffer) + buffer.shape[0], &value), position, "varlong")
    return value, p - address(buffer)


# ---- checksums ----

def crc32c(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """Compute the CRC-32C of a buffer, continued from the checksum of the bytes before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32c(crc, p, size)
    return crc


def crc32(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """Compute the CRC-32 (IEEE) of a buffer, continued from the checksum of the bytes before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32(crc, p, size)
    return crc


def crc_implementations():
    """Return the names of the implementations for this processor, the fastest first."""
    return [(<bytes>checksum.pls_crc_name(i)).decode() for i in range(checksum.pls_crc_count())]


def use_crc_implementation(name: str):
    """Choose an implementation by name, for tests and benchmarks; return the previous one."""
    cdef bytes encoded = name.encode()
    before = (<bytes>checksum.pls_crc_current()).decode()
    if checksum.pls_crc_use(encoded) != 0:
        raise ValueError(f"no CRC implementation {name!r} on this processor; there are: {', '.join(crc_implementations())}")
    return before


# ---- batches ----

def scan(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t file_position, rows not None, bint crc, bint any_magic=False):
    """Fill rows of `BATCH_DTYPE` from the batches in ``buffer[start:end]``.

    Return (rows filled, position in the buffer at the end, `errors.Ending`). See `format.batches.scan`.
    """
    cdef uint8_t[::1] raw = np.frombuffer(rows, np.uint8)   # faster than a `view` of a structure
    if rows.dtype.itemsize != sizeof(header.BatchRow):
        raise TypeError("rows are not of BATCH_DTYPE")
    if not 0 <= start <= end <= buffer.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {buffer.shape[0]} bytes")
    cdef header.BatchRow *row = <header.BatchRow *>&raw[0] if raw.shape[0] else NULL
    cdef Py_ssize_t room = len(rows), count = 0
    cdef const uint8_t *first = address(buffer)
    cdef const uint8_t *p = first + start
    cdef const uint8_t *stop = first + end
    cdef int64_t size = 0
    cdef int ending
    with nogil:
        while True:
            ending = header.frame(p, stop, &size, any_magic)
            if ending != header.MORE or count == room:
                break
            header.read_header(p, size, row)
            row.position = file_position + (p - first)
            row.verdict = header.UNCHECKED
            if crc:
                row.verdict = header.GOOD if header.crc_holds(p, size) else header.CRC_BAD
            elif size < stop - p >> 2:
                # Batches often have similar sizes: prefetch near the header after the next one.
                header.prefetch(p + 2 * size)
                header.prefetch(p + 2 * size + 60)
            p += size
            row += 1
            count += 1
        if ending > header.MORE and header.is_redpanda(p, stop):
            ending = header.FOREIGN
    return count, p - first, ending


def survey(rows not None):
    """Summarize the rows of a batch table in one pass; there must be at least one. See `format.batches.Summary`."""
    cdef const uint8_t[::1] raw = np.frombuffer(rows, np.uint8)
    if rows.dtype.itemsize != sizeof(header.BatchRow) or not len(rows):
        raise TypeError("rows are not of BATCH_DTYPE, or there are none")
    cdef const header.BatchRow *row = <const header.BatchRow *>&raw[0]
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t last_offset = row.last_offset, base_offset = row.base_offset
    cdef int lowest = row.magic, highest = row.magic, either = row.attributes, both = row.attributes
    cdef bint ascends = row.base_offset >= 0
    with nogil:
        for i in range(count):
            ascends &= row[i].last_offset >= row[i].base_offset
            if i:
                ascends &= row[i].base_offset > row[i - 1].last_offset
            last_offset = min(last_offset, row[i].last_offset)
            base_offset = max(base_offset, row[i].base_offset)
            lowest = min(lowest, row[i].magic)
            highest = max(highest, row[i].magic)
            either |= row[i].attributes
            both &= row[i].attributes
    i = count - 1
    return (last_offset, base_offset, lowest, highest, either, both, ascends,
            row[0].base_offset, row[i].base_offset, row[i].last_offset, row[i].position + row[i].size)


def find_batch(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t lowest_offset,
    int64_t budget,
    int64_t behind,
):
    """Find the next batch at or after `start` that is whole with a valid CRC, or that runs past `end`.

    Parameters
    ----------
    buffer : buffer
    start, end : int
        The bytes to search.
    lowest_offset : int
        Batches below this offset are ignored.
    budget : int
        The most bytes of false candidates to check by CRC: it bounds the work on hostile bytes.
    after : int
        Bytes of the file after `end`. If there are any, a batch may run into them, and the last 60 bytes, which may
        have only part of a header, are not searched.

    Returns
    -------
    position, size : int
        -1 and 0 if there is none. The CRC of a batch that runs past `end` is not checked.
    budget : int
        The rest of the budget; below 0 if the search ended early.
    """
    if behind < 0:
        raise ValueError(f"{behind} bytes after the end")
    if not 0 <= start <= end <= buffer.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {buffer.shape[0]} bytes")
    cdef const uint8_t *first = address(buffer)
    cdef const uint8_t *p = first + start
    cdef const uint8_t *stop = first + end
    cdef int64_t size = 0, found = -1
    cdef int64_t least = header.V2_HEADER if behind else header.V0_SMALLEST
    with nogil:
        while stop - p >= least and budget >= 0:
            if header.plausible(p, stop - p + behind, lowest_offset, &size):
                if size > stop - p or header.crc_holds(p, size):
                    found = p - first
                    break
                budget -= size
            p = header.next_place(p, stop)
    return found, size if found >= 0 else 0, budget


# ---- indexes ----

cdef const uint8_t *keys_of(const uint8_t[::1] buffer, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count) except NULL:
    if key_size not in (4, 8) or entry_size < 1 or not 0 <= key_at <= entry_size - key_size:
        raise ValueError(f"a key of {key_size} bytes at {key_at} does not fit into entries of {entry_size} bytes")
    if count < 0 or count > buffer.shape[0] // entry_size:
        raise IndexError(f"{count} entries of {entry_size} bytes do not fit into a buffer of {buffer.shape[0]} bytes")
    return address(buffer) + key_at


def search(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """Find the slot of a key among `count` sorted big-endian entries, in place.

    Parameters
    ----------
    buffer : buffer
        The index; slot 0 is at its first byte.
    entry_size, key_at, key_size : int
        Bytes of an entry; position and width (4 or 8) of the key in it, which is signed.
    count : int
        Valid entries.
    key : int
        The key to find.
    ceiling : bool
        Find the first entry >= `key` (`count` if there is none) instead of the last entry <= `key` (-1 if there is none).
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    if ceiling:
        return index.first_at_least(keys, entry_size, <int>key_size, count, key)
    return index.floor_slot(keys, entry_size, <int>key_size, count, key)


def search_as_broker(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """Find the slot that a broker finds for a key, also in an index with unsorted entries, as after a crash.

    Parameters as for `search`. If there is no entry, return -1, also for a ceiling.
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    return index.brokers_slot(keys, entry_size, <int>key_size, count, key, 8192 // entry_size, ceiling)


def search_many(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, const int64_t[::1] keys not None, bint ceiling=False
):
    """Find the slots of an array of keys, as `search` does; return an int64 array."""
    cdef const uint8_t *first = keys_of(buffer, entry_size, key_at, key_size, count)
    out = np.empty(keys.shape[0], np.int64)
    cdef int64_t[::1] slots = out
    cdef int64_t[index.LANES] below
    cdef Py_ssize_t i = 0, lane, total = keys.shape[0]
    with nogil:
        while total - i >= index.LANES:
            index.count_below(first, entry_size, <int>key_size, count, &keys[i], not ceiling, below)
            for lane in range(index.LANES):
                slots[i + lane] = below[lane] if ceiling else below[lane] - 1
            i += index.LANES
        while i < total:
            if ceiling:
                slots[i] = index.first_at_least(first, entry_size, <int>key_size, count, keys[i])
            else:
                slots[i] = index.floor_slot(first, entry_size, <int>key_size, count, keys[i])
            i += 1
    return out


def frames(data not None):
    """Find where the batches of a buffer begin, as a broker takes them from a request.

    Parameters
    ----------
    data : buffer

    Returns
    -------
    starts : numpy.ndarray of int64
        The start of each whole batch, and the end of the last one.
    is_cut : bool
        Whether the beginning of a batch follows. If not, nothing follows (the last start is the end) or no batch.
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B") if len(data) else b""
    cdef const uint8_t *p = &view[0] if view.shape[0] else NULL
    cdef int64_t length = view.shape[0], at, size = 0, count = 0, i
    cdef int ending = header.MORE
    cdef int64_t[::1] starts
    with nogil:
        at = 0
        while at < length:
            ending = append.next_frame(p + at, p + length, &size)
            if ending != header.MORE:
                break
            at += size
            count += 1
    found = np.empty(count + 1, np.int64)
    starts = found
    with nogil:
        at = 0
        for i in range(count):
            starts[i] = at
            if append.next_frame(p + at, p + length, &size) == header.MORE:  # safe also if the buffer changes meanwhile
                at += size
        starts[count] = at
    return found, ending == header.COMPLETE and at < length


# ---- places in a segment: of one offset, of many, of a time ----

# One call reads the offset index and the file of batches. Both may be maps of files: every position is compared with
# the published end before it is followed.
cdef enum:
    ENTRY = 8                  # bytes of an entry of an offset index: relative offset, position
    WARM_BYTES = 8192          # of the end of an index, which a broker searches first
    NONE = -1                  # no batch reaches the offset
    DAMAGED = -2               # an invalid length on the way
    MORE_NEEDED = -3           # more bytes of the file are needed
    NOT_READ = -4              # the system refused, or the file is shorter than it was
    HEADER = 64                # bytes that hold the header of any batch

cdef struct Segment:
    const uint8_t *entries
    int64_t count
    const uint8_t *log         # NULL: headers are read from a file, one at a time
    int64_t seen               # available bytes of the file
    int64_t end                # size of the whole file
    int descriptor
    int error                  # of the system, 0 for a file that is shorter
    uint8_t[2][HEADER] headers # of the batch before, and of the one at hand


cdef Segment segment_of(const uint8_t *entries, int64_t entries_size, int64_t count, const uint8_t *log, int64_t log_size, int64_t end) except *:
    cdef Segment s
    if count < 0 or count > entries_size // ENTRY or not 0 <= end <= log_size:
        raise IndexError(f"{count} entries and {end} bytes are not in buffers of {entries_size} and {log_size} bytes")
    s.entries, s.count, s.log, s.seen, s.end, s.descriptor, s.error = entries, count, log, end, end, -1, 0
    return s


cdef inline int64_t last_offset(const uint8_t *p, int64_t size, header.BatchRow *row) noexcept nogil:
    header.read_header(p, size, row)
    return row.last_offset


cdef const uint8_t *header_at(Segment *s, int64_t at, int turn) noexcept nogil:
    """The header of the batch at a position; NULL if it cannot be read. That of the turn before stays."""
    cdef int64_t wanted = min(HEADER, s.end - at)
    if s.log != NULL or wanted <= 0:
        return s.log + at if s.log != NULL else s.headers[turn]
    if read_at(s.descriptor, s.headers[turn], wanted, at, &s.error) < wanted:
        return NULL
    return s.headers[turn]


cdef int64_t find(Segment *s, int64_t base_offset, int64_t offset, header.BatchRow *row, int64_t *size, int64_t *wrapped) noexcept nogil:
    """Return the position of the batch that a broker finds for `offset`, from the index entry on; else NONE or DAMAGED.

    That is the first batch that begins at or after the offset, or the batch before it, if that reaches the
    offset. So a broker reads one batch more than the one that it finds, and fails on damage there. A compressed
    batch of magic 0 or 1 only has its last offset; its first offset needs decompression: `wrapped` is
    then the position of the first possible batch, else -1.

    MORE_NEEDED if needed bytes are missing: then `wrapped` is where to begin, and `size` how many bytes it takes.
    """
    cdef int64_t slot = -1, at = 0, before = -1, before_size = 0, base, there
    cdef bint in_file = s.log == NULL
    cdef bint is_part = s.seen < s.end
    cdef bint wrapper
    cdef int status, turn = 0
    cdef const uint8_t *p
    cdef const uint8_t *p_before = NULL
    if s.count and offset >= base_offset:
        slot = index.brokers_slot(s.entries, ENTRY, 4, s.count, <int64_t>(<uint64_t>offset - <uint64_t>base_offset), WARM_BYTES // ENTRY, False)
    if slot >= 0:
        at = <int32_t>load_be32(s.entries + slot * ENTRY + 4)
    wrapped[0] = -1
    if not 0 <= at <= s.end:
        return NONE
    while True:
        if is_part and s.seen - at < header.V2_HEADER:
            return more_needed(s, offset, at, header.V2_HEADER, before, before_size, row, size, wrapped)
        p = header_at(s, at, turn)
        if p == NULL:
            return NOT_READ
        there = min(HEADER, s.end - at) if in_file else s.seen - at
        status = header.frame(p, p + there, size, True)
        if (is_part or in_file) and status == header.TORN and there >= header.PREFIX and size[0] <= s.end - at:
            status = header.MORE
        if status != header.MORE:
            break
        base = <int64_t>load_be64(p)
        wrapper = p[header.MAGIC_AT] < 2 and p[header.MAGIC_AT + 1] & header.CODEC_MASK
        if base >= offset:
            if wrapper:
                wrapped[0] = before if before >= 0 else at
            if (wrapper or base > offset) and before >= 0 and last_offset(p_before, before_size, row) >= offset:
                size[0] = before_size
                return before
            if is_part and size[0] > s.seen - at:
                return more_needed(s, offset, at, size[0], before, before_size, row, size, wrapped)
            header.read_header(p, size[0], row)
            return at
        before, before_size, p_before = at, size[0], p
        at += before_size
        turn ^= 1
    if (status == header.BAD_LENGTH or status == header.ZEROS) and s.end - at > header.PREFIX and size[0] < header.V0_SMALLEST:
        return DAMAGED
    if before >= 0 and last_offset(p_before, before_size, row) >= offset:
        size[0] = before_size
        return before
    return NONE


cdef int64_t more_needed(
    const Segment *s, int64_t offset, int64_t at, int64_t least, int64_t before, int64_t before_size, header.BatchRow *row, int64_t *size, int64_t *begin
) noexcept nogil:
    """Ask for this many bytes of the batch at a position, and for the batch before it, if that may be the result."""
    begin[0], size[0] = at, least
    if before >= 0 and last_offset(s.log + before, before_size, row) >= offset:
        begin[0], size[0] = before, at - before + least
    return MORE_NEEDED


cdef inline tuple found_place(int64_t at, int64_t wrapped, const header.BatchRow *row, int64_t size):
    if wrapped >= 0:
        return wrapped, 0, 0
    if at < 0:
        return at, 0, 0
    return at, row.base_offset, size


def place(entries not None, int64_t count, log not None, int64_t end, int64_t base_offset, int64_t offset):
    """Find the batch that a broker finds for an offset: the one that contains it, or the next.

    Parameters
    ----------
    entries : buffer
        The offset index.
    count : int
        Number of its entries.
    log : buffer
        The file of batches.
    end : int
        Size of the file.
    base_offset : int
        Base offset of the segment.
    offset : int
        The offset to find.

    Returns
    -------
    tuple of (int, int, int)
        Position, base offset and size; position -1 if there is none, and -2 at an invalid length on the way, up to the
        batch after the one to find. Size 0 means that batches of magic 0 or 1 have to be decompressed to tell, from the
        one at the position on. The CRC is not checked, and a magic above 2 counts as 2.
    """
    # Buffers are taken by hand: for one read that is faster than typed views.
    cdef Py_buffer index_bytes, log_bytes
    cdef header.BatchRow row
    cdef Segment s
    cdef int64_t at, size = 0, wrapped = -1
    PyObject_GetBuffer(entries, &index_bytes, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &log_bytes, PyBUF_SIMPLE)
        try:
            s = segment_of(<const uint8_t *>index_bytes.buf, index_bytes.len, count, <const uint8_t *>log_bytes.buf, log_bytes.len, end)
            at = find(&s, base_offset, offset, &row, &size, &wrapped)
        finally:
            PyBuffer_Release(&log_bytes)
    finally:
        PyBuffer_Release(&index_bytes)
    return found_place(at, wrapped, &row, size)


def place_in_part(const uint8_t[::1] log not None, int64_t end, int64_t offset):
    """Do the same in a part of a file that begins with a batch.

    Parameters
    ----------
    log : buffer
        The bytes of the part.
    end : int
        Size of the file from the part's start on, which may be larger than the part.
    offset : int
        The offset to find.

    Returns
    -------
    tuple of (int, int, int)
        As for `place`; a found batch is whole in the bytes. A first item of -3 means that more bytes are needed: from
        the second item on, and at least as many as the third.
    """
    if end < log.shape[0]:
        raise IndexError(f"{log.shape[0]} bytes are more than a file of {end}")
    cdef Segment s = segment_of(NULL, 0, 0, &log[0] if log.shape[0] else NULL, end, end)
    cdef header.BatchRow row
    cdef int64_t size = 0, wrapped = -1, at
    s.seen = log.shape[0]
    with nogil:
        at = find(&s, 0, offset, &row, &size, &wrapped)
    if at == MORE_NEEDED:
        return at, wrapped, size
    return found_place(at, wrapped, &row, size)


def places(
    const uint8_t[::1] entries not None, int64_t count, const uint8_t[::1] log not None, int64_t end, int64_t base_offset,
    const int64_t[::1] offsets not None, int64_t[::1] positions not None, int64_t[::1] base_offsets not None, int64_t[::1] sizes not None
):
    """Do the same as `place` for many offsets; fill positions (-1 none, -2 damage), base offsets and sizes."""
    cdef Segment s = segment_of(
        &entries[0] if entries.shape[0] else NULL, entries.shape[0], count, &log[0] if log.shape[0] else NULL, log.shape[0], end
    )
    fill_places(&s, base_offset, offsets, positions, base_offsets, sizes)


cdef int64_t fill_places(
    Segment *s, int64_t base_offset, const int64_t[::1] offsets, int64_t[::1] positions, int64_t[::1] base_offsets, int64_t[::1] sizes
) except *:
    cdef header.BatchRow row
    cdef int64_t size = 0, wrapped = -1, found = 0, i
    if min(positions.shape[0], base_offsets.shape[0], sizes.shape[0]) < offsets.shape[0]:
        raise ValueError("a column is too short")
    with nogil:
        for i in range(offsets.shape[0]):
            found = find(s, base_offset, offsets[i], &row, &size, &wrapped)
            if found == NOT_READ:
                break
            if found < 0:
                row.base_offset, size = -1, 0
            positions[i], base_offsets[i], sizes[i] = found, row.base_offset, size
    if found == NOT_READ and s.error:
        raise OSError(s.error, os.strerror(s.error))
    return NOT_READ if found == NOT_READ else 0


def place_in_file(int descriptor, const uint8_t[::1] entries not None, int64_t count, int64_t end, int64_t base_offset, int64_t offset):
    """Like `place`, for a file that is not mapped: only headers are read, one after the other.

    Parameters
    ----------
    descriptor : int
        Of the open file.
    entries, count, end, base_offset, offset
        As of `place`.

    Returns
    -------
    tuple of (int, int, int)
        As of `place`; a position of -4 if the file is shorter than `end`.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    cdef Segment s = segment_in_file(descriptor, entries, count, end)
    cdef header.BatchRow row
    cdef int64_t at, size = 0, wrapped = -1
    with nogil:
        at = find(&s, base_offset, offset, &row, &size, &wrapped)
    if at == NOT_READ and s.error:
        raise OSError(s.error, os.strerror(s.error))
    return found_place(at, wrapped if at != NOT_READ else -1, &row, size)


def places_in_file(
    int descriptor, const uint8_t[::1] entries not None, int64_t count, int64_t end, int64_t base_offset,
    const int64_t[::1] offsets not None, int64_t[::1] positions not None, int64_t[::1] base_offsets not None, int64_t[::1] sizes not None
):
    """Like `place_in_file` for many offsets; fills the columns as `places` does, and returns -4 if the file is shorter."""
    cdef Segment s = segment_in_file(descriptor, entries, count, end)
    return fill_places(&s, base_offset, offsets, positions, base_offsets, sizes)


cdef Segment segment_in_file(int descriptor, const uint8_t[::1] entries, int64_t count, int64_t end) except *:
    cdef Segment s = segment_of(&entries[0] if entries.shape[0] else NULL, entries.shape[0], count, NULL, end, end)
    s.descriptor = descriptor
    return s


def first_at_time(const uint8_t[::1] log not None, int64_t start, int64_t end, int64_t timestamp, int64_t lowest_offset):
    """Find the first record that is not older than a timestamp and not below an offset.

    Parameters
    ----------
    log : buffer
        The file of batches.
    start, end : int
        The position of a batch to start from, and the size of the file.
    timestamp : int
    lowest_offset : int

    Returns
    -------
    tuple of (int, int, int, int) or None
        Position of its batch, timestamp, offset, and leader epoch. Offset -1 means that only a reader that decompresses,
        or reads older formats, can tell whether the record is in this batch. None if there is no such record.
    """
    cdef int64_t at = start, size = 0, found = -1, when = 0
    cdef header.BatchRow row
    cdef int status = 0
    if not 0 <= start <= end <= log.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {log.shape[0]} bytes")
    cdef const uint8_t *p = &log[0] if end else NULL
    with nogil:
        while at < end and header.frame(p + at, p + end, &size, True) == header.MORE:
            header.read_header(p + at, size, &row)
            if row.max_timestamp >= timestamp:
                status = search_records(p + at, size, &row, timestamp, lowest_offset, &when, &found)
                if status != 0:
                    break
            at += size
    if status == 0:
        return None
    return at, when, found if status == 1 else -1, row.leader_epoch


cdef int search_records(
    const uint8_t *p, int64_t size, const header.BatchRow *row, int64_t timestamp, int64_t lowest, int64_t *when, int64_t *found
) noexcept nogil:
    """Return 1 if the record is in the batch, 0 if not, 2 if that is not known here."""
    cdef record.Walk w
    cdef record.Columns one
    cdef bint stamped = row.attributes & header.LOG_APPEND_TIME != 0
    cdef int64_t offset = 0, time = 0, place_ = 0
    cdef int32_t time_delta = 0, delta = 0, key_size = 0, value_size = 0, header_count = 0, number = 0, i
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef const uint8_t *next
    if row.magic < 2 or row.attributes & header.CODEC_MASK:
        return 2
    w.p = w.origin = p + header.V2_HEADER
    w.end = p + size
    w.source = 0
    one.offset = &offset
    one.timestamp = &time
    one.key_place = one.value_place = one.headers_place = &place_
    one.key_size = &key_size
    one.value_size = &value_size
    one.header_count = &header_count
    one.batch = &number
    for i in range(row.count):
        next = record.plain_record(w.p, w.end, &time_delta, &delta, &key, &key_size, &value, &value_size)
        if next != NULL:
            w.p = next
            offset = <int64_t>(<uint64_t>row.base_offset + <uint64_t>delta)
            time = <int64_t>(<uint64_t>row.base_timestamp + <uint64_t>time_delta)
        elif record.any_record(&w, row, &one, 0) != record.RECORD_OK:
            return 2
        if stamped:
            time = row.max_timestamp
        if time >= timestamp and offset >= lowest:
            when[0], found[0] = time, offset
            return 1
    return 0
