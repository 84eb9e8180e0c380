"""The two passes of a cleaning over plain batches, which most are: their keys into the table, and what is kept of them.

A plain batch is of magic 2, not compressed, and neither of a transaction nor a control batch. Each pass reads a file in
pieces, checks, walks and writes a batch while the cache has it, and ends before the first batch that is anything but a
good plain one, or that does not fit: whoever called it looks at that batch in the general way, and says what is wrong.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels cimport record_write as writing
from pylogseg._native.kernels.keymap cimport (
    BLOCK, Bits, Slot, Table, all_set, fetch, find, has_bit, is_last, open_table, set_bit,
)
from pylogseg._native.kernels.places cimport Source
from pylogseg._native.kernels.producer cimport TRANSACTIONAL
from pylogseg._native.kernels.reading cimport Reading, begin_reading, next_batch
from pylogseg._native.kernels.siphash cimport Hash, siphash_many

import numpy as np

checksum.pls_crc_init()
record.pls_copies_init(True)

cdef enum:
    SLOTS = 1 << 16        # the most records of a batch that the second pass takes
    NEAR = 256             # records that are decoded before their keys are put in
    SLOT_BYTES = 57        # nine columns, and a verdict

cdef extern from *:
    const int64_t HIGHEST_OFFSET "INT64_MAX"

cdef enum:
    KEPT_ATTRIBUTES = header.CODEC_MASK | header.LOG_APPEND_TIME | TRANSACTIONAL | header.CONTROL


cdef class Pass:
    """Memory for the columns of one batch, and what the calls of a pass share: where it reads, and the table.

    Parameters
    ----------
    memory : uint8 array
        For what is read; overwritten by each call.
    piece_bytes : int
        Bytes that are read at a time.
    """
    cdef record.Columns columns
    cdef uint8_t *verdict
    cdef uint8_t *slots
    cdef uint8_t[::1] memory
    cdef int64_t piece_bytes

    def __cinit__(self, uint8_t[::1] memory not None, int64_t piece_bytes):
        cdef record.Columns *c = &self.columns
        cdef uint8_t *p = <uint8_t *>malloc(<size_t>SLOTS * SLOT_BYTES)
        self.slots = p
        if p == NULL:
            raise MemoryError
        if piece_bytes < 1 or not memory.shape[0]:
            raise ValueError(f"pieces of {piece_bytes} bytes in a memory of {memory.shape[0]}")
        self.memory, self.piece_bytes = memory, piece_bytes
        memset(c, 0, sizeof(c[0]))
        c.offset, c.timestamp = <int64_t *>p, <int64_t *>(p + 8 * SLOTS)
        c.key_place, c.value_place = <int64_t *>(p + 16 * SLOTS), <int64_t *>(p + 24 * SLOTS)
        c.headers_place = <int64_t *>(p + 32 * SLOTS)
        c.key_size, c.value_size = <int32_t *>(p + 40 * SLOTS), <int32_t *>(p + 44 * SLOTS)
        c.header_count, c.batch = <int32_t *>(p + 48 * SLOTS), <int32_t *>(p + 52 * SLOTS)
        self.verdict = p + 56 * SLOTS

    def __dealloc__(self):
        free(self.slots)

    cdef bint begin(self, Reading *reading, int file, int64_t size, int64_t position) noexcept:
        """Begin to read a file of that size, or memory that begins at the position and has bytes up to the size."""
        cdef int64_t left = min(size - position, <int64_t>self.memory.shape[0])
        if position < 0 or left <= 0:
            return False
        begin_reading(reading, file, position, &self.memory[0], left, self.piece_bytes)
        return True


cdef int open_bits(Bits *bits, uint8_t[::1] raw, int64_t first) except -1:
    bits.bytes = &raw[0] if raw.shape[0] else NULL
    bits.first, bits.count = first, 8 * <int64_t>raw.shape[0]
    return 0


cdef inline const uint8_t *next_plain(Reading *reading, header.BatchRow *row, record.Walk *walk) noexcept nogil:
    """Return the next batch, its header and where its records are; NULL if it is not a good plain one."""
    cdef int64_t length = 0
    cdef const uint8_t *p = next_batch(reading, row, &length)
    if p == NULL or row.attributes & (header.CODEC_MASK | TRANSACTIONAL | header.CONTROL):
        return NULL
    walk.p, walk.end = p + header.V2_HEADER, p + length
    walk.origin, walk.source = reading.base, 0
    if row.count < 0 or row.count > record.room_for(row, walk.end - walk.p):
        return NULL
    return p


cdef struct Near:          # keys of records that are decoded, and hashed, before anything is done with them
    const uint8_t *key[NEAR]
    int64_t size[NEAR]
    int64_t offset[NEAR]
    Hash hash[NEAR]


cdef inline void hash_and_fetch(const Table *table, Near *near, int64_t count) noexcept nogil:
    """Hash keys, and have their slots on the way."""
    cdef int64_t done = 0, block, k
    while done < count:
        block = min(count - done, BLOCK)
        siphash_many(near.key + done, near.size + done, block, table.k0, table.k1, near.hash + done)
        for k in range(done, done + block):
            fetch(table, &near.hash[k])
        done += block


cdef inline bint put_keys(const Table *table, Near *near, int64_t count, const Bits *older, int64_t *used) noexcept nogil:
    """Put hashed keys into a table that has room for them; return False if it has not."""
    cdef Slot *slot
    cdef int64_t k
    cdef uint64_t behind
    for k in range(count):
        slot = find(table, &near.hash[k])
        if slot == NULL:                       # the table has more keys than `used`
            return False
        behind = <uint64_t>near.offset[k] + 1
        if slot.offset == 0:
            slot.first, slot.second = near.hash[k].first, near.hash[k].second
            used[0] += 1
        elif slot.offset < behind:
            set_bit(older, <int64_t>(slot.offset - 1))
        slot.offset = behind
    return True


cdef inline int64_t choose(
    Near *near, int64_t records, const header.BatchRow *row, int64_t start_offset, int64_t *previous, bint *in_order
) noexcept nogil:
    """Move the keys from an offset on to the front; return how many. Look whether the offsets ascend; not of 0 records."""
    cdef int64_t i, offset, count = 0
    cdef uint64_t signs = <uint64_t>near.offset[0] - <uint64_t>previous[0] - 1
    for i in range(records):                   # sign bits only, so that the compiler vectorizes the loop
        signs |= <uint64_t>near.size[i] | <uint64_t>near.offset[i]
    for i in range(1, records):
        signs |= <uint64_t>near.offset[i] - <uint64_t>near.offset[i - 1] - 1
    if (
        not signs >> 63 and near.offset[0] >= start_offset and near.offset[0] >= row.base_offset
        and near.offset[records - 1] <= row.last_offset
    ):
        previous[0] = near.offset[records - 1]
        return records
    for i in range(records):
        offset = near.offset[i]
        if offset < start_offset:
            continue
        in_order[0] &= previous[0] < offset and row.base_offset <= offset <= row.last_offset
        previous[0] = offset
        near.key[count], near.size[count], near.offset[count] = near.key[i], near.size[i], offset
        count += near.size[i] >= 0
    return count


def put_plain(
    int file, int64_t size, int64_t position, Pass passing not None, uint8_t[::1] table not None, secret not None,
    int64_t used, int64_t limit, int64_t start_offset, uint8_t[::1] older not None, int64_t older_first,
    int64_t previous,
):
    """Put the offset of each key of plain batches into the table, as `_keymap.put` does.

    Parameters
    ----------
    file, size, position : int
        A descriptor and its size, and where to read. File -1: the memory has the bytes from that position to the size.
    table, secret, used, start_offset
        As of `_keymap.put`.
    limit : int
        It ends before a batch with more records than the table has room for, which may have as many new keys.
    older : uint8 array
        Bits for the offsets from `older_first` on: set for each whose key has a later one.
    previous : int
        The offset of the record before.

    Returns
    -------
    done, records : int
        Bytes and records of the batches.
    latest : int
        The last offset of the last of those batches that reach `start_offset`; -1 if none does.
    used : int
        Keys in the table.
    previous : int
        The offset of the last record; the greatest there can be if offsets from `start_offset` on do not ascend, or one
        is outside of what its batch says.
    is_full : bool
        Whether the limit ended it.
    """
    cdef Table t
    cdef Bits bits
    cdef Reading reading
    cdef record.Walk walk
    cdef record.Columns columns = passing.columns
    cdef header.BatchRow row
    cdef Near near[2]          # keys wait for their slots while the next ones are decoded
    cdef int64_t records = 0, latest = -1, left, count, waiting = 0
    cdef int now = 0
    cdef bint is_full = False, has_room = True, in_order = True
    open_table(&t, table, secret)
    open_bits(&bits, older, older_first)
    if limit > <int64_t>t.count:
        raise ValueError("a limit is out of range")
    if not passing.begin(&reading, file, size, position):
        return 0, 0, -1, used, previous, False
    with nogil:
        while next_plain(&reading, &row, &walk) != NULL:
            if row.count > limit - used - waiting:
                has_room &= put_keys(&t, &near[1 - now], waiting, &bits, &used)
                waiting = 0
                is_full = row.count > limit - used
                if is_full:
                    break
            left = row.count
            while left:
                count = min(left, NEAR)
                if record.decode_keys(
                    &walk, &row, &columns, count, near[now].key, near[now].size, near[now].offset
                ) != record.RECORD_OK:
                    break
                left -= count
                has_room &= put_keys(&t, &near[1 - now], waiting, &bits, &used)
                waiting = choose(&near[now], count, &row, start_offset, &previous, &in_order)
                hash_and_fetch(&t, &near[now], waiting)
                now = 1 - now
            if left or (row.count and walk.p != walk.end):
                break
            records += row.count
            if row.last_offset >= start_offset:
                latest = row.last_offset
            reading.done += row.size
        has_room &= put_keys(&t, &near[1 - now], waiting, &bits, &used)
    if not has_room:
        raise ValueError("the table has more keys than it was said to have")
    return reading.done, records, latest, used, previous if in_order else HIGHEST_OFFSET, is_full


cdef struct Rule:
    Table table
    Bits older
    int64_t latest_offset
    int64_t horizon_ms
    int64_t round_end
    const int64_t *producers
    const int64_t *last_offsets
    int64_t producer_count


cdef inline bint stays_empty(const Rule *rule, const header.BatchRow *row) noexcept nogil:
    """Return whether a batch is kept even without records."""
    cdef int64_t low = 0, high = rule.producer_count, middle
    if <int64_t>(<uint64_t>row.last_offset + 1) == rule.round_end:
        return True
    while low < high:
        middle = (low + high) >> 1
        if rule.last_offsets[middle] < row.last_offset:
            low = middle + 1
        else:
            high = middle
    while low < rule.producer_count and rule.last_offsets[low] == row.last_offset:
        if rule.producers[low] == row.producer_id:
            return True
        low += 1
    return False


cdef inline bint judge(
    const Rule *rule, const record.Columns *c, const uint8_t *base, int64_t records, const header.BatchRow *row,
    bint by_bits, uint8_t *verdict, int64_t *without_key
) noexcept nogil:
    """Say of each record whether it is the last of its key, or beyond the table; return False if bits cannot say it."""
    cdef Near near
    cdef int64_t i = 0, k, count
    if by_bits:
        for i in range(records):
            if not row.base_offset <= c.offset[i] <= row.last_offset:
                return False
            verdict[i] = c.key_size[i] >= 0 and not has_bit(&rule.older, c.offset[i])
            without_key[0] += c.key_size[i] < 0
        return True
    while i < records:
        count = 0
        while i < records and count < NEAR:
            if c.offset[i] > rule.latest_offset:
                verdict[i] = True
            elif c.key_size[i] < 0:
                verdict[i] = False
                without_key[0] += 1
            else:
                near.key[count], near.size[count], near.offset[count] = base + c.key_place[i], c.key_size[i], i  # its number
                count += 1
            i += 1
        hash_and_fetch(&rule.table, &near, count)
        for k in range(count):
            verdict[near.offset[k]] = is_last(&rule.table, &near.hash[k], c.offset[near.offset[k]])
    return True


cdef inline int64_t gather_kept(
    record.Columns *c, int64_t records, const uint8_t *verdict, int64_t latest_offset, bint held, bint *has_tombstone
) noexcept nogil:
    """Move what is kept to the front of the columns; return how many. Tombstones go unless they are `held`."""
    cdef int64_t i, n = 0
    for i in range(records):
        if not verdict[i]:
            continue
        if c.value_size[i] < 0:
            if not held and c.offset[i] <= latest_offset:
                continue
            has_tombstone[0] = True
        c.offset[n] = c.offset[i]
        c.timestamp[n] = c.timestamp[i]
        c.key_place[n] = c.key_place[i]
        c.key_size[n] = c.key_size[i]
        c.value_place[n] = c.value_place[i]
        c.value_size[n] = c.value_size[i]
        c.headers_place[n] = c.headers_place[i]
        c.header_count[n] = c.header_count[i]
        n += 1
    return n


cdef inline bint write_kept(
    const Rule *rule, const record.Columns *c, const Source *source, int64_t count, bint new_horizon,
    header.BatchRow *row, uint8_t *out, int64_t room
) noexcept nogil:
    """Write a batch with some of its records; False if there is no room, or if it cannot be written."""
    cdef writing.Input columns
    cdef int64_t bad = 0
    if row.base_offset < 0 or not 0 <= row.last_offset - row.base_offset <= INT32_MAX or room < header.V2_HEADER:
        return False
    row.attributes &= KEPT_ATTRIBUTES | (writing.DELETE_HORIZON if count else 0)
    if new_horizon:
        row.attributes |= writing.DELETE_HORIZON
        row.base_timestamp = rule.horizon_ms
    row.count = <int32_t>count
    if count:
        memset(&columns, 0, sizeof(columns))
        columns.count = count
        columns.offset, columns.timestamp = c.offset, c.timestamp
        columns.key_place, columns.key_size = c.key_place, c.key_size
        columns.value_place, columns.value_size = c.value_place, c.value_size
        columns.headers_place, columns.header_count = c.headers_place, c.header_count
        columns.sources, columns.source_count = source, 1
        if writing.write_batch(&columns, 0, count, 0, True, out, room, row, &bad) != writing.WRITE_OK:
            return False
    else:
        row.size, row.base_timestamp = header.V2_HEADER, -1
    writing.seal_v2(row, out)
    return True


def filter_plain(
    int file, int64_t size, int64_t position, Pass passing not None, uint8_t[::1] table not None, secret not None,
    int64_t latest_offset, uint8_t[::1] older not None, int64_t older_first, int64_t now_ms, int64_t horizon_ms,
    int64_t round_end, const int64_t[::1] producers not None,
    const int64_t[::1] last_offsets not None, rows not None, uint8_t[::1] out not None,
):
    """Write what a cleaning keeps of plain batches, back to back; the rules are those of `log.cleaner_filter`.

    Parameters
    ----------
    file, size, position
        As of `put_plain`.
    table, secret, latest_offset
        As of `_keymap.classify`.
    older : uint8 array
        As `put_plain` filled it; empty if it does not say everything about the offsets that have a bit.
    now_ms, horizon_ms, round_end : int
        Tombstones are deleted from the horizon on that is set now.
    producers, last_offsets : int64 arrays
        The active producers and the last offsets of their last batches, ascending by those.
    rows : items of `BATCH_DTYPE`
        Filled with the batches that are kept; positions are those in `out`.

    Returns
    -------
    done : int
        Bytes of the batches.
    count, end : int
        Rows filled, and bytes written.
    records, kept, without_key : int
        Records read, of them those that are kept, and those that have no key.
    """
    cdef uint8_t[::1] raw = rows.view(np.uint8).reshape(-1)
    cdef int64_t most = len(rows), room = out.shape[0], at = 0, count = 0
    cdef int64_t records = 0, kept = 0, without_key = 0, n, keyless, length, left
    cdef Rule rule
    cdef Reading reading
    cdef record.Walk walk
    cdef record.Columns columns = passing.columns
    cdef header.BatchRow row
    cdef header.BatchRow *rows_of
    cdef Source source
    cdef const uint8_t *p
    cdef uint8_t *to
    cdef bint by_bits, has_tombstone, is_kept
    if rows.dtype.itemsize != sizeof(header.BatchRow) or producers.shape[0] != last_offsets.shape[0]:
        raise ValueError("rows have another size, or producers and offsets differ in length")
    open_table(&rule.table, table, secret)
    open_bits(&rule.older, older, older_first)
    rule.latest_offset, rule.horizon_ms, rule.round_end = latest_offset, horizon_ms, round_end
    rule.producer_count = producers.shape[0]
    if rule.producer_count:
        rule.producers, rule.last_offsets = &producers[0], &last_offsets[0]
    if not (most and room and passing.begin(&reading, file, size, position)):
        return 0, 0, 0, 0, 0, 0
    rows_of, to = <header.BatchRow *>&raw[0], &out[0]
    source.first, source.size = reading.base, passing.memory.shape[0]
    with nogil:
        while count < most:
            p = next_plain(&reading, &row, &walk)
            if p == NULL or row.count > SLOTS:
                break
            n = keyless = 0
            has_tombstone = False
            by_bits = (
                rule.older.first <= row.base_offset <= row.last_offset <= latest_offset
                and row.last_offset - rule.older.first < rule.older.count
            )
            if by_bits and row.count == row.last_offset - row.base_offset + 1 and all_set(
                &rule.older, row.base_offset, row.last_offset
            ):
                pass               # all are older, so they were decoded when they were put in
            elif row.count:
                if record.decode_v2(&walk, &row, 0, &columns, 0, row.count) != record.RECORD_OK or walk.p != walk.end:
                    break
                if not judge(&rule, &columns, reading.base, row.count, &row, by_bits, passing.verdict, &keyless):
                    break
                n = gather_kept(
                    &columns, row.count, passing.verdict, latest_offset,
                    not row.attributes & writing.DELETE_HORIZON or now_ms < row.base_timestamp, &has_tombstone,
                )
            has_tombstone &= row.attributes & writing.DELETE_HORIZON == 0    # else it has its horizon
            length, left = walk.end - p, row.count
            if n and n == left and not has_tombstone:
                if length > room - at:
                    break
                memcpy(to + at, p, length)
                is_kept = True
            else:
                is_kept = n or stays_empty(&rule, &row)
                if is_kept and not write_kept(&rule, &columns, &source, n, has_tombstone, &row, to + at, room - at):
                    break
            if is_kept:
                row.position = at
                rows_of[count] = row
                count += 1
                at += row.size
            reading.done += length
            records += left
            kept += n
            without_key += keyless
    return reading.done, count, at, records, kept, without_key
