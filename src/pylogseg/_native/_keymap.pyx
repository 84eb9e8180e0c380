"""The table of keys of a compaction, filled from record columns and looked up for them.

Spans are checked against their sources, as in `_records`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pylogseg._native.kernels cimport record_write as record
from pylogseg._native.kernels.batch cimport prefetch
from pylogseg._native.kernels.keymap cimport (
    BEYOND, BLOCK, LAST, NO_KEY, OLDER, Slot, Table, fetch, find, is_last, open_table,
)
from pylogseg._native.kernels.places cimport SOURCES, Source, hold
from pylogseg._native.kernels.siphash cimport Hash, siphash_many

cdef struct Keys:
    const int64_t *place
    const int32_t *size
    const int64_t *offset
    int64_t count
    Source[SOURCES] sources


cdef int open_spans(Keys *keys, const int64_t[::1] place, const int32_t[::1] size) except -1:
    keys.count = place.shape[0]
    if size.shape[0] != keys.count:
        raise ValueError("columns differ in length")
    if keys.count:
        keys.place, keys.size = &place[0], &size[0]
    return 0


cdef int open_keys(
    Keys *keys, const int64_t[::1] place, const int32_t[::1] size, const int64_t[::1] offset
) except -1:
    open_spans(keys, place, size)
    if offset.shape[0] != keys.count:
        raise ValueError("columns differ in length")
    if keys.count:
        keys.offset = &offset[0]
    return 0


cdef inline int64_t hash_spans_of(const Keys *keys, const Table *table, int64_t first, int64_t count, Hash *hashes) noexcept nogil:
    """Hash spans; return how many: fewer than `count` if a place is outside of its source."""
    cdef const uint8_t *key[BLOCK]
    cdef int64_t size[BLOCK]
    cdef int64_t i, ahead
    for i in range(count):
        ahead = first + i + BLOCK
        if ahead < keys.count:
            prefetch(record.locate(keys.sources, SOURCES, keys.place[ahead], 0))
        size[i] = keys.size[first + i]
        if size[i] < 0:                        # no key: its hash is not used
            size[i] = 0
            key[i] = <const uint8_t *>b""
            continue
        key[i] = record.locate(keys.sources, SOURCES, keys.place[first + i], size[i])
        if key[i] == NULL:
            count = i
            break
    siphash_many(key, size, count, table.k0, table.k1, hashes)
    return count


cdef inline int64_t hash_block(const Keys *keys, const Table *table, int64_t first, int64_t count, Hash *hashes) noexcept nogil:
    """Hash keys, and have their slots at hand; return how many, as `hash_spans_of`."""
    cdef int64_t i
    count = hash_spans_of(keys, table, first, count, hashes)
    for i in range(count):
        fetch(table, &hashes[i])
    return count


def put(
    table not None, secret not None, int64_t used, int64_t limit, int64_t start_offset,
    const int64_t[::1] key_place not None, const int32_t[::1] key_size not None, const int64_t[::1] offset not None,
    sources not None, int64_t first, uint64_t part_mask=0, uint64_t part=0,
):
    """Put the offset of each key into the table, from record `first` on, until a new key exceeds the limit of `used`.

    Only keys of a part are put in: those whose second half of the hash, under a mask, is `part`.

    Returns
    -------
    (record, used) : tuple of int
        The first record that was not put in, or the number of records; the number of keys in the table.
    """
    cdef Table t
    cdef Keys keys
    cdef Hash[BLOCK] hashes
    cdef Slot *slot
    cdef int64_t i = first, j, count, ahead
    cdef bint full = False
    cdef list held = hold(sources, keys.sources)
    open_table(&t, table, secret)
    open_keys(&keys, key_place, key_size, offset)
    if not 0 <= first <= keys.count or limit > <int64_t>t.count:
        raise ValueError("a record or a limit is out of range")
    with nogil:
        while i < keys.count and not full:
            ahead = keys.count - i if keys.count - i < BLOCK else BLOCK
            count = hash_block(&keys, &t, i, ahead, hashes)
            for j in range(count):
                if keys.size[i + j] < 0 or keys.offset[i + j] < start_offset:
                    continue
                if hashes[j].second & part_mask != part:
                    continue
                if used >= limit:
                    full = True
                    i += j
                    break
                slot = find(&t, &hashes[j])
                if slot == NULL:               # the table has more keys than `used`
                    full = True
                    i += j
                    break
                if slot.offset == 0:
                    slot.first, slot.second = hashes[j].first, hashes[j].second
                    used += 1
                slot.offset = <uint64_t>keys.offset[i + j] + 1
            if not full:
                i += count
                if count < ahead:
                    break
    if not full and i < keys.count:
        raise ValueError(f"the key of record {i} lies outside of its buffer")
    return i, used


def classify(
    table not None, secret not None, int64_t latest_offset,
    const int64_t[::1] key_place not None, const int32_t[::1] key_size not None, const int64_t[::1] offset not None,
    sources not None, uint8_t[::1] verdict not None,
):
    """Classify records: 0 a later one has its key, 1 none has, 2 it is after `latest_offset`, 3 it has no key."""
    cdef Table t
    cdef Keys keys
    cdef Hash[BLOCK] hashes
    cdef int64_t i = 0, j, count, ahead
    cdef list held = hold(sources, keys.sources)
    open_table(&t, table, secret)
    open_keys(&keys, key_place, key_size, offset)
    if verdict.shape[0] != keys.count:
        raise ValueError("columns differ in length")
    with nogil:
        while i < keys.count:
            ahead = keys.count - i if keys.count - i < BLOCK else BLOCK
            count = hash_block(&keys, &t, i, ahead, hashes)
            for j in range(count):
                if keys.offset[i + j] > latest_offset:
                    verdict[i + j] = BEYOND
                elif keys.size[i + j] < 0:
                    verdict[i + j] = NO_KEY
                else:
                    verdict[i + j] = LAST if is_last(&t, &hashes[j], keys.offset[i + j]) else OLDER
            i += count
            if count < ahead:
                break
    if i < keys.count:
        raise ValueError(f"the key of record {i} lies outside of its buffer")


def hash_spans(
    secret not None, const int64_t[::1] place not None, const int32_t[::1] size not None, sources not None,
    uint64_t[::1] out not None,
):
    """Mix the hash of each span into a number that is already in `out`; one of size -1 (null) is told from an empty one.

    So hashes of several columns become one, which depends on the order of the columns.
    """
    cdef Table t
    cdef Keys keys
    cdef Hash[BLOCK] hashes
    cdef int64_t i = 0, j, count, ahead
    cdef uint64_t mixed
    cdef list held = hold(sources, keys.sources)
    t.k0, t.k1 = secret
    open_spans(&keys, place, size)
    if out.shape[0] != keys.count:
        raise ValueError("columns differ in length")
    with nogil:
        while i < keys.count:
            ahead = keys.count - i if keys.count - i < BLOCK else BLOCK
            count = hash_spans_of(&keys, &t, i, ahead, hashes)
            for j in range(count):
                mixed = out[i + j] * <uint64_t>0x9E3779B97F4A7C15 + <uint64_t>1
                mixed ^= mixed >> 29
                out[i + j] = mixed ^ (hashes[j].second if keys.size[i + j] < 0 else hashes[j].first)
            i += count
            if count < ahead:
                break
    if i < keys.count:
        raise ValueError(f"span {i} lies outside of its buffer")


def rehash(old not None, new not None):
    """Move the keys of a table into a larger, empty one."""
    cdef Table source, target
    cdef Hash hash
    cdef Slot *slot
    cdef uint64_t i
    cdef bint full = False
    open_table(&source, old, (0, 0))
    open_table(&target, new, (0, 0))
    if target.count < source.count:
        raise ValueError("the new table is smaller than the old one")
    with nogil:
        for i in range(source.count):
            if source.slots[i].offset:
                hash.first, hash.second = source.slots[i].first, source.slots[i].second
                slot = find(&target, &hash)
                if slot == NULL:
                    full = True
                    break
                slot[0] = source.slots[i]
    if full:
        raise ValueError("the new table is full: it must be empty")
