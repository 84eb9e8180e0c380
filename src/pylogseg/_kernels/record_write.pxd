"""Records of magic 0, 1 and 2, measured and written from columns of places: the counterpart of `record.pxd`.

A record is loaded (every span checked against its source) before it is measured or written, and a write compares
with the room that is left, so columns that change under the kernel give a status, never a byte out of place.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pylogseg._kernels cimport batch as header
from pylogseg._kernels.crc cimport pls_crc32, pls_crc32c
from pylogseg._kernels.endian cimport store_be16, store_be32, store_be64
from pylogseg._kernels.varint cimport read_varint, uvarint_size, write_uvarint, zigzag, zigzag64

cdef enum:
    PLACE_SHIFT = 40
    DELETE_HORIZON = 0x40
    V0_RECORD = 26         # of an entry without key and value
    V1_RECORD = 34
    RECORD_OVERHEAD = 36   # most bytes that a v2 record has besides its payload
    SHORTEST_TWO = 58      # bytes of payload for which a record's length, 64 to 8191, takes two bytes in any case
    LONGEST_TWO = 8155

cdef enum WriteStatus:     # the texts are in format/builder.py
    WRITE_OK = 0
    WRITE_SPAN = 1
    WRITE_HEADERS = 2
    WRITE_TIMESTAMP = 3
    WRITE_ORDER = 4
    WRITE_DELTA = 5
    WRITE_SIZE = 6
    WRITE_LEGACY_HEADERS = 7
    WRITE_CHANGED = 8
    WRITE_BATCH = 9

cdef struct Source:
    const uint8_t *first
    int64_t size

cdef struct Input:         # columns of `count` items; those that may be absent are NULL
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
    """Address of a span, NULL if a byte of it lies outside of its source."""
    cdef int64_t source = place >> PLACE_SHIFT
    cdef int64_t position = place & ((<int64_t>1 << PLACE_SHIFT) - 1)
    if <uint64_t>source >= <uint64_t>count or size > sources[source].size - position:
        return NULL
    return sources[source].first + position


cdef inline int64_t walk_headers(const Input *c, int64_t i, int32_t count) noexcept nogil:
    """Bytes of the headers of record `i` in wire form, -1 if they are malformed or run out of their source."""
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


cdef inline int load(const Input *c, int64_t i, Loaded *r) noexcept nogil:
    """Record `i` with addresses in place of places, but for its headers, which few records have: `load_headers`."""
    r.offset = c.offset[i] if c.offset != NULL else c.base_offset + i
    r.timestamp = c.timestamp[i] if c.timestamp != NULL else c.default_timestamp
    r.key_size = c.key_size[i] if c.key_size != NULL else -1
    r.value_size = c.value_size[i] if c.value_size != NULL else -1
    r.header_count = c.header_count[i] if c.header_count != NULL else 0
    r.headers_size = 0
    if r.key_size >= 0:
        r.key = locate(c.sources, c.source_count, c.key_place[i], r.key_size)
        if r.key == NULL:
            return WRITE_SPAN
    if r.value_size >= 0:
        r.value = locate(c.sources, c.source_count, c.value_place[i], r.value_size)
        if r.value == NULL:
            return WRITE_SPAN
    return WRITE_OK


cdef inline int load_headers(const Input *c, int64_t i, Loaded *r) noexcept nogil:
    r.headers_size = walk_headers(c, i, r.header_count)
    if r.headers_size < 0:
        return WRITE_HEADERS
    r.headers = locate(c.sources, c.source_count, c.headers_place[i], r.headers_size)
    return WRITE_OK


cdef inline int load_header(const Input *c, int64_t i, Loaded *r) noexcept nogil:
    """Header `i` where the columns hold headers: its name as the key, which may not be null, and its value."""
    r.key_size = c.key_size[i]
    r.value_size = c.value_size[i]
    r.key = locate(c.sources, c.source_count, c.key_place[i], r.key_size)
    if r.value_size >= 0:
        r.value = locate(c.sources, c.source_count, c.value_place[i], r.value_size)
    if r.key_size < 0 or r.key == NULL or (r.value_size >= 0 and r.value == NULL):
        return WRITE_HEADERS
    return WRITE_OK


cdef inline int64_t span_size(int64_t size) noexcept nogil:
    """Bytes of a length as a varint and what it counts."""
    return 1 if size < 0 else uvarint_size(zigzag(<int32_t>size)) + size


cdef inline int64_t body_size(const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """Bytes of a v2 record behind its length."""
    # Unsigned: timestamps may lie farther apart than a signed number says; Java wraps as well.
    return (1 + uvarint_size(zigzag64(<int64_t>(<uint64_t>r.timestamp - <uint64_t>row.base_timestamp)))
            + uvarint_size(zigzag(<int32_t>(r.offset - row.base_offset)))
            + span_size(r.key_size) + span_size(r.value_size)
            + uvarint_size(zigzag(r.header_count)) + r.headers_size)


cdef inline int64_t legacy_size(const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """Bytes of a legacy entry, offset and length included."""
    return ((V0_RECORD if row.magic == 0 else V1_RECORD)
            + (r.key_size if r.key_size > 0 else 0) + (r.value_size if r.value_size > 0 else 0))


cdef inline int64_t header_size(const header.BatchRow *row) noexcept nogil:
    """Bytes in front of the records: of an uncompressed legacy entry none, it is its own batch."""
    if row.magic == 2:
        return header.V2_HEADER
    if row.attributes & header.CODEC_MASK == 0:
        return 0
    return V0_RECORD if row.magic == 0 else V1_RECORD


cdef inline int measure_record(const Loaded *r, const header.BatchRow *row, int64_t *size) noexcept nogil:
    """Bytes that a record adds to its batch, or why it may not be written."""
    if r.timestamp < -1:
        return WRITE_TIMESTAMP
    if row.magic < 2:
        size[0] = legacy_size(r, row)
        return WRITE_LEGACY_HEADERS if r.header_count else WRITE_OK
    size[0] = body_size(r, row)
    if size[0] > INT32_MAX:
        return WRITE_SIZE
    size[0] += uvarint_size(zigzag(<int32_t>size[0]))
    return WRITE_OK


cdef inline int measure_batch(
    const Input *columns, int64_t first, int64_t most, int64_t batch_bytes, bint fixed, header.BatchRow *row, int64_t *bad
) noexcept nogil:
    """Takes records from `first` on into `row`: up to `most`, as long as they fit; all of them if `fixed`.

    `row` comes with the fields that the caller decides: magic, attributes, producer, epoch; with the delete horizon
    as base timestamp and the append time as max timestamp where the attributes ask for them; if `fixed` and magic 2,
    with base and last offset. At an error, `bad` is the record.
    """
    cdef int64_t n = 0, size = header_size(row), added = 0, previous = -1
    cdef bint append_time = row.attributes & header.LOG_APPEND_TIME != 0
    cdef bint horizon = row.magic == 2 and row.attributes & DELETE_HORIZON != 0
    cdef bint given = fixed and row.magic == 2
    cdef int64_t greatest = -1
    cdef int status
    cdef Input c = columns[0]
    cdef Loaded r
    while n < most and first + n < c.count:
        bad[0] = first + n
        status = load(&c, first + n, &r)
        if status == WRITE_OK and r.header_count:
            status = load_headers(columns, first + n, &r)
        if status != WRITE_OK:
            return status
        if n == 0:
            if not given:
                row.base_offset = r.offset
            previous = row.base_offset - 1
            if not horizon:
                row.base_timestamp = r.timestamp
        if r.offset <= previous or r.offset < 0:
            return WRITE_ORDER
        if r.offset - row.base_offset > INT32_MAX or (given and r.offset > row.last_offset):
            if fixed or n == 0:
                return WRITE_DELTA
            break
        status = measure_record(&r, row, &added)
        if status != WRITE_OK:
            return status
        if size + added > INT32_MAX or (n and not fixed and size + added > batch_bytes):
            if fixed or n == 0:
                return WRITE_SIZE
            break
        size += added
        previous = r.offset
        if r.timestamp > greatest:
            greatest = r.timestamp
        n += 1
    row.count = <int32_t>n
    row.size = <int32_t>size
    if not given:
        row.last_offset = previous
    if not append_time:
        row.max_timestamp = greatest if row.magic else -1
    if row.magic < 2:
        row.base_timestamp = row.max_timestamp
    return WRITE_OK


cdef inline uint8_t *write_span(uint8_t *p, const uint8_t *first, int64_t size) noexcept nogil:
    if size < 0:
        p[0] = 1           # -1 in ZigZag
        return p + 1
    p = write_uvarint(p, zigzag(<int32_t>size))
    memcpy(p, first, size)
    return p + size


cdef inline uint8_t *write_body(uint8_t *p, const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """A v2 record behind its length; the caller has seen to the room."""
    p[0] = 0               # attributes, unused
    p = write_uvarint(p + 1, zigzag64(<int64_t>(<uint64_t>r.timestamp - <uint64_t>row.base_timestamp)))
    p = write_uvarint(p, zigzag(<int32_t>(r.offset - row.base_offset)))
    p = write_span(p, r.key, r.key_size)
    p = write_span(p, r.value, r.value_size)
    p = write_uvarint(p, zigzag(r.header_count))
    if r.headers_size:
        memcpy(p, r.headers, r.headers_size)
    return p + r.headers_size


cdef inline uint8_t *write_record(uint8_t *p, const uint8_t *end, const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """A v2 record at `p`; NULL if it does not fit.

    Where there is room to spare, the body is written first, behind a gap for a length of two bytes, which most
    records have: its length is then known without summing up the sizes of its parts.
    """
    cdef int64_t payload = (r.key_size if r.key_size > 0 else 0) + (r.value_size if r.value_size > 0 else 0) + r.headers_size
    cdef int64_t size
    cdef uint8_t *behind
    if SHORTEST_TWO <= payload <= LONGEST_TWO and payload + RECORD_OVERHEAD <= end - p:
        behind = write_body(p + 2, r, row)
        size = behind - p - 2
        p[0] = <uint8_t>(size << 1 | 0x80)
        p[1] = <uint8_t>(size >> 6)
        return behind
    size = body_size(r, row)
    if size > INT32_MAX or size + uvarint_size(zigzag(<int32_t>size)) > end - p:
        return NULL
    return write_body(write_uvarint(p, zigzag(<int32_t>size)), r, row)


cdef inline uint8_t *write_legacy_span(uint8_t *p, const uint8_t *first, int64_t size) noexcept nogil:
    store_be32(p, <uint32_t>size)
    if size > 0:
        memcpy(p + 4, first, size)
        return p + 4 + size
    return p + 4


cdef inline uint8_t *write_entry(uint8_t *p, const uint8_t *end, const Loaded *r, const header.BatchRow *row) noexcept nogil:
    """A legacy entry at `p`, a batch of its own or inside a wrapper; NULL if it does not fit."""
    cdef int64_t size = legacy_size(r, row)
    cdef int64_t offset = r.offset
    cdef uint8_t *q
    if size > end - p or size > INT32_MAX:
        return NULL
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


cdef inline int write_records(const Input *columns, int64_t first, const header.BatchRow *row, uint8_t *p, const uint8_t *end) noexcept nogil:
    """The records of a batch, exactly up to `end`; the caller knows that there are ``row.count`` from `first` on."""
    # Copies: a store of bytes may change, as far as C knows, anything that lies in memory.
    cdef Input c = columns[0]
    cdef header.BatchRow copied = row[0]
    cdef int64_t i
    cdef int status
    cdef Loaded r
    for i in range(first, first + row.count):
        status = load(&c, i, &r)
        if status == WRITE_OK and r.header_count:
            status = load_headers(columns, i, &r)
        if status != WRITE_OK:
            return status
        p = write_record(p, end, &r, &copied) if copied.magic == 2 else write_entry(p, end, &r, &copied)
        if p == NULL:
            return WRITE_CHANGED
    return WRITE_OK if p == end else WRITE_CHANGED


cdef inline void seal_v2(header.BatchRow *row, uint8_t *p) noexcept nogil:
    """The header in front of records that are already there, and its CRC."""
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
    """The legacy message around compressed entries that are already there: its value, under the last offset."""
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
