"""Loads and stores in the byte order of the disk (big-endian; little-endian for lz4, xxhash and foreign formats)."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "endian.h" nogil:
    uint16_t load_be16 "pls_load_be16"(const uint8_t *p) noexcept
    uint32_t load_be32 "pls_load_be32"(const uint8_t *p) noexcept
    uint64_t load_be64 "pls_load_be64"(const uint8_t *p) noexcept
    uint32_t load_le32 "pls_load_le32"(const uint8_t *p) noexcept
    uint64_t load_le64 "pls_load_le64"(const uint8_t *p) noexcept
    void store_be16 "pls_store_be16"(uint8_t *p, uint16_t x) noexcept
    void store_be32 "pls_store_be32"(uint8_t *p, uint32_t x) noexcept
    void store_be64 "pls_store_be64"(uint8_t *p, uint64_t x) noexcept
    void store_le32 "pls_store_le32"(uint8_t *p, uint32_t x) noexcept
    void store_le64 "pls_store_le64"(uint8_t *p, uint64_t x) noexcept
