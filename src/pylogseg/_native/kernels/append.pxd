"""The fast validation of an append: one pass over the records of a batch, and then the header fields that a leader sets.

Only `VALID` is final. For any other batch the verdict is `UNSURE`: the careful validation in
`log/append_validation.py` checks it again in Kafka's order and says what is wrong, if anything is.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels.crc cimport pls_crc32c
from pylogseg._native.kernels.endian cimport load_be16, load_be32, load_be64, store_be16, store_be32, store_be64

cdef enum:
    VALID = 0
    UNSURE = 1
    COMPRESSED = 2             # valid so far: its records have to be decompressed
    HIGHEST_CODEC = 4
    KEPT_BITS = 0x77           # codec, transactional, control, delete horizon: all but the timestamp type

cdef struct RecordRules:       # the log's rules for a record
    bint append_time           # the log's clock sets the timestamps
    bint key_required          # the log is compacted
    int64_t before_ms          # how much older than now a timestamp may be
    int64_t after_ms           # and how much newer

cdef struct BatchRules:        # the log's rules for a batch
    RecordRules rules
    int64_t size_limit         # most bytes of a batch
    int codec                  # codec of stored batches; -1 keeps the producer's
    bint client                # whether the rules for clients apply
    int64_t now_ms


cdef inline bint in_time(int64_t now, int64_t timestamp, const RecordRules *rules) noexcept nogil:
    # Unsigned: a hostile timestamp wraps as it does in Java.
    cdef int64_t age = <int64_t>(<uint64_t>now - <uint64_t>timestamp)
    return age <= rules.before_ms and <int64_t>(0 - <uint64_t>age) <= rules.after_ms


cdef inline int walk_records(
    const uint8_t *p, const uint8_t *end, const header.BatchRow *row, const RecordRules *rules, int64_t now, bint numbered,
    int64_t *greatest
) noexcept nogil:
    """Validate all records of a v2 body and find their greatest timestamp; `numbered` requires the offsets 0, 1, 2..."""
    cdef record.Walk w
    cdef record.Columns one
    cdef bint stamped = row.attributes & header.LOG_APPEND_TIME != 0
    cdef int64_t offset = 0, timestamp = 0, place, most = -1
    cdef int32_t key_size = 0, value_size = 0, header_count, number, i
    cdef record.pls_fields plain
    cdef const uint8_t *next
    if row.count <= 0 or (stamped and rules.append_time):
        return UNSURE
    w.p = p
    w.end = end
    w.origin = p
    w.source = 0
    one.offset = &offset
    one.timestamp = &timestamp
    one.key_place = &place
    one.key_size = &key_size
    one.value_place = &place
    one.value_size = &value_size
    one.headers_place = &place
    one.header_count = &header_count
    one.batch = &number
    for i in range(row.count):
        next = record.pls_plain_record(w.p, end, &plain)
        if next != NULL:
            w.p, key_size = next, plain.key_size
            offset = <int64_t>(<uint64_t>row.base_offset + <uint64_t>plain.delta)
            timestamp = row.max_timestamp if stamped else <int64_t>(<uint64_t>row.base_timestamp + <uint64_t>plain.time_delta)
        elif record.any_record(&w, row, &one, 0) != record.RECORD_OK:
            return UNSURE
        elif stamped:
            timestamp = row.max_timestamp
        if numbered and offset != i:
            return UNSURE
        if key_size < 0 and rules.key_required:
            return UNSURE
        if not rules.append_time:
            if timestamp != -1:
                if not in_time(now, timestamp, rules):
                    return UNSURE
            elif stamped:
                return UNSURE
        if timestamp > most:
            most = timestamp
    greatest[0] = most
    return VALID if w.p == end else UNSURE


cdef inline int client_rules(const header.BatchRow *row) noexcept nogil:
    """Check the rules for clients: consecutive offsets from 0, no control records, a sequence with a producer."""
    if row.base_offset != 0 or row.last_offset + 1 != row.count or row.attributes & header.CONTROL:
        return UNSURE
    return UNSURE if row.producer_id >= 0 and row.base_sequence < 0 else VALID


cdef inline int validate(
    const uint8_t *p, int64_t size, const uint8_t *body, int64_t body_size, const BatchRules *by, int64_t next_offset, header.BatchRow *row,
    int64_t *greatest
) noexcept nogil:
    """Validate a whole v2 batch; `body` is NULL, or its decompressed records after a first call returned COMPRESSED."""
    cdef const uint8_t *from_ = p + header.V2_HEADER
    cdef int64_t length = size - header.V2_HEADER
    cdef int codec
    if size < header.V2_HEADER or p[header.MAGIC_AT] != 2 or size > by.size_limit:
        return UNSURE
    header.read_header(p, size, row)
    codec = row.attributes & header.CODEC_MASK
    if codec > HIGHEST_CODEC or (by.codec >= 0 and by.codec != codec) or (by.client and client_rules(row) != VALID):
        return UNSURE
    # The offset delta of a coordinator's batch may be so large that the first offset would be negative.
    if <int32_t>load_be32(p + 23) < 0 or next_offset + row.count - 1 < <int32_t>load_be32(p + 23):
        return UNSURE
    if codec == 0 or body == NULL:
        if not header.crc_holds(p, size):
            return UNSURE
        if codec:
            return COMPRESSED
    else:
        from_, length = body, body_size
    return walk_records(from_, from_ + length, row, &by.rules, by.now_ms, codec != 0, greatest)


cdef inline void assign(uint8_t *p, int64_t size, header.BatchRow *row, int64_t last_offset, int32_t leader_epoch, bint append_time, int64_t timestamp) noexcept nogil:
    """Set offsets, leader epoch, timestamp type and max timestamp of a v2 batch, and its CRC if it changed."""
    cdef int32_t delta = <int32_t>load_be32(p + 23)
    row.last_offset = last_offset
    row.base_offset = <int64_t>(<uint64_t>last_offset - <uint64_t>delta)
    row.leader_epoch = leader_epoch
    store_be64(p, <uint64_t>row.base_offset)
    store_be32(p + 12, <uint32_t>leader_epoch)
    if row.max_timestamp == timestamp and (row.attributes & header.LOG_APPEND_TIME != 0) == append_time:
        return                 # unused attribute bits stay as they are
    row.max_timestamp = timestamp
    row.attributes = (row.attributes & KEPT_BITS) | (header.LOG_APPEND_TIME if append_time else 0)
    store_be16(p + 21, <unsigned short>row.attributes)
    store_be64(p + 35, <uint64_t>timestamp)
    row.crc = pls_crc32c(0, p + header.V2_CRC_FROM, size - header.V2_CRC_FROM)
    store_be32(p + 17, row.crc)


cdef inline int next_frame(const uint8_t *p, const uint8_t *end, int64_t *size) noexcept nogil:
    """Find the next batch as a broker does in a request: MORE for a whole one, COMPLETE at the end or before a part of one."""
    cdef int64_t length
    if end - p < header.OVERHEAD:
        return header.COMPLETE
    length = <int32_t>load_be32(p + 8)
    if length < header.V0_SMALLEST - header.OVERHEAD:
        return header.BAD_LENGTH
    if end - p < header.PREFIX:
        return header.COMPLETE
    if p[header.MAGIC_AT] > 2:
        return header.UNKNOWN_MAGIC
    size[0] = header.OVERHEAD + length
    return header.MORE if size[0] <= end - p else header.COMPLETE


cdef inline bint readable(const uint8_t *p, int64_t size) noexcept nogil:
    """Check whether a whole batch has all fields that `read_header` reads; a legacy one always has."""
    return p[header.MAGIC_AT] < 2 or size >= header.V2_HEADER
