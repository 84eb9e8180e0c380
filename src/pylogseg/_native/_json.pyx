"""Values in JSON: as columns where nothing in them is unusual, and as lines for a reader of such.

Values lie at places in sources, as for `_typed`. `values/typed_json.py` makes the parts of a schema.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from pylogseg._native._messages cimport SOURCES, _Sources, take
from pylogseg._native._typed cimport _Nodes
from pylogseg._native.kernels cimport json
from pylogseg._native.kernels cimport record_write as record
from pylogseg._native.kernels cimport typed

cdef enum:
    PART_INTS = 5


def lines(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, uint8_t[::1] status not None,
    bint bare, uint8_t mismatch, int64_t[::1] ends not None,
):
    """Values in JSON as lines, for a reader of such, without the space between tokens.

    Parameters
    ----------
    status : uint8 array
        Values with another status than 0 are skipped; filled for those that are no JSON in UTF-8.
    bare : bool
        A line is the value as it is, which has to be an object: nulls have no line, others get the status `mismatch`.
        Otherwise a line is an object that has the value as ``v``.
    ends : int64 array
        Filled: where the line of each value begins, and the end of the last.

    Returns
    -------
    Block
    """
    cdef _Sources held = _Sources(sources)
    cdef const record.Source *source
    cdef const uint8_t *p
    cdef uint8_t *out
    cdef uint8_t *first
    cdef void *made
    cdef int64_t i, total = 0, room = 16, count = place.shape[0]
    if not (size.shape[0] == status.shape[0] == ends.shape[0] - 1 == count):
        raise ValueError("columns differ in length")
    for i in range(count):
        if status[i] == typed.PLS_TYPED_OK and size[i] > 0:
            room += <int64_t>size[i] + 7
    made = malloc(room)
    if made == NULL:
        raise MemoryError
    with nogil:
        first = <uint8_t *>made
        for i in range(count):
            ends[i] = total
            if status[i] != typed.PLS_TYPED_OK:
                continue
            p = record.locate(held.all, SOURCES, place[i], size[i]) if size[i] >= 0 else NULL
            if p == NULL:
                status[i] = typed.PLS_TYPED_OUTSIDE
                continue
            if not size[i]:
                status[i] = typed.PLS_TYPED_JSON
                continue
            source = &held.all[place[i] >> record.PLACE_SHIFT]
            out = first + total
            if not bare:
                memcpy(out, b'{"v":', 5)
                out += 5
            out = json.pls_json_compact(p, p + size[i], source.first + source.size, out)
            if out == NULL:
                status[i] = typed.PLS_TYPED_JSON
                continue
            if bare and first[total] != b"{":
                if first[total] != b"n":
                    status[i] = mismatch
                continue
            if not bare:
                out[0] = b"}"
                out += 1
            out[0] = b"\n"
            total = out + 1 - first
        ends[count] = total
    return take(&made, total)


cdef check_parts(const int32_t[:, ::1] parts, int64_t names):
    """Parts are behind those they are in, and have their names among so many bytes."""
    cdef int32_t k
    if parts.shape[1] != PART_INTS or not parts.shape[0]:
        raise ValueError("parts of another shape")
    for k in range(parts.shape[0]):
        kind, first, many, name, wide = parts[k, 0], parts[k, 1], parts[k, 2], parts[k, 3], parts[k, 4]
        good = 0 <= kind < json.PLS_JSON_KINDS and 0 <= name <= names - wide and wide >= 0
        if kind in (json.PLS_JSON_OBJECT, json.PLS_JSON_LIST):
            good = good and k < first <= parts.shape[0] - many and many >= 0
            good = good and (kind == json.PLS_JSON_OBJECT or many == 1)
        if not good:
            raise ValueError(f"part {k} is not sound")


def with_parts(
    lines not None, const int64_t[::1] ends not None, int32_t before, int32_t behind, const int32_t[:, ::1] parts not None,
    const uint8_t[::1] names not None, int64_t[::1] made_ends not None,
):
    """Lines of `lines` again, in which values that have no type are strings that hold their JSON, digit by digit.

    Parameters
    ----------
    lines : buffer
        JSON without space between its tokens.
    ends : int64 array
        Where the line of each value begins, and the end of the last.
    before, behind : int
        Bytes of a line around its value.
    parts : int32 array of shape (parts, 5)
        The first is the value itself. Kind (1 object, 2 list, 3 without a type, others as they are), the first part of
        those in it and their number, and place and size of its name in `names`; those of an object stand in the order
        of their names, by bytes.
    made_ends : int64 array
        Filled as `ends`, for what is returned.

    Returns
    -------
    Block
    """
    cdef const uint8_t[::1] data = lines
    cdef int64_t i, total = 0, count = ends.shape[0] - 1, size = data.shape[0]
    cdef const uint8_t *p
    cdef uint8_t *out
    cdef void *made
    check_parts(parts, names.shape[0])
    if made_ends.shape[0] != count + 1 or before < 0 or behind < 0:
        raise ValueError("columns differ in length")
    made = malloc(3 * size + 16)  # of a byte at most three: its quotes
    if made == NULL:
        raise MemoryError
    try:
        with nogil:
            for i in range(count):
                made_ends[i] = total
                if ends[i] == ends[i + 1]:
                    continue
                if not 0 <= ends[i] <= ends[i + 1] - before - behind or ends[i + 1] > size:
                    with gil:
                        raise ValueError(f"line {i} is not sound")
                p = &data[0] + ends[i]
                out = <uint8_t *>made + total
                memcpy(out, p, before)
                p += before
                out = json.pls_json_parts(
                    <const json.pls_json_part *>&parts[0, 0], &names[0] if names.shape[0] else NULL, 0, &p,
                    &data[0] + ends[i + 1] - behind, out + before,
                )
                memcpy(out, &data[0] + ends[i + 1] - behind, behind)
                total = out + behind - <uint8_t *>made
            made_ends[count] = total
        return take(&made, total)
    finally:
        free(made)


#: The width of the node of a kind of part.
cdef dict WIDTHS = {
    json.PLS_JSON_OBJECT: typed.PLS_WIDTH_STRUCT, json.PLS_JSON_LIST: typed.PLS_WIDTH_LIST,
    json.PLS_JSON_ANY: typed.PLS_WIDTH_BYTES, json.PLS_JSON_STRING: typed.PLS_WIDTH_BYTES, json.PLS_JSON_INTEGER: 8,
    json.PLS_JSON_NUMBER: 8, json.PLS_JSON_BOOLEAN: 1, json.PLS_JSON_NULL: typed.PLS_WIDTH_NULL,
}


cdef check_nodes(const int32_t[:, ::1] parts, const int32_t[::1] part_nodes, const int32_t[:, ::1] nodes):
    """Parts stand level by level, and each has a node of its own: of its kind's width, in that of the part around it."""
    cdef int32_t k, i, behind = 1
    if not part_nodes.shape[0] == parts.shape[0] == nodes.shape[0] == len(set(part_nodes)) or part_nodes[0]:
        raise ValueError("the nodes of parts are not sound")
    for k in range(parts.shape[0]):
        if not 0 <= part_nodes[k] < nodes.shape[0] or nodes[part_nodes[k], 1] != WIDTHS.get(parts[k, 0]):
            raise ValueError(f"the node of part {k} is not sound")
        if parts[k, 0] in (json.PLS_JSON_OBJECT, json.PLS_JSON_LIST):
            if parts[k, 1] != behind:
                raise ValueError(f"part {k} is not sound")
            behind += parts[k, 2]
            for i in range(parts[k, 1], behind):
                if not 0 <= part_nodes[i] < nodes.shape[0] or nodes[part_nodes[i], 0] != part_nodes[k]:
                    raise ValueError(f"the node of part {i} is not sound")
    if behind != parts.shape[0]:
        raise ValueError("parts are not sound")


def decode(
    const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None, const uint8_t[::1] status not None,
    const int32_t[:, ::1] parts not None, const int32_t[::1] part_nodes not None, const uint8_t[::1] names not None,
    const int32_t[:, ::1] nodes not None, int64_t room, int64_t value_bytes, int64_t object_bytes, uint8_t[::1] taken not None,
):
    """Decode the values in which there is nothing unusual; the others leave an item without a value.

    Parameters
    ----------
    status : uint8 array
        Values with another status than 0 are skipped.
    parts, names
        As of `with_parts`, with a kind for each type; behind `names` are 16 bytes more.
    part_nodes : int32 array
        The node of each part.
    room, value_bytes, object_bytes : int
        What all values may unfold to, and what each of them, and each object in them, may add to that beside three
        times its bytes.
    taken : uint8 array
        Filled: 1 for a value that was decoded.

    Returns
    -------
    list of (int, Block, Block, Block) or None
        As of `decode_avro`; None if there may be too little room.
    """
    cdef _Sources held = _Sources(sources)
    cdef _Nodes made = _Nodes(nodes, room)
    cdef json.pls_json_values g
    cdef const record.Source *source
    cdef const uint8_t *p
    cdef uint8_t *spare = NULL
    cdef int64_t i, count = place.shape[0], left = room
    cdef int what = typed.PLS_TYPED_OK
    if not (size.shape[0] == status.shape[0] == taken.shape[0] == count):
        raise ValueError("columns differ in length")
    check_parts(parts, names.shape[0] - 16)
    check_nodes(parts, part_nodes, nodes)
    g.next = <int32_t *>malloc(2 * parts.shape[0] * sizeof(int32_t))
    try:
        if g.next == NULL:
            raise MemoryError
        g.parts, g.place, g.names, g.nodes = <const json.pls_json_part *>&parts[0, 0], &part_nodes[0], &names[0], made.all
        memset(g.next, 0xFF, 2 * parts.shape[0] * sizeof(int32_t))  # -1: none is expected
        with nogil:
            what = typed.pls_reserve(made.all, count)
            for i in range(count if what == typed.PLS_TYPED_OK else 0):
                taken[i] = 0
                p = NULL
                if status[i] == typed.PLS_TYPED_OK and size[i] > 0:
                    p = record.locate(held.all, SOURCES, place[i], size[i])
                if p != NULL:
                    left -= 3 * <int64_t>size[i] + value_bytes
                    if object_bytes:
                        left -= object_bytes * json.pls_count_byte(p, size[i], b"{")
                    if left < 0:
                        what = typed.PLS_TYPED_LARGE
                        break
                    source = &held.all[place[i] >> record.PLACE_SHIFT]
                    if source.first + source.size - (p + size[i]) < json.PLS_JSON_AHEAD:
                        free(spare)
                        spare = <uint8_t *>malloc(<size_t>size[i] + json.PLS_JSON_AHEAD)
                        if spare == NULL:
                            what = typed.PLS_TYPED_MEMORY
                            break
                        memcpy(spare, p, size[i])
                        memset(spare + size[i], 0, json.PLS_JSON_AHEAD)
                        p = spare
                    taken[i] = <uint8_t>json.pls_json_take_value(&g, p, p + size[i])
                    if taken[i]:
                        continue
                    what = g.what
                    if what:
                        break
                    typed.pls_cut(made.all, 0, i)
                what = typed.pls_blank(made.all, 0)
                if what:
                    break
            if what == typed.PLS_TYPED_OK:
                what = made.mark()
    finally:
        free(g.next)
        free(spare)
    if what == typed.PLS_TYPED_MEMORY:
        raise MemoryError
    return None if what == typed.PLS_TYPED_LARGE else made.taken(count)
