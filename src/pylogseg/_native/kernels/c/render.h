/* Records as text by a list of operations: JSON lines, CSV and templates are the same loop over other lists. */
#ifndef PLS_RENDER_H
#define PLS_RENDER_H

#include "json.h"
#include "quote.h"
#include "spans.h"

/* The field that an operation writes after its label; `format/text.py` has the same numbers. */
enum {
    PLS_OP_LABEL = 0,
    PLS_OP_OFFSET,
    PLS_OP_TIMESTAMP,
    PLS_OP_TIMESTAMP_TYPE,
    PLS_OP_KEY,
    PLS_OP_VALUE,
    PLS_OP_KEY_SIZE,
    PLS_OP_VALUE_SIZE,
    PLS_OP_HEADERS,
    PLS_OP_LEADER_EPOCH,
    PLS_OP_PRODUCER_ID,
    PLS_OP_PRODUCER_EPOCH,
    PLS_OP_SEQUENCE,
    PLS_OP_IS_TRANSACTIONAL,
    PLS_OP_POSITION,
    PLS_OP_KEY_SIZE_BE,
    PLS_OP_VALUE_SIZE_BE,
    PLS_OP_COUNT
};

/* The styles of bytes. */
enum {
    PLS_AS_RAW = 0,
    PLS_AS_JSON_TEXT,
    PLS_AS_JSON_BASE64,
    PLS_AS_JSON_HEX,
    PLS_AS_JSON_VALUE,
    PLS_AS_CSV_TEXT,
    PLS_AS_BASE64,
    PLS_AS_HEX,
    PLS_AS_COUNT
};

typedef struct {
    int32_t kind;
    int32_t style;       /* of key, value, or of the values of headers */
    int32_t label_start; /* start of the label in `labels`; 16 readable bytes follow the last label */
    int32_t label_size;
} pls_op;

typedef struct {
    const pls_op *ops;
    int64_t op_count;
    const uint8_t *labels;
    uint8_t delimiter; /* of CSV; 0 elsewhere */
} pls_program;

static inline int pls_put_json_value(pls_sink *s, const pls_span *b) {
    int breaks, acts;
    if (pls_is_json(b->p, b->end, b->limit, &breaks, &acts))
        return acts ? pls_put_json_escaped(s, b->p, b->end) : pls_put_json_verbatim(s, b->p, b->end, breaks);
    return pls_put_json_string(s, b->p, b->end, b->limit);
}

static inline int pls_put_span(pls_sink *s, const pls_span *b, int style, uint8_t delimiter) {
    int64_t size = b->end - b->p;
    switch (style) {
    case PLS_AS_JSON_TEXT: return pls_put_json_string(s, b->p, b->end, b->limit);
    case PLS_AS_JSON_VALUE: return pls_put_json_value(s, b);
    case PLS_AS_JSON_BASE64: return PLS_PUT(s, "\"") && pls_put_base64(s, b->p, size) && PLS_PUT(s, "\"");
    case PLS_AS_JSON_HEX: return PLS_PUT(s, "\"") && pls_put_hex(s, b->p, size) && PLS_PUT(s, "\"");
    case PLS_AS_CSV_TEXT: return pls_put_csv_field(s, b->p, b->end, b->limit, delimiter);
    case PLS_AS_BASE64: return size || !delimiter ? pls_put_base64(s, b->p, size) : PLS_PUT(s, "\"\"");
    case PLS_AS_HEX: return size || !delimiter ? pls_put_hex(s, b->p, size) : PLS_PUT(s, "\"\"");
    default: return pls_put_bytes(s, b->p, size);
    }
}

static inline int pls_is_json_style(int style) { return style >= PLS_AS_JSON_TEXT && style <= PLS_AS_JSON_VALUE; }

static inline int pls_put_payload(pls_sink *s, const pls_records *r, int64_t place, int32_t size, int style, uint8_t delimiter) {
    pls_span span;
    if (size < 0)
        return !pls_is_json_style(style) || PLS_PUT(s, "null") ? PLS_TEXT_OK : PLS_TEXT_FULL;
    if (!pls_resolve(r->sources, place, size, &span))
        return PLS_TEXT_SPAN;
    return pls_put_span(s, &span, style, delimiter) ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

/* [{"key":...,"value":...},...] */
static inline int pls_put_json_header(pls_sink *s, const pls_span *name, const pls_span *value, int null, int style, int first) {
    return (first || PLS_PUT(s, ",")) && PLS_PUT(s, "{\"key\":") && pls_put_json_string(s, name->p, name->end, name->limit) &&
           PLS_PUT(s, ",\"value\":") && (null ? PLS_PUT(s, "null") : pls_put_span(s, value, style, 0)) && PLS_PUT(s, "}");
}

/* name=value,name=value, as in kcat */
static inline int pls_put_plain_header(pls_sink *s, const pls_span *name, const pls_span *value, int null, int first) {
    return (first || PLS_PUT(s, ",")) && pls_put_bytes(s, name->p, name->end - name->p) && PLS_PUT(s, "=") &&
           (null ? PLS_PUT(s, "NULL") : pls_put_bytes(s, value->p, value->end - value->p));
}

static inline int pls_put_headers(pls_sink *s, const pls_records *r, int64_t i, int style, uint8_t delimiter) {
    uint8_t *start = s->at;
    int32_t k, count = r->header_count[i];
    int json = style != PLS_AS_RAW;
    pls_span rest, name, value;
    if (json && !PLS_PUT(s, "["))
        return PLS_TEXT_FULL;
    if (count > 0 && !pls_resolve(r->sources, r->headers_place[i], 0, &rest))
        return PLS_TEXT_HEADERS;
    for (k = 0; k < count; k++) {
        int no_name, null;
        if (!pls_header_part(&rest.p, rest.limit, &name, &no_name) || no_name || !pls_header_part(&rest.p, rest.limit, &value, &null))
            return PLS_TEXT_HEADERS;
        if (!(json ? pls_put_json_header(s, &name, &value, null, style, k == 0) : pls_put_plain_header(s, &name, &value, null, k == 0)))
            return PLS_TEXT_FULL;
    }
    if (json && !PLS_PUT(s, "]"))
        return PLS_TEXT_FULL;
    return !delimiter || pls_csv_quote_written(s, start) ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

static inline int pls_put_timestamp_type(pls_sink *s, const pls_batch *row, int style) {
    int64_t size;
    const char *name = pls_timestamp_type_name(row, &size);
    int quoted = pls_is_json_style(style);
    return (!quoted || PLS_PUT(s, "\"")) && pls_put_bytes(s, (const uint8_t *)name, size) && (!quoted || PLS_PUT(s, "\""));
}

static inline int pls_put_size_be(pls_sink *s, int32_t size) {
    uint8_t bytes[4];
    pls_store_be32(bytes, (uint32_t)size);
    return pls_put_bytes(s, bytes, 4);
}

static inline int64_t pls_record_sequence(const pls_batch *row, int64_t offset) {
    if (row->magic < 2 || row->base_sequence < 0)
        return -1;
    return pls_sequence(row->base_sequence, (int32_t)((uint64_t)offset - (uint64_t)row->base_offset));
}

static inline int pls_put_batch_field(pls_sink *s, const pls_batch *row, const pls_op *op, int64_t offset) {
    switch (op->kind) {
    case PLS_OP_TIMESTAMP_TYPE: return pls_put_timestamp_type(s, row, op->style);
    case PLS_OP_LEADER_EPOCH: return pls_put_number(s, row->leader_epoch);
    case PLS_OP_PRODUCER_ID: return pls_put_number(s, row->producer_id);
    case PLS_OP_PRODUCER_EPOCH: return pls_put_number(s, row->producer_epoch);
    case PLS_OP_SEQUENCE: return pls_put_number(s, pls_record_sequence(row, offset));
    case PLS_OP_IS_TRANSACTIONAL: return row->magic == 2 && row->attributes & 0x10 ? PLS_PUT(s, "true") : PLS_PUT(s, "false");
    default: return pls_put_number(s, row->position);
    }
}

static inline int pls_put_field(pls_sink *s, const pls_records *r, int64_t i, const pls_batch *row, const pls_op *op, uint8_t delimiter) {
    int done;
    switch (op->kind) {
    case PLS_OP_LABEL: return PLS_TEXT_OK;
    case PLS_OP_OFFSET: done = pls_put_number(s, r->offset[i]); break;
    case PLS_OP_TIMESTAMP: done = pls_put_number(s, r->timestamp[i]); break;
    case PLS_OP_KEY: return pls_put_payload(s, r, r->key_place[i], r->key_size[i], op->style, delimiter);
    case PLS_OP_VALUE: return pls_put_payload(s, r, r->value_place[i], r->value_size[i], op->style, delimiter);
    case PLS_OP_KEY_SIZE: done = pls_put_number(s, r->key_size[i]); break;
    case PLS_OP_VALUE_SIZE: done = pls_put_number(s, r->value_size[i]); break;
    case PLS_OP_KEY_SIZE_BE: done = pls_put_size_be(s, r->key_size[i]); break;
    case PLS_OP_VALUE_SIZE_BE: done = pls_put_size_be(s, r->value_size[i]); break;
    case PLS_OP_HEADERS: return pls_put_headers(s, r, i, op->style, delimiter);
    default: done = pls_put_batch_field(s, row, op, r->offset[i]);
    }
    return done ? PLS_TEXT_OK : PLS_TEXT_FULL;
}

/* Write records from *next on; afterwards *next is the first record that is not in the output. */
static inline int pls_render(const pls_records *r, const pls_program *program, int64_t *next, int64_t stop, pls_sink *s) {
    pls_batch row;
    int64_t loaded = INT64_MIN, i, k; /* no int32 is that */
    for (i = *next; i < stop; i++) {
        uint8_t *start = s->at;
        int status = PLS_TEXT_OK;
        if (r->batch[i] != loaded) {
            if (!pls_load_batch(r, r->batch[i], &row))
                status = PLS_TEXT_BATCH;
            loaded = r->batch[i];
        }
        for (k = 0; k < program->op_count && status == PLS_TEXT_OK; k++) {
            const pls_op *op = &program->ops[k];
            if (!pls_put_padded(s, program->labels + op->label_start, op->label_size))
                status = PLS_TEXT_FULL;
            else
                status = pls_put_field(s, r, i, &row, op, program->delimiter);
        }
        if (status != PLS_TEXT_OK) {
            s->at = start;
            *next = i;
            return status;
        }
    }
    *next = i;
    return PLS_TEXT_OK;
}

#endif
