"""The buffers that places point into."""

from libc.stdint cimport int64_t, uint8_t

from pylogseg._native.kernels.batch cimport SOURCE_SHIFT
from pylogseg._native.kernels.buffers cimport address

cdef extern from *:
    """
    #define PLS_POSITION_MASK 0xFFFFFFFFFFLL
    """
    const int64_t POSITION_MASK "PLS_POSITION_MASK"   # of SOURCE_SHIFT bits

cdef enum:
    SOURCES = 4                    # places of record columns point into at most so many buffers

cdef struct Source:
    const uint8_t *first
    int64_t size


cdef inline list hold(sources, Source *unpacked):
    """Unpack `SOURCES` buffers, those that are not there as empty ones; valid as long as the list lives."""
    cdef const uint8_t[::1] view
    cdef int i
    if len(sources) > SOURCES:
        raise ValueError(f"at most {SOURCES} sources, not {len(sources)}")
    held = []
    for i in range(SOURCES):
        unpacked[i].first, unpacked[i].size = <const uint8_t *>b"", 0
    for i, source in enumerate(sources):
        view = source
        held.append(view)
        unpacked[i].first, unpacked[i].size = address(view), view.shape[0]
    return held


cdef inline const uint8_t *resolve(const Source *sources, int64_t place, int64_t size) noexcept nogil:
    """Return the address of a span; NULL if a byte is outside of its source. An empty span may be at the end."""
    cdef int64_t number = place >> SOURCE_SHIFT
    cdef int64_t position = place & POSITION_MASK
    if number < 0 or number >= SOURCES or size < 0 or position > sources[number].size or size > sources[number].size - position:
        return NULL
    return sources[number].first + position
