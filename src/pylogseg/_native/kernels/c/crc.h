/* CRC-32C (Castagnoli) and CRC-32 (IEEE), by the fastest implementation for the processor.
 *
 * pls_crc_init() must run first; a module calls it when it is imported. Without it the first sum stops the process
 * instead of returning a wrong value. Calling it again, from any thread, writes the same values.
 */
#ifndef PLS_CRC_H
#define PLS_CRC_H

#include "crc_tables.h"

#if defined(__x86_64__) || defined(_M_X64)
#define PLS_CRC_X86 1
#include "crc_x86.h"
#elif defined(__AARCH64EL__) || defined(_M_ARM64)
#define PLS_CRC_ARM 1
#include "crc_arm.h"
#endif

typedef struct {
    const char *name;
    uint32_t (*crc32c)(uint32_t state, const uint8_t *data, size_t size);
    uint32_t (*crc32)(uint32_t state, const uint8_t *data, size_t size);
} pls_crc_means;

static pls_crc_means pls_crc_available[4]; /* best first */
static int pls_crc_available_count;
static const pls_crc_means *pls_crc_active;

/* The choice may change while other threads compute: they use the old or the new one. */
#ifdef _MSC_VER
#define PLS_CRC_ACTIVE() (*(const pls_crc_means *volatile *)&pls_crc_active)
#define PLS_CRC_ACTIVATE(means) (*(const pls_crc_means *volatile *)&pls_crc_active = (means))
#else
#define PLS_CRC_ACTIVE() __atomic_load_n(&pls_crc_active, __ATOMIC_ACQUIRE)
#define PLS_CRC_ACTIVATE(means) __atomic_store_n(&pls_crc_active, (means), __ATOMIC_RELEASE)
#endif

static inline void pls_crc_init(void) {
    int count = 0;
    pls_crc_init_tables();
#ifdef PLS_CRC_X86
    int features = pls_cpu_features(), folds = (features & PLS_CPU_SSE42) && (features & PLS_CPU_PCLMUL);
    if (features & PLS_CPU_SSE42) pls_crc_init_x86();
    if (folds && features & PLS_CPU_VPCLMUL)
        pls_crc_available[count++] = (pls_crc_means){"vpclmulqdq", pls_crc32c_vpclmulqdq, pls_crc32_vpclmulqdq};
    if (folds) {
        pls_crc_available[count++] = (pls_crc_means){"pclmulqdq", pls_crc32c_pclmulqdq, pls_crc32_pclmulqdq};
        pls_crc_available[count++] = (pls_crc_means){"sse42", pls_crc32c_three_lanes, pls_crc32_pclmulqdq};
    } else if (features & PLS_CPU_SSE42)
        pls_crc_available[count++] = (pls_crc_means){"sse42", pls_crc32c_one_lane, pls_crc32_tables};
#elif defined(PLS_CRC_ARM)
    int features = pls_cpu_features();
    if (features & PLS_CPU_CRC32) {
        pls_crc_init_arm();
        if (features & PLS_CPU_PMULL)
            pls_crc_available[count++] = (pls_crc_means){"pmull", pls_crc32c_three_lanes, pls_crc32_three_lanes};
        pls_crc_available[count++] = (pls_crc_means){"armv8", pls_crc32c_one_lane, pls_crc32_one_lane};
    }
#endif
    pls_crc_available[count++] = (pls_crc_means){"tables", pls_crc32c_tables, pls_crc32_tables};
    pls_crc_available_count = count;
    PLS_CRC_ACTIVATE(&pls_crc_available[0]);
}

/* The CRC-32C of data[0, size), continued from `crc`; 0 to begin. */
static inline uint32_t pls_crc32c(uint32_t crc, const uint8_t *data, size_t size) {
    return ~PLS_CRC_ACTIVE()->crc32c(~crc, data, size);
}

/* The CRC-32 of data[0, size), continued from `crc`; 0 to begin. */
static inline uint32_t pls_crc32(uint32_t crc, const uint8_t *data, size_t size) {
    return ~PLS_CRC_ACTIVE()->crc32(~crc, data, size);
}

/* The number of implementations for this processor. */
static inline int pls_crc_count(void) { return pls_crc_available_count; }

/* The name of implementation i, 0 <= i < pls_crc_count(), fastest first. */
static inline const char *pls_crc_name(int i) { return pls_crc_available[i].name; }

static inline const char *pls_crc_current(void) { return PLS_CRC_ACTIVE()->name; }

/* Use the named implementation from now on; return 0, or -1 if this processor does not have it. */
static inline int pls_crc_use(const char *name) {
    for (int i = 0; i < pls_crc_available_count; i++)
        if (!strcmp(pls_crc_available[i].name, name)) {
            PLS_CRC_ACTIVATE(&pls_crc_available[i]);
            return 0;
        }
    return -1;
}

#endif
