"""Text from record columns: the C kernels in `render.h` (lists of operations), `dump.h` (Kafka's own tool) and `find.h`.

All work between the pointers of a sink and return a status; the `_init` functions must run when the
importing module is loaded.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "spans.h" nogil:
    enum:
        PLS_SOURCES
        PLS_TEXT_OK
        PLS_TEXT_FULL
        PLS_TEXT_SPAN
        PLS_TEXT_HEADERS
        PLS_TEXT_BATCH
        PLS_TEXT_ORDER
        PLS_TEXT_LEGACY

    ctypedef struct pls_source:
        const uint8_t *first
        int64_t size

    ctypedef struct pls_batch:
        pass

    ctypedef struct pls_records:
        const int64_t *offset
        const int64_t *timestamp
        const int64_t *key_place
        const int64_t *value_place
        const int64_t *headers_place
        const int32_t *key_size
        const int32_t *value_size
        const int32_t *header_count
        const int32_t *batch
        const uint8_t *batches
        int64_t batch_count
        pls_source *sources

    ctypedef struct pls_span:
        const uint8_t *p
        const uint8_t *end
        const uint8_t *limit

    int pls_resolve(const pls_source *sources, int64_t place, int64_t size, pls_span *span) noexcept


cdef extern from "sink.h" nogil:
    ctypedef struct pls_sink:
        uint8_t *at
        uint8_t *end

    void pls_base64_init() noexcept


cdef extern from "quote.h" nogil:
    void pls_quote_init() noexcept
    int pls_put_json_quoted(
        pls_sink *s, const uint8_t *p, const uint8_t *end, const uint8_t *limit, int marks
    ) noexcept


cdef extern from "render.h" nogil:
    enum:
        PLS_OP_COUNT
        PLS_AS_COUNT

    ctypedef struct pls_op:
        int32_t kind
        int32_t style
        int32_t label_start
        int32_t label_size

    ctypedef struct pls_program:
        const pls_op *ops
        int64_t op_count
        const uint8_t *labels
        uint8_t delimiter

    int pls_put_json_value(pls_sink *s, const pls_span *b) noexcept
    int pls_render(const pls_records *r, const pls_program *program, int64_t *next, int64_t stop, pls_sink *s) noexcept


cdef extern from "dump.h" nogil:
    ctypedef struct pls_dump_state:
        int64_t batch
        int64_t stop_batch
        int64_t record
        int64_t stop_record
        int batch_written

    ctypedef struct pls_dump_texts:
        const uint8_t *data
        int64_t size
        const int32_t *ends
        int64_t first

    int pls_dump(
        const pls_records *r, pls_dump_state *state, int what, const pls_dump_texts *texts, pls_sink *s
    ) noexcept


cdef extern from "find.h" nogil:
    ctypedef struct pls_needle:
        const uint8_t *bytes
        int64_t size
        int fold

    int pls_find(const uint8_t *p, const uint8_t *end, const pls_needle *needle) noexcept


cdef extern from "crc.h" nogil:
    void pls_crc_init() noexcept
