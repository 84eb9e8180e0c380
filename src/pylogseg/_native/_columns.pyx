"""Functions of columns of binary values as Arrow lays them out: all values in one call.

Value ``i`` is ``data[offsets[i]:offsets[i + 1]]``; offsets are int32 or int64 and may begin anywhere, as in a slice.
Every pair is checked against the data before it is followed. Nulls are up to the caller: they are computed like other
values.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from pylogseg._native.kernels.buffers cimport address
from pylogseg._native.kernels cimport crc as checksum
from pylogseg._native.kernels cimport varint
from pylogseg._native.kernels.murmur2 cimport murmur2 as hash_of

checksum.pls_crc_init()

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


cdef refuse(int64_t row, int64_t count):
    if row < count:
        raise IndexError(f"value {row} is outside of the data")


def crc32c(const Offset[::1] offsets not None, const uint8_t[::1] data not None, uint32_t[::1] out not None):
    """Compute the CRC-32C of every value."""
    cdef int64_t i = 0, count = count_of(offsets.shape[0], out.shape[0]), size = data.shape[0]
    cdef const uint8_t *first = address(data)
    with nogil:
        while i < count and lies_in(offsets[i], offsets[i + 1], size):
            out[i] = checksum.pls_crc32c(0, first + offsets[i], offsets[i + 1] - offsets[i])
            i += 1
    refuse(i, count)


def murmur2(const Offset[::1] offsets not None, const uint8_t[::1] data not None, int32_t[::1] out not None):
    """Compute the hash of every value by which Kafka's producers choose a partition, signed as in Java."""
    cdef int64_t i = 0, count = count_of(offsets.shape[0], out.shape[0]), size = data.shape[0]
    cdef const uint8_t *first = address(data)
    with nogil:
        while i < count and lies_in(offsets[i], offsets[i + 1], size):
            out[i] = <int32_t>hash_of(first + offsets[i], offsets[i + 1] - offsets[i])
            i += 1
    refuse(i, count)


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
