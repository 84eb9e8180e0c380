/* SipHash-1-3 with a result of 128 bits: a hash whose collisions nobody can find without the secret.
 *
 * Source: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", and the 128-bit variant of their
 * reference. One round per word and three to finish, as in the hash tables of Rust and Ruby.
 *
 * A hash is one chain of dependent instructions, so keys are hashed eight at a time, one in each lane of a vector.
 * Without wide vectors, and for long keys, keys are hashed one after the other.
 */
#ifndef PLS_SIPHASH_H
#define PLS_SIPHASH_H

#include <stdint.h>
#include <string.h>

#include "endian.h"

typedef struct {
    uint64_t first, second;
} pls_hash;

#define PLS_SIP_LANES 8
#define PLS_SIP_WORDS 8 /* words of the longest key for lanes, including the one with its size */

/* The words of some keys, interleaved. */
typedef struct {
    uint64_t words[PLS_SIP_WORDS][PLS_SIP_LANES];
    uint64_t count[PLS_SIP_LANES];
    uint64_t most;
} pls_sip_lanes;

#define PLS_TURN(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define PLS_SIP_ROUND(a, b, c, d) \
    do { \
        a += b; \
        c += d; \
        b = PLS_TURN(b, 13) ^ a; \
        d = PLS_TURN(d, 16) ^ c; \
        a = PLS_TURN(a, 32) + d; \
        c += b; \
        b = PLS_TURN(b, 17) ^ c; \
        d = PLS_TURN(d, 21) ^ a; \
        c = PLS_TURN(c, 32); \
    } while (0)

#define PLS_SIP_A UINT64_C(0x736F6D6570736575)
#define PLS_SIP_B (UINT64_C(0x646F72616E646F6D) ^ 0xEE)
#define PLS_SIP_C UINT64_C(0x6C7967656E657261)
#define PLS_SIP_D UINT64_C(0x7465646279746573)

/* The last word: the rest of the key, and its size. */
static inline uint64_t pls_sip_tail(const uint8_t *p, int64_t size) {
    int64_t left = size & 7;
    uint64_t word = 0;
    if (left && size >= 8)
        word = pls_load_le64(p + size - 8) >> 8 * (8 - left);
    else
        for (int64_t i = 0; i < left; i++)
            word |= (uint64_t)p[i] << 8 * i;
    return word | (uint64_t)size << 56;
}

static inline pls_hash pls_siphash(const uint8_t *p, int64_t size, uint64_t k0, uint64_t k1) {
    uint64_t a = PLS_SIP_A ^ k0, b = PLS_SIP_B ^ k1, c = PLS_SIP_C ^ k0, d = PLS_SIP_D ^ k1, word;
    pls_hash out;
    for (int64_t i = 0; i + 8 <= size; i += 8) {
        word = pls_load_le64(p + i);
        d ^= word;
        PLS_SIP_ROUND(a, b, c, d);
        a ^= word;
    }
    word = pls_sip_tail(p, size);
    d ^= word;
    PLS_SIP_ROUND(a, b, c, d);
    a ^= word;
    c ^= 0xEE;
    for (int i = 0; i < 3; i++)
        PLS_SIP_ROUND(a, b, c, d);
    out.first = a ^ b ^ c ^ d;
    b ^= 0xDD;
    for (int i = 0; i < 3; i++)
        PLS_SIP_ROUND(a, b, c, d);
    out.second = a ^ b ^ c ^ d;
    return out;
}

#if defined(__GNUC__) && defined(__x86_64__)
#define PLS_SIP_WIDE 1
typedef uint64_t pls_sip_vector __attribute__((vector_size(8 * PLS_SIP_LANES)));

static inline __attribute__((always_inline)) void pls_sip_hash_lanes(
    const pls_sip_lanes *in, uint64_t k0, uint64_t k1, uint64_t *first, uint64_t *second) {
    pls_sip_vector a = (pls_sip_vector){0} + (PLS_SIP_A ^ k0), b = (pls_sip_vector){0} + (PLS_SIP_B ^ k1);
    pls_sip_vector c = (pls_sip_vector){0} + (PLS_SIP_C ^ k0), d = (pls_sip_vector){0} + (PLS_SIP_D ^ k1);
    pls_sip_vector count, word;
    memcpy(&count, in->count, sizeof count);
    for (uint64_t i = 0; i < in->most; i++) {
        pls_sip_vector goes_on = (pls_sip_vector)(count > i), a0 = a, b0 = b, c0 = c, d0 = d;
        memcpy(&word, in->words[i], sizeof word);
        d ^= word;
        PLS_SIP_ROUND(a, b, c, d);
        a ^= word;
        a = (a & goes_on) | (a0 & ~goes_on); /* a lane whose key has ended waits for the others */
        b = (b & goes_on) | (b0 & ~goes_on);
        c = (c & goes_on) | (c0 & ~goes_on);
        d = (d & goes_on) | (d0 & ~goes_on);
    }
    c ^= 0xEE;
    for (int i = 0; i < 3; i++)
        PLS_SIP_ROUND(a, b, c, d);
    word = a ^ b ^ c ^ d;
    memcpy(first, &word, sizeof word);
    b ^= 0xDD;
    for (int i = 0; i < 3; i++)
        PLS_SIP_ROUND(a, b, c, d);
    word = a ^ b ^ c ^ d;
    memcpy(second, &word, sizeof word);
}

__attribute__((target("avx512f"))) static void pls_sip_avx512(
    const pls_sip_lanes *in, uint64_t k0, uint64_t k1, uint64_t *first, uint64_t *second) {
    pls_sip_hash_lanes(in, k0, k1, first, second);
}

__attribute__((target("avx2"))) static void pls_sip_avx2(
    const pls_sip_lanes *in, uint64_t k0, uint64_t k1, uint64_t *first, uint64_t *second) {
    pls_sip_hash_lanes(in, k0, k1, first, second);
}

/* Hash eight short keys in parallel; 0 if that is not possible. */
static inline int pls_siphash_lanes(
    const uint8_t *const *keys, const int64_t *sizes, uint64_t k0, uint64_t k1, pls_hash *out) {
    pls_sip_lanes in;
    uint64_t first[PLS_SIP_LANES], second[PLS_SIP_LANES];
    int wide = __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
    if (!wide)
        return 0;
    in.most = 0;
    for (int k = 0; k < PLS_SIP_LANES; k++) {
        uint64_t whole = (uint64_t)sizes[k] / 8;
        if (whole >= PLS_SIP_WORDS)
            return 0;
        for (uint64_t i = 0; i < whole; i++)
            in.words[i][k] = pls_load_le64(keys[k] + 8 * i);
        in.words[whole][k] = pls_sip_tail(keys[k], sizes[k]);
        in.count[k] = whole + 1;
        in.most = in.most > whole + 1 ? in.most : whole + 1;
    }
    /* words after the end of a shorter key are not used, but must be initialized */
    for (int k = 0; k < PLS_SIP_LANES; k++)
        for (uint64_t i = in.count[k]; i < in.most; i++)
            in.words[i][k] = 0;
    if (wide == 2)
        pls_sip_avx512(&in, k0, k1, first, second);
    else
        pls_sip_avx2(&in, k0, k1, first, second);
    for (int k = 0; k < PLS_SIP_LANES; k++) {
        out[k].first = first[k];
        out[k].second = second[k];
    }
    return 1;
}
#else
static inline int pls_siphash_lanes(
    const uint8_t *const *keys, const int64_t *sizes, uint64_t k0, uint64_t k1, pls_hash *out) {
    (void)keys, (void)sizes, (void)k0, (void)k1, (void)out;
    return 0;
}
#endif

/* Hash keys, in their order. */
static inline void pls_siphash_many(
    const uint8_t *const *keys, const int64_t *sizes, int64_t count, uint64_t k0, uint64_t k1, pls_hash *out) {
    int64_t i = 0;
    while (i < count) {
        if (count - i >= PLS_SIP_LANES && pls_siphash_lanes(keys + i, sizes + i, k0, k1, out + i)) {
            i += PLS_SIP_LANES;
        } else {
            out[i] = pls_siphash(keys[i], sizes[i], k0, k1);
            i++;
        }
    }
}

#endif
