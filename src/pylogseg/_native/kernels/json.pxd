"""Values in JSON: the C kernels in `json.h` (what is JSON, and lines of it) and `json_values.h` (its columns)."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from pylogseg._native.kernels.typed cimport pls_node


cdef extern from "bytescan.h" nogil:
    int64_t pls_count_byte(const uint8_t *p, int64_t size, uint8_t byte) noexcept


cdef extern from "json.h" nogil:
    enum:
        PLS_JSON_OBJECT
        PLS_JSON_LIST
        PLS_JSON_ANY
        PLS_JSON_STRING
        PLS_JSON_INTEGER
        PLS_JSON_NUMBER
        PLS_JSON_BOOLEAN
        PLS_JSON_NULL
        PLS_JSON_KINDS

    uint8_t *pls_json_compact(
        const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t *out
    ) noexcept

    ctypedef struct pls_json_part:
        int32_t kind
        int32_t first
        int32_t count
        int32_t name
        int32_t size

    uint8_t *pls_json_parts(
        const pls_json_part *parts, const uint8_t *names, int32_t at, const uint8_t **cursor, const uint8_t *end, uint8_t *out
    ) noexcept


cdef extern from "json_values.h" nogil:
    enum:
        PLS_JSON_AHEAD

    ctypedef struct pls_json_values:
        const pls_json_part *parts
        const int32_t *place
        const uint8_t *names
        int32_t *next
        pls_node *nodes
        int what

    int pls_json_take_value(pls_json_values *g, const uint8_t *p, const uint8_t *end) noexcept
