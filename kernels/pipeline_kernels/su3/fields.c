/* What products along paths and staples stand on: samples as the lanes of vectors, float or double
 * (macro REAL), and products of matrices of N = 2 or 3 colours (macro N). A field holds NUMBERS
 * vectors a matrix.
 */
/* Early enough that arrays of vectors become registers. */
#define UNROLLED _Pragma("GCC unroll 18")
#define NUMBERS (2 * N * N)

typedef __typeof__((vec){0} < (vec){0}) mask;

/* Swaps off-diagonal blocks, half as large each time. */
INLINE void transpose(vec *a)
{
    UNROLLED for (int s = LANES / 2; s > 0; s /= 2)
    {
        mask first, second;
        UNROLLED for (int j = 0; j < LANES; j++)
        {
            first[j] = j & s ? LANES + j - s : j;
            second[j] = j & s ? LANES + j : j + s;
        }
        UNROLLED for (int i = 0; i < LANES; i++)
            if (!(i & s)) {
                const vec low = __builtin_shuffle(a[i], a[i + s], first);
                a[i + s] = __builtin_shuffle(a[i], a[i + s], second);
                a[i] = low;
            }
    }
}

/* `count` numbers of each of n samples that lie `sample` apart; lanes beyond n become zero. */
INLINE void pack(vec *to, const REAL *x, int64_t count, int64_t sample, int64_t n)
{
    int64_t begin = 0;
    for (; begin + LANES <= count; begin += LANES) {
        vec rows[LANES];
        UNROLLED for (int l = 0; l < LANES; l++)
        {
            rows[l] = (vec){0};
            if (l < n)
                rows[l] = *(const loose *)(x + l * sample + begin);
        }
        transpose(rows);
        UNROLLED for (int l = 0; l < LANES; l++) to[begin + l] = rows[l];
    }
    for (; begin < count; begin++)
        for (int64_t l = 0; l < LANES; l++)
            to[begin][l] = l < n ? x[l * sample + begin] : 0;
}

INLINE void unpack(REAL *x, const vec *from, int64_t count, int64_t sample, int64_t n)
{
    int64_t begin = 0;
    for (; begin + LANES <= count; begin += LANES) {
        vec rows[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) rows[l] = from[begin + l];
        transpose(rows);
        UNROLLED for (int l = 0; l < LANES; l++)
            if (l < n)
                *(loose *)(x + l * sample + begin) = rows[l];
    }
    for (; begin < count; begin++)
        for (int64_t l = 0; l < n; l++)
            x[l * sample + begin] = from[begin][l];
}

/* out = a b, or out += a b, with either factor replaced by its adjoint. Without `restrict` the
 * factors would be read anew for each element. */
INLINE void multiply_as(vec *restrict out, const vec *restrict a, const int adjoint_a,
                        const vec *restrict b, const int adjoint_b, const int add)
{
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        vec re = add ? out[2 * (N * i + j)] : (vec){0};
        vec im = add ? out[2 * (N * i + j) + 1] : (vec){0};
        UNROLLED for (int k = 0; k < N; k++)
        {
            const vec *x = a + 2 * (adjoint_a ? N * k + i : N * i + k);
            const vec *y = b + 2 * (adjoint_b ? N * j + k : N * k + j);
            re += x[0] * y[0];
            if (adjoint_a == adjoint_b)
                re -= x[1] * y[1];
            else
                re += x[1] * y[1];
            if (adjoint_b)
                im -= x[0] * y[1];
            else
                im += x[0] * y[1];
            if (adjoint_a)
                im -= x[1] * y[0];
            else
                im += x[1] * y[0];
        }
        out[2 * (N * i + j)] = re;
        out[2 * (N * i + j) + 1] = im;
    }
}

