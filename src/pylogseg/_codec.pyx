"""The compiled door: varints, checksums, the scan of batch headers, index search.

Functions on buffers: no files, no clock, no state. Each checks its arguments, releases the GIL and turns a status
into a result or one exception. The kernels are in `_kernels/`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pylogseg._kernels cimport append
from pylogseg._kernels cimport batch as header
from pylogseg._kernels cimport crc as checksum
from pylogseg._kernels cimport search as index
from pylogseg._kernels cimport varint

import numpy as np

checksum.pls_crc_init()


cdef const uint8_t *address(const uint8_t[::1] view) noexcept:
    """First byte of a view; an empty one has no byte to point at."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""


# ---- varints ----

def encode_uvarint(value: int) -> bytes:
    """Unsigned varint of a 32-bit number; a negative one counts as its 32-bit two's complement, as in Kafka."""
    if not -(1 << 31) <= value < (1 << 32):
        raise OverflowError(f"{value} does not fit in 32 bits")
    return written(<uint32_t>(value & 0xFFFFFFFF))


def encode_varint(value: int) -> bytes:
    """ZigZag varint of a signed 32-bit number, 1 to 5 bytes."""
    cdef int32_t number = value
    return written(varint.zigzag(number))


def encode_varlong(value: int) -> bytes:
    """ZigZag varint of a signed 64-bit number, 1 to 10 bytes."""
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
    """Unsigned 32-bit varint at a position: (value, position behind it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef uint32_t value = 0
    refuse(varint.read_uvarint(&p, address(buffer) + buffer.shape[0], &value), position, "unsigned varint")
    return value, p - address(buffer)


def decode_varint(const uint8_t[::1] buffer not None, int64_t position=0):
    """ZigZag 32-bit varint at a position: (value, position behind it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int32_t value = 0
    refuse(varint.read_varint(&p, address(buffer) + buffer.shape[0], &value), position, "varint")
    return value, p - address(buffer)


def decode_varlong(const uint8_t[::1] buffer not None, int64_t position=0):
    """ZigZag 64-bit varint at a position: (value, position behind it). ValueError if it is cut off or too long."""
    cdef const uint8_t *p = cursor_at(buffer, position)
    cdef int64_t value = 0
    refuse(varint.read_varlong(&p, address(buffer) + buffer.shape[0], &value), position, "varlong")
    return value, p - address(buffer)


# ---- checksums ----

def crc32c(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """CRC-32C of a buffer, going on from the checksum of what came before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32c(crc, p, size)
    return crc


def crc32(const uint8_t[::1] buffer not None, uint32_t crc=0):
    """CRC-32 (IEEE) of a buffer, going on from the checksum of what came before it."""
    cdef const uint8_t *p = address(buffer)
    cdef Py_ssize_t size = buffer.shape[0]
    with nogil:
        crc = checksum.pls_crc32(crc, p, size)
    return crc


def crc_implementations():
    """Names of the implementations that this processor can run, the preferred one first."""
    return [(<bytes>checksum.pls_crc_name(i)).decode() for i in range(checksum.pls_crc_count())]


def use_crc_implementation(name: str):
    """Choose an implementation by name, for tests and benchmarks; returns the one used until now."""
    cdef bytes wanted = name.encode()
    before = (<bytes>checksum.pls_crc_current()).decode()
    if checksum.pls_crc_use(wanted) != 0:
        raise ValueError(f"no CRC implementation {name!r} on this processor: {', '.join(crc_implementations())}")
    return before


# ---- batches ----

def scan(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t file_position, rows not None, bint crc, bint any_magic=False):
    """Fill rows of `BATCH_DTYPE` from the batches in ``buffer[start:end]``.

    Returns (rows filled, position in the buffer where it ended, `errors.Ending`). See `format.batches.scan`.
    """
    cdef uint8_t[::1] raw = np.frombuffer(rows, np.uint8)   # quicker than a `view` of a structure
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
                # Batches are often alike in size: the header after the next, or a place near it, is on its way by then.
                header.prefetch(p + 2 * size)
                header.prefetch(p + 2 * size + 60)
            p += size
            row += 1
            count += 1
        if ending > header.MORE and header.is_redpanda(p, stop):
            ending = header.FOREIGN
    return count, p - first, ending


def survey(rows not None):
    """What all rows of a batch table have in common, in one pass. There must be one at least; see `format.batches.Summary`."""
    cdef const uint8_t[::1] raw = np.frombuffer(rows, np.uint8)
    if rows.dtype.itemsize != sizeof(header.BatchRow) or not len(rows):
        raise TypeError("rows are not of BATCH_DTYPE, or there are none")
    cdef const header.BatchRow *row = <const header.BatchRow *>&raw[0]
    cdef Py_ssize_t i, count = len(rows)
    cdef int64_t last_offset = row.last_offset, base_offset = row.base_offset
    cdef int lowest = row.magic, highest = row.magic, either = row.attributes, both = row.attributes
    cdef bint ascends = row.base_offset >= 0
    with nogil:
        for i in range(count):
            ascends &= row[i].last_offset >= row[i].base_offset
            if i:
                ascends &= row[i].base_offset > row[i - 1].last_offset
            last_offset = min(last_offset, row[i].last_offset)
            base_offset = max(base_offset, row[i].base_offset)
            lowest = min(lowest, row[i].magic)
            highest = max(highest, row[i].magic)
            either |= row[i].attributes
            both &= row[i].attributes
    i = count - 1
    return (last_offset, base_offset, lowest, highest, either, both, ascends,
            row[0].base_offset, row[i].base_offset, row[i].last_offset, row[i].position + row[i].size)


def find_batch(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t lowest_offset,
    int64_t budget,
    int64_t behind,
):
    """Position of the next batch at or behind `start` that is whole and whose CRC holds, or that runs past `end`.

    Parameters
    ----------
    buffer : buffer
    start, end : int
        The bytes to search.
    lowest_offset : int
        No batch below this offset is believed.
    budget : int
        Bytes that may be summed for false candidates: it bounds the work on bytes made to mislead.
    behind : int
        Bytes of the file behind `end`. If there are any, a batch may run into them, and none is looked for in the
        last 60 bytes, where not all of a header can be seen.

    Returns
    -------
    position, size : int
        -1 and 0 if there is none. The CRC of a batch that runs past `end` is not known.
    budget : int
        What is left of it; below 0 the search ended before the bytes did.
    """
    if behind < 0:
        raise ValueError(f"{behind} bytes behind the end")
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


def find_offset(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t offset):
    """First whole batch from `start` on whose last offset is not below an offset.

    Returns (position, base offset, last offset, size); position -1 if there is none. The CRC is not looked at, a
    compressed legacy wrapper gives its own offset for both, and a magic above 2 counts as 2.
    """
    if not 0 <= start <= end <= buffer.shape[0]:
        raise IndexError(f"[{start}, {end}) is outside of a buffer of {buffer.shape[0]} bytes")
    cdef const uint8_t *first = address(buffer)
    cdef const uint8_t *p = first + start
    cdef const uint8_t *stop = first + end
    cdef int64_t size = 0
    cdef header.BatchRow row
    cdef bint found = False
    with nogil:
        while header.frame(p, stop, &size, True) == header.MORE:
            header.read_header(p, size, &row)
            if row.last_offset >= offset:
                found = True
                break
            p += size
    if not found:
        return -1, 0, 0, 0
    return p - first, row.base_offset, row.last_offset, size


# ---- indexes ----

cdef const uint8_t *keys_of(const uint8_t[::1] buffer, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count) except NULL:
    if key_size not in (4, 8) or entry_size < 1 or not 0 <= key_at <= entry_size - key_size:
        raise ValueError(f"a key of {key_size} bytes at {key_at} does not fit into entries of {entry_size} bytes")
    if count < 0 or count > buffer.shape[0] // entry_size:
        raise IndexError(f"{count} entries of {entry_size} bytes are not in a buffer of {buffer.shape[0]} bytes")
    return address(buffer) + key_at


def search(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """Slot of a key among `count` sorted entries, in place on their big-endian bytes.

    Parameters
    ----------
    buffer : buffer
        The index; slot 0 at its first byte.
    entry_size, key_at, key_size : int
        Bytes of an entry, place of the key in it, width of the key (4 or 8), which is signed.
    count : int
        Valid entries.
    key : int
        What to look for.
    ceiling : bool
        The first entry >= `key` (`count` if there is none), not the last entry <= `key` (-1 if there is none).
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    if ceiling:
        return index.first_at_least(keys, entry_size, <int>key_size, count, key)
    return index.floor_slot(keys, entry_size, <int>key_size, count, key)


def search_as_broker(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, int64_t key, bint ceiling=False
):
    """The slot that a broker finds for a key, also in an index whose entries are not sorted, as after a crash.

    Parameters are those of `search`. Without an entry it is -1, for a ceiling too.
    """
    cdef const uint8_t *keys = keys_of(buffer, entry_size, key_at, key_size, count)
    return index.brokers_slot(keys, entry_size, <int>key_size, count, key, 8192 // entry_size, ceiling)


def search_many(
    const uint8_t[::1] buffer not None, int64_t entry_size, int64_t key_at, int64_t key_size, int64_t count, const int64_t[::1] keys not None, bint ceiling=False
):
    """Like `search`, for an array of keys: an array of as many slots (int64)."""
    cdef const uint8_t *first = keys_of(buffer, entry_size, key_at, key_size, count)
    out = np.empty(keys.shape[0], np.int64)
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
        Of each whole batch, and behind the last one.
    is_cut : bool
        Whether what follows is the beginning of a batch. If not, it is nothing (the last start is the end) or no batch.
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
    found = np.empty(count + 1, np.int64)
    starts = found
    with nogil:
        at = 0
        for i in range(count):
            starts[i] = at
            if append.next_frame(p + at, p + length, &size) == header.MORE:  # a buffer that changes meanwhile stays safe
                at += size
        starts[count] = at
    return found, ending == header.COMPLETE and at < length
