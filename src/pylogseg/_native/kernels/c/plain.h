/* Plain records of magic 2: well-formed, without headers, and all numbers of one or two bytes, as nearly all are.
 *
 * pls_plain_record() reads one. pls_plain_records() also copies its key and value back to back, for Arrow binary arrays,
 * while it has their places in registers, and stores the places only of what is not copied. It exists twice, as the copies
 * in copies.h do.
 */
#ifndef PLS_PLAIN_H
#define PLS_PLAIN_H

#include <stdint.h>
#include <string.h>

#include "copies.h"
#include "prefetch.h"

typedef struct {
    int32_t time_delta, delta, key_size, value_size; /* sizes are -1 for a null */
    const uint8_t *key, *value;
} pls_fields;

/* Read a ZigZag varint of one or two bytes, which the caller checked to be there; NULL if it is longer. */
static inline const uint8_t *pls_short_varint(const uint8_t *p, int32_t *out) {
    uint32_t raw = *p++;
    if (raw >= 0x80) {
        if (*p >= 0x80) return NULL;
        raw = (raw & 0x7F) | (uint32_t)*p++ << 7;
    }
    *out = (int32_t)(raw >> 1 ^ (0 - (raw & 1)));
    return p;
}

/* Read a plain record; return the byte after it, NULL for any other record, good or damaged. `stop` ends the batch. */
static inline const uint8_t *pls_plain_record(const uint8_t *p, const uint8_t *stop, pls_fields *f) {
    const uint8_t *end;
    int32_t length;
    if (stop - p < 16) return NULL; /* the fields up to the key's size take at most 9 bytes */
    p = pls_short_varint(p, &length);
    if (p == NULL || length < 0 || length > stop - p) return NULL;
    end = p + length;
    p = pls_short_varint(p + 1, &f->time_delta); /* after the attributes, which are unused */
    if (p == NULL) return NULL;
    p = pls_short_varint(p, &f->delta);
    if (p == NULL) return NULL;
    if (*p == 1) { /* a null key */
        f->key_size = -1;
        f->key = ++p;
    } else {
        p = pls_short_varint(p, &f->key_size);
        if (p == NULL || f->key_size < 0 || f->key_size > end - p) return NULL;
        f->key = p;
        p += f->key_size;
    }
    if (end - p < 2) return NULL; /* the value's size and the count of headers */
    p = pls_short_varint(p, &f->value_size);
    if (p == NULL) return NULL;
    f->value = p;
    if (f->value_size < 0) {
        f->value_size = -1;
    } else {
        if (f->value_size > end - p) return NULL;
        p += f->value_size;
    }
    return end - p == 1 && *p == 0 ? end : NULL;
}

/* Payloads back to back. */
typedef struct {
    int32_t *ends; /* item n + 1 is the end of payload n; the item before the first is set. NULL: they are not copied */
    uint8_t *data;
    int64_t room; /* bytes of the data, at most INT32_MAX */
} pls_payloads;

/* Where plain records go: of a payload the place is stored, or it is copied. */
typedef struct {
    int64_t base_offset, base_timestamp;
    int64_t time_mask;     /* 0 if all records have the base timestamp, else -1 */
    int64_t place_of_null; /* place of the address 0 */
    uintptr_t ahead;       /* how far ahead memory is prefetched */
    int64_t *offset, *timestamp, *key_place, *value_place;
    int32_t *key_size, *value_size;
    pls_payloads keys, values;
} pls_plain;

/* Fill the slots [first, end) with the records from *cursor on, as far as they are plain; return the slot of the first one
 * that is not, where the cursor then is. */
#define PLS_PLAIN_LOOP(step)                                                                                \
    const pls_plain to = *plain;                                                                            \
    const int with_keys = to.keys.ends != NULL, with_values = to.values.ends != NULL;                       \
    const uint64_t keys_until = pls_copy_steps_until(to.keys.room);                                         \
    const uint64_t values_until = pls_copy_steps_until(to.values.room);                                     \
    int64_t key_at = with_keys ? to.keys.ends[first] : 0;                                                   \
    int64_t value_at = with_values ? to.values.ends[first] : 0, n = first;                                  \
    const uint8_t *p = *cursor;                                                                             \
    for (; n < end; n++) {                                                                                  \
        pls_fields f;                                                                                       \
        PLS_PREFETCH((const void *)((uintptr_t)p + to.ahead));                                              \
        PLS_PREFETCH((const void *)((uintptr_t)p + to.ahead + 64));                                         \
        const uint8_t *next = pls_plain_record(p, stop, &f);                                                \
        if (next == NULL) break;                                                                            \
        /* Unsigned: hostile deltas wrap, as Java's do. */                                                  \
        to.offset[n] = (int64_t)((uint64_t)to.base_offset + (uint64_t)(int64_t)f.delta);                    \
        to.timestamp[n] = (int64_t)((uint64_t)to.base_timestamp + (uint64_t)(f.time_delta & to.time_mask)); \
        to.key_size[n] = f.key_size;                                                                        \
        to.value_size[n] = f.value_size;                                                                    \
        if (with_keys) {                                                                                    \
            PLS_PLAIN_COPY(step, to.keys, key_at, keys_until, f.key, f.key_size)                            \
            to.keys.ends[n + 1] = (int32_t)key_at;                                                          \
        } else {                                                                                            \
            to.key_place[n] = to.place_of_null + (int64_t)(uintptr_t)f.key;                                 \
        }                                                                                                   \
        if (with_values) {                                                                                  \
            PLS_PLAIN_COPY(step, to.values, value_at, values_until, f.value, f.value_size)                  \
            to.values.ends[n + 1] = (int32_t)value_at;                                                      \
        } else {                                                                                            \
            to.value_place[n] = to.place_of_null + (int64_t)(uintptr_t)f.value;                             \
        }                                                                                                   \
        p = next;                                                                                           \
    }                                                                                                       \
    *cursor = p;                                                                                            \
    return n;

#define PLS_PLAIN_COPY(step, to, at, until, from, size)                                                   \
    if (size <= PLS_COPY_SHORT && stop - from > PLS_COPY_SHORT + PLS_COPY_STEP && (uint64_t)at < until) { \
        for (int32_t k = 0; k < size; k += PLS_COPY_STEP) step(to.data + at + k, from + k);               \
    } else if (size > 0) {                                                                                \
        if (size > to.room - at) break;                                                                   \
        memcpy(to.data + at, from, (size_t)size);                                                         \
    }                                                                                                     \
    at += size > 0 ? size : 0;

static int64_t pls_plain_any(
    const pls_plain *plain, const uint8_t **cursor, const uint8_t *stop, int64_t first, int64_t end
) {
    PLS_PLAIN_LOOP(PLS_COPY_STEP_ANY)
}

#ifdef PLS_COPIES_X86
PLS_TARGET("avx2")
static int64_t pls_plain_avx2(
    const pls_plain *plain, const uint8_t **cursor, const uint8_t *stop, int64_t first, int64_t end
) {
    PLS_PLAIN_LOOP(PLS_COPY_STEP_AVX2)
}
#endif

static inline int64_t pls_plain_records(
    const pls_plain *plain, const uint8_t **cursor, const uint8_t *stop, int64_t first, int64_t end
) {
#ifdef PLS_COPIES_X86
    if (pls_copy_chosen == pls_copy_avx2) return pls_plain_avx2(plain, cursor, stop, first, end);
#endif
    return pls_plain_any(plain, cursor, stop, first, end);
}

#endif
