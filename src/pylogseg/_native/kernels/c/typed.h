/* Columns under way: what a decoder of typed values appends to, laid out as Arrow has it.

   Nodes stand in preorder: the nodes of what is in a struct or a list follow it, up to `after`. A struct has an item in
   each child for each of its own; the items of a list are the child's between two ends. A value that fails is taken
   back by `pls_cut`, which needs nothing remembered: how many items a node must have follows from its parent.

   To append a number is to check for room, store, and count: nulls alone are marked, and a size that Arrow's ends cannot
   say is found where a node grows. */
#ifndef PLS_TYPED_H
#define PLS_TYPED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bytescan.h"

#if defined(__GNUC__)
#define PLS_HOT static inline __attribute__((always_inline)) /* in each case of a switch: no call, nothing spilled */
#define PLS_COLD static __attribute__((noinline, cold))
#define PLS_UNREACHABLE() __builtin_unreachable()
#else
#define PLS_HOT static inline
#define PLS_COLD static
#define PLS_UNREACHABLE() __assume(0)
#endif

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
    PLS_TYPED_ROOM = 19,     /* one value that unfolds to more than a call may take */
    PLS_TYPED_CALENDAR = 20, /* a date or a time of day that no calendar has */
    PLS_TYPED_UNKNOWN = 32,  /* statuses from here on are the caller's: there is no program for this value */
    PLS_TYPED_ABSENT = 254,  /* a null */
    PLS_TYPED_MEMORY = -1,   /* never of a value: the call ends */
    PLS_TYPED_LARGE = -2     /* nor this: a column above 2^31-1 bytes or items, or more bytes than the call may take */
};

enum { PLS_WIDTH_BYTES = 0, PLS_WIDTH_LIST = -1, PLS_WIDTH_STRUCT = -2, PLS_WIDTH_NULL = -3 };

#define PLS_SLACK 16 /* behind the data of a node, for copies of 16 bytes at a time */
#define PLS_AHEAD (16 << 20) /* as far a node grows by what is expected of it */
#define PLS_DEEPEST 128

typedef struct {
    int32_t parent; /* -1 the value itself */
    int32_t width;  /* bytes of an item, or one of the above */
    int32_t after;  /* the node behind all that is in this one */
    int32_t level;  /* in how many lists it is */
    int64_t count;  /* items */
    int64_t items;  /* for which there is room: of numbers in data, of bytes and lists in ends */
    uint8_t *data;
    int32_t *ends; /* of bytes and lists; ends[0] is 0 */
    int64_t size, room; /* of bytes in data */
    uint8_t *valid;     /* a byte an item, up to `marked`: those behind have a value. NULL while there was no null */
    int64_t marked, valid_room;
    int64_t *left; /* bytes that all nodes of a call may still take: whatever a node has was counted here */
} pls_node;

/* Room for `room` bytes where there were `had`. */
static inline int pls_make_room(pls_node *n, void **memory, int64_t had, int64_t room) {
    void *made;
    if (room - had > *n->left)
        return PLS_TYPED_LARGE;
    made = realloc(*memory, (size_t)room);
    if (made == NULL)
        return PLS_TYPED_MEMORY;
    *memory = made;
    *n->left -= room - had;
    return PLS_TYPED_OK;
}

/* For how many of `size` bytes each to make room at once: for `most`, or for few more than are wanted where little is left. */
static inline int64_t pls_more(const pls_node *n, int64_t most, int64_t wanted, int64_t size) {
    int64_t few = size < 256 ? 256 / size : 1;
    if (most < few)
        most = few;
    return most > wanted + few && (most - wanted) > *n->left / 4 / size ? wanted + wanted / 8 + few : most;
}

/* Room for `wanted` items, numbers or ends. */
PLS_COLD int pls_grow_items(pls_node *n, int64_t wanted) {
    int64_t more = n->items * 2 > wanted ? n->items * 2 : wanted, size = n->width > 0 ? n->width : 4;
    int what;
    if (wanted > INT32_MAX)
        return PLS_TYPED_LARGE;
    more = pls_more(n, more, wanted, size);
    if (n->width > 0) {
        if ((what = pls_make_room(n, (void **)&n->data, n->items * size, more * size)))
            return what;
    } else {
        if ((what = pls_make_room(n, (void **)&n->ends, n->ends == NULL ? 0 : (n->items + 1) * 4, (more + 1) * 4)))
            return what;
        n->ends[0] = 0;
    }
    n->items = more;
    return PLS_TYPED_OK;
}

/* Room for bytes up to `size`, and the slack. After some items there is room at once for as many more as the node has
   room for ends, were they like those. */
PLS_COLD int pls_grow_bytes(pls_node *n, int64_t size) {
    int64_t more = size * 2;
    int what;
    if (size > INT32_MAX)
        return PLS_TYPED_LARGE;
    if (n->count >= 64 && n->items > n->count) {
        double like = (double)size / (double)n->count * (double)n->items * 1.0625;
        if (like > (double)more)
            more = like < PLS_AHEAD ? (int64_t)like : more > PLS_AHEAD ? more : PLS_AHEAD;
    }
    more = pls_more(n, more, size, 1);
    if (more > INT32_MAX)
        more = INT32_MAX;
    if ((what = pls_make_room(n, (void **)&n->data, n->data == NULL ? 0 : n->room + PLS_SLACK, more + PLS_SLACK)))
        return what;
    n->room = more;
    return PLS_TYPED_OK;
}

/* The item that is about to be counted is null. */
static inline int pls_null(pls_node *n) {
    if (n->count >= n->valid_room) {
        int64_t room = pls_more(n, n->items > 2 * n->count ? n->items : 2 * n->count + 256, n->count + 1, 1);
        int what = pls_make_room(n, (void **)&n->valid, n->valid_room, room);
        if (what)
            return what;
        n->valid_room = room;
    }
    while (n->marked < n->count)
        n->valid[n->marked++] = 1;
    n->valid[n->marked++] = 0;
    return PLS_TYPED_OK;
}

/* All nulls are marked, now all else: valid has as many bytes as there are items. */
static inline int pls_mark_all(pls_node *n) {
    if (n->valid == NULL)
        return PLS_TYPED_OK;
    if (n->count > n->valid_room) {
        int what = pls_make_room(n, (void **)&n->valid, n->valid_room, n->count);
        if (what)
            return what;
        n->valid_room = n->count;
    }
    memset(n->valid + n->marked, 1, (size_t)(n->count - n->marked));
    n->marked = n->count;
    return PLS_TYPED_OK;
}

/* Append a number of `width` bytes, which is the node's. */
PLS_HOT int pls_add_number(pls_node *n, const void *number, int64_t width) {
    int what;
    if (n->count >= n->items && (what = pls_grow_items(n, n->count + 1)))
        return what;
    memcpy(n->data + n->count * width, number, (size_t)width);
    n->count++;
    return PLS_TYPED_OK;
}

PLS_HOT int pls_add_end(pls_node *n, int64_t end) {
    int what;
    if (n->count >= n->items && (what = pls_grow_items(n, n->count + 1)))
        return what;
    n->ends[++n->count] = (int32_t)end;
    return PLS_TYPED_OK;
}

/* The items of a list end here. */
static inline int pls_add_list(pls_node *n, const pls_node *child) {
    return child->count > INT32_MAX ? PLS_TYPED_LARGE : pls_add_end(n, child->count);
}

PLS_COLD int pls_is_text(const uint8_t *p, int64_t size, const uint8_t *limit) { return pls_is_utf8(p, p + size, limit); }

/* Append bytes, which have to be UTF-8 if they are text; `limit` is the end of what may be read behind them. */
PLS_HOT int pls_add_bytes(pls_node *n, const uint8_t *p, int64_t size, const uint8_t *limit, int is_text) {
    int what;
    if (n->size + size >= n->room && (what = pls_grow_bytes(n, n->size + size)))
        return what;
    if (size <= 16 && limit - p >= 16) { /* most of them: one load, one store */
        if (is_text && pls_ascii_stop(p) < size && !pls_is_text(p, size, limit))
            return PLS_TYPED_UTF8;
        memcpy(n->data + n->size, p, 16);
    } else if (size) {
        if (is_text && !pls_is_text(p, size, limit))
            return PLS_TYPED_UTF8;
        memcpy(n->data + n->size, p, (size_t)size);
    }
    n->size += size;
    return pls_add_end(n, n->size);
}

/* Room for one item of each value in all nodes outside of lists, so that most of them never grow. */
static inline int pls_reserve(pls_node *nodes, int64_t count) {
    int32_t k = 0;
    int what;
    while (k < nodes[0].after) {
        pls_node *n = &nodes[k];
        if (n->width > PLS_WIDTH_STRUCT && count && (what = pls_grow_items(n, count)))
            return what;
        k = n->width == PLS_WIDTH_LIST ? n->after : k + 1;
    }
    return PLS_TYPED_OK;
}

/* One item without a value, in a node and, where it is a struct, in what it has. */
static inline int pls_blank(pls_node *nodes, int32_t k) {
    int32_t j = k, after = nodes[k].after;
    int what;
    while (j < after) {
        pls_node *n = &nodes[j];
        if ((what = pls_null(n)))
            return what;
        if (n->width > PLS_WIDTH_STRUCT && n->count >= n->items && (what = pls_grow_items(n, n->count + 1)))
            return what;
        if (n->width > 0)
            memset(n->data + n->count * n->width, 0, (size_t)n->width);
        else if (n->width > PLS_WIDTH_STRUCT)
            n->ends[n->count + 1] = n->ends[n->count];
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
        if (n->marked > want)
            n->marked = want;
        if (n->width == PLS_WIDTH_BYTES)
            n->size = want ? n->ends[want] : 0;
    }
}

#endif
