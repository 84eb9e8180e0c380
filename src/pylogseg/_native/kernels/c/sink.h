/* A bounded output: room is checked before each write. Numbers, base64 and hex.

   Every function returns 0 if there was no room; what it may have written by then does not count. */
#ifndef PLS_SINK_H
#define PLS_SINK_H

#include <stdint.h>
#include <string.h>

#include "endian.h"

typedef struct {
    uint8_t *at;
    uint8_t *end;
} pls_sink;

#define PLS_ROOM(sink, size) ((sink)->end - (sink)->at >= (int64_t)(size))
/* A string literal: its size is known to the compiler. */
#define PLS_PUT(sink, text) pls_put_bytes(sink, (const uint8_t *)(text), sizeof(text) - 1)

static const char pls_digit_pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
    "555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

static inline int pls_put_bytes(pls_sink *s, const uint8_t *p, int64_t size) {
    if (!PLS_ROOM(s, size))
        return 0;
    if (size)
        memcpy(s->at, p, (size_t)size);
    s->at += size;
    return 1;
}

static inline int pls_put_byte(pls_sink *s, uint8_t byte) {
    if (!PLS_ROOM(s, 1))
        return 0;
    *s->at++ = byte;
    return 1;
}

/* Write bytes that 16 readable ones follow: short labels are copied without a call. */
static inline int pls_put_padded(pls_sink *s, const uint8_t *p, int64_t size) {
    int64_t i;
    if (!PLS_ROOM(s, size + 16))
        return 0;
    for (i = 0; i < size; i += 16)
        memcpy(s->at + i, p + i, 16);
    s->at += size;
    return 1;
}

static inline int pls_digit_count(uint64_t x) {
    int n = 1;
    for (;;) {
        if (x < 10)
            return n;
        if (x < 100)
            return n + 1;
        if (x < 1000)
            return n + 2;
        if (x < 10000)
            return n + 3;
        x /= 10000;
        n += 4;
    }
}

static inline int pls_put_number(pls_sink *s, int64_t value) {
    uint64_t x = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint8_t *p;
    if (!PLS_ROOM(s, 20)) /* the longest 64-bit number with its sign */
        return 0;
    if (value < 0)
        *s->at++ = '-';
    p = s->at += pls_digit_count(x);
    while (x >= 100) {
        p -= 2;
        memcpy(p, pls_digit_pairs + 2 * (x % 100), 2);
        x /= 100;
    }
    if (x >= 10)
        memcpy(p - 2, pls_digit_pairs + 2 * x, 2);
    else
        p[-1] = (uint8_t)('0' + x);
    return 1;
}

static inline uint8_t pls_nibble(uint8_t x) { return (uint8_t)(x + '0' + (x > 9 ? 'a' - '0' - 10 : 0)); }

static inline int pls_put_hex(pls_sink *s, const uint8_t *p, int64_t size) {
    uint8_t *out = s->at;
    int64_t i;
    if (size > (s->end - s->at) / 2)
        return 0;
    for (i = 0; i < size; i++) {
        out[2 * i] = pls_nibble(p[i] >> 4);
        out[2 * i + 1] = pls_nibble(p[i] & 15);
    }
    s->at += 2 * size;
    return 1;
}

static const char pls_base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/* The two digits of every 12-bit number; `pls_base64_init` fills it when the module is loaded. */
static uint8_t pls_base64_pairs[4096][2];

static inline void pls_base64_init(void) {
    int i;
    for (i = 0; i < 4096; i++) {
        pls_base64_pairs[i][0] = (uint8_t)pls_base64_digits[i >> 6];
        pls_base64_pairs[i][1] = (uint8_t)pls_base64_digits[i & 63];
    }
}

/* Standard alphabet, padded with "=" (RFC 4648, section 4). */
static inline int pls_put_base64(pls_sink *s, const uint8_t *p, int64_t size) {
    uint8_t *out = s->at;
    if ((size + 2) / 3 > (s->end - s->at) / 4)
        return 0;
    for (; size >= 8; size -= 6, p += 6, out += 8) { /* 6 bytes per step, 8 are read */
        uint64_t x = pls_load_be64(p);
        memcpy(out, pls_base64_pairs[x >> 52], 2);
        memcpy(out + 2, pls_base64_pairs[x >> 40 & 0xFFF], 2);
        memcpy(out + 4, pls_base64_pairs[x >> 28 & 0xFFF], 2);
        memcpy(out + 6, pls_base64_pairs[x >> 16 & 0xFFF], 2);
    }
    for (; size >= 3; size -= 3, p += 3, out += 4) {
        uint32_t x = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        memcpy(out, pls_base64_pairs[x >> 12], 2);
        memcpy(out + 2, pls_base64_pairs[x & 0xFFF], 2);
    }
    if (size) {
        uint32_t x = (uint32_t)p[0] << 16 | (size == 2 ? (uint32_t)p[1] << 8 : 0);
        memcpy(out, pls_base64_pairs[x >> 12], 2);
        out[2] = size == 2 ? pls_base64_pairs[x & 0xFFF][0] : '=';
        out[3] = '=';
        out += 4;
    }
    s->at = out;
    return 1;
}

#endif
