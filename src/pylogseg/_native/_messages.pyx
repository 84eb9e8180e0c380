"""Columns of messages: every value of a column decoded by a program into buffers as Arrow lays them out.

Values lie at places in sources, as record columns say it (`format/records.py`); for a column of Arrow's, its offsets are
the places in its data. `format/messages/program.py` makes programs.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from pylogseg._native.kernels cimport message
from pylogseg._native.kernels cimport record_write as record
from pylogseg._native.kernels.endian cimport load_be16
from pylogseg._native.kernels.memory cimport keep_freed
from pylogseg._native.kernels.varint cimport read_uvarint

cdef enum:
    OP_INTS = 6
    TAG_INTS = 5
    NODE_INTS = 5

#: What a status means.
REASONS = (
    "",
    "the bytes end inside a field",
    "a length below -1",
    "a field that must not be null is null",
    "a count of more items than the bytes can hold",
    "tags that do not ascend",
    "a tagged field that is not as long as its size says",
    "a varint that is cut off or too long",
    "the value does not lie in its buffer",
    "a version that is not known",
    "",
    "a text of more than 32,767 bytes",
)
UNKNOWN = message.MESSAGE_UNKNOWN
ABSENT = message.MESSAGE_ABSENT


cdef class Block:
    """Memory that a column was decoded into; a read-only buffer."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>(self.data if self.data != NULL else <uint8_t *>b""), self.size, 1, flags)


cdef Block take(void **data, int64_t size):
    cdef Block made = Block.__new__(Block)
    made.data = <uint8_t *>data[0]
    made.size = size if data[0] != NULL else 0
    data[0] = NULL
    return made


cdef class _Sources:
    """The buffers that places point into, held for a call."""

    def __cinit__(self, sources):
        cdef const uint8_t[::1] view
        cdef int i
        if len(sources) > SOURCES:
            raise ValueError(f"at most {SOURCES} sources, not {len(sources)}")
        self.held = []
        for i in range(SOURCES):
            self.all[i].first = <const uint8_t *>b""
            self.all[i].size = 0
        for i, source in enumerate(sources):
            view = source
            self.held.append(view)
            if view.shape[0]:
                self.all[i].first = &view[0]
                self.all[i].size = view.shape[0]


cdef class _Nodes:
    """The columns under way; frees what was not handed over."""
    cdef message.Node *all
    cdef int32_t count

    def __cinit__(self, const int32_t[:, ::1] nodes):
        cdef int32_t k
        if nodes.shape[1] != NODE_INTS:
            raise ValueError(f"a node is {NODE_INTS} numbers, not {nodes.shape[1]}")
        self.all = <message.Node *>calloc(nodes.shape[0] + 1, sizeof(message.Node))
        if self.all == NULL:
            raise MemoryError
        self.count = <int32_t>nodes.shape[0]
        for k in range(self.count):
            self.all[k].parent, self.all[k].in_list = nodes[k, 0], nodes[k, 1]
            self.all[k].width, self.all[k].blank, self.all[k].nullable = nodes[k, 2], nodes[k, 3], nodes[k, 4]
            if not -1 <= nodes[k, 0] < k:
                raise ValueError(f"the parent of node {k} is {nodes[k, 0]}")

    def __dealloc__(self):
        cdef int32_t k
        if self.all != NULL:
            for k in range(self.count):
                free(self.all[k].data)
                free(self.all[k].ends)
                free(self.all[k].valid)
            free(self.all)

    cdef list taken(self):
        """(items, ends, data, valid) of every node."""
        cdef list found = []
        cdef message.Node *node
        cdef int32_t k
        for k in range(self.count):
            node = &self.all[k]
            found.append((
                node.count,
                take(<void **>&node.ends, (node.count + 1) * 4) if node.count else None,
                take(<void **>&node.data, node.size),
                take(<void **>&node.valid, node.count) if node.nullable else None,
            ))
        return found


cdef check_program(const int32_t[:, ::1] ops, const int32_t[:, ::1] tags, int32_t nodes):
    """Every op must name ops, tags and a node that there are, and go forward."""
    cdef int32_t i, count = <int32_t>ops.shape[0], rows = <int32_t>tags.shape[0]
    if ops.shape[1] != OP_INTS or tags.shape[1] != TAG_INTS:
        raise ValueError("a program of another shape")
    for i in range(count):
        code, node, a, b, c, d = ops[i, 0], ops[i, 1], ops[i, 2], ops[i, 3], ops[i, 4], ops[i, 5]
        good = 0 <= node < max(nodes, 1) and 0 <= code <= message.OP_SKIP
        if code == message.OP_LIST:
            good = good and c >= 1 and i < d <= count
        elif code == message.OP_MAYBE:
            good = good and i < c <= d <= count
        elif code == message.OP_TAGS:
            good = good and 0 <= a <= b <= rows
        elif code == message.OP_SKIP:
            good = good and i < d <= count
        elif code == message.OP_DEFAULT:
            good = good and a <= 8
        if not good:
            raise ValueError(f"op {i} of the program is not sound")
    for i in range(rows):
        if not (0 <= tags[i, 1] <= tags[i, 2] <= count and 0 <= tags[i, 3] <= tags[i, 4] <= count):
            raise ValueError(f"tag {i} of the program is not sound")


def decode(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    const int32_t[:, ::1] entry not None, const int16_t[::1] version not None, const int32_t[:, ::1] ops not None,
    const int32_t[:, ::1] tags not None, const int32_t[:, ::1] nodes not None, uint8_t[::1] status not None,
    int32_t[::1] rest not None, int32_t[::1] unknown_tags not None,
):
    """Decode every value; one that cannot be decoded leaves an item without a value in each column.

    Parameters
    ----------
    place, size, sources
        The bytes of each message; a size of -1 is null.
    entry : int32 array of shape (versions, 2)
        First op and the one behind the last of each version.
    version : int16 array
        Of each message.
    ops, tags, nodes : int32 arrays
        The program.
    status : uint8 array
        Filled: 0, or an index of `REASONS`.
    rest, unknown_tags : int32 arrays
        Filled: bytes behind the last field, and tagged fields that the program does not know.

    Returns
    -------
    list of (int, Block, Block, Block)
        Of each node the items, their ends, data, and a byte each that says whether there is a value;
        None where no item is null but those of messages that could not be decoded.
    """
    cdef _Sources held = _Sources(sources)
    cdef _Nodes made = _Nodes(nodes)
    cdef message.Program program
    cdef const int32_t *range_of
    cdef const record.Source *source
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t i = 0, count = place.shape[0]
    cdef int32_t versions = <int32_t>entry.shape[0]
    cdef int what = 0
    if not (size.shape[0] == version.shape[0] == status.shape[0] == rest.shape[0] == unknown_tags.shape[0] == count):
        raise ValueError("columns differ in length")
    if entry.shape[1] != 2:
        raise ValueError("an entry is two numbers")
    check_program(ops, tags, made.count)
    for k in range(versions):
        if not 0 <= entry[k, 0] <= entry[k, 1] <= ops.shape[0]:
            raise ValueError(f"the entry of version {k} is not sound")
    program.ops = <const message.Op *>&ops[0, 0] if ops.shape[0] else NULL
    program.tags = <const message.Tag *>&tags[0, 0] if tags.shape[0] else NULL
    program.nodes, program.node_count = made.all, made.count
    program.has_uuid = False
    with nogil:
        what = message.reserve(&program, count)
        for i in range(count if what == message.MESSAGE_OK else 0):
            rest[i] = unknown_tags[i] = 0
            program.unknown_tags = 0
            if size[i] < 0:
                what = message.MESSAGE_ABSENT
            elif not 0 <= version[i] < versions or entry[version[i], 0] == entry[version[i], 1] == 0:
                what = message.MESSAGE_UNKNOWN
            else:
                p = record.locate(held.all, SOURCES, place[i], size[i])
                if p == NULL:
                    what = message.MESSAGE_OUTSIDE
                else:
                    end = p + size[i]
                    source = &held.all[place[i] >> record.PLACE_SHIFT]
                    program.limit = source.first + source.size
                    range_of = &entry[version[i], 0]
                    what = message.run(&program, range_of[0], range_of[1], &p, end)
                    rest[i] = <int32_t>(end - p)
            status[i] = what
            if what == message.MESSAGE_OK:
                unknown_tags[i] = program.unknown_tags
                continue
            if what < message.MESSAGE_MEMORY:
                rest[i] = 0
                what = message.blank(&program, i)
            if what:
                break
    if what == message.MESSAGE_MEMORY:
        raise MemoryError
    if what == message.MESSAGE_LARGE:
        raise OverflowError("a column of more than 2147483647 bytes: decode fewer messages at a time")
    return made.taken()


def heads(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, bint framed,
    int32_t[::1] number not None, int32_t[::1] version not None, uint8_t[::1] skip not None,
):
    """What stands in front of each message: a number in two bytes, or frame, type and version as varints.

    Parameters
    ----------
    framed : bool
        Whether it is three varints; otherwise the version is 0.
    number, version : int32 arrays
        Filled; a number of -1 is a null, one of -2 has no head that can be read, -3 a frame of another version.
    skip : uint8 array
        Filled with the bytes of the head.
    """
    cdef _Sources held = _Sources(sources)
    cdef const uint8_t *p
    cdef const uint8_t *first
    cdef const uint8_t *end
    cdef int64_t i, count = place.shape[0]
    cdef uint32_t frame, kind, of
    if not (size.shape[0] == number.shape[0] == version.shape[0] == skip.shape[0] == count):
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(count):
            number[i], version[i], skip[i] = -2, 0, 0
            if size[i] < 0:
                number[i] = -1
                continue
            p = first = record.locate(held.all, SOURCES, place[i], size[i])
            if p == NULL:
                continue
            end = p + size[i]
            if not framed:
                if size[i] >= 2:
                    number[i], skip[i] = load_be16(p), 2
                continue
            if read_uvarint(&p, end, &frame):
                continue
            if frame != 1:
                number[i] = -3
                continue
            if read_uvarint(&p, end, &kind) or read_uvarint(&p, end, &of):
                continue
            if kind > 0x7FFF or of > 0x7FFF:
                number[i] = 0x7FFF
                continue
            number[i], version[i], skip[i] = <int32_t>kind, <int32_t>of, <uint8_t>(p - first)


keep_freed()
