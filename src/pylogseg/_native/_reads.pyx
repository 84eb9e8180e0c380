"""Reads of an open log in one call: from the index to the bytes of a batch.

What is usual is done here: a batch of magic 2 in a file of this machine that was there when it was opened. For all else,
and whatever is wrong, the answer is None: `log/reads.py` reads again and tells.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport search as searching
from pylogseg._native.kernels.endian cimport load_be32, load_be64
from pylogseg._native.kernels.readat cimport HAS_READ_AT, read_at
from pylogseg._native.kernels.seek cimport ENTRY, NEAR_BYTES, Segment, begin, find, find_time

cdef enum:
    TIME_ENTRY = 12


cdef class Shared:
    """A file's descriptor that several threads use at once; each step is whole also without the interpreter's lock.

    Attributes
    ----------
    size, copied_below, _cuts : int
        Of a file that grows: see `LocalAppendFile`.
    """

    cdef int join(self) noexcept:
        cdef int descriptor = -1
        with cython.critical_section(self):
            if not self._closed and self._descriptor >= 0:
                descriptor = self._descriptor
                self._users += 1
        return descriptor

    cdef bint leave(self) noexcept:
        cdef bint is_last
        with cython.critical_section(self):
            self._users -= 1
            is_last = self._closed and self._users == 0
        return is_last

    def _join(self):
        """Begin a use of an open file: return the descriptor, which stays open until `_leave`; -1 if it is not open."""
        return self.join()

    def _enter(self):
        """Begin a use; the caller holds the lock, and has opened the file."""
        with cython.critical_section(self):
            self._users += 1

    def _leave(self):
        """End a use; return whether the file was closed meanwhile, and nobody uses it any more."""
        return self.leave()

    def _take(self):
        """Return the descriptor, to be closed, and forget it; -1 if it is used, or not open."""
        cdef int descriptor = -1
        with cython.critical_section(self):
            if self._users == 0:
                descriptor, self._descriptor = self._descriptor, -1
        return descriptor


cdef class Reads:
    """Reads of a log.

    Parameters
    ----------
    segments : Segments
    offsets : LogOffsets
    results : tuple of type
        `Fetched`, `OffsetMetadata`, `FileSlice` and `FoundOffset`.
    """
    cdef object segments, offsets, fetched, metadata, slice, found, nothing

    def __init__(self, segments, offsets, tuple results not None):
        self.segments, self.offsets, self.nothing = segments, offsets, memoryview(b"")
        self.fetched, self.metadata, self.slice, self.found = results

    def fetch(self, start, max_bytes, bint min_one, bint placed):
        """Do as `log.reads.read` up to the end of the log.

        Parameters
        ----------
        start, max_bytes : int
        min_one, placed : bool

        Returns
        -------
        Fetched or None
            None if it takes more than is known here.
        """
        cdef header.BatchRow row
        cdef Segment s
        cdef uint8_t[NEAR_BYTES] near
        cdef Py_buffer held
        cdef int64_t offset = 0, most = 0, log_start = 0, log_end = 0, limit = 0, base = 0, count = 0, at = -1, size = 0, wrapped = -1
        cdef int64_t want, length = 0, cuts
        cdef list bases, there
        cdef Py_ssize_t slot
        cdef Shared file
        cdef bint is_same
        cdef int descriptor
        if not (HAS_READ_AT and as_int64(start, &offset) and as_int64(max_bytes, &most) and most > 0 and as_int64(self.offsets.log_start, &log_start)):
            return None
        end = self.offsets.end     # offset, segment, position
        as_int64(end[0], &log_end)
        if not log_start <= offset < log_end:
            return None
        bases, there = self.segments._sorted
        slot = last_at_most(bases, offset, &base)
        if slot < 0:
            return None
        segment = there[slot]
        if not isinstance(segment.log, Shared):
            return None
        file = segment.log
        as_int64(end[1], &limit)
        if base > limit or file.copied_below == 0:
            return None
        index = raw_of(segment.offset_index, &count)
        PyObject_GetBuffer(index, &held, PyBUF_SIMPLE)
        descriptor = file.join()
        try:
            if descriptor < 0 or count > held.len // ENTRY:
                return None
            file.recently_used = True
            cuts, size = file._cuts, file.size
            if base == limit:
                as_int64(end[2], &limit)
            else:
                limit = size
            begin(&s, <const uint8_t *>held.buf, count, NULL, size, descriptor)
            s.near, s.wanted = near, 0 if placed else most
            with nogil:
                at = find(&s, base, offset, &row, &size, &wrapped)
            if at < 0 or wrapped >= 0 or size <= 0 or at >= limit:
                return None
            want = size if min_one and size > most else most
            length = min(limit - at, want)
            data = None if placed else bytes_at(&s, at, length)
            is_same = cuts == file._cuts and (placed or data is not None)
        finally:
            PyBuffer_Release(&held)
            if descriptor >= 0 and file.leave():
                file._close_idle()
        if not is_same:
            return None
        first = named(self.metadata, (row.base_offset, bases[slot], at))
        if placed:
            where = named(self.slice, (file, at, length))
            return named(self.fetched, (first, self.nothing, want < size, None, where))
        return named(self.fetched, (first, memoryview(data), want < size, None, None))

    def offset_for_time(self, timestamp):
        """Do as `log.reads.offset_for_time` for a timestamp of at least 0.

        Parameters
        ----------
        timestamp : int

        Returns
        -------
        FoundOffset or None
            None if there is no such record, or it takes more to tell.
        """
        cdef header.BatchRow row
        cdef Segment s
        cdef uint8_t[NEAR_BYTES] near
        cdef Py_buffer times, places
        cdef int64_t time = 0, log_start = 0, largest = 0, base = 0, count = 0, place_count = 0, at, when = 0, found = 0, next, cuts
        cdef Shared file
        cdef int descriptor, status = 0
        cdef bint is_exact = False
        row.leader_epoch = -1      # for compilers: it is read with the record
        if not (HAS_READ_AT and as_int64(timestamp, &time) and time >= 0 and as_int64(self.offsets.log_start, &log_start)):
            return None
        for segment in <list>self.segments._sorted[1]:
            if segment._max_timestamp is None:
                return None
            latest = segment._max_timestamp
            if not as_int64(latest[0], &largest) or largest < 0:
                return None
            if largest >= time:
                break
        else:
            return None
        if not isinstance(segment.log, Shared) or not as_int64(segment.base_offset, &base):
            return None
        file = segment.log
        time_bytes, place_bytes = raw_of(segment.time_index, &count), raw_of(segment.offset_index, &place_count)
        PyObject_GetBuffer(time_bytes, &times, PyBUF_SIMPLE)
        try:
            at = floor_of(&times, count, TIME_ENTRY, 8, time)
            found = base
            if at >= 0:
                is_exact = <int64_t>load_be64(<const uint8_t *>times.buf + at * TIME_ENTRY) == time
                found += <int32_t>load_be32(<const uint8_t *>times.buf + at * TIME_ENTRY + 8)
        finally:
            PyBuffer_Release(&times)
        found = max(found, log_start)
        PyObject_GetBuffer(place_bytes, &places, PyBUF_SIMPLE)
        descriptor = file.join()
        try:
            if descriptor < 0:
                return None
            file.recently_used = True
            cuts = file._cuts
            begin(&s, NULL, 0, NULL, file.size, descriptor)
            s.near = near
            next = floor_of(&places, place_count, ENTRY, 4, found - base)
            at = 0 if next < 0 else <int32_t>load_be32(<const uint8_t *>places.buf + next * ENTRY + 4)
            if not 0 <= at < file.copied_below:
                return None
            if is_exact and next + 1 < place_count:    # the batch at this place has the record: no look at its header first
                s.wanted, s.likely = 1, max(0, <int32_t>load_be32(<const uint8_t *>places.buf + (next + 1) * ENTRY + 4) - at)
            with nogil:
                status = find_time(&s, &at, time, log_start, &row, &when, &found)
            if cuts != file._cuts:
                return None
        finally:
            PyBuffer_Release(&places)
            if descriptor >= 0 and file.leave():
                file._close_idle()
        return named(self.found, (when, found, row.leader_epoch)) if status == 1 else None


cdef inline object named(kind, tuple fields):
    """Return a named tuple."""
    cdef tuple arguments = (fields,)
    return (<PyTypeObject *>tuple).tp_new(kind, <PyObject *>arguments, NULL)


cdef inline bint as_int64(object number, int64_t *value) except -1:
    cdef int overflow = 0
    value[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef inline object raw_of(object index, int64_t *count):
    """Do as `IndexFile.raw` does; that is asked where the file is not mapped now."""
    file = index._file
    mapped = None if file is None else file._reader
    if mapped is None:
        mapped, count[0] = index.raw()
        return mapped
    file.recently_used = True
    count[0] = index._count
    return mapped


cdef inline Py_ssize_t last_at_most(list bases, int64_t offset, int64_t *base) except -2:
    """Return the last of ascending numbers that is not above one; -1 if there is none."""
    cdef Py_ssize_t low = 0, high = len(bases), middle
    cdef int64_t one = 0
    while low < high:
        middle = (low + high) >> 1
        as_int64(bases[middle], &one)
        if one <= offset:
            low, base[0] = middle + 1, one
        else:
            high = middle
    return low - 1


cdef inline int64_t floor_of(const Py_buffer *index, int64_t count, int size, int key_size, int64_t key) noexcept:
    """Return the slot of an index that a reader finds for a key; -1 if all entries are above."""
    return searching.floor_slot(<const uint8_t *>index.buf, size, key_size, min(count, index.len // size), key)


cdef inline object bytes_at(Segment *s, int64_t at, int64_t size):
    """Return bytes of a file; None if they cannot be read."""
    cdef int64_t done
    data = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(data)
    if s.near_at <= at and at + size <= s.near_at + s.near_size:
        memcpy(to, s.near + (at - s.near_at), size)
        return data
    with nogil:
        done = read_at(s.descriptor, to, size, at, &s.error)
    return data if done == size else None
