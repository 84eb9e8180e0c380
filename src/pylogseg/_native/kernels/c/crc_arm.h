/* CRC on aarch64: the instructions for either sum in three lanes, joined by carry-less multiplication.
 *
 * The scheme is that of crc_x86.h: an instruction takes 8 bytes a cycle and answers after two or three. `castagnoli` is a
 * constant wherever these functions are called: it chooses the instruction when they are compiled.
 */
#ifndef PLS_CRC_ARM_H
#define PLS_CRC_ARM_H

#include <arm_neon.h>

#include "crc_tables.h"

/* Builtins and not <arm_acle.h>, <arm_neon.h>: some compilers declare those intrinsics only where the whole file may use
 * the extension, and here one function may. */
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define PLS_TARGET_CRC
#define PLS_TARGET_PMULL
#define PLS_CRC_D __crc32d
#define PLS_CRC_CD __crc32cd
#define PLS_CRC_B __crc32b
#define PLS_CRC_CB __crc32cb
#define PLS_CRC_INLINE static __forceinline
#elif defined(__clang__)
#define PLS_TARGET_CRC __attribute__((target("crc")))
#define PLS_TARGET_PMULL __attribute__((target("crc,aes")))
#define PLS_CRC_D __builtin_arm_crc32d
#define PLS_CRC_CD __builtin_arm_crc32cd
#define PLS_CRC_B __builtin_arm_crc32b
#define PLS_CRC_CB __builtin_arm_crc32cb
#define PLS_CRC_INLINE static inline __attribute__((always_inline))
#else
#define PLS_TARGET_CRC __attribute__((target("+crc")))
#define PLS_TARGET_PMULL __attribute__((target("+crc+crypto")))
#define PLS_CRC_D __builtin_aarch64_crc32x
#define PLS_CRC_CD __builtin_aarch64_crc32cx
#define PLS_CRC_B __builtin_aarch64_crc32b
#define PLS_CRC_CB __builtin_aarch64_crc32cb
#define PLS_CRC_INLINE static inline __attribute__((always_inline))
#endif

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__) || defined(__FreeBSD__)
#include <sys/auxv.h>
#endif

static pls_crc_moves pls_crc32c_moves;
static pls_crc_moves pls_crc32_moves;

static inline void pls_crc_init_arm(void) {
    pls_crc_build_moves(pls_crc32c_moves, PLS_CRC32C_POLY);
    pls_crc_build_moves(pls_crc32_moves, PLS_CRC32_POLY);
}

PLS_TARGET_CRC
PLS_CRC_INLINE uint32_t pls_crc_word(int castagnoli, uint32_t state, uint64_t word) {
    return castagnoli ? PLS_CRC_CD(state, word) : PLS_CRC_D(state, word);
}

PLS_TARGET_CRC
PLS_CRC_INLINE uint32_t pls_crc_chain(int castagnoli, uint32_t state, const uint8_t *data, size_t words) {
    for (size_t i = 0; i < words; i++) state = pls_crc_word(castagnoli, state, pls_crc_load64(data + 8 * i));
    return state;
}

PLS_TARGET_CRC
PLS_CRC_INLINE uint32_t pls_crc_few_bytes(int castagnoli, uint32_t state, const uint8_t *data, size_t size) {
    for (; size; size--, data++) state = castagnoli ? PLS_CRC_CB(state, *data) : PLS_CRC_B(state, *data);
    return state;
}

/* Takes size modulo 8 bytes, so that whole words are left, without a branch on how many: zeros before the first byte
 * change nothing, so the bytes go to the upper end of one word. The state belongs to the first four bytes; what of it
 * lies after the taken ones is passed on. Needs size >= 8. */
PLS_TARGET_CRC
PLS_CRC_INLINE uint32_t pls_crc_odd_bytes(int castagnoli, uint32_t state, const uint8_t *data, size_t size) {
    unsigned bits = 8 * (unsigned)(size & 7);
    uint64_t word = (pls_crc_load64(data) ^ state) << (56 - bits) << 8;
    return pls_crc_word(castagnoli, 0, word) ^ (uint32_t)((uint64_t)state >> bits);
}

/* A state moved, but not yet reduced. */
PLS_TARGET_PMULL
PLS_CRC_INLINE uint64_t pls_crc_moved(uint32_t state, uint32_t move) {
#ifdef __clang__
    return (uint64_t)__builtin_neon_vmull_p64((poly64_t)state, (poly64_t)move);
#elif defined(_MSC_VER)
    return vgetq_lane_u64(vmull_p64(vcreate_u64(state), vcreate_u64(move)), 0);
#else
    return (uint64_t)vmull_p64((poly64_t)state, (poly64_t)move);
#endif
}

PLS_TARGET_PMULL
PLS_CRC_INLINE uint32_t pls_crc_lanes(
    int castagnoli, const pls_crc_moves moves, uint32_t state, const uint8_t *data, size_t words) {
    while (words >= 12) {
        size_t chunk = words < PLS_CRC_MOVES ? words : PLS_CRC_MOVES;
        size_t lane = (chunk - PLS_CRC_LEAD) / 3, last = chunk - 2 * lane;
        const uint8_t *second = data + 8 * lane, *third = second + 8 * lane;
        uint32_t a = state, b = 0, c = 0;
        for (size_t at = 0; at < 8 * lane; at += 8) {
            a = pls_crc_word(castagnoli, a, pls_crc_load64(data + at));
            b = pls_crc_word(castagnoli, b, pls_crc_load64(second + at));
            c = pls_crc_word(castagnoli, c, pls_crc_load64(third + at));
        }
        uint64_t moved = pls_crc_moved(a, moves[lane + last]) ^ pls_crc_moved(b, moves[last]);
        c = pls_crc_chain(castagnoli, c, third + 8 * lane, last - lane - 1);
        data += 8 * chunk;
        words -= chunk;
        state = pls_crc_word(castagnoli, c, pls_crc_load64(data - 8) ^ moved);
    }
    return pls_crc_chain(castagnoli, state, data, words);
}

PLS_TARGET_CRC
static uint32_t pls_crc32c_one_lane(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc_few_bytes(1, state, data, size);
    return pls_crc_chain(1, pls_crc_odd_bytes(1, state, data, size), data + (size & 7), size >> 3);
}

PLS_TARGET_CRC
static uint32_t pls_crc32_one_lane(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc_few_bytes(0, state, data, size);
    return pls_crc_chain(0, pls_crc_odd_bytes(0, state, data, size), data + (size & 7), size >> 3);
}

PLS_TARGET_PMULL
static uint32_t pls_crc32c_three_lanes(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc_few_bytes(1, state, data, size);
    state = pls_crc_odd_bytes(1, state, data, size);
    return pls_crc_lanes(1, pls_crc32c_moves, state, data + (size & 7), size >> 3);
}

PLS_TARGET_PMULL
static uint32_t pls_crc32_three_lanes(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8) return pls_crc_few_bytes(0, state, data, size);
    state = pls_crc_odd_bytes(0, state, data, size);
    return pls_crc_lanes(0, pls_crc32_moves, state, data + (size & 7), size >> 3);
}

enum { PLS_CPU_CRC32 = 1, PLS_CPU_PMULL = 2 };

static inline int pls_cpu_features(void) {
#ifdef _WIN32 /* 31: PF_ARM_V8_CRC32_INSTRUCTIONS_AVAILABLE, 30: PF_ARM_V8_CRYPTO_INSTRUCTIONS_AVAILABLE */
    return (IsProcessorFeaturePresent(31) ? PLS_CPU_CRC32 : 0) | (IsProcessorFeaturePresent(30) ? PLS_CPU_PMULL : 0);
#elif defined(__APPLE__) /* every Apple processor with the crc32 instructions has PMULL */
    int value = 0;
    size_t size = sizeof(value);
    if (sysctlbyname("hw.optional.armv8_crc32", &value, &size, 0, 0) || !value) return 0;
    return PLS_CPU_CRC32 | PLS_CPU_PMULL;
#elif defined(__linux__) || defined(__FreeBSD__) /* bit 7: HWCAP_CRC32, bit 4: HWCAP_PMULL */
    unsigned long bits = 0;
#ifdef __linux__
    bits = getauxval(AT_HWCAP);
#else
    elf_aux_info(AT_HWCAP, &bits, sizeof(bits));
#endif
    return (bits & 1 << 7 ? PLS_CPU_CRC32 : 0) | (bits & 1 << 4 ? PLS_CPU_PMULL : 0);
#else
    return 0;
#endif
}

#endif
