"""SipHash-1-3 with a result of 128 bits, for many keys at once."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "siphash.h" nogil:
    ctypedef struct Hash "pls_hash":
        uint64_t first
        uint64_t second
    void siphash_many "pls_siphash_many"(
        const uint8_t *const *keys, const int64_t *sizes, int64_t count, uint64_t k0, uint64_t k1, Hash *out
    ) noexcept
