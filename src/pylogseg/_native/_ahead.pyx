"""Many small system calls in one: a folder read ahead of a load, and the headers of a file.

This module is the only one that reads files. A hundred system calls from Python take the interpreter's lock a hundred
times and delay other threads; this takes it once.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from pylogseg._native.kernels.ahead cimport Ahead, read_folder_ahead
from pylogseg._native.kernels.headers cimport read_headers_of

cdef int64_t HEADER_BYTES = 61


def read_ahead(bytes path not None):
    """Read the names and sizes in a folder, and what loading a clean log needs, into the system's page cache.

    Parameters
    ----------
    path : bytes
        Path of the folder, in the file system's encoding.

    Returns
    -------
    int
        Number of files read. Unreadable ones are skipped. Always 0 on Windows.
    """
    cdef const char *name = path
    cdef int done
    cdef Ahead *ahead = <Ahead *>malloc(sizeof(Ahead))
    if ahead == NULL:
        return 0
    with nogil:
        done = read_folder_ahead(ahead, name)
    free(ahead)
    return done


def read_headers(int descriptor, int64_t position, int64_t end, int64_t last_offset, uint8_t[::1] out not None):
    """Read the headers of batches of magic 2 that follow one another, and nothing else of them.

    Parameters
    ----------
    descriptor : int
        Of an open file.
    position, end : int
        The first batch, and the end of what may be read.
    last_offset : int
        The batch that has it is the last one.
    out : writable buffer of bytes
        Gets 61 bytes of each batch, as many as there is room for.

    Returns
    -------
    (int, int)
        How many, and the position behind the last of them: before `end`, where no whole batch of magic 2 follows. Always
        0 on Windows.
    """
    cdef int64_t count = 0, room = out.shape[0] // HEADER_BYTES
    if room:
        with nogil:
            count = read_headers_of(descriptor, &position, end, last_offset, &out[0], room)
    return count, position
