"""Reading at a position of an open file, where the system has `pread`."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "readat.h" nogil:
    const bint HAS_READ_AT "PLS_HAS_READ_AT"
    int64_t read_at "pls_read_at"(int file, uint8_t *to, int64_t size, int64_t at, int *error)
