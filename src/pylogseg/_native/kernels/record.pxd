"""The decoder of magic 0, 1 and 2: walk the records of a batch body once, into columns of places.

Every length is compared with the bytes that remain before it is used. A place is the position of a byte in its
source plus the number of the source in the high bits (`format/records.py`).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels.endian cimport load_be32, load_be64, load_le32, load_le64, store_le32, store_le64
from pylogseg._native.kernels.varint cimport read_uvarint, read_varint, read_varlong

cdef extern from "copies.h" nogil:
    ctypedef struct pls_copies:
        const uint8_t *body
        int64_t body_size
        int64_t body_place
        const int64_t *place
        const int32_t *size
        int32_t *ends
        uint8_t *data
        int64_t room
    void pls_copy_span(uint8_t *out, const uint8_t *p, int64_t size, int64_t slack) noexcept
    int pls_copies_init(int wide) noexcept
    void pls_copy_payloads(const pls_copies *copies, int64_t first, int64_t end) noexcept

cdef extern from "plain.h" nogil:
    ctypedef struct pls_fields:
        int32_t time_delta
        int32_t delta
        int32_t key_size
        int32_t value_size
        const uint8_t *key
        const uint8_t *value
    ctypedef struct pls_payloads:
        int32_t *ends
        uint8_t *data
        int64_t room
    ctypedef struct pls_plain:
        int64_t base_offset
        int64_t base_timestamp
        int64_t time_mask
        int64_t place_of_null
        uintptr_t ahead
        int64_t *offset
        int64_t *timestamp
        int64_t *key_place
        int64_t *value_place
        int32_t *key_size
        int32_t *value_size
        pls_payloads keys
        pls_payloads values
    const uint8_t *pls_plain_record(const uint8_t *p, const uint8_t *stop, pls_fields *fields) noexcept
    int64_t pls_plain_records(
        const pls_plain *to, const uint8_t **cursor, const uint8_t *stop, int64_t first, int64_t end
    ) noexcept

cdef enum:
    RECORD_SMALLEST = 7    # length, attributes, two deltas, two sizes, header count: a byte each
    LEGACY_SMALLEST = 26

cdef enum RecordStatus:    # the texts are in format/records.py
    RECORD_OK = 0
    RECORD_COUNT = 1
    RECORD_LENGTH = 2
    RECORD_STRUCTURE = 3
    RECORD_SIZE = 4
    RECORD_HEADERS = 5
    RECORD_REMAINS = 6
    RECORD_EOF = 7
    RECORD_INNER_SIZE = 8
    RECORD_INNER_CODEC = 9
    RECORD_WRAPPER = 10
    RECORD_NONE = 11
    RECORD_SOURCE = 12
    RECORD_INNER_MAGIC = 13
    RECORD_CRC = 14

cdef enum:
    VIEW_BYTES = 16
    VIEW_INLINE = 12       # the longest payload that a view holds itself
    LEAST_AHEAD = 8 << 10  # how far ahead of the decoder memory is prefetched
    MOST_AHEAD = 128 << 10
    NEAR_RECORDS = 256     # records whose payloads are copied while they are in the cache

cdef struct Columns:
    int64_t *offset
    int64_t *timestamp
    int64_t *key_place
    int32_t *key_size
    int64_t *value_place
    int32_t *value_size
    int64_t *headers_place
    int32_t *header_count
    int32_t *batch
    uint8_t *key_view      # Arrow binary views of keys and values; NULL: not needed
    uint8_t *value_view
    pls_payloads keys      # copies, for which the caller checked that the rest of the batch fits
    pls_payloads values

cdef struct Tally:         # counts of decoded records
    int64_t lowest_offset
    int64_t highest_offset
    int64_t null_keys
    int64_t null_values
    int64_t headers
    int64_t outside    # batches that have a record outside of their own offsets

cdef struct Walk:
    const uint8_t *p       # where the walk is, or where it failed
    const uint8_t *end
    const uint8_t *origin  # address of place 0 of the source
    int64_t source         # number of the source, shifted


cdef inline void tally(Tally *to, const header.BatchRow *row, const Columns *c, int64_t first, int64_t end) noexcept nogil:
    """Count the records of a batch while their columns are in the cache: later it costs several times as much."""
    cdef const int64_t *offset = c.offset
    cdef const int32_t *key_size = c.key_size
    cdef const int32_t *value_size = c.value_size
    cdef const int32_t *header_count = c.header_count
    cdef int64_t i, lowest, highest
    cdef uint64_t signs = 0
    cdef uint32_t null_keys = 0, null_values = 0, headers = 0    # each at most the bytes of a batch
    if first == end:
        return
    for i in range(first + 1, end):    # sign bits only, so that the compiler vectorizes the loop
        signs |= <uint64_t>offset[i] | (<uint64_t>offset[i] - <uint64_t>offset[i - 1])
    for i in range(first, end):
        null_keys += <uint32_t>key_size[i] >> 31
        null_values += <uint32_t>value_size[i] >> 31
    if header_count != NULL:    # else there are none
        for i in range(first, end):
            headers += <uint32_t>header_count[i]
    to.null_keys += null_keys
    to.null_values += null_values
    to.headers += headers
    lowest, highest = offset[first], offset[end - 1]
    if signs >> 63 or lowest < 0:    # a negative offset, or one below the previous
        for i in range(first, end):
            lowest, highest = min(lowest, offset[i]), max(highest, offset[i])
    to.lowest_offset, to.highest_offset = min(to.lowest_offset, lowest), max(to.highest_offset, highest)
    # The header of a wrapper of magic 0 or 1 has no base offset.
    to.outside += row.magic == 2 and (lowest < row.base_offset or highest > row.last_offset)


cdef inline int read_span(Walk *w, const uint8_t *end, int64_t *place, int32_t *size) noexcept nogil:
    """Read a length as a varint and that many bytes; any negative length is a null."""
    if read_varint(&w.p, end, size) != 0:
        return RECORD_STRUCTURE
    place[0] = w.source + (w.p - w.origin)
    if size[0] < 0:
        size[0] = -1
        return RECORD_OK
    if size[0] > end - w.p:
        return RECORD_STRUCTURE
    w.p += size[0]
    return RECORD_OK


cdef inline int skip_headers(Walk *w, const uint8_t *end, int32_t count) noexcept nogil:
    cdef int32_t size, i
    if count < 0 or count > end - w.p:
        return RECORD_HEADERS
    for i in range(count):
        if read_varint(&w.p, end, &size) != 0:
            return RECORD_STRUCTURE
        if size < 0 or size > end - w.p:
            return RECORD_HEADERS
        w.p += size
        if read_varint(&w.p, end, &size) != 0:
            return RECORD_STRUCTURE
        if size > end - w.p:
            return RECORD_HEADERS
        if size > 0:
            w.p += size
    return RECORD_OK


cdef inline void write_view(uint8_t *out, const uint8_t *p, const uint8_t *end, int32_t size, int64_t place) noexcept nogil:
    """Write Arrow's binary view of ``[p, p + size)``; size -1 is a null. No byte at or after `end` is read."""
    cdef uint64_t low = 0, high = 0
    if size > VIEW_INLINE:
        store_le64(out, <uint64_t><uint32_t>size | <uint64_t>load_le32(p) << 32)
        store_le64(out + 8, <uint64_t>(place >> 40) | <uint64_t>place << 32)   # number of the source, position in it
        return
    if size > 0:
        if end - p >= VIEW_INLINE:
            low = load_le64(p)
            high = load_le32(p + 8)
            if size < 8:
                low &= (<uint64_t>1 << (8 * size)) - 1
                high = 0
            else:
                high &= (<uint64_t>1 << (8 * (size - 8))) - 1
        else:
            memcpy(out + 4, &low, 8)
            memcpy(out + 12, &high, 4)
            memcpy(out + 4, p, size)
            store_le32(out, <uint32_t>size)
            return
    store_le64(out, <uint64_t>(size if size > 0 else 0) | low << 32)
    store_le64(out + 8, low >> 32 | high << 32)


cdef inline void write_payloads(const uint8_t *body, const Walk *w, const Columns *c, int64_t first, int64_t end) noexcept nogil:
    """Write the optional outputs of the records of a body, whose places and sizes are known."""
    cdef const uint8_t *at
    cdef int64_t n
    cdef pls_copies copies
    copies.body = body
    copies.body_size = w.end - body
    copies.body_place = w.source + (body - w.origin)
    if c.key_view != NULL:
        for n in range(first, end):
            at = body + (c.key_place[n] - copies.body_place)
            write_view(c.key_view + VIEW_BYTES * n, at, w.end, c.key_size[n], c.key_place[n])
            at = body + (c.value_place[n] - copies.body_place)
            write_view(c.value_view + VIEW_BYTES * n, at, w.end, c.value_size[n], c.value_place[n])
    if c.keys.ends != NULL:
        copy_payloads(&c.keys, &copies, c.key_place, c.key_size, first, end)
    if c.values.ends != NULL:
        copy_payloads(&c.values, &copies, c.value_place, c.value_size, first, end)


cdef inline void copy_payloads(
    const pls_payloads *to, pls_copies *copies, const int64_t *place, const int32_t *size, int64_t first, int64_t end
) noexcept nogil:
    copies.place = place
    copies.size = size
    copies.ends = to.ends
    copies.data = to.data
    copies.room = to.room
    pls_copy_payloads(copies, first, end)


cdef inline uintptr_t ahead_of(const header.BatchRow *row) noexcept nogil:
    """Return how far ahead to prefetch: while a batch is decoded, as many bytes after it as it is long."""
    return <uintptr_t>max(LEAST_AHEAD, min(row.size, MOST_AHEAD))


cdef inline bint decode_plain(
    Walk *walk, const header.BatchRow *row, const Columns *columns, int64_t n, int64_t records
) noexcept nogil:
    """Decode the records of a body without headers into views or copies, in one pass; return whether that is all of it.

    Batches and headers are not filled, nor are places of what is copied. Where it returns False, `decode_v2` takes the same
    slots.
    """
    cdef Walk w = walk[0]
    cdef Columns c = columns[0]
    cdef pls_plain to
    cdef int64_t stop = n + records
    to.base_offset, to.base_timestamp, to.time_mask = row.base_offset, row.base_timestamp, -1
    to.place_of_null = w.source - <int64_t><uintptr_t>w.origin
    to.offset, to.timestamp, to.key_place, to.value_place = c.offset, c.timestamp, c.key_place, c.value_place
    to.key_size, to.value_size = c.key_size, c.value_size
    to.keys, to.values, to.ahead = c.keys, c.values, ahead_of(row)
    if row.attributes & header.LOG_APPEND_TIME:
        to.base_timestamp, to.time_mask = row.max_timestamp, 0
    while True:
        n = pls_plain_records(&to, &w.p, w.end, n, stop) if c.key_view == NULL else plain_views(&w, &to, &c, n, stop)
        if n == stop:
            return w.p == w.end
        if any_record(&w, row, &c, n) != RECORD_OK or c.header_count[n]:
            return False
        write_payloads(walk.p, &w, &c, n, n + 1)
        n += 1


cdef inline int64_t plain_views(Walk *walk, const pls_plain *to, const Columns *c, int64_t n, int64_t end) noexcept nogil:
    """Fill slots as `pls_plain_records` does, with views of keys and values and with their places."""
    cdef Walk w = walk[0]
    cdef pls_fields plain
    cdef const uint8_t *next
    while n < end:
        header.prefetch(<const void *>(<uintptr_t>w.p + to.ahead))
        header.prefetch(<const void *>(<uintptr_t>w.p + to.ahead + 64))
        next = pls_plain_record(w.p, w.end, &plain)
        if next == NULL:
            break
        c.offset[n] = <int64_t>(<uint64_t>to.base_offset + <uint64_t>plain.delta)
        c.timestamp[n] = <int64_t>(<uint64_t>to.base_timestamp + <uint64_t>(plain.time_delta & to.time_mask))
        c.key_place[n] = to.place_of_null + <int64_t><uintptr_t>plain.key
        c.key_size[n] = plain.key_size
        c.value_place[n] = to.place_of_null + <int64_t><uintptr_t>plain.value
        c.value_size[n] = plain.value_size
        write_view(c.key_view + VIEW_BYTES * n, plain.key, w.end, plain.key_size, c.key_place[n])
        write_view(c.value_view + VIEW_BYTES * n, plain.value, w.end, plain.value_size, c.value_place[n])
        w.p = next
        n += 1
    walk.p = w.p
    return n


cdef inline int decode_v2(
    Walk *walk, const header.BatchRow *row, int32_t number, Columns *columns, int64_t n, int64_t records
) noexcept nogil:
    """Decode the next `records` records of a body into the columns from slot `n` on; the caller has room for them."""
    # Copies on the stack: for the compiler, a store to a column might change memory behind a pointer, so it would reload it.
    cdef Walk w = walk[0]
    cdef Columns c = columns[0]
    cdef int64_t place_of_null = w.source - <int64_t><size_t>w.origin
    cdef int64_t base_offset = row.base_offset, base_timestamp = row.base_timestamp
    cdef bint append_time = row.attributes & header.LOG_APPEND_TIME != 0
    cdef int64_t time_mask = 0 if append_time else -1
    cdef pls_fields plain
    cdef const uint8_t *end
    cdef int64_t first, near, stop = n + records
    cdef uintptr_t ahead = ahead_of(row)
    cdef int status = RECORD_OK
    if append_time:
        base_timestamp = row.max_timestamp
    while n < stop and status == RECORD_OK:
        first = n
        near = min(stop, n + NEAR_RECORDS)
        while n < near:
            header.prefetch(<const void *>(<uintptr_t>w.p + ahead))
            header.prefetch(<const void *>(<uintptr_t>w.p + ahead + 64))
            end = pls_plain_record(w.p, w.end, &plain)
            if end != NULL:
                # Unsigned: hostile deltas wrap, as Java's do.
                c.offset[n] = <int64_t>(<uint64_t>base_offset + <uint64_t>plain.delta)
                c.timestamp[n] = <int64_t>(<uint64_t>base_timestamp + <uint64_t>(plain.time_delta & time_mask))
                c.key_place[n] = place_of_null + <int64_t><size_t>plain.key
                c.key_size[n] = plain.key_size
                c.value_place[n] = place_of_null + <int64_t><size_t>plain.value
                c.value_size[n] = plain.value_size
                c.headers_place[n] = place_of_null + <int64_t><size_t>end
                c.header_count[n] = 0
                w.p = end
            else:
                status = any_record(&w, row, &c, n)
                if status != RECORD_OK:
                    break
            c.batch[n] = number
            n += 1
        write_payloads(walk.p, &w, &c, first, n)
    walk[0] = w
    return status


cdef inline int decode_keys(
    Walk *walk, const header.BatchRow *row, Columns *spare, int64_t records,
    const uint8_t **key, int64_t *size, int64_t *offset
) noexcept nogil:
    """Decode the next records as `decode_v2` does, but give their keys and offsets alone; `spare` has one slot."""
    cdef Walk w = walk[0]
    cdef int64_t n = 0
    cdef pls_fields plain
    cdef const uint8_t *end
    cdef int status = RECORD_OK
    while n < records:
        header.prefetch(<const void *>(<size_t>w.p + 1024))
        header.prefetch(<const void *>(<size_t>w.p + 1088))
        end = pls_plain_record(w.p, w.end, &plain)
        if end != NULL:
            offset[n] = <int64_t>(<uint64_t>row.base_offset + <uint64_t>plain.delta)
            key[n], size[n] = plain.key, plain.key_size
            w.p = end
        else:
            status = any_record(&w, row, spare, 0)
            if status != RECORD_OK:
                break
            offset[n], key[n], size[n] = spare.offset[0], w.origin + (spare.key_place[0] - w.source), spare.key_size[0]
        n += 1
    walk[0] = w
    return status


cdef inline int any_record(Walk *w, const header.BatchRow *row, Columns *c, int64_t n) noexcept nogil:
    """Decode one record of magic 2 field by field; the walk then is after it, or where it is damaged."""
    cdef int32_t length, delta
    cdef int64_t time_delta
    cdef const uint8_t *end
    cdef int status
    if w.p == w.end:
        return RECORD_EOF
    if read_varint(&w.p, w.end, &length) != 0:
        return RECORD_STRUCTURE
    if length < 0 or length > w.end - w.p:
        return RECORD_LENGTH
    end = w.p + length
    if length == 0:
        return RECORD_STRUCTURE
    w.p += 1           # attributes, unused
    if read_varlong(&w.p, end, &time_delta) != 0 or read_varint(&w.p, end, &delta) != 0:
        return RECORD_STRUCTURE
    c.offset[n] = <int64_t>(<uint64_t>row.base_offset + <uint64_t>delta)
    if row.attributes & header.LOG_APPEND_TIME:
        c.timestamp[n] = row.max_timestamp
    else:
        c.timestamp[n] = <int64_t>(<uint64_t>row.base_timestamp + <uint64_t>time_delta)
    status = read_span(w, end, &c.key_place[n], &c.key_size[n])
    if status != RECORD_OK:
        return status
    status = read_span(w, end, &c.value_place[n], &c.value_size[n])
    if status != RECORD_OK:
        return status
    if read_varint(&w.p, end, &c.header_count[n]) != 0:
        return RECORD_STRUCTURE
    c.headers_place[n] = w.source + (w.p - w.origin)
    if c.header_count[n] != 0:
        status = skip_headers(w, end, c.header_count[n])
        if status != RECORD_OK:
            return status
    return RECORD_OK if w.p == end else RECORD_SIZE


cdef inline int decode_entry(Walk *w, const header.BatchRow *row, int32_t number, Columns *c, int64_t n) noexcept nogil:
    """Decode one legacy message, including offset and length, that is whole in ``[w.p, w.p + 12 + length)``."""
    cdef const uint8_t *p = w.p
    cdef int64_t length = <int32_t>load_be32(p + 8)
    cdef const uint8_t *end = p + header.OVERHEAD + length
    cdef uint8_t magic = p[header.MAGIC_AT]
    if magic > 1:
        return RECORD_INNER_MAGIC
    if length < (14 if magic == 0 else 22) or length > w.end - p - header.OVERHEAD:
        return RECORD_INNER_SIZE
    c.offset[n] = <int64_t>load_be64(p)
    c.timestamp[n] = -1 if magic == 0 else <int64_t>load_be64(p + 18)
    if row.magic == 1 and row.attributes & header.LOG_APPEND_TIME:
        c.timestamp[n] = row.max_timestamp
    p += 18 if magic == 0 else 26
    c.key_size[n] = <int32_t>load_be32(p)
    p += 4
    c.key_place[n] = w.source + (p - w.origin)
    if c.key_size[n] < 0:
        c.key_size[n] = -1
    else:
        # 4 bytes of the value's size come after the key.
        if c.key_size[n] > end - p - 4:
            return RECORD_STRUCTURE
        p += c.key_size[n]
    c.value_size[n] = <int32_t>load_be32(p)
    p += 4
    c.value_place[n] = w.source + (p - w.origin)
    if c.value_size[n] < 0:
        c.value_size[n] = -1
    elif c.value_size[n] > end - p:
        return RECORD_STRUCTURE
    c.headers_place[n] = c.value_place[n]
    c.header_count[n] = 0
    c.batch[n] = number
    write_payloads(w.p, w, c, n, n + 1)
    w.p = end
    return RECORD_OK


cdef inline int decode_wrapped(Walk *w, const header.BatchRow *row, int32_t number, Columns *c, int64_t n, int64_t *added) noexcept nogil:
    """Decode the inner messages of a compressed wrapper; a truncated last one silently ends them, as in Kafka."""
    cdef int64_t first = n, length, base
    cdef int status
    while w.end - w.p >= header.PREFIX + 1:
        length = <int32_t>load_be32(w.p + 8)
        if length < 14:
            return RECORD_INNER_SIZE
        if length > w.end - w.p - header.OVERHEAD:
            break
        if w.p[17] & header.CODEC_MASK:
            return RECORD_INNER_CODEC
        status = decode_entry(w, row, number, c, n)
        if status != RECORD_OK:
            return status
        n += 1
    added[0] = n - first
    if n == first:
        return RECORD_NONE
    if row.magic == 1:     # inner offsets are relative; old writers left 0 as the wrapper's offset
        base = 0
        if row.last_offset != 0:
            if row.last_offset < c.offset[n - 1]:
                return RECORD_WRAPPER
            base = <int64_t>(<uint64_t>row.last_offset - <uint64_t>c.offset[n - 1])
        for n in range(first, n):
            c.offset[n] = <int64_t>(<uint64_t>c.offset[n] + <uint64_t>base)
    return RECORD_OK


cdef inline int64_t room_for(const header.BatchRow *row, int64_t body_size) noexcept nogil:
    """Return the most records that a body can hold, whatever its header says; the columns need room for them."""
    cdef int64_t most
    if row.magic == 2:
        most = body_size // RECORD_SMALLEST
        return most if row.count > most else row.count if row.count > 0 else 0
    return 1 if row.attributes & header.CODEC_MASK == 0 else body_size // LEGACY_SMALLEST
