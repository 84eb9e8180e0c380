"""Variable-length integers of the record format, as `docs/format.md` has them at its beginning.

A read takes a cursor and an end, and moves the cursor only on success. It never reads a byte at or after the end.
As in Kafka, bits of a fifth byte (tenth, for 64 bits) that do not fit are dropped.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    VARINT_OK = 0
    VARINT_SHORT = 1   # the bytes end inside the number
    VARINT_LONG = 2    # the last allowed byte still has its top bit set


cdef inline int read_uvarint(const uint8_t **cursor, const uint8_t *end, uint32_t *out) noexcept nogil:
    cdef const uint8_t *p = cursor[0]
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    if p < end and p[0] < 0x80:   # the common case, one byte
        out[0] = p[0]
        cursor[0] = p + 1
        return VARINT_OK
    while shift < 35:
        if p >= end:
            return VARINT_SHORT
        value |= <uint32_t>((<uint64_t>(p[0] & 0x7F)) << shift)
        byte = p[0]
        p += 1
        if byte < 0x80:
            out[0] = value
            cursor[0] = p
            return VARINT_OK
        shift += 7
    return VARINT_LONG


cdef inline int read_varint(const uint8_t **cursor, const uint8_t *end, int32_t *out) noexcept nogil:
    cdef uint32_t raw = 0
    cdef int status = read_uvarint(cursor, end, &raw)
    out[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return status


cdef inline int read_varlong(const uint8_t **cursor, const uint8_t *end, int64_t *out) noexcept nogil:
    cdef const uint8_t *p = cursor[0]
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 70:
        if p >= end:
            return VARINT_SHORT
        raw |= (<uint64_t>(p[0] & 0x7F)) << shift
        byte = p[0]
        p += 1
        if byte < 0x80:
            out[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            cursor[0] = p
            return VARINT_OK
        shift += 7
    return VARINT_LONG


cdef inline uint32_t zigzag(int32_t value) noexcept nogil:
    return (<uint32_t>value << 1) ^ <uint32_t>(value >> 31)


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int uvarint_size(uint32_t value) noexcept nogil:
    """Return the bytes of an unsigned varint, 1 to 5; without a branch, which would often be mispredicted."""
    return 1 + (value >= 1 << 7) + (value >= 1 << 14) + (value >= 1 << 21) + (value >= 1 << 28)


cdef inline uint8_t *write_uvarint(uint8_t *p, uint64_t value) noexcept nogil:
    """Write at most 10 bytes at `p`, where the caller checked the room; return the byte after them."""
    if value < 0x80:
        p[0] = <uint8_t>value
        return p + 1
    p[0] = <uint8_t>(value | 0x80)
    if value < 0x4000:
        p[1] = <uint8_t>(value >> 7)
        return p + 2
    while True:
        p += 1
        value >>= 7
        if value < 0x80:
            p[0] = <uint8_t>value
            return p + 1
        p[0] = <uint8_t>(value | 0x80)
