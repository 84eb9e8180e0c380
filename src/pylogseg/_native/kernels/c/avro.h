/* Avro's binary encoding into columns, by a program that was made of the writer's and the reader's schema
   (`values/schemas/avro_program.py`). What the reader does not want is skipped, what the writer has not is read from constants.

   Each op checks what it takes against the end. A value takes at most a constant times its bytes: an item of an array
   has bytes, but for those that can have none, and of these there is a budget. */
#ifndef PLS_AVRO_H
#define PLS_AVRO_H

#include "typed.h"

enum {
    PLS_AVRO_NULL = 0,
    PLS_AVRO_BOOLEAN = 1,
    PLS_AVRO_INT = 2,           /* into 4 bytes */
    PLS_AVRO_LONG = 3,          /* into 8 */
    PLS_AVRO_INT_LONG = 4,      /* an int into 8 */
    PLS_AVRO_TO_FLOAT = 5,      /* a: whether of a long */
    PLS_AVRO_TO_DOUBLE = 6,     /* a: whether of a long */
    PLS_AVRO_FLOAT = 7,
    PLS_AVRO_DOUBLE = 8,
    PLS_AVRO_FLOAT_DOUBLE = 9,
    PLS_AVRO_BYTES = 10,
    PLS_AVRO_TEXT = 11,
    PLS_AVRO_FIXED = 12,        /* a: bytes */
    PLS_AVRO_ENUM = 13,         /* table a: index of each symbol; b: symbols */
    PLS_AVRO_DECIMAL = 14,      /* a: bytes of a fixed, -1 of bytes; b: bound in the constants; c: bytes that always fit */
    PLS_AVRO_DURATION = 15,     /* three numbers, in the nodes behind the struct's */
    PLS_AVRO_LIST = 16,         /* a: whether items can have no bytes; the body ends at d */
    PLS_AVRO_STRUCT = 17,
    PLS_AVRO_OPTIONAL = 18,     /* a: the branch that is null; the body ends at d */
    PLS_AVRO_UNION = 19,        /* table a: first op and the one behind the last of b branches; goes on at d */
    PLS_AVRO_BLANK = 20,
    PLS_AVRO_MISMATCH = 21,
    PLS_AVRO_CONSTANT = 22,     /* the body, to d, reads b constants at a */
    PLS_AVRO_SKIP_NUMBER = 23,
    PLS_AVRO_SKIP_FIXED = 24,   /* a: bytes */
    PLS_AVRO_SKIP_BYTES = 25,
    PLS_AVRO_SKIP_LIST = 26,    /* a: as above */
    PLS_AVRO_CALL = 27,         /* ops a to b */
    PLS_AVRO_RAW = 28,          /* the bytes that the body, to d, goes over */
    PLS_AVRO_ALL = 29,          /* all that is left, as bytes */
    PLS_AVRO_FIXED_BYTES = 30,  /* a: bytes, into a node of bytes: where they are many, a null shall take none */
    PLS_AVRO_BETWEEN = 31,      /* the last item lies between two numbers of 8 bytes, at b in the constants */
    PLS_AVRO_OPS = 32
};

typedef struct {
    int32_t code, node, a, b, c, d;
    pls_node *n; /* that of the number */
} pls_op;

typedef struct {
    const pls_op *ops;
    const int32_t *table;
    const uint8_t *constants;
    pls_node *nodes;
    const uint8_t *limit; /* how far may be read, at or behind the end of the value */
    const uint8_t *at;    /* where it failed */
    int32_t node;         /* and in which node */
    int32_t *items;       /* of the lists around that, by their level, which item; NULL where nobody asks */
    int64_t empty_left;   /* items without bytes that this value may still have */
} pls_avro;

#if defined(__GNUC__) && defined(__x86_64__)
#include "cpu_x86.h"

static int pls_has_pext; /* one instruction joins bits, and does not take hundreds of steps for it */

/* Ask the processor, once: Intel's with BMI2, and AMD's from family 19h (Zen 3) on. */
static inline void pls_look_for_pext(void) {
    unsigned highest[4], basic[4], extended[4], family;
    pls_cpuid(0, highest);
    if (highest[0] < 7)
        return;
    pls_cpuid(1, basic);
    pls_cpuid(7, extended);
    family = (basic[0] >> 8 & 15) + (basic[0] >> 20 & 255);
    pls_has_pext = (extended[1] >> 8 & 1) && (highest[1] == 0x756E6547 /* Genu */ || family >= 0x19);
}
#else
static inline void pls_look_for_pext(void) {}
#endif

/* The 7 bits of each byte of a word, joined. */
static inline uint64_t pls_join_sevens(uint64_t word) {
#if defined(__GNUC__) && defined(__x86_64__)
    if (pls_has_pext) {
        uint64_t sevens = 0x7F7F7F7F7F7F7F7FULL, joined;
        __asm__("pext %2, %1, %0" : "=r"(joined) : "r"(word), "r"(sevens));
        return joined;
    }
#endif
    word = (word & 0x007F007F007F007FULL) | (word & 0x7F007F007F007F00ULL) >> 1;
    word = (word & 0x00003FFF00003FFFULL) | (word & 0x3FFF00003FFF0000ULL) >> 2;
    return (word & 0x000000000FFFFFFFULL) | (word & 0x0FFFFFFF00000000ULL) >> 4;
}

/* One byte after the other: a long varint, or one near the end. */
PLS_COLD int pls_varint64_slow(const uint8_t **cursor, const uint8_t *end, uint64_t *out) {
    const uint8_t *p = *cursor;
    uint64_t value = 0;
    int shift;
    for (shift = 0; shift < 70; shift += 7, p++) {
        if (p == end)
            return PLS_TYPED_SHORT;
        if (shift == 63 && *p > 1)
            return PLS_TYPED_VARINT;
        value |= (uint64_t)(*p & 0x7F) << shift;
        if (*p < 0x80) {
            *out = value;
            *cursor = p + 1;
            return PLS_TYPED_OK;
        }
    }
    return PLS_TYPED_VARINT;
}

PLS_HOT int pls_varint64(const uint8_t **cursor, const uint8_t *end, uint64_t *out) {
    const uint8_t *p = *cursor;
    if (p < end && *p < 0x80) {
        *out = *p;
        *cursor = p + 1;
        return PLS_TYPED_OK;
    }
    if (end - p >= 8) { /* up to 8 bytes at once: the first that does not go on is the last */
        uint64_t word = pls_load_le64(p), last = ~word & PLS_TOPS;
        if (last) {
            *out = pls_join_sevens(word & (last ^ (last - 1)));
            *cursor = p + (pls_lowest_bit(last) >> 3) + 1;
            return PLS_TYPED_OK;
        }
    }
    {
        const uint8_t *at = p; /* of its own, so that the caller's stays in a register */
        uint64_t value = 0;
        int what = pls_varint64_slow(&at, end, &value);
        *out = value;
        if (what == PLS_TYPED_OK)
            *cursor = at;
        return what;
    }
}

PLS_HOT int pls_avro_long(const uint8_t **cursor, const uint8_t *end, int64_t *out) {
    uint64_t raw = 0;
    int what = pls_varint64(cursor, end, &raw);
    *out = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    return what;
}

PLS_HOT int pls_avro_int(const uint8_t **cursor, const uint8_t *end, int64_t *out) {
    int what = pls_avro_long(cursor, end, out);
    return what ? what : *out != (int32_t)*out ? PLS_TYPED_RANGE : PLS_TYPED_OK;
}

PLS_HOT int pls_avro_length(const uint8_t **cursor, const uint8_t *end, int64_t *out) {
    int what = pls_avro_long(cursor, end, out);
    return what ? what : *out < 0 ? PLS_TYPED_LENGTH : *out > end - *cursor ? PLS_TYPED_SHORT : PLS_TYPED_OK;
}

/* A big-endian number in two's complement as a little-endian one of the node's width, below a bound of that width. */
static int pls_avro_decimal(pls_node *n, const uint8_t *p, int64_t size, const uint8_t *bound, int64_t safe) {
    int64_t width = n->width, i;
    uint8_t sign = size && (p[0] & 0x80) ? 0xFF : 0;
    uint8_t out[32];
    while (size > width && p[0] == sign)
        p++, size--;
    if (size > width || (size == width && ((p[0] ^ sign) & 0x80)))
        return PLS_TYPED_DECIMAL;
    if (size > safe) { /* the amount against the bound, from the top; -2^k is one more than its complement */
        int carry = 1, order = 0;
        uint8_t amount[32];
        for (i = 0; i < width; i++) {
            uint8_t byte = i < size ? p[size - 1 - i] : sign;
            if (sign) {
                int sum = (uint8_t)~byte + carry;
                byte = (uint8_t)sum, carry = sum >> 8;
            }
            amount[i] = byte;
        }
        for (i = width - 1; i >= 0 && order == 0; i--)
            order = amount[i] > bound[i] ? 1 : amount[i] < bound[i] ? -1 : 0;
        if (order >= 0)
            return PLS_TYPED_DECIMAL;
    }
    memset(out, sign, sizeof out);
    for (i = 0; i < size; i++)
        out[i] = p[size - 1 - i];
    return pls_add_number(n, out, width);
}

static int pls_avro_run(pls_avro *g, int32_t pc, int32_t stop, const uint8_t **cursor, const uint8_t *end, int depth);

/* Blocks of items; a list that is skipped takes the size of a block, where it has one. */
static int pls_avro_blocks(
    pls_avro *g, const pls_op *op, const uint8_t **cursor, const uint8_t *end, int depth
) {
    int32_t body = (int32_t)(op - g->ops) + 1;
    int64_t count, bytes, done = 0;
    int what;
    for (;;) {
        if ((what = pls_avro_long(cursor, end, &count)))
            return what;
        if (count == 0)
            return PLS_TYPED_OK;
        if (count < 0) {
            if (count == INT64_MIN)
                return PLS_TYPED_COUNT;
            count = -count;
            if ((what = pls_avro_length(cursor, end, &bytes)))
                return what;
            if (op->code == PLS_AVRO_SKIP_LIST) {
                *cursor += bytes;
                continue;
            }
        }
        if (op->a) {
            if (count > g->empty_left)
                return PLS_TYPED_COUNT;
            g->empty_left -= count;
        } else if (count > end - *cursor)
            return PLS_TYPED_SHORT;
        for (; count > 0; count--, done++)
            if ((what = pls_avro_run(g, body, op->d, cursor, end, depth + 1))) {
                if (g->items != NULL && op->code == PLS_AVRO_LIST)
                    g->items[g->nodes[op->node].level] = (int32_t)done;
                return what;
            }
    }
}

#define PLS_TRY(call)                                                                                                  \
    do {                                                                                                               \
        if ((what = (call)))                                                                                           \
            goto failed;                                                                                               \
    } while (0)
#define PLS_NEED(bytes)                                                                                                \
    do {                                                                                                               \
        if (end - p < (bytes)) {                                                                                       \
            what = PLS_TYPED_SHORT;                                                                                    \
            goto failed;                                                                                               \
        }                                                                                                              \
    } while (0)

/* A call that goes on elsewhere, from `at`: `p` has no address, so that it stays in a register. */
#define PLS_AWAY(call)                                                                                                 \
    do {                                                                                                               \
        const uint8_t *at = p;                                                                                         \
        what = (call);                                                                                                 \
        p = at;                                                                                                        \
    } while (0)

#if defined(__GNUC__)
/* From each op straight to the next: each has a jump of its own, which is foretold by what mostly follows that op. */
#define PLS_CASE(name) case name: L_##name
#define PLS_NEXT                                                                                                       \
    do {                                                                                                               \
        if (++op >= last)                                                                                              \
            goto done;                                                                                                 \
        n = op->n;                                                                                                     \
        goto *places[op->code];                                                                                        \
    } while (0)
#else
#define PLS_CASE(name) case name
#define PLS_NEXT break
#endif

static int pls_avro_run(pls_avro *g, int32_t pc, int32_t stop, const uint8_t **cursor, const uint8_t *end, int depth) {
#if defined(__GNUC__)
    static const void *const places[PLS_AVRO_OPS] = {
        &&L_PLS_AVRO_NULL, &&L_PLS_AVRO_BOOLEAN, &&L_PLS_AVRO_INT, &&L_PLS_AVRO_LONG, &&L_PLS_AVRO_INT_LONG, &&L_PLS_AVRO_TO_FLOAT, &&L_PLS_AVRO_TO_DOUBLE, &&L_PLS_AVRO_FLOAT, &&L_PLS_AVRO_DOUBLE, &&L_PLS_AVRO_FLOAT_DOUBLE, &&L_PLS_AVRO_BYTES, &&L_PLS_AVRO_TEXT, &&L_PLS_AVRO_FIXED, &&L_PLS_AVRO_ENUM, &&L_PLS_AVRO_DECIMAL, &&L_PLS_AVRO_DURATION, &&L_PLS_AVRO_LIST, &&L_PLS_AVRO_STRUCT, &&L_PLS_AVRO_OPTIONAL, &&L_PLS_AVRO_UNION, &&L_PLS_AVRO_BLANK, &&L_PLS_AVRO_MISMATCH, &&L_PLS_AVRO_CONSTANT, &&L_PLS_AVRO_SKIP_NUMBER, &&L_PLS_AVRO_SKIP_FIXED, &&L_PLS_AVRO_SKIP_BYTES, &&L_PLS_AVRO_SKIP_LIST, &&L_PLS_AVRO_CALL, &&L_PLS_AVRO_RAW, &&L_PLS_AVRO_ALL, &&L_PLS_AVRO_FIXED_BYTES, &&L_PLS_AVRO_BETWEEN
    };
#endif
    const uint8_t *p = *cursor;
    const pls_op *op = NULL, *last;
    pls_node *n;
    int64_t number;
    int what = PLS_TYPED_OK;
    if (depth > PLS_DEEPEST) {
        what = PLS_TYPED_DEEP;
        goto failed;
    }
    op = g->ops + pc;
    last = g->ops + stop;
    for (; op < last; op++) {
        n = op->n;
        switch (op->code) {
        PLS_CASE(PLS_AVRO_NULL):
            n->count++;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_BOOLEAN):
            PLS_NEED(1);
            if (*p > 1) {
                what = PLS_TYPED_BOOLEAN;
                goto failed;
            }
            PLS_TRY(pls_add_number(n, p, 1));
            p++;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_INT): {
            int32_t narrow;
            PLS_TRY(pls_avro_int(&p, end, &number));
            narrow = (int32_t)number;
            PLS_TRY(pls_add_number(n, &narrow, 4));
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_LONG):
            PLS_TRY(pls_avro_long(&p, end, &number));
            PLS_TRY(pls_add_number(n, &number, 8));
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_INT_LONG):
            PLS_TRY(pls_avro_int(&p, end, &number));
            PLS_TRY(pls_add_number(n, &number, 8));
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_BETWEEN): {
            int64_t bounds[2];
            memcpy(bounds, g->constants + op->b, 16);
            if (n->width == 4) {
                int32_t narrow;
                memcpy(&narrow, n->data + (n->count - 1) * 4, 4);
                number = narrow;
            } else {
                memcpy(&number, n->data + (n->count - 1) * 8, 8);
            }
            if (number < bounds[0] || number > bounds[1]) {
                what = PLS_TYPED_CALENDAR;
                goto failed;
            }
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_TO_FLOAT): {
            float real;
            PLS_TRY(op->a ? pls_avro_long(&p, end, &number) : pls_avro_int(&p, end, &number));
            real = (float)number;
            PLS_TRY(pls_add_number(n, &real, 4));
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_TO_DOUBLE): {
            double real;
            PLS_TRY(op->a ? pls_avro_long(&p, end, &number) : pls_avro_int(&p, end, &number));
            real = (double)number;
            PLS_TRY(pls_add_number(n, &real, 8));
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_FLOAT):
            PLS_NEED(4);
            PLS_TRY(pls_add_number(n, p, 4));
            p += 4;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_DOUBLE):
            PLS_NEED(8);
            PLS_TRY(pls_add_number(n, p, 8));
            p += 8;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_FLOAT_DOUBLE): {
            float narrow;
            double real;
            PLS_NEED(4);
            memcpy(&narrow, p, 4);
            real = narrow;
            PLS_TRY(pls_add_number(n, &real, 8));
            p += 4;
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_TEXT):
            PLS_TRY(pls_avro_length(&p, end, &number));
            PLS_TRY(pls_add_bytes(n, p, number, g->limit, 1));
            p += number;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_BYTES):
            PLS_TRY(pls_avro_length(&p, end, &number));
            PLS_TRY(pls_add_bytes(n, p, number, g->limit, 0));
            p += number;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_FIXED):
            PLS_NEED(op->a);
            PLS_TRY(pls_add_number(n, p, op->a));
            p += op->a;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_FIXED_BYTES):
            PLS_NEED(op->a);
            PLS_TRY(pls_add_bytes(n, p, op->a, g->limit, 0));
            p += op->a;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_ENUM):
            PLS_TRY(pls_avro_long(&p, end, &number));
            if (number < 0 || number >= op->b || g->table[op->a + number] < 0) {
                what = PLS_TYPED_SYMBOL;
                goto failed;
            }
            PLS_TRY(pls_add_number(n, &g->table[op->a + number], 4));
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_DECIMAL):
            number = op->a;
            if (number < 0)
                PLS_TRY(pls_avro_length(&p, end, &number));
            else
                PLS_NEED(number);
            PLS_TRY(pls_avro_decimal(n, p, number, g->constants + op->b, op->c));
            p += number;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_DURATION): {
            int i;
            PLS_NEED(12);
            n->count++;
            for (i = 1; i <= 3; i++, p += 4)
                PLS_TRY(pls_add_number(n + i, p, 4));
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_LIST):
            PLS_AWAY(pls_avro_blocks(g, op, &at, end, depth));
            PLS_TRY(what);
            PLS_TRY(pls_add_list(n, n + 1));
            op = g->ops + op->d - 1;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_STRUCT):
            n->count++;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_OPTIONAL):
            PLS_TRY(pls_avro_long(&p, end, &number));
            if ((uint64_t)number > 1) {
                what = PLS_TYPED_BRANCH;
                goto failed;
            }
            if (number == op->a) {
                PLS_TRY(pls_blank(g->nodes, op->node));
                op = g->ops + op->d - 1;
            }
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_UNION):
            PLS_TRY(pls_avro_long(&p, end, &number));
            if (number < 0 || number >= op->b) {
                what = PLS_TYPED_BRANCH;
                goto failed;
            }
            PLS_AWAY(pls_avro_run(g, g->table[op->a + 2 * number], g->table[op->a + 2 * number + 1], &at, end, depth + 1));
            if (what)
                return what;
            op = g->ops + op->d - 1;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_BLANK):
            PLS_TRY(pls_blank(g->nodes, op->node));
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_MISMATCH):
            what = PLS_TYPED_MISMATCH;
            goto failed;
        PLS_CASE(PLS_AVRO_CONSTANT): {
            const uint8_t *constant = g->constants + op->a, *limit = g->limit;
            g->limit = constant + op->b;
            what = pls_avro_run(g, (int32_t)(op - g->ops) + 1, op->d, &constant, g->limit, depth + 1);
            g->limit = limit;
            if (what)
                goto failed;
            op = g->ops + op->d - 1;
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_SKIP_NUMBER):
            PLS_TRY(pls_avro_long(&p, end, &number));
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_SKIP_FIXED):
            PLS_NEED(op->a);
            p += op->a;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_SKIP_BYTES):
            PLS_TRY(pls_avro_length(&p, end, &number));
            p += number;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_SKIP_LIST):
            PLS_AWAY(pls_avro_blocks(g, op, &at, end, depth));
            PLS_TRY(what);
            op = g->ops + op->d - 1;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_CALL):
            PLS_AWAY(pls_avro_run(g, op->a, op->b, &at, end, depth + 1));
            if (what)
                return what;
            PLS_NEXT;
        PLS_CASE(PLS_AVRO_RAW): {
            const uint8_t *first = p;
            PLS_AWAY(pls_avro_run(g, (int32_t)(op - g->ops) + 1, op->d, &at, end, depth + 1));
            if (what)
                return what;
            PLS_TRY(pls_add_bytes(n, first, p - first, g->limit, 0));
            op = g->ops + op->d - 1;
            PLS_NEXT;
        }
        PLS_CASE(PLS_AVRO_ALL):
            PLS_TRY(pls_add_bytes(n, p, end - p, g->limit, 0));
            p = end;
            PLS_NEXT;
        default: /* programs are checked: see `check_avro` */
            PLS_UNREACHABLE();
        }
    }
done:
    *cursor = p;
    return PLS_TYPED_OK;
failed:
    if (g->at == NULL) {
        g->at = p;
        g->node = op != NULL ? op->node : pc > 0 ? g->ops[pc - 1].node : 0;
    }
    return what;
}

/* One value, an item of node 0; a value that fails leaves the nodes as they were. */
static inline int pls_avro_value(pls_avro *g, int32_t first, int32_t stop, const uint8_t *p, const uint8_t *end) {
    int64_t count = g->nodes[0].count;
    const uint8_t *cursor = p;
    int what;
    g->at = NULL;
    g->node = 0;
    g->empty_left = 1024 + 16 * (end - p);
    what = pls_avro_run(g, first, stop, &cursor, end, 0);
    if (what == PLS_TYPED_OK && cursor != end) {
        what = PLS_TYPED_REST;
        g->at = cursor;
    }
    if (what != PLS_TYPED_OK && what >= 0)
        pls_cut(g->nodes, 0, count);
    return what;
}

#endif
