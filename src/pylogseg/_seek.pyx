"""The compiled door to places in a segment: of one offset, of many, of a time.

Offset index and file of batches are looked at in one call. Both are maps of files: every position is compared with the
end that was published before it is followed.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pylogseg._kernels cimport batch as header
from pylogseg._kernels cimport record
from pylogseg._kernels cimport search as index
from pylogseg._kernels.endian cimport load_be32

import numpy as np

cdef enum:
    ENTRY = 8                  # bytes of an entry of an offset index: relative offset, position
    WARM_BYTES = 8192          # of the end of an index, which a broker searches first

cdef struct Segment:
    const uint8_t *entries
    int64_t count
    const uint8_t *log
    int64_t end


cdef Segment segment_of(const uint8_t *entries, int64_t entries_size, int64_t count, const uint8_t *log, int64_t log_size, int64_t end) except *:
    cdef Segment s
    if count < 0 or count > entries_size // ENTRY or not 0 <= end <= log_size:
        raise IndexError(f"{count} entries and {end} bytes are not in buffers of {entries_size} and {log_size} bytes")
    s.entries, s.count, s.log, s.end = entries, count, log, end
    return s


cdef int64_t find(const Segment *s, int64_t base_offset, int64_t offset, int64_t start, header.BatchRow *row, int64_t *size) noexcept nogil:
    """Position of the first whole batch from the index entry on, or from `start`, whose last offset is not below `offset`; -1 none."""
    cdef int64_t slot = -1, at = 0
    if s.count and offset >= base_offset:
        slot = index.brokers_slot(s.entries, ENTRY, 4, s.count, <int64_t>(<uint64_t>offset - <uint64_t>base_offset), WARM_BYTES // ENTRY, False)
    if slot >= 0:
        at = <int32_t>load_be32(s.entries + slot * ENTRY + 4)
    if at < start:
        at = start
    while 0 <= at < s.end and header.frame(s.log + at, s.log + s.end, size, True) == header.MORE:
        header.read_header(s.log + at, size[0], row)
        if row.last_offset >= offset:
            return at
        at += size[0]
    return -1


def place(entries not None, int64_t count, log not None, int64_t end, int64_t base_offset, int64_t offset, int64_t start=0):
    """The first batch whose last offset is not below an offset.

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
    start : int
        Batches in front of this position are passed by.

    Returns
    -------
    tuple of (int, int, int, int)
        Position, base offset, last offset and size; position -1 if there is none. A compressed legacy wrapper gives its
        own offset for both. The CRC is not looked at, a magic above 2 counts as 2.
    """
    # By hand: it takes a read at an offset less time than typed views.
    cdef Py_buffer index_bytes, log_bytes
    cdef header.BatchRow row
    cdef Segment s
    cdef int64_t at, size = 0
    PyObject_GetBuffer(entries, &index_bytes, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &log_bytes, PyBUF_SIMPLE)
        try:
            s = segment_of(<const uint8_t *>index_bytes.buf, index_bytes.len, count, <const uint8_t *>log_bytes.buf, log_bytes.len, end)
            at = find(&s, base_offset, offset, start, &row, &size)
        finally:
            PyBuffer_Release(&log_bytes)
    finally:
        PyBuffer_Release(&index_bytes)
    if at < 0:
        return -1, 0, 0, 0
    return at, row.base_offset, row.last_offset, size


def places(
    const uint8_t[::1] entries not None, int64_t count, const uint8_t[::1] log not None, int64_t end, int64_t base_offset,
    const int64_t[::1] offsets not None, int64_t[::1] positions not None, int64_t[::1] base_offsets not None, int64_t[::1] sizes not None
):
    """Like `place` for many offsets; fills positions (-1 none), base offsets and sizes."""
    cdef Segment s = segment_of(
        &entries[0] if entries.shape[0] else NULL, entries.shape[0], count, &log[0] if log.shape[0] else NULL, log.shape[0], end
    )
    cdef header.BatchRow row
    cdef int64_t size = 0, i
    if min(positions.shape[0], base_offsets.shape[0], sizes.shape[0]) < offsets.shape[0]:
        raise ValueError("a column is too short")
    with nogil:
        for i in range(offsets.shape[0]):
            positions[i] = find(&s, base_offset, offsets[i], 0, &row, &size)
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
    w.source = w.headers = 0
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
