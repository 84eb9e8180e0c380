/* Headers of batches of magic 2 that follow one another in a file, without what lies between them. */
#ifndef PLS_HEADERS_H
#define PLS_HEADERS_H

#include <stddef.h>
#include <stdint.h>

#include "endian.h"
#include "readat.h"

#define PLS_HEADER_BYTES 61
#define PLS_OVERHEAD_BYTES 12

/* How many headers were read into `out`, which has room for some; `position` moves behind their batches. It ends before
 * what is no whole batch of magic 2, and after the batch that has `last_offset`. */
static inline int64_t pls_read_headers(int file, int64_t *position, int64_t end, int64_t last_offset, uint8_t *out,
                                       int64_t room) {
    int64_t count = 0;
    int error;
    while (count < room && *position <= end - PLS_HEADER_BYTES) {
        int64_t size, last;
        if (pls_read_at(file, out, PLS_HEADER_BYTES, *position, &error) != PLS_HEADER_BYTES || out[16] != 2)
            break;
        size = PLS_OVERHEAD_BYTES + (int64_t)(int32_t)pls_load_be32(out + 8);
        if (size < PLS_HEADER_BYTES || size > end - *position)
            break;
        last = (int64_t)(pls_load_be64(out) + (uint64_t)(int64_t)(int32_t)pls_load_be32(out + 23));
        *position += size;
        out += PLS_HEADER_BYTES;
        count++;
        if (last >= last_offset)
            break;
    }
    return count;
}

#endif
