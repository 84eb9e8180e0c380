"""Large pages for memory that is about to be written from one end to the other."""

cdef extern from "pages.h" nogil:
    void ask_large_pages "pls_ask_large_pages"(void *memory, size_t size) noexcept
