/* A hint that memory will be read; any address is allowed. */
#ifndef PLS_PREFETCH_H
#define PLS_PREFETCH_H

#if defined(__GNUC__)
#define PLS_PREFETCH(p) __builtin_prefetch(p)
#else
#define PLS_PREFETCH(p) ((void)(p))
#endif

#endif
