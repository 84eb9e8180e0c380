"""Read a partition's folder ahead of a load: a hint to the system; it returns only a count.

It is the one that opens files. A hundred system calls from Python ask for the interpreter's lock a hundred times, and so
hold up the thread that loads; this asks once.
"""

from libc.stdlib cimport free, malloc

from pylogseg._native.kernels.ahead cimport Ahead, read_folder_ahead


def read_ahead(bytes path not None):
    """Bring the names in a folder, the sizes, and what a load of a clean log reads into the system's memory.

    Parameters
    ----------
    path : bytes
        Of the folder, as the file system has it.

    Returns
    -------
    int
        Files that were read. Whatever cannot be is skipped. Always 0 on Windows.
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
