"""What a process keeps of the memory that it freed."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc

cdef enum:
    LARGEST_KEPT_BYTES = 16 << 20


cdef inline void keep_freed() noexcept:
    """Let glibc keep memory that columns were in for the next ones.

    At first it asks the system for each piece above 128 KiB, and gives it back when it is freed: the system clears each
    page anew, which took half of the time of decoding typed values. Once it has freed a larger piece, it keeps smaller
    ones, and gives back what is free above twice that. No page of the piece is touched; other allocators do nothing.
    """
    PyMem_RawFree(PyMem_RawMalloc(LARGEST_KEPT_BYTES))
