/* Bytes as text: JSON strings, CSV fields, and UTF-8 decoded as in Java.

   [p, end) are the bytes; up to `limit` (>= end) memory may be read, which saves the copy of short tails. As in
   sink.h, 0 means that there was no room. */
#ifndef PLS_QUOTE_H
#define PLS_QUOTE_H

#include "bytescan.h"
#include "sink.h"

/* What JSON has for each ASCII byte that cannot stand for itself, and in the last place how long that is: a look-up
   costs less than a branch that is guessed wrong. `pls_quote_init` fills it when the module is loaded. */
static uint8_t pls_json_escapes[128][8];

static inline void pls_quote_init(void) {
    static const char bytes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    int i;
    for (i = 0; i < 128; i++) {
        memcpy(pls_json_escapes[i], "\\u00", 4);
        pls_json_escapes[i][4] = pls_nibble((uint8_t)(i >> 4));
        pls_json_escapes[i][5] = pls_nibble(i & 15);
        pls_json_escapes[i][7] = 6;
    }
    for (i = 0; bytes[i]; i++) {
        pls_json_escapes[(uint8_t)bytes[i]][1] = (uint8_t)letters[i];
        pls_json_escapes[(uint8_t)bytes[i]][7] = 2;
    }
}

/* One UTF-8 sequence of 2 to 4 bytes, without the call that a copy of any size would be. The caller has checked for
   room. Returns what comes behind it. */
static inline const uint8_t *pls_copy_sequence(pls_sink *s, const uint8_t *p, int size) {
    s->at[0] = p[0];
    s->at[1] = p[1];
    if (size > 2)
        s->at[2] = p[2];
    if (size > 3)
        s->at[3] = p[3];
    s->at += size;
    return p + size;
}

/* The mark before the base64 of bytes that are not UTF-8, or of text that begins with the mark. */
#define PLS_BASE64_MARK "base64:"
#define PLS_BASE64_MARK_SIZE 7

static inline int pls_is_marked(const uint8_t *p, const uint8_t *end) {
    return end - p >= PLS_BASE64_MARK_SIZE && memcmp(p, PLS_BASE64_MARK, PLS_BASE64_MARK_SIZE) == 0;
}

static inline int pls_put_marked(pls_sink *s, const uint8_t *p, const uint8_t *end) {
    return PLS_PUT(s, PLS_BASE64_MARK) && pls_put_base64(s, p, end - p);
}

/* \uNNNN; the caller has checked for room. */
static inline void pls_put_escape(pls_sink *s, int code) {
    memcpy(s->at, "\\u", 2);
    s->at[2] = pls_nibble((uint8_t)(code >> 12 & 15));
    s->at[3] = pls_nibble((uint8_t)(code >> 8 & 15));
    s->at[4] = pls_nibble((uint8_t)(code >> 4 & 15));
    s->at[5] = pls_nibble((uint8_t)(code & 15));
    s->at += 6;
}

/* A JSON string with its quotes. What a terminal acts on is escaped; bytes that are no text become marked base64. With
   `marks`, text that begins with the mark does too: no other bytes look the same. */
static inline int pls_put_json_quoted(pls_sink *s, const uint8_t *p, const uint8_t *end, const uint8_t *limit, int marks) {
    uint8_t spare[16];
    const uint8_t *first = p;
    pls_sink w = *s; /* a copy stays in registers: for the compiler, a write of bytes could change *s */
    if (!pls_put_byte(&w, '"'))
        return 0;
    if (marks && pls_is_marked(p, end))
        return PLS_PUT(s, "\"") && pls_put_marked(s, first, end) && PLS_PUT(s, "\"");
    while (p < end) {
        const uint8_t *block = pls_sixteen(p, end, limit, spare);
        int64_t plain = pls_json_stop(block);
        if (!PLS_ROOM(&w, 24)) /* a block, and an escape or a sequence after it */
            return 0;
        memcpy(w.at, block, 16);
        if (plain > end - p)
            plain = end - p;
        w.at += plain;
        p += plain;
        if (plain == 16 || p == end)
            continue;
        if (*p < 0x80) {
            const uint8_t *escape = pls_json_escapes[*p++];
            memcpy(w.at, escape, 8);
            w.at += escape[7];
            continue;
        }
        while (p < end && *p >= 0x80) { /* non-Latin text comes in runs */
            int size = pls_utf8_size(p, end), code;
            if (!PLS_ROOM(&w, 8))
                return 0;
            if (size == 0)
                return PLS_PUT(s, "\"") && pls_put_marked(s, first, end) && PLS_PUT(s, "\"");
            code = pls_acting(p, size);
            if (code) {
                pls_put_escape(&w, code);
                p += size;
                continue;
            }
            p = pls_copy_sequence(&w, p, size);
        }
    }
    if (!pls_put_byte(&w, '"'))
        return 0;
    s->at = w.at;
    return 1;
}

/* The same of a payload. */
static inline int pls_put_json_string(pls_sink *s, const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
    return pls_put_json_quoted(s, p, end, limit, 1);
}

/* The UTF-8 of Java's `new String(bytes, UTF_8)`: U+FFFD (EF BF BD) for malformed bytes. */
static inline int pls_put_java_text(pls_sink *s, const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
    uint8_t spare[16];
    pls_sink w = *s;
    while (p < end) {
        const uint8_t *block = pls_sixteen(p, end, limit, spare);
        int64_t plain = pls_ascii_stop(block);
        if (!PLS_ROOM(&w, 16))
            return 0;
        memcpy(w.at, block, 16);
        if (plain > end - p)
            plain = end - p;
        w.at += plain;
        p += plain;
        while (p < end && *p >= 0x80) {
            int size = pls_utf8_size(p, end);
            if (!PLS_ROOM(&w, 4))
                return 0;
            if (size == 0) {
                memcpy(w.at, "\xEF\xBF\xBD", 3);
                w.at += 3;
                p += pls_java_malformed(p, end);
                continue;
            }
            p = pls_copy_sequence(&w, p, size);
        }
    }
    s->at = w.at;
    return 1;
}

static inline int pls_csv_mark_is_plain(uint8_t delimiter) { return delimiter != ':'; }

static inline int pls_csv_plain(const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t delimiter) {
    uint8_t spare[16];
    for (;;) {
        int64_t stop = pls_csv_stop(pls_sixteen(p, end, limit, spare), delimiter);
        if (stop < 16 && stop < end - p)
            return 0;
        if (end - p <= 16)
            return 1;
        p += 16;
    }
}

/* A CSV field (RFC 4180): quoted if it has to be; an empty one is quoted, so that it is not a null. Bytes that are no
   text, or have a NUL, with which readers end a field, become marked base64. */
static inline int pls_put_csv_field(pls_sink *s, const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t delimiter) {
    uint8_t spare[16];
    pls_sink w = *s;
    if (p < end && (pls_is_marked(p, end) || memchr(p, 0, (size_t)(end - p)) || !pls_is_utf8(p, end, limit)))
        return pls_csv_mark_is_plain(delimiter) ? pls_put_marked(s, p, end)
                                                : PLS_PUT(s, "\"") && pls_put_marked(s, p, end) && PLS_PUT(s, "\"");
    if (p < end && pls_csv_plain(p, end, limit, delimiter))
        return pls_put_bytes(s, p, end - p);
    if (!pls_put_byte(&w, '"'))
        return 0;
    while (p < end) {
        const uint8_t *block = pls_sixteen(p, end, limit, spare);
        int64_t plain = pls_byte_stop(block, '"');
        if (!PLS_ROOM(&w, 18))
            return 0;
        memcpy(w.at, block, 16);
        if (plain > end - p)
            plain = end - p;
        w.at += plain;
        p += plain;
        if (plain < 16 && p < end) {
            memcpy(w.at, "\"\"", 2);
            w.at += 2;
            p++;
        }
    }
    if (!pls_put_byte(&w, '"'))
        return 0;
    s->at = w.at;
    return 1;
}

/* Quote the text from `first` on as a CSV field, in place, from its end. */
static inline int pls_csv_quote_written(pls_sink *s, uint8_t *first) {
    uint8_t *from = s->at, *to;
    int64_t quotes = 2;
    const uint8_t *p;
    for (p = first; p < s->at; p++)
        quotes += *p == '"';
    if (!PLS_ROOM(s, quotes))
        return 0;
    s->at += quotes;
    to = s->at;
    *--to = '"';
    while (from > first) {
        *--to = *--from;
        if (*to == '"')
            *--to = '"';
    }
    *--to = '"';
    return 1;
}

#endif
