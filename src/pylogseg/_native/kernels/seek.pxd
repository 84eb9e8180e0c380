"""The batch of an offset or of a time in a segment: what an index says is checked by the headers there."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pylogseg._native.kernels cimport batch as header
from pylogseg._native.kernels cimport record
from pylogseg._native.kernels cimport search as searching
from pylogseg._native.kernels.endian cimport load_be32, load_be64
from pylogseg._native.kernels.readat cimport read_at

# One call reads the offset index and the file of batches. Both may be maps of files: every position is compared with
# the published end before it is followed.
cdef enum:
    ENTRY = 8                  # bytes of an entry of an offset index: relative offset, position
    WARM_BYTES = 8192          # of the end of an index, which a broker searches first
    NONE = -1                  # no batch reaches the offset
    DAMAGED = -2               # an invalid length on the way
    MORE_NEEDED = -3           # more bytes of the file are needed
    NOT_READ = -4              # the system refused, or the file is shorter than it was
    NOWHERE = -2               # of a record
    KEPT = 4                   # headers; a search needs up to three
    HEADER = 64                # bytes that hold the header of any batch
    NEAR_BYTES = 1 << 15       # a batch up to this size is read on the stack
    FEW_BYTES = 1152           # where the next batch is likely to have no more, several headers are read at once
    SOME_BYTES = 1 << 12       # as many bytes
    SPARSE_BYTES = 1 << 13     # between two entries: more than two of a broker's usual intervals

cdef struct Segment:
    const uint8_t *entries
    int64_t count
    const uint8_t *log         # NULL: headers are read from a file, one at a time
    int64_t seen               # available bytes of the file
    int64_t end                # size of the whole file
    int descriptor
    int error                  # of the system, 0 for a file that is shorter
    uint8_t[KEPT][HEADER] headers   # that were read last: the next offset may need them too
    int64_t[KEPT] kept         # their positions; -1 none
    int newest, oldest
    uint8_t *near              # NEAR_BYTES for what lies behind a header; NULL: headers are read alone
    int64_t near_at, near_size # what was read there
    int64_t likely             # bytes of the batch of the next header, by the one before it, or by the index; 0 not known
    int64_t wanted             # bytes from the found batch on


cdef inline void begin(Segment *s, const uint8_t *entries, int64_t count, const uint8_t *log, int64_t end, int descriptor) noexcept nogil:
    cdef int i
    s.entries, s.count, s.log, s.seen, s.end, s.descriptor, s.error = entries, count, log, end, end, descriptor, 0
    s.newest, s.oldest = 0, 1
    s.near, s.near_at, s.near_size, s.likely, s.wanted = NULL, 0, 0, 0, 0
    for i in range(KEPT):
        s.kept[i] = -1


cdef inline int64_t last_offset(const uint8_t *p, int64_t size, header.BatchRow *row) noexcept nogil:
    header.read_header(p, size, row)
    return row.last_offset


cdef inline const uint8_t *header_at(Segment *s, int64_t at) noexcept nogil:
    """The header of the batch at a position; NULL if it cannot be read. That of the call before stays."""
    cdef int64_t wanted = min(HEADER, s.end - at)
    cdef const uint8_t *p
    cdef int i
    if s.log != NULL:
        return s.log + at
    for i in range(KEPT):
        if s.kept[i] == at:
            s.newest = i
            return s.headers[i]
    i = s.oldest if s.oldest != s.newest else (s.oldest + 1) % KEPT
    s.kept[i] = -1
    if wanted > 0:
        p = near_bytes(s, at, wanted)
        if p != NULL:
            memcpy(s.headers[i], p, wanted)
        elif read_at(s.descriptor, s.headers[i], wanted, at, &s.error) < wanted:
            return NULL
    s.newest, s.oldest, s.kept[i] = i, (i + 1) % KEPT, at
    return s.headers[i]


cdef inline const uint8_t *near_bytes(Segment *s, int64_t at, int64_t size) noexcept nogil:
    """Bytes at a position, read together with what a search needs next if that is likely to be worth it; else NULL.

    A header alone takes as long as 2 KiB. What cannot be read behind it is no error yet.
    """
    cdef int64_t ahead = 0
    if s.near_at <= at and at + size <= s.near_at + s.near_size:
        return s.near + (at - s.near_at)
    if s.near == NULL or s.likely == 0:
        return NULL
    if s.wanted:               # the batch, and the header after it
        ahead = max(s.wanted, s.likely) + HEADER
    if s.likely <= FEW_BYTES:
        ahead = max(ahead, SOME_BYTES)
    ahead = min(ahead, s.end - at)
    if not size < ahead <= NEAR_BYTES:
        return NULL
    s.near_at, s.near_size = at, read_at(s.descriptor, s.near, ahead, at, &s.error)
    return s.near if s.near_size >= size else NULL


cdef inline int framed(const uint8_t *p, int64_t seen, int64_t left, int64_t *size) noexcept nogil:
    """Do as `frame` for a batch of which only the first bytes are seen, and that is whole if as many are left as it has."""
    cdef int status = header.frame(p, p + seen, size, True)
    return header.MORE if status == header.TORN and seen >= header.PREFIX and size[0] <= left else status


cdef inline int64_t entry_at(const Segment *s, int64_t slot) noexcept nogil:
    """The position of an entry of the index; -1 after the last one."""
    return <int32_t>load_be32(s.entries + slot * ENTRY + 4) if slot < s.count else -1


cdef inline int64_t entry_after(Segment *s, int64_t slot, int64_t at, int64_t base_offset, int64_t offset, int64_t *size) noexcept nogil:
    """The position of the entry after the one that a broker finds, if the batch there has the offset; else `at`.

    Where entries are far apart each batch has one, so this spares the header of the batch before. An entry has the last
    offset of its batch: what does not agree with it is not believed.
    """
    cdef int64_t there = entry_at(s, slot + 1), next = entry_at(s, slot + 2), base
    cdef uint64_t last
    cdef const uint8_t *p
    if not at + SPARSE_BYTES < there <= s.end - HEADER:
        return at
    s.likely = next - there if next > there else 0
    p = header_at(s, there)
    if p == NULL:
        return at
    base = <int64_t>load_be64(p)
    if base <= offset and p[header.MAGIC_AT] == 2 and framed(p, HEADER, s.end - there, size) == header.MORE:
        last = <uint64_t>base + <uint64_t><int64_t><int32_t>load_be32(p + 23)
        if offset <= <int64_t>last and last - <uint64_t>base_offset == <uint64_t><int64_t><int32_t>load_be32(s.entries + (slot + 1) * ENTRY):
            return there
    return at


cdef inline int64_t find(Segment *s, int64_t base_offset, int64_t offset, header.BatchRow *row, int64_t *size, int64_t *wrapped) noexcept nogil:
    """Return the position of the batch that a broker finds for `offset`, from the index entry on; else NONE or DAMAGED.

    That is the first batch that begins at or after the offset, or the batch before it, if that reaches the
    offset. So a broker reads one batch more than the one that it finds, and fails on damage there. A compressed
    batch of magic 0 or 1 only has its last offset; its first offset needs decompression: `wrapped` is
    then the position of the first possible batch, else -1.

    MORE_NEEDED if needed bytes are missing: then `wrapped` is where to begin, and `size` how many bytes it takes.
    """
    cdef int64_t slot = -1, at = 0, before = -1, before_size = 0, base, there
    cdef bint in_file = s.log == NULL
    cdef bint is_part = s.seen < s.end
    cdef bint wrapper
    cdef int status
    cdef const uint8_t *p
    cdef const uint8_t *p_before = NULL
    if s.count and offset >= base_offset:
        slot = searching.brokers_slot(s.entries, ENTRY, 4, s.count, <int64_t>(<uint64_t>offset - <uint64_t>base_offset), WARM_BYTES // ENTRY, False)
    if slot >= 0:
        at = <int32_t>load_be32(s.entries + slot * ENTRY + 4)
    wrapped[0] = -1
    if not 0 <= at <= s.end:
        return NONE
    if in_file and slot >= 0:
        at = entry_after(s, slot, at, base_offset, offset, size)
    while True:
        if is_part and s.seen - at < header.V2_HEADER:
            return more_needed(s, offset, at, header.V2_HEADER, before, before_size, row, size, wrapped)
        p = header_at(s, at)
        if p == NULL:
            return NOT_READ
        there = min(HEADER, s.end - at) if in_file else s.seen - at
        status = framed(p, there, s.end - at, size)
        if status != header.MORE:
            break
        base = <int64_t>load_be64(p)
        wrapper = p[header.MAGIC_AT] < 2 and p[header.MAGIC_AT + 1] & header.CODEC_MASK
        if base >= offset:
            if wrapper:
                wrapped[0] = before if before >= 0 else at
            if (wrapper or base > offset) and before >= 0 and last_offset(p_before, before_size, row) >= offset:
                size[0] = before_size
                return before
            if is_part and size[0] > s.seen - at:
                return more_needed(s, offset, at, size[0], before, before_size, row, size, wrapped)
            header.read_header(p, size[0], row)
            return at
        before, before_size, p_before = at, size[0], p
        at += before_size
        s.likely = before_size + (before_size >> 3)
    if (status == header.BAD_LENGTH or status == header.ZEROS) and s.end - at > header.PREFIX and size[0] < header.V0_SMALLEST:
        return DAMAGED
    if before >= 0 and last_offset(p_before, before_size, row) >= offset:
        size[0] = before_size
        return before
    return NONE


cdef inline int64_t more_needed(
    const Segment *s, int64_t offset, int64_t at, int64_t least, int64_t before, int64_t before_size, header.BatchRow *row, int64_t *size, int64_t *begin
) noexcept nogil:
    """Ask for this many bytes of the batch at a position, and for the batch before it, if that may be the result."""
    begin[0], size[0] = at, least
    if before >= 0 and last_offset(s.log + before, before_size, row) >= offset:
        begin[0], size[0] = before, at - before + least
    return MORE_NEEDED


cdef inline int search_records(
    const uint8_t *p, int64_t size, const header.BatchRow *row, int64_t timestamp, int64_t lowest, int64_t *when, int64_t *found
) noexcept nogil:
    """Return 1 if the record is in the batch, 0 if not, 2 if that is not known here."""
    cdef record.Walk w
    cdef record.Columns one
    cdef bint stamped = row.attributes & header.LOG_APPEND_TIME != 0
    cdef int64_t offset = 0, time = 0, place_ = 0
    cdef int32_t size_ = 0, header_count = 0, number = 0, i
    cdef record.pls_fields plain
    cdef const uint8_t *next
    if row.magic < 2 or row.attributes & header.CODEC_MASK:
        return 2
    w.p = w.origin = p + header.V2_HEADER
    w.end = p + size
    w.source = 0
    one.offset = &offset
    one.timestamp = &time
    one.key_place = one.value_place = one.headers_place = &place_
    one.key_size = one.value_size = &size_
    one.header_count = &header_count
    one.batch = &number
    for i in range(row.count):
        next = record.pls_plain_record(w.p, w.end, &plain)
        if next != NULL:
            w.p = next
            offset = <int64_t>(<uint64_t>row.base_offset + <uint64_t>plain.delta)
            time = <int64_t>(<uint64_t>row.base_timestamp + <uint64_t>plain.time_delta)
        elif record.any_record(&w, row, &one, 0) != record.RECORD_OK:
            return 2
        if stamped:
            time = row.max_timestamp
        if time >= timestamp and offset >= lowest:
            when[0], found[0] = time, offset
            return 1
    return 0


cdef inline int find_time(
    Segment *s, int64_t *at, int64_t timestamp, int64_t lowest, header.BatchRow *row, int64_t *when, int64_t *found
) noexcept nogil:
    """Go from a batch of a file to the first record that is not older than a timestamp and not below an offset.

    Return 1 if it is there, 2 if only a reader that decompresses, or has more memory, can tell; else NOWHERE or NOT_READ.
    """
    cdef int64_t size = 0
    cdef const uint8_t *p
    cdef int status = 0
    while 0 <= at[0] < s.end:
        p = header_at(s, at[0])
        if p == NULL:
            return NOT_READ
        if framed(p, min(HEADER, s.end - at[0]), s.end - at[0], &size) != header.MORE:
            return NOWHERE
        header.read_header(p, size, row)
        if row.max_timestamp >= timestamp:
            if size > NEAR_BYTES:
                return 2
            if not (s.near_at <= at[0] and at[0] + size <= s.near_at + s.near_size):
                s.near_at, s.near_size = at[0], read_at(s.descriptor, s.near, size, at[0], &s.error)
                if s.near_size < size:
                    return NOT_READ
            status = search_records(s.near + (at[0] - s.near_at), size, row, timestamp, lowest, when, found)
            if status != 0:
                return status
        at[0] += size
        s.wanted = s.likely == 0   # where an index led here, the second batch is likely to be the one
        s.likely = size + (size >> 3)
    return NOWHERE
