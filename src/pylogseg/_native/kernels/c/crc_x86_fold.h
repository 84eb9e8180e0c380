/* Carry-less folding over one width of vectors; crc_x86.h includes this once for each width.
 *
 * It defines PLS_V(name): a function's name for this width; PLS_V_COUNT vectors fold side by side, which hides the latency
 * of the multiplication; the rest of PLS_V_* are the operations. CRC-32C runs folding and the three lanes of the crc32
 * instruction at once, since they use different units: each round takes one step of every vector and PLS_V_LANE_WORDS
 * words of every lane, in the ratio of the units' rates.
 */

/* The vector moved by the distance `key` stands for. */
PLS_V_TARGET
static inline PLS_V_TYPE PLS_V(pls_fold)(PLS_V_TYPE vector, PLS_V_TYPE key) {
    return PLS_V_XOR(PLS_V_MULTIPLY(vector, key, 0x00), PLS_V_MULTIPLY(vector, key, 0x11));
}

PLS_V_TARGET
static inline PLS_V_TYPE PLS_V(pls_key)(pls_crc_keys keys, size_t bytes) {
    return PLS_V_SPREAD(_mm_loadu_si128((const __m128i *)keys[bytes / 16]));
}

/* All vectors as one block, congruent to them. */
PLS_V_TARGET
static inline __m128i PLS_V(pls_join)(const PLS_V_TYPE *vectors, pls_crc_keys keys) {
    PLS_V_TYPE joined = vectors[PLS_V_COUNT - 1];
    for (int i = 0; i < PLS_V_COUNT - 1; i++) {
        PLS_V_TYPE key = PLS_V(pls_key)(keys, (PLS_V_COUNT - 1 - i) * sizeof(PLS_V_TYPE));
        joined = PLS_V_XOR(joined, PLS_V(pls_fold)(vectors[i], key));
    }
    return PLS_V_NARROW(joined, keys);
}

/* Words a round takes of the vectors' part and in all. */
#define PLS_V_STRIDE (PLS_V_COUNT * sizeof(PLS_V_TYPE))
#define PLS_V_ROUND_WORDS (PLS_V_STRIDE / 8 + 3 * PLS_V_LANE_WORDS)

/* One chunk: the vectors' part, then three lanes. `words` keeps the lanes within PLS_CRC_MOVES. */
PLS_V_TARGET
static inline uint32_t PLS_V(pls_crc32c_chunk)(uint32_t state, const uint8_t *data, size_t words) {
    size_t rounds = (words - PLS_CRC_LEAD) / PLS_V_ROUND_WORDS, in_lanes = words - rounds * (PLS_V_STRIDE / 8);
    size_t lane = (in_lanes - PLS_CRC_LEAD) / 3, last = in_lanes - 2 * lane;
    const uint8_t *end = data + 8 * words, *third = end - 8 * last, *second = third - 8 * lane, *first = second - 8 * lane;
    const uint8_t *first_end = second;
    PLS_V_TYPE vectors[PLS_V_COUNT], key = PLS_V(pls_key)(pls_crc32c_keys, PLS_V_STRIDE);
    for (int i = 0; i < PLS_V_COUNT; i++) vectors[i] = PLS_V_LOAD(data + i * sizeof(PLS_V_TYPE));
    vectors[0] = PLS_V_XOR(vectors[0], PLS_V_WIDEN(_mm_cvtsi32_si128((int)state)));
    uint64_t a = 0, b = 0, c = 0;
    for (size_t round = 1; round < rounds; round++) {
        data += PLS_V_STRIDE;
        for (int i = 0; i < PLS_V_COUNT; i++)
            vectors[i] = PLS_V_XOR(PLS_V(pls_fold)(vectors[i], key), PLS_V_LOAD(data + i * sizeof(PLS_V_TYPE)));
        for (int i = 0; i < PLS_V_LANE_WORDS; i++) {
            a = _mm_crc32_u64(a, pls_crc_load64(first + 8 * i));
            b = _mm_crc32_u64(b, pls_crc_load64(second + 8 * i));
            c = _mm_crc32_u64(c, pls_crc_load64(third + 8 * i));
        }
        first += 8 * PLS_V_LANE_WORDS, second += 8 * PLS_V_LANE_WORDS, third += 8 * PLS_V_LANE_WORDS;
    }
    __m128i joined = PLS_V(pls_join)(vectors, pls_crc32c_keys);
    for (; first < first_end; first += 8, second += 8, third += 8) {
        a = _mm_crc32_u64(a, pls_crc_load64(first));
        b = _mm_crc32_u64(b, pls_crc_load64(second));
        c = _mm_crc32_u64(c, pls_crc_load64(third));
    }
    uint64_t folded = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(joined));
    folded = _mm_crc32_u64(folded, (uint64_t)_mm_extract_epi64(joined, 1));
    uint64_t moved = pls_crc32c_moved(folded, in_lanes) ^ pls_crc32c_moved(a, lane + last) ^ pls_crc32c_moved(b, last);
    c = pls_crc32c_chain((uint32_t)c, third, last - lane - 1);
    return (uint32_t)_mm_crc32_u64(c, pls_crc_load64(end - 8) ^ moved);
}

PLS_V_TARGET
static uint32_t PLS_V(pls_crc32c)(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 8 * PLS_V_LEAST_WORDS) return pls_crc32c_three_lanes(state, data, size);
    const size_t longest = PLS_CRC_MOVES * 3 / 2;
    size_t words = size >> 3;
    state = pls_crc32c_odd_bytes(state, data, size);
    data += size & 7;
    do {
        size_t chunk = words < longest ? words : longest;
        state = PLS_V(pls_crc32c_chunk)(state, data, chunk);
        data += 8 * chunk;
        words -= chunk;
    } while (words >= PLS_V_LEAST_WORDS);
    PLS_V_LEAVE();
    return pls_crc32c_lanes(state, data, words);
}

PLS_V_TARGET
static uint32_t PLS_V(pls_crc32)(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 16) return pls_crc32_tables(state, data, size);
    __m128i carried = pls_crc32_odd_bytes(state, data, size), block;
    data += size & 15;
    size -= size & 15;
    if (size >= PLS_V_STRIDE) {
        PLS_V_TYPE vectors[PLS_V_COUNT], key = PLS_V(pls_key)(pls_crc32_keys, PLS_V_STRIDE);
        for (int i = 0; i < PLS_V_COUNT; i++) vectors[i] = PLS_V_LOAD(data + i * sizeof(PLS_V_TYPE));
        vectors[0] = PLS_V_XOR(vectors[0], PLS_V_WIDEN(carried));
        for (data += PLS_V_STRIDE, size -= PLS_V_STRIDE; size >= PLS_V_STRIDE; data += PLS_V_STRIDE, size -= PLS_V_STRIDE)
            for (int i = 0; i < PLS_V_COUNT; i++)
                vectors[i] = PLS_V_XOR(PLS_V(pls_fold)(vectors[i], key), PLS_V_LOAD(data + i * sizeof(PLS_V_TYPE)));
        block = PLS_V(pls_join)(vectors, pls_crc32_keys);
    } else {
        block = _mm_xor_si128(carried, _mm_loadu_si128((const __m128i *)data));
        data += 16, size -= 16;
    }
    for (; size; data += 16, size -= 16)
        block = _mm_xor_si128(pls_crc_fold(block, pls_crc32_keys[1]), _mm_loadu_si128((const __m128i *)data));
    PLS_V_LEAVE();
    return pls_crc32_reduce(block);
}

#undef PLS_V
#undef PLS_V_TARGET
#undef PLS_V_TYPE
#undef PLS_V_COUNT
#undef PLS_V_LANE_WORDS
#undef PLS_V_LEAST_WORDS
#undef PLS_V_LOAD
#undef PLS_V_SPREAD
#undef PLS_V_WIDEN
#undef PLS_V_XOR
#undef PLS_V_MULTIPLY
#undef PLS_V_NARROW
#undef PLS_V_LEAVE
#undef PLS_V_STRIDE
#undef PLS_V_ROUND_WORDS
