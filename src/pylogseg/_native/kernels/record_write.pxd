"""Write records of magic 0, 1 and 2 from columns of places: the counterpart of `record.pxd`.

Each record is loaded once (every span checked against its source) and written where its largest form fits. Its
actual size then decides whether its batch ends before it. So no byte is read twice, which could change in between.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memmove

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels.places cimport Source
from pylogseg._native.kernels.crc cimport pls_crc32, pls_crc32c
from pylogseg._native.kernels.endian cimport store_be16, store_be32, store_be64
from pylogseg._native.kernels.varint cimport read_varint, uvarint_size, write_uvarint, zigzag, zigzag64

cdef enum:
    PLACE_SHIFT = 40
    DELETE_HORIZON = 0x40
    V0_RECORD = 26         # of an entry without key and value
    V1_RECORD = 34
    LEAST_OVERHEAD = 7     # bytes of a v2 record besides its payload
    TYPICAL_OVERHEAD = 12
    MOST_OVERHEAD = 36
    AHEAD = 2048           # bytes

cdef enum WriteStatus:     # the texts are in format/builder.py
    WRITE_OK = 0
    WRITE_SPAN = 1
    WRITE_HEADERS = 2
    WRITE_ORDER = 4
    WRITE_DELTA = 5
    WRITE_SIZE = 6
    WRITE_LEGACY_HEADERS = 7
    WRITE_BATCH = 8
    WRITE_ROOM = 9         # no fault: the output is too short

cdef struct Input:         # columns of `count` items; an absent one is NULL
    int64_t count
    const int64_t *offset          # NULL: consecutive from `base_offset`
    const int64_t *timestamp       # NULL: `default_timestamp` for all
    const int64_t *key_place       # NULL: no record has a key
    const int32_t *key_size
    const int64_t *value_place     # NULL: all are null
    const int32_t *value_size
    const int64_t *headers_place   # NULL: no record has headers
    const int32_t *header_count
    int64_t base_offset
    int64_t default_timestamp
    const Source *sources
    int64_t source_count

cdef struct Loaded:
    int64_t offset
    int64_t timestamp
    const uint8_t *key
    int64_t key_size       # -1 null
    const uint8_t *value
    int64_t value_size
    const uint8_t *headers
    int64_t headers_size
    int32_t header_count


cdef inline const uint8_t *locate(const Source *sources, int64_t count, int64_t place, int64_t size) noexcept nogil:
    """Return the address of a span; NULL if a byte of it is outside of its source."""
    cdef int64_t source = place >> PLACE_SHIFT
    cdef int64_t position = place & ((<int64_t>1 << PLACE_SHIFT) - 1)
    if <uint64_t>source >= <uint64_t>count or size > sources[source].size - position:
        return NULL
    return sources[source].first + position


cdef inline int64_t walk_headers(const Input *c, int64_t i, int32_t count) noexcept nogil:
    """Return the bytes of the headers of record `i` in wire form; -1 if they are malformed or leave their source."""
    cdef int64_t place = c.headers_place[i]
    cdef const uint8_t *first = locate(c.sources, c.source_count, place, 0)
    cdef const uint8_t *p = first
    cdef const uint8_t *end
    cdef int32_t size, k
    if first == NULL:
        return -1
    end = c.sources[place >> PLACE_SHIFT].first + c.sources[place >> PLACE_SHIFT].size
    if count < 0 or count > end - p:
        return -1
    for k in range(count):
        if read_varint(&p, end, &size) != 0 or size < 0 or size > end - p:
            return -1
        p += size
        if read_varint(&p, end, &size) != 0 or size > end - p:
            return -1
        if size > 0:
            p += size
    return p - first


cdef inline int64_t offset_of(const Input *c, int64_t i) noexcept nogil:
    # Unsigned: after the highest offset comes a negative one, which is refused.
    return c.offset[i] if c.offset != NULL else <int64_t>(<uint64_t>c.base_offset + <uint64_t>i)


cdef inline int64_t timestamp_of(const Input *c, int64_t i) noexcept nogil:
    return c.timestamp[i] if c.timestamp != NULL else c.default_timestamp


cdef inline int load(const Input *c, int64_t i, Loaded *r) noexcept nogil:
    """Load record `i`, with addresses instead of places."""
    r.offset = offset_of(c, i)
    r.timestamp = timestamp_of(c, i)
    r.key_size = c.key_size[i] if c.key_size != NULL else -1
    r.value_size = c.value_size[i] if c.value_size != NULL else -1
    r.header_count = c.header_count[i] if c.header_count != NULL else 0
    r.headers_size = 0
    r.key = r.value = r.headers = NULL
    if r.key_size >= 0:
        r.key = locate(c.sources, c.source_count, c.key_place[i], r.key_size)
        if r.key == NULL:
            return WRITE_SPAN
    if r.value_size >= 0:
        r.value = locate(c.sources, c.source_count, c.value_place[i], r.value_size)
        if r.value == NULL:
            return WRITE_SPAN
    if r.header_count:
        r.headers_size = walk_headers(c, i, r.header_count)
        if r.headers_size < 0:
            return WRITE_HEADERS
        r.headers = locate(c.sources, c.source_count, c.headers_place[i], r.headers_size)
    return WRITE_OK


cdef inline int load_header(const Input *c, int64_t i, Loaded *r) noexcept nogil:
    """Load header `i` of columns of headers: its name as the key, which may not be null, and its value."""
    r.key_size = c.key_size[i]
    r.value_size = c.value_size[i]
    r.key = locate(c.sources, c.source_count, c.key_place[i], r.key_size)
    r.value = NULL
    if r.value_size >= 0:
        r.value = locate(c.sources, c.source_count, c.value_place[i], r.value_size)
    if r.key_size < 0 or r.key == NULL or (r.value_size >= 0 and r.value == NULL):
        return WRITE_HEADERS
    return WRITE_OK


cdef inline int64_t span_size(int64_t size) noexcept nogil:
    """Return the bytes of a length as a varint, and of what it counts."""
    return 1 if size < 0 else uvarint_size(zigzag(<int32_t>size)) + size


cdef inline int64_t header_size(const header.BatchRow *row) noexcept nogil:
    """Return the bytes before the records: none for an uncompressed legacy entry, which is its own batch."""
    if row.magic == 2:
        return header.V2_HEADER
    if row.attributes & header.CODEC_MASK == 0:
        return 0
    return V0_RECORD if row.magic == 0 else V1_RECORD


cdef inline uint8_t *write_span(uint8_t *p, const uint8_t *first, int64_t size) noexcept nogil:
    if size < 0:
        p[0] = 1           # -1 in ZigZag
        return p + 1
    p = write_uvarint(p, <uint64_t>size << 1)
    memcpy(p, first, size)
    return p + size


cdef inline uint8_t *write_body(uint8_t *p, const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """Write a v2 record after its length; the caller checked the room, and that offset and counts are not negative."""
    p[0] = 0               # attributes, unused
    # Unsigned: the difference of timestamps may overflow a signed number; Java wraps as well.
    p = write_uvarint(p + 1, zigzag64(<int64_t>(<uint64_t>r.timestamp - <uint64_t>row.base_timestamp)))
    p = write_uvarint(p, <uint64_t>(r.offset - row.base_offset) << 1)
    p = write_span(p, r.key, r.key_size)
    p = write_span(p, r.value, r.value_size)
    p = write_uvarint(p, <uint64_t>r.header_count << 1)
    if r.headers_size:
        memcpy(p, r.headers, r.headers_size)
    return p + r.headers_size


cdef struct Gap:           # space for a record's length, until it is known
    int64_t width
    int64_t least          # the lowest length that it fits
    int64_t span           # the number of further lengths that it fits
    int64_t overhead       # bytes of the previous record besides its payload


cdef inline bint fits(const Gap *gap, int64_t size) noexcept nogil:
    return <uint64_t>(size - gap.least) <= <uint64_t>gap.span


cdef inline void fit(Gap *gap, int64_t size) noexcept nogil:
    gap.width = 1
    gap.least = 0
    gap.span = 63
    while not fits(gap, size):
        gap.width += 1
        gap.least += gap.span + 1
        gap.span = (gap.least << 7) - 1 - gap.least


cdef inline uint8_t *write_record(
    uint8_t *p, const Loaded *r, const header.BatchRow *row, int64_t payload, Gap *gap
) noexcept nogil:
    """Write a v2 record at `p`, where there is room for its payload and `MOST_OVERHEAD`; return the byte after it.

    The body is written first, after a gap for its length, so the sizes of its parts need not be added up. The previous
    record predicts the width of the gap; if it is wrong, the body is moved.
    """
    cdef uint8_t *body
    cdef uint8_t *behind
    cdef int64_t size
    if not fits(gap, payload + gap.overhead):
        fit(gap, payload + gap.overhead)
    body = p + gap.width
    behind = write_body(body, r, row)
    size = behind - body
    gap.overhead = size - payload
    if not fits(gap, size):
        fit(gap, size)
        memmove(p + gap.width, body, size)
        behind = p + gap.width + size
    write_uvarint(p, <uint64_t>size << 1)
    return behind


cdef inline uint8_t *write_legacy_span(uint8_t *p, const uint8_t *first, int64_t size) noexcept nogil:
    store_be32(p, <uint32_t>size)
    if size > 0:
        memcpy(p + 4, first, size)
        return p + 4 + size
    return p + 4


cdef inline uint8_t *write_entry(uint8_t *p, const Loaded *r, const header.BatchRow *row, int64_t size) noexcept nogil:
    """Write a legacy entry of `size` bytes at `p`, a batch of its own or inside a wrapper; return the byte after it."""
    cdef int64_t offset = r.offset
    cdef uint8_t *q
    if row.magic == 1 and row.attributes & header.CODEC_MASK:
        offset -= row.base_offset
    store_be64(p, <uint64_t>offset)
    store_be32(p + 8, <uint32_t>(size - header.OVERHEAD))
    p[header.MAGIC_AT] = <uint8_t>row.magic
    p[17] = <uint8_t>(row.attributes & header.LOG_APPEND_TIME)
    q = p + 18
    if row.magic == 1:
        store_be64(q, <uint64_t>(row.max_timestamp if row.attributes & header.LOG_APPEND_TIME else r.timestamp))
        q += 8
    q = write_legacy_span(q, r.key, r.key_size)
    q = write_legacy_span(q, r.value, r.value_size)
    store_be32(p + header.OVERHEAD, pls_crc32(0, p + header.LEGACY_CRC_FROM, size - header.LEGACY_CRC_FROM))
    return q


cdef inline void fetch_ahead(const uint8_t *p, int64_t size) noexcept nogil:
    """Prefetch the bytes at this distance after `p` and after the output: between short alternating copies the
    processor does not see that both sides are sequential, and does not prefetch by itself."""
    cdef uintptr_t at = <uintptr_t>p + AHEAD
    cdef int64_t k
    header.prefetch(<const void *>at)
    header.prefetch(<const void *>(at + 64))
    if size <= AHEAD:          # it does for long copies
        for k in range(128, size, 64):
            header.prefetch(<const void *>(at + k))


cdef inline int write_batch(
    const Input *columns, int64_t first, int64_t most, int64_t batch_bytes, bint planned, uint8_t *out, int64_t capacity,
    header.BatchRow *row, int64_t *bad
) noexcept nogil:
    """Write records from `first` on to `out`, after room for the header of the batch: up to `most`, as long as
    header and records fit `batch_bytes`; all of them if the batch is `planned`.

    The caller sets these fields of `row`: magic, attributes, producer, epoch; the delete horizon as base timestamp and
    the append time as max timestamp if the attributes need them; for a `planned` batch of magic 2 also base and last
    offset. The others are filled. At an error, `bad` is the record.
    """
    # Copies: for the compiler, a store of bytes may change anything in memory.
    cdef Input c = columns[0]
    cdef header.BatchRow b = row[0]
    cdef bint v2 = b.magic == 2, bounded = planned and v2, cut = False
    cdef int64_t least = LEAST_OVERHEAD if v2 else V0_RECORD if b.magic == 0 else V1_RECORD
    cdef int64_t spare = MOST_OVERHEAD if v2 else least
    cdef int64_t size = header_size(&b), previous, highest, greatest = -1, payload, added
    cdef int64_t stop = INT32_MAX if planned else batch_bytes
    # From here on a record may be too large, for the batch or for the output.
    cdef int64_t brink = min(stop - least, capacity - spare)
    cdef int64_t i = first, behind = first + min(most, c.count - first)
    cdef int status = WRITE_OK
    cdef Loaded r
    cdef Gap gap
    r.value = out
    gap.overhead = LEAST_OVERHEAD
    fit(&gap, 0)
    if not bounded:
        b.base_offset = offset_of(&c, first)
    if not (v2 and b.attributes & DELETE_HORIZON):
        b.base_timestamp = timestamp_of(&c, first)
    previous = (b.base_offset if b.base_offset >= 0 else 0) - 1
    highest = b.last_offset - b.base_offset if bounded else INT32_MAX
    while i < behind:
        cut = not planned and i > first
        status = load(&c, i, &r)
        if status != WRITE_OK:
            break
        if r.offset <= previous:
            status = WRITE_ORDER
            break
        if r.offset - b.base_offset > highest:
            status = WRITE_OK if cut else WRITE_DELTA
            break
        if r.header_count and not v2:
            status = WRITE_LEGACY_HEADERS
            break
        payload = (r.key_size if r.key_size > 0 else 0) + (r.value_size if r.value_size > 0 else 0) + r.headers_size
        if payload > brink - size:
            if payload > (stop if cut else INT32_MAX) - size - least:
                status = WRITE_OK if cut else WRITE_SIZE
                break
            if payload > capacity - size - spare:
                status = WRITE_ROOM
                break
        fetch_ahead(out + size, payload)
        fetch_ahead(r.value, r.value_size)
        if v2:
            added = write_record(out + size, &r, &b, payload, &gap) - (out + size)
        else:
            added = write_entry(out + size, &r, &b, payload + least) - (out + size)
        if added > stop - size and (cut or added > INT32_MAX - size):
            status = WRITE_OK if cut else WRITE_SIZE
            break
        size += added
        previous = r.offset
        greatest = r.timestamp if r.timestamp > greatest else greatest
        i += 1
    bad[0] = i
    if status != WRITE_OK:
        return status
    row.count = <int32_t>(i - first)
    row.size = <int32_t>size
    if not bounded:
        row.base_offset = b.base_offset
        row.last_offset = previous
    if b.attributes & header.LOG_APPEND_TIME == 0:
        row.max_timestamp = greatest if b.magic else -1
    row.base_timestamp = b.base_timestamp if v2 else row.max_timestamp
    return WRITE_OK


cdef inline void seal_v2(header.BatchRow *row, uint8_t *p) noexcept nogil:
    """Write the header before existing records, and its CRC."""
    store_be64(p, <uint64_t>row.base_offset)
    store_be32(p + 8, <uint32_t>(row.size - header.OVERHEAD))
    store_be32(p + 12, <uint32_t>row.leader_epoch)
    p[header.MAGIC_AT] = 2
    store_be16(p + 21, <unsigned short>row.attributes)
    store_be32(p + 23, <uint32_t>(row.last_offset - row.base_offset))
    store_be64(p + 27, <uint64_t>row.base_timestamp)
    store_be64(p + 35, <uint64_t>row.max_timestamp)
    store_be64(p + 43, <uint64_t>row.producer_id)
    store_be16(p + 51, <unsigned short>row.producer_epoch)
    store_be32(p + 53, <uint32_t>row.base_sequence)
    store_be32(p + 57, <uint32_t>row.count)
    row.crc = pls_crc32c(0, p + header.V2_CRC_FROM, row.size - header.V2_CRC_FROM)
    store_be32(p + 17, row.crc)


cdef inline void seal_wrapper(header.BatchRow *row, uint8_t *p) noexcept nogil:
    """Write the legacy message around existing compressed entries, which are its value; it has the last offset."""
    cdef int64_t first = V0_RECORD if row.magic == 0 else V1_RECORD
    store_be64(p, <uint64_t>row.last_offset)
    store_be32(p + 8, <uint32_t>(row.size - header.OVERHEAD))
    p[header.MAGIC_AT] = <uint8_t>row.magic
    p[17] = <uint8_t>row.attributes
    if row.magic == 1:
        store_be64(p + 18, <uint64_t>row.max_timestamp)
    store_be32(p + first - 8, 0xFFFFFFFF)
    store_be32(p + first - 4, <uint32_t>(row.size - first))
    row.crc = pls_crc32(0, p + header.LEGACY_CRC_FROM, row.size - header.LEGACY_CRC_FROM)
    store_be32(p + header.OVERHEAD, row.crc)
