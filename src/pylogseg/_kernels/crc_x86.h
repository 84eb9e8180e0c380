/* CRC on x86-64: the crc32 instruction in three lanes, joined by carry-less multiplication.
 *
 * The instruction takes 8 bytes a cycle but answers after three, so one chain of it runs at a third of its rate. Three
 * lanes of `words` words each run side by side; a lane's state is then moved over the bytes behind it by a product with
 * x^(64 * words) modulo P.
 */
#ifndef PLS_CRC_X86_H
#define PLS_CRC_X86_H

#include <immintrin.h>

#include "crc_tables.h"

#ifdef _MSC_VER
#include <intrin.h>
#define PLS_TARGET(features)
#else
#include <cpuid.h>
#define PLS_TARGET(features) __attribute__((target(features)))
#endif

#define PLS_CRC_LANE_WORDS 512 /* longest lane; a chunk of three is 12 KiB, its constants fill 4 KiB */

/* pls_crc32c_moves[k] moves a state over k words. It is x^(64k - 33): the product of two reflected 32-bit numbers, read as
 * a reflected 64-bit one, gains a factor x, and the crc32 instruction that reduces it x^32. */
static uint32_t pls_crc32c_moves[2 * PLS_CRC_LANE_WORDS + 1];

static inline uint64_t pls_crc_load64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline void pls_crc_init_moves(void) {
    uint32_t word = pls_crc_power(64, PLS_CRC32C_POLY), move = pls_crc_power(64 - 33, PLS_CRC32C_POLY);
    for (int k = 1; k <= 2 * PLS_CRC_LANE_WORDS; k++) {
        pls_crc32c_moves[k] = move;
        move = pls_crc_multiply(move, word, PLS_CRC32C_POLY);
    }
}

/* One chain: for tails, and for processors without carry-less multiplication. */
PLS_TARGET("sse4.2")
static uint32_t pls_crc32c_one_lane(uint32_t state, const uint8_t *data, size_t size) {
    uint64_t wide = state;
    for (; size >= 8; size -= 8, data += 8) wide = _mm_crc32_u64(wide, pls_crc_load64(data));
    state = (uint32_t)wide;
    if (size & 4) {
        state = _mm_crc32_u32(state, pls_crc_load32(data));
        data += 4;
    }
    if (size & 2) {
        state = _mm_crc32_u16(state, (uint16_t)(data[0] | data[1] << 8));
        data += 2;
    }
    if (size & 1) state = _mm_crc32_u8(state, *data);
    return state;
}

/* The unreduced product of a state and a move. */
PLS_TARGET("sse4.2,pclmul")
static inline uint64_t pls_crc_product(uint64_t state, uint32_t move) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)state), _mm_cvtsi32_si128((int)move), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

PLS_TARGET("sse4.2,pclmul")
static uint32_t pls_crc32c_three_lanes(uint32_t state, const uint8_t *data, size_t size) {
    while (size >= 96) {
        size_t words = size / 24;
        if (words > PLS_CRC_LANE_WORDS) words = PLS_CRC_LANE_WORDS;
        const uint8_t *second = data + 8 * words, *third = second + 8 * words;
        uint64_t a = state, b = 0, c = 0;
        for (size_t at = 0; at < 8 * (words - 1); at += 8) {
            a = _mm_crc32_u64(a, pls_crc_load64(data + at));
            b = _mm_crc32_u64(b, pls_crc_load64(second + at));
            c = _mm_crc32_u64(c, pls_crc_load64(third + at));
        }
        /* The last word of the third lane waits for the other two: one instruction reduces all. */
        a = _mm_crc32_u64(a, pls_crc_load64(second - 8));
        b = _mm_crc32_u64(b, pls_crc_load64(third - 8));
        uint64_t moved = pls_crc_product(a, pls_crc32c_moves[2 * words]) ^ pls_crc_product(b, pls_crc32c_moves[words]);
        state = (uint32_t)_mm_crc32_u64(c, pls_crc_load64(third + 8 * (words - 1)) ^ moved);
        data += 24 * words;
        size -= 24 * words;
    }
    return pls_crc32c_one_lane(state, data, size);
}

enum { PLS_CPU_SSE42 = 1, PLS_CPU_PCLMUL = 2 };

static inline void pls_cpuid(unsigned leaf, unsigned registers[4]) {
#ifdef _MSC_VER
    __cpuidex((int *)registers, (int)leaf, 0);
#else
    __cpuid_count(leaf, 0, registers[0], registers[1], registers[2], registers[3]);
#endif
}

static inline int pls_cpu_features(void) {
    unsigned basic[4];
    int features = 0;
    pls_cpuid(1, basic);
    if (basic[2] & 1u << 20) features |= PLS_CPU_SSE42;
    if (basic[2] & 1u << 1) features |= PLS_CPU_PCLMUL;
    return features;
}

#endif
