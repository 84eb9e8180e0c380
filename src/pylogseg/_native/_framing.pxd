"""What modules share that give pieces of buffers to a library which decompresses them."""

from libc.stdint cimport int64_t, uint8_t


cdef class Span:
    cdef uint8_t *base
    cdef uint8_t *at
    cdef int64_t total
    cdef int64_t size
    cdef bint is_readonly
    cdef object held

    cdef int show(self, int64_t begin, int64_t size) except -1


# Decompress the piece that is shown; None where that fails.
cdef bytes payload_of(quick, failure, Span piece, int64_t room, int64_t first_room)
