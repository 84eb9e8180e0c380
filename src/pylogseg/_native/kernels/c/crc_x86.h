/* CRC on x86-64: what the processor offers, the crc32 instruction in three lanes, carry-less folding.
 *
 * The crc32 instruction (CRC-32C only) takes 8 bytes a cycle but answers after three, so one chain of it runs at a third
 * of its rate: three lanes run side by side. A lane's state is then moved over the bytes after it by a product with a
 * power of x modulo P. Folding (crc_x86_fold.h) does the same to whole vectors, for either polynomial.
 */
#ifndef PLS_CRC_X86_H
#define PLS_CRC_X86_H

#include "cpu_x86.h"
#include "crc_tables.h"

#if defined(__clang__) && __clang_major__ >= 14 /* there the crc32 instruction is a feature beside SSE4.2 */
#define PLS_SSE42 "sse4.2,crc32"
#else
#define PLS_SSE42 "sse4.2"
#endif

#define PLS_CRC_DISTANCES 16 /* the furthest a vector can be folded, in blocks of 16 bytes */

static pls_crc_moves pls_crc32c_moves;

/* keys[k] = x^(128k + 63), x^(128k - 1), in the upper half of 64 bits: folds a block of 16 bytes over k blocks. The
 * product of two reflected 64-bit numbers, read as a reflected 128-bit one, gains a factor x. */
typedef uint64_t pls_crc_keys[PLS_CRC_DISTANCES + 1][2];
static pls_crc_keys pls_crc32c_keys;
static pls_crc_keys pls_crc32_keys;

/* What reduces 128 bits to a CRC-32: x^95 and x^63 modulo P, floor(x^64 / P) and P. */
static uint64_t pls_crc32_reducers[4];

static inline void pls_crc_build_keys(pls_crc_keys keys, uint32_t poly) {
    for (unsigned k = 1; k <= PLS_CRC_DISTANCES; k++) {
        keys[k][0] = (uint64_t)pls_crc_power(128 * k + 63, poly) << 32;
        keys[k][1] = (uint64_t)pls_crc_power(128 * k - 1, poly) << 32;
    }
}

static inline void pls_crc_init_x86(void) {
    pls_crc_build_moves(pls_crc32c_moves, PLS_CRC32C_POLY);
    pls_crc_build_keys(pls_crc32c_keys, PLS_CRC32C_POLY);
    pls_crc_build_keys(pls_crc32_keys, PLS_CRC32_POLY);
    pls_crc32_reducers[0] = (uint64_t)pls_crc_power(95, PLS_CRC32_POLY) << 32;
    pls_crc32_reducers[1] = (uint64_t)pls_crc_power(63, PLS_CRC32_POLY) << 32;
    pls_crc32_reducers[2] = pls_crc_quotient(PLS_CRC32_POLY);
    pls_crc32_reducers[3] = (uint64_t)PLS_CRC32_POLY << 1 | 1;
}

/* The lanes of the crc32 instruction */

PLS_TARGET(PLS_SSE42)
static inline uint32_t pls_crc32c_chain(uint32_t state, const uint8_t *data, size_t words) {
    uint64_t wide = state;
    for (size_t i = 0; i < words; i++) wide = _mm_crc32_u64(wide, pls_crc_load64(data + 8 * i));
    return (uint32_t)wide;
}

/* Takes size modulo 8 bytes, so that whole words are left, without a branch on how many: zeros before the first byte
 * change nothing, so the bytes go to the upper end of one word. The state belongs to the first four bytes; what of it
 * lies after the taken ones is passed on. Needs size >= 8. */
PLS_TARGET(PLS_SSE42)
static inline uint32_t pls_crc32c_odd_bytes(uint32_t state, const uint8_t *data, size_t size) {
    unsigned bits = 8 * (unsigned)(size & 7);
    uint64_t word = (pls_crc_load64(data) ^ state) << (56 - bits) << 8;
    return (uint32_t)_mm_crc32_u64(0, word) ^ (uint32_t)((uint64_t)state >> bits);
}

PLS_TARGET(PLS_SSE42)
static inline uint32_t pls_crc32c_few_bytes(uint32_t state, const uint8_t *data, size_t size) {
    if (size & 4) {
        state = _mm_crc32_u32(state, pls_crc_load32(data));
        data += 4;
    }
    if (size & 2) {
        state = _mm_crc32_u16(state, (uint16_t)(data[0] | data[1] << 8));
        data += 2;
    }
    return size & 1 ? _mm_crc32_u8(state, *data) : state;
}

/* For processors that have the crc32 instruction and no carry-less multiplication. */
PLS_TARGET(PLS_SSE42)
static uint32_t pls_crc32c_one_lane(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc32c_few_bytes(state, data, size);
    state = pls_crc32c_odd_bytes(state, data, size);
    return pls_crc32c_chain(state, data + (size & 7), size >> 3);
}

/* A state moved over `words` words, but not yet reduced. */
PLS_TARGET(PLS_SSE42 ",pclmul")
static inline uint64_t pls_crc32c_moved(uint64_t state, size_t words) {
    __m128i move = _mm_cvtsi32_si128((int)pls_crc32c_moves[words]);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)state), move, 0));
}

PLS_TARGET(PLS_SSE42 ",pclmul")
static inline uint32_t pls_crc32c_lanes(uint32_t state, const uint8_t *data, size_t words) {
    while (words >= 12) {
        size_t chunk = words < PLS_CRC_MOVES ? words : PLS_CRC_MOVES;
        size_t lane = (chunk - PLS_CRC_LEAD) / 3, last = chunk - 2 * lane;
        const uint8_t *second = data + 8 * lane, *third = second + 8 * lane;
        uint64_t a = state, b = 0, c = 0;
        for (size_t at = 0; at < 8 * lane; at += 8) {
            a = _mm_crc32_u64(a, pls_crc_load64(data + at));
            b = _mm_crc32_u64(b, pls_crc_load64(second + at));
            c = _mm_crc32_u64(c, pls_crc_load64(third + at));
        }
        uint64_t moved = pls_crc32c_moved(a, lane + last) ^ pls_crc32c_moved(b, last);
        c = pls_crc32c_chain((uint32_t)c, third + 8 * lane, last - lane - 1);
        data += 8 * chunk;
        words -= chunk;
        state = (uint32_t)_mm_crc32_u64(c, pls_crc_load64(data - 8) ^ moved);
    }
    return pls_crc32c_chain(state, data, words);
}

PLS_TARGET(PLS_SSE42 ",pclmul")
static uint32_t pls_crc32c_three_lanes(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc32c_few_bytes(state, data, size);
    state = pls_crc32c_odd_bytes(state, data, size);
    return pls_crc32c_lanes(state, data + (size & 7), size >> 3);
}

/* Folding of one block of 16 bytes */

PLS_TARGET(PLS_SSE42 ",pclmul")
static inline __m128i pls_crc_fold(__m128i block, const uint64_t key[2]) {
    __m128i k = _mm_loadu_si128((const __m128i *)key);
    return _mm_xor_si128(_mm_clmulepi64_si128(block, k, 0x00), _mm_clmulepi64_si128(block, k, 0x11));
}

/* block * x^32 modulo P: 128 bits to 96, to 64, and the rest by Barrett's quotient. */
PLS_TARGET(PLS_SSE42 ",pclmul")
static inline uint32_t pls_crc32_reduce(__m128i block) {
    __m128i keys = _mm_loadu_si128((const __m128i *)pls_crc32_reducers);
    __m128i barrett = _mm_loadu_si128((const __m128i *)(pls_crc32_reducers + 2));
    __m128i low32 = _mm_cvtsi32_si128(-1);
    __m128i upper = _mm_slli_si128(_mm_srli_si128(block, 8), 4);
    block = _mm_xor_si128(_mm_clmulepi64_si128(block, keys, 0x00), upper);
    block = _mm_xor_si128(_mm_clmulepi64_si128(block, keys, 0x10), block);
    block = _mm_srli_si128(block, 8);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(block, low32), barrett, 0x00);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), barrett, 0x10);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(block, quotient), 1);
}

/* Takes size modulo 16 bytes, as pls_crc32c_odd_bytes does, and gives what is to be added to the block after them.
 * Needs size >= 16. */
PLS_TARGET(PLS_SSE42 ",pclmul")
static inline __m128i pls_crc32_odd_bytes(uint32_t state, const uint8_t *data, size_t size) {
    int odd = (int)(size & 15);
    __m128i ramp = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i places = _mm_sub_epi8(ramp, _mm_set1_epi8((char)(16 - odd))); /* negative ones give zero bytes */
    __m128i block = _mm_xor_si128(_mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)state));
    uint64_t rest = odd < 4 ? (uint64_t)state >> 8 * odd : 0;
    __m128i passed_on = _mm_cvtsi64_si128((long long)rest);
    return _mm_xor_si128(pls_crc_fold(_mm_shuffle_epi8(block, places), pls_crc32_keys[1]), passed_on);
}

/* The two widths of vectors */

#define PLS_V(name) name##_pclmulqdq
#define PLS_V_TARGET PLS_TARGET(PLS_SSE42 ",pclmul")
#define PLS_V_TYPE __m128i
#define PLS_V_COUNT 4
#define PLS_V_LANE_WORDS 3
#define PLS_V_LEAST_WORDS 128
#define PLS_V_LOAD(data) _mm_loadu_si128((const __m128i *)(data))
#define PLS_V_SPREAD(block) (block)
#define PLS_V_WIDEN(block) (block)
#define PLS_V_XOR _mm_xor_si128
#define PLS_V_MULTIPLY _mm_clmulepi64_si128
#define PLS_V_NARROW(vector, keys) (vector)
#define PLS_V_LEAVE() ((void)0)
#include "crc_x86_fold.h"

#define PLS_V(name) name##_vpclmulqdq
#define PLS_V_TARGET PLS_TARGET(PLS_SSE42 ",pclmul,avx2,vpclmulqdq")
#define PLS_V_TYPE __m256i
#define PLS_V_COUNT 2
#define PLS_V_LANE_WORDS 3
#define PLS_V_LEAST_WORDS 64
#define PLS_V_LOAD(data) _mm256_loadu_si256((const __m256i *)(data))
#define PLS_V_SPREAD(block) _mm256_broadcastsi128_si256(block)
#define PLS_V_WIDEN(block) _mm256_inserti128_si256(_mm256_setzero_si256(), block, 0)
#define PLS_V_XOR _mm256_xor_si256
#define PLS_V_MULTIPLY _mm256_clmulepi64_epi128
#define PLS_V_NARROW(vector, keys) \
    _mm_xor_si128(pls_crc_fold(_mm256_castsi256_si128(vector), (keys)[1]), _mm256_extracti128_si256(vector, 1))
#define PLS_V_LEAVE() _mm256_zeroupper()
#include "crc_x86_fold.h"

#endif
