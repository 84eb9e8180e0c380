"""What modules share that decode values at places in sources into columns."""

from libc.stdint cimport int64_t, uint8_t

from pylogseg._native.kernels cimport record_write as record

cdef enum:
    SOURCES = 4


cdef class Block:
    cdef uint8_t *data
    cdef int64_t size


cdef class _Sources:
    cdef record.Source[SOURCES] all
    cdef list held


# Hand memory over.
cdef Block take(void **data, int64_t size)
