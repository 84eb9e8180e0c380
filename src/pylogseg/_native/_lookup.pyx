"""Look-ups in a segment by offset and by time, and many small reads of the system in one call.

This is the only compiled module that reads files. A hundred system calls from Python take the interpreter's lock a
hundred times and delay other threads; this takes it once. Whoever calls opens the files.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels cimport search as searching
from pylogseg._native.kernels.ahead cimport Ahead, read_folder_ahead
from pylogseg._native.kernels.endian cimport load_be32, load_be64
from pylogseg._native.kernels.headers cimport headers_in, read_headers_of
from pylogseg._native.kernels.readat cimport read_at

import os


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
    NOWHERE = -2               # of a record
    KEPT = 4                   # headers; a search needs up to three
    HEADER = 64                # bytes that hold the header of any batch
    NEAR_BYTES = 1 << 15       # a batch up to this size is read on the stack
    FEW_BYTES = 1 << 10        # after a batch up to this size, several headers are read at once
    SOME_BYTES = 1 << 12       # as many bytes

cdef struct Segment:
    const uint8_t *entries
    int64_t count
    const uint8_t *log         # NULL: headers are read from a file, one at a time
    int64_t seen               # available bytes of the file
    int64_t end                # size of the whole file
    int descriptor
    int error                  # of the system, 0 for a file that is shorter
    uint8_t[KEPT][HEADER] headers   # that were read last: the next offset may need them too
    int64_t[KEPT] kept         # their positions; -1 none
    int newest, oldest
    uint8_t *near              # NEAR_BYTES for what lies behind a header; NULL: headers are read alone
    int64_t near_at, near_size # what was read there
    int64_t before_size        # of the batch before the next header: the next one has about as many bytes
    int64_t wanted             # bytes from the found batch on


cdef Segment segment_of(const uint8_t *entries, int64_t entries_size, int64_t count, const uint8_t *log, int64_t log_size, int64_t end) except *:
    cdef Segment s
    cdef int i
    if count < 0 or count > entries_size // ENTRY or not 0 <= end <= log_size:
        raise IndexError(f"{count} entries and {end} bytes are not in buffers of {entries_size} and {log_size} bytes")
    s.entries, s.count, s.log, s.seen, s.end, s.descriptor, s.error = entries, count, log, end, end, -1, 0
    s.newest, s.oldest = 0, 1
    s.near, s.near_at, s.near_size, s.before_size, s.wanted = NULL, 0, 0, 0, 0
    for i in range(KEPT):
        s.kept[i] = -1
    return s


cdef inline int64_t last_offset(const uint8_t *p, int64_t size, header.BatchRow *row) noexcept nogil:
    header.read_header(p, size, row)
    return row.last_offset


cdef const uint8_t *header_at(Segment *s, int64_t at) noexcept nogil:
    """The header of the batch at a position; NULL if it cannot be read. That of the call before stays."""
    cdef int64_t wanted = min(HEADER, s.end - at)
    cdef const uint8_t *p
    cdef int i
    if s.log != NULL:
        return s.log + at
    for i in range(KEPT):
        if s.kept[i] == at:
            s.newest = i
            return s.headers[i]
    i = s.oldest if s.oldest != s.newest else (s.oldest + 1) % KEPT
    s.kept[i] = -1
    if wanted > 0:
        p = near_bytes(s, at, wanted)
        if p != NULL:
            memcpy(s.headers[i], p, wanted)
        elif read_at(s.descriptor, s.headers[i], wanted, at, &s.error) < wanted:
            return NULL
    s.newest, s.oldest, s.kept[i] = i, (i + 1) % KEPT, at
    return s.headers[i]


cdef const uint8_t *near_bytes(Segment *s, int64_t at, int64_t size) noexcept nogil:
    """Bytes at a position, read together with what a search needs next if that is likely to be worth it; else NULL.

    A header alone takes as long as 2 KiB. What cannot be read behind it is no error yet.
    """
    cdef int64_t ahead = 0
    if s.near_at <= at and at + size <= s.near_at + s.near_size:
        return s.near + (at - s.near_at)
    if s.near == NULL or s.before_size == 0:
        return NULL
    if s.wanted:               # the batch, and the header after it
        ahead = max(s.wanted, s.before_size + (s.before_size >> 3)) + HEADER
    if s.before_size <= FEW_BYTES:
        ahead = max(ahead, SOME_BYTES)
    ahead = min(ahead, s.end - at)
    if not size < ahead <= NEAR_BYTES:
        return NULL
    s.near_at, s.near_size = at, read_at(s.descriptor, s.near, ahead, at, &s.error)
    return s.near if s.near_size >= size else NULL


cdef inline int framed(const uint8_t *p, int64_t seen, int64_t left, int64_t *size) noexcept nogil:
    """Do as `frame` for a batch of which only the first bytes are seen, and that is whole if as many are left as it has."""
    cdef int status = header.frame(p, p + seen, size, True)
    return header.MORE if status == header.TORN and seen >= header.PREFIX and size[0] <= left else status


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
    cdef int status
    cdef const uint8_t *p
    cdef const uint8_t *p_before = NULL
    if s.count and offset >= base_offset:
        slot = searching.brokers_slot(s.entries, ENTRY, 4, s.count, <int64_t>(<uint64_t>offset - <uint64_t>base_offset), WARM_BYTES // ENTRY, False)
    if slot >= 0:
        at = <int32_t>load_be32(s.entries + slot * ENTRY + 4)
    wrapped[0] = -1
    if not 0 <= at <= s.end:
        return NONE
    while True:
        if is_part and s.seen - at < header.V2_HEADER:
            return more_needed(s, offset, at, header.V2_HEADER, before, before_size, row, size, wrapped)
        p = header_at(s, at)
        if p == NULL:
            return NOT_READ
        there = min(HEADER, s.end - at) if in_file else s.seen - at
        status = framed(p, there, s.end - at, size)
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
        s.before_size = before_size
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
    cdef const uint8_t *p
    cdef int64_t at = start, size = 0, when = 0, found = 0, there
    cdef int status = 0
    s.descriptor = descriptor
    with nogil:
        while 0 <= at < end:
            p = header_at(&s, at)
            there = min(HEADER, end - at)
            if p == NULL:
                status = NOT_READ
            elif framed(p, there, end - at, &size) != header.MORE:
                status = NOWHERE
            else:
                header.read_header(p, size, &row)
                if row.max_timestamp >= timestamp:
                    if size > NEAR_BYTES:
                        status = 2
                    elif read_at(descriptor, near, size, at, &s.error) < size:
                        status = NOT_READ
                    else:
                        status = search_records(near, size, &row, timestamp, lowest_offset, &when, &found)
            if status != 0:
                break
            at += size
    if status == NOT_READ and s.error:
        raise OSError(s.error, os.strerror(s.error))
    if status == 1:
        return at, when, found, row.leader_epoch
    if status == 2:
        return at, 0, -1, row.leader_epoch
    return at, 0, status if status else NOWHERE, -1


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
