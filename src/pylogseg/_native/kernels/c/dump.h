/* The lines of Kafka's kafka-dump-log.sh (4.3) about batches and records, except for the contents of control records. */
#ifndef PLS_DUMP_H
#define PLS_DUMP_H

#include "crc.h"
#include "quote.h"
#include "spans.h"

enum {
    PLS_DUMP_METADATA = 1, /* offset, time, sizes, sequence, names of headers of each record */
    PLS_DUMP_PAYLOAD = 2,  /* key and payload */
    PLS_DUMP_BATCHES = 4   /* a line before the records of each batch */
};

/* What a decoder makes of each record from `first` on, in place of key and payload: text i is between two ends. */
typedef struct {
    const uint8_t *data;
    int64_t size;
    const int32_t *ends; /* NULL: there are no texts */
    int64_t first;
} pls_dump_texts;

/* The progress of writing lines, to continue when there is room again. */
typedef struct {
    int64_t batch, stop_batch;
    int64_t record, stop_record;
    int batch_written; /* the line of `batch` is in the output */
} pls_dump_state;

static const char *const pls_codec_names[8] = {"none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown"};

static inline int pls_put_text(pls_sink *s, const char *text) { return pls_put_bytes(s, (const uint8_t *)text, (int64_t)strlen(text)); }

static inline int pls_put_bool(pls_sink *s, int value) { return value ? PLS_PUT(s, "true") : PLS_PUT(s, "false"); }

#define PLS_LABELLED(sink, label, value) (PLS_PUT(sink, label) && pls_put_number(sink, value))

/* " CreateTime: 17", whichever type it is */
static inline int pls_put_typed_time(pls_sink *s, const pls_batch *b, int64_t timestamp) {
    int64_t size;
    const char *name = pls_timestamp_type_name(b, &size);
    return PLS_PUT(s, " ") && pls_put_bytes(s, (const uint8_t *)name, size) && PLS_LABELLED(s, ": ", timestamp);
}

static inline int pls_put_delete_horizon(pls_sink *s, const pls_batch *b) {
    if (!(b->attributes & 0x40))
        return PLS_PUT(s, " deleteHorizonMs: OptionalLong.empty");
    return PLS_LABELLED(s, " deleteHorizonMs: OptionalLong[", b->base_timestamp) && PLS_PUT(s, "]");
}

static inline int pls_put_v2_batch(pls_sink *s, const pls_batch *b) {
    int32_t delta = (int32_t)((uint64_t)b->last_offset - (uint64_t)b->base_offset);
    int32_t last_sequence = b->base_sequence == -1 ? -1 : pls_sequence(b->base_sequence, delta);
    return PLS_LABELLED(s, "baseOffset: ", b->base_offset) && PLS_LABELLED(s, " lastOffset: ", b->last_offset) &&
           PLS_LABELLED(s, " count: ", b->count) && PLS_LABELLED(s, " baseSequence: ", b->base_sequence) &&
           PLS_LABELLED(s, " lastSequence: ", last_sequence) && PLS_LABELLED(s, " producerId: ", b->producer_id) &&
           PLS_LABELLED(s, " producerEpoch: ", b->producer_epoch) && PLS_LABELLED(s, " partitionLeaderEpoch: ", b->leader_epoch) &&
           PLS_PUT(s, " isTransactional: ") && pls_put_bool(s, b->attributes & 0x10) && PLS_PUT(s, " isControl: ") &&
           pls_put_bool(s, b->attributes & 0x20) && pls_put_delete_horizon(s, b);
}

static inline int pls_put_batch_line(pls_sink *s, const pls_batch *b) {
    if (!(b->magic >= 2 ? pls_put_v2_batch(s, b) : PLS_LABELLED(s, "offset: ", b->last_offset)))
        return 0;
    return PLS_LABELLED(s, " position: ", b->position) && pls_put_typed_time(s, b, b->max_timestamp) &&
           PLS_LABELLED(s, " size: ", b->size) && PLS_LABELLED(s, " magic: ", b->magic) && PLS_PUT(s, " compresscodec: ") &&
           pls_put_text(s, pls_codec_names[b->attributes & 7]) && PLS_LABELLED(s, " crc: ", b->crc) &&
           PLS_PUT(s, " isvalid: ") && pls_put_bool(s, b->verdict != 2) && PLS_PUT(s, "\n");
}

static inline int pls_put_header_keys(pls_sink *s, const pls_records *r, int64_t i) {
    int32_t k, count = r->header_count[i];
    pls_span rest, name, value;
    if (count > 0 && !pls_resolve(r->sources, r->headers_place[i], 0, &rest))
        return PLS_TEXT_HEADERS;
    for (k = 0; k < count; k++) {
        int no_name, null;
        if (!pls_header_part(&rest.p, rest.limit, &name, &no_name) || no_name || !pls_header_part(&rest.p, rest.limit, &value, &null))
            return PLS_TEXT_HEADERS;
        if ((k && !PLS_PUT(s, ",")) || !pls_put_java_text(s, name.p, name.end, name.limit))
            return PLS_TEXT_FULL;
    }
    return PLS_TEXT_OK;
}

/* The CRC of the legacy message whose key begins at `key` (after its length), if the message has this
   magic and lies whole in its source; *holds tells whether the CRC is right. NULL: no such message. */
static inline const uint8_t *pls_legacy_crc(const uint8_t *first, const pls_span *key, int magic, int *holds) {
    int64_t back = magic == 0 ? 10 : 18; /* crc, magic, attributes, (timestamp,) key length */
    const uint8_t *crc;
    int64_t size;
    if (key->p - first < back + 4)
        return NULL;
    crc = key->p - back;
    size = (int32_t)pls_load_be32(crc - 4);
    if (crc[4] != magic || size < (magic == 0 ? 14 : 22) || size > key->limit - crc)
        return NULL;
    *holds = pls_load_be32(crc) == pls_crc32(0, crc + 4, (size_t)size - 4);
    return crc;
}

/* Kafka says for each legacy record whether its own CRC is valid. The columns do not have it; it is before the key. */
static inline int pls_put_legacy_crc(pls_sink *s, const pls_records *r, int64_t i, const pls_batch *b) {
    pls_span key;
    int holds = 0, other_holds = 0;
    const uint8_t *first, *crc, *other;
    if (!pls_resolve(r->sources, r->key_place[i], 0, &key))
        return PLS_TEXT_SPAN;
    first = r->sources[r->key_place[i] >> PLS_SOURCE_SHIFT].first;
    crc = pls_legacy_crc(first, &key, b->magic, &holds);
    if (!holds) { /* old brokers left wrappers around messages of the other magic (KAFKA-4298) */
        other = pls_legacy_crc(first, &key, 1 - b->magic, &other_holds);
        if (other && (other_holds || !crc)) {
            crc = other;
            holds = other_holds;
        }
    }
    if (!crc)
        return PLS_TEXT_LEGACY;
    return PLS_PUT(s, " isValid: ") && pls_put_bool(s, holds) && PLS_LABELLED(s, " crc: ", pls_load_be32(crc)) ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

static inline int pls_put_record_metadata(pls_sink *s, const pls_records *r, int64_t i, const pls_batch *b) {
    int status;
    int32_t sequence = -1;
    if (!(PLS_LABELLED(s, "| offset: ", r->offset[i]) && pls_put_typed_time(s, b, r->timestamp[i]) &&
          PLS_LABELLED(s, " keySize: ", r->key_size[i]) && PLS_LABELLED(s, " valueSize: ", r->value_size[i])))
        return PLS_TEXT_FULL;
    if (b->magic < 2)
        return pls_put_legacy_crc(s, r, i, b);
    if (b->base_sequence >= 0)
        sequence = pls_sequence(b->base_sequence, (int32_t)((uint64_t)r->offset[i] - (uint64_t)b->base_offset));
    if (!(PLS_LABELLED(s, " sequence: ", sequence) && PLS_PUT(s, " headerKeys: [")))
        return PLS_TEXT_FULL;
    status = pls_put_header_keys(s, r, i);
    return status != PLS_TEXT_OK ? status : PLS_PUT(s, "]") ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

/* `prefix` comes before the first of the two that is not null. */
static inline int pls_put_record_contents(pls_sink *s, const pls_records *r, int64_t i, const char *prefix) {
    pls_span span;
    if (r->key_size[i] >= 0) {
        if (!pls_resolve(r->sources, r->key_place[i], r->key_size[i], &span))
            return PLS_TEXT_SPAN;
        if (!(pls_put_text(s, prefix) && PLS_PUT(s, "key: ") && pls_put_java_text(s, span.p, span.end, span.limit)))
            return PLS_TEXT_FULL;
        prefix = " ";
    }
    if (r->value_size[i] >= 0) {
        if (!pls_resolve(r->sources, r->value_place[i], r->value_size[i], &span))
            return PLS_TEXT_SPAN;
        if (!(pls_put_text(s, prefix) && PLS_PUT(s, "payload: ") && pls_put_java_text(s, span.p, span.end, span.limit)))
            return PLS_TEXT_FULL;
    }
    return PLS_TEXT_OK;
}

static inline int pls_put_decoded(pls_sink *s, const pls_dump_texts *texts, int64_t i) {
    int32_t start = texts->ends[i - texts->first], end = texts->ends[i - texts->first + 1];
    if (start < 0 || end < start || end > texts->size)
        return PLS_TEXT_SPAN;
    return pls_put_bytes(s, texts->data + start, end - start) ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

/* A control batch gets no payload and no end of the line: the caller adds the meaning of its records. */
static inline int pls_put_record_line(
    pls_sink *s, const pls_records *r, int64_t i, const pls_batch *b, int what, const pls_dump_texts *texts
) {
    int status = PLS_TEXT_OK;
    int control = b->magic >= 2 && b->attributes & 0x20;
    if (what & PLS_DUMP_METADATA)
        status = pls_put_record_metadata(s, r, i, b);
    if (status != PLS_TEXT_OK || control)
        return status;
    if (texts->ends != NULL)
        status = !(what & PLS_DUMP_METADATA) && !PLS_PUT(s, "|") ? PLS_TEXT_FULL : pls_put_decoded(s, texts, i);
    else if (what & PLS_DUMP_PAYLOAD)
        status = pls_put_record_contents(s, r, i, what & PLS_DUMP_METADATA ? " " : "| ");
    if (status != PLS_TEXT_OK)
        return status;
    return PLS_PUT(s, "\n") ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

/* Lines of the batches from state->batch on, each followed by those of its records. */
static inline int pls_dump(
    const pls_records *r, pls_dump_state *state, int what, const pls_dump_texts *texts, pls_sink *s
) {
    pls_batch b;
    for (; state->batch < state->stop_batch; state->batch++, state->batch_written = 0) {
        uint8_t *start = s->at;
        if (!pls_load_batch(r, state->batch, &b))
            return PLS_TEXT_BATCH;
        if (!state->batch_written && what & PLS_DUMP_BATCHES && !pls_put_batch_line(s, &b)) {
            s->at = start;
            return PLS_TEXT_FULL;
        }
        state->batch_written = 1;
        for (; state->record < state->stop_record && r->batch[state->record] == state->batch; state->record++) {
            int status;
            start = s->at;
            status = pls_put_record_line(s, r, state->record, &b, what, texts);
            if (status != PLS_TEXT_OK) {
                s->at = start;
                return status;
            }
        }
    }
    return state->record == state->stop_record ? PLS_TEXT_OK : PLS_TEXT_ORDER;
}

#endif
