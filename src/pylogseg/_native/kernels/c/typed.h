/* Columns under way: what a decoder of typed values appends to, laid out as Arrow has it.

   Nodes stand in preorder: the nodes of what is in a struct or a list follow it, up to `after`. A struct has an item in
   each child for each of its own; the items of a list are the child's between two ends. A value that fails is taken
   back by `pls_cut`, which needs nothing remembered: how many items a node must have follows from its parent. */
#ifndef PLS_TYPED_H
#define PLS_TYPED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bytescan.h"

enum {
    PLS_TYPED_OK = 0,
    PLS_TYPED_SHORT = 1,     /* the bytes end inside a value */
    PLS_TYPED_REST = 2,      /* bytes are left behind it */
    PLS_TYPED_VARINT = 3,    /* a varint that is too long */
    PLS_TYPED_RANGE = 4,     /* a number that its type cannot hold */
    PLS_TYPED_LENGTH = 5,    /* a negative length, or one beyond the end */
    PLS_TYPED_UTF8 = 6,
    PLS_TYPED_BRANCH = 7,    /* no such branch of a union */
    PLS_TYPED_MISMATCH = 8,  /* a branch that the reader's schema has not */
    PLS_TYPED_SYMBOL = 9,    /* no such symbol of an enum, or none that the reader's schema has */
    PLS_TYPED_DECIMAL = 10,  /* more digits than the precision */
    PLS_TYPED_BOOLEAN = 11,
    PLS_TYPED_COUNT = 12,    /* more items without bytes than there may be */
    PLS_TYPED_DEEP = 13,     /* nested too deeply */
    PLS_TYPED_OUTSIDE = 14,  /* the value does not lie in its buffer */
    PLS_TYPED_WIRE = 15,     /* a tag that is none, or a wire type that the field has not */
    PLS_TYPED_GROUP = 16,    /* the end of a group that was not begun, or of another one */
    PLS_TYPED_TIME = 17,     /* a time that does not fit in nanoseconds since 1970 */
    PLS_TYPED_JSON = 18,     /* no JSON */
    PLS_TYPED_UNKNOWN = 32,  /* statuses from here on are the caller's: there is no program for this value */
    PLS_TYPED_ABSENT = 254,  /* a null */
    PLS_TYPED_MEMORY = -1,   /* never of a value: the call ends */
    PLS_TYPED_LARGE = -2     /* nor this: a column above 2^31-1 bytes or items */
};

enum { PLS_WIDTH_BYTES = 0, PLS_WIDTH_LIST = -1, PLS_WIDTH_STRUCT = -2, PLS_WIDTH_NULL = -3 };

#define PLS_SLACK 16 /* behind the data of a node, for copies of 16 bytes at a time */
#define PLS_DEEPEST 128

typedef struct {
    int32_t parent; /* -1 the value itself */
    int32_t width;  /* bytes of an item, or one of the above */
    int32_t after;  /* the node behind all that is in this one */
    int64_t count;
    uint8_t *data;
    int64_t size, room;
    int32_t *ends; /* of bytes and lists; ends[0] is 0 */
    int64_t ends_room;
    uint8_t *valid; /* a byte an item; NULL while there was no null */
    int64_t valid_room;
} pls_node;

static inline int pls_make_room(void **memory, int64_t *room, int64_t wanted) {
    int64_t more = *room * 2 > wanted ? *room * 2 : wanted;
    void *made;
    if (more < 256)
        more = 256;
    made = realloc(*memory, (size_t)more);
    if (made == NULL)
        return PLS_TYPED_MEMORY;
    *memory = made;
    *room = more;
    return PLS_TYPED_OK;
}

/* Whether the item that is about to be counted has a value. */
static inline int pls_mark(pls_node *n, uint8_t valid) {
    if (n->valid == NULL) {
        if (valid)
            return PLS_TYPED_OK;
        if (pls_make_room((void **)&n->valid, &n->valid_room, n->count + 1))
            return PLS_TYPED_MEMORY;
        memset(n->valid, 1, (size_t)n->count);
    } else if (n->count >= n->valid_room && pls_make_room((void **)&n->valid, &n->valid_room, n->count + 1))
        return PLS_TYPED_MEMORY;
    n->valid[n->count] = valid;
    return PLS_TYPED_OK;
}

/* Room for one more number of `width` bytes; NULL if there is no memory. */
static inline uint8_t *pls_number(pls_node *n, int64_t width) {
    uint8_t *at;
    if (n->size + width > n->room && pls_make_room((void **)&n->data, &n->room, n->size + width))
        return NULL;
    if (n->valid != NULL && pls_mark(n, 1))
        return NULL;
    at = n->data + n->size;
    n->size += width;
    n->count++;
    return at;
}

static inline int pls_end(pls_node *n, int64_t end) {
    if (end > INT32_MAX)
        return PLS_TYPED_LARGE;
    if ((n->count + 2) * 4 > n->ends_room) {
        if (pls_make_room((void **)&n->ends, &n->ends_room, (n->count + 2) * 4))
            return PLS_TYPED_MEMORY;
        n->ends[0] = 0;
    }
    n->ends[n->count + 1] = (int32_t)end;
    n->count++;
    return PLS_TYPED_OK;
}

/* Append bytes; `limit` is the end of what may be read behind them. */
static inline int pls_add_bytes(pls_node *n, const uint8_t *p, int64_t size, const uint8_t *limit) {
    if (n->size + size + PLS_SLACK > n->room && pls_make_room((void **)&n->data, &n->room, n->size + size + PLS_SLACK))
        return PLS_TYPED_MEMORY;
    if (n->valid != NULL && pls_mark(n, 1))
        return PLS_TYPED_MEMORY;
    if (size <= 16 && limit - p >= 16)
        memcpy(n->data + n->size, p, 16);
    else if (size)
        memcpy(n->data + n->size, p, (size_t)size);
    n->size += size;
    return pls_end(n, n->size);
}

static inline int pls_is_text(const uint8_t *p, int64_t size, const uint8_t *limit) {
    uint64_t word, high = 0x8080808080808080ULL;
    int64_t i;
    if (size <= 16 && limit - p >= 16) { /* most texts: two loads, masked to their size */
        uint64_t second;
        memcpy(&word, p, 8);
        memcpy(&second, p + 8, 8);
        if (size < 8)
            word &= (1ULL << (8 * size)) - 1, second = 0;
        else if (size < 16)
            second &= (1ULL << (8 * (size - 8))) - 1;
        if (((word | second) & high) == 0)
            return 1;
    } else {
        for (i = 0; i + 8 <= size; i += 8) {
            memcpy(&word, p + i, 8);
            if (word & high)
                break;
        }
        while (i < size && p[i] < 0x80)
            i++;
        if (i == size)
            return 1;
    }
    return pls_is_utf8(p, p + size, limit);
}

/* Room for one item of each value in all nodes outside of lists, so that most of them never grow. */
static inline int pls_reserve(pls_node *nodes, int64_t count) {
    int32_t k = 0;
    while (k < nodes[0].after) {
        pls_node *n = &nodes[k];
        if (n->width > 0 && pls_make_room((void **)&n->data, &n->room, n->width * (count + 1)))
            return PLS_TYPED_MEMORY;
        if (n->width == PLS_WIDTH_BYTES || n->width == PLS_WIDTH_LIST) {
            if (pls_make_room((void **)&n->ends, &n->ends_room, 4 * (count + 2)))
                return PLS_TYPED_MEMORY;
            n->ends[0] = 0;
        }
        k = n->width == PLS_WIDTH_LIST ? n->after : k + 1;
    }
    return PLS_TYPED_OK;
}

/* One item without a value, in a node and, where it is a struct, in what it has. */
static inline int pls_blank(pls_node *nodes, int32_t k) {
    int32_t j = k, after = nodes[k].after;
    while (j < after) {
        pls_node *n = &nodes[j];
        if (pls_mark(n, 0))
            return PLS_TYPED_MEMORY;
        if (n->width > 0) {
            if (n->size + n->width > n->room && pls_make_room((void **)&n->data, &n->room, n->size + n->width))
                return PLS_TYPED_MEMORY;
            memset(n->data + n->size, 0, (size_t)n->width);
            n->size += n->width;
            n->count++;
        } else if (n->width == PLS_WIDTH_BYTES || n->width == PLS_WIDTH_LIST) {
            int what = pls_end(n, n->count ? n->ends[n->count] : 0);
            if (what)
                return what;
        } else
            n->count++;
        j = n->width == PLS_WIDTH_LIST ? n->after : j + 1;
    }
    return PLS_TYPED_OK;
}

/* Take back what is in node k and below beyond `count` items of k. */
static inline void pls_cut(pls_node *nodes, int32_t k, int64_t count) {
    int32_t j;
    for (j = k; j < nodes[k].after; j++) {
        pls_node *n = &nodes[j];
        int64_t want = count;
        if (j > k) {
            const pls_node *up = &nodes[n->parent];
            want = up->width != PLS_WIDTH_LIST ? up->count : up->count ? up->ends[up->count] : 0;
        }
        n->count = want;
        if (n->width > 0)
            n->size = want * n->width;
        else if (n->width == PLS_WIDTH_BYTES)
            n->size = want ? n->ends[want] : 0;
    }
}

#endif
