"""Encode record columns as record batches of magic 0, 1 and 2.

There are two steps, each for many batches in one call: `write` distributes the records over batches and writes them,
with header and CRC if they are not compressed; `pack` compresses records and writes header and CRC.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport record_write as record
from pylogseg._native.kernels.places cimport Source
from pylogseg._native.kernels.endian cimport load_be32
from pylogseg._native.kernels.pages cimport ask_large_pages

import numpy as np

from pylogseg.errors import RequestError

checksum.pls_crc_init()


cdef class Columns:
    """Columns of records, unpacked once for all calls.

    Parameters
    ----------
    count : int
        Number of items in every column.
    offset, timestamp : int64 arrays or None
        None means consecutive offsets from `base_offset`, or `default_timestamp` for all records.
    key_place, key_size, value_place, value_size, headers_place, header_count : arrays or None
        Spans as in `RecordColumns`; a pair of None means nulls, or no headers.
    sources : sequence of buffers
        The buffers that places point into, any number of them.
    """
    cdef record.Input input
    cdef Source *buffers
    cdef list held

    def __cinit__(
        self, int64_t count, offset, timestamp, key_place, key_size, value_place, value_size, headers_place, header_count,
        sources not None, int64_t base_offset=0, int64_t default_timestamp=-1,
    ):
        cdef const uint8_t[::1] view
        cdef Py_ssize_t i = 0, total = len(sources)
        self.held = []
        if count < 0 or (key_place is None) != (key_size is None) or (value_place is None) != (value_size is None) or (
            (headers_place is None) != (header_count is None)
        ):
            raise ValueError("columns of places and sizes must come in pairs")
        self.buffers = <Source *>malloc((total + 1) * sizeof(Source))
        if self.buffers == NULL:
            raise MemoryError
        for source in sources:
            whole = memoryview(source)
            view = whole.cast("B") if whole.nbytes else b""   # an empty numpy array cannot be cast
            self.held.append(view)
            self.buffers[i].first = &view[0] if view.shape[0] else <const uint8_t *>b""
            self.buffers[i].size = view.shape[0]
            i += 1
        self.input.count = count
        self.input.offset = self.longs(offset, count)
        self.input.timestamp = self.longs(timestamp, count)
        self.input.key_place = self.longs(key_place, count)
        self.input.key_size = self.ints(key_size, count)
        self.input.value_place = self.longs(value_place, count)
        self.input.value_size = self.ints(value_size, count)
        self.input.headers_place = self.longs(headers_place, count)
        self.input.header_count = self.ints(header_count, count)
        self.input.base_offset = base_offset
        self.input.default_timestamp = default_timestamp
        self.input.sources = self.buffers
        self.input.source_count = total

    def __dealloc__(self):
        free(self.buffers)

    def __len__(self):
        return self.input.count

    cdef const int64_t *longs(self, column, int64_t count) except? NULL:
        cdef const int64_t[::1] view
        if column is None:
            return NULL
        view = column
        if view.shape[0] != count:
            raise ValueError(f"a column has {view.shape[0]} items, not {count}")
        self.held.append(view)
        return &view[0] if count else NULL

    cdef const int32_t *ints(self, column, int64_t count) except? NULL:
        cdef const int32_t[::1] view
        if column is None:
            return NULL
        view = column
        if view.shape[0] != count:
            raise ValueError(f"a column has {view.shape[0]} items, not {count}")
        self.held.append(view)
        return &view[0] if count else NULL


cdef uint8_t[::1] rows_of(rows):
    if rows.dtype.itemsize != sizeof(header.BatchRow):
        raise TypeError(f"rows have {rows.dtype.itemsize} bytes an item, not {sizeof(header.BatchRow)}")
    return rows.view(np.uint8).reshape(-1)


cdef inline int32_t next_sequence(int32_t sequence, int64_t records) noexcept nogil:
    """Return a later sequence: sequences count the records of a producer, and 0 follows 2^31 - 1."""
    if sequence < 0:
        return sequence
    return <int32_t>((<int64_t>sequence + records) & INT32_MAX)


cdef inline bint given_row_holds(const header.BatchRow *row, int64_t left) noexcept nogil:
    if row.magic < 0 or row.magic > 2 or row.count < 0 or row.count > left:
        return False
    if row.magic == 2:
        return row.base_offset >= 0 and 0 <= row.last_offset - row.base_offset <= INT32_MAX
    return row.count == 1 if row.attributes & header.CODEC_MASK == 0 else row.count > 0


def blank(Py_ssize_t size):
    """Return a bytearray with uninitialized bytes, for output that is written completely."""
    return PyByteArray_FromStringAndSize(NULL, size)


def resize(bytearray data not None, Py_ssize_t size):
    """Cut a bytearray, or extend it by uninitialized bytes."""
    PyByteArray_Resize(data, size)
    ask_large_pages(PyByteArray_AS_STRING(data), size)


def likely_size(Columns columns not None, int magic, int64_t batch_bytes, int64_t batch_records):
    """Estimate the bytes of all batches of some records, before compression: `resize` corrects it.

    Never much more than the bytes of sources and columns, whatever sizes the columns claim.
    """
    cdef int64_t i, size, batches, held = 0, count = columns.input.count
    with nogil:
        for i in range(columns.input.source_count):
            held += columns.buffers[i].size
        size = min(payload(columns.input.key_size, count) + payload(columns.input.value_size, count), held)
    if magic < 2:
        return size + count * record.V1_RECORD
    size += count * record.TYPICAL_OVERHEAD
    # Two neighbouring batches together have more than `batch_bytes`.
    batches = min(size // batch_bytes * 2 + count // batch_records, count) + 1
    return size + batches * header.V2_HEADER + record.MOST_OVERHEAD


cdef inline int64_t payload(const int32_t *sizes, int64_t count) noexcept nogil:
    cdef int64_t i, total = 0
    if sizes != NULL:
        for i in range(count):
            total += sizes[i] if sizes[i] > 0 else 0
    return total


def write(
    Columns columns not None, int64_t start, rows not None, bint planned, uint8_t[::1] out not None, int64_t at,
    int64_t batch_bytes=0, int64_t batch_records=0,
):
    """Write batches from record `start` on into `out` from byte `at` on, as many as there are rows and room for.

    Batches without a codec are complete: header, CRC and records. Before the records of those with a codec there is
    unwritten room for the header. A call ends where magic or codec change.

    Parameters
    ----------
    rows
        If `planned`, the rows of `format.builder.rebuild`, which take the records in order. Otherwise ``rows[0]``
        has the fields that all batches share (`record_write.write_batch`) and the base sequence of the first one; a
        batch takes up to `batch_records` records until the next would make it larger than `batch_bytes`. Filled with
        everything that is known before compression; positions are those in `out`.

    Returns
    -------
    record : int
        The first record that was not written; at an error, the invalid one.
    count : int
        Rows filled; if not `planned`, at most ``len(rows) - 1``, and the next row is prepared for the next call.
    end : int
        The byte after the last written one.
    status : int
        0; 9 (`WRITE_ROOM`) if `out` is too short for the next batch; or an index of `format.builder.REASONS`.
    """
    cdef uint8_t[::1] raw = rows_of(rows)
    cdef Py_ssize_t k = 0, count = len(rows) if planned else len(rows) - 1
    cdef int64_t room = out.shape[0], bad = start, most
    cdef int status = record.WRITE_OK
    cdef header.BatchRow shared
    cdef header.BatchRow *row
    cdef uint8_t *p
    cdef const uint8_t *end
    cdef bint packed
    if not 0 <= start <= columns.input.count or not 0 <= at <= room or count < 1 or (not planned and batch_records < 1):
        raise ValueError("start or at is out of range, there are too few rows, or batch_records is below 1")
    with nogil:
        row = <header.BatchRow *>&raw[0]
        shared = row[0]
        packed = shared.attributes & header.CODEC_MASK != 0
        p = &out[0] + at if room else NULL
        end = p + (room - at)
        while k < count and (planned or start < columns.input.count):
            if not planned:
                row[k] = shared
            elif row[k].magic != shared.magic or (row[k].attributes ^ shared.attributes) & header.CODEC_MASK:
                break
            elif not given_row_holds(&row[k], columns.input.count - start):
                status = record.WRITE_BATCH
                bad = start
                break
            elif row[k].count == 0:
                row[k].size = header.V2_HEADER
                row[k].base_timestamp = -1
            row[k].position = room - (end - p)
            if not planned or row[k].count:
                most = row[k].count if planned else batch_records
                status = record.write_batch(&columns.input, start, most, batch_bytes, planned, p, end - p, &row[k], &bad)
            elif end - p < row[k].size:
                status = record.WRITE_ROOM
            if status != record.WRITE_OK:
                break
            if not packed:
                if row[k].magic == 2:
                    record.seal_v2(&row[k], p)
                else:
                    row[k].crc = load_be32(p + header.OVERHEAD)
            p += row[k].size
            start += row[k].count
            shared.base_sequence = next_sequence(shared.base_sequence, row[k].last_offset - row[k].base_offset + 1)
            k += 1
        if not planned:
            row[k] = shared
    return start if status in (record.WRITE_OK, record.WRITE_ROOM) else bad, k, room - (end - p), status


def pack(function, rows not None, scratch not None, uint8_t[::1] out not None, int64_t at, Py_ssize_t row, bytes body=None):
    """Compress records, and write them as batches, back to back from byte `at` on.

    Each body is copied and gets its header and CRC while it is in the cache, and its memory is used for the next one.

    Parameters
    ----------
    function : callable
        Compresses a memory view to `bytes`.
    rows : array of BATCH_DTYPE
        As filled by `write` for batches with a codec. Position and size become those of the batch in `out`.
    scratch : buffer
        The output of `write`.
    out : buffer
    at : int
    row : int
        The first row.
    body : bytes, optional
        The compressed records of that row, if a call returned them.

    Returns
    -------
    row, at : int
        The next row and byte.
    body : bytes or None
        None if all rows are done, else the compressed records for which `out` has no room.
    """
    cdef uint8_t[::1] raw = rows_of(rows)
    cdef Py_ssize_t count = len(rows), k
    cdef int64_t room = out.shape[0], prefix, size
    cdef header.BatchRow *all_rows
    cdef header.BatchRow *b
    cdef const uint8_t *p
    if not 0 <= row <= count or not 0 <= at <= room:
        raise ValueError("the first row or byte is out of range")
    if row == count:
        return row, at, None
    all_rows = <header.BatchRow *>&raw[0]
    whole = memoryview(scratch)
    for k in range(row, count):
        b = &all_rows[k]
        prefix = record.header_size(b)
        if body is None:
            if prefix == 0 or b.position < 0 or not prefix <= b.size <= len(whole) - b.position:
                raise ValueError(f"row {k} has no header, or its records are outside of the scratch")
            body = <bytes?>function(whole[b.position + prefix:b.position + b.size])
        size = prefix + PyBytes_GET_SIZE(body)
        if size > INT32_MAX:
            raise RequestError("a compressed batch is larger than 2^31 - 1 bytes")
        if size > room - at:
            return k, at, body
        p = <const uint8_t *>PyBytes_AS_STRING(body)
        with nogil:
            b.position, b.size = at, <int32_t>size
            memcpy(&out[at + prefix], p, size - prefix)
            if b.magic == 2:
                record.seal_v2(b, &out[at])
            else:
                record.seal_wrapper(b, &out[at])
        at += size
        body = None
    return count, at, None


def wire_headers(Columns headers not None, const int32_t[::1] header_count not None):
    """Write headers in their wire form.

    Parameters
    ----------
    headers : Columns
        The headers of all records, back to back, with names as keys.
    header_count : int32 array
        One item per record, none negative.

    Returns
    -------
    arena : numpy.ndarray of uint8
    place : numpy.ndarray of int64
        One item per record: where its headers begin in the arena.
    bad : int
        -1, or the record of a header that has no name or is outside of its source; then the rest is invalid.
    """
    cdef Py_ssize_t i, records = header_count.shape[0]
    cdef int64_t[::1] place = np.empty(records, np.int64)
    cdef int64_t n = 0, size = 0, k = 0, bad = -1
    cdef record.Loaded r
    cdef uint8_t *p
    cdef const uint8_t *end
    if headers.input.count and (headers.input.key_size == NULL or headers.input.value_size == NULL):
        raise ValueError("headers need names and values")
    for i in range(records):
        if header_count[i] < 0 or header_count[i] > headers.input.count - n:
            raise ValueError(f"record {i} has a higher header count than there are headers")
        n += header_count[i]
    with nogil:
        for i in range(records):
            place[i] = size
            n = k + header_count[i]
            while k < n:
                if record.load_header(&headers.input, k, &r) != record.WRITE_OK:
                    bad = i
                    break
                size += record.span_size(r.key_size) + record.span_size(r.value_size)
                k += 1
            if bad >= 0:
                break
    if bad >= 0:
        return np.empty(0, np.uint8), np.asarray(place), bad
    arena = np.empty(size, np.uint8)
    cdef uint8_t[::1] out = arena
    if size:
        with nogil:
            p = &out[0]
            end = p + size
            for k in range(n):
                if record.load_header(&headers.input, k, &r) != record.WRITE_OK or (
                    record.span_size(r.key_size) + record.span_size(r.value_size) > end - p
                ):
                    bad = 0
                    break
                p = record.write_span(p, r.key, r.key_size)
                p = record.write_span(p, r.value, r.value_size)
    if bad >= 0:
        raise ValueError("the headers changed while they were written")
    return arena, np.asarray(place), -1
