/* The part of the checksums that runs anywhere: polynomial arithmetic modulo P and slicing-by-8 tables.
 *
 * Both sums are "reflected": bit 31 of a 32-bit state is the coefficient of x^0, bit 0 that of x^31. Functions here take
 * and return the raw state, that is the finished sum inverted.
 */
#ifndef PLS_CRC_TABLES_H
#define PLS_CRC_TABLES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PLS_CRC32C_POLY 0x82F63B78u /* Castagnoli: v2 batches, producer snapshots */
#define PLS_CRC32_POLY 0xEDB88320u  /* IEEE: v0 and v1 messages */
#define PLS_CRC_SLICES 8

typedef uint32_t pls_crc_slices[PLS_CRC_SLICES][256];

static pls_crc_slices pls_crc32c_slices;
static pls_crc_slices pls_crc32_slices;

/* state * x modulo P */
static inline uint32_t pls_crc_times_x(uint32_t state, uint32_t poly) {
    return (state >> 1) ^ (poly & (0u - (state & 1)));
}

/* a * b modulo P */
static inline uint32_t pls_crc_multiply(uint32_t a, uint32_t b, uint32_t poly) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = pls_crc_times_x(b, poly);
    }
    return product;
}

/* x^exponent modulo P */
static inline uint32_t pls_crc_power(uint64_t exponent, uint32_t poly) {
    uint32_t result = 0x80000000u, square = 0x40000000u;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = pls_crc_multiply(result, square, poly);
        square = pls_crc_multiply(square, square, poly);
    }
    return result;
}

/* floor(x^64 / P), reflected in 33 bits: bit 0 is the coefficient of x^32 */
static inline uint64_t pls_crc_quotient(uint32_t poly) {
    uint64_t quotient = 1;
    uint32_t remainder = poly;
    for (int bit = 1; bit <= 32; bit++) {
        quotient |= (uint64_t)(remainder & 1) << bit;
        remainder = pls_crc_times_x(remainder, poly);
    }
    return quotient;
}

#define PLS_CRC_MOVES 2048 /* the furthest a state can be moved, in words of 8 bytes */
#define PLS_CRC_LEAD 4     /* words by which the last lane outlasts the others, while their products are computed */

/* moves[k] = x^(64k - 33): moves a state over k words. The carry-less product of two reflected 32-bit numbers, read as a
 * reflected 64-bit one, gains a factor x, and the crc32 instructions that reduce it a factor x^32. */
typedef uint32_t pls_crc_moves[PLS_CRC_MOVES + 1];

static inline void pls_crc_build_moves(pls_crc_moves moves, uint32_t poly) {
    uint32_t word = pls_crc_power(64, poly);
    moves[1] = pls_crc_power(64 - 33, poly);
    for (int k = 2; k <= PLS_CRC_MOVES; k++) moves[k] = pls_crc_multiply(moves[k - 1], word, poly);
}

static inline uint64_t pls_crc_load64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* slices[k][b] = state left by byte b followed by k zero bytes */
static inline void pls_crc_build_slices(pls_crc_slices slices, uint32_t poly) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) state = pls_crc_times_x(state, poly);
        slices[0][byte] = state;
    }
    for (int k = 1; k < PLS_CRC_SLICES; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t state = slices[k - 1][byte];
            slices[k][byte] = (state >> 8) ^ slices[0][state & 0xFF];
        }
}

/* Compilers turn the shifts into one load where the machine is little-endian. */
static inline uint32_t pls_crc_load32(const uint8_t *data) {
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

static inline uint32_t pls_crc_slice(pls_crc_slices slices, uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = pls_crc_load32(data) ^ state, high = pls_crc_load32(data + 4);
        state = slices[7][low & 0xFF] ^ slices[6][low >> 8 & 0xFF] ^ slices[5][low >> 16 & 0xFF] ^ slices[4][low >> 24]
              ^ slices[3][high & 0xFF] ^ slices[2][high >> 8 & 0xFF] ^ slices[1][high >> 16 & 0xFF] ^ slices[0][high >> 24];
    }
    for (; size; size--) state = (state >> 8) ^ slices[0][(state ^ *data++) & 0xFF];
    return state;
}

static uint32_t pls_crc32c_tables(uint32_t state, const uint8_t *data, size_t size) {
    return pls_crc_slice(pls_crc32c_slices, state, data, size);
}

static uint32_t pls_crc32_tables(uint32_t state, const uint8_t *data, size_t size) {
    return pls_crc_slice(pls_crc32_slices, state, data, size);
}

static inline void pls_crc_init_tables(void) {
    pls_crc_build_slices(pls_crc32c_slices, PLS_CRC32C_POLY);
    pls_crc_build_slices(pls_crc32_slices, PLS_CRC32_POLY);
}

#endif
