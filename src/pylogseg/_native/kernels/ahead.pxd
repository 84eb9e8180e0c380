"""Read a folder's names, sizes and small files into the system's page cache."""

cdef extern from "ahead.h" nogil:
    ctypedef struct Ahead "struct pls_ahead":
        pass
    int read_folder_ahead "pls_read_ahead"(Ahead *ahead, const char *path) noexcept
