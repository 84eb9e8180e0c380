"""Headers of batches read one by one, from a file or from a map of one."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "headers.h" nogil:
    int64_t read_headers_of "pls_read_headers"(
        int file, int64_t *position, int64_t end, int64_t last_offset, uint8_t *out, int64_t room
    ) noexcept
    int64_t headers_in "pls_headers_in"(
        const uint8_t *bytes, int64_t *position, int64_t end, int64_t last_offset, uint8_t *out, int64_t room
    ) noexcept
