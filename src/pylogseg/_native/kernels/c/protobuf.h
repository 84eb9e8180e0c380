/* Protobuf's wire format into columns, by tables of messages and fields (`values/schemas/proto_program.py`).

   Fields come in any order, and the last one of a number counts, so a message is open until its end. Most fields are
   plain, one number or text in no oneof, and mostly they ascend: they are appended as they come, those that are passed
   over as absent, and one that comes late takes the place of the last item. Of the others, numbers are written behind the
   last item of their node, of bytes the place is kept, and `pls_proto_close` counts one item in each node. Submessages
   merge: a second one goes on where the first was left. */
#ifndef PLS_PROTOBUF_H
#define PLS_PROTOBUF_H

#include "typed.h"
#include "avro.h"

enum {
    PLS_PROTO_INT32 = 0, /* also of an open enum */
    PLS_PROTO_INT64 = 1, /* also unsigned: the bits are the same */
    PLS_PROTO_SINT32 = 2,
    PLS_PROTO_SINT64 = 3,
    PLS_PROTO_BOOL = 4,
    PLS_PROTO_ENUM = 5, /* a closed one: other numbers are unknown fields */
    PLS_PROTO_FIXED32 = 6,
    PLS_PROTO_FIXED64 = 7,
    PLS_PROTO_TEXT = 8,
    PLS_PROTO_BYTES = 9,
    PLS_PROTO_MESSAGE = 10,
    PLS_PROTO_GROUP = 11,
    PLS_PROTO_TIME = 12, /* a message of seconds and nanoseconds, as one number */
    PLS_PROTO_KINDS = 13
};
enum { PLS_PROTO_REPEATED = 1, PLS_PROTO_PRESENCE = 2, PLS_PROTO_ALWAYS = 4, PLS_PROTO_PLAIN = 8 };

typedef struct {
    int32_t first, stop, node;
} pls_message;

typedef struct {
    int32_t number;
    int32_t kind;
    int32_t node;    /* of a repeated one the list's; its items are in the next */
    int32_t flags;   /* null where it is absent; a message that is there even so, as the value of a map; plain */
    int32_t message; /* of a message or a group */
    int32_t oneof;   /* 0 none */
    int32_t table;   /* numbers of a closed enum, ascending */
    int32_t count;
} pls_field;

typedef struct {
    const uint8_t *p;
    int64_t size;
} pls_kept;

typedef struct {
    const pls_message *messages;
    const pls_field *fields;
    const int32_t *table;
    pls_node *nodes;
    int32_t message_count;
    int32_t *next;  /* of each message: of the plain fields, those in front of it have an item */
    uint8_t *keeps; /* of each message: whether it has a field that is not plain */
    uint8_t *seen;  /* a byte a node: its field, which is not plain, was there in the message that is open */
    pls_kept *kept; /* of nodes of bytes */
    const uint8_t *limit;
    const uint8_t *at; /* where it failed, in which node, and in which items, as of Avro */
    int32_t node;
    int32_t *items;
} pls_proto;

static int pls_proto_skip(const uint8_t **cursor, const uint8_t *end, uint32_t tag, int depth) {
    uint64_t number;
    int what;
    switch (tag & 7) {
    case 0:
        return pls_varint64(cursor, end, &number);
    case 1:
        if (end - *cursor < 8)
            return PLS_TYPED_SHORT;
        *cursor += 8;
        return PLS_TYPED_OK;
    case 2:
        if ((what = pls_varint64(cursor, end, &number)))
            return what;
        if (number > (uint64_t)(end - *cursor))
            return PLS_TYPED_SHORT;
        *cursor += number;
        return PLS_TYPED_OK;
    case 3:
        if (depth > PLS_DEEPEST)
            return PLS_TYPED_DEEP;
        for (;;) {
            if ((what = pls_varint64(cursor, end, &number)))
                return what;
            if (number > UINT32_MAX || number >> 3 == 0)
                return PLS_TYPED_WIRE;
            if ((number & 7) == 4)
                return number >> 3 == tag >> 3 ? PLS_TYPED_OK : PLS_TYPED_GROUP;
            if ((what = pls_proto_skip(cursor, end, (uint32_t)number, depth + 1)))
                return what;
        }
    case 5:
        if (end - *cursor < 4)
            return PLS_TYPED_SHORT;
        *cursor += 4;
        return PLS_TYPED_OK;
    default:
        return (tag & 7) == 4 ? PLS_TYPED_GROUP : PLS_TYPED_WIRE;
    }
}

/* The wire type of each kind. */
static const uint8_t pls_proto_wires[PLS_PROTO_KINDS] = {0, 0, 0, 0, 0, 0, 5, 1, 2, 2, 2, 3, 2};

static inline int pls_proto_knows(const pls_proto *g, const pls_field *f, int32_t number) {
    int32_t low = f->table, high = f->table + f->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (g->table[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->table + f->count && g->table[low] == number;
}

/* Read a number of the field's kind to where it belongs; *is_known is 0 if it is none of a closed enum. */
static inline int pls_proto_number(
    const pls_proto *g, const pls_field *f, const uint8_t **cursor, const uint8_t *end, uint8_t *out, int *is_known
) {
    uint64_t raw;
    uint32_t narrow;
    int what;
    *is_known = 1;
    if (f->kind == PLS_PROTO_FIXED32) {
        if (end - *cursor < 4)
            return PLS_TYPED_SHORT;
        memcpy(out, *cursor, 4);
        *cursor += 4;
        return PLS_TYPED_OK;
    }
    if (f->kind == PLS_PROTO_FIXED64) {
        if (end - *cursor < 8)
            return PLS_TYPED_SHORT;
        memcpy(out, *cursor, 8);
        *cursor += 8;
        return PLS_TYPED_OK;
    }
    if ((what = pls_varint64(cursor, end, &raw)))
        return what;
    switch (f->kind) {
    case PLS_PROTO_SINT64:
        raw = (raw >> 1) ^ (0 - (raw & 1));
        /* fall through */
    case PLS_PROTO_INT64:
        memcpy(out, &raw, 8);
        break;
    case PLS_PROTO_BOOL:
        *out = raw != 0;
        break;
    case PLS_PROTO_SINT32:
        raw = ((uint32_t)raw >> 1) ^ (0 - (raw & 1));
        /* fall through */
    default:
        narrow = (uint32_t)raw;
        if (f->kind == PLS_PROTO_ENUM)
            *is_known = pls_proto_knows(g, f, (int32_t)narrow);
        memcpy(out, &narrow, 4);
    }
    return PLS_TYPED_OK;
}

/* Room behind the last item for one more, which is not counted yet. */
PLS_HOT int pls_proto_slot(pls_node *n, uint8_t **out) {
    int what;
    if (n->count >= n->items && (what = pls_grow_items(n, n->count + 1)))
        return what;
    *out = n->data + n->count * n->width;
    return PLS_TYPED_OK;
}

/* The field is set: of its oneof the others no longer are. */
static inline void pls_proto_set(pls_proto *g, const pls_message *m, const pls_field *f) {
    int32_t k, j;
    g->seen[f->node] = 1;
    for (k = m->first; f->oneof && k < m->stop; k++) {
        const pls_field *other = &g->fields[k];
        if (other->oneof != f->oneof || other == f || !g->seen[other->node])
            continue;
        g->seen[other->node] = 0;
        if (other->kind == PLS_PROTO_MESSAGE || other->kind == PLS_PROTO_GROUP) {
            for (j = other->node; j < g->nodes[other->node].after; j++)
                g->seen[j] = 0;
            for (j = other->message; j < g->message_count && g->messages[j].node < g->nodes[other->node].after; j++)
                g->next[j] = g->messages[j].first;
            pls_cut(g->nodes, other->node, g->nodes[other->node].count);
        }
    }
}

static int pls_proto_time(const uint8_t *p, const uint8_t *end, uint8_t *out) {
    int64_t seconds = 0, nanos = 0, value;
    while (p < end) {
        uint64_t tag, raw;
        int what = pls_varint64(&p, end, &tag);
        if (what)
            return what;
        if (tag > UINT32_MAX || tag >> 3 == 0)
            return PLS_TYPED_WIRE;
        if (tag != 8 && tag != 16) {
            if ((what = pls_proto_skip(&p, end, (uint32_t)tag, 0)))
                return what;
            continue;
        }
        if ((what = pls_varint64(&p, end, &raw)))
            return what;
        if (tag == 8)
            seconds = (int64_t)raw;
        else
            nanos = (int32_t)(uint32_t)raw;
    }
    if (seconds > 9223372034 || seconds < -9223372034)
        return PLS_TYPED_TIME;
    value = seconds * 1000000000 + nanos;
    memcpy(out, &value, 8);
    return PLS_TYPED_OK;
}

/* Append an item for each plain field from k up to `stop`: they are absent. */
static int pls_proto_absent(pls_proto *g, int32_t k, int32_t stop) {
    int what = PLS_TYPED_OK;
    for (; k < stop && what == PLS_TYPED_OK; k++) {
        const pls_field *f = &g->fields[k];
        pls_node *n = &g->nodes[f->node];
        uint64_t zero = 0;
        if (!(f->flags & PLS_PROTO_PLAIN))
            continue;
        if (f->flags & PLS_PROTO_PRESENCE)
            what = pls_blank(g->nodes, f->node);
        else
            what = n->width > 0 ? pls_add_number(n, &zero, n->width) : pls_add_end(n, n->size);
    }
    return what;
}

/* Count what the open message has: one item in its node and in all that are in it. */
static int pls_proto_close(pls_proto *g, int32_t message) {
    const pls_message *m = &g->messages[message];
    int32_t k;
    int what;
    if (g->next[message] < m->stop && (what = pls_proto_absent(g, g->next[message], m->stop)))
        return what;
    g->next[message] = m->first;
    for (k = g->keeps[message] ? m->first : m->stop; k < m->stop; k++) {
        const pls_field *f = &g->fields[k];
        pls_node *n = &g->nodes[f->node];
        int seen = g->seen[f->node];
        if (f->flags & PLS_PROTO_PLAIN)
            continue;
        g->seen[f->node] = 0;
        if (n->width > 0) {
            if (seen || !(f->flags & PLS_PROTO_PRESENCE)) {
                uint8_t *out;
                if (!seen) {
                    if ((what = pls_proto_slot(n, &out)))
                        return what;
                    memset(out, 0, (size_t)n->width);
                }
                n->count++; /* where it was seen, it is there */
                continue;
            }
            what = pls_blank(g->nodes, f->node);
        } else if (f->flags & PLS_PROTO_REPEATED) {
            what = pls_add_list(n, n + 1);
        } else if (f->kind == PLS_PROTO_MESSAGE || f->kind == PLS_PROTO_GROUP) {
            what = seen || (f->flags & PLS_PROTO_ALWAYS) ? pls_proto_close(g, f->message) : pls_blank(g->nodes, f->node);
        } else if (seen) {
            what = pls_add_bytes(n, g->kept[f->node].p, g->kept[f->node].size, g->limit, 0);
        } else if (f->flags & PLS_PROTO_PRESENCE) {
            what = pls_blank(g->nodes, f->node);
        } else {
            what = pls_add_bytes(n, g->limit, 0, g->limit, 0);
        }
        if (what)
            return what;
    }
    g->nodes[m->node].count++;
    return PLS_TYPED_OK;
}

static int pls_proto_run(
    pls_proto *g, int32_t message, const uint8_t **cursor, const uint8_t *end, uint32_t group, int depth
);

/* What follows a tag that the field takes. */
static int pls_proto_field(
    pls_proto *g, const pls_message *m, const pls_field *f, uint32_t tag, const uint8_t **cursor, const uint8_t *end,
    int depth
) {
    int is_repeated = f->flags & PLS_PROTO_REPEATED, is_known, what;
    pls_node *n = &g->nodes[f->node + (is_repeated ? 1 : 0)];
    const uint8_t *stop = end, *p;
    uint64_t size = 0;
    uint8_t *out;
    if ((tag & 7) == 2) {
        if ((what = pls_varint64(cursor, end, &size)))
            return what;
        if (size > (uint64_t)(end - *cursor))
            return PLS_TYPED_SHORT;
        stop = *cursor + size;
    }
    p = *cursor;
    switch (f->kind) {
    case PLS_PROTO_TEXT:
    case PLS_PROTO_BYTES:
        *cursor = stop;
        if (is_repeated)
            return pls_add_bytes(n, p, (int64_t)size, g->limit, f->kind == PLS_PROTO_TEXT);
        if (f->kind == PLS_PROTO_TEXT && !pls_is_text(p, (int64_t)size, g->limit))
            return PLS_TYPED_UTF8;
        g->kept[f->node].p = p;
        g->kept[f->node].size = (int64_t)size;
        pls_proto_set(g, m, f);
        return PLS_TYPED_OK;
    case PLS_PROTO_MESSAGE:
    case PLS_PROTO_GROUP:
        if (!is_repeated)
            pls_proto_set(g, m, f);
        what = pls_proto_run(g, f->message, cursor, stop, (tag & 7) == 3 ? tag >> 3 : 0, depth + 1);
        if (what == PLS_TYPED_OK && (tag & 7) == 2 && *cursor != stop)
            what = PLS_TYPED_GROUP;
        return what || !is_repeated ? what : pls_proto_close(g, f->message);
    case PLS_PROTO_TIME:
        if ((what = pls_proto_slot(n, &out)) || (what = pls_proto_time(p, stop, out)))
            return what;
        *cursor = stop;
        if (is_repeated) {
            n->count++;
            return PLS_TYPED_OK;
        }
        pls_proto_set(g, m, f);
        return PLS_TYPED_OK;
    default:
        do { /* a number, or several that are packed */
            if ((tag & 7) == 2 && *cursor == stop)
                break;
            if ((what = pls_proto_slot(n, &out)))
                return what;
            if (is_repeated) {
                if ((what = pls_proto_number(g, f, cursor, stop, out, &is_known)))
                    return what;
                n->count += is_known;
            } else {
                uint8_t number[8];
                if ((what = pls_proto_number(g, f, cursor, stop, number, &is_known)))
                    return what;
                if (is_known) {
                    memcpy(out, number, (size_t)n->width);
                    pls_proto_set(g, m, f);
                }
            }
        } while ((tag & 7) == 2);
        return PLS_TYPED_OK;
    }
}

/* Append the item of a plain field. */
PLS_HOT int pls_proto_plain(pls_proto *g, const pls_field *f, const uint8_t **cursor, const uint8_t *end) {
    pls_node *n = &g->nodes[f->node];
    const uint8_t *p = *cursor;
    uint64_t raw;
    uint32_t narrow;
    uint8_t byte;
    int what;
    switch (f->kind) {
    case PLS_PROTO_INT32:
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        narrow = (uint32_t)raw;
        return pls_add_number(n, &narrow, 4);
    case PLS_PROTO_INT64:
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        return pls_add_number(n, &raw, 8);
    case PLS_PROTO_SINT32:
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        narrow = ((uint32_t)raw >> 1) ^ (0 - ((uint32_t)raw & 1));
        return pls_add_number(n, &narrow, 4);
    case PLS_PROTO_SINT64:
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        raw = (raw >> 1) ^ (0 - (raw & 1));
        return pls_add_number(n, &raw, 8);
    case PLS_PROTO_BOOL:
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        byte = raw != 0;
        return pls_add_number(n, &byte, 1);
    case PLS_PROTO_FIXED32:
        if (end - p < 4)
            return PLS_TYPED_SHORT;
        *cursor = p + 4;
        return pls_add_number(n, p, 4);
    case PLS_PROTO_FIXED64:
        if (end - p < 8)
            return PLS_TYPED_SHORT;
        *cursor = p + 8;
        return pls_add_number(n, p, 8);
    default: /* PLS_PROTO_TEXT, PLS_PROTO_BYTES */
        if ((what = pls_varint64(cursor, end, &raw)))
            return what;
        p = *cursor;
        if (raw > (uint64_t)(end - p))
            return PLS_TYPED_SHORT;
        *cursor = p + raw;
        return pls_add_bytes(n, p, (int64_t)raw, g->limit, f->kind == PLS_PROTO_TEXT);
    }
}

static inline const pls_field *pls_proto_find(const pls_proto *g, const pls_message *m, uint64_t number) {
    int32_t low = m->first, high = m->stop;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if ((uint64_t)g->fields[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->stop && (uint64_t)g->fields[low].number == number ? &g->fields[low] : NULL;
}

static int pls_proto_run(
    pls_proto *g, int32_t message, const uint8_t **cursor, const uint8_t *end, uint32_t group, int depth
) {
    const pls_message *m = &g->messages[message];
    const uint8_t *p = *cursor, *begin = p;
    const pls_field *f = NULL;
    int32_t expected = m->first, next = g->next[message]; /* fields mostly ascend */
    int what = PLS_TYPED_OK;
    if (depth > PLS_DEEPEST)
        return PLS_TYPED_DEEP;
    while (p < end) {
        uint64_t tag;
        int wire;
        f = NULL;
        begin = p;
        if ((what = pls_varint64(&p, end, &tag)) == PLS_TYPED_OK && (tag > UINT32_MAX || tag >> 3 == 0))
            what = PLS_TYPED_WIRE;
        if (what)
            goto failed;
        wire = (int)(tag & 7);
        if (wire == 4) {
            if (group != 0 && tag >> 3 == group) {
                group = 0;
                break;
            }
            what = PLS_TYPED_GROUP;
            goto failed;
        }
        f = expected < m->stop && (uint64_t)g->fields[expected].number == tag >> 3 ? &g->fields[expected]
                                                                                     : pls_proto_find(g, m, tag >> 3);
        if (f != NULL) {
            int32_t at = (int32_t)(f - g->fields);
            int due = pls_proto_wires[f->kind];
            expected = at + !(f->flags & PLS_PROTO_REPEATED);
            if (wire != due && !(wire == 2 && (f->flags & PLS_PROTO_REPEATED) && due != 3))
                f = NULL; /* an unknown field, as other implementations have it */
            else if (f->flags & PLS_PROTO_PLAIN) {
                if (at < next) /* not the first one of its number, or it comes late */
                    pls_cut(g->nodes, f->node, g->nodes[f->node].count - 1);
                else {
                    if (at > next && (what = pls_proto_absent(g, next, at)))
                        goto failed;
                    next = at + 1;
                }
                if ((what = pls_proto_plain(g, f, &p, end)))
                    goto failed;
                continue;
            }
        }
        *cursor = p;
        what = f != NULL ? pls_proto_field(g, m, f, (uint32_t)tag, cursor, end, depth)
                         : pls_proto_skip(cursor, end, (uint32_t)tag, depth);
        if (what)
            goto failed;
        p = *cursor;
    }
    *cursor = p;
    g->next[message] = next;
    return group ? PLS_TYPED_SHORT : PLS_TYPED_OK;
failed:
    if (g->at == NULL) {
        g->at = begin;
        g->node = f != NULL ? f->node + (f->flags & PLS_PROTO_REPEATED) : m->node;
    }
    if (f != NULL && (f->flags & PLS_PROTO_REPEATED) && g->items != NULL) {
        const pls_node *list = &g->nodes[f->node];
        g->items[list->level] = (int32_t)(list[1].count - (list->count ? list->ends[list->count] : 0));
    }
    return what;
}

/* One value, an item of node 0; a value that fails leaves the nodes as they were. */
static inline int pls_proto_value(pls_proto *g, int32_t message, int64_t nodes, const uint8_t *p, const uint8_t *end) {
    int64_t count = g->nodes[0].count;
    const uint8_t *cursor = p;
    int what;
    g->at = NULL;
    g->node = 0;
    what = pls_proto_run(g, message, &cursor, end, 0, 0);
    if (what == PLS_TYPED_OK)
        what = pls_proto_close(g, message);
    if (what != PLS_TYPED_OK && what >= 0) {
        int32_t k;
        memset(g->seen, 0, (size_t)nodes);
        for (k = 0; k < g->message_count; k++)
            g->next[k] = g->messages[k].first;
        pls_cut(g->nodes, 0, count);
    }
    return what;
}

#endif
