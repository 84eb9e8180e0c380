"""The compiled door to the framing of compressed payloads: block tables of many batches at once, and xxHash32.

The codecs themselves are other packages' and are called from Python; a call per block is all that is left to do there.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from pylogseg._kernels cimport framing


cdef const uint8_t *address(const uint8_t[::1] view) noexcept:
    """First byte of a view; an empty one has no byte to point at."""
    return &view[0] if view.shape[0] else <const uint8_t *>b""


def xxh32(buffer, seed: int = 0) -> int:
    """xxHash32 of a buffer."""
    cdef const uint8_t[::1] view = buffer
    cdef const uint8_t *data = address(view)
    cdef uint32_t start = seed
    cdef uint32_t result
    with nogil:
        result = framing.xxh32(data, view.shape[0], start)
    return result


def lz4_blocks(buffer, start, end, unchecked, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Block tables of payloads that are plain lz4 frames.

    Parameters
    ----------
    buffer : buffer
        The bytes of the file.
    start, end : array of int64
        Payloads, as positions in the buffer.
    unchecked : array of uint8
        Not 0 where the header checksum is not looked at (magic 0).
    limit : int
        Payloads whose blocks have room for more bytes than that are not plain.
    row : int
        The payload to begin with.
    counts : array of int32
        Filled: blocks of each payload; -1 where it is not plain.
    blocks : writable buffer
        Filled: 16 bytes for each block (`BLOCK_DTYPE` of `format/compression.py`), those of plain payloads alone.

    Returns
    -------
    row, used : int
        The payload to go on with, len(start) when done, and the blocks filled. A payload with more blocks than
        the whole of ``blocks`` holds counts as not plain, so that every call gets on.
    """
    return tables(buffer, start, end, unchecked, limit, row, counts, blocks, False)


def xerial_blocks(buffer, start, end, limit: int, row: int, counts, blocks) -> tuple[int, int]:
    """Block tables of payloads that are plain xerial snappy streams; the parameters are those of `lz4_blocks`."""
    return tables(buffer, start, end, None, limit, row, counts, blocks, True)


cdef tuple tables(
    const uint8_t[::1] buffer,
    const int64_t[::1] start,
    const int64_t[::1] end,
    const uint8_t[::1] unchecked,
    int64_t limit,
    int64_t row,
    int32_t[::1] counts,
    uint8_t[::1] blocks,
    bint xerial,
):
    cdef int64_t rows = start.shape[0]
    cdef int64_t room = blocks.shape[0] // <int64_t>sizeof(framing.Block)
    cdef int64_t used = 0
    cdef int found
    cdef const uint8_t *base = address(buffer)
    cdef framing.Block *out = <framing.Block *><void *>address(blocks)
    if end.shape[0] != rows or counts.shape[0] != rows or (not xerial and unchecked.shape[0] != rows):
        raise ValueError("the arrays differ in length")
    if row < 0:
        raise ValueError("the row is negative")
    with nogil:
        while row < rows:
            if start[row] < 0 or end[row] < start[row] or end[row] > buffer.shape[0]:
                found = framing.NOT_PLAIN
            elif xerial:
                found = framing.xerial_blocks(base, start[row], end[row], limit, out + used, room - used)
            else:
                found = framing.lz4_blocks(
                    base, start[row], end[row], not unchecked[row], limit, out + used, room - used
                )
            if found == framing.NO_ROOM:
                if used:
                    break
                found = framing.NOT_PLAIN
            counts[row] = found
            if found > 0:
                used += found
            row += 1
    return row, used
