"""Values in Avro and Protobuf into buffers as Arrow lays them out, and what stands in front of values.

Values lie at places in sources, as record columns say it (`format/records.py`). `values/schemas/avro_program.py` and
`values/schemas/proto_program.py` make programs.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from pylogseg._native._messages cimport SOURCES, _Sources, take
from pylogseg._native.kernels cimport record_write as record
from pylogseg._native.kernels cimport typed
from pylogseg._native.kernels.endian cimport load_be32, load_le64
from pylogseg._native.kernels.varint cimport read_varint

cdef enum:
    OP_INTS = 6
    NODE_INTS = 3
    MESSAGE_INTS = 3
    FIELD_INTS = 8
    INDEXES = 7            # of a message in its file, that a code can name
    CONFLUENT_BYTES = 5
    GLUE_BYTES = 18
    SINGLE_OBJECT_BYTES = 10
    PAIRED = 8             # entries of a map of which every two are compared

#: What a status of a value means; from `UNKNOWN` to `ABSENT` it is the caller's own.
REASONS = (
    "",
    "the value ends too early",
    "bytes behind the value",
    "a varint that is too long",
    "a number that its type cannot hold",
    "a negative length",
    "text that is not UTF-8",
    "a union has no such branch",
    "a branch that the reader's schema does not have",
    "an enum has no such symbol",
    "a decimal of more digits than its precision",
    "a boolean that is neither 0 nor 1",
    "too many items without bytes",
    "nested too deeply",
    "the value does not lie in its buffer",
    "a tag that is none, or of another wire type than its field",
    "a group that ends without a beginning",
    "a time that does not fit in nanoseconds since 1970",
    "no JSON",
    "it unfolds to more bytes than it may take",
    "a date or time that no calendar has",
)
UNKNOWN = typed.PLS_TYPED_UNKNOWN
ABSENT = typed.PLS_TYPED_ABSENT
TOO_LARGE = typed.PLS_TYPED_ROOM

#: What stands in front of a value.
NOTHING, ABSENT_VALUE, CONFLUENT, GLUE, SINGLE_OBJECT = range(5)


typed.pls_look_for_pext()


cdef class _Nodes:
    """The columns under way; frees what was not handed over."""

    def __cinit__(self, const int32_t[:, ::1] nodes, int64_t room):
        cdef int32_t k, inside
        if nodes.shape[1] != NODE_INTS or not nodes.shape[0]:
            raise ValueError(f"a node is {NODE_INTS} numbers, not {nodes.shape[1]}")
        self.all = <typed.pls_node *>calloc(nodes.shape[0], sizeof(typed.pls_node))
        if self.all == NULL:
            raise MemoryError
        self.count = <int32_t>nodes.shape[0]
        self.room = self.left = room
        for k in range(self.count):
            self.all[k].left = &self.left
            self.all[k].parent, self.all[k].width, self.all[k].after = nodes[k, 0], nodes[k, 1], nodes[k, 2]
            if not (-1 <= nodes[k, 0] < k or k == 0) or not k < nodes[k, 2] <= self.count:
                raise ValueError(f"node {k} is not sound")
            if (k > 0) != (nodes[k, 0] >= 0) or nodes[k, 1] < typed.PLS_WIDTH_NULL:
                raise ValueError(f"node {k} is not sound")
            inside = k + 1  # in preorder those in a node are all up to the first that is in another one before it
            while inside < self.count and nodes[inside, 0] >= k:
                inside += 1
            if nodes[k, 2] != inside or (k and not k < self.all[nodes[k, 0]].after):
                raise ValueError(f"node {k} is not sound")
            if nodes[k, 1] == typed.PLS_WIDTH_LIST and nodes[k, 2] == k + 1:
                raise ValueError(f"the list of node {k} has no items")
            if k:
                self.all[k].level = self.all[nodes[k, 0]].level + (nodes[nodes[k, 0], 1] == typed.PLS_WIDTH_LIST)
            self.levels = max(self.levels, self.all[k].level)

    def __dealloc__(self):
        if self.all != NULL:
            self.forget()
            free(self.all)

    cdef void forget(self) noexcept nogil:
        """As at first: nothing is in any node."""
        cdef int32_t k
        cdef typed.pls_node *node
        for k in range(self.count):
            node = &self.all[k]
            free(node.data)
            free(node.ends)
            free(node.valid)
            node.data, node.ends, node.valid = NULL, NULL, NULL
            node.count = node.items = node.size = node.room = node.marked = node.valid_room = 0
        self.left = self.room

    cdef int mark(self) noexcept nogil:
        cdef int32_t k
        cdef int what = typed.PLS_TYPED_OK
        for k in range(self.count):
            what = typed.pls_mark_all(&self.all[k])
            if what:
                break
        return what

    cdef list taken(self, int64_t values):
        """(items, ends, data, valid) of every node; each has as many items as that around it says."""
        cdef list found = []
        cdef typed.pls_node *node
        cdef typed.pls_node *up
        cdef int32_t k
        cdef int64_t wanted
        for k in range(self.count):
            node = &self.all[k]
            up = &self.all[node.parent] if k else NULL
            wanted = values
            if up != NULL:
                wanted = up.count if up.width != typed.PLS_WIDTH_LIST else up.ends[up.count] if up.count else 0
            if node.count != wanted:
                raise ValueError(f"the program leaves {node.count} items in node {k}, and {wanted} belong there")
        for k in range(self.count):
            node = &self.all[k]
            found.append((
                node.count,
                take(<void **>&node.ends, (node.count + 1) * 4) if node.ends != NULL else None,
                take(<void **>&node.data, node.count * node.width if node.width > 0 else node.size),
                take(<void **>&node.valid, node.count) if node.valid != NULL else None,
            ))
        return found


cdef class _Ops:
    """The ops of a program, which were checked, each with its node."""
    cdef typed.pls_op *all

    def __cinit__(self, const int32_t[:, ::1] ops, _Nodes made):
        cdef int32_t i
        self.all = <typed.pls_op *>calloc(ops.shape[0] + 1, sizeof(typed.pls_op))
        if self.all == NULL:
            raise MemoryError
        for i in range(ops.shape[0]):
            self.all[i].code, self.all[i].node, self.all[i].a = ops[i, 0], ops[i, 1], ops[i, 2]
            self.all[i].b, self.all[i].c, self.all[i].d = ops[i, 3], ops[i, 4], ops[i, 5]
            self.all[i].n = &made.all[ops[i, 1]]

    def __dealloc__(self):
        free(self.all)


cdef class _Kept:
    """What the messages that are open have, by message and by node."""
    cdef int32_t *next
    cdef uint8_t *keeps
    cdef uint8_t *seen
    cdef typed.pls_kept *all

    def __cinit__(self, const int32_t[:, ::1] messages, const int32_t[:, ::1] fields, int64_t nodes):
        cdef int32_t i, k
        self.next = <int32_t *>calloc(messages.shape[0], sizeof(int32_t))
        self.keeps = <uint8_t *>calloc(messages.shape[0], 1)
        self.seen = <uint8_t *>calloc(nodes, 1)
        self.all = <typed.pls_kept *>calloc(nodes, sizeof(typed.pls_kept))
        if self.next == NULL or self.keeps == NULL or self.seen == NULL or self.all == NULL:
            raise MemoryError
        for i in range(messages.shape[0]):
            self.next[i] = messages[i, 0]
            for k in range(messages[i, 0], messages[i, 1]):
                self.keeps[i] |= not fields[k, 3] & typed.PLS_PROTO_PLAIN

    def __dealloc__(self):
        free(self.next)
        free(self.keeps)
        free(self.seen)
        free(self.all)


#: The width of the node that an op appends to; others append to none themselves, or whatever theirs has.
cdef dict WIDTHS = {
    typed.PLS_AVRO_NULL: typed.PLS_WIDTH_NULL, typed.PLS_AVRO_BOOLEAN: 1, typed.PLS_AVRO_INT: 4,
    typed.PLS_AVRO_LONG: 8, typed.PLS_AVRO_INT_LONG: 8, typed.PLS_AVRO_TO_FLOAT: 4, typed.PLS_AVRO_TO_DOUBLE: 8,
    typed.PLS_AVRO_FLOAT: 4, typed.PLS_AVRO_DOUBLE: 8, typed.PLS_AVRO_FLOAT_DOUBLE: 8,
    typed.PLS_AVRO_BYTES: typed.PLS_WIDTH_BYTES, typed.PLS_AVRO_TEXT: typed.PLS_WIDTH_BYTES, typed.PLS_AVRO_ENUM: 4,
    typed.PLS_AVRO_DURATION: typed.PLS_WIDTH_STRUCT, typed.PLS_AVRO_LIST: typed.PLS_WIDTH_LIST,
    typed.PLS_AVRO_STRUCT: typed.PLS_WIDTH_STRUCT, typed.PLS_AVRO_RAW: typed.PLS_WIDTH_BYTES,
    typed.PLS_AVRO_ALL: typed.PLS_WIDTH_BYTES, typed.PLS_AVRO_FIXED_BYTES: typed.PLS_WIDTH_BYTES,
}


cdef check_avro(
    const int32_t[:, ::1] ops, const int32_t[::1] table, const uint8_t[::1] constants, const int32_t[:, ::1] nodes
):
    """Every op must name ops, nodes, numbers and constants that there are."""
    cdef int32_t i, k, count = <int32_t>ops.shape[0], columns = <int32_t>nodes.shape[0]
    cdef int64_t rows = table.shape[0], size = constants.shape[0]
    if ops.shape[1] != OP_INTS:
        raise ValueError("a program of another shape")
    for i in range(count):
        code, node, a, b, c, d = ops[i, 0], ops[i, 1], ops[i, 2], ops[i, 3], ops[i, 4], ops[i, 5]
        good = 0 <= node < columns and 0 <= code < typed.PLS_AVRO_OPS
        good = good and WIDTHS.get(code, nodes[node, 1]) == nodes[node, 1]
        if code in (typed.PLS_AVRO_LIST, typed.PLS_AVRO_OPTIONAL, typed.PLS_AVRO_UNION, typed.PLS_AVRO_CONSTANT,
                    typed.PLS_AVRO_SKIP_LIST, typed.PLS_AVRO_RAW):
            good = good and i < d <= count
        if code == typed.PLS_AVRO_LIST:
            good = good and node + 1 < nodes[node, 2]
        elif code == typed.PLS_AVRO_FIXED:
            good = good and 0 < a == nodes[node, 1]
        elif code in (typed.PLS_AVRO_SKIP_FIXED, typed.PLS_AVRO_FIXED_BYTES):
            good = good and a >= 0
        elif code == typed.PLS_AVRO_DECIMAL:
            good = good and nodes[node, 1] in (16, 32) and a >= -1 and 0 <= b <= size - nodes[node, 1]
        elif code == typed.PLS_AVRO_DURATION:
            good = good and node + 3 < columns and all([nodes[node + k, 1] == 4 for k in range(1, 4)])
        elif code == typed.PLS_AVRO_BETWEEN:  # a number was put into the node just before
            before = ops[i - 1, 0] if i else -1
            good = good and nodes[node, 1] in (4, 8) and ops[i - 1, 1] == node and 0 <= b <= size - 16
            good = good and before in (typed.PLS_AVRO_INT, typed.PLS_AVRO_LONG, typed.PLS_AVRO_INT_LONG)
        elif code == typed.PLS_AVRO_ENUM:
            good = good and b >= 0 and 0 <= a <= rows - b
        elif code == typed.PLS_AVRO_CONSTANT:
            good = good and b >= 0 and 0 <= a <= size - b
        elif code == typed.PLS_AVRO_CALL:
            good = good and 0 <= a <= b <= count
        elif code == typed.PLS_AVRO_UNION:
            good = good and b >= 0 and 0 <= a <= rows - 2 * b
            for k in range(b if good else 0):
                good = good and i < table[a + 2 * k] <= table[a + 2 * k + 1] <= count
        if not good:
            raise ValueError(f"op {i} of the program is not sound")


def decode_avro(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    const int32_t[::1] entry not None, const int32_t[:, ::1] entries not None, const int32_t[:, ::1] ops not None,
    const int32_t[::1] table not None, const uint8_t[::1] constants not None, const int32_t[:, ::1] nodes not None,
    uint8_t[::1] status not None, int32_t[::1] position not None, int64_t room, int32_t[:, ::1] where=None,
):
    """Decode every value; one that cannot be decoded leaves an item without a value.

    Parameters
    ----------
    place, size, sources
        The bytes of each value, without what stands in front; a size of -1 is null.
    entry : int32 array
        Of each value the row of `entries`; a negative one is the status it gets, turned around.
    entries : int32 array of shape (writers, 2)
        First op and the one behind the last.
    ops, table, constants, nodes
        The program.
    status : uint8 array
        Filled: 0, or an index of `REASONS`, or what `entry` says.
    position : int32 array
        Filled: where in the value it failed.
    room : int
        Bytes that all columns together may take.
    where : int32 array of shape (values, 1 + lists in each other), optional
        Filled for a value that failed in the middle: the node, and the item of each list around it, the outermost first.

    Returns
    -------
    list of (int, Block, Block, Block)
        Of each node the items, their ends, data, and a byte each that says whether there is a value; None where all
        have one.

    Raises
    ------
    OverflowError
        If the columns would be larger than `room`, or one than Arrow's offsets can say: decode fewer values at a time.
        A value that alone is too large has a status of its own.
    """
    cdef _Sources held = _Sources(sources)
    cdef _Nodes made = _Nodes(nodes, room)
    cdef typed.pls_avro program
    cdef int64_t count = place.shape[0]
    cdef int32_t row
    if not (size.shape[0] == entry.shape[0] == status.shape[0] == position.shape[0] == count):
        raise ValueError("columns differ in length")
    if entries.shape[1] != 2:
        raise ValueError("an entry is two numbers")
    check_avro(ops, table, constants, nodes)
    for row in range(entries.shape[0]):
        if not 0 <= entries[row, 0] <= entries[row, 1] <= ops.shape[0]:
            raise ValueError(f"entry {row} is not sound")
    cdef _Ops checked = _Ops(ops, made)
    program.ops = checked.all
    program.table = &table[0] if table.shape[0] else NULL
    program.constants = &constants[0] if constants.shape[0] else NULL
    program.nodes = made.all
    return decoded(place, size, held, entry, made, &program, entries, NULL, status, position, where)


cdef check_protobuf(
    const int32_t[:, ::1] messages, const int32_t[:, ::1] fields, const int32_t[::1] table,
    const int32_t[:, ::1] nodes
):
    """Messages come before those in them, in the order of their nodes; fields ascend, each has a node of its width."""
    cdef int32_t i, k, rows = <int32_t>fields.shape[0], columns = <int32_t>nodes.shape[0]
    widths = {typed.PLS_PROTO_INT64: 8, typed.PLS_PROTO_SINT64: 8, typed.PLS_PROTO_FIXED64: 8, typed.PLS_PROTO_TIME: 8,
              typed.PLS_PROTO_BOOL: 1, typed.PLS_PROTO_TEXT: typed.PLS_WIDTH_BYTES,
              typed.PLS_PROTO_BYTES: typed.PLS_WIDTH_BYTES, typed.PLS_PROTO_MESSAGE: typed.PLS_WIDTH_STRUCT,
              typed.PLS_PROTO_GROUP: typed.PLS_WIDTH_STRUCT}
    if fields.shape[1] != FIELD_INTS or messages.shape[1] != MESSAGE_INTS or not messages.shape[0]:
        raise ValueError("a program of another shape")
    for i in range(messages.shape[0]):
        first, stop, node = messages[i, 0], messages[i, 1], messages[i, 2]
        good = 0 <= first <= stop <= rows and 0 <= node < columns and nodes[node, 1] == typed.PLS_WIDTH_STRUCT
        good = good and (not i or messages[i - 1, 2] < node)
        for k in range(first, stop if good else first):
            number, kind, at, flags, message = fields[k, 0], fields[k, 1], fields[k, 2], fields[k, 3], fields[k, 4]
            good = good and 0 <= kind < typed.PLS_PROTO_KINDS and (k == first or fields[k - 1, 0] < number)
            good = good and node < at < columns and 0 <= fields[k, 6] and 0 <= fields[k, 7] <= table.shape[0] - fields[k, 6]
            if good and flags & typed.PLS_PROTO_REPEATED:
                good = nodes[at, 1] == typed.PLS_WIDTH_LIST and at + 1 < nodes[at, 2]
                at += 1
            if flags & typed.PLS_PROTO_PLAIN:
                good = good and not flags & typed.PLS_PROTO_REPEATED and not fields[k, 5]
                good = good and kind <= typed.PLS_PROTO_BYTES and kind != typed.PLS_PROTO_ENUM
            good = good and nodes[at, 1] == widths.get(kind, 4)
            if good and kind in (typed.PLS_PROTO_MESSAGE, typed.PLS_PROTO_GROUP):
                good = i < message < messages.shape[0] and messages[message, 2] == at
        if not good:
            raise ValueError(f"message {i} of the program is not sound")


def decode_protobuf(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    const int32_t[::1] entry not None, const int32_t[:, ::1] messages not None, const int32_t[:, ::1] fields not None,
    const int32_t[::1] table not None, const int32_t[:, ::1] nodes not None, uint8_t[::1] status not None,
    int32_t[::1] position not None, int64_t room, int32_t[:, ::1] where=None,
):
    """Decode every value; one that cannot be decoded leaves an item without a value.

    Parameters
    ----------
    place, size, sources
        The bytes of each value, without what stands in front; a size of -1 is null.
    entry : int32 array
        Of each value 0; a negative one is the status it gets, turned around.
    messages, fields, table, nodes
        The program; the first message is that of the values.
    status, position, room, where
        As of `decode_avro`.

    Returns
    -------
    list of (int, Block, Block, Block)
        As of `decode_avro`.
    """
    cdef _Sources held = _Sources(sources)
    cdef _Nodes made = _Nodes(nodes, room)
    cdef typed.pls_proto program
    cdef int64_t count = place.shape[0]
    if not (size.shape[0] == entry.shape[0] == status.shape[0] == position.shape[0] == count):
        raise ValueError("columns differ in length")
    check_protobuf(messages, fields, table, nodes)
    if messages[0, 2] != 0:
        raise ValueError("the first message is not that of the values")
    program.messages = <const typed.pls_message *>&messages[0, 0]
    program.fields = <const typed.pls_field *>&fields[0, 0] if fields.shape[0] else NULL
    program.table = &table[0] if table.shape[0] else NULL
    program.nodes = made.all
    cdef _Kept kept = _Kept(messages, fields, made.count)
    program.message_count = <int32_t>messages.shape[0]
    program.next, program.keeps, program.seen, program.kept = kept.next, kept.keeps, kept.seen, kept.all
    return decoded(place, size, held, entry, made, NULL, None, &program, status, position, where)


cdef list decoded(
    const int64_t[::1] place, const int32_t[::1] size, _Sources held, const int32_t[::1] entry, _Nodes made,
    typed.pls_avro *avro, const int32_t[:, ::1] entries, typed.pls_proto *proto, uint8_t[::1] status, int32_t[::1] position,
    int32_t[:, ::1] where,
):
    """Decode every value by one of the programs; the lengths of columns are checked."""
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *limit
    cdef const uint8_t *at
    cdef const record.Source *source
    cdef int64_t i = 0, count = place.shape[0]
    cdef int32_t row, node, writers = 0x7FFFFFFF
    cdef int32_t *items
    cdef int what = 0
    if where is not None and not (where.shape[0] == count and where.shape[1] > made.levels):
        raise ValueError("too few columns for where a value failed")
    if avro != NULL:
        writers = <int32_t>entries.shape[0]
    with nogil:
        what = typed.pls_reserve(made.all, count)
        for i in range(count if what == typed.PLS_TYPED_OK else 0):
            position[i] = 0
            row = entry[i]
            if size[i] < 0:
                what = typed.PLS_TYPED_ABSENT
            elif row < 0:
                what = -row if -row <= typed.PLS_TYPED_ABSENT else typed.PLS_TYPED_UNKNOWN
            elif row >= writers:
                what = typed.PLS_TYPED_UNKNOWN
            else:
                p = record.locate(held.all, SOURCES, place[i], size[i])
                if p == NULL:
                    what = typed.PLS_TYPED_OUTSIDE
                else:
                    end = p + size[i]
                    source = &held.all[place[i] >> record.PLACE_SHIFT]
                    limit = source.first + source.size
                    items = NULL if where is None or where.shape[1] < 2 else &where[i, 1]
                    if avro != NULL:
                        avro.limit, avro.items = limit, items
                        what = typed.pls_avro_value(avro, entries[row, 0], entries[row, 1], p, end)
                        at, node = avro.at, avro.node
                    else:
                        proto.limit, proto.items = limit, items
                        what = typed.pls_proto_value(proto, 0, made.count, p, end)
                        at, node = proto.at, proto.node
                    if what > 0 and p <= at <= end:
                        position[i] = <int32_t>(at - p)
                        if where is not None:
                            where[i, 0] = node
            if what < 0:
                break
            status[i] = <uint8_t>what
            if what:
                what = typed.pls_blank(made.all, 0)
                if what:
                    break
        if what == typed.PLS_TYPED_OK:
            what = made.mark()
        if what == typed.PLS_TYPED_LARGE and count == 1:
            made.forget()
            status[0] = typed.PLS_TYPED_ROOM
            what = typed.pls_blank(made.all, 0)
            if what == typed.PLS_TYPED_OK:
                what = made.mark()
    if what == typed.PLS_TYPED_MEMORY:
        raise MemoryError
    if what == typed.PLS_TYPED_LARGE:
        raise OverflowError(f"the values unfold to more than {made.room} bytes: decode fewer at a time")
    return made.taken(count)


def frames(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, uint8_t[::1] kind not None,
    int64_t[::1] number not None,
):
    """What stands in front of each value: the kind, and the id or fingerprint that it has.

    Parameters
    ----------
    kind : uint8 array
        Filled with `NOTHING`, `ABSENT_VALUE`, `CONFLUENT`, `GLUE` or `SINGLE_OBJECT`.
    number : int64 array
        Filled: the id of a Confluent frame, the fingerprint of a single object.
    """
    cdef _Sources held = _Sources(sources)
    cdef const uint8_t *p
    cdef int64_t i, count = place.shape[0]
    if not (size.shape[0] == kind.shape[0] == number.shape[0] == count):
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(count):
            kind[i], number[i] = 0, 0
            if size[i] < 0:
                kind[i] = 1
                continue
            p = record.locate(held.all, SOURCES, place[i], size[i])
            if p == NULL or size[i] < CONFLUENT_BYTES:
                continue
            if p[0] == 0:
                kind[i], number[i] = 2, <int32_t>load_be32(p + 1)
            elif p[0] == 3 and size[i] >= GLUE_BYTES and (p[1] == 0 or p[1] == 5):
                kind[i] = 3
            elif p[0] == 0xC3 and p[1] == 1 and size[i] >= SINGLE_OBJECT_BYTES:
                kind[i], number[i] = 4, <int64_t>load_le64(p + 2)


def indexes(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, int64_t[::1] code not None,
    int32_t[::1] skip not None,
):
    """Read which message of a Protobuf file each value is, as Confluent writes it: a count and so many indexes.

    Parameters
    ----------
    code : int64 array
        Filled: an index a byte, the first lowest, behind a byte with their number; -1 if it cannot be read.
    skip : int32 array
        Filled with the bytes read.
    """
    cdef _Sources held = _Sources(sources)
    cdef const uint8_t *first
    cdef const uint8_t *p
    cdef int64_t i, count = place.shape[0], made
    cdef int32_t many, one, k
    if not (size.shape[0] == code.shape[0] == skip.shape[0] == count):
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(count):
            code[i], skip[i] = -1, 0
            first = p = record.locate(held.all, SOURCES, place[i], size[i]) if size[i] > 0 else NULL
            if p == NULL or read_varint(&p, first + size[i], &many) or not 0 <= many <= INDEXES:
                continue
            made = many if many else 1
            for k in range(many):
                if read_varint(&p, first + size[i], &one) or not 0 <= one <= 255:
                    made = -1
                    break
                made |= <int64_t>one << (8 * k + 8)
            code[i], skip[i] = made, <int32_t>(p - first)


def may_repeat(const int32_t[::1] ends, const int32_t[::1] offsets, const uint8_t[::1] data):
    """Whether one of the maps, which end at `ends`, may have a key twice: has, or is too long to look at each pair."""
    cdef int64_t m, i, j, first, after, size
    cdef bint found = False
    with nogil:
        for m in range(ends.shape[0] - 1):
            first, after = ends[m], ends[m + 1]
            if first < 0 or after < first or after >= offsets.shape[0] or after - first > PAIRED:
                found = True
                break
            for i in range(first, after):
                size = offsets[i + 1] - offsets[i]
                if size < 0 or offsets[i] < 0 or offsets[i + 1] > data.shape[0]:
                    found = True
                    break
                for j in range(first, i):
                    if offsets[j + 1] - offsets[j] == size and \
                            memcmp(&data[0] + offsets[i], &data[0] + offsets[j], size) == 0:
                        found = True
                        break
            if found:
                break
    return found
