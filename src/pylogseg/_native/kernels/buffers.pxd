"""Memory of typed views, and of the buffers that places point into."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    SOURCES = 4                    # places of record columns point into at most so many buffers

cdef struct Source:
    const uint8_t *first
    int64_t size


cdef inline const uint8_t *address(const uint8_t[::1] view) noexcept:
    """Return the first byte of a view; NULL if it is empty."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""


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
