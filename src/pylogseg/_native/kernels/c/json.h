/* Whether bytes are one JSON text (RFC 8259), so that they can be part of another one unchanged. */
#ifndef PLS_JSON_H
#define PLS_JSON_H

#include <string.h>

#include "bytescan.h"
#include "quote.h"
#include "sink.h"

/* The limit of nested arrays and objects; deeper ones do not count as JSON. Readers have similar limits. */
#define PLS_JSON_DEPTH 512
#define PLS_JSON_DIGITS 256

typedef struct {
    const uint8_t *p;
    const uint8_t *end;
    const uint8_t *limit; /* up to here memory may be read */
    int breaks;           /* a line break was seen between tokens */
    int acts;             /* a string has characters that a terminal acts on */
    int escapes;          /* a string has escapes */
    int odd;              /* readers differ: an escaped surrogate, a number with an exponent or of very many digits */
    uint8_t *out;         /* what is not space between tokens goes here; NULL: nowhere */
    const uint8_t *copied; /* so far */
    int depth, deepest;
    uint8_t is_object[PLS_JSON_DEPTH];
} pls_json;

/* Copy up to `end`; 16 bytes may be written behind. */
static inline void pls_json_copy(pls_json *j, const uint8_t *end) {
    int64_t size = end - j->copied;
    if (size <= 16 && j->limit - j->copied >= 16)
        memcpy(j->out, j->copied, 16);
    else
        memcpy(j->out, j->copied, (size_t)size);
    j->out += size;
}

static inline void pls_json_space(pls_json *j) {
    const uint8_t *first = j->p;
    while (j->p < j->end) {
        uint8_t c = *j->p;
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            break;
        j->breaks |= c == '\n' || c == '\r';
        j->p++;
    }
    if (j->out != NULL && j->p != first) {
        pls_json_copy(j, first);
        j->copied = j->p;
    }
}

static inline int pls_json_take(pls_json *j, uint8_t c) {
    if (j->p == j->end || *j->p != c)
        return 0;
    j->p++;
    return 1;
}

static inline int pls_json_word(pls_json *j, const char *word, int64_t size) {
    if (j->end - j->p < size || memcmp(j->p, word, (size_t)size) != 0)
        return 0;
    j->p += size;
    return 1;
}

static inline int pls_json_digits(pls_json *j) {
    const uint8_t *from = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
        j->p++;
    return j->p > from;
}

static inline int pls_json_number(pls_json *j) {
    const uint8_t *from = j->p;
    pls_json_take(j, '-');
    if (!pls_json_take(j, '0') && !pls_json_digits(j))
        return 0;
    if (pls_json_take(j, '.') && !pls_json_digits(j))
        return 0;
    j->odd |= j->p - from > PLS_JSON_DIGITS;
    if (j->p < j->end && (*j->p | 0x20) == 'e') {
        j->odd = 1;
        j->p++;
        if (!pls_json_take(j, '+'))
            pls_json_take(j, '-');
        return pls_json_digits(j);
    }
    return 1;
}

static inline int pls_json_escaped(pls_json *j) {
    int i;
    if (j->p == j->end)
        return 0;
    switch (*j->p++) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return 1;
    case 'u':
        if (j->end - j->p < 4)
            return 0;
        j->odd |= (j->p[0] | 0x20) == 'd' && j->p[1] > '7';
        for (i = 0; i < 4; i++, j->p++) {
            uint8_t c = *j->p, letter = c | 0x20;
            if (!(c >= '0' && c <= '9') && !(letter >= 'a' && letter <= 'f'))
                return 0;
        }
        return 1;
    default:
        return 0;
    }
}

static inline int pls_json_string(pls_json *j) {
    uint8_t spare[16];
    if (!pls_json_take(j, '"'))
        return 0;
    while (j->p < j->end) {
        int64_t plain = pls_json_stop(pls_sixteen(j->p, j->end, j->limit, spare));
        if (plain >= j->end - j->p)
            return 0; /* no closing quote */
        j->p += plain;
        if (plain == 16)
            continue;
        if (*j->p == '"') {
            j->p++;
            return 1;
        }
        if (*j->p == '\\') {
            j->p++;
            j->escapes = 1;
            if (!pls_json_escaped(j))
                return 0;
        } else if (*j->p < 0x20) {
            return 0;
        } else {
            int size = *j->p == 0x7F ? 1 : pls_utf8_size(j->p, j->end);
            if (size == 0)
                return 0;
            j->acts |= *j->p == 0x7F || pls_acting(j->p, size);
            j->p += size;
        }
    }
    return 0;
}

static inline int pls_json_scalar(pls_json *j) {
    switch (*j->p) {
    case '"': return pls_json_string(j);
    case 't': return pls_json_word(j, "true", 4);
    case 'f': return pls_json_word(j, "false", 5);
    case 'n': return pls_json_word(j, "null", 4);
    default: return pls_json_number(j);
    }
}

/* The name of a member, its colon, and the space before the value. */
static inline int pls_json_name(pls_json *j) {
    pls_json_space(j);
    if (!pls_json_string(j))
        return 0;
    pls_json_space(j);
    return pls_json_take(j, ':');
}

/* Open an array or object at j->p. 1: its content is next; 2: it is empty, and closed; 0: not JSON. */
static inline int pls_json_open(pls_json *j) {
    int object = *j->p == '{';
    if (j->depth == j->deepest)
        return 0;
    j->p++;
    pls_json_space(j);
    if (pls_json_take(j, object ? '}' : ']'))
        return 2;
    j->is_object[j->depth++] = (uint8_t)object;
    return object ? pls_json_name(j) : 1;
}

/* Close arrays and objects that end here. 1: another value is next; 2: none is open any more; 0: not JSON. */
static inline int pls_json_close(pls_json *j) {
    for (;;) {
        int object;
        pls_json_space(j);
        if (j->depth == 0)
            return 2;
        object = j->is_object[j->depth - 1];
        if (pls_json_take(j, ','))
            return object ? pls_json_name(j) : 1;
        if (!pls_json_take(j, object ? '}' : ']'))
            return 0;
        j->depth--;
    }
}

/* Whether a value in strict UTF-8 begins at j->p; goes on behind it and the space that follows. */
static inline int pls_json_value(pls_json *j) {
    j->depth = 0;
    for (;;) {
        int next;
        pls_json_space(j);
        if (j->p == j->end)
            return 0;
        if (*j->p == '{' || *j->p == '[') {
            next = pls_json_open(j);
            if (next == 1)
                continue;
            if (next == 0)
                return 0;
        } else if (!pls_json_scalar(j)) {
            return 0;
        }
        next = pls_json_close(j);
        if (next != 1)
            return next == 2;
    }
}

/* Whether [j->p, j->end) is JSON in strict UTF-8. */
static inline int pls_json_text(pls_json *j) {
    j->breaks = j->acts = j->escapes = j->odd = 0;
    j->deepest = PLS_JSON_DEPTH;
    j->copied = j->p;
    return pls_json_value(j) && j->p == j->end;
}

/* The same of [p, end); *breaks tells whether lines end in it, *acts whether it has to be escaped. */
static inline int pls_is_json(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int *breaks, int *acts) {
    pls_json j;
    int is_json;
    j.p = p;
    j.end = end;
    j.limit = limit;
    j.out = NULL;
    is_json = pls_json_text(&j);
    *breaks = j.breaks;
    *acts = j.acts;
    return is_json;
}

/* Write JSON without the space between its tokens: its end, or NULL if it is none. There must be room for all of it and
   16 bytes. */
static inline uint8_t *pls_json_compact(const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t *out) {
    pls_json j;
    j.p = p;
    j.end = end;
    j.limit = limit;
    j.out = out;
    if (!pls_json_text(&j))
        return NULL;
    pls_json_copy(&j, end);
    return j.out;
}

/* A part of values: what is in it is named, and what has no type is to be kept. */
enum {
    PLS_JSON_AS_IS = 0,
    PLS_JSON_OBJECT = 1,
    PLS_JSON_LIST = 2,
    PLS_JSON_ANY = 3,
    PLS_JSON_STRING = 4, /* these as they are, too, where values are made into lines */
    PLS_JSON_INTEGER = 5,
    PLS_JSON_NUMBER = 6,
    PLS_JSON_BOOLEAN = 7,
    PLS_JSON_NULL = 8,
    PLS_JSON_KINDS = 9
};

typedef struct {
    int32_t kind;
    int32_t first, count; /* the parts in it */
    int32_t name, size;   /* of a member */
} pls_json_part;

/* The functions below take JSON that was checked and made compact: a value ends before `end`. */

static inline const uint8_t *pls_json_behind_string(const uint8_t *p, const uint8_t *end) {
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\' && p + 1 < end;
    return p < end ? p + 1 : end;
}

static inline const uint8_t *pls_json_behind(const uint8_t *p, const uint8_t *end) {
    int64_t depth = 0;
    while (p < end) {
        uint8_t c = *p;
        if (c == '"') {
            p = pls_json_behind_string(p, end);
        } else {
            if (depth == 0 && (c == ',' || c == '}' || c == ']'))
                return p;
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            p++;
            if (c != '}' && c != ']')
                continue;
        }
        if (depth == 0)
            return p;
    }
    return end;
}

/* Four digits of an escape. */
static inline uint32_t pls_json_code(const uint8_t *p) {
    uint32_t code = 0;
    int i;
    for (i = 0; i < 4; i++)
        code = code << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return code;
}

/* Read the character or the byte at *cursor, inside of a string that was checked: its bytes, of half a surrogate pair
   three, and how many they are. */
static inline int pls_json_character(const uint8_t **cursor, const uint8_t *end, uint8_t out[4]) {
    static const char letters[] = "bfnrt", bytes[] = "\b\f\n\r\t";
    const uint8_t *p = *cursor;
    const char *letter;
    uint32_t code;
    int n;
    *cursor = p + 1;
    out[0] = *p;
    if (*p++ != '\\' || p >= end)
        return 1;
    if (*p != 'u' || end - p < 5) {
        letter = strchr(letters, *p);
        out[0] = letter != NULL && *letter ? (uint8_t)bytes[letter - letters] : *p;
        *cursor = p + 1;
        return 1;
    }
    code = pls_json_code(p + 1);
    p += 5;
    if (code >> 10 == 0x36 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' && pls_json_code(p + 2) >> 10 == 0x37) {
        code = 0x10000 + ((code & 0x3FF) << 10 | (pls_json_code(p + 2) & 0x3FF));
        p += 6;
    }
    *cursor = p;
    n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    out[0] = (uint8_t)(n == 1 ? code : n == 2 ? 0xC0 | code >> 6 : n == 3 ? 0xE0 | code >> 12 : 0xF0 | code >> 18);
    if (n > 1)
        out[n - 1] = (uint8_t)(0x80 | (code & 0x3F));
    if (n > 2)
        out[n - 2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    if (n > 3)
        out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    return n;
}

/* Compare the inside of a string with a name, as memcmp does, whatever is escaped in it. */
static int pls_json_compare_name(const uint8_t *p, const uint8_t *end, const uint8_t *name, int64_t size) {
    const uint8_t *stop = name + size;
    uint8_t out[4];
    while (p < end) {
        int i, n = pls_json_character(&p, end, out);
        for (i = 0; i < n; i++, name++)
            if (name == stop || out[i] != *name)
                return name == stop || out[i] > *name ? 1 : -1;
    }
    return name == stop ? 0 : -1;
}

/* The part with a name among those in a part, which are in the order of their names; -1 if there is none. */
static int32_t pls_json_named(
    const pls_json_part *parts, const uint8_t *names, const pls_json_part *part, const uint8_t *p, const uint8_t *end
) {
    int32_t low = part->first, high = part->first + part->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = pls_json_compare_name(p, end, names + parts[middle].name, parts[middle].size);
        if (order == 0)
            return middle;
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static inline uint8_t *pls_json_plain(const uint8_t **cursor, const uint8_t *to, uint8_t *out) {
    memcpy(out, *cursor, (size_t)(to - *cursor));
    out += to - *cursor;
    *cursor = to;
    return out;
}

/* Write the value at *cursor; of what is in part `at` of it and has no type, a string that holds its JSON, unless it is
   null. There must be room for three times the bytes, and two. No deeper than the parts are. */
static uint8_t *pls_json_parts(
    const pls_json_part *parts, const uint8_t *names, int32_t at, const uint8_t **cursor, const uint8_t *end, uint8_t *out
) {
    const pls_json_part *part = &parts[at];
    const uint8_t *p = *cursor, *to;
    uint8_t closing = part->kind == PLS_JSON_OBJECT ? '}' : ']';
    if (p == end)
        return out;
    if (part->kind == PLS_JSON_ANY && *p != 'n') {
        to = pls_json_behind(p, end);
        *out++ = '"';
        for (; p < to; p++) {
            if (*p == '"' || *p == '\\')
                *out++ = '\\';
            *out++ = *p;
        }
        *out++ = '"';
        *cursor = to;
        return out;
    }
    if ((part->kind != PLS_JSON_OBJECT || *p != '{') && (part->kind != PLS_JSON_LIST || *p != '['))
        return pls_json_plain(cursor, pls_json_behind(p, end), out);
    *out++ = *p++;
    while (p < end && *p != closing) {
        const uint8_t *begin = p;
        int32_t in = part->first;
        if (closing == '}') {
            to = pls_json_behind_string(p, end);
            in = to - p < 2 ? -1 : pls_json_named(parts, names, part, p + 1, to - 1);
            out = pls_json_plain(&p, to + (to < end), out); /* and the colon */
        }
        out = in < 0 ? pls_json_plain(&p, pls_json_behind(p, end), out) : pls_json_parts(parts, names, in, &p, end, out);
        if (p < end && *p == ',')
            *out++ = *p++;
        if (p == begin) /* it is no JSON */
            break;
    }
    if (p < end)
        *out++ = *p++;
    *cursor = p;
    return out;
}

/* Copy JSON to one line: a line break can only be between tokens, where a space means the same. */
static inline int pls_put_json_verbatim(pls_sink *s, const uint8_t *p, const uint8_t *end, int breaks) {
    uint8_t *q = s->at;
    if (!pls_put_bytes(s, p, end - p))
        return 0;
    for (; breaks && q < s->at; q++)
        if (*q == '\n' || *q == '\r')
            *q = ' ';
    return 1;
}

/* The same, with escapes for characters that a terminal acts on, which can only be in strings. */
static inline int pls_put_json_escaped(pls_sink *s, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        int size = *p < 0x80 ? 1 : pls_utf8_size(p, end), code = *p == 0x7F ? 0x7F : pls_acting(p, size);
        if (!PLS_ROOM(s, 8))
            return 0;
        if (code)
            pls_put_escape(s, code);
        else if (size == 1)
            *s->at++ = *p == '\n' || *p == '\r' ? ' ' : *p;
        else
            pls_copy_sequence(s, p, size);
        p += size;
    }
    return 1;
}

#endif
