/* Vectors of REAL (float or double) as long as the registers of the processor, of which there are
 * REGISTERS. What other sources stand on (sources.py).
 */
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64
#define REGISTERS 32
#elif defined(__AVX2__)
#define BYTES 32
#define REGISTERS 16
#else
#define BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#endif
#define LANES ((int64_t)(BYTES / sizeof(REAL)))
#define QUAD 16
#define INLINE static inline __attribute__((always_inline))

typedef REAL vec __attribute__((vector_size(BYTES)));
typedef REAL loose __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef REAL quad __attribute__((vector_size(QUAD), may_alias));

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE vec load(const REAL *from, int64_t count)
{
    if (count >= LANES)
        return *(const loose *)from;
    vec v = {0};
    memcpy(&v, from, count * sizeof(REAL));
    return v;
}

INLINE void store(REAL *to, vec v, int64_t count)
{
    if (count >= LANES)
        *(loose *)to = v;
    else
        memcpy(to, &v, count * sizeof(REAL));
}

INLINE REAL add_lanes(vec v)
{
    const quad *part = (const quad *)&v;
    quad sum = part[0];
    for (int q = 1; q < BYTES / QUAD; q++)
        sum += part[q];
    REAL total = sum[0];
    for (int l = 1; l < QUAD / (int)sizeof(REAL); l++)
        total += sum[l];
    return total;
}
