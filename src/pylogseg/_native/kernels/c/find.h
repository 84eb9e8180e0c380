/* Search for a string of bytes in a span. */
#ifndef PLS_FIND_H
#define PLS_FIND_H

#include "bytescan.h"

typedef struct {
    const uint8_t *bytes; /* in lower case if `fold` is set */
    int64_t size;
    int fold; /* letters A to Z match in both cases; other bytes, UTF-8 among them, only themselves */
} pls_needle;

static inline uint8_t pls_lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c; }
static inline uint8_t pls_upper(uint8_t c) { return c >= 'a' && c <= 'z' ? (uint8_t)(c & ~0x20) : c; }

static inline int pls_matches(const uint8_t *p, const pls_needle *needle) {
    int64_t i;
    if (!needle->fold)
        return memcmp(p, needle->bytes, (size_t)needle->size) == 0;
    for (i = 0; i < needle->size; i++)
        if (pls_lower(p[i]) != needle->bytes[i])
            return 0;
    return 1;
}

#if PLS_SSE2
static inline __m128i pls_either(const uint8_t *p, __m128i lower, __m128i upper) {
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    return _mm_or_si128(_mm_cmpeq_epi8(v, lower), _mm_cmpeq_epi8(v, upper));
}

/* Compare the whole needle only where first and last byte match: 16 positions per step. Leaves p at the rest. */
static inline int pls_find_blocks(const uint8_t **cursor, int64_t places, const pls_needle *needle) {
    uint8_t first = needle->bytes[0], last = needle->bytes[needle->size - 1];
    __m128i first_lower = _mm_set1_epi8((char)first), last_lower = _mm_set1_epi8((char)last);
    __m128i first_upper = needle->fold ? _mm_set1_epi8((char)pls_upper(first)) : first_lower;
    __m128i last_upper = needle->fold ? _mm_set1_epi8((char)pls_upper(last)) : last_lower;
    const uint8_t *p = *cursor;
    for (; places >= 16; places -= 16, p += 16) {
        __m128i head = pls_either(p, first_lower, first_upper);
        __m128i tail = pls_either(p + needle->size - 1, last_lower, last_upper);
        unsigned mask = (unsigned)_mm_movemask_epi8(_mm_and_si128(head, tail));
        for (; mask; mask &= mask - 1)
            if (pls_matches(p + pls_lowest_bit(mask), needle))
                return 1;
    }
    *cursor = p;
    return 0;
}
#endif

/* Whether [p, end) contains the needle. Everything contains an empty needle. */
static inline int pls_find(const uint8_t *p, const uint8_t *end, const pls_needle *needle) {
    int64_t places = end - p - needle->size + 1;
    if (needle->size == 0)
        return 1;
    if (places <= 0)
        return 0;
#if PLS_SSE2
    if (pls_find_blocks(&p, places, needle))
        return 1;
#endif
    for (; end - p >= needle->size; p++) {
        if (!needle->fold) {
            p = memchr(p, needle->bytes[0], (size_t)(end - p - needle->size + 1));
            if (p == NULL)
                return 0;
        }
        if (pls_matches(p, needle))
            return 1;
    }
    return 0;
}

#endif
