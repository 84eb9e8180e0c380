/* Find the next byte that needs special treatment, 16 bytes at a time. And strict UTF-8, one sequence at a time.

   Every function that looks at 16 bytes says so; the caller has checked that they may be read. */
#ifndef PLS_BYTESCAN_H
#define PLS_BYTESCAN_H

#include <stdint.h>
#include <string.h>

#include "endian.h"

#if (defined(__SSE2__) || defined(_M_X64)) && !defined(PLS_PORTABLE)
#include <emmintrin.h>
#define PLS_SSE2 1
#else
#define PLS_SSE2 0
#endif

#if defined(_MSC_VER)
#include <intrin.h>
static inline int pls_lowest_bit(uint64_t x) {
    unsigned long i;
    _BitScanForward64(&i, x);
    return (int)i;
}
#else
#define pls_lowest_bit(x) __builtin_ctzll(x)
#endif

#define PLS_ONES 0x0101010101010101ull
#define PLS_TOPS 0x8080808080808080ull
/* Top bit of each byte of x that is zero. A borrow can only mark bytes above one that is really zero. */
#define PLS_ZEROS(x) (((x) - PLS_ONES) & ~(x) & PLS_TOPS)

/* Index of the first of 16 bytes that a JSON string cannot hold as it is, or that is not ASCII, or DEL; 16 if there is
   none. */
static inline int pls_json_stop(const uint8_t *p) {
#if PLS_SSE2
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    /* Signed: bytes from 0x80 on are negative, so below 0x20 too. */
    __m128i low = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20));
    __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
    __m128i del = _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7F));
    int mask = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(low, del), _mm_or_si128(quote, slash)));
    return mask ? pls_lowest_bit((uint64_t)mask) : 16;
#else
    int i;
    for (i = 0; i < 16; i += 8) {
        uint64_t x = pls_load_le64(p + i);
        uint64_t hit = x & PLS_TOPS;
        hit |= (x - PLS_ONES * 0x20) & ~x & PLS_TOPS;
        hit |= PLS_ZEROS(x ^ (PLS_ONES * '"')) | PLS_ZEROS(x ^ (PLS_ONES * '\\')) | PLS_ZEROS(x ^ (PLS_ONES * 0x7F));
        if (hit)
            return i + pls_lowest_bit(hit) / 8;
    }
    return 16;
#endif
}

/* Whether the first `size` of 16 bytes are the same; 16 may be read of both. */
static inline int pls_same_sixteen(const uint8_t *a, const uint8_t *b, int64_t size) {
#if PLS_SSE2
    __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)a), _mm_loadu_si128((const __m128i *)b));
    return (~_mm_movemask_epi8(same) & ((1 << size) - 1)) == 0;
#else
    return memcmp(a, b, (size_t)size) == 0;
#endif
}

/* Index of the first of 16 bytes that is not ASCII; 16 if there is none. */
static inline int pls_ascii_stop(const uint8_t *p) {
#if PLS_SSE2
    int mask = _mm_movemask_epi8(_mm_loadu_si128((const __m128i *)p));
    return mask ? pls_lowest_bit((uint64_t)mask) : 16;
#else
    int i;
    for (i = 0; i < 16; i += 8) {
        uint64_t hit = pls_load_le64(p + i) & PLS_TOPS;
        if (hit)
            return i + pls_lowest_bit(hit) / 8;
    }
    return 16;
#endif
}

/* Index of the first of 16 bytes that is `byte`; 16 if there is none. */
static inline int pls_byte_stop(const uint8_t *p, uint8_t byte) {
#if PLS_SSE2
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8((char)byte)));
    return mask ? pls_lowest_bit((uint64_t)mask) : 16;
#else
    int i;
    for (i = 0; i < 16; i += 8) {
        uint64_t hit = PLS_ZEROS(pls_load_le64(p + i) ^ (PLS_ONES * byte));
        if (hit)
            return i + pls_lowest_bit(hit) / 8;
    }
    return 16;
#endif
}

/* Index of the first of 16 bytes for which a CSV field must be quoted; 16 if there is none. */
static inline int pls_csv_stop(const uint8_t *p, uint8_t delimiter) {
#if PLS_SSE2
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m128i a = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8((char)delimiter)));
    __m128i b = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\r')));
    int mask = _mm_movemask_epi8(_mm_or_si128(a, b));
    return mask ? pls_lowest_bit((uint64_t)mask) : 16;
#else
    int i;
    for (i = 0; i < 16; i += 8) {
        uint64_t x = pls_load_le64(p + i);
        uint64_t hit = PLS_ZEROS(x ^ (PLS_ONES * '"')) | PLS_ZEROS(x ^ (PLS_ONES * delimiter)) |
                       PLS_ZEROS(x ^ (PLS_ONES * '\n')) | PLS_ZEROS(x ^ (PLS_ONES * '\r'));
        if (hit)
            return i + pls_lowest_bit(hit) / 8;
    }
    return 16;
#endif
}

/* How many of the bytes are `byte`. */
static inline int64_t pls_count_byte(const uint8_t *p, int64_t size, uint8_t byte) {
    int64_t i, count = 0;
    for (i = 0; i < size; i++)
        count += p[i] == byte;
    return count;
}

/* A pointer to 16 readable bytes that begin with those of [p, end): p itself if the source goes on up to `limit`. */
static inline const uint8_t *pls_sixteen(const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t spare[16]) {
    int64_t i, left = end - p;
    if (limit - p >= 16)
        return p;
    memset(spare, 'x', 16);
    for (i = 0; i < left && i < 16; i++)
        spare[i] = p[i];
    return spare;
}

#define PLS_CONTINUES(byte) (((byte)&0xC0) == 0x80)

/* Bytes of the well-formed UTF-8 sequence at p (p < end), 0 if there is none: no overlong form, surrogate or code
   point above U+10FFFF (Unicode, table 3-7; the same set as Python's strict decoder). */
static inline int pls_utf8_size(const uint8_t *p, const uint8_t *end) {
    uint8_t a = p[0];
    if (a < 0x80)
        return 1;
    if (a < 0xC2 || a > 0xF4 || end - p < 2)
        return 0;
    if (a < 0xE0)
        return PLS_CONTINUES(p[1]) ? 2 : 0;
    if (end - p < 3 || !PLS_CONTINUES(p[1]) || !PLS_CONTINUES(p[2]))
        return 0;
    if (a < 0xF0)
        return (a == 0xE0 && p[1] < 0xA0) || (a == 0xED && p[1] > 0x9F) ? 0 : 3;
    if (end - p < 4 || !PLS_CONTINUES(p[3]))
        return 0;
    return (a == 0xF0 && p[1] < 0x90) || (a == 0xF4 && p[1] > 0x8F) ? 0 : 4;
}

/* Bytes at p that Java's decoder replaces by one U+FFFD, where no well-formed sequence begins at p.

   They are the longest beginning of a sequence that could have become well-formed, with one exception: Java notices a
   surrogate only after its third byte, so ED and a continuation byte go together, three bytes if all three are there. */
static inline int pls_java_malformed(const uint8_t *p, const uint8_t *end) {
    uint8_t a = p[0];
    int64_t left = end - p;
    if (a < 0xE0 || a > 0xF4 || left < 2 || !PLS_CONTINUES(p[1]))
        return 1;
    if (a < 0xF0) {
        if (a == 0xE0 && p[1] < 0xA0)
            return 1;
        return left >= 3 && PLS_CONTINUES(p[2]) ? 3 : 2;
    }
    if ((a == 0xF0 && p[1] < 0x90) || (a == 0xF4 && p[1] > 0x8F))
        return 1;
    return left >= 3 && PLS_CONTINUES(p[2]) ? 3 : 2;
}

/* The code point of the well-formed sequence of `size` bytes at p, if a terminal acts on it instead of showing it: C1
   controls, marks and changes of the direction of text, separators of lines; 0 if it is none. */
static inline int pls_acting(const uint8_t *p, int size) {
    if (size == 2)
        return p[0] == 0xC2 && p[1] < 0xA0 ? p[1] : p[0] == 0xD8 && p[1] == 0x9C ? 0x61C : 0;
    if (size != 3 || p[0] != 0xE2)
        return 0;
    if (p[1] == 0x80 && (p[2] == 0x8E || p[2] == 0x8F || (p[2] >= 0xA8 && p[2] <= 0xAE)))
        return 0x2000 + (p[2] & 0x3F);
    return p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9 ? 0x2040 + (p[2] & 0x3F) : 0;
}

/* Whether [p, end) is well-formed UTF-8. */
static inline int pls_is_utf8(const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
    uint8_t spare[16];
    while (p < end) {
        int plain = pls_ascii_stop(pls_sixteen(p, end, limit, spare));
        if (plain >= end - p)
            return 1;
        p += plain;
        while (p < end && *p >= 0x80) {
            int size = pls_utf8_size(p, end);
            if (size == 0)
                return 0;
            p += size;
        }
    }
    return 1;
}

#endif
