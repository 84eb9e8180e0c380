"""What modules share that give pieces of buffers to a library which decompresses them."""

from libc.stdint cimport int64_t, uint8_t

from pylogseg._native.kernels cimport framing

cdef enum:
    UNPACKER_BLOCKS = 1024     # of a payload; one with more is left to the careful readers


cdef class Span:
    cdef uint8_t *base
    cdef uint8_t *at
    cdef int64_t total
    cdef int64_t size
    cdef bint is_readonly
    cdef object held

    cdef int show(self, int64_t begin, int64_t size) except -1


cdef class Unpacker:
    cdef readonly int codec
    cdef object call, failure, careful
    cdef int64_t limit, first_room
    cdef bytes data            # what the library returned last
    cdef framing.Block[UNPACKER_BLOCKS] blocks

    # Decompress a payload into the target from byte `used` on, or into memory of its own until the next call; NULL where
    # that fails.
    cdef const uint8_t *unpack(self, Span source, int64_t begin, int64_t size, Span target, int64_t used, int64_t *made) except? NULL
    cdef int64_t by_blocks(self, Span source, int count, Span target, int64_t used) except -2
