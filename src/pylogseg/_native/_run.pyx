"""Appends of many batches: a run of batches is validated and prepared for one write.

A run holds the state of the log after its batches, so that it can validate the next batch before they are written. It
stops before the first batch that it cannot accept, or that needs another step first (a roll, a flush); the
caller writes the run and appends that batch separately. `Run.validate_one` validates a single batch and tells the two
cases apart: only a batch that it cannot accept is validated again, by `log/append_validation.py`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pylogseg._native.kernels cimport append
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels.batch cimport SOURCE_SHIFT
from pylogseg._native.kernels.producer cimport KEPT_BATCHES, Kept, Producer, follows, note
from pylogseg._native.kernels.crc cimport pls_crc_init
from pylogseg._native.kernels.endian cimport load_be32, store_be32, store_be64

import numpy as np

pls_crc_init()

cdef enum:
    MOST_PRODUCERS = 64        # in one run
    ENTRY_ROOM = 1024          # index entries in one run

cpdef enum:                    # why a run stopped
    ALL = 0                    # all batches were taken
    FULL = 1                   # the run has its largest size, or a flush is due
    ALONE = 2                  # the next batch cannot be accepted here, or is not stored unchanged
    PRODUCER = 3               # the run does not know the producer of the next batch
    BODY = 4                   # the next batch is compressed, and its decompressed records were not passed
    STEPS = 5                  # the next batch begins a segment, or does not simply continue its producer's sequence


cdef class Run:
    """Consecutive batches in one segment.

    Parameters
    ----------
    rules : Rules, optional
        Rules of the log; without them batches can be added, but not validated.
    leader_epoch : int
        The leader epoch for the batches.
    client : bool
        Whether the rules for clients apply.
    now_ms : int
        The time of the log's clock.

    Attributes
    ----------
    next_offset : int
        The offset of the next record.
    base_offset, position : int
        Base offset of the segment, and the end of its file.
    max_timestamp, max_timestamp_offset : int
        The greatest timestamp of the segment, and the last offset of the first batch that has it.
    entry_timestamp, entry_timestamp_offset : int
        The last entry of the time index.
    entry_offset : int
        Offset of the last entry of the offset index.
    since_entry, interval : int
        Bytes since the last index entry, and bytes between entries.
    entries_left : int
        Entries for which offset and time index have room.
    first_timestamp, created_ms, roll_age_ms : int
        Timestamp of the segment's first batch; when the segment was created, which counts if that is -1; and how far
        timestamps, or the clock, may be after that.
    roll_bytes : int
        The largest size of the segment.
    flush_offset : int
        The run ends at this offset.
    reason : int
        Why the last call stopped.
    used : int
        Bytes of the run.
    timestamp : int
        The greatest timestamp of the last batch.
    has_entries, has_producers : bool
        Whether there are index entries to write, and batches of producers.
    """
    cdef append.BatchRules by
    cdef int32_t leader_epoch
    cdef public int64_t next_offset, base_offset, position, max_timestamp, max_timestamp_offset, entry_timestamp, entry_timestamp_offset, entry_offset
    cdef public int64_t since_entry, interval, entries_left, first_timestamp, created_ms, roll_age_ms, roll_bytes, flush_offset
    cdef readonly int64_t used, timestamp
    cdef readonly int reason
    cdef int producer_count, entry_count, time_count
    cdef header.BatchRow validated     # by `validate_one`
    cdef Producer producers[MOST_PRODUCERS]
    cdef uint8_t offset_entries[8 * ENTRY_ROOM]
    cdef uint8_t time_entries[12 * ENTRY_ROOM]

    def __init__(self, rules=None, int32_t leader_epoch=-1, bint client=True, int64_t now_ms=0):
        if rules is None:
            return
        self.by.rules.append_time = rules.append_time
        self.by.rules.key_required = rules.key_required
        self.by.rules.before_ms = rules.before_ms
        self.by.rules.after_ms = rules.after_ms
        self.by.size_limit = rules.size_limit
        self.by.codec = rules.codec
        self.by.client = client
        self.by.now_ms = now_ms
        self.leader_epoch = leader_epoch

    @property
    def has_entries(self): return self.entry_count > 0

    @property
    def has_producers(self): return self.producer_count > 0

    cpdef begin(self):
        """Begin another run: forget batches, index entries and producers."""
        self.used = self.producer_count = self.entry_count = self.time_count = 0

    cpdef begin_nowhere(self):
        """Begin outside of a segment: validated batches are not taken, and the reason is STEPS."""
        self.begin()
        self.position = self.roll_bytes = 0

    def add_producer(self, int64_t producer_id, int32_t producer_epoch, int32_t last_sequence, bint in_transaction):
        """Add a producer and its last batch; return whether there was room for it."""
        cdef Producer *one
        if self.producer_count == MOST_PRODUCERS:
            return False
        one = &self.producers[self.producer_count]
        self.producer_count += 1
        one.id, one.epoch, one.last_sequence, one.in_transaction, one.count = producer_id, producer_epoch, last_sequence, in_transaction, 0
        return True

    def producer_states(self):
        """Return id, number of batches and last batches of each producer in the run.

        Returns
        -------
        list of (int, list of (int, int, int, int))
            Last sequence, last offset, last less first offset and timestamp of up to five batches, oldest first.
        """
        cdef Producer *one
        cdef Kept *kept
        cdef int i, k
        found = []
        for i in range(self.producer_count):
            one = &self.producers[i]
            some = []
            for k in range(max(one.count - KEPT_BATCHES, 0), one.count):
                kept = &one.kept[k % KEPT_BATCHES]
                some.append((kept.last_sequence, kept.last_offset, kept.delta, kept.timestamp))
            if some:
                found.append((one.id, some))
        return found

    def entries(self):
        """Return the index entries of the run, in the form of the files.

        Returns
        -------
        tuple of (bytes, bytes)
            Entries of the offset index and of the time index.
        """
        return (<char *>self.offset_entries)[:8 * self.entry_count], (<char *>self.time_entries)[:12 * self.time_count]

    def validate(self, data, const int64_t[::1] starts not None, int64_t row, out, int64_t room, int64_t[::1] first_offsets not None,
              int64_t[::1] last_offsets not None, int64_t[::1] timestamps not None, bodies=None, arena=None):
        """Take batches into the run, until something stops it.

        Parameters
        ----------
        data : buffer
            The batches; writable if `out` is None.
        starts : array of int64
            The result of `frames`.
        row : int
            Number of the first batch to take.
        out : buffer or None
            The output, appended to; None changes the batches in place.
        room : int
            Most bytes of the run.
        first_offsets, last_offsets, timestamps : array of int64
            Filled for each batch that is taken.
        bodies : array of BODY_DTYPE, optional
            The place of the records of each batch of `data`; in `arena` if they are compressed.
        arena : buffer, optional

        Returns
        -------
        int
            Number of the first batch that was not taken; `reason` says why.
        """
        cdef Py_buffer source, target
        cdef const uint8_t[::1] places, bytes_
        cdef const int64_t *place = NULL
        cdef const uint8_t *arena_at = NULL
        cdef int64_t arena_size = 0
        cdef int64_t most = starts.shape[0] - 1
        if row < 0 or min(first_offsets.shape[0], last_offsets.shape[0], timestamps.shape[0]) < most:
            raise ValueError("a column is too short")
        if bodies is not None:
            places = bodies.view(np.uint8)
            bytes_ = arena
            if places.shape[0] < 16 * most:
                raise ValueError("too few bodies")
            place = <const int64_t *>&places[0] if most else NULL
            arena_size = bytes_.shape[0]
            arena_at = &bytes_[0] if arena_size else NULL
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE if out is not None else PyBUF_WRITABLE)
        try:
            if out is None:
                return self.take(<uint8_t *>source.buf, source.len, starts, row, NULL, room, first_offsets, last_offsets, timestamps,
                                 place, arena_at, arena_size)
            PyObject_GetBuffer(out, &target, PyBUF_WRITABLE)
            try:
                return self.take(<uint8_t *>source.buf, source.len, starts, row, <uint8_t *>target.buf, min(room, target.len), first_offsets,
                                 last_offsets, timestamps, place, arena_at, arena_size)
            finally:
                PyBuffer_Release(&target)
        finally:
            PyBuffer_Release(&source)

    cdef int64_t take(self, uint8_t *data, int64_t length, const int64_t[::1] starts, int64_t row, uint8_t *out, int64_t room,
                      int64_t[::1] first_offsets, int64_t[::1] last_offsets, int64_t[::1] timestamps, const int64_t *places,
                      const uint8_t *arena, int64_t arena_size):
        cdef int64_t size, start, first, body_at, body_size
        cdef const uint8_t *body
        with nogil:
            self.reason = ALL
            while row < starts.shape[0] - 1:
                start, size = starts[row], starts[row + 1] - starts[row]
                if start < 0 or size < 0 or size > length - start:
                    self.reason = ALONE
                    break
                if size > room - self.used:
                    self.reason = FULL
                    break
                body, body_size = NULL, 0
                if places != NULL:
                    body_at, body_size = places[2 * row], places[2 * row + 1]
                    if body_at >> SOURCE_SHIFT == 1 and body_size > 0:
                        body_at -= <int64_t>1 << SOURCE_SHIFT
                        if body_at <= arena_size and body_size <= arena_size - body_at:
                            body = arena + body_at
                first = self.next_offset
                self.reason = self.step(data + start, size, body, body_size, NULL if out == NULL else out + self.used)
                if self.reason != ALL:
                    break
                first_offsets[row], last_offsets[row], timestamps[row] = first, self.next_offset - 1, self.timestamp
                row += 1
        return row

    def validate_one(self, data, int32_t leader_epoch, int64_t now_ms, bint client, bint in_place, body=None):
        """Validate one batch, prepare it for writing, and take it as a run of its own.

        Parameters
        ----------
        data : buffer
            Exactly one batch.
        leader_epoch : int
        now_ms : int
        client : bool
        in_place : bool
            Whether `data` may be changed, if it is writable.
        body : buffer, optional
            Its decompressed records, after the reason was BODY.

        Returns
        -------
        buffer or None
            The batch to write. It was taken only if the reason is ALL. With STEPS, and with PRODUCER unless
            `take_validated` succeeds, the caller has to do the steps of a run. None for ALONE and BODY.
        """
        cdef Py_buffer source, records
        cdef bint writable = False
        cdef int64_t size = 0, greatest = -1
        cdef uint8_t *p
        cdef int status
        cdef header.BatchRow batch   # here and not in the object, so that its fields stay in registers
        self.begin()
        self.leader_epoch, self.by.now_ms, self.by.client = leader_epoch, now_ms, client
        self.reason = ALONE
        if in_place and not isinstance(data, bytes):
            try:
                PyObject_GetBuffer(data, &source, PyBUF_WRITABLE)
                writable = True
            except BufferError:
                pass
        if not writable:
            PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            p = <uint8_t *>source.buf
            if append.next_frame(p, p + source.len, &size) != header.MORE or size != source.len:
                return None
            if body is None:
                with nogil:
                    status = append.validate(p, size, NULL, 0, &self.by, self.next_offset, &batch, &greatest)
            else:
                PyObject_GetBuffer(body, &records, PyBUF_SIMPLE)
                with nogil:
                    status = append.validate(p, size, <const uint8_t *>records.buf, records.len, &self.by, self.next_offset, &batch, &greatest)
                PyBuffer_Release(&records)
            if status != append.VALID:
                if status == append.COMPRESSED:
                    self.reason = BODY
                    self.validated = batch
                return None
            made = data
            if not writable:
                made = PyBytes_FromStringAndSize(<const char *>p, size)
                p = <uint8_t *>PyBytes_AS_STRING(made)
            self.timestamp = now_ms if self.by.rules.append_time else greatest
            self.assign(p, size, &batch, self.next_offset + batch.count - 1)
            self.validated = batch
            self.take_validated()
            return made
        finally:
            PyBuffer_Release(&source)

    def codec(self):
        """Return the number of the codec of the last batch of `validate_one`."""
        return self.validated.attributes & header.CODEC_MASK

    def producer_id(self):
        """Return the id of its producer."""
        return self.validated.producer_id

    cpdef bint take_validated(self):
        """Take the last batch of `validate_one`, also after its producer was added; return whether it was taken."""
        cdef Producer *producer = NULL
        self.reason = self.reason_to_stop(&self.validated, self.validated.size, self.validated.last_offset, self.timestamp, &producer)
        if self.reason == ALL:
            self.note_batch(&self.validated, self.validated.size, producer)
        return self.reason == ALL

    cdef int step(self, uint8_t *p, int64_t size, const uint8_t *body, int64_t body_size, uint8_t *out) noexcept nogil:
        """Take a whole batch into the run, copied to `out` unless that is NULL; return ALL, or why not."""
        cdef header.BatchRow batch
        cdef int64_t greatest = -1, last
        cdef Producer *producer = NULL
        cdef int status
        if self.next_offset >= self.flush_offset or self.entry_count == ENTRY_ROOM:
            return FULL
        status = append.validate(p, size, body, body_size, &self.by, self.next_offset, &batch, &greatest)
        if status != append.VALID:
            return BODY if status == append.COMPRESSED else ALONE
        self.timestamp = self.by.now_ms if self.by.rules.append_time else greatest
        last = self.next_offset + batch.count - 1
        status = self.reason_to_stop(&batch, size, last, self.timestamp, &producer)
        if status != ALL:
            return status
        if out != NULL:
            memcpy(out, p, size)
            p = out
        self.assign(p, size, &batch, last)
        self.note_batch(&batch, size, producer)
        return ALL

    cdef void assign(self, uint8_t *p, int64_t size, header.BatchRow *batch, int64_t last) noexcept nogil:
        append.assign(p, size, batch, last, self.leader_epoch, self.by.rules.append_time, self.timestamp)

    cdef int reason_to_stop(self, const header.BatchRow *batch, int64_t size, int64_t last, int64_t timestamp, Producer **producer) noexcept nogil:
        """Return why a validated batch cannot be taken, or ALL; and its producer if it has one."""
        if self.rolls(size, last, timestamp):
            return STEPS
        if batch.producer_id < 0:
            return ALL
        producer[0] = self.producer_of(batch)
        if producer[0] == NULL:
            return PRODUCER
        return ALL if follows(producer[0], batch) else STEPS

    cdef void note_batch(self, const header.BatchRow *batch, int64_t size, Producer *producer) noexcept nogil:
        """Update the state of the run for a batch that has its offsets."""
        if producer != NULL:
            note(producer, batch)
        self.index(size, batch.last_offset, self.timestamp)
        self.used += size
        self.next_offset = batch.last_offset + 1

    def add(self, rows not None, int64_t row):
        """Take batches that are already in the file into the run, for their index entries and timestamps.

        Parameters
        ----------
        rows : numpy.ndarray of BATCH_DTYPE
            Consecutive batches.
        row : int
            The first to take.

        Returns
        -------
        int
            The first row that was not taken. `reason` is ALL if all were, FULL if entries have to be written first, and
            ALONE if a due entry does not fit into the indexes, or the batch not into the segment.
        """
        cdef const uint8_t[::1] raw
        cdef const header.BatchRow *batch
        cdef int64_t count = len(rows)
        if rows.dtype.itemsize != sizeof(header.BatchRow):
            raise TypeError(f"rows have {rows.dtype.itemsize} bytes an item, not {sizeof(header.BatchRow)}")
        self.reason = ALL
        if row >= count or row < 0:
            return count
        raw = np.ascontiguousarray(rows).view(np.uint8).reshape(-1)
        batch = <const header.BatchRow *>&raw[0]
        with nogil:
            while row < count:
                if not self.fits(&batch[row]):
                    self.reason = ALONE
                    break
                if self.entry_count == ENTRY_ROOM:
                    self.reason = FULL
                    break
                self.index(batch[row].size, batch[row].last_offset, batch[row].max_timestamp)
                row += 1
        return row

    cdef bint fits(self, const header.BatchRow *batch) noexcept nogil:
        """Check whether the indexes can hold the batch, also if it gets an entry."""
        cdef int64_t offset = self.max_timestamp_offset
        if batch.last_offset < self.base_offset or batch.last_offset - self.base_offset > INT32_MAX:
            return False
        if self.since_entry <= self.interval:
            return True
        if batch.max_timestamp > self.max_timestamp:
            offset = batch.last_offset
        return self.entries_left > 0 and batch.last_offset > self.entry_offset and offset >= self.entry_timestamp_offset

    cdef bint rolls(self, int64_t size, int64_t last, int64_t timestamp) noexcept nogil:
        """Check whether the batch belongs in another segment."""
        if size > self.roll_bytes - self.position or self.entries_left <= 0:
            return True
        if self.position > 0 and (timestamp - self.first_timestamp if self.first_timestamp >= 0 else self.by.now_ms - self.created_ms) > self.roll_age_ms:
            return True
        return last < self.base_offset or last - self.base_offset > INT32_MAX

    cdef void index(self, int64_t size, int64_t last, int64_t timestamp) noexcept nogil:
        """Count the batch, and add index entries if they are due."""
        cdef uint8_t *p
        if self.position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last
        if self.since_entry > self.interval:
            p = self.offset_entries + 8 * self.entry_count
            store_be32(p, <int32_t>(last - self.base_offset))
            store_be32(p + 4, <int32_t>self.position)
            self.entry_offset = last
            self.entry_count += 1
            self.entries_left -= 1
            if self.max_timestamp > self.entry_timestamp:
                p = self.time_entries + 12 * self.time_count
                store_be64(p, <uint64_t>self.max_timestamp)
                store_be32(p + 8, <int32_t>(self.max_timestamp_offset - self.base_offset))
                self.time_count += 1
                self.entry_timestamp, self.entry_timestamp_offset = self.max_timestamp, self.max_timestamp_offset
            self.since_entry = 0
        self.position += size
        self.since_entry += size

    cdef Producer *producer_of(self, const header.BatchRow *batch) noexcept nogil:
        cdef int i
        for i in range(self.producer_count):
            if self.producers[i].id == batch.producer_id:
                return &self.producers[i]
        return NULL
