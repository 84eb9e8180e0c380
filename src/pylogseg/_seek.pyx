"""The compiled door to places in a segment: of one offset, of many, of a time.

Offset index and file of batches are looked at in one call, or a part of the file alone. Every position is compared with
the end that was published before it is followed, and with the end of the part before it is read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pylogseg._kernels cimport batch as header
from pylogseg._kernels cimport record
from pylogseg._kernels cimport search as index
from pylogseg._kernels.endian cimport load_be32, load_be64

import numpy as np

cdef enum:
    ENTRY = 8                  # bytes of an entry of an offset index: relative offset, position
    WARM_BYTES = 8192          # of the end of an index, which a broker searches first
    NONE = -1                  # no batch reaches the offset
    DAMAGED = -2               # a length on the way that no batch has
    MORE_NEEDED = -3           # bytes behind those that are there

cdef struct Segment:
    const uint8_t *entries
    int64_t count
    const uint8_t *log
    int64_t seen               # bytes of the file that are there
    int64_t end                # of all of it


cdef Segment segment_of(const uint8_t *entries, int64_t entries_size, int64_t count, const uint8_t *log, int64_t log_size, int64_t end) except *:
    cdef Segment s
    if count < 0 or count > entries_size // ENTRY or not 0 <= end <= log_size:
        raise IndexError(f"{count} entries and {end} bytes are not in buffers of {entries_size} and {log_size} bytes")
    s.entries, s.count, s.log, s.seen, s.end = entries, count, log, end, end
    return s


cdef inline int64_t last_offset(const Segment *s, int64_t at, int64_t size, header.BatchRow *row) noexcept nogil:
    header.read_header(s.log + at, size, row)
    return row.last_offset


cdef int64_t find(const Segment *s, int64_t base_offset, int64_t offset, header.BatchRow *row, int64_t *size, int64_t *wrapped) noexcept nogil:
    """Position of the batch that a broker finds for `offset`, from the index entry on; else NONE or DAMAGED.

    That is the first batch that begins at the offset or behind it, or the one in front of that one, if it reaches the
    offset. So a broker looks one batch farther than the one that it finds, and meets what is damaged there. A compressed
    batch of magic 0 or 1 tells its last offset; where it begins, only a reader that decompresses can say: `wrapped` is
    then the position of the first batch in question, else -1.

    Where bytes are missing that it depends on, MORE_NEEDED: `wrapped` is where to begin then, and `size` how much it takes.
    """
    cdef int64_t slot = -1, at = 0, before = -1, before_size = 0, base
    cdef bint is_part = s.seen < s.end
    cdef bint wrapper
    cdef int status
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
        status = header.frame(s.log + at, s.log + s.seen, size, True)
        if is_part and status == header.TORN and size[0] <= s.end - at:
            status = header.MORE
        if status != header.MORE:
            break
        base = <int64_t>load_be64(s.log + at)
        wrapper = s.log[at + header.MAGIC_AT] < 2 and s.log[at + header.MAGIC_AT + 1] & header.CODEC_MASK
        if base >= offset:
            if wrapper:
                wrapped[0] = before if before >= 0 else at
            if (wrapper or base > offset) and before >= 0 and last_offset(s, before, before_size, row) >= offset:
                size[0] = before_size
                return before
            if size[0] > s.seen - at:
                return more_needed(s, offset, at, size[0], before, before_size, row, size, wrapped)
            header.read_header(s.log + at, size[0], row)
            return at
        before, before_size = at, size[0]
        at += before_size
    if (status == header.BAD_LENGTH or status == header.ZEROS) and s.end - at > header.PREFIX and size[0] < header.V0_SMALLEST:
        return DAMAGED
    if before >= 0 and last_offset(s, before, before_size, row) >= offset:
        size[0] = before_size
        return before
    return NONE


cdef int64_t more_needed(
    const Segment *s, int64_t offset, int64_t at, int64_t least, int64_t before, int64_t before_size, header.BatchRow *row, int64_t *size, int64_t *begin
) noexcept nogil:
    """So many bytes of the batch at a position; the one before it too, if that may be the one."""
    begin[0], size[0] = at, least
    if before >= 0 and last_offset(s, before, before_size, row) >= offset:
        begin[0], size[0] = before, at - before + least
    return MORE_NEEDED


def place(entries not None, int64_t count, log not None, int64_t end, int64_t base_offset, int64_t offset):
    """The batch that a broker finds for an offset: the one that holds it, or the next.

    Parameters
    ----------
    entries : buffer
        The offset index.
    count : int
        Its entries.
    log : buffer
        The file of batches.
    end : int
        Its size.
    base_offset : int
        Of the segment.
    offset : int
        Looked for.

    Returns
    -------
    tuple of (int, int, int)
        Position, base offset and size; position -1 if there is none, and -2 if a length that no batch has
        lies on the way, of which the batch behind the one looked for is the last. A size of 0: batches of magic 0 or 1
        have to be opened to tell, from the one at the position on. The CRC is not looked at, a magic above 2 counts as 2.
    """
    # By hand: it takes a read at an offset less time than typed views.
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
    if wrapped >= 0:
        return wrapped, 0, 0
    if at < 0:
        return at, 0, 0
    return at, row.base_offset, size


def place_in_part(const uint8_t[::1] log not None, int64_t end, int64_t offset):
    """The same in some bytes of a file, which begin with a batch.

    Parameters
    ----------
    log : buffer
        The bytes.
    end : int
        Size of all that lies there, and maybe is not among the bytes.
    offset : int
        Looked for.

    Returns
    -------
    tuple of (int, int, int)
        As `place` has it; all of a batch that is found is among the bytes. A first item of -3: more bytes are needed,
        those from the second item on, and at least as many as the third one says, though maybe not all that `end` allows.
    """
    if end < log.shape[0]:
        raise IndexError(f"a file of {end} bytes does not have {log.shape[0]}")
    cdef Segment s = segment_of(NULL, 0, 0, &log[0] if log.shape[0] else NULL, end, end)
    cdef header.BatchRow row
    cdef int64_t size = 0, wrapped = -1, at
    s.seen = log.shape[0]
    with nogil:
        at = find(&s, 0, offset, &row, &size, &wrapped)
    if at == MORE_NEEDED:
        return at, wrapped, size
    if wrapped >= 0:
        return wrapped, 0, 0
    if at < 0:
        return at, 0, 0
    return at, row.base_offset, size


def places(
    const uint8_t[::1] entries not None, int64_t count, const uint8_t[::1] log not None, int64_t end, int64_t base_offset,
    const int64_t[::1] offsets not None, int64_t[::1] positions not None, int64_t[::1] base_offsets not None, int64_t[::1] sizes not None
):
    """Like `place` for many offsets; fills positions (-1 none, -2 damage), base offsets and sizes."""
    cdef Segment s = segment_of(
        &entries[0] if entries.shape[0] else NULL, entries.shape[0], count, &log[0] if log.shape[0] else NULL, log.shape[0], end
    )
    cdef header.BatchRow row
    cdef int64_t size = 0, wrapped = -1, i
    if min(positions.shape[0], base_offsets.shape[0], sizes.shape[0]) < offsets.shape[0]:
        raise ValueError("a column is too short")
    with nogil:
        for i in range(offsets.shape[0]):
            positions[i] = find(&s, base_offset, offsets[i], &row, &size, &wrapped)
            if positions[i] < 0:
                row.base_offset, size = -1, 0
            base_offsets[i] = row.base_offset
            sizes[i] = size


def first_at_time(const uint8_t[::1] log not None, int64_t start, int64_t end, int64_t timestamp, int64_t lowest_offset):
    """The first record that is not older than a timestamp and not below an offset.

    Parameters
    ----------
    log : buffer
        The file of batches.
    start, end : int
        Where to begin, at a batch, and the size of the file.
    timestamp : int
    lowest_offset : int

    Returns
    -------
    tuple of (int, int, int, int) or None
        Position of its batch, timestamp, offset, and leader epoch. An offset of -1: only a reader that decompresses, or
        knows older formats, can tell whether the record is in this batch. None if there is no such record.
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
    """1 if the record is in the batch, 0 if not, 2 if that cannot be told here."""
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
