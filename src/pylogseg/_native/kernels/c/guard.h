/* Work on the pages of a mapped file that ends where a page is gone, instead of a process that is killed.
 *
 * Touching a page that the disk cannot read, or that lies behind the end of a file which was cut, is the signal SIGBUS.
 * The first use installs a handler that hands each other SIGBUS on to the handler before it. If a program installs another
 * one later, nothing is mapped any more, and callers read.
 */
#ifndef PLS_GUARD_H
#define PLS_GUARD_H

#include <stddef.h>
#include <stdint.h>

/* Pages of a file, none at first. */
typedef struct {
    void *pages;
    size_t length;
    int64_t first; /* position of the first page in the file */
} pls_map;

static int pls_maps_memory; /* whether files in memory are mapped too, for tests */

#ifdef __linux__
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* File systems in memory, whose pages come one by one: `read` is faster. */
#define PLS_TMPFS 0x01021994
#define PLS_RAMFS 0x858458f6

/* A map begins at a multiple of this: one fault then maps a large page of the page cache. */
#define PLS_MAP_STEP ((int64_t)2 << 20)
/* Bytes that are mapped at a time: what a process seems to need of memory for them is no more than that. */
#define PLS_MAP_BYTES ((int64_t)32 << 20)

struct pls_guard {
    sigjmp_buf back;
    const uint8_t *first, *end;
};

static __thread struct pls_guard *volatile pls_guard_of_thread;
static struct sigaction pls_bus_before;
static int pls_bus_taken; /* 1 from the moment when a thread begins to install the handler */

static void pls_on_bus(int number, siginfo_t *info, void *context) {
    struct pls_guard *guard = pls_guard_of_thread;
    const uint8_t *at = (const uint8_t *)info->si_addr;
    if (guard != NULL && at >= guard->first && at < guard->end) {
        pls_guard_of_thread = NULL;
        siglongjmp(guard->back, 1);
    }
    if (pls_bus_before.sa_flags & SA_SIGINFO) {
        pls_bus_before.sa_sigaction(number, info, context);
    } else if (pls_bus_before.sa_handler == SIG_DFL || pls_bus_before.sa_handler == SIG_IGN) {
        (void)signal(number, SIG_DFL); /* as without this handler: the process ends */
        (void)raise(number);
    } else {
        pls_bus_before.sa_handler(number);
    }
}

/* Install the handler if nobody did; return whether SIGBUS comes to it. */
static int pls_watch_bus(void) {
    struct sigaction now, ours;
    int nobody = 0;
    if (sigaction(SIGBUS, NULL, &now) != 0) return 0;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == pls_on_bus) return 1;
    if (!__atomic_compare_exchange_n(&pls_bus_taken, &nobody, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 0;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = pls_on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    (void)sigemptyset(&ours.sa_mask);
    pls_bus_before = now;
    return sigaction(SIGBUS, &ours, NULL) == 0;
}

static void pls_unmap(pls_map *map) {
    if (map->pages != NULL) (void)munmap(map->pages, map->length);
    map->pages = NULL;
}

/* Map bytes of an open file, and some behind them; return where they are, NULL where the file is to be read instead. */
static const uint8_t *pls_map_bytes(pls_map *map, int file, int64_t position, int64_t size) {
    struct statfs on;
    sigset_t blocked;
    if (size <= 0 || !pls_watch_bus()) return NULL;
    /* A thread that blocks the signal is killed by it, whoever handles it. */
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGBUS)) return NULL;
    if (map->pages == NULL || position < map->first || position + size > map->first + (int64_t)map->length) {
        pls_unmap(map);
        if (fstatfs(file, &on) != 0) return NULL;
        if (!pls_maps_memory && (on.f_type == PLS_TMPFS || (unsigned)on.f_type == PLS_RAMFS)) return NULL;
        map->first = position / PLS_MAP_STEP * PLS_MAP_STEP;
        map->length = (size_t)(position - map->first + (size > PLS_MAP_BYTES ? size : PLS_MAP_BYTES));
        map->pages = mmap(NULL, map->length, PROT_READ, MAP_SHARED, file, (off_t)map->first);
        if (map->pages == MAP_FAILED) {
            map->pages = NULL;
            return NULL;
        }
        (void)madvise(map->pages, map->length, MADV_SEQUENTIAL);
    }
    return (const uint8_t *)map->pages + (position - map->first);
}

/* Work that touches a map; return whether all of its pages were there. Work that ends early has left its state as it was
 * then, so it holds no lock and owns no memory. */
__attribute__((noinline)) static int pls_guarded(const pls_map *map, void (*work)(void *), void *state) {
    struct pls_guard guard;
    guard.first = (const uint8_t *)map->pages;
    guard.end = guard.first + map->length;
    if (sigsetjmp(guard.back, 1)) return 0;
    pls_guard_of_thread = &guard;
    __asm__ volatile("" ::: "memory");
    work(state);
    __asm__ volatile("" ::: "memory");
    pls_guard_of_thread = NULL;
    return 1;
}

#else

static const uint8_t *pls_map_bytes(pls_map *map, int file, int64_t position, int64_t size) {
    (void)map, (void)file, (void)position, (void)size;
    return NULL;
}

static void pls_unmap(pls_map *map) {
    (void)map;
}

static int pls_guarded(const pls_map *map, void (*work)(void *), void *state) {
    (void)map;
    work(state);
    return 1;
}

#endif
#endif
