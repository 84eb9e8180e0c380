"""Batch headers of magic 0, 1 and 2, read into rows of the batch table.

The structure is `BATCH_DTYPE` of `format/batches.py`; `tests/format/test_batches.py` compares sizes and offsets.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from pylogseg._native.kernels.crc cimport pls_crc32, pls_crc32c
from pylogseg._native.kernels.endian cimport load_be16, load_be32, load_be64, load_le32

cdef extern from "prefetch.h" nogil:
    void prefetch "PLS_PREFETCH"(const void *p) noexcept

cdef enum:
    OVERHEAD = 12          # offset and length
    PREFIX = 17            # up to and including the magic byte, which is at the same position in every format
    MAGIC_AT = 16
    V0_SMALLEST = 26
    V1_SMALLEST = 34
    V2_HEADER = 61
    V2_CRC_FROM = 21
    LEGACY_CRC_FROM = 16
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20

cdef enum:                 # errors.Ending
    COMPLETE = 0
    MORE = 1
    TORN = 2
    ZEROS = 3
    BAD_LENGTH = 4
    UNKNOWN_MAGIC = 5
    FOREIGN = 6

cdef enum:                 # errors.Verdict
    GOOD = 0
    UNCHECKED = 1
    CRC_BAD = 2
    RECORDS_BAD = 3

cdef enum:
    SOURCE_SHIFT = 40      # of a place: the bits above are the number of the source, those below the position in it


cdef packed struct Body:   # place of the records of a batch: `BODY_DTYPE` of `format/records.py`
    int64_t place
    int64_t size


cdef packed struct BatchRow:
    int64_t position
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t size
    int32_t leader_epoch
    int32_t base_sequence
    int32_t count
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch
    int8_t magic
    uint8_t verdict
    uint8_t pad[6]


cdef inline const uint8_t *skip_zeros(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return the first byte that is not 0, else the end. Files can have gigabytes of zeros: four words per step."""
    while end - p >= 32 and (load_be64(p) | load_be64(p + 8) | load_be64(p + 16) | load_be64(p + 24)) == 0:
        p += 32
    while p < end and p[0] == 0:
        p += 1
    return p


cdef inline const uint8_t *next_place(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return where the next batch may begin after `p`; at least 12 bytes follow.

    No batch has length 0, so the first byte after zeros belongs to the length of a batch at the latest.
    """
    if load_be32(p + 8) == 0:
        return skip_zeros(p + OVERHEAD, end) - OVERHEAD + 1
    return p + 1


cdef inline bint all_zero(const uint8_t *p, const uint8_t *end) noexcept nogil:
    return skip_zeros(p, end) == end


cdef inline bint is_redpanda(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Check for a Redpanda batch header: its first four bytes are the CRC32C of the other 57."""
    return end - p >= V2_HEADER and load_le32(p) == pls_crc32c(0, p + 4, V2_HEADER - 4) and not all_zero(p, p + V2_HEADER)


cdef inline int frame(const uint8_t *p, const uint8_t *end, int64_t *size, bint any_magic=False) noexcept nogil:
    """Check for a whole batch at `p` and set its size; otherwise return how the bytes end here.

    With `any_magic` a magic above 2 counts as 2, as in Kafka's own reading of files.
    """
    cdef int64_t length
    if p == end:
        return COMPLETE
    if end - p < PREFIX:
        return ZEROS if all_zero(p, end) else TORN
    length = <int32_t>load_be32(p + 8)
    size[0] = OVERHEAD + length
    if length < V0_SMALLEST - OVERHEAD:
        return ZEROS if all_zero(p, end) else BAD_LENGTH
    if p[MAGIC_AT] > 2 and not any_magic:
        return UNKNOWN_MAGIC
    if size[0] < (V0_SMALLEST if p[MAGIC_AT] == 0 else V1_SMALLEST if p[MAGIC_AT] == 1 else V2_HEADER):
        return BAD_LENGTH
    if size[0] > 0x7FFFFFFF:   # the limit of Kafka's files, and of the column
        return BAD_LENGTH
    if size[0] > end - p:
        return TORN
    return MORE


cdef inline bint crc_holds(const uint8_t *p, int64_t size) noexcept nogil:
    if p[MAGIC_AT] >= 2:
        return load_be32(p + 17) == pls_crc32c(0, p + V2_CRC_FROM, size - V2_CRC_FROM)
    return load_be32(p + OVERHEAD) == pls_crc32(0, p + LEGACY_CRC_FROM, size - LEGACY_CRC_FROM)


cdef inline void read_header(const uint8_t *p, int64_t size, BatchRow *row) noexcept nogil:
    """Fill all fields except `position` and `verdict` from a batch that `frame` found whole."""
    row.base_offset = <int64_t>load_be64(p)
    row.size = <int32_t>size
    row.magic = <int8_t>p[MAGIC_AT] if p[MAGIC_AT] < 2 else 2
    for i in range(6):
        row.pad[i] = 0
    if p[MAGIC_AT] >= 2:
        row.leader_epoch = <int32_t>load_be32(p + 12)
        row.crc = load_be32(p + 17)
        row.attributes = <int16_t>load_be16(p + 21)
        # Unsigned addition: a hostile base offset near the limit must wrap, not be undefined.
        row.last_offset = <int64_t>(load_be64(p) + <int64_t><int32_t>load_be32(p + 23))
        row.base_timestamp = <int64_t>load_be64(p + 27)
        row.max_timestamp = <int64_t>load_be64(p + 35)
        row.producer_id = <int64_t>load_be64(p + 43)
        row.producer_epoch = <int16_t>load_be16(p + 51)
        row.base_sequence = <int32_t>load_be32(p + 53)
        row.count = <int32_t>load_be32(p + 57)
        return
    row.last_offset = row.base_offset
    row.leader_epoch = -1
    row.crc = load_be32(p + OVERHEAD)
    row.attributes = p[17]
    row.base_timestamp = row.max_timestamp = -1 if row.magic == 0 else <int64_t>load_be64(p + 18)
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.count = 1 if row.attributes & CODEC_MASK == 0 else -1


cdef inline bint plausible(const uint8_t *p, int64_t left, int64_t lowest_offset, int64_t *size) noexcept nogil:
    """Check whether the bytes at `p` could be a batch, before the cost of a CRC.

    `left` counts the bytes of the file from `p` on; a largest header of them can be read, or all if there are fewer.
    """
    cdef int64_t offset
    cdef int32_t delta, count
    if p[MAGIC_AT] > 2:
        return False
    size[0] = OVERHEAD + <int64_t><int32_t>load_be32(p + 8)
    if size[0] < (V0_SMALLEST if p[MAGIC_AT] == 0 else V1_SMALLEST if p[MAGIC_AT] == 1 else V2_HEADER):
        return False
    if size[0] > left or size[0] > 0x7FFFFFFF:
        return False
    offset = <int64_t>load_be64(p)
    # A segment spans less than 2^31 offsets, so the next batch cannot have a higher offset than that.
    if offset < lowest_offset or offset - lowest_offset > 0x7FFFFFFF:
        return False
    if p[MAGIC_AT] < 2:
        return p[17] & CODEC_MASK <= 3 and p[17] <= 0x0F
    delta = <int32_t>load_be32(p + 23)
    count = <int32_t>load_be32(p + 57)
    return delta >= 0 and 0 <= count <= <int64_t>delta + 1 and p[22] & CODEC_MASK <= 4
