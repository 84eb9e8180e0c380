/* Numbers in decimal digits, exactly: eight digits at a time, and the double that is nearest (ties to even).

   8 bytes behind `end` may be read. What cannot be read exactly here is refused, and left to others. */
#ifndef PLS_NUMBER_H
#define PLS_NUMBER_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "bytescan.h"

#define PLS_MOST_DIGITS 19 /* more may not fit in 64 bits */

/* The number of eight digits, whose values are the bytes of x, the first digit the lowest. */
static inline uint64_t pls_eight_digits(uint64_t x) {
    x = x * 10 + (x >> 8);
    return ((x & 0x000000FF000000FFull) * 0x000F424000000064ull + (x >> 16 & 0x000000FF000000FFull) * 0x0000271000000001ull) >> 32;
}

/* Read digits on to *number, which wraps if they are too many: what is behind them. */
static inline const uint8_t *pls_digits(const uint8_t *p, const uint8_t *end, uint64_t *number) {
    static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    while (p < end) {
        uint64_t x = pls_load_le64(p) ^ (PLS_ONES * '0');
        uint64_t other = (x | (x + PLS_ONES * 0x76)) & PLS_TOPS; /* exact up to the first that is no digit */
        int64_t count = other ? pls_lowest_bit(other) / 8 : 8;
        if (count > end - p)
            count = end - p;
        if (count == 0)
            return p;
        p += count;
        x = pls_eight_digits(x << (64 - 8 * count));
        if (count < 8) {
            *number = *number * tens[count] + x;
            return p;
        }
        *number = *number * 100000000u + x;
    }
    return p;
}

/* An integer of JSON of at most 18 digits: what is behind it, or NULL. */
static inline const uint8_t *pls_integer(const uint8_t *p, const uint8_t *end, int64_t *number) {
    int negative = *p == '-';
    uint64_t digits = 0;
    const uint8_t *from = p + negative;
    p = pls_digits(from, end, &digits);
    if (p - from < 1 || p - from >= PLS_MOST_DIGITS || (*from == '0' && p - from > 1))
        return NULL;
    *number = negative ? -(int64_t)digits : (int64_t)digits;
    return p;
}

#if defined(__SIZEOF_INT128__) && !defined(_WIN32)
#define PLS_MOST_POWER 27 /* of 5, in 64 bits */

/* digits * 10**power, which is neither zero nor beyond what a double holds exactly in its exponent. */
static inline double pls_nearest(uint64_t digits, int power) {
    unsigned __int128 exact;
    uint64_t five = 1, bits, kept;
    int exponent = power, zeros, i;
    double made, scale;
    for (i = power < 0 ? -power : power; i > 0; i--)
        five *= 5;
    if (power >= 0) {
        exact = (unsigned __int128)digits * five;
    } else { /* at least 65 bits of the quotient, and whether anything is left */
        int shift = __builtin_clzll(digits);
        unsigned __int128 whole = (unsigned __int128)(digits << shift) << 64;
        exact = whole / five;
        exact |= exact * five != whole;
        exponent -= shift + 64;
    }
    zeros = exact >> 64 ? __builtin_clzll((uint64_t)(exact >> 64)) : 64 + __builtin_clzll((uint64_t)exact);
    exact <<= zeros;
    exponent += 64 - zeros;
    kept = (uint64_t)(exact >> 64);
    bits = (kept & 0x7FF) << 1 | ((uint64_t)exact != 0); /* what is rounded: eleven bits, and whether more follow */
    kept >>= 11;
    exponent += 11;
    if (bits > 0x800 || (bits == 0x800 && (kept & 1)))
        kept++;
    made = (double)kept;
    bits = (uint64_t)(exponent + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    return made * scale;
}
#else
#define PLS_MOST_POWER 0
#endif

/* A number of JSON: what is behind it, or NULL. */
static inline const uint8_t *pls_double(const uint8_t *p, const uint8_t *end, double *number) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int negative = *p == '-';
    uint64_t digits = 0;
    int64_t power = 0, count;
    const uint8_t *from = p + negative;
    p = pls_digits(from, end, &digits);
    count = p - from;
    if (count < 1 || (*from == '0' && count > 1))
        return NULL;
    if (p < end && *p == '.') {
        from = p + 1;
        p = pls_digits(from, end, &digits);
        power = from - p;
        if (power == 0)
            return NULL;
        count -= power;
    }
    if (p < end && (*p | 0x20) == 'e') {
        uint64_t more = 0;
        int less;
        p++;
        less = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+'))
            p++;
        from = p;
        p = pls_digits(from, end, &more);
        if (p == from || p - from > 4)
            return NULL;
        power += less ? -(int64_t)more : (int64_t)more;
    }
    if (count > PLS_MOST_DIGITS)
        return NULL;
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
    if (digits <= 1ull << 53 && power >= -22 && power <= 22) { /* both exact, so what is made of them is the nearest */
        *number = power < 0 ? (double)digits / tens[-power] : (double)digits * tens[power];
        if (negative)
            *number = -*number;
        return p;
    }
#endif
    if (digits == 0 || power < -PLS_MOST_POWER || power > PLS_MOST_POWER)
        return NULL;
#if PLS_MOST_POWER
    *number = pls_nearest(digits, (int)power);
    if (negative)
        *number = -*number;
    return p;
#else
    return NULL;
#endif
}

#endif
