"""Memory of a typed view."""

from libc.stdint cimport uint8_t


cdef inline const uint8_t *address(const uint8_t[::1] view) noexcept:
    """First byte of a view; an empty one has no byte to point at."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""
