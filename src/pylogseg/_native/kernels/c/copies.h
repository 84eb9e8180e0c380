/* Copy payloads back to back, for an Arrow binary array.
 *
 * Most are short: whole steps of a fixed length cost less than a call that decides how to copy the rest. A step has
 * 32 bytes, in one register if the processor has one: that halves loads and stores. pls_copies_init() chooses; a
 * module calls it when it is imported.
 */
#ifndef PLS_COPIES_H
#define PLS_COPIES_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#define PLS_COPIES_X86 1
#include "cpu_x86.h"
#endif

enum { PLS_COPY_STEP = 32, PLS_COPY_SHORT = 256 };

typedef struct {
    const uint8_t *body; /* the source of the payloads: no byte outside of it is read */
    int64_t body_size;
    int64_t body_place;
    const int64_t *place;
    const int32_t *size; /* below 0: a null */
    int32_t *ends;       /* ends of the payloads, one item after their places; the item before the first is set */
    uint8_t *data;
    int64_t room; /* bytes of the data */
} pls_copies;

/* Copy a span, and up to 32 bytes more if at least `slack` bytes may be read and written. */
static inline void pls_copy_span(uint8_t *out, const uint8_t *p, int64_t size, int64_t slack) {
    if (size > PLS_COPY_SHORT || slack < size + PLS_COPY_STEP) {
        memcpy(out, p, (size_t)size);
        return;
    }
    for (int64_t i = 0; i < size; i += PLS_COPY_STEP) memcpy(out + i, p + i, PLS_COPY_STEP);
}

/* Copy a payload to `at`; return its bytes, 0 if it is outside of the body or does not fit. */
static inline int64_t pls_copy_exactly(const pls_copies *c, int64_t position, int64_t size, int64_t at) {
    if (position < 0 || size <= 0 || size > c->body_size - position || size > c->room - at) return 0;
    memcpy(c->data + at, c->body + position, (size_t)size);
    return size;
}

/* Short payloads may begin up to here, and be copied in whole steps. */
static inline uint64_t pls_copy_steps_until(int64_t bytes) {
    int64_t until = bytes - PLS_COPY_SHORT - PLS_COPY_STEP;
    return until > 0 ? (uint64_t)until : 0;
}

/* The loop exists twice, once for each kind of step. */
#define PLS_COPY_LOOP(step)                                                                                   \
    pls_copies c = *copies;                                                                                   \
    const uint64_t body_until = pls_copy_steps_until(c.body_size), room_until = pls_copy_steps_until(c.room); \
    int64_t at = c.ends[first];                                                                               \
    for (int64_t i = first; i < end; i++) {                                                                   \
        int64_t position = c.place[i] - c.body_place, size = c.size[i];                                       \
        if (size > PLS_COPY_SHORT || (uint64_t)position >= body_until || (uint64_t)at >= room_until)          \
            size = pls_copy_exactly(&c, position, size, at);                                                  \
        else                                                                                                  \
            for (int64_t k = 0; k < size; k += PLS_COPY_STEP) step(c.data + at + k, c.body + position + k);   \
        at += size > 0 ? size : 0;                                                                            \
        c.ends[i + 1] = (int32_t)at;                                                                          \
    }

#define PLS_COPY_STEP_ANY(out, p) memcpy(out, p, PLS_COPY_STEP)
static void pls_copy_any(const pls_copies *copies, int64_t first, int64_t end) { PLS_COPY_LOOP(PLS_COPY_STEP_ANY) }

#ifdef PLS_COPIES_X86
#define PLS_COPY_STEP_AVX2(out, p) _mm256_storeu_si256((__m256i *)(out), _mm256_loadu_si256((const __m256i *)(p)))
PLS_TARGET("avx2")
static void pls_copy_avx2(const pls_copies *copies, int64_t first, int64_t end) { PLS_COPY_LOOP(PLS_COPY_STEP_AVX2) }
#endif

static void (*pls_copy_chosen)(const pls_copies *, int64_t, int64_t) = pls_copy_any;

/* Choose wide steps if they are wanted and available; return whether they are used. */
static inline int pls_copies_init(int wide) {
    pls_copy_chosen = pls_copy_any;
#ifdef PLS_COPIES_X86
    if (wide && pls_cpu_features() & PLS_CPU_AVX2) pls_copy_chosen = pls_copy_avx2;
#endif
    return pls_copy_chosen != pls_copy_any;
}

/* Copy the payloads [first, end) after the earlier ones. */
static inline void pls_copy_payloads(const pls_copies *copies, int64_t first, int64_t end) {
    int32_t signs = -1, at = copies->ends[first];
    for (int64_t i = first; i < end; i++) signs &= copies->size[i];
    if (signs >= 0) {
        pls_copy_chosen(copies, first, end);
        return;
    }
    for (int64_t i = first; i < end; i++) copies->ends[i + 1] = at; /* only nulls, as keys often are */
}

#endif
