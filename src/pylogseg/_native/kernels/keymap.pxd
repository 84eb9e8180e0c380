"""A flat table from the hash of a key to the last offset of that key, in memory of the caller.

An array of bytes, 24 for each slot; zeros are an empty slot.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from pylogseg._native.kernels.batch cimport prefetch
from pylogseg._native.kernels.siphash cimport Hash

cdef enum:
    BLOCK = 64             # keys hashed ahead, so that their slots are prefetched before they are read

cdef enum:
    OLDER = 0              # a later record has the same key
    LAST = 1               # no later record has it
    BEYOND = 2             # after the offsets that the table covers
    NO_KEY = 3

cdef struct Slot:
    uint64_t first
    uint64_t second
    uint64_t offset        # + 1; 0 is an empty slot

cdef struct Table:
    Slot *slots
    uint64_t count
    uint64_t k0
    uint64_t k1

cdef struct Bits:          # one for each offset from `first` on
    uint8_t *bytes
    int64_t first
    int64_t count


cdef inline int open_table(Table *table, uint8_t[::1] raw, secret) except -1:
    if raw.shape[0] < <Py_ssize_t>sizeof(Slot) or raw.shape[0] // <Py_ssize_t>sizeof(Slot) > 0x7FFFFFFF:
        raise ValueError(f"invalid size of a table: {raw.shape[0]} bytes")
    table.slots = <Slot *>&raw[0]
    table.count = <uint64_t>(raw.shape[0] // <Py_ssize_t>sizeof(Slot))
    table.k0, table.k1 = secret
    return 0


cdef inline Slot *home(const Table *table, const Hash *hash) noexcept nogil:
    return table.slots + (((hash.first >> 32) * table.count) >> 32)


cdef inline void fetch(const Table *table, const Hash *hash) noexcept nogil:
    cdef Slot *slot = home(table, hash)
    prefetch(slot)
    prefetch(&slot.offset)                 # it may be in the next cache line


cdef inline Slot *find(const Table *table, const Hash *hash) noexcept nogil:
    """Return the slot of a hash, or the empty slot for it; NULL if a full table does not have it."""
    cdef Slot *slot = home(table, hash)
    cdef Slot *end = table.slots + table.count
    cdef uint64_t looked
    for looked in range(table.count):
        if slot.offset == 0 or (slot.first == hash.first and slot.second == hash.second):
            return slot
        slot += 1
        if slot == end:
            slot = table.slots
    return NULL


cdef inline bint is_last(const Table *table, const Hash *hash, int64_t offset) noexcept nogil:
    cdef Slot *slot = find(table, hash)
    return slot == NULL or <uint64_t>offset + 1 >= slot.offset


cdef inline void set_bit(const Bits *bits, int64_t offset) noexcept nogil:
    """Set the bit of an offset, if there is one."""
    cdef uint64_t i = <uint64_t>offset - <uint64_t>bits.first
    if i < <uint64_t>bits.count:
        bits.bytes[i >> 3] |= <uint8_t>(1 << (i & 7))


cdef inline bint has_bit(const Bits *bits, int64_t offset) noexcept nogil:
    """Return the bit of an offset that has one."""
    cdef uint64_t i = <uint64_t>offset - <uint64_t>bits.first
    return bits.bytes[i >> 3] >> (i & 7) & 1


cdef inline bint all_set(const Bits *bits, int64_t first, int64_t last) noexcept nogil:
    """Return whether all offsets of a range, which have bits, have them set."""
    cdef uint64_t i = <uint64_t>first - <uint64_t>bits.first, end = <uint64_t>last - <uint64_t>bits.first + 1
    while i < end and i & 7:
        if not bits.bytes[i >> 3] >> (i & 7) & 1:
            return False
        i += 1
    while end - i >= 8:
        if bits.bytes[i >> 3] != 0xFF:
            return False
        i += 8
    while i < end:
        if not bits.bytes[i >> 3] >> (i & 7) & 1:
            return False
        i += 1
    return True
