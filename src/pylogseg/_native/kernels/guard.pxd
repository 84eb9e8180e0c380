"""Work on a mapped file that ends where a page of it is gone."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "guard.h" nogil:
    ctypedef struct Map "pls_map":
        pass
    bint maps_memory "pls_maps_memory"
    const uint8_t *map_bytes "pls_map_bytes"(Map *map, int file, int64_t position, int64_t size) noexcept
    void unmap "pls_unmap"(Map *map) noexcept
    bint guarded "pls_guarded"(const Map *map, void (*work)(void *) noexcept nogil, void *state) noexcept
