"""Typed values into columns: the C kernels in `typed.h` (columns under way), `avro.h` and `protobuf.h`."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "typed.h" nogil:
    enum:
        PLS_TYPED_OK
        PLS_TYPED_OUTSIDE
        PLS_TYPED_JSON
        PLS_TYPED_ROOM
        PLS_TYPED_UNKNOWN
        PLS_TYPED_ABSENT
        PLS_TYPED_MEMORY
        PLS_TYPED_LARGE
        PLS_WIDTH_BYTES
        PLS_WIDTH_LIST
        PLS_WIDTH_STRUCT
        PLS_WIDTH_NULL

    ctypedef struct pls_node:
        int32_t parent
        int32_t width
        int32_t after
        int32_t level
        int64_t count
        uint8_t *data
        int32_t *ends
        int64_t items
        int64_t size
        int64_t room
        uint8_t *valid
        int64_t marked
        int64_t valid_room
        int64_t *left

    int pls_reserve(pls_node *nodes, int64_t count) noexcept
    int pls_blank(pls_node *nodes, int32_t k) noexcept
    int pls_mark_all(pls_node *n) noexcept
    void pls_cut(pls_node *nodes, int32_t k, int64_t count) noexcept


cdef extern from "avro.h" nogil:
    enum:
        PLS_AVRO_NULL
        PLS_AVRO_BOOLEAN
        PLS_AVRO_INT
        PLS_AVRO_LONG
        PLS_AVRO_INT_LONG
        PLS_AVRO_TO_FLOAT
        PLS_AVRO_TO_DOUBLE
        PLS_AVRO_FLOAT
        PLS_AVRO_DOUBLE
        PLS_AVRO_FLOAT_DOUBLE
        PLS_AVRO_BYTES
        PLS_AVRO_TEXT
        PLS_AVRO_FIXED
        PLS_AVRO_ENUM
        PLS_AVRO_DECIMAL
        PLS_AVRO_DURATION
        PLS_AVRO_LIST
        PLS_AVRO_STRUCT
        PLS_AVRO_OPTIONAL
        PLS_AVRO_UNION
        PLS_AVRO_CONSTANT
        PLS_AVRO_SKIP_FIXED
        PLS_AVRO_SKIP_LIST
        PLS_AVRO_CALL
        PLS_AVRO_RAW
        PLS_AVRO_ALL
        PLS_AVRO_FIXED_BYTES
        PLS_AVRO_BETWEEN
        PLS_AVRO_OPS

    ctypedef struct pls_op:
        int32_t code
        int32_t node
        int32_t a
        int32_t b
        int32_t c
        int32_t d
        pls_node *n

    ctypedef struct pls_avro:
        const pls_op *ops
        const int32_t *table
        const uint8_t *constants
        pls_node *nodes
        const uint8_t *limit
        const uint8_t *at
        int32_t node
        int32_t *items

    void pls_look_for_pext() noexcept
    int pls_avro_value(pls_avro *g, int32_t first, int32_t stop, const uint8_t *p, const uint8_t *end) noexcept


cdef extern from "protobuf.h" nogil:
    enum:
        PLS_PROTO_INT32
        PLS_PROTO_INT64
        PLS_PROTO_SINT32
        PLS_PROTO_SINT64
        PLS_PROTO_BOOL
        PLS_PROTO_ENUM
        PLS_PROTO_FIXED32
        PLS_PROTO_FIXED64
        PLS_PROTO_TEXT
        PLS_PROTO_BYTES
        PLS_PROTO_MESSAGE
        PLS_PROTO_GROUP
        PLS_PROTO_TIME
        PLS_PROTO_KINDS
        PLS_PROTO_REPEATED
        PLS_PROTO_PLAIN

    ctypedef struct pls_message:
        int32_t first
        int32_t stop
        int32_t node

    ctypedef struct pls_field:
        int32_t number

    ctypedef struct pls_kept:
        int64_t size

    ctypedef struct pls_proto:
        const pls_message *messages
        const pls_field *fields
        const int32_t *table
        pls_node *nodes
        int32_t message_count
        int32_t *next
        uint8_t *keeps
        uint8_t *seen
        pls_kept *kept
        const uint8_t *limit
        const uint8_t *at
        int32_t node
        int32_t *items

    int pls_proto_value(pls_proto *g, int32_t message, int64_t nodes, const uint8_t *p, const uint8_t *end) noexcept
