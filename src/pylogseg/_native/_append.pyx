"""Bindings for appends: the rules, the batches, and batches that keep their offsets.

A function returns None for anything that it cannot accept; `log/append_validation.py` then finds what is wrong. `_run`
validates batches that get their offsets here.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pylogseg._native.kernels cimport append
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels.crc cimport pls_crc_init, pls_crc32c
from pylogseg._native.kernels.endian cimport load_be16, load_be32, load_be64, store_be32, store_be64

import numpy as np

pls_crc_init()

cdef enum:
    TRANSACTIONAL = 0x10

cdef int64_t HIGHEST_OFFSET = INT64_MAX - 1   # the log's end comes after it


cdef class Batch:
    """The header of a batch in an append, and its position in the appended bytes.

    Attributes
    ----------
    position, size : int
        In bytes.
    base_offset, last_offset : int
        A compressed legacy wrapper does not have the first: there it is the last.
    max_timestamp : int
        ms; -1 none.
    producer_id, producer_epoch, base_sequence, leader_epoch : int
        -1 none.
    count : int
        Records that the header declares; -1 in a compressed legacy wrapper.
    magic, attributes, crc : int
    """
    cdef header.BatchRow row

    @property
    def position(self): return self.row.position

    @property
    def size(self): return self.row.size

    @property
    def base_offset(self): return self.row.base_offset

    @property
    def last_offset(self): return self.row.last_offset

    @property
    def base_timestamp(self): return self.row.base_timestamp

    @property
    def max_timestamp(self): return self.row.max_timestamp

    @property
    def producer_id(self): return self.row.producer_id

    @property
    def producer_epoch(self): return self.row.producer_epoch

    @property
    def base_sequence(self): return self.row.base_sequence

    @property
    def leader_epoch(self): return self.row.leader_epoch

    @property
    def count(self): return self.row.count

    @property
    def crc(self): return self.row.crc

    @property
    def magic(self): return self.row.magic

    @property
    def attributes(self): return self.row.attributes

    @property
    def codec(self):
        """The number of the codec; 5 to 7 are invalid."""
        return self.row.attributes & header.CODEC_MASK

    @property
    def is_transactional(self):
        """Whether it belongs to a transaction, also as its marker."""
        return self.row.magic == 2 and self.row.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self):
        """Whether it holds control records."""
        return self.row.magic == 2 and self.row.attributes & header.CONTROL != 0

    @property
    def is_append_time(self):
        """Whether its timestamps come from the broker's clock."""
        return self.row.magic > 0 and self.row.attributes & header.LOG_APPEND_TIME != 0

    @property
    def last_sequence(self):
        """The sequence of its last record; -1 without sequences. 0 follows 2^31 - 1."""
        cdef int64_t delta = <int32_t>(<uint64_t>self.row.last_offset - <uint64_t>self.row.base_offset)
        if self.row.base_sequence == -1:
            return -1
        # Like Java's int arithmetic, which wraps for a hostile delta.
        if self.row.base_sequence > <int32_t>(INT32_MAX - delta):
            return <int32_t>(delta - (INT32_MAX - <int64_t>self.row.base_sequence) - 1)
        return <int32_t>(self.row.base_sequence + delta)

    def __repr__(self):
        return (f"Batch(position={self.position}, size={self.size}, magic={self.magic}, "
                f"offsets={self.base_offset}..{self.last_offset}, leader_epoch={self.leader_epoch})")


cdef class Prepared:
    """Batches that are ready to be written.

    Attributes
    ----------
    records : buffer
        The bytes to write: new ones, or the caller's if it allowed changes or none were needed.
    batches : list of Batch
        All batches of them.
    first_offset, last_offset : int
        -1 for the first offset if a legacy batch does not have it, and for both if there is nothing to write.
    last_offset_of_first : int
        Last offset of the first batch.
    max_timestamp : int
        ms; -1 none.
    append_time_ms : int
        -1 unless the log's clock set the timestamps.
    valid_bytes : int
        Bytes of whole batches in the input.
    """
    cdef readonly object records
    cdef readonly list batches
    cdef readonly int64_t first_offset, last_offset, last_offset_of_first, max_timestamp, append_time_ms, valid_bytes

    def __init__(self, records, list batches not None, int64_t first_offset, int64_t last_offset, int64_t last_offset_of_first,
                 int64_t max_timestamp, int64_t append_time_ms, int64_t valid_bytes):
        self.records = records
        self.batches = batches
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_offset_of_first = last_offset_of_first
        self.max_timestamp = max_timestamp
        self.append_time_ms = append_time_ms
        self.valid_bytes = valid_bytes

    def __repr__(self):
        return f"Prepared({len(self.batches)} batches, offsets {self.first_offset}..{self.last_offset})"


cdef class Rules:
    """The rules of a log for appended batches, and how it stores them.

    Parameters
    ----------
    size_limit : int
        Most bytes of a batch.
    codec : int
        Codec of stored batches; -1 keeps the producer's.
    append_time : bool
        Whether the log's clock sets the timestamps.
    key_required : bool
        Whether records without a key are refused.
    before_ms, after_ms : int
        How far a timestamp may be in the past, and in the future.
    level : int or None
        Level of the codec.
    """
    cdef append.RecordRules rules
    cdef readonly int64_t size_limit
    cdef readonly int codec
    cdef readonly object level

    def __init__(self, int64_t size_limit, int codec, bint append_time, bint key_required, int64_t before_ms, int64_t after_ms, level=None):
        self.size_limit = size_limit
        self.codec = codec
        self.rules.append_time = append_time
        self.rules.key_required = key_required
        self.rules.before_ms = before_ms
        self.rules.after_ms = after_ms
        self.level = level

    @property
    def append_time(self): return self.rules.append_time

    @property
    def key_required(self): return self.rules.key_required

    @property
    def before_ms(self): return self.rules.before_ms

    @property
    def after_ms(self): return self.rules.after_ms


cdef Prepared made(object records, list batches, int64_t first_offset, int64_t last_offset, int64_t last_of_first,
                   int64_t max_timestamp, int64_t append_time_ms, int64_t valid_bytes):
    cdef Prepared prepared = Prepared.__new__(Prepared)
    prepared.records = records
    prepared.batches = batches
    prepared.first_offset = first_offset
    prepared.last_offset = last_offset
    prepared.last_offset_of_first = last_of_first
    prepared.max_timestamp = max_timestamp
    prepared.append_time_ms = append_time_ms
    prepared.valid_bytes = valid_bytes
    return prepared


def prepare_validated(records not None, int64_t first_offset, int64_t append_time_ms):
    """Return a v2 batch that `Run.validate_one` accepted as `Prepared`.

    Parameters
    ----------
    records : buffer
        Exactly one batch.
    first_offset : int
        Offset of its first record.
    append_time_ms : int
        -1 unless the log's clock set the timestamps.
    """
    cdef const uint8_t[::1] view = records
    cdef Batch batch = Batch.__new__(Batch)
    if view.shape[0] < header.V2_HEADER or view[header.MAGIC_AT] != 2:
        raise ValueError(f"no whole batch of magic 2 in {view.shape[0]} bytes")
    header.read_header(&view[0], view.shape[0], &batch.row)
    batch.row.position = 0
    batch.row.verdict = header.GOOD
    return made(records, [batch], first_offset, batch.row.last_offset, batch.row.last_offset, batch.row.max_timestamp, append_time_ms,
                view.shape[0])


def prepare_with_offsets(data not None, int32_t leader_epoch):
    """Validate batches that keep their offsets, in one pass.

    Parameters
    ----------
    data : buffer
        Any number of batches; a partial one at the end is left out.
    leader_epoch : int
        From the first batch with a higher epoch on, batches are left out.

    Returns
    -------
    Prepared or None
        None if anything is wrong. The records are a view of `data`.
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B") if len(data) else b""
    cdef int64_t start = 0, size = 0, valid = 0, last = -1, first = -1, last_of_first = -1, greatest = -1, length = view.shape[0]
    cdef int ending
    cdef bint skip = False, good
    cdef header.BatchRow row
    cdef Batch batch
    cdef list batches = []
    cdef const uint8_t *p = &view[0] if length else NULL
    while length:
        ending = append.next_frame(p + start, p + length, &size)
        if ending != header.MORE:
            if ending != header.COMPLETE:
                return None
            break
        good = append.readable(p + start, size)
        if good and not skip:
            with nogil:
                header.read_header(p + start, size, &row)
                if row.leader_epoch > leader_epoch:
                    skip = True
                else:
                    good = (row.attributes & header.CODEC_MASK) <= append.HIGHEST_CODEC and row.last_offset > last
                    good = good and row.base_offset <= row.last_offset <= HIGHEST_OFFSET
                    good = good and header.crc_holds(p + start, size)
        if not good:
            return None
        if not skip:
            row.position = start
            row.verdict = header.GOOD
            batch = Batch.__new__(Batch)
            batch.row = row
            if valid == 0:
                first = row.base_offset if row.magic == 2 else -1
                last_of_first = row.last_offset
            batches.append(batch)
            last = row.last_offset
            greatest = max(greatest, row.max_timestamp)
            valid += size
        start += size
    return made(memoryview(data).cast("B")[:valid] if length else b"", batches, first, last, last_of_first, greatest, -1, valid)


def read_batch(data not None, int64_t position, int64_t size):
    """Read the header of a whole batch; return it and whether its CRC matches. ValueError if it is not whole."""
    cdef const uint8_t[::1] view = data
    cdef Batch batch
    if position < 0 or size < header.V0_SMALLEST or size > view.shape[0] - position or not append.readable(&view[position], size):
        raise ValueError(f"no whole batch of {size} bytes at {position}")
    batch = Batch.__new__(Batch)
    header.read_header(&view[position], size, &batch.row)
    batch.row.position = position
    batch.row.verdict = header.UNCHECKED
    return batch, header.crc_holds(&view[position], size)


def batches_of(rows not None, bint producers):
    """Return rows of a batch table as batches; with `producers`, only those that have a producer."""
    cdef const uint8_t[::1] raw
    cdef const header.BatchRow *row
    cdef Py_ssize_t i
    cdef Batch batch
    cdef list found = []
    if rows.dtype.itemsize != sizeof(header.BatchRow):
        raise TypeError(f"rows have {rows.dtype.itemsize} bytes an item, not {sizeof(header.BatchRow)}")
    if not len(rows): return found
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(-1)
    row = <const header.BatchRow *>&raw[0]
    for i in range(len(rows)):
        if producers and row[i].producer_id < 0:
            continue
        batch = Batch.__new__(Batch)
        batch.row = row[i]
        found.append(batch)
    return found


def set_owners(data not None, rows not None, int64_t position, const int64_t[::1] producer_ids not None, const int32_t[::1] leader_epochs not None):
    """Set producer ids, each with a new CRC, and leader epochs of the whole v2 batches of rows; return how many changed.

    `data` can be written, and begins at that position of the file of the rows. ValueError if a batch is not in it.
    """
    cdef uint8_t[::1] view = data
    cdef const uint8_t[::1] raw
    cdef const header.BatchRow *row
    cdef uint8_t *p
    cdef Py_ssize_t i
    cdef int64_t at, size, changed = 0
    if rows.dtype.itemsize != sizeof(header.BatchRow) or not len(rows) == producer_ids.shape[0] == leader_epochs.shape[0]:
        raise TypeError(f"{len(rows)} rows of {rows.dtype.itemsize} bytes, {producer_ids.shape[0]} ids, {leader_epochs.shape[0]} epochs")
    if not len(rows): return 0
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(-1)
    row = <const header.BatchRow *>&raw[0]
    for i in range(len(rows)):
        at, size = row[i].position - position, row[i].size
        if at < 0 or size < header.V0_SMALLEST or size > view.shape[0] - at or <int64_t>header.OVERHEAD + <int32_t>load_be32(&view[at + 8]) != size:
            raise ValueError(f"no whole batch of {size} bytes at {row[i].position}")
        p = &view[at]
        if p[header.MAGIC_AT] != 2 or size < header.V2_HEADER:
            continue
        if <int64_t>load_be64(p + 43) == producer_ids[i]:
            if <int32_t>load_be32(p + 12) != leader_epochs[i]:
                store_be32(p + 12, <uint32_t>leader_epochs[i])
                changed += 1
            continue
        store_be32(p + 12, <uint32_t>leader_epochs[i])
        store_be64(p + 43, <uint64_t>producer_ids[i])
        store_be32(p + 17, pls_crc32c(0, p + header.V2_CRC_FROM, size - header.V2_CRC_FROM))
        changed += 1
    return changed


def end_marker(data not None, int64_t position, int64_t size):
    """Read the marker in an uncompressed control batch of version 2.

    Returns
    -------
    tuple of (int, int, int) or None
        Its type (0 abort, 1 commit), the coordinator epoch and its timestamp. None for anything else.
    """
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef header.BatchRow row
    cdef record.Walk w
    cdef record.Columns one
    cdef int64_t offset = 0, timestamp = 0, key_place = 0, value_place = 0, headers_place = 0
    cdef int32_t key_size = -1, value_size = -1, header_count = 0, number = 0
    cdef int kind
    if position < 0 or size < header.V2_HEADER or size > view.shape[0] - position or view[position + header.MAGIC_AT] != 2:
        return None
    p = &view[position]
    header.read_header(p, size, &row)
    if row.attributes & header.CODEC_MASK or row.count < 1:
        return None
    memset(&w, 0, sizeof(w))
    w.p = p + header.V2_HEADER
    w.end = p + size
    w.origin = p
    one.offset = &offset
    one.timestamp = &timestamp
    one.key_place = &key_place
    one.key_size = &key_size
    one.value_place = &value_place
    one.value_size = &value_size
    one.headers_place = &headers_place
    one.header_count = &header_count
    one.batch = &number
    if record.any_record(&w, &row, &one, 0) != record.RECORD_OK or key_size < 4 or value_size < 6:
        return None
    if row.count == 1 and w.p != w.end:
        return None
    kind = <int16_t>load_be16(p + key_place + 2)
    if <int16_t>load_be16(p + key_place) < 0 or <int16_t>load_be16(p + value_place) < 0 or not 0 <= kind <= 1:
        return None
    if row.attributes & header.LOG_APPEND_TIME:
        timestamp = row.max_timestamp
    return kind, <int32_t>load_be32(p + value_place + 2), timestamp
