"""Look-ups in a segment by offset and by time, and many small reads of the system in one call.

This is the only compiled module that reads files. A hundred system calls from Python take the interpreter's lock a
hundred times and delay other threads; this takes it once. Whoever calls opens the files.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels.ahead cimport Ahead, read_folder_ahead
from pylogseg._native.kernels.headers cimport headers_in, read_headers_of
from pylogseg._native.kernels.readat cimport read_at
from pylogseg._native.kernels.seek cimport (
    ENTRY, MORE_NEEDED, NEAR_BYTES, NOT_READ, NOWHERE, Segment, begin, find, find_time, search_records
)

import os


# ---- places in a segment: of one offset, of many, of a time ----

cdef Segment segment_of(const uint8_t *entries, int64_t entries_size, int64_t count, const uint8_t *log, int64_t log_size, int64_t end) except *:
    cdef Segment s
    if count < 0 or count > entries_size // ENTRY or not 0 <= end <= log_size:
        raise IndexError(f"{count} entries and {end} bytes are not in buffers of {entries_size} and {log_size} bytes")
    begin(&s, entries, count, log, end, -1)
    return s


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


def read_in_file(int descriptor, int64_t end, index not None, int64_t base_offset, int64_t offset, int64_t wanted, bint whole):
    """Like `place`, for a file that is not mapped: headers are read one after the other; then the batch, if it is wanted.

    Parameters
    ----------
    descriptor, end : int
        Of the open file, and its size.
    index : IndexFile
        Its offset index.
    base_offset, offset : int
        As of `place`.
    wanted : int
        Bytes to read from the batch on.
    whole : bool
        Whether to read at least the whole batch, if any bytes are wanted.

    Returns
    -------
    tuple of (int, int, int, bytes)
        As of `place`; a position of -4 if the file is shorter than `end`. Then the bytes, fewer only where `end` is.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    cdef Py_buffer held
    cdef header.BatchRow row
    cdef Segment s
    cdef uint8_t[NEAR_BYTES] near
    cdef const uint8_t *p
    cdef int64_t at, size = 0, wrapped = -1, room = 0, count
    cdef uint8_t *to
    entries, count = index.raw()
    PyObject_GetBuffer(entries, &held, PyBUF_SIMPLE)
    try:
        s = segment_of(<const uint8_t *>held.buf, held.len, count, NULL, end, end)
        s.descriptor, s.near, s.wanted = descriptor, near, max(wanted, 0)
        with nogil:
            at = find(&s, base_offset, offset, &row, &size, &wrapped)
    finally:
        PyBuffer_Release(&held)
    if at >= 0 and wrapped < 0 and wanted > 0:
        room = min(max(wanted, size) if whole else wanted, end - at)
    data = PyBytes_FromStringAndSize(NULL, room)
    if room:
        to = <uint8_t *>PyBytes_AS_STRING(data)
        if s.near_at <= at and at + room <= s.near_at + s.near_size:
            p = near + (at - s.near_at)
            memcpy(to, p, room)
        else:
            with nogil:
                if read_at(descriptor, to, room, at, &s.error) < room:
                    at = NOT_READ
    if at == NOT_READ:
        if s.error:
            raise OSError(s.error, os.strerror(s.error))
        return at, 0, 0, b""
    if wrapped >= 0:
        return wrapped, 0, 0, data
    if at < 0:
        return at, 0, 0, data
    return at, row.base_offset, size, data


def places_in_file(
    int descriptor, int64_t end, index not None, int64_t base_offset,
    const int64_t[::1] offsets not None, int64_t[::1] positions not None, int64_t[::1] base_offsets not None, int64_t[::1] sizes not None
):
    """Like `read_in_file` for many offsets, without their bytes; fills the columns as `places`, returns -4 if the file is shorter."""
    cdef const uint8_t[::1] entries
    cdef int64_t count
    cdef Segment s
    cdef uint8_t[NEAR_BYTES] near
    entries, count = index.raw()
    s = segment_of(&entries[0] if entries.shape[0] else NULL, entries.shape[0], count, NULL, end, end)
    s.descriptor, s.near = descriptor, near
    return fill_places(&s, base_offset, offsets, positions, base_offsets, sizes)


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


def first_at_time_in_file(int descriptor, int64_t end, int64_t start, int64_t timestamp, int64_t lowest_offset):
    """Like `first_at_time`, for a file that is not mapped: only headers are read, and the batches that may have the record.

    Returns
    -------
    tuple of (int, int, int, int)
        As of `first_at_time`, also if a batch is too large to be read here. Without such a record the offset is -2, and
        the position the end of the batches; with -4 the file is shorter than `end`.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    cdef Segment s = segment_of(NULL, 0, 0, NULL, end, end)
    cdef header.BatchRow row
    cdef uint8_t[NEAR_BYTES] near
    cdef int64_t at = start, when = 0, found = 0
    cdef int status
    s.descriptor, s.near = descriptor, near
    with nogil:
        status = find_time(&s, &at, timestamp, lowest_offset, &row, &when, &found)
    if status == NOT_READ and s.error:
        raise OSError(s.error, os.strerror(s.error))
    if status == 1:
        return at, when, found, row.leader_epoch
    if status == 2:
        return at, 0, -1, row.leader_epoch
    return at, 0, status, -1


# ---- read ahead, and headers of a file ----

def read_ahead(bytes path not None):
    """Read the names and sizes in a folder, and what loading a clean log needs, into the system's page cache.

    Parameters
    ----------
    path : bytes
        Path of the folder, in the file system's encoding.

    Returns
    -------
    int
        Number of files read. Unreadable ones are skipped. Always 0 on Windows.
    """
    cdef const char *name = path
    cdef int done
    cdef Ahead *ahead = <Ahead *>malloc(sizeof(Ahead))
    if ahead == NULL:
        return 0
    with nogil:
        done = read_folder_ahead(ahead, name)
    free(ahead)
    return done


def read_headers(int descriptor, int64_t position, int64_t end, int64_t last_offset, uint8_t[::1] out not None):
    """Read the headers of batches of magic 2 that follow one another, and nothing else of them.

    Parameters
    ----------
    descriptor : int
        Of an open file.
    position, end : int
        The first batch, and the end of what may be read.
    last_offset : int
        The batch that has it is the last one.
    out : writable buffer of bytes
        Gets 61 bytes of each batch, as many as there is room for.

    Returns
    -------
    (int, int)
        How many, and the position behind the last of them: before `end`, where no whole batch of magic 2 follows. Always
        0 on Windows.
    """
    cdef int64_t count = 0, room = out.shape[0] // header.V2_HEADER
    if room:
        with nogil:
            count = read_headers_of(descriptor, &position, end, last_offset, &out[0], room)
    return count, position


def mapped_headers(const uint8_t[::1] log not None, int64_t position, int64_t last_offset, uint8_t[::1] out not None):
    """Do the same as `read_headers` in the map of a file.

    Parameters
    ----------
    log : buffer
        The bytes of the file.
    position, last_offset, out
        As of `read_headers`.

    Returns
    -------
    (int, int)
        As of `read_headers`.
    """
    cdef int64_t count = 0, room = out.shape[0] // header.V2_HEADER, end = log.shape[0]
    if position < 0:
        raise IndexError(f"position {position} is before the file")
    if room and position < end:
        with nogil:
            count = headers_in(&log[0], &position, end, last_offset, &out[0], room)
    return count, position
