"""SipHash-1-3 with a result of 128 bits: a hash that nobody can aim at without the secret it was made with.

Source: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", and the 128-bit variant of their
reference. One round per word and three to finish, as in the hash tables of Rust and Ruby.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from pylogseg._kernels.endian cimport load_le64

cdef struct Hash:
    uint64_t first
    uint64_t second

cdef struct Sip:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline uint64_t turn(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(Sip *s) noexcept nogil:
    s.a += s.b
    s.c += s.d
    s.b = turn(s.b, 13) ^ s.a
    s.d = turn(s.d, 16) ^ s.c
    s.a = turn(s.a, 32) + s.d
    s.c += s.b
    s.b = turn(s.b, 17) ^ s.c
    s.d = turn(s.d, 21) ^ s.a
    s.c = turn(s.c, 32)


cdef inline Hash siphash(const uint8_t *p, int64_t size, uint64_t k0, uint64_t k1) noexcept nogil:
    """Hash of `size` bytes at `p` under the secret of two words."""
    cdef Sip s
    cdef Hash out
    cdef uint64_t word
    cdef int64_t i = 0, left
    s.a = <uint64_t>0x736F6D6570736575 ^ k0
    s.b = <uint64_t>0x646F72616E646F6D ^ k1 ^ 0xEE
    s.c = <uint64_t>0x6C7967656E657261 ^ k0
    s.d = <uint64_t>0x7465646279746573 ^ k1
    while size - i >= 8:
        word = load_le64(p + i)
        s.d ^= word
        sip_round(&s)
        s.a ^= word
        i += 8
    word = <uint64_t>size << 56
    left = size - i
    while left > 0:
        left -= 1
        word |= <uint64_t>p[i + left] << (8 * left)
    s.d ^= word
    sip_round(&s)
    s.a ^= word
    s.c ^= 0xEE
    sip_round(&s)
    sip_round(&s)
    sip_round(&s)
    out.first = s.a ^ s.b ^ s.c ^ s.d
    s.b ^= 0xDD
    sip_round(&s)
    sip_round(&s)
    sip_round(&s)
    out.second = s.a ^ s.b ^ s.c ^ s.d
    return out
