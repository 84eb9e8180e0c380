"""A folder's names, sizes and small files brought into the system's memory."""

cdef extern from "ahead.h" nogil:
    ctypedef struct Ahead "struct pls_ahead":
        pass
    int read_folder_ahead "pls_read_ahead"(Ahead *ahead, const char *path) noexcept
