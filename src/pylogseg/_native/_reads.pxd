"""A descriptor that several threads use, for modules that read by it."""

from libc.stdint cimport int64_t


cdef class Shared:
    cdef public int _descriptor, _users
    cdef public bint _closed, recently_used
    cdef public int64_t _cuts, size, copied_below

    cdef int join(self) noexcept
    cdef bint leave(self) noexcept
