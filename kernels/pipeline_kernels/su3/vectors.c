/* Vectors of doubles, and functions of them that the system's library has for single numbers only.
 * Each function treats each lane alone.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES ((int64_t)(BYTES / sizeof(double)))
#define INLINE static inline __attribute__((always_inline))
/* Early enough that arrays of vectors become registers. */
#define UNROLLED _Pragma("GCC unroll 18")
#define TINY 1e-280

typedef double vec __attribute__((vector_size(BYTES)));
typedef int64_t mask __attribute__((vector_size(BYTES))); /* of a comparison: 0 or -1 */

INLINE vec all(double x) { return x - (vec){0}; } /* minus, since -0.0 + 0.0 is 0.0 */
INLINE vec either(mask m, vec a, vec b) { return (vec)((m & (mask)a) | (~m & (mask)b)); }
INLINE vec larger(vec a, vec b) { return either(a > b, a, b); }
INLINE vec lesser(vec a, vec b) { return either(a < b, a, b); }
INLINE vec magnitude(vec x) { return (vec)((mask)x & INT64_MAX); }
INLINE vec with_sign(vec x, vec sign)
{
    return (vec)(((mask)x & INT64_MAX) | ((mask)sign & INT64_MIN));
}

INLINE int any(mask m)
{
    int64_t bits = 0;
    for (int l = 0; l < LANES; l++)
        bits |= m[l];
    return bits != 0;
}

INLINE vec root(vec x)
{
    vec r;
    for (int l = 0; l < LANES; l++) /* becomes one instruction */
        r[l] = __builtin_sqrt(x[l]);
    return r;
}

/* Adding this number rounds to an integer, which then stands in the lowest bits. */
#define ROUNDING 6755399441055744.0 /* 1.5 * 2**52 */

INLINE vec nearest(vec x) { return (x + ROUNDING) - ROUNDING; }
INLINE mask bits_of(vec integer) { return (mask)(integer + ROUNDING); }

/* Coefficients below: Chebyshev fits of this project, relative error of the function < 1e-16. */

/* |x| < 1e5: beyond, the error grows with x. */
INLINE void sin_cos(vec x, vec *sine, vec *cosine)
{
    const vec k = nearest(x * 0.63661977236758134308);
    const mask quadrant = bits_of(k);
    vec r = x - k * 1.57079632673412561417; /* pi/2 in three parts, the first of 33 bits */
    r = r - k * 6.07710050630396597660e-11;
    r = r - k * 2.02226624879595063154e-21;
    const vec y = r * r;
    vec s = y * 1.5918115263265974e-10 - 2.505113165023518e-08;
    s = s * y + 2.7557316101617874e-06;
    s = s * y - 0.00019841269836756774;
    s = s * y + 0.008333333333330948;
    s = s * y - 0.16666666666666666;
    s = s * y * r + r;
    vec c = y * -1.1382623647474604e-11 + 2.087614614655861e-09;
    c = c * y - 2.7557317271145144e-07;
    c = c * y + 2.480158729876456e-05;
    c = c * y - 0.0013888888888887398;
    c = c * y + 0.041666666666666664;
    c = c * y * y + (1 - 0.5 * y);
    const mask odd = -(quadrant & 1);
    *sine = (vec)((mask)either(odd, c, s) ^ (quadrant & 2) << 62);
    *cosine = (vec)((mask)either(odd, s, c) ^ ((quadrant + 1) & 2) << 62);
}

/* In [-pi, pi]; zero at the origin. */
INLINE vec arc(vec y, vec x)
{
    const vec a = magnitude(x), b = magnitude(y);
    const vec low = lesser(a, b), high = larger(a, b);
    const mask far = low > 0.41421356237309503 * high; /* tan(pi/8) */
    const vec t = either(far, low - high, low) /
                  larger(either(far, low + high, high), all(TINY));
    const vec u = t * t, v = u * u; /* even and odd powers apart: neither waits for the other */
    vec p = v * -0.019175404711104935 - 0.050854078345894844;
    vec q = v * 0.03923044778479309 + 0.05858140904866328;
    p = p * v - 0.06664510525508936;
    q = q * v + 0.07692183125376892;
    p = p * v - 0.0909090457530649;
    q = q * v + 0.11111111015187018;
    p = p * v - 0.14285714284665682;
    q = q * v + 0.19999999999995516;
    p = p * v - 0.3333333333333333;
    p = (q * u + p) * u * t + t;
    p = either(far, p + 0.78539816339744830962, p);
    p = either(b > a, 1.57079632679489661923 - p, p);
    p = either((mask)x < 0, 3.14159265358979323846 - p, p);
    return with_sign(p, y);
}

/* exp(x - k log 2) for the whole number k nearest to x / log 2. */
INLINE vec exponential_part(vec x, vec *k)
{
    *k = nearest(x * 1.44269504088896340736);
    vec r = x - *k * 6.93147180369123816490e-01;
    r = r - *k * 1.90821492927058770002e-10;
    vec p = r * 2.0914686968086876e-09 + 2.5105217004720745e-08;
    p = p * r + 2.75572736431103e-07;
    p = p * r + 2.7557255400206422e-06;
    p = p * r + 2.4801587325547743e-05;
    p = p * r + 0.00019841269874820627;
    p = p * r + 0.0013888888888883748;
    p = p * r + 0.008333333333326136;
    p = p * r + 0.04166666666666667;
    p = p * r + 0.1666666666666667;
    p = p * r + 0.5;
    return 1 + (r + p * r * r);
}

/* For normal positive numbers. */
INLINE vec logarithm_of(vec x)
{
    /* x = 2**k m, sqrt(1/2) <= m < sqrt(2) */
    const mask shifted = (mask)x - 0x3fe6a09e667f3bcd;
    const mask k = shifted >> 52;
    const vec m = (vec)((mask)x - (k << 52));
    const vec power = (vec)(k + (mask)all(ROUNDING)) - ROUNDING;
    const vec s = (m - 1) / (m + 1), y = s * s;
    vec p = y * 0.13086767009948175 + 0.13268759668560612;
    p = p * y + 0.15386240205813478;
    p = p * y + 0.18181795630884753;
    p = p * y + 0.2222222239180047;
    p = p * y + 0.2857142857080323;
    p = p * y + 0.4000000000000088;
    p = p * y + 0.6666666666666666;
    p = p * y * s + 2 * s;
    return power * 6.93147180369123816490e-01 + (power * 1.90821492927058770002e-10 + p);
}

/* For numbers >= 0, with one over it. From a third of the exponent, which a number's upper bits are
 * but for 4 %, by y <- y (1 - h)^(-1/3), h = 1 - x y^3, as a series: nothing is divided. */
INLINE vec cube_root(vec x, vec *inverse)
{
    const vec safe = larger(x, all(TINY));
    const vec bits = (vec)(((mask)safe >> 32) + (mask)all(ROUNDING)) - ROUNDING;
    vec y = (vec)(bits_of(1430190000.0 - bits * (1.0 / 3)) << 32);
    UNROLLED for (int step = 0; step < 2; step++)
    {
        const vec h = 1 - safe * y * (y * y);
        y += y * h * (1.0 / 3 + h * (2.0 / 9 + h * (14.0 / 81)));
    }
    const vec square = y * y;
    vec r = safe * square;
    r += (safe - r * r * r) * (square * (1.0 / 3));
    *inverse = y + y * (1 - r * y);
    return either(x > TINY, r, all(0));
}
