/* Large pages for memory that will be written sequentially: one page fault instead of 512. */
#ifndef PLS_PAGES_H
#define PLS_PAGES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#endif

/* Below this size it does not matter, and a large page would be half empty. */
#define PLS_LARGE_BYTES ((size_t)4 << 20)

/* Ask the system for large pages; if it has none, nothing changes. */
static inline void pls_ask_large_pages(void *memory, size_t size) {
#ifdef __linux__
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)memory + size) / page * page;
    if (size >= PLS_LARGE_BYTES)
        (void)madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
    (void)memory;
    (void)size;
#endif
}

#endif
