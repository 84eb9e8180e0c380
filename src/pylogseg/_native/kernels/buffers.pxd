"""Memory of typed views."""

from libc.stdint cimport uint8_t


cdef inline const uint8_t *address(const uint8_t[::1] view) noexcept:
    """Return the first byte of a view; NULL if it is empty."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""
