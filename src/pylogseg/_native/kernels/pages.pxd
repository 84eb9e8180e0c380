"""Large pages for memory that will be written sequentially."""

cdef extern from "pages.h" nogil:
    void ask_large_pages "pls_ask_large_pages"(void *memory, size_t size) noexcept
