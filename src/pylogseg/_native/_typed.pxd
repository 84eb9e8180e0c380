"""What modules share that decode typed values."""

from libc.stdint cimport int32_t, int64_t

from pylogseg._native.kernels cimport typed


cdef class _Nodes:
    cdef typed.pls_node *all
    cdef int32_t count
    cdef int32_t levels  # lists in each other
    cdef int64_t room, left
    cdef void forget(self) noexcept nogil
    cdef int mark(self) noexcept nogil
    cdef list taken(self, int64_t values)
