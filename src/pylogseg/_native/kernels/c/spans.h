/* Record columns for a kernel, and the bytes of a span (a place and a size). */
#ifndef PLS_SPANS_H
#define PLS_SPANS_H

#include <stdint.h>
#include <string.h>

enum { PLS_SOURCES = 4, PLS_SOURCE_SHIFT = 40 };

/* The status of work on records. The texts are in _native/_text.pyx. */
enum {
    PLS_TEXT_OK = 0,
    PLS_TEXT_FULL = 1,      /* no room: the record can be written again from its beginning */
    PLS_TEXT_SPAN = 2,      /* a key or value outside of its source */
    PLS_TEXT_HEADERS = 3,   /* headers that are damaged or leave their source */
    PLS_TEXT_BATCH = 4,     /* a batch row that is not in the table */
    PLS_TEXT_ORDER = 5,     /* records that do not follow their batches */
    PLS_TEXT_LEGACY = 6     /* no legacy message around a key */
};

typedef struct {
    const uint8_t *first;
    int64_t size;
} pls_source;

/* A row of the batch table: `BATCH_DTYPE` of format/batches.py, with C's alignment. */
typedef struct {
    int64_t position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id;
    int32_t size, leader_epoch, base_sequence, count;
    uint32_t crc;
    int16_t attributes, producer_epoch;
    int8_t magic;
    uint8_t verdict;
    uint8_t pad[6];
} pls_batch;

typedef struct {
    const int64_t *offset, *timestamp, *key_place, *value_place, *headers_place;
    const int32_t *key_size, *value_size, *header_count, *batch;
    const uint8_t *batches; /* rows of pls_batch, at any alignment */
    int64_t batch_count;
    pls_source sources[PLS_SOURCES];
} pls_records;

typedef struct {
    const uint8_t *p;
    const uint8_t *end;
    const uint8_t *limit; /* end of the source: up to here memory may be read */
} pls_span;

/* Address of a span; 0 if a byte of it is outside of its source. */
static inline int pls_resolve(const pls_source *sources, int64_t place, int64_t size, pls_span *span) {
    int64_t number = place >> PLS_SOURCE_SHIFT;
    int64_t position = place & (((int64_t)1 << PLS_SOURCE_SHIFT) - 1);
    const pls_source *source = &sources[number & (PLS_SOURCES - 1)];
    if (number < 0 || number >= PLS_SOURCES || size < 0 || position > source->size || size > source->size - position)
        return 0;
    span->p = source->first + position;
    span->end = span->p + size;
    span->limit = source->first + source->size;
    return 1;
}

/* The row of a record's batch, copied because the table may be unaligned; 0 if there is no such row. */
static inline int pls_load_batch(const pls_records *r, int64_t number, pls_batch *row) {
    if (number < 0 || number >= r->batch_count)
        return 0;
    memcpy(row, r->batches + number * (int64_t)sizeof *row, sizeof *row);
    return 1;
}

/* Length-prefixed bytes of a header, within [*cursor, limit). *null is set for a negative length. */
static inline int pls_header_part(const uint8_t **cursor, const uint8_t *limit, pls_span *span, int *null) {
    const uint8_t *p = *cursor;
    uint32_t raw = 0;
    int shift;
    int64_t size;
    for (shift = 0;; shift += 7) {
        if (p == limit || shift > 28)
            return 0;
        raw |= (uint32_t)((uint64_t)(*p & 0x7F) << shift);
        if (*p++ < 0x80)
            break;
    }
    size = (int32_t)(raw >> 1 ^ (0 - (raw & 1)));
    *null = size < 0;
    if (size < 0)
        size = 0;
    if (size > limit - p)
        return 0;
    span->p = p;
    span->end = *cursor = p + size;
    span->limit = limit;
    return 1;
}

/* The sequence `delta` after another one; as in Kafka, 0 follows 2^31 - 1, and it wraps where Java wraps. */
static inline int32_t pls_sequence(int32_t sequence, int32_t delta) {
    const uint32_t most = 0x7FFFFFFF;
    if (sequence > (int32_t)(most - (uint32_t)delta))
        return (int32_t)((uint32_t)delta - (most - (uint32_t)sequence) - 1);
    return (int32_t)((uint32_t)sequence + (uint32_t)delta);
}

/* -1 none (magic 0), 0 CreateTime, 1 LogAppendTime. */
static inline int pls_timestamp_type(const pls_batch *row) { return row->magic == 0 ? -1 : (row->attributes & 8) != 0; }

static inline const char *pls_timestamp_type_name(const pls_batch *row, int64_t *size) {
    int type = pls_timestamp_type(row);
    *size = type < 0 ? 15 : type ? 13 : 10;
    return type < 0 ? "NoTimestampType" : type ? "LogAppendTime" : "CreateTime";
}

#endif
