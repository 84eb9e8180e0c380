"""Floor and ceiling search in place over the big-endian entries of a mapped index."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from pylogseg._native.kernels.endian cimport load_be32, load_be64


cdef inline int64_t entry_key(const uint8_t *p, int key_size) noexcept nogil:
    return <int64_t>load_be64(p) if key_size == 8 else <int32_t>load_be32(p)


cdef inline int64_t first_at_least(const uint8_t *keys, int64_t stride, int key_size, int64_t count, int64_t key) noexcept nogil:
    """Return the slot of the first entry whose key is not below `key`, else `count`. `keys` points to the first key."""
    cdef int64_t low = 0, half
    while count > 0:
        half = count >> 1
        # Written so that compilers emit a conditional move: a mispredicted branch costs more than the load.
        if entry_key(keys + (low + half) * stride, key_size) < key:
            low += half + 1
            count -= half + 1
        else:
            count = half
    return low


cdef inline int64_t floor_slot(const uint8_t *keys, int64_t stride, int key_size, int64_t count, int64_t key) noexcept nogil:
    """Return the slot of the last entry whose key is not above `key`, else -1."""
    cdef int64_t slot
    if key == INT64_MAX:
        return count - 1
    slot = first_at_least(keys, stride, key_size, count, key + 1)
    return slot - 1


cdef inline int64_t brokers_slot(const uint8_t *keys, int64_t stride, int key_size, int64_t count, int64_t key, int64_t warm, bint ceiling) noexcept nogil:
    """Return the slot that a broker finds, by its steps, which matter if entries are unsorted or duplicate.

    The last `warm` entries are searched first. A floor is -1 if the first entry is above `key`. A ceiling is -1 if there
    is none, and may be the entry after an equal one.
    """
    cdef int64_t low = 0, high, middle, found
    if count == 0:
        return -1
    high = count - 1 - warm if count - 1 > warm else 0
    if entry_key(keys + high * stride, key_size) < key:
        low = high
        high = count - 1
    elif entry_key(keys, key_size) > key:
        return 0 if ceiling else -1
    while low < high:
        middle = (low + high + 1) >> 1
        found = entry_key(keys + middle * stride, key_size)
        if found > key:
            high = middle - 1
        elif found < key:
            low = middle
        else:
            return middle
    if not ceiling:
        return low
    return -1 if low == count - 1 else low + 1


cdef enum:
    LANES = 8              # parallel searches: enough for their cache misses to overlap


cdef inline void count_below(const uint8_t *keys, int64_t stride, int key_size, int64_t count, const int64_t *searched, bint or_equal, int64_t *below) noexcept nogil:
    """Count, for each of `LANES` keys, the entries that are below or equal."""
    cdef int64_t half, entry
    cdef int lane
    for lane in range(LANES):
        below[lane] = 0
    while count > 0:
        # All lanes take the same halves, so a comparison only decides where the next one looks.
        half = (count + 1) >> 1
        for lane in range(LANES):
            entry = entry_key(keys + (below[lane] + half - 1) * stride, key_size)
            below[lane] += half & -<int64_t>((entry < searched[lane]) | (or_equal & (entry == searched[lane])))
        count -= half
