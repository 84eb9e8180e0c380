"""Gather columns of places into Arrow's layouts, and other columns that are made of record columns.

Functions on buffers, as in `_codec`. A span is a place and a size. Every span is checked against its source before
its bytes are read, so invalid columns of a caller cannot make a kernel read outside of the buffers.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from pylogseg._native.kernels cimport record
from pylogseg._native.kernels.batch cimport SOURCE_SHIFT
from pylogseg._native.kernels.endian cimport load_le64
from pylogseg._native.kernels.places cimport POSITION_MASK, SOURCES, Source, hold, resolve


cdef inline void end_bits(uint8_t[::1] validity, Py_ssize_t count, uint8_t valid) noexcept nogil:
    """Write the last bits of a bitmap, which do not fill a byte, with zeros after them."""
    cdef Py_ssize_t whole = count >> 3
    if count & 7:
        validity[whole] = valid >> (8 - (count & 7))
        whole += 1
    if whole < validity.shape[0]:
        memset(&validity[whole], 0, validity.shape[0] - whole)


def gather_binary(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    int32_t[::1] offsets not None, uint8_t[::1] data not None, uint8_t[::1] validity not None,
):
    """Copy spans into the layout of an Arrow binary array.

    Parameters
    ----------
    place, size : arrays of one length
        The spans; size -1 is a null.
    sources : tuple of buffers
    offsets : int32 array of one more item
        Filled.
    data : uint8 array
        Filled; it needs the sum of the non-null sizes. A few more bytes make the last copies faster.
    validity : uint8 array
        One bit per item, least significant first; all of it is written.

    Returns
    -------
    int
        How many are null.
    """
    cdef Source[SOURCES] buffers
    cdef list held = hold(sources, buffers)
    cdef Py_ssize_t i, count = place.shape[0], bad = -1
    cdef int64_t room = data.shape[0], at = 0, nulls = 0, left
    cdef int64_t where
    cdef int32_t span
    cdef uint8_t valid = 0   # eight bits at a time: setting each in memory would wait for the previous one
    cdef const uint8_t *p
    if size.shape[0] != count or offsets.shape[0] < count + 1 or validity.shape[0] < (count + 7) // 8:
        raise ValueError("columns and outputs differ in length")
    cdef uint8_t *out = &data[0] if room else NULL
    with nogil:
        if room > 0x7FFFFFFF:
            room = 0x7FFFFFFF
        offsets[0] = 0
        for i in range(count):
            span = size[i]
            valid >>= 1
            if span >= 0:
                where = place[i]
                p = resolve(buffers, where, span)
                if p == NULL or span > room - at:
                    bad = i
                    break
                if span:
                    left = buffers[where >> SOURCE_SHIFT].size - (where & POSITION_MASK)
                    record.pls_copy_span(out + at, p, span, min(left, room - at))
                    at += span
                valid |= 0x80
            else:
                nulls += 1
            if i & 7 == 7:
                validity[i >> 3] = valid
            offsets[i + 1] = <int32_t>at
        end_bits(validity, count, valid)
    if bad >= 0:
        raise ValueError(f"span {bad} is outside of its source, or the data buffer is too small")
    return nulls


def gather_views(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    uint8_t[::1] views not None, uint8_t[::1] validity not None,
):
    """Describe spans as Arrow binary views of 16 bytes; only payloads of at most 12 bytes are copied.

    `views` has 16 bytes per item; the variadic buffers of the array are the sources, in their order. The bytes of the
    sources must stay alive and unchanged as long as the array. Return how many are null.
    """
    cdef Source[SOURCES] buffers
    cdef list held = hold(sources, buffers)
    cdef Py_ssize_t i, count = place.shape[0], bad = -1
    cdef int64_t nulls = 0, where
    cdef int32_t span
    cdef uint8_t valid = 0
    cdef const uint8_t *p
    if size.shape[0] != count or views.shape[0] < 16 * count or validity.shape[0] < (count + 7) // 8:
        raise ValueError("columns and outputs differ in length")
    cdef uint8_t *out = &views[0] if count else NULL
    with nogil:
        for i in range(count):
            valid >>= 1
            p = NULL
            where, span = place[i], size[i]
            if span < 0:
                nulls += 1
            else:
                p = resolve(buffers, where, span)
                if p == NULL or (where & POSITION_MASK) > 0x7FFFFFFF:
                    bad = i
                    break
                valid |= 0x80
            record.write_view(out, p, p + max(span, 0), span, where)
            if i & 7 == 7:
                validity[i >> 3] = valid
            out += record.VIEW_BYTES
        end_bits(validity, count, valid)
    if bad >= 0:
        raise ValueError(f"span {bad} is outside of its source, or too far from its start for a view")
    return nulls


cdef inline uint64_t mixed(uint64_t state) noexcept nogil:
    """The finalizer of splitmix64."""
    state = (state ^ (state >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * <uint64_t>0x94D049BB133111EB
    return (state ^ (state >> 31)) + <uint64_t>0x9E3779B97F4A7C15


def hash_spans(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, uint64_t[::1] out not None
):
    """Hash each span to 64 bits, with the same result in every process; 0 for a null."""
    cdef Source[SOURCES] buffers
    cdef list held = hold(sources, buffers)
    cdef Py_ssize_t i, count = place.shape[0], bad = -1
    cdef int32_t span, at
    cdef uint64_t state, rest
    cdef const uint8_t *p
    if size.shape[0] != count or out.shape[0] != count:
        raise ValueError("columns and outputs differ in length")
    with nogil:
        for i in range(count):
            span = size[i]
            if span < 0:
                out[i] = 0
                continue
            p = resolve(buffers, place[i], span)
            if p == NULL:
                bad = i
                break
            state = (<uint64_t>span + 1) * <uint64_t>0x9E3779B97F4A7C15
            at = 0
            while span - at >= 8:
                state = mixed(state ^ load_le64(p + at))
                at += 8
            if at < span:
                rest = 0
                while at < span:
                    rest |= <uint64_t>p[at] << 8 * (at & 7)
                    at += 1
                state = mixed(state ^ rest)
            out[i] = mixed(state)
    if bad >= 0:
        raise ValueError(f"span {bad} is outside of its source")


def microseconds(const int64_t[::1] milliseconds not None, int64_t[::1] out not None):
    """Write times in microseconds to another array, and return whether some may not fit.

    One that does not fit becomes the nearest whole millisecond that does.
    """
    cdef Py_ssize_t i, count = milliseconds.shape[0]
    cdef int64_t most = 0x7FFFFFFFFFFFFFFF // 1000
    cdef uint64_t time, beyond = 0
    if out.shape[0] < count:
        raise ValueError("columns and outputs differ in length")
    if count == 0:
        return False
    # Plain pointers and shifts, so that the compiler vectorizes: not every processor multiplies vectors of 64 bits.
    cdef const int64_t *source = &milliseconds[0]
    cdef int64_t *to = &out[0]
    with nogil:
        for i in range(count):
            time = <uint64_t>source[i]
            beyond |= (time + (<uint64_t>1 << 52)) >> 53
            to[i] = <int64_t>(((time << 7) - (time << 2) + time) << 3)
        if beyond:
            for i in range(count):
                to[i] = min(max(source[i], -most), most) * 1000
    return beyond != 0


def header_spans(
    const int64_t[::1] headers_place not None, const int32_t[::1] header_count not None, sources not None,
    int64_t[::1] key_place not None, int32_t[::1] key_size not None,
    int64_t[::1] value_place not None, int32_t[::1] value_size not None,
):
    """Fill the spans of the names and values of all headers of all records, in order; return their number."""
    cdef Source[SOURCES] buffers
    cdef list held = hold(sources, buffers)
    cdef Py_ssize_t i, count = headers_place.shape[0], room = key_place.shape[0], bad = -1
    cdef int64_t n = 0, where
    cdef int32_t k, most
    cdef record.Walk walk
    if header_count.shape[0] != count or key_size.shape[0] != room or value_place.shape[0] != room or value_size.shape[0] != room:
        raise ValueError("columns and outputs differ in length")
    with nogil:
        for i in range(count):
            where, most = headers_place[i], header_count[i]
            if most <= 0:
                continue
            walk.p = resolve(buffers, where, 0)
            if walk.p == NULL or most > room - n:
                bad = i
                break
            walk.source = (where >> SOURCE_SHIFT) << SOURCE_SHIFT
            walk.origin = buffers[where >> SOURCE_SHIFT].first
            walk.end = walk.origin + buffers[where >> SOURCE_SHIFT].size
            if walk.origin == NULL:
                bad = i
                break
            for k in range(most):
                if (record.read_span(&walk, walk.end, &key_place[n], &key_size[n]) != 0 or key_size[n] < 0
                        or record.read_span(&walk, walk.end, &value_place[n], &value_size[n]) != 0):
                    bad = i
                    break
                n += 1
            if bad >= 0:
                break
    if bad >= 0:
        raise ValueError(f"the headers of record {bad} are outside of their source, or there is no room for them")
    return n


# ---- memory that is used again ----

cdef enum:
    LENT_BYTES = 1 << 17       # less than that an allocator keeps itself
    KEPT = 40                  # pieces of memory that wait to be lent again, those that came back last
    KEPT_BYTES = 1 << 26       # of all of them


cdef class Lender:
    """Memory for columns, which is lent again once everybody has let go of it.

    Allocators give large memory back to the system when it is freed, and the system clears each page before it is touched
    again: that took up to half of the time of a stream of record batches. Here at most 64 MiB wait.

    Parameters
    ----------
    allocate : callable
        Makes writable memory of so many bytes.
    """
    cdef object allocate
    cdef list kept

    def __init__(self, allocate):
        self.allocate, self.kept = allocate, []

    def __call__(self, Py_ssize_t size):
        """Return writable memory of so many bytes, with any content.

        Parameters
        ----------
        size : int

        Returns
        -------
        buffer
        """
        cdef Py_ssize_t i, capacity, step = 1 << 13
        cdef Lent made
        if size < LENT_BYTES:
            return self.allocate(size)
        made = Lent.__new__(Lent)
        made.kept, made.memory, made.size = self.kept, None, size
        with cython.critical_section(self.kept):
            for i in range(len(self.kept) - 1, -1, -1):   # what came back last may be in the processor's cache
                capacity = len(self.kept[i])
                if size <= capacity <= 2 * size:
                    made.memory = self.kept.pop(i)
                    break
        if made.memory is None:
            while step < size >> 3:
                step <<= 1
            made.memory = memoryview(self.allocate((size + step - 1) // step * step))
        PyObject_GetBuffer(made.memory, &made.held, PyBUF_WRITABLE)
        return made


@cython.no_gc
cdef class Lent:
    """Memory on loan: it goes back when nothing points into it any more."""
    cdef Py_buffer held
    cdef Py_ssize_t size
    cdef object memory
    cdef list kept

    def __dealloc__(self):
        if self.held.buf == NULL:
            return
        PyBuffer_Release(&self.held)
        with cython.critical_section(self.kept):
            self.kept.append(self.memory)
            while len(self.kept) > KEPT or sum(map(len, self.kept)) > KEPT_BYTES:
                del self.kept[0]

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.held.buf, self.size, 0, flags)
