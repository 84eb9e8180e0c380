"""Decode batch bodies into record columns.

Functions on buffers, as in `_codec`. A span is a place and a size. Every span is checked against its source before
its bytes are read, so invalid columns of a caller cannot make a kernel read outside of the buffers.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from pylogseg._native._framing cimport Span, Unpacker
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport guard
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels.batch cimport SOURCE_SHIFT, Body
from pylogseg._native.kernels.guard cimport Map, guarded, map_bytes, unmap
from pylogseg._native.kernels.memory cimport keep_freed
from pylogseg._native.kernels.places cimport SOURCES, Source, hold, resolve
from pylogseg._native.kernels.reading cimport Reading, begin_mapped, begin_reading, keep_batch, next_batch
from pylogseg._native.kernels.varint cimport read_varint

import numpy as np

checksum.pls_crc_init()
record.pls_copies_init(True)

cdef enum:
    COPIED_VALUES = 2
    COPIED_KEYS = 3

cdef extern from *:
    const int64_t HIGHEST_OFFSET "INT64_MAX"


cdef bytes_of(array, Py_ssize_t itemsize, str what):
    if array.dtype.itemsize != itemsize:
        raise TypeError(f"{what} has {array.dtype.itemsize} bytes an item, not {itemsize}")
    return np.frombuffer(array, np.uint8)   # three times as fast as `view`, which searches a structure for objects


def capacity(rows not None, bodies not None) -> tuple[int, int]:
    """Return the most records of the batches (from sizes, not from the counts in headers), and the bytes of bodies."""
    cdef const uint8_t[::1] raw = bytes_of(rows, sizeof(header.BatchRow), "rows")
    cdef const uint8_t[::1] raw_bodies = bytes_of(bodies, sizeof(Body), "bodies")
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t total = 0, size = 0
    if len(bodies) != count:
        raise ValueError("rows and bodies differ in length")
    if count == 0:
        return 0, 0
    cdef const header.BatchRow *row = <const header.BatchRow *>&raw[0]
    cdef const Body *body = <const Body *>&raw_bodies[0]
    with nogil:
        for i in range(count):
            total += record.room_for(&row[i], body[i].size)
            size += max(body[i].size, 0)
    return total, size


def plain_bodies(rows not None, int64_t file_position, bodies not None, int64_t buffer_size=0) -> bool:
    """Fill the bodies of uncompressed batches, in a buffer whose first byte is at `file_position`.

    Return whether all of them are in the buffer, and all have records.
    """
    cdef const uint8_t[::1] raw = bytes_of(rows, sizeof(header.BatchRow), "rows")
    cdef uint8_t[::1] raw_bodies = bytes_of(bodies, sizeof(Body), "bodies")
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t head
    cdef bint is_simple = True
    if len(bodies) != count:
        raise ValueError("rows and bodies differ in length")
    if count == 0:
        return True
    cdef const header.BatchRow *row = <const header.BatchRow *>&raw[0]
    cdef Body *body = <Body *>&raw_bodies[0]
    with nogil:
        for i in range(count):
            head = header.V2_HEADER if row[i].magic == 2 else 0
            body[i].place = row[i].position - file_position + head
            body[i].size = row[i].size - head
            is_simple &= row[i].count != 0 and 0 <= body[i].place <= buffer_size and 0 <= body[i].size <= buffer_size - body[i].place
    return is_simple


cdef inline int crc_status(const Source *sources, const header.BatchRow *row, const Body *body) noexcept nogil:
    """Check the CRC of an uncompressed batch, whose body must be in source 0 after its header."""
    cdef int64_t head = header.V2_HEADER if row.magic == 2 else 0
    cdef const uint8_t *p = resolve(sources, body.place - head, row.size)
    if p == NULL or body.place >> SOURCE_SHIFT or body.size != row.size - head or row.size < header.V0_SMALLEST:
        return record.RECORD_SOURCE
    return record.RECORD_OK if header.crc_holds(p, row.size) else record.RECORD_CRC


cdef class Output:
    """Arrays that decoders fill, checked once.

    No two of them may share memory. What a decoder fills depends on the room in them, and it says how much that was.

    Parameters
    ----------
    offset, timestamp, key_place, key_size, value_place, value_size, headers_place, header_count, batch : arrays
        The record columns.
    key_view, value_view : uint8 arrays, both or none
        Keys and values as Arrow binary views, `VIEW_BYTES` each, whose buffers are the sources.
    value_ends, value_data, key_ends, key_data : int32 array of one more item, uint8 array; both or none
        The payloads, copied back to back from byte ``value_ends[n]`` on for slot n, and the end of each. There must be
        room for the bytes of all bodies; a few more make the last copies faster.
    """
    cdef record.Columns columns
    cdef int64_t room            # slots
    cdef int64_t most_ends[2]    # of keys, and of values
    cdef int64_t[::1] offset, timestamp, key_place, value_place, headers_place
    cdef int32_t[::1] key_size, value_size, header_count, batch, value_ends, key_ends
    cdef uint8_t[::1] key_view, value_view, value_data, key_data

    def __cinit__(
        self,
        int64_t[::1] offset not None, int64_t[::1] timestamp not None,
        int64_t[::1] key_place not None, int32_t[::1] key_size not None,
        int64_t[::1] value_place not None, int32_t[::1] value_size not None,
        int64_t[::1] headers_place not None, int32_t[::1] header_count not None, int32_t[::1] batch not None,
        uint8_t[::1] key_view=None, uint8_t[::1] value_view=None,
        int32_t[::1] value_ends=None, uint8_t[::1] value_data=None,
        int32_t[::1] key_ends=None, uint8_t[::1] key_data=None,
    ):
        cdef record.Columns *to = &self.columns
        self.offset, self.timestamp, self.batch = offset, timestamp, batch
        self.key_place, self.value_place, self.headers_place = key_place, value_place, headers_place
        self.key_size, self.value_size, self.header_count = key_size, value_size, header_count
        self.key_view, self.value_view = key_view, value_view
        self.value_ends, self.value_data, self.key_ends, self.key_data = value_ends, value_data, key_ends, key_data
        memset(to, 0, sizeof(to[0]))
        self.room = min(offset.shape[0], timestamp.shape[0], key_place.shape[0], key_size.shape[0], value_place.shape[0],
                        value_size.shape[0], headers_place.shape[0], header_count.shape[0], batch.shape[0])
        if key_view is not None and value_view is not None:
            self.room = min(self.room, key_view.shape[0] // record.VIEW_BYTES, value_view.shape[0] // record.VIEW_BYTES)
        self.most_ends[0] = copies_into(&to.keys, key_ends, key_data)
        self.most_ends[1] = copies_into(&to.values, value_ends, value_data)
        self.room = min(self.room, self.most_ends[0] - 1, self.most_ends[1] - 1)
        if self.room <= 0:
            self.room = 0
            return
        to.offset = &offset[0]
        to.timestamp = &timestamp[0]
        to.key_place = &key_place[0]
        to.key_size = &key_size[0]
        to.value_place = &value_place[0]
        to.value_size = &value_size[0]
        to.headers_place = &headers_place[0]
        to.header_count = &header_count[0]
        to.batch = &batch[0]
        if key_view is not None and value_view is not None:
            to.key_view = &key_view[0]
            to.value_view = &value_view[0]

    cdef int check(self, int64_t n) except -1:
        """Check that slot `n` may be the first that is filled."""
        if n < 0:
            raise ValueError(f"slot {n} is outside of the columns")
        check_copies(&self.columns.keys, n, self.most_ends[0])
        check_copies(&self.columns.values, n, self.most_ends[1])
        return 0


cdef int64_t copies_into(record.pls_payloads *to, int32_t[::1] ends, uint8_t[::1] data) noexcept:
    """Set the output of copied payloads; return how many ends there may be."""
    if ends is None or data is None:
        return HIGHEST_OFFSET
    if ends.shape[0]:
        to.ends = &ends[0]
        to.data = &data[0] if data.shape[0] else NULL
        to.room = min(data.shape[0], 0x7FFFFFFF)
    return ends.shape[0]


cdef int check_copies(const record.pls_payloads *to, int64_t n, int64_t most) except -1:
    if most != HIGHEST_OFFSET and (n >= most or not 0 <= to.ends[n] <= to.room):
        raise ValueError("the payloads before the first slot were not copied")
    return 0


cdef inline bint has_room(const record.pls_payloads *to, int64_t n, int64_t size) noexcept nogil:
    return to.ends == NULL or size <= to.room - to.ends[n]


cdef tuple tally_of(const record.Tally *t):
    return t.lowest_offset, t.highest_offset, t.null_keys, t.null_values, t.headers, t.outside


def decode(
    rows not None, int64_t first_row, bodies not None, sources not None, int64_t n, Output output not None, *,
    bint crc=False, int64_t done=-1, int64_t at=0,
):
    """Decode the bodies of batches from `first_row` on into columns, from slot `n` on.

    Stops before the first batch whose records are damaged (nothing of it stays), or whose body size is negative.

    Parameters
    ----------
    crc : bool
        Check the CRC of each batch right before its records are decoded, so that its bytes are loaded once; stop before
        a batch with a CRC mismatch. The bodies must be those of `plain_bodies`.
    done, at : int
        Decode a part of a single batch of magic 2: from record number `done` on, which begins at byte `at` of the body,
        as many records as there are slots.

    Returns
    -------
    next_row : int
        ``len(rows)``, or the row of a damaged batch.
    n : int
        Slots filled.
    tally : tuple of int
        Counts of the added records: lowest and highest offset, null keys, null values, headers, and batches of magic 2
        with a record outside of their own offsets. Without records the offsets are the highest and the lowest possible.
    status : int
        0, or what is wrong (`format.records.REASONS`).
    place : int
        Place of the damage; for a part, of its end.
    """
    cdef const uint8_t[::1] raw = bytes_of(rows, sizeof(header.BatchRow), "rows")
    cdef const uint8_t[::1] raw_bodies = bytes_of(bodies, sizeof(Body), "bodies")
    cdef Source[SOURCES] buffers
    cdef list held = hold(sources, buffers)
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t most, begin, records, room
    cdef bint in_parts = done >= 0
    cdef int status = record.RECORD_OK
    cdef record.Columns columns
    cdef record.Walk walk
    cdef record.Tally tally = [HIGHEST_OFFSET, -HIGHEST_OFFSET - 1, 0, 0, 0, 0]
    if len(bodies) != count or not 0 <= first_row <= count:
        raise ValueError("rows and bodies differ in length, or the first row is out of range")
    if in_parts and (count != 1 or first_row or crc or at < 0):
        raise ValueError("only a single batch is decoded in parts, without its CRC")
    output.check(n)
    columns, room = output.columns, output.room
    memset(&walk, 0, sizeof(walk))
    if count == first_row:
        return count, n, tally_of(&tally), 0, 0
    cdef const header.BatchRow *rows_of = <const header.BatchRow *>&raw[0]
    cdef const Body *bodies_of = <const Body *>&raw_bodies[0]
    # Copies: another thread may write to the table between check and use.
    cdef header.BatchRow row = rows_of[first_row]
    cdef Body body = bodies_of[first_row]
    if in_parts and (row.magic != 2 or at > body.size or done > row.count or room <= n):
        raise ValueError("the batch is not of magic 2, has no such part, or there are no slots")
    with nogil:
        for i in range(first_row, count):
            if i > first_row:
                row, body = rows_of[i], bodies_of[i]
            begin = n
            most = record.room_for(&row, body.size)
            walk.p = resolve(buffers, body.place, body.size)
            walk.source = (body.place >> SOURCE_SHIFT) << SOURCE_SHIFT
            if (walk.p == NULL or (most > room - n and not in_parts) or not has_room(&columns.keys, n, body.size)
                    or not has_room(&columns.values, n, body.size)):
                status = record.RECORD_SOURCE
                walk.p = NULL
                break
            walk.end = walk.p + body.size
            walk.origin = walk.p - (body.place - walk.source)
            walk.p += at
            if crc:
                status = crc_status(buffers, &row, &body)
                if status != record.RECORD_OK:
                    break
            if row.magic == 2:
                if row.count < 0 or (row.count > most):
                    status = record.RECORD_COUNT
                records = min(row.count - done, room - n) if in_parts else row.count
                if status == record.RECORD_OK and records:   # count 0: Kafka ignores any bytes there
                    status = record.decode_v2(&walk, &row, <int32_t>i, &columns, n, records)
                    if status == record.RECORD_OK and walk.p != walk.end and (not in_parts or done + records == row.count):
                        status = record.RECORD_REMAINS
                if status != record.RECORD_OK:
                    break
                n += records
            elif row.attributes & header.CODEC_MASK:
                most = 0
                status = record.decode_wrapped(&walk, &row, <int32_t>i, &columns, n, &most)
                if status != record.RECORD_OK:
                    break
                n += most
            else:
                if body.size < record.LEGACY_SMALLEST:
                    status = record.RECORD_INNER_SIZE
                else:
                    status = record.decode_entry(&walk, &row, <int32_t>i, &columns, n)
                if status != record.RECORD_OK:
                    break
                n += 1
            record.tally(&tally, &row, &columns, begin, n)
        else:
            i = count
    if status == record.RECORD_OK:
        return count, n, tally_of(&tally), 0, walk.source + (walk.p - walk.origin) if in_parts else 0
    return i, n, tally_of(&tally), status, body.place if walk.p == NULL else walk.source + (walk.p - walk.origin)


cdef class FileMap:
    """Some pages of one open file, mapped by `read_and_decode` of it as it needs them; for one thread at a time."""
    cdef Map map

    def __dealloc__(self):
        unmap(&self.map)


def read_and_decode(
    int file, int64_t position, memory not None, int64_t piece_bytes, int64_t first_offset, int64_t last_offset,
    rows not None, Output output not None, Unpacker unpacker=None, uint8_t[::1] arena=None, FileMap file_map=None,
):
    """Read good batches of magic 2 and of one codec from an open file, and decode them, a piece after the other.

    So a byte is checked, decompressed and decoded while the cache has it from the reading; and where all that is made of
    it is copied, the next bytes overwrite it before it leaves the cache for memory. Places of what is copied are those
    of the copy: values are source 2, keys source 3. It ends before what is anything but good batches of that kind, of
    which nothing is said, and where rows, columns or memory are full.

    As long as no record has headers, and payloads are wanted as views or copied, headers and batches are not filled, nor
    are places of what is copied: they follow from the rest, and few ask for them.

    Parameters
    ----------
    file, position : int
        A descriptor, and where to read. The file -1 is memory that has the bytes of that position.
    memory : uint8 array
        For the bytes, source 0: as many are read.
    piece_bytes : int
        Bytes that are read at a time.
    first_offset, last_offset : int
        Batches that end before the first offset, and begin the file, are checked but not decoded. It ends after a batch
        that reaches the last one.
    rows : items of `BATCH_DTYPE`
        Filled.
    output : Output
        Filled from slot 0 on.
    unpacker, arena : Unpacker, uint8 array
        What decompresses the batches, and memory for that, source 1; None: they are not compressed.
    file_map : FileMap
        Of the file, to which nobody writes: batches that are not compressed are decoded from its pages, if that is
        faster. A page that is gone ends it as a short file does.

    Returns
    -------
    count, before : int
        Rows filled, and how many of them were not decoded: the others are numbered from 0 on in the columns.
    n : int
        Slots filled.
    tally : tuple of int
        As of `decode`.
    done, filled : int
        Bytes of the batches, and bytes that were read; -1 for the second if there are fewer than asked for.
    unpacked : int
        Bytes that compressed batches became.
    plain : int
        How many of the first slots are filled so: no record there has headers.
    """
    cdef uint8_t[::1] raw = bytes_of(rows, sizeof(header.BatchRow), "rows")
    cdef const uint8_t[::1] readable = memory
    cdef uint8_t[::1] writable = memory if file >= 0 else None    # checked here: nothing else is written to
    cdef Span source = None, target = None
    cdef Stretch s
    cdef const uint8_t *mapped
    cdef bint is_there = True
    if piece_bytes < 1:
        raise ValueError(f"pieces of {piece_bytes} bytes")
    output.check(0)
    memset(&s, 0, sizeof(s))
    s.tally.lowest_offset, s.tally.highest_offset = HIGHEST_OFFSET, -HIGHEST_OFFSET - 1
    if not (readable.shape[0] and raw.shape[0] and output.room):
        return 0, 0, 0, tally_of(&s.tally), 0, 0, 0, 0
    s.rows, s.table = <header.BatchRow *>&raw[0], len(rows)
    s.columns, s.room = output.columns, output.room
    s.first_offset, s.last_offset = first_offset, last_offset
    if unpacker is not None:
        source, target = Span(readable, True), Span(arena, False)
        s.codec, s.unpacker, s.source, s.target = unpacker.codec, <void *>unpacker, <void *>source, <void *>target
        s.arena, s.arena_bytes = target.base, target.total
    begin_reading(&s.reading, file, position, <uint8_t *>&readable[0], readable.shape[0], piece_bytes)
    with nogil:
        mapped = NULL
        # Payloads that are not copied would have to be kept: to read them is the cheaper copy.
        if file_map is not None and s.codec == 0 and s.columns.values.ends != NULL:
            mapped = map_bytes(&file_map.map, file, position, s.reading.size)
        if mapped == NULL:
            decode_batches(&s)
        else:
            begin_mapped(&s.reading, mapped)
            is_there = guarded(&file_map.map, decode_mapped, &s)
    is_there = is_there and not s.reading.is_short
    return (s.count, s.before, s.n, tally_of(&s.tally), s.reading.done, s.reading.filled if is_there else -1, s.unpacked,
            s.plain)


cdef struct Stretch:         # of batches that are decoded, and what became of them
    Reading reading
    record.Columns columns
    int64_t room             # slots
    int64_t n, plain
    header.BatchRow *rows
    Py_ssize_t table, count, before
    int64_t first_offset, last_offset, unpacked
    record.Tally tally
    int codec
    void *unpacker           # objects, if there is a codec
    void *source
    void *target
    uint8_t *arena
    int64_t arena_bytes


cdef void decode_mapped(void *stretch) noexcept nogil:
    """Decode batches that are not compressed; it may end at any byte that it reads."""
    decode_batches(<Stretch *>stretch)


cdef int decode_batches(Stretch *s) except -1 nogil:
    """Decode batches one after the other; see `read_and_decode`."""
    cdef header.BatchRow row
    cdef int64_t most, begin, length = 0, size, used = 0, null_keys, null_values
    cdef bint is_kept, is_plain
    cdef const uint8_t *p
    cdef const uint8_t *body
    cdef record.Columns columns = s.columns, sized = s.columns
    cdef record.Walk walk
    memset(&walk, 0, sizeof(walk))
    sized.header_count = NULL
    is_plain = columns.key_view != NULL or columns.values.ends != NULL or columns.keys.ends != NULL
    while s.count < s.table:
        p = next_batch(&s.reading, &row, &length)
        if p == NULL or row.attributes & header.CODEC_MASK != s.codec or row.count < 0:
            break
        if s.before == s.count and row.last_offset < s.first_offset:
            s.before += 1
        elif row.count:    # count 0: Kafka ignores any bytes there
            body, size = p + header.V2_HEADER, length - header.V2_HEADER
            if s.codec:
                with gil:
                    body = (<Unpacker>s.unpacker).unpack(
                        <Span>s.source, body - s.reading.base, size, <Span>s.target, used, &size)
                if body == NULL or size > s.arena_bytes - used:
                    break
            most = record.room_for(&row, size)
            if (row.count > most or row.count > s.room - s.n or not has_room(&columns.keys, s.n, size)
                    or not has_room(&columns.values, s.n, size)):
                break
            begin, s.n = s.n, s.n + row.count
            walk.p, walk.end = body, body + size
            if s.codec:    # places as those of the arena
                walk.origin, walk.source = body, (<int64_t>1 << SOURCE_SHIFT) + used
            else:
                walk.origin = s.reading.base
            if is_plain and record.decode_plain(&walk, &row, &columns, begin, row.count):
                s.plain = s.n
                null_keys, null_values = s.tally.null_keys, s.tally.null_values
                record.tally(&s.tally, &row, &sized, begin, s.n)
                is_kept = ((columns.keys.ends == NULL and s.tally.null_keys - null_keys < row.count)
                           or (columns.values.ends == NULL and s.tally.null_values - null_values < row.count))
            elif (record.decode_v2(&walk, &row, <int32_t>(s.count - s.before), &columns, begin, row.count) == record.RECORD_OK
                    and walk.p == walk.end):
                is_kept, is_plain = not refer_to_copies(&columns, begin, s.n), False
                record.tally(&s.tally, &row, &columns, begin, s.n)
            else:
                s.n = begin
                break
            if not s.codec:
                if is_kept:
                    keep_batch(&s.reading, p, length)
            else:
                s.unpacked += size
                if is_kept:
                    if body != s.arena + used:
                        memcpy(s.arena + used, body, size)
                    used += size
        s.rows[s.count] = row
        s.reading.done += length
        s.count += 1
        if row.last_offset >= s.last_offset:
            break
    return 0


cdef inline bint refer_to_copies(record.Columns *c, int64_t first, int64_t end) noexcept nogil:
    """Let the places of what was copied point into the copies; return whether nothing refers to other bytes."""
    cdef const int32_t *value_ends = c.values.ends
    cdef const int32_t *key_ends = c.keys.ends
    cdef int64_t i, most = 0, values = 0, keys = 0
    for i in range(first, end):
        most |= c.header_count[i]
        values |= ~c.value_size[i]
        keys |= ~c.key_size[i]
    if value_ends != NULL:
        for i in range(first, end):
            c.value_place[i] = <int64_t>COPIED_VALUES << SOURCE_SHIFT | value_ends[i]
    if key_ends != NULL:
        for i in range(first, end):
            c.key_place[i] = <int64_t>COPIED_KEYS << SOURCE_SHIFT | key_ends[i]
    return most == 0 and (value_ends != NULL or values == 0) and (key_ends != NULL or keys == 0)


def use_wide_copies(bint wide):
    """Choose, for tests, whether payloads are copied by registers of 32 bytes; return whether they are now."""
    return record.pls_copies_init(wide) != 0


def use_maps_in_memory(bint everywhere):
    """Choose, for tests, whether files of a file system in memory are mapped as those of disks are."""
    guard.maps_memory = everywhere


keep_freed()
