/* Read a folder's names, sizes and small files into the page cache, so that the next reader need not wait. */
#ifndef PLS_AHEAD_H
#define PLS_AHEAD_H

#include <stddef.h>

#ifndef _WIN32
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the end of a file, with a log's last batches or an index's last entry. */
#define PLS_AHEAD_BYTES 16384
#define PLS_DIGITS 20

struct pls_ahead {
    char active[PLS_DIGITS + 1]; /* digits of the last segment */
    char bytes[PLS_AHEAD_BYTES];
};

static inline int pls_has_suffix(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length >= tail && strcmp(name + length - tail, suffix) == 0;
}

/* Whether a load reads a file: of older segments only the transaction index. */
static inline int pls_is_read(const struct pls_ahead *a, const char *name) {
    if (!pls_has_suffix(name, ".log") && !pls_has_suffix(name, "index"))
        return 1;
    return pls_has_suffix(name, ".txnindex") || strncmp(name, a->active, PLS_DIGITS) == 0;
}

static inline void pls_find_active(struct pls_ahead *a, DIR *folder) {
    struct dirent *entry;
    memset(a->active, 0, sizeof a->active);
    while ((entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strlen(name) > PLS_DIGITS && pls_has_suffix(name, ".log") && strncmp(name, a->active, PLS_DIGITS) > 0)
            memcpy(a->active, name, PLS_DIGITS);
    }
    rewinddir(folder);
}

/* Read a file; return whether that worked. */
static inline int pls_read_end(struct pls_ahead *a, int folder, const char *name, off_t size) {
    off_t start = size > PLS_AHEAD_BYTES ? size - PLS_AHEAD_BYTES : 0;
    int done, file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return 0;
    done = pread(file, a->bytes, PLS_AHEAD_BYTES, start) > 0;
    close(file);
    return done;
}

/* Read the files of a folder; return how many. Unreadable ones are skipped: the next reader reports them. */
static inline int pls_read_ahead(struct pls_ahead *a, const char *path) {
    struct stat status;
    struct dirent *entry;
    DIR *folder = opendir(path);
    int done = 0;
    if (folder == NULL)
        return 0;
    pls_find_active(a, folder);
    while ((entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (fstatat(dirfd(folder), name, &status, 0) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
            continue;
        if (pls_is_read(a, name))
            done += pls_read_end(a, dirfd(folder), name, status.st_size);
    }
    closedir(folder);
    return done;
}

#else

struct pls_ahead {
    char active[1];
};

static inline int pls_read_ahead(struct pls_ahead *a, const char *path) {
    (void)a;
    (void)path;
    return 0;
}

#endif
#endif
