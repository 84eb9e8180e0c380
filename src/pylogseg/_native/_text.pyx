"""Write record columns as text, and search them for bytes.

Text goes into a `TextBuffer`, which grows between two calls of a kernel; a kernel checks for room before it writes.
Every span is checked against its source before its bytes are read.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from pylogseg._native.kernels.text cimport (
    PLS_AS_COUNT, PLS_OP_COUNT, PLS_SOURCES, PLS_TEXT_BATCH, PLS_TEXT_FULL, PLS_TEXT_HEADERS, PLS_TEXT_LEGACY, PLS_TEXT_OK,
    PLS_TEXT_ORDER, PLS_TEXT_SPAN, pls_base64_init, pls_batch, pls_crc_init, pls_dump, pls_dump_state, pls_dump_texts,
    pls_find, pls_needle, pls_op, pls_program, pls_put_json_quoted, pls_put_json_value, pls_quote_init, pls_records, pls_render, pls_resolve, pls_sink, pls_source, pls_span,
)

import cython
import numpy as np

from pylogseg.errors import RequestError

pls_crc_init()
pls_base64_init()
pls_quote_init()

OP_COUNT = PLS_OP_COUNT
STYLE_COUNT = PLS_AS_COUNT

cdef dict REASONS = {
    PLS_TEXT_SPAN: "a key or value lies outside of its source",
    PLS_TEXT_HEADERS: "the headers are damaged, or lie outside of their source",
    PLS_TEXT_BATCH: "its batch is not in the table",
    PLS_TEXT_ORDER: "the records do not follow the batches of the range",
    PLS_TEXT_LEGACY: "no message of magic 0 or 1 lies around its key",
}

cdef enum:
    SMALLEST_CAPACITY = 1 << 16


cdef class TextBuffer:
    """Bytes to which functions append text; clearing keeps the memory.

    Supports the buffer protocol (read-only), ``len`` and ``bytes``. While a memoryview of it exists, or another thread
    writes to it, it can be neither written nor cleared (`BufferError`).

    Parameters
    ----------
    capacity : int
        Bytes to reserve; the buffer grows when needed.
    """
    cdef uint8_t *data
    cdef readonly int64_t capacity
    cdef int64_t size
    cdef int views
    cdef bint busy

    def __cinit__(self, int64_t capacity=0):
        if capacity < 0:
            raise RequestError(f"invalid capacity of {capacity} bytes")
        if capacity:
            self.resize(capacity)

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __bytes__(self):
        return memoryview(self).tobytes()

    def __getbuffer__(self, Py_buffer *view, int flags):
        with cython.critical_section(self):
            if self.busy:
                raise BufferError("another thread writes to this buffer")
            PyBuffer_FillInfo(view, self, <void *>(self.data if self.data != NULL else <uint8_t *>b""), self.size, 1, flags)
            self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        with cython.critical_section(self):
            self.views -= 1

    def clear(self):
        """Clear the text; the memory is kept for the next one."""
        self.acquire()
        self.size = 0
        self.busy = False

    def append(self, text):
        """Append bytes to the text."""
        cdef const uint8_t[::1] view = text
        cdef int64_t size = view.shape[0]
        self.acquire()
        try:
            while size > self.capacity - self.size:
                self.grow()
            if size:
                memcpy(self.data + self.size, &view[0], size)
            self.size += size
        finally:
            self.busy = False

    cdef acquire(self):
        with cython.critical_section(self):
            if self.busy or self.views:
                raise BufferError("the buffer is in use: a view of it exists, or another thread writes to it")
            self.busy = True

    cdef resize(self, int64_t capacity):
        cdef uint8_t *data = <uint8_t *>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"cannot allocate {capacity} bytes for text")
        self.data = data
        self.capacity = capacity

    cdef grow(self):
        self.resize(max(<int64_t>SMALLEST_CAPACITY, 2 * self.capacity))

    cdef pls_sink sink(self) noexcept:
        cdef pls_sink s
        s.at = self.data + self.size
        s.end = self.data + self.capacity
        return s


cdef class Records:
    """Record columns in the form of the kernels; keeps the buffers alive that the pointers point into."""
    cdef pls_records c
    cdef pls_source[PLS_SOURCES] sources
    cdef int64_t count
    cdef list held

    def __cinit__(self, columns):
        self.held = []
        self.count = len(columns.offset)
        self.c.offset = self.longs(columns.offset)
        self.c.timestamp = self.longs(columns.timestamp)
        self.c.key_place = self.longs(columns.key_place)
        self.c.value_place = self.longs(columns.value_place)
        self.c.headers_place = self.longs(columns.headers_place)
        self.c.key_size = self.ints(columns.key_size)
        self.c.value_size = self.ints(columns.value_size)
        self.c.header_count = self.ints(columns.header_count)
        self.c.batch = self.ints(columns.batch)
        rows = np.ascontiguousarray(columns.batches.rows)
        if rows.dtype.itemsize != sizeof(pls_batch):
            raise RequestError(f"a row of the batch table has {sizeof(pls_batch)} bytes, not {rows.dtype.itemsize}")
        self.c.batches = self.view(rows.view(np.uint8), NULL)
        self.c.batch_count = len(rows)
        take_sources(columns.sources, self.sources, self.held)
        memcpy(&self.c.sources[0], &self.sources[0], sizeof(self.sources))

    cdef const int64_t *longs(self, array) except? NULL:
        cdef const int64_t[::1] view = np.ascontiguousarray(array)
        if view.shape[0] != self.count:
            raise RequestError("the columns differ in length")
        self.held.append(view)
        return &view[0] if self.count else NULL

    cdef const int32_t *ints(self, array) except? NULL:
        cdef const int32_t[::1] view = np.ascontiguousarray(array)
        if view.shape[0] != self.count:
            raise RequestError("the columns differ in length")
        self.held.append(view)
        return &view[0] if self.count else NULL

    cdef const uint8_t *view(self, buffer, int64_t *size) except? NULL:
        cdef const uint8_t[::1] view = buffer
        self.held.append(view)
        if size != NULL:
            size[0] = view.shape[0]
        return &view[0] if view.shape[0] else NULL


cdef take_sources(tuple buffers, pls_source *sources, list held):
    cdef const uint8_t[::1] view
    cdef int i
    if len(buffers) > PLS_SOURCES:
        raise RequestError(f"at most {PLS_SOURCES} sources, not {len(buffers)}")
    for i in range(PLS_SOURCES):   # an empty source needs an address too: arithmetic on NULL is undefined
        sources[i].first = <const uint8_t *>b""
        sources[i].size = 0
    for i in range(len(buffers)):
        view = buffers[i]
        held.append(view)
        if view.shape[0]:
            sources[i].first = &view[0]
            sources[i].size = view.shape[0]


def render(columns not None, ops not None, labels not None, uint8_t delimiter, int64_t start, int64_t stop, TextBuffer out not None):
    """Append records ``[start, stop)`` to `out` by a list of operations, made by `format.text.Program`."""
    cdef Records records = Records(columns)
    cdef const int32_t[:, ::1] table = ops
    # Labels are copied 16 bytes at a time, so 16 bytes must be readable after the last one.
    cdef const uint8_t[::1] label_bytes = bytes(labels) + bytes(16)
    cdef int64_t i, room = label_bytes.shape[0] - 16
    cdef pls_program program
    check_range(start, stop, records.count, "records")
    if table.shape[1] != 4:
        raise RequestError("an operation must have four numbers")
    for i in range(table.shape[0]):
        if not (0 <= table[i, 0] < PLS_OP_COUNT and 0 <= table[i, 1] < PLS_AS_COUNT):
            raise RequestError(f"unknown operation {i}")
        if table[i, 2] < 0 or table[i, 3] < 0 or table[i, 2] > room or table[i, 3] > room - table[i, 2]:
            raise RequestError(f"the label of operation {i} is outside of the labels")
    program.ops = <const pls_op *>&table[0, 0] if table.shape[0] else NULL
    program.op_count = table.shape[0]
    program.labels = &label_bytes[0]
    program.delimiter = delimiter
    out.acquire()
    cdef pls_sink sink
    cdef int status = PLS_TEXT_FULL
    try:
        while status == PLS_TEXT_FULL:
            sink = out.sink()
            with nogil:
                status = pls_render(&records.c, &program, &start, stop, &sink)
            out.size = sink.at - out.data
            if status == PLS_TEXT_FULL:
                out.grow()
    finally:
        out.busy = False
    if status != PLS_TEXT_OK:
        raise RequestError(f"record {start}: {REASONS[status]}")


def dump_lines(
    columns not None, int64_t start_batch, int64_t stop_batch, int64_t start, int64_t stop, int what, TextBuffer out not None,
    const int32_t[::1] ends=None, const uint8_t[::1] texts=None,
):
    """Append the lines of Kafka's dump tool for batch rows ``[start_batch, stop_batch)`` and their records ``[start, stop)``.

    `what` is a sum: 1 metadata of records, 2 keys and payloads, 4 lines of batches. A record of a control batch gets
    its metadata and no end of line: the caller adds what the record means. With `ends` and `texts` a record has the
    text between two ends in place of key and payload.
    """
    cdef Records records = Records(columns)
    cdef pls_dump_state state
    cdef pls_dump_texts decoded
    check_range(start, stop, records.count, "records")
    check_range(start_batch, stop_batch, records.c.batch_count, "batches")
    if (ends is None) != (texts is None) or (ends is not None and ends.shape[0] != stop - start + 1):
        raise RequestError(f"{stop - start} records have {stop - start + 1} ends of texts")
    decoded.ends, decoded.data, decoded.size, decoded.first = NULL, <const uint8_t *>b"", 0, start
    if ends is not None:
        decoded.ends = &ends[0]
        decoded.size = texts.shape[0]
        if decoded.size:
            decoded.data = &texts[0]
    state.batch = start_batch
    state.stop_batch = stop_batch
    state.record = start
    state.stop_record = stop
    state.batch_written = 0
    out.acquire()
    cdef pls_sink sink
    cdef int status = PLS_TEXT_FULL
    try:
        while status == PLS_TEXT_FULL:
            sink = out.sink()
            with nogil:
                status = pls_dump(&records.c, &state, what, &decoded, &sink)
            out.size = sink.at - out.data
            if status == PLS_TEXT_FULL:
                out.grow()
    finally:
        out.busy = False
    if status != PLS_TEXT_OK:
        raise RequestError(f"record {state.record}: {REASONS[status]}")


cdef check_range(int64_t start, int64_t stop, int64_t count, str what):
    if not 0 <= start <= stop <= count:
        raise RequestError(f"{what} {start} to {stop} of {count}")


def json_strings(const int32_t[::1] ends not None, const uint8_t[::1] data not None, int kind, TextBuffer out not None):
    """Append each of the texts between `ends` as JSON, one behind the other; returns their ends.

    `kind` is 0 for text as a string; 1 for a payload as a string, marked where it is no text or begins with the mark;
    2 for JSON as it is, and a string where it is none.

    Raises
    ------
    OverflowError
        If the ends do not fit in 32 bits.
    """
    cdef int64_t i = 0, count = ends.shape[0] - 1, size = data.shape[0]
    cdef const uint8_t *first = &data[0] if size else <const uint8_t *>b""
    cdef int32_t[::1] made
    cdef pls_span span
    cdef pls_sink sink
    cdef uint8_t *start
    cdef int done = 0
    if count < 0:
        raise RequestError("texts have an end more than there are")
    found = np.zeros(count + 1, np.int32)
    made = found
    out.clear()
    out.acquire()
    try:
        while i < count:
            sink = out.sink()
            with nogil:
                while i < count:
                    if not 0 <= ends[i] <= ends[i + 1] <= size:
                        done = -1
                        break
                    span.p, span.end, span.limit = first + ends[i], first + ends[i + 1], first + size
                    start = sink.at
                    if kind == 2:
                        done = pls_put_json_value(&sink, &span)
                    else:
                        done = pls_put_json_quoted(&sink, span.p, span.end, span.limit, kind)
                    if not done:
                        sink.at = start
                        break
                    if sink.at - out.data > 0x7FFFFFFF:
                        done = -2
                        break
                    i += 1
                    made[i] = <int32_t>(sink.at - out.data)
            out.size = sink.at - out.data
            if done < 0:
                break
            if i < count:
                out.grow()
    finally:
        out.busy = False
    if done == -1:
        raise RequestError(f"text {i} lies outside of its buffer")
    if done == -2:
        raise OverflowError("more than 2147483647 bytes of text: write fewer values at a time")
    return found


def find(const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, needle not None,
         uint8_t[::1] found not None, bint ignore_case=False):
    """Set ``found[i]`` to 1 if span `i` contains the bytes of `needle`, else to 0; a null contains nothing."""
    cdef pls_source[PLS_SOURCES] places
    cdef list held = []
    cdef bytes folded = bytes(needle).lower() if ignore_case else bytes(needle)   # bytes.lower changes only ASCII, as intended
    cdef pls_needle what
    cdef pls_span span
    cdef int64_t i, count = place.shape[0], bad = -1
    if size.shape[0] != count or found.shape[0] != count:
        raise RequestError("the columns differ in length")
    take_sources(tuple(sources), places, held)
    what.bytes = <const uint8_t *>folded
    what.size = len(folded)
    what.fold = ignore_case
    with nogil:
        for i in range(count):
            if size[i] < 0:
                found[i] = 0
            elif pls_resolve(places, place[i], size[i], &span):
                found[i] = <uint8_t>pls_find(span.p, span.end, &what)
            else:
                bad = i
                break
    if bad >= 0:
        raise RequestError(f"record {bad}: {REASONS[PLS_TEXT_SPAN]}")
