/* Big- and little-endian loads and stores on unaligned bytes. The caller has checked that the bytes are there. */
#ifndef PLS_ENDIAN_H
#define PLS_ENDIAN_H

#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#include <stdlib.h>
#define PLS_SWAP16(x) _byteswap_ushort(x)
#define PLS_SWAP32(x) _byteswap_ulong(x)
#define PLS_SWAP64(x) _byteswap_uint64(x)
#define PLS_LITTLE 1
#else
#define PLS_SWAP16(x) __builtin_bswap16(x)
#define PLS_SWAP32(x) __builtin_bswap32(x)
#define PLS_SWAP64(x) __builtin_bswap64(x)
#define PLS_LITTLE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#endif

#if PLS_LITTLE
#define PLS_BE(bits, x) PLS_SWAP##bits(x)
#define PLS_LE(bits, x) (x)
#else
#define PLS_BE(bits, x) (x)
#define PLS_LE(bits, x) PLS_SWAP##bits(x)
#endif

#define PLS_ACCESS(bits)                                                                                             \
    static inline uint##bits##_t pls_load_be##bits(const uint8_t *p) {                                               \
        uint##bits##_t x;                                                                                            \
        memcpy(&x, p, sizeof x);                                                                                     \
        return PLS_BE(bits, x);                                                                                      \
    }                                                                                                                \
    static inline uint##bits##_t pls_load_le##bits(const uint8_t *p) {                                               \
        uint##bits##_t x;                                                                                            \
        memcpy(&x, p, sizeof x);                                                                                     \
        return PLS_LE(bits, x);                                                                                      \
    }                                                                                                                \
    static inline void pls_store_be##bits(uint8_t *p, uint##bits##_t x) {                                            \
        x = PLS_BE(bits, x);                                                                                         \
        memcpy(p, &x, sizeof x);                                                                                     \
    }                                                                                                                \
    static inline void pls_store_le##bits(uint8_t *p, uint##bits##_t x) {                                            \
        x = PLS_LE(bits, x);                                                                                         \
        memcpy(p, &x, sizeof x);                                                                                     \
    }

PLS_ACCESS(16)
PLS_ACCESS(32)
PLS_ACCESS(64)

#endif
