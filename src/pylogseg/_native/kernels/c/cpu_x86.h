/* What an x86-64 processor and its operating system offer, and functions compiled for it. */
#ifndef PLS_CPU_X86_H
#define PLS_CPU_X86_H

#include <immintrin.h>

#ifdef _MSC_VER
#include <intrin.h>
#define PLS_TARGET(features)
#else
#include <cpuid.h>
#define PLS_TARGET(features) __attribute__((target(features)))
#endif

enum { PLS_CPU_SSE42 = 1, PLS_CPU_PCLMUL = 2, PLS_CPU_AVX2 = 4, PLS_CPU_VPCLMUL = 8 };

static inline void pls_cpuid(unsigned leaf, unsigned registers[4]) {
#ifdef _MSC_VER
    __cpuidex((int *)registers, (int)leaf, 0);
#else
    __cpuid_count(leaf, 0, registers[0], registers[1], registers[2], registers[3]);
#endif
}

/* Whether the operating system saves the 256-bit registers. */
static inline int pls_cpu_saves_ymm(void) {
#ifdef _MSC_VER
    return (_xgetbv(0) & 6) == 6;
#else
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6;
#endif
}

static inline int pls_cpu_features(void) {
    unsigned highest[4], basic[4], extended[4];
    int features = 0;
    pls_cpuid(0, highest);
    pls_cpuid(1, basic);
    if (basic[2] & 1u << 20) features |= PLS_CPU_SSE42;
    if (basic[2] & 1u << 1) features |= PLS_CPU_PCLMUL;
    if (highest[0] < 7 || !(basic[2] & 1u << 27) || !pls_cpu_saves_ymm()) return features; /* bit 27: xgetbv may be used */
    pls_cpuid(7, extended);
    if (extended[1] & 1u << 5) features |= PLS_CPU_AVX2;
    if (extended[1] & 1u << 5 && extended[2] & 1u << 10) features |= PLS_CPU_VPCLMUL; /* of 256 bits, so with AVX2 */
    return features;
}

#endif
