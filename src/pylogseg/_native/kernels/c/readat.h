/* Reading at a position of an open file, as `pread` does. Windows has none: the caller reads in another way there. */
#ifndef PLS_READAT_H
#define PLS_READAT_H

#include <errno.h>
#include <stdint.h>
#ifdef _WIN32
#define PLS_HAS_READ_AT 0
#else
#define PLS_HAS_READ_AT 1
#include <unistd.h>
#endif

/* Bytes that were read, fewer only at the end of the file or with `error`, the system's number, set. */
static inline int64_t pls_read_at(int file, uint8_t *to, int64_t size, int64_t at, int *error) {
  int64_t done = 0;
  *error = 0;
#ifdef _WIN32
  (void)file, (void)to, (void)size, (void)at;
  *error = ENOSYS;
#else
  while (done < size) {
    ssize_t count = pread(file, to + done, (size_t)(size - done), (off_t)(at + done));
    if (count > 0) {
      done += count;
    } else if (count == 0) {
      break;
    } else if (errno != EINTR) {
      *error = errno;
      break;
    }
  }
#endif
  return done;
}

#endif
