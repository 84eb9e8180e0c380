"""Messages of Kafka's schemas into columns, by a program.

A program is a list of ops for each version of a message, made in `format/messages/program.py`. A node is a column, or the items
of a list; what an op reads goes to the end of its node. The depth of calls is that of the program. A message takes at most
a constant times its bytes, since every item of a list has one byte at least, and the program says how many.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memset

from pylogseg._native.kernels.endian cimport load_be16, load_be32, load_be64
from pylogseg._native.kernels.varint cimport read_uvarint

cdef enum:
    OP_1 = 0               # numbers of 1, 2, 4 and 8 bytes
    OP_2 = 1
    OP_4 = 2
    OP_8 = 3
    OP_UUID = 4            # 16 bytes, as 22 characters
    OP_TEXT = 5            # length and bytes; a: 0 compact, else bytes of the length; b: may be null; c: most bytes
    OP_LIST = 6            # count and items; a, b as above; c: least bytes of an item; the body ends at d
    OP_MAYBE = 7           # a struct that may be null; a: as a tagged field; body to c, ops for null to d
    OP_TAGS = 8            # tagged fields: rows a to b of the table of tags
    OP_DEFAULT = 9         # the default; a: bytes of a number, or a kind below; b, c: the number
    OP_SKIP = 10           # go on at d

cdef enum:
    DEFAULT_EMPTY = 0      # of text and lists
    DEFAULT_NULL = -1
    DEFAULT_UUID = -2

cdef enum:
    MESSAGE_OK = 0
    MESSAGE_SHORT = 1
    MESSAGE_LENGTH = 2
    MESSAGE_NULL = 3
    MESSAGE_COUNT = 4
    MESSAGE_TAGS = 5
    MESSAGE_TAG_SIZE = 6
    MESSAGE_VARINT = 7
    MESSAGE_OUTSIDE = 8
    MESSAGE_UNKNOWN = 9    # no program for this version
    MESSAGE_ABSENT = 10    # a null
    MESSAGE_TEXT = 11      # above what Kafka lets a text have in any form of its length
    MESSAGE_MEMORY = 12    # never of a row: the call ends
    MESSAGE_LARGE = 13     # nor this: a column above 2^31-1 bytes

cdef struct Op:
    int32_t code
    int32_t node
    int32_t a
    int32_t b
    int32_t c
    int32_t d

cdef struct Tag:
    int32_t tag
    int32_t first          # ops of the field
    int32_t stop
    int32_t default_first  # ops where it is absent
    int32_t default_stop

cdef struct Node:
    int32_t parent         # -1 a column of the message
    int32_t in_list        # whether it is the item of its parent, a list
    int32_t width          # bytes of a number; 0 text, -1 list, -2 a struct that may be null
    int32_t blank          # whether a message that cannot be read has an item here
    int32_t nullable       # whether a byte says of each item if there is a value
    int64_t count
    uint8_t *data          # of numbers and text
    int64_t size
    int64_t room
    int32_t *ends          # of text and lists; ends[0] is 0
    int64_t ends_room
    uint8_t *valid         # a byte an item
    int64_t valid_room

cdef struct Program:
    const Op *ops
    const Tag *tags
    Node *nodes
    int32_t node_count
    int32_t unknown_tags   # met in this message
    const uint8_t *limit   # where the source of this message ends
    bint has_uuid
    uint8_t[16] uuid       # the last one that was met, and its text: neighbours often have the same
    uint8_t[24] uuid_text

cdef extern from *:
    """
    static const char pls_uuid_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    """
    const char *uuid_digits "pls_uuid_digits"


cdef inline int grow(void **memory, int64_t *room, int64_t wanted) noexcept nogil:
    """Make room for so many bytes; twice the room at least, so that all growing together costs what it copies once."""
    cdef int64_t more = room[0] * 2 if room[0] * 2 > wanted else wanted
    cdef void *made
    if wanted <= room[0]:
        return MESSAGE_OK
    if more < 256:
        more = 256
    made = realloc(memory[0], more)
    if made == NULL:
        return MESSAGE_MEMORY
    memory[0] = made
    room[0] = more
    return MESSAGE_OK


cdef inline int add_valid(Node *node, uint8_t valid) noexcept nogil:
    if not node.nullable:
        return MESSAGE_OK
    if node.count >= node.valid_room and grow(<void **>&node.valid, &node.valid_room, node.count + 1):
        return MESSAGE_MEMORY
    node.valid[node.count] = valid
    return MESSAGE_OK


cdef inline int add_end(Node *node, int64_t end) noexcept nogil:
    """The item that ends here is done."""
    if end > 0x7FFFFFFF:
        return MESSAGE_LARGE
    if (node.count + 2) * 4 > node.ends_room:
        if grow(<void **>&node.ends, &node.ends_room, (node.count + 2) * 4):
            return MESSAGE_MEMORY
    node.ends[0] = 0
    node.ends[node.count + 1] = <int32_t>end
    node.count += 1
    return MESSAGE_OK


cdef inline uint8_t *number(Node *node) noexcept nogil:
    """Room for one more number; NULL if there is no memory."""
    cdef uint8_t *at
    if node.size + node.width > node.room and grow(<void **>&node.data, &node.room, node.size + node.width):
        return NULL
    at = node.data + node.size
    node.size += node.width
    node.count += 1
    return at


cdef inline void copy(uint8_t *out, const uint8_t *first, int64_t size) noexcept nogil:
    """Copy bytes; most texts are short, and two moves that overlap are faster than a call."""
    if size > 16:
        memcpy(out, first, size)
    elif size >= 8:
        memcpy(out, first, 8)
        memcpy(out + size - 8, first + size - 8, 8)
    elif size >= 4:
        memcpy(out, first, 4)
        memcpy(out + size - 4, first + size - 4, 4)
    else:
        while size > 0:
            size -= 1
            out[size] = first[size]


cdef inline int add_text(Program *c, Node *node, const uint8_t *first, int64_t size, uint8_t valid) noexcept nogil:
    if node.size + size > node.room and grow(<void **>&node.data, &node.room, node.size + size):
        return MESSAGE_MEMORY
    if add_valid(node, valid):
        return MESSAGE_MEMORY
    if size <= 32 and c.limit - first >= 32 and node.room - node.size >= 32:   # what is too much is written over
        memcpy(node.data + node.size, first, 32)
    else:
        copy(node.data + node.size, first, size)
    node.size += size
    return add_end(node, node.size)


cdef inline int add_uuid(Program *c, Node *node, const uint8_t *raw) noexcept nogil:
    cdef uint8_t *text = c.uuid_text
    cdef uint64_t six
    cdef int i, k
    if node.size + 22 > node.room and grow(<void **>&node.data, &node.room, node.size + 22):
        return MESSAGE_MEMORY
    if add_valid(node, 1):
        return MESSAGE_MEMORY
    if not c.has_uuid or memcmp(c.uuid, raw, 16) != 0:
        for i in range(2):
            six = (<uint64_t>load_be32(raw + 6 * i) << 16) | load_be16(raw + 6 * i + 4)
            for k in range(8):
                text[8 * i + k] = uuid_digits[(six >> (42 - 6 * k)) & 63]
        six = <uint64_t>load_be32(raw + 12) << 4
        for k in range(6):
            text[16 + k] = uuid_digits[(six >> (30 - 6 * k)) & 63]
        memcpy(c.uuid, raw, 16)
        c.has_uuid = True
    memcpy(node.data + node.size, text, 22)
    node.size += 22
    return add_end(node, node.size)


cdef inline int read_length(const uint8_t **cursor, const uint8_t *end, int32_t width, int64_t *length) noexcept nogil:
    """A length or count as its form writes it; -1 is null."""
    cdef uint32_t raw
    if width == 0:
        if read_uvarint(cursor, end, &raw):
            return MESSAGE_VARINT
        length[0] = <int64_t>raw - 1
        return MESSAGE_OK
    if end - cursor[0] < width:
        return MESSAGE_SHORT
    length[0] = <int16_t>load_be16(cursor[0]) if width == 2 else <int32_t>load_be32(cursor[0])
    cursor[0] += width
    return MESSAGE_LENGTH if length[0] < -1 else MESSAGE_OK


cdef inline int add_default(Program *c, Node *node, const Op *op) noexcept nogil:
    cdef uint8_t *at
    cdef uint64_t value
    cdef uint8_t[16] zeros
    if op.a > 0:
        at = number(node)
        if at == NULL:
            return MESSAGE_MEMORY
        value = (<uint64_t><uint32_t>op.c << 32) | <uint32_t>op.b
        memcpy(at, &value, op.a)     # the low bytes: numbers are in the order of the machine, which is little-endian
        return MESSAGE_OK
    if op.a == DEFAULT_UUID:
        memset(zeros, 0, 16)
        return add_uuid(c, node, zeros)
    if node.width == -2:
        if add_valid(node, op.a != DEFAULT_NULL):
            return MESSAGE_MEMORY
        node.count += 1
        return MESSAGE_OK
    if add_valid(node, op.a != DEFAULT_NULL):
        return MESSAGE_MEMORY
    return add_end(node, node.ends[node.count] if node.count else 0)


cdef inline int read_tags(Program *c, const Op *op, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    cdef uint32_t count, tag, size, k
    cdef int32_t known = op.a
    cdef int64_t last = -1
    cdef const uint8_t *inner
    cdef const uint8_t *stop
    cdef int status
    if read_uvarint(cursor, end, &count):
        return MESSAGE_VARINT
    if count > (end - cursor[0]) // 2:
        return MESSAGE_COUNT
    for k in range(count):
        if read_uvarint(cursor, end, &tag) or read_uvarint(cursor, end, &size):
            return MESSAGE_VARINT
        if <int64_t>tag <= last:
            return MESSAGE_TAGS
        last = tag
        if size > end - cursor[0]:
            return MESSAGE_SHORT
        stop = cursor[0] + size
        while known < op.b and <uint32_t>c.tags[known].tag < tag:   # they ascend in the table too
            status = run(c, c.tags[known].default_first, c.tags[known].default_stop, cursor, cursor[0])
            if status:
                return status
            known += 1
        if known < op.b and <uint32_t>c.tags[known].tag == tag:
            inner = cursor[0]
            status = run(c, c.tags[known].first, c.tags[known].stop, &inner, stop)
            if status:
                return status
            if inner != stop:
                return MESSAGE_TAG_SIZE
            known += 1
        else:
            c.unknown_tags += 1
        cursor[0] = stop
    while known < op.b:
        status = run(c, c.tags[known].default_first, c.tags[known].default_stop, cursor, cursor[0])
        if status:
            return status
        known += 1
    return MESSAGE_OK


cdef inline int read_list(Program *c, int32_t i, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    cdef const Op *op = &c.ops[i]
    cdef Node *node = &c.nodes[op.node]
    cdef int64_t count, k
    cdef int status = read_length(cursor, end, op.a, &count)
    if status:
        return status
    if count < 0 and not op.b:
        return MESSAGE_NULL
    if count > (end - cursor[0]) // op.c:
        return MESSAGE_COUNT
    for k in range(count):
        status = run(c, i + 1, op.d, cursor, end)
        if status:
            return status
    if add_valid(node, count >= 0):
        return MESSAGE_MEMORY
    return add_end(node, (node.ends[node.count] if node.count else 0) + (count if count > 0 else 0))


cdef inline int read_maybe(Program *c, int32_t i, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    cdef const Op *op = &c.ops[i]
    cdef Node *node = &c.nodes[op.node]
    cdef uint32_t raw
    cdef bint there
    if op.a:
        if read_uvarint(cursor, end, &raw):
            return MESSAGE_VARINT
        there = raw != 0
    else:
        if cursor[0] >= end:
            return MESSAGE_SHORT
        there = cursor[0][0] < 128
        cursor[0] += 1
    if add_valid(node, there):
        return MESSAGE_MEMORY
    node.count += 1
    if there:
        return run(c, i + 1, op.c, cursor, end)
    return run(c, op.c, op.d, cursor, end)


cdef inline int run(Program *c, int32_t i, int32_t stop, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    """Run the ops from `i` up to `stop`."""
    cdef const Op *op
    cdef Node *node
    cdef const uint8_t *p = cursor[0]
    cdef uint8_t *at
    cdef int64_t length
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    cdef int status = MESSAGE_OK
    while i < stop:
        op = &c.ops[i]
        node = &c.nodes[op.node]
        i += 1
        if op.code <= OP_8:
            if end - p < node.width:
                return MESSAGE_SHORT
            at = number(node)
            if at == NULL:
                return MESSAGE_MEMORY
            if op.code == OP_8:
                eight = load_be64(p)
                memcpy(at, &eight, 8)
            elif op.code == OP_4:
                four = load_be32(p)
                memcpy(at, &four, 4)
            elif op.code == OP_2:
                two = load_be16(p)
                memcpy(at, &two, 2)
            else:
                at[0] = p[0]
            p += node.width
        elif op.code == OP_TEXT:
            status = read_length(&p, end, op.a, &length)
            if status:
                return status
            if length < 0:
                if not op.b:
                    return MESSAGE_NULL
                status = add_text(c, node, p, 0, 0)
            else:
                if length > end - p:
                    return MESSAGE_SHORT
                if length > op.c:
                    return MESSAGE_TEXT
                status = add_text(c, node, p, length, 1)
                p += length
        elif op.code == OP_UUID:
            if end - p < 16:
                return MESSAGE_SHORT
            status = add_uuid(c, node, p)
            p += 16
        elif op.code == OP_DEFAULT:
            status = add_default(c, node, op)
        elif op.code == OP_SKIP:
            i = op.d
        else:
            cursor[0] = p
            if op.code == OP_TAGS:
                status = read_tags(c, op, cursor, end)
            elif op.code == OP_LIST:
                status = read_list(c, i - 1, cursor, end)
                i = op.d
            else:
                status = read_maybe(c, i - 1, cursor, end)
                i = op.d
            p = cursor[0]
        if status:
            return status
    cursor[0] = p
    return MESSAGE_OK


cdef inline int reserve(Program *c, int64_t rows) noexcept nogil:
    """Make room in the columns of a message for all rows; text and items of lists grow as they come."""
    cdef Node *node
    cdef int32_t k
    for k in range(c.node_count):
        node = &c.nodes[k]
        if not node.blank:
            continue
        if node.width > 0 and grow(<void **>&node.data, &node.room, rows * node.width):
            return MESSAGE_MEMORY
        if -2 < node.width <= 0 and grow(<void **>&node.ends, &node.ends_room, (rows + 1) * 4):
            return MESSAGE_MEMORY
        if node.nullable and grow(<void **>&node.valid, &node.valid_room, rows):
            return MESSAGE_MEMORY
    return MESSAGE_OK


cdef inline int blank(Program *c, int64_t row) noexcept nogil:
    """Take away what a message left that cannot be read, and give its columns an item without a value."""
    cdef Op op
    cdef Node *node
    cdef Node *above
    cdef int32_t k
    cdef int64_t count
    cdef int status
    op.b = op.c = 0
    for k in range(c.node_count):              # parents come first
        node = &c.nodes[k]
        if node.parent < 0:
            count = row
        else:
            above = &c.nodes[node.parent]
            count = above.count if not node.in_list else (above.ends[above.count] if above.count else 0)
        if node.count > count:
            node.count = count
        if node.width > 0:
            node.size = node.count * node.width
        elif node.width == 0:
            node.size = node.ends[node.count] if node.count else 0
    for k in range(c.node_count):
        node = &c.nodes[k]
        if node.blank:
            op.a = node.width if node.width > 0 else DEFAULT_NULL
            status = add_default(c, node, &op)
            if status:
                return status
    return MESSAGE_OK
