"""Bindings of the kernels for varints, checksums, the scan of batch headers, and the search of an index.

Functions on buffers: no files, no clock, no state. Each checks its arguments, releases the GIL and turns a status
into a result or one exception. The kernels are in `_native/kernels/`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pylogseg._native.kernels.buffers cimport address
from pylogseg._native.kernels cimport append
from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport search as index
from pylogseg._native.kernels cimport varint
from pylogseg._native.kernels.murmur2 cimport murmur2

cdef object _numpy = None


cdef object numpy():
    """Return numpy: who only wants varints and checksums does not wait for its import."""
    global _numpy
    if _numpy is None:
        import numpy as _loaded
        _numpy = _loaded
    return _numpy

checksum.pls_crc_init()


# ---- varints ----

def encode_uvarint(value: int) -> bytes:
    """Encode a 32-bit number as an unsigned varint; a negative one as its two's complement, as in Kafka."""
    if not -(1 << 31) <= value < (1 << 32):
        raise OverflowError(f"{value} does not fit in 32 bits")
    return written(<uint32_t>(value & 0xFFFFFFFF))


def encode_varint(value: int) -> bytes:
    """Encode a signed 32-bit number as a ZigZag varint of 1 to 5 bytes."""
    cdef int32_t number = value
    return written(varint.zigzag(number))


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64-bit number as a ZigZag varint of 1 to 10 bytes."""
    cdef int64_t number = value
    return written(varint.zigzag64(number))


cdef bytes written(uint64_t raw):
    cdef uint8_t[10] out
    cdef uint8_t *end = varint.write_uvarint(out, raw)
    return (<const char *>out)[:end - out]


cdef const uint8_t *cursor_at(const uint8_t[::1] view, int64_t position) except NULL:
    if not 0 <= position <= view.shape[0]:
        raise IndexError(f"position {position} is outside of a buffer of {view.shape[0]} bytes")
    return address(view) + position


cdef refuse(int status, int64_t position, str kind):
    if status == varint.VARINT_SHORT:
        raise ValueError(f"{kind} at position {position} is cut off by the end of the buffer")
    if status == varint.VARINT_LONG:
        raise ValueError(f"{kind} at position {position} is too long: its last byte still has the top bit set")


def decode_uvarint(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode an unsigned 32-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef uint32_t value = 0
    refuse(varint.read_uvarint(&p, address(buffer) + buffer.shape[0], &value), position, "unsigned varint")
    return value, p - address(buffer)


def decode_varint(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode a ZigZag 32-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int32_t value = 0
    refuse(varint.read_varint(&p, address(buffer) + buffer.shape[0], &value), position, "varint")
    return value, p - address(buffer)


def decode_varlong(const uint8_t[::1] buffer not None, int64_t position=0):
    """Decode a ZigZag 64-bit varint: (value, position after it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int64_t value = 0
    refuse(varint.read_varlong(&p, address(buffer) + buffer.shape[0], &value), position, "varlong")
    return value, p - address(buffer)


# ---- checksums ----

def crc32c(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """Compute the CRC-32C of a buffer, continued from the checksum of the bytes before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32c(crc, p, size)
    return crc


def crc32(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """Compute the CRC-32 (IEEE) of a buffer, continued from the checksum of the bytes before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32(crc, p, size)
    return crc


def crc_implementations():
    """Return the names of the implementations for this processor, the fastest first."""
    return [(<bytes>checksum.pls_crc_name(i)).decode() for i in range(checksum.pls_crc_count())]


def use_crc_implementation(name: str):
    """Choose an implementation by name, for tests and benchmarks; return the previous one."""
    cdef bytes encoded = name.encode()
    before = (<bytes>checksum.pls_crc_current()).decode()
    if checksum.pls_crc_use(encoded) != 0:
        raise ValueError(f"no CRC implementation {name!r} on this processor; there are: {', '.join(crc_implementations())}")
    return before


# ---- batches ----

def scan(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t file_position, rows not None, bint crc, bint any_magic=False):
    """Fill rows of `BATCH_DTYPE` from the batches in ``buffer[start:end]``.

    Return (rows filled, position in the buffer at the end, `errors.Ending`). See `format.batches.scan`.
    """
    cdef uint8_t[::1] raw = numpy().frombuffer(rows, numpy().uint8)   # faster than a `view` of a structure
    if rows.dtype.itemsize != sizeof(header.BatchRow):
        raise TypeError("rows are not of BATCH_DTYPE")
    if not 0 <= start <= end <= buffer.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {buffer.shape[0]} bytes")
    cdef header.BatchRow *row = <header.BatchRow *>&raw[0] if raw.shape[0] else NULL
    cdef Py_ssize_t room = len(rows), count = 0
    cdef const uint8_t *first = address(buffer)
    cdef const uint8_t *p = first + start
    cdef const uint8_t *stop = first + end
    cdef int64_t size = 0
    cdef int ending
    with nogil:
        while True:
            ending = header.frame(p, stop, &size, any_magic)
            if ending != header.MORE or count == room:
                break
            header.read_header(p, size, row)
            row.position = file_position + (p - first)
            row.verdict = header.UNCHECKED
            if crc:
                row.verdict = header.GOOD if header.crc_holds(p, size) else header.CRC_BAD
            elif size < stop - p >> 2:
                # Batches often have similar sizes: prefetch near the header after the next one.
                header.prefetch(p + 2 * size)
                header.prefetch(p + 2 * size + 60)
            p += size
            row += 1
            count += 1
        if ending > header.MORE and header.is_redpanda(p, stop):
            ending = header.FOREIGN
    return count, p - first, ending


def survey(rows not None):
    """Summarize the rows of a batch table in one pass; there must be at least one. See `format.batches.Summary`."""
    cdef const uint8_t[::1] raw = numpy().frombuffer(rows, numpy().uint8)
    if rows.dtype.itemsize != sizeof(header.BatchRow) or not len(rows):
        raise TypeError("rows are not of BATCH_DTYPE, or there are none")
    cdef const header.BatchRow *row = <const header.BatchRow *>&raw[0]
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t last_offset = row.last_offset, base_offset = row.base_offset
    cdef int lowest = row.magic, highest = row.magic, either = row.attributes, both = row.attributes
    cdef bint ascends = row.base_offset >= 0, overfull = False
    with nogil:
        for i in range(count):
            ascends &= row[i].last_offset >= row[i].base_offset
            overfull |= row[i].magic == 2 and row[i].count > <int64_t>(<uint64_t>row[i].last_offset - <uint64_t>row[i].base_offset + 1)
            if i:
                ascends &= row[i].base_offset > row[i - 1].last_offset
            last_offset = min(last_offset, row[i].last_offset)
            base_offset = max(base_offset, row[i].base_offset)
            lowest = min(lowest, row[i].magic)
            highest = max(highest, row[i].magic)
            either |= row[i].attributes
            both &= row[i].attributes
    i = count - 1
    return (last_offset, base_offset, lowest, highest, either, both, ascends, overfull, row[0].base_offset,
            row[i - 1].last_offset if i else None, row[i].base_offset, row[i].last_offset, row[i].position + row[i].size)


def find_batch(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t lowest_offset,
    int64_t budget,
    int64_t behind,
):
    """Find the next batch at or after `start` that is whole with a valid CRC, or that runs past `end`.

    Parameters
    ----------
    buffer : buffer
    start, end : int
        The bytes to search.
    lowest_offset : int
        Batches below this offset are ignored.
    budget : int
        The most bytes of false candidates to check by CRC: it bounds the work on hostile bytes.
    after : int
        Bytes of the file after `end`. If there are any, a batch may run into them, and the last 60 bytes, which may
        have only part of a header, are not searched.

    Returns
    -------
    position, size : int
        -1 and 0 if there is none. The CRC of a batch that runs past `end` is not checked.
    budget : int
        The rest of the budget; below 0 if the search ended early.
    """
    if behind < 0:
        raise ValueError(f"{behind} bytes after the end")
    if not 0 <= start <= end <= buffer.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {buffer.shape[0]} bytes")
    cdef const uint8_t *first = address(buffer)
    cdef const uint8_t *p = first + start
    cdef const uint8_t *stop = first + end
    cdef int64_t size = 0, found = -1
    cdef int64_t least = header.V2_HEADER if behind else header.V0_SMALLEST
    with nogil:
        while stop - p >= least and budget >= 0:
            if header.plausible(p, stop - p + behind, lowest_offset, &size):
                if size > stop - p or header.crc_holds(p, size):
                    found = p - first
                    break
                budget -= size
            p = header.next_place(p, stop)
    return found, size if found >= 0 else 0, budget


# ---- indexes ----

cdef const uint8_t *keys_of(const uint8_t[::1] buffer, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count) except NULL:
    if key_size not in (4, 8) or entry_size < 1 or not 0 <= key_at <= entry_size - key_size:
        raise ValueError(f"a key of {key_size} bytes at {key_at} does not fit into entries of {entry_size} bytes")
    if count < 0 or count > buffer.shape[0] // entry_size:
        raise IndexError(f"{count} entries of {entry_size} bytes do not fit into a buffer of {buffer.shape[0]} bytes")
    return address(buffer) + key_at


def search(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """Find the slot of a key among `count` sorted big-endian entries, in place.

    Parameters
    ----------
    buffer : buffer
        The index; slot 0 is at its first byte.
    entry_size, key_at, key_size : int
        Bytes of an entry; position and width (4 or 8) of the key in it, which is signed.
    count : int
        Valid entries.
    key : int
        The key to find.
    ceiling : bool
        Find the first entry >= `key` (`count` if there is none) instead of the last entry <= `key` (-1 if there is none).
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    if ceiling:
        return index.first_at_least(keys, entry_size, <int>key_size, count, key)
    return index.floor_slot(keys, entry_size, <int>key_size, count, key)


def search_as_broker(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """Find the slot that a broker finds for a key, also in an index with unsorted entries, as after a crash.

    Parameters as for `search`. If there is no entry, return -1, also for a ceiling.
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    return index.brokers_slot(keys, entry_size, <int>key_size, count, key, 8192 // entry_size, ceiling)


def search_many(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, const int64_t[::1] keys not None, bint ceiling=False
):
    """Find the slots of an array of keys, as `search` does; return an int64 array."""
    cdef const uint8_t *first = keys_of(buffer, entry_size, key_at, key_size, count)
    out = numpy().empty(keys.shape[0], numpy().int64)
    cdef int64_t[::1] slots = out
    cdef int64_t[index.LANES] below
    cdef Py_ssize_t i = 0, lane, total = keys.shape[0]
    with nogil:
        while total - i >= index.LANES:
            index.count_below(first, entry_size, <int>key_size, count, &keys[i], not ceiling, below)
            for lane in range(index.LANES):
                slots[i + lane] = below[lane] if ceiling else below[lane] - 1
            i += index.LANES
        while i < total:
            if ceiling:
                slots[i] = index.first_at_least(first, entry_size, <int>key_size, count, keys[i])
            else:
                slots[i] = index.floor_slot(first, entry_size, <int>key_size, count, keys[i])
            i += 1
    return out


def frames(data not None):
    """Find where the batches of a buffer begin, as a broker takes them from a request.

    Parameters
    ----------
    data : buffer

    Returns
    -------
    starts : numpy.ndarray of int64
        The start of each whole batch, and the end of the last one.
    is_cut : bool
        Whether the beginning of a batch follows. If not, nothing follows (the last start is the end) or no batch.
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B") if len(data) else b""
    cdef const uint8_t *p = &view[0] if view.shape[0] else NULL
    cdef int64_t length = view.shape[0], at, size = 0, count = 0, i
    cdef int ending = header.MORE
    cdef int64_t[::1] starts
    with nogil:
        at = 0
        while at < length:
            ending = append.next_frame(p + at, p + length, &size)
            if ending != header.MORE:
                break
            at += size
            count += 1
    found = numpy().empty(count + 1, numpy().int64)
    starts = found
    with nogil:
        at = 0
        for i in range(count):
            starts[i] = at
            if append.next_frame(p + at, p + length, &size) == header.MORE:  # safe also if the buffer changes meanwhile
                at += size
        starts[count] = at
    return found, ending == header.COMPLETE and at < length


# ---- columns of binary values, as Arrow lays them out ----

# Value `i` is `data[offsets[i]:offsets[i + 1]]`; offsets may begin anywhere, as in a slice. Every pair is checked against
# the data before it is followed. Nulls are up to the caller: they are computed like other values.
ctypedef fused Offset:
    int32_t
    int64_t

cdef enum:
    TRAILING = 3           # bytes remain after the number
    OUTSIDE = 4            # the value is outside of the data
    WIDEST = 10            # bytes of a varint


cdef inline bint lies_in(int64_t start, int64_t end, int64_t size) noexcept nogil:
    return 0 <= start <= end <= size


cdef int64_t count_of(Py_ssize_t offsets, Py_ssize_t out) except -1:
    if offsets < 1 or out != offsets - 1:
        raise ValueError(f"{offsets} offsets for {out} results: expected one more than results")
    return out


cdef refuse_value(int64_t row, int64_t count):
    if row < count:
        raise IndexError(f"value {row} is outside of the data")


def crc32c_values(const Offset[::1] offsets not None, const uint8_t[::1] data not None, uint32_t[::1] out not None):
    """Compute the CRC-32C of every value."""
    cdef int64_t i = 0, count = count_of(offsets.shape[0], out.shape[0]), size = data.shape[0]
    cdef const uint8_t *first = address(data)
    with nogil:
        while i < count and lies_in(offsets[i], offsets[i + 1], size):
            out[i] = checksum.pls_crc32c(0, first + offsets[i], offsets[i + 1] - offsets[i])
            i += 1
    refuse_value(i, count)


def murmur2_values(const Offset[::1] offsets not None, const uint8_t[::1] data not None, int32_t[::1] out not None):
    """Compute the hash of every value by which Kafka's producers choose a partition, signed as in Java."""
    cdef int64_t i = 0, count = count_of(offsets.shape[0], out.shape[0]), size = data.shape[0]
    cdef const uint8_t *first = address(data)
    with nogil:
        while i < count and lies_in(offsets[i], offsets[i + 1], size):
            out[i] = <int32_t>murmur2(first + offsets[i], offsets[i + 1] - offsets[i])
            i += 1
    refuse_value(i, count)


def read_varints(
    const Offset[::1] offsets not None, const uint8_t[::1] data not None, int64_t[::1] out not None, bint zigzag,
    uint8_t[::1] status not None,
):
    """Decode every value as a ZigZag varint of 64 bits, or an unsigned one of 32.

    Parameters
    ----------
    status : uint8 array
        One item per value: 0, or an index of `VARINT_REASONS`; the number is then 0.
    """
    cdef int64_t i, count = count_of(offsets.shape[0], out.shape[0]), size = data.shape[0]
    cdef const uint8_t *first = address(data)
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef uint32_t small
    cdef int64_t wide
    cdef int what
    count_of(offsets.shape[0], status.shape[0])
    with nogil:
        for i in range(count):
            wide, small = 0, 0
            if not lies_in(offsets[i], offsets[i + 1], size):
                what = OUTSIDE
            else:
                p, end = first + offsets[i], first + offsets[i + 1]
                if zigzag:
                    what = varint.read_varlong(&p, end, &wide)
                else:
                    what = varint.read_uvarint(&p, end, &small)
                    wide = small
                if what == varint.VARINT_OK and p != end:
                    what = TRAILING
            out[i] = wide if what == varint.VARINT_OK else 0
            status[i] = what


def write_varints(const int64_t[::1] numbers not None, bint zigzag, int32_t[::1] offsets not None, uint8_t[::1] data not None):
    """Write numbers as varints, back to back; return the bytes used.

    Parameters
    ----------
    zigzag : bool
        ZigZag of 64 bits; otherwise the low 32 bits, unsigned.
    offsets : int32 array
        Filled; one item more than there are numbers.
    data : uint8 array
        10 bytes for each number.
    """
    cdef int64_t i, count = count_of(offsets.shape[0], numbers.shape[0])
    cdef uint8_t *first
    cdef uint8_t *p
    if data.shape[0] < WIDEST * count or WIDEST * count > 0x7FFFFFFF:
        raise ValueError(f"{data.shape[0]} bytes are too few for {count} varints")
    offsets[0] = 0
    if count == 0:
        return 0
    first = p = &data[0]
    with nogil:
        for i in range(count):
            p = varint.write_uvarint(p, varint.zigzag64(numbers[i]) if zigzag else <uint32_t>numbers[i])
            offsets[i + 1] = <int32_t>(p - first)
    return offsets[count]


#: The meaning of each status of `read_varints`.
VARINT_REASONS = (
    "",
    "the varint is cut off",
    "the varint is too long: its last byte still has the top bit set",
    "bytes remain behind the varint",
    "it does not lie in the data",
)
