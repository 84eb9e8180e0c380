/* Values in JSON into columns, driven by what the schema names.

   A value that is taken is what any reader makes of it. One that readers may see in different ways, or that is wrong, is
   refused, and nothing is said about it: another reader decides. So there are no errors here, but a lack of memory.

   The members of objects are expected in the order of the last object of the same part, and looked up where another
   one comes. PLS_JSON_AHEAD bytes behind a value may be read. */
#ifndef PLS_JSON_VALUES_H
#define PLS_JSON_VALUES_H

#include "json.h"
#include "number.h"
#include "typed.h"

#define PLS_JSON_AHEAD 32
#define PLS_JSON_FLAT 64 /* as deep may be what has no type */

typedef struct {
    const pls_json_part *parts; /* the first is the value itself; those of an object in the order of their names */
    const int32_t *place;       /* the node of each */
    const uint8_t *names;       /* 16 bytes behind each name may be read */
    int32_t *next;              /* of each part the one that is expected behind it, and the first that is expected in it */
    pls_node *nodes;
    const uint8_t *end;
    int what; /* why the call ends */
    pls_json json;
} pls_json_values;

/* What is written here returns where it goes on, or NULL. */

static const uint8_t *pls_json_object(pls_json_values *g, int32_t at, const uint8_t *p);
static const uint8_t *pls_json_list(pls_json_values *g, int32_t at, const uint8_t *p);

PLS_HOT const uint8_t *pls_json_behind_space(const uint8_t *p, const uint8_t *end) {
    while (*p <= ' ' && p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

static inline const uint8_t *pls_json_failed(pls_json_values *g, int what) {
    g->what = what;
    return NULL;
}

/* A string with escapes, with more than ASCII, or with more than 15 bytes. */
static const uint8_t *pls_json_any_string(pls_json_values *g, pls_node *n, const uint8_t *p) {
    pls_json *j = &g->json;
    const uint8_t *stop;
    uint8_t *out;
    int64_t size;
    int what;
    j->p = p++;
    j->escapes = 0;
    if (!pls_json_string(j))
        return NULL;
    stop = j->p - 1;
    size = stop - p;
    if (!j->escapes) {
        what = pls_add_bytes(n, p, size, j->limit, 0);
        return what ? pls_json_failed(g, what) : j->p;
    }
    if (n->size + size >= n->room && (what = pls_grow_bytes(n, n->size + size)))
        return pls_json_failed(g, what);
    out = n->data + n->size;
    while (p < stop) {
        int count = pls_json_character(&p, stop, out); /* no more than it has in the string */
        if (count == 3 && out[0] == 0xED && out[1] > 0x9F)
            return NULL;
        out += count;
    }
    n->size = out - n->data;
    what = pls_add_end(n, n->size);
    return what ? pls_json_failed(g, what) : j->p;
}

PLS_HOT const uint8_t *pls_json_short_string(pls_json_values *g, pls_node *n, const uint8_t *p) {
    int64_t size = pls_json_stop(p + 1);
    int what;
    if (size == 16 || p[1 + size] != '"' || size >= g->end - p - 1)
        return pls_json_any_string(g, n, p);
    what = pls_add_bytes(n, p + 1, size, p + 1 + 16, 0);
    return what ? pls_json_failed(g, what) : p + size + 2;
}

/* What has no type is kept as its JSON, without the space between tokens. */
static const uint8_t *pls_json_kept(pls_json_values *g, pls_node *n, const uint8_t *p) {
    pls_json *j = &g->json;
    const uint8_t *stop;
    int what;
    j->p = p;
    if (!pls_json_value(j))
        return NULL;
    stop = j->p;
    if (n->size + (stop - p) >= n->room && (what = pls_grow_bytes(n, n->size + (stop - p))))
        return pls_json_failed(g, what);
    n->size = pls_json_compact(p, stop, j->limit, n->data + n->size) - n->data;
    what = pls_add_end(n, n->size);
    return what ? pls_json_failed(g, what) : stop;
}

/* The value of a member that the schema does not name. */
static const uint8_t *pls_json_ignored(pls_json_values *g, const uint8_t *p) {
    g->json.p = p;
    g->json.odd = 0;
    return pls_json_value(&g->json) && !g->json.odd ? g->json.p : NULL;
}

/* The value of a part at p, which is before the end. */
PLS_HOT const uint8_t *pls_json_part_value(pls_json_values *g, int32_t at, const uint8_t *p) {
    pls_node *n = &g->nodes[g->place[at]];
    union {
        int64_t whole;
        double number;
        uint8_t is_true;
    } made;
    int what;
    if (*p == 'n') {
        if (memcmp(p, "null", 4) != 0)
            return NULL;
        what = pls_blank(g->nodes, g->place[at]);
        return what ? pls_json_failed(g, what) : p + 4;
    }
    switch (g->parts[at].kind) {
    case PLS_JSON_STRING:
        return *p == '"' ? pls_json_short_string(g, n, p) : NULL;
    case PLS_JSON_INTEGER:
        p = pls_integer(p, g->end, &made.whole);
        what = p == NULL ? 0 : pls_add_number(n, &made.whole, 8);
        break;
    case PLS_JSON_NUMBER:
        p = pls_double(p, g->end, &made.number);
        what = p == NULL ? 0 : pls_add_number(n, &made.number, 8);
        break;
    case PLS_JSON_BOOLEAN:
        made.is_true = *p == 't';
        if (memcmp(p, made.is_true ? "true" : "fals", 4) != 0 || (!made.is_true && p[4] != 'e'))
            return NULL;
        p += made.is_true ? 4 : 5;
        what = pls_add_number(n, &made.is_true, 1);
        break;
    case PLS_JSON_OBJECT:
        return *p == '{' ? pls_json_object(g, at, p + 1) : NULL;
    case PLS_JSON_LIST:
        return *p == '[' ? pls_json_list(g, at, p + 1) : NULL;
    case PLS_JSON_ANY:
        return pls_json_kept(g, n, p);
    default:
        return NULL;
    }
    return what ? pls_json_failed(g, what) : p;
}

/* Whether the name of a part stands at p, in quotes. */
PLS_HOT int pls_json_is_named(const pls_json_values *g, const pls_json_part *part, const uint8_t *p) {
    const uint8_t *name = g->names + part->name;
    if (*p != '"' || part->size + 2 > g->end - p || p[1 + part->size] != '"')
        return 0;
    return part->size <= 16 ? pls_same_sixteen(p + 1, name, part->size) : memcmp(p + 1, name, (size_t)part->size) == 0;
}

/* Read any other name: the part in `part`, -1 if it has none of it. */
static const uint8_t *pls_json_other_name(pls_json_values *g, const pls_json_part *part, const uint8_t *p, int32_t *found) {
    pls_json *j = &g->json;
    j->p = p;
    j->escapes = 0;
    if (!pls_json_string(j) || j->escapes)
        return NULL;
    *found = pls_json_named(g->parts, g->names, part, p + 1, j->p - 1);
    return j->p;
}

static const uint8_t *pls_json_object(pls_json_values *g, int32_t at, const uint8_t *p) {
    const pls_json_part *part = &g->parts[at];
    const uint8_t *end = g->end;
    pls_node *n = &g->nodes[g->place[at]];
    int32_t *expected = &g->next[2 * at + 1], seen = 0, k;
    int what;
    p = pls_json_behind_space(p, end);
    if (p < end && *p == '}') {
        p++;
    } else {
        for (;;) {
            int32_t member = *expected;
            if (p >= end)
                return NULL;
            if (member >= 0 && pls_json_is_named(g, &g->parts[member], p)) {
                p += g->parts[member].size + 2;
            } else if ((p = pls_json_other_name(g, part, p, &member)) == NULL) {
                return NULL;
            } else if (member >= 0) {
                *expected = member;
            }
            p = pls_json_behind_space(p, end);
            if (p >= end || *p != ':')
                return NULL;
            p = pls_json_behind_space(p + 1, end);
            if (p >= end)
                return NULL;
            if (member < 0) {
                p = pls_json_ignored(g, p);
            } else {
                if (g->nodes[g->place[member]].count > n->count) /* a second time */
                    return NULL;
                p = pls_json_part_value(g, member, p);
                expected = &g->next[2 * member];
                seen++;
            }
            if (p == NULL)
                return NULL;
            p = pls_json_behind_space(p, end);
            if (p >= end || (*p != ',' && *p != '}'))
                return NULL;
            if (*p++ == '}')
                break;
            p = pls_json_behind_space(p, end);
        }
    }
    for (k = part->first; seen < part->count && k < part->first + part->count; k++)
        if (g->nodes[g->place[k]].count == n->count && (what = pls_blank(g->nodes, g->place[k])))
            return pls_json_failed(g, what);
    n->count++;
    return p;
}

static const uint8_t *pls_json_list(pls_json_values *g, int32_t at, const uint8_t *p) {
    const uint8_t *end = g->end;
    pls_node *n = &g->nodes[g->place[at]];
    int32_t item = g->parts[at].first;
    int what;
    p = pls_json_behind_space(p, end);
    if (p < end && *p == ']') {
        p++;
    } else {
        for (;;) {
            if (p >= end || (p = pls_json_part_value(g, item, p)) == NULL)
                return NULL;
            p = pls_json_behind_space(p, end);
            if (p >= end || (*p != ',' && *p != ']'))
                return NULL;
            if (*p++ == ']')
                break;
            p = pls_json_behind_space(p, end);
        }
    }
    what = pls_add_list(n, &g->nodes[g->place[item]]);
    return what ? pls_json_failed(g, what) : p;
}

/* Append the value of [p, end), and say whether it is taken; if not, what was appended of it is still to be cut off. */
static inline int pls_json_take_value(pls_json_values *g, const uint8_t *p, const uint8_t *end) {
    g->end = g->json.end = end;
    g->json.limit = end + PLS_JSON_AHEAD;
    g->json.out = NULL;
    g->json.deepest = PLS_JSON_FLAT;
    g->what = PLS_TYPED_OK;
    p = pls_json_behind_space(p, end);
    p = p < end ? pls_json_part_value(g, 0, p) : NULL;
    return p != NULL && pls_json_behind_space(p, end) == end;
}

#endif
