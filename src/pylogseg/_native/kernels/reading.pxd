"""Batches read from a file one after the other, in pieces that stay in the cache while they are worked on."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels.readat cimport read_at

cdef struct Reading:         # of a file in pieces, or of memory that has all of it
    int file
    int64_t position         # in the file, of the first byte
    uint8_t *base
    int64_t size             # bytes to read, and memory for them
    int64_t piece_bytes
    int64_t filled           # bytes that were read
    int64_t behind           # how many of them are not in memory any more
    int64_t done             # bytes of the batches so far
    bint is_kept             # whether something refers to bytes in memory
    uint8_t *kept            # memory for the bytes of a map that something refers to; NULL if they need no copy
    bint is_short            # whether the file ended before


cdef inline void begin_reading(
    Reading *r, int file, int64_t position, uint8_t *memory, int64_t size, int64_t piece_bytes
) noexcept nogil:
    """Read from a position on, at most as many bytes as there is memory for; file -1 is memory that has them."""
    memset(r, 0, sizeof(r[0]))
    r.file, r.position, r.piece_bytes, r.size, r.base = file, position, piece_bytes, size, memory
    if file < 0:
        r.filled = size


cdef inline void begin_mapped(Reading *r, const uint8_t *bytes) noexcept nogil:
    """Take a map of the file that has all of the bytes; those of batches that are kept are copied to the memory."""
    r.file, r.filled, r.kept, r.base = -1, r.size, r.base, <uint8_t *>bytes


cdef inline void keep_batch(Reading *r, const uint8_t *batch, int64_t size) noexcept nogil:
    """Keep the bytes of the batch that is next done: something refers to them."""
    r.is_kept = True
    if r.kept != NULL:
        memcpy(r.kept + r.done, batch, size)


cdef inline const uint8_t *next_batch(Reading *r, header.BatchRow *row, int64_t *length) noexcept nogil:
    """Return the next batch if it is a good one of magic 2, else NULL; pieces are read as they are needed."""
    cdef uint8_t *p
    cdef int64_t piece, count
    cdef int ending, error = 0
    cdef bint is_short
    while True:
        p = r.base + (r.done - r.behind)
        ending = header.frame(p, r.base + (r.filled - r.behind), length)
        if ending == header.MORE:
            break
        is_short = ending == header.TORN or r.filled - r.done < header.PREFIX
        if not is_short or r.filled == r.size or (r.filled - r.done >= header.PREFIX and length[0] > r.size - r.done):
            return NULL
        piece = min(r.piece_bytes, r.size - r.filled)
        if not r.is_kept and r.filled - r.behind > r.piece_bytes and r.filled - r.done <= r.piece_bytes >> 1:
            memmove(r.base, p, r.filled - r.done)    # what is left of a batch
            r.behind = r.done
        count = read_at(r.file, r.base + (r.filled - r.behind), piece, r.position + r.filled, &error)
        r.filled += count
        if count < piece:
            r.is_short = True
            return NULL
    if p[header.MAGIC_AT] != 2 or not header.crc_holds(p, length[0]):
        return NULL
    header.read_header(p, length[0], row)
    row.position = r.position + r.done
    row.verdict = header.GOOD
    return p
