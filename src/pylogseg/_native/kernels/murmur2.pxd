"""The hash by which Kafka's producers choose the partition of a key: 32-bit MurmurHash2 of one seed."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    MURMUR2_SEED = 0x9747B28C
    MURMUR2_M = 0x5BD1E995


cdef inline uint32_t murmur2(const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>MURMUR2_SEED ^ <uint32_t>size
    cdef uint32_t k
    cdef const uint8_t *words = p + (size & ~<int64_t>3)
    while p < words:
        k = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        k *= MURMUR2_M
        k ^= k >> 24
        h = h * <uint32_t>MURMUR2_M ^ k * <uint32_t>MURMUR2_M
        p += 4
    if size & 3:
        if size & 3 == 3:
            h ^= <uint32_t>p[2] << 16
        if size & 2:
            h ^= <uint32_t>p[1] << 8
        h = (h ^ p[0]) * <uint32_t>MURMUR2_M
    h = (h ^ h >> 13) * <uint32_t>MURMUR2_M
    return h ^ h >> 15
