"""Framing of compressed payloads: the block tables of plain lz4 frames and xerial snappy streams, the
extent of zstd frames, and xxHash32.

*Plain* is the one form that Kafka's own writers emit. A kernel either reads the whole payload as plain or reports that
it is not. Everything else, including damage, goes to the careful readers in `format/`, which know all rules and
say what is wrong. So a block table is no promise that a block decompresses.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

from pylogseg._native.kernels.endian cimport load_be32, load_le32

cdef enum:
    NOT_PLAIN = -1
    NO_ROOM = -2

    LZ4_HEADER = 7
    LZ4_MAGIC = 0x184D2204
    LZ4_SIZE_MASK = 0x7FFFFFFF  # of a block's length; the bit above means that the block is stored uncompressed
    XERIAL_HEADER = 16

    # Three bytes of snappy (a copy with a two-byte offset) give 64 bytes; no element has a higher ratio.
    SNAPPY_MOST_OUT = 64
    SNAPPY_MOST_IN = 3


cdef packed struct Block:
    int64_t position  # of the compressed bytes, from the start of the buffer
    int32_t size      # of the compressed bytes
    int32_t room      # lz4: the most bytes it decompresses to, the negative size if stored; snappy: the declared size


cdef inline int lz4_blocks(
    const uint8_t *base, int64_t start, int64_t end, bint check_header, int64_t limit, Block *out, int64_t room
) noexcept nogil:
    """Number of blocks in a plain frame: no block checksums, no content size, and nothing after the end mark."""
    # Header checksums of FLG 0x60 (independent blocks, nothing else) with the block sizes 4 to 7.
    cdef const uint8_t *checksums = b"\x82\xfb\x51\x73"
    cdef int64_t position = start + LZ4_HEADER
    cdef int64_t total = 0
    cdef int64_t size
    cdef int32_t largest
    cdef uint32_t length
    cdef bint stored
    cdef int count = 0
    cdef int block_size
    if end - start < LZ4_HEADER + 4 or load_le32(base + start) != LZ4_MAGIC or base[start + 4] != 0x60:
        return NOT_PLAIN
    if base[start + 5] & 0x8F or base[start + 5] < 0x40:
        return NOT_PLAIN
    block_size = (base[start + 5] >> 4) - 4
    if check_header and base[start + 6] != checksums[block_size]:
        return NOT_PLAIN
    largest = 65536 << (2 * block_size)
    while end - position >= 4:
        length = load_le32(base + position)
        position += 4
        stored = length > LZ4_SIZE_MASK
        size = length & LZ4_SIZE_MASK
        if size == 0:
            return count if position == end else NOT_PLAIN
        if size > largest or size > end - position:
            return NOT_PLAIN
        total += size if stored else largest
        if total > limit:
            return NOT_PLAIN
        if count == room:
            return NO_ROOM
        out[count].position = position
        out[count].size = <int32_t>size
        out[count].room = <int32_t>(-size if stored else largest)
        count += 1
        position += size
    return NOT_PLAIN


cdef inline int64_t snappy_length(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return the declared decompressed size of a raw snappy block; -1 if it is invalid."""
    cdef uint64_t length = 0
    cdef int shift = 0
    while at < end and shift < 35:
        length |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            if length > 0x7FFFFFFF:
                return -1
            return <int64_t>length
        at += 1
        shift += 7
    return -1


cdef inline int xerial_blocks(
    const uint8_t *base, int64_t start, int64_t end, int64_t limit, Block *out, int64_t room
) noexcept nogil:
    """Number of blocks in one xerial stream that ends where its last block ends."""
    cdef const uint8_t *magic = b"\x82SNAPPY\x00"
    cdef int64_t position = start + XERIAL_HEADER
    cdef int64_t total = 0
    cdef int64_t size, length
    cdef int count = 0
    cdef int i
    if end - start < XERIAL_HEADER:
        return NOT_PLAIN
    for i in range(8):
        if base[start + i] != magic[i]:
            return NOT_PLAIN
    if <int32_t>load_be32(base + start + 8) < 1:
        return NOT_PLAIN
    while end - position >= 4:
        size = <int32_t>load_be32(base + position)
        position += 4
        if size <= 0 or size > end - position:
            return NOT_PLAIN
        length = snappy_length(base + position, base + position + size)
        if length < 0 or length * SNAPPY_MOST_IN > size * SNAPPY_MOST_OUT:
            return NOT_PLAIN
        total += length
        if total > limit:
            return NOT_PLAIN
        if count == room:
            return NO_ROOM
        out[count].position = position
        out[count].size = <int32_t>size
        out[count].room = <int32_t>length
        count += 1
        position += size
    return count if position == end else NOT_PLAIN


cdef enum:
    ZSTD_OK = 0
    ZSTD_SHORT = 1
    ZSTD_NO_FRAME = 2
    ZSTD_RESERVED = 3
    ZSTD_BAD_BLOCK = 4

    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_LARGEST_BLOCK = 1 << 17


cdef struct ZstdFrame:
    int64_t end       # from the start of the bytes
    int64_t declared  # content size in the header; -1 none
    int64_t most      # the most bytes that the blocks decompress to


cdef inline int64_t load_le(const uint8_t *at, int size) noexcept nogil:
    """Read an unsigned little-endian number of up to 8 bytes; a larger one counts as the largest."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value |= <uint64_t>at[i] << (8 * i)
    if value > <uint64_t>0x7FFFFFFFFFFFFFFF:
        return 0x7FFFFFFFFFFFFFFF
    return <int64_t>value


cdef inline int zstd_frame(const uint8_t *at, int64_t size, ZstdFrame *out) noexcept nogil:
    """Walk the header and the blocks of the frame at the start of the bytes, without decompressing (RFC 8878)."""
    cdef int64_t position = 5
    cdef int64_t largest = ZSTD_LARGEST_BLOCK
    cdef int64_t window
    cdef int size_bytes, flags, kind
    cdef uint32_t header = 0
    if size < 5:
        return ZSTD_SHORT
    if load_le32(at) != <uint32_t>ZSTD_MAGIC:
        return ZSTD_NO_FRAME
    flags = at[4]
    if flags & 0x08:
        return ZSTD_RESERVED
    size_bytes = 1 << (flags >> 6)
    if size_bytes == 1:
        size_bytes = (flags >> 5) & 1
    position += (not flags & 0x20) + ((1 << (flags & 3)) >> 1) + size_bytes
    if size < position:
        return ZSTD_SHORT
    out.declared = -1
    if size_bytes:
        out.declared = load_le(at + position - size_bytes, size_bytes) + (256 if size_bytes == 2 else 0)
    if flags & 0x20:
        largest = min(largest, out.declared)
    else:
        window = <int64_t>(8 + (at[5] & 7)) << (7 + (at[5] >> 3))
        largest = min(largest, window)
    out.most = 0
    while not header & 1:
        if size - position < 3:
            return ZSTD_SHORT
        header = <uint32_t>load_le(at + position, 3)
        kind = (header >> 1) & 3
        if kind == 3:
            return ZSTD_BAD_BLOCK
        out.most += largest if kind == 2 else <int64_t>(header >> 3)
        position += 3 + (1 if kind == 1 else <int64_t>(header >> 3))
        if position > size:
            return ZSTD_SHORT
    position += 4 if flags & 0x04 else 0
    out.end = position
    return ZSTD_OK if position <= size else ZSTD_SHORT


cdef inline int64_t zstd_room(const uint8_t *at, int64_t size, int64_t limit) noexcept nogil:
    """Return the most bytes of a payload of exactly one frame; NOT_PLAIN if they are over the limit or unsure."""
    cdef ZstdFrame frame
    cdef int64_t room
    if zstd_frame(at, size, &frame) != ZSTD_OK or frame.end != size or frame.declared > frame.most:
        return NOT_PLAIN
    room = frame.most if frame.declared < 0 else frame.declared
    # With room for 0 bytes the library verifies nothing.
    return room if 0 < room <= limit else NOT_PLAIN


cdef enum:
    GZIP_MEMBER = 0x00088B1F   # the first three bytes of a member, as a little-endian word
    GZIP_SMALLEST = 18         # bytes of a member
    DEFLATE_MOST = 1032        # the highest ratio: a copy of 258 bytes takes at least two bits


cdef inline int64_t gzip_room(const uint8_t *at, int64_t size, int64_t limit) noexcept nogil:
    """Return the declared size of a payload of one gzip member; NOT_PLAIN if another member may follow, or if the
    payload could exceed the limit, whatever it declares."""
    cdef const uint8_t *p = at + 1
    cdef const uint8_t *last = at + size - GZIP_SMALLEST   # where another member begins at the latest
    cdef int64_t room
    if size < GZIP_SMALLEST or load_le32(at) & 0xFFFFFF != GZIP_MEMBER or size > limit // DEFLATE_MOST:
        return NOT_PLAIN
    while p <= last:
        p = <const uint8_t *>memchr(p, GZIP_MEMBER & 0xFF, last - p + 1)
        if p == NULL:
            break
        if load_le32(p) & 0xFFFFFF == GZIP_MEMBER:
            return NOT_PLAIN
        p += 1
    room = load_le32(at + size - 4)
    return room if 0 < room <= size * DEFLATE_MOST else NOT_PLAIN


cdef enum:
    PRIME_1 = 0x9E3779B1
    PRIME_2 = 0x85EBCA77
    PRIME_3 = 0xC2B2AE3D
    PRIME_4 = 0x27D4EB2F
    PRIME_5 = 0x165667B1


cdef inline uint32_t rotl32(uint32_t x, int count) noexcept nogil:
    return (x << count) | (x >> (32 - count))


cdef inline uint32_t xxh32_round(uint32_t lane, uint32_t word) noexcept nogil:
    return rotl32(lane + word * <uint32_t>PRIME_2, 13) * <uint32_t>PRIME_1


cdef inline uint32_t xxh32(const uint8_t *at, int64_t size, uint32_t seed) noexcept nogil:
    """Compute xxHash32, the checksum of lz4 frames."""
    cdef const uint8_t *end = at + size
    cdef uint32_t a = seed + <uint32_t>PRIME_1 + <uint32_t>PRIME_2
    cdef uint32_t b = seed + <uint32_t>PRIME_2
    cdef uint32_t c = seed
    cdef uint32_t d = seed - <uint32_t>PRIME_1
    cdef uint32_t hashed
    if size >= 16:
        while end - at >= 16:
            a = xxh32_round(a, load_le32(at))
            b = xxh32_round(b, load_le32(at + 4))
            c = xxh32_round(c, load_le32(at + 8))
            d = xxh32_round(d, load_le32(at + 12))
            at += 16
        hashed = rotl32(a, 1) + rotl32(b, 7) + rotl32(c, 12) + rotl32(d, 18)
    else:
        hashed = seed + <uint32_t>PRIME_5
    hashed += <uint32_t>size
    while end - at >= 4:
        hashed = rotl32(hashed + load_le32(at) * <uint32_t>PRIME_3, 17) * <uint32_t>PRIME_4
        at += 4
    while at < end:
        hashed = rotl32(hashed + at[0] * <uint32_t>PRIME_5, 11) * <uint32_t>PRIME_1
        at += 1
    hashed = (hashed ^ (hashed >> 15)) * <uint32_t>PRIME_2
    hashed = (hashed ^ (hashed >> 13)) * <uint32_t>PRIME_3
    return hashed ^ (hashed >> 16)
