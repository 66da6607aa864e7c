/* The exponential and the logistic function of vectors. After lanes.c. */

/* Early enough that the arrays of rows become registers. */
#define UNROLLED _Pragma("GCC unroll 16")

typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (uint32_t)0, (uint64_t)0)) word;
typedef word bits __attribute__((vector_size(BYTES)));

#define OF(F, D) (sizeof(REAL) == 4 ? (REAL)(F) : (REAL)(D))
#define TERMS (sizeof(REAL) == 4 ? 6 : 12)

/* exp(x) to a few units in the last place; beyond the range, as at its end. NaN stays
 * NaN.
 *
 * exp(t) = 2^n exp(f) with f in [-ln 2 / 2, ln 2 / 2]; exp(f) = 1 + f + f² P(f), where P is that of the
 * Cephes library (Moshier, 1992) in single precision, and the Taylor series in double. */
INLINE vec exponential(vec x)
{
    static const REAL P[2][12] = {
        {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5},
        {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
         1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5}};
    const REAL limit = OF(87, 708), round = OF(0x1.8p23, 0x1.8p52);
    const int mantissa = sizeof(REAL) == 4 ? 23 : 52;
    const bits high = (bits)(x > limit), low = (bits)(x < -limit);
    const vec t = (vec)(((bits)x & ~(high | low)) | ((bits)((vec){0} + limit) & high) |
                        ((bits)((vec){0} - limit) & low));
    const vec shifted = t * OF(1.4426950408889634, 1.4426950408889634) + round, n = shifted - round;
    const vec f = t - n * OF(0.693359375, 6.93145751953125e-1) -
                  n * OF(-2.12194440e-4, 1.42860682030941723212e-6);
    vec p = (vec){0} + P[sizeof(REAL) == 8][0];
    UNROLLED
    for (int k = 1; k < TERMS; k++)
        p = p * f + P[sizeof(REAL) == 8][k];
    p = p * f * f + f + 1;
    /* The last bits of `shifted` are n; they become the exponent. */
    const bits power = ((bits)shifted + (word)(sizeof(REAL) == 4 ? 127 : 1023)) << mantissa;
    return p * (vec)power;
}

/* 1 / (1 + exp(-x)) */
INLINE vec sigmoid(vec x) { return 1 / (1 + exponential(-x)); }
