/* Headers of batches of magic 2 that follow one another in a file or in a map of one, without what lies between them. */
#ifndef PLS_HEADERS_H
#define PLS_HEADERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "endian.h"
#include "readat.h"

#define PLS_HEADER_BYTES 61
#define PLS_OVERHEAD_BYTES 12

/* Batches below the size of a page are read with what follows them: their pages are touched anyway, and a call costs as
 * much as to copy some of them. */
#define PLS_SMALL_BATCH_BYTES 4096
#define PLS_CHUNK_BYTES 16384

/* Takes one header, if it is that of a whole batch: 0 if not, 1 if it is, 2 if it is the last one to take. */
static inline int pls_take_header(const uint8_t *header, int64_t *position, int64_t *size, int64_t end,
                                  int64_t last_offset, uint8_t *out) {
    int64_t last;
    if (header[16] != 2)
        return 0;
    *size = PLS_OVERHEAD_BYTES + (int64_t)(int32_t)pls_load_be32(header + 8);
    if (*size < PLS_HEADER_BYTES || *size > end - *position)
        return 0;
    last = (int64_t)(pls_load_be64(header) + (uint64_t)(int64_t)(int32_t)pls_load_be32(header + 23));
    memcpy(out, header, PLS_HEADER_BYTES);
    *position += *size;
    return last >= last_offset ? 2 : 1;
}

/* How many headers were read into `out`, which has room for some; `position` moves behind their batches. It ends before
 * what is no whole batch of magic 2, and after the batch that has `last_offset`. */
static inline int64_t pls_read_headers(int file, int64_t *position, int64_t end, int64_t last_offset, uint8_t *out,
                                       int64_t room) {
    int64_t count = 0;
#ifndef _WIN32
    uint8_t chunk[PLS_CHUNK_BYTES];
    int64_t first = *position, held = 0, size = PLS_CHUNK_BYTES; /* `chunk` has `held` bytes of the file from `first` on */
    while (count < room && *position <= end - PLS_HEADER_BYTES) {
        int taken;
        if (*position - first > held - PLS_HEADER_BYTES) {
            int64_t most = size < PLS_SMALL_BATCH_BYTES ? PLS_CHUNK_BYTES : PLS_HEADER_BYTES;
            first = *position;
            held = pread(file, chunk, (size_t)(most < end - first ? most : end - first), (off_t)first);
            if (held < PLS_HEADER_BYTES)
                break;
        }
        taken = pls_take_header(chunk + (*position - first), position, &size, end, last_offset, out);
        count += taken != 0;
        if (taken != 1)
            break;
        out += PLS_HEADER_BYTES;
    }
#else
    (void)file, (void)position, (void)end, (void)last_offset, (void)out, (void)room;
#endif
    return count;
}

/* The same of bytes in memory, which end at `end`. */
static inline int64_t pls_headers_in(const uint8_t *bytes, int64_t *position, int64_t end, int64_t last_offset,
                                     uint8_t *out, int64_t room) {
    int64_t count = 0, size;
    while (count < room && *position <= end - PLS_HEADER_BYTES) {
        int taken = pls_take_header(bytes + *position, position, &size, end, last_offset, out);
        count += taken != 0;
        if (taken != 1)
            break;
        out += PLS_HEADER_BYTES;
    }
    return count;
}

#endif
