/* Whether bytes are one JSON text (RFC 8259), so that they can be part of another one unchanged. */
#ifndef PLS_JSON_H
#define PLS_JSON_H

#include "bytescan.h"
#include "quote.h"
#include "sink.h"

/* The limit of nested arrays and objects; deeper ones do not count as JSON. Readers have similar limits. */
#define PLS_JSON_DEPTH 512

typedef struct {
    const uint8_t *p;
    const uint8_t *end;
    const uint8_t *limit; /* up to here memory may be read */
    int breaks;           /* a line break was seen between tokens */
    int acts;             /* a string has characters that a terminal acts on */
    uint8_t *out;         /* what is not space between tokens goes here; NULL: nowhere */
    const uint8_t *copied; /* so far */
    int depth;
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
    pls_json_take(j, '-');
    if (!pls_json_take(j, '0') && !pls_json_digits(j))
        return 0;
    if (pls_json_take(j, '.') && !pls_json_digits(j))
        return 0;
    if (j->p < j->end && (*j->p | 0x20) == 'e') {
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
    if (j->depth == PLS_JSON_DEPTH)
        return 0;
    j->p++;
    pls_json_space(j);
    if (pls_json_take(j, object ? '}' : ']'))
        return 2;
    j->is_object[j->depth++] = (uint8_t)object;
    return object ? pls_json_name(j) : 1;
}

/* Close arrays and objects that end here. 1: another value is next; 2: the whole text ends here; 0: not JSON. */
static inline int pls_json_close(pls_json *j) {
    for (;;) {
        int object;
        pls_json_space(j);
        if (j->depth == 0)
            return j->p == j->end ? 2 : 0;
        object = j->is_object[j->depth - 1];
        if (pls_json_take(j, ','))
            return object ? pls_json_name(j) : 1;
        if (!pls_json_take(j, object ? '}' : ']'))
            return 0;
        j->depth--;
    }
}

/* Whether [j->p, j->end) is JSON in strict UTF-8. */
static inline int pls_json_text(pls_json *j) {
    j->breaks = j->acts = j->depth = 0;
    j->copied = j->p;
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
