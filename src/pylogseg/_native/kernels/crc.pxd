"""CRC-32C and CRC-32; `pls_crc_init` must run when the importing module is loaded."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc.h" nogil:
    void pls_crc_init() noexcept
    uint32_t pls_crc32c(uint32_t crc, const uint8_t *data, size_t size) noexcept
    uint32_t pls_crc32(uint32_t crc, const uint8_t *data, size_t size) noexcept
    int pls_crc_count() noexcept
    const char *pls_crc_name(int i) noexcept
    const char *pls_crc_current() noexcept
    int pls_crc_use(const char *name) noexcept
