/* What staples and products along paths stand on: samples, or places of one, as the lanes of vectors,
 * float or double (macro REAL), and products of matrices of N = 2 or 3 colours (macro N). A field
 * holds NUMBERS vectors a matrix.
 */
/* Early enough that arrays of vectors become registers. */
#define UNROLLED _Pragma("GCC unroll 18")
#define NUMBERS (2 * N * N)

typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) lane;
typedef lane mask __attribute__((vector_size(BYTES)));

/* The first whole vector of a memory that has BYTES more than it needs. */
INLINE vec *aligned(void *memory)
{
    return (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

/* Which lanes of two vectors make the first and the second one where blocks of s are swapped: tables,
 * so that they are compile-time constants. */
#define LIST(F, s)                                                                                \
    {F(s, 0), F(s, 1), F(s, 2),  F(s, 3),  F(s, 4),  F(s, 5),  F(s, 6),  F(s, 7),                 \
     F(s, 8), F(s, 9), F(s, 10), F(s, 11), F(s, 12), F(s, 13), F(s, 14), F(s, 15)}
#define LOW(s, j) ((j) & (s) ? LANES + (j) - (s) : (j))
#define HIGH(s, j) ((j) & (s) ? LANES + (j) : (j) + (s))
static const lane swaps[][2][16] = {
    {LIST(LOW, 1), LIST(HIGH, 1)},
    {LIST(LOW, 2), LIST(HIGH, 2)},
    {LIST(LOW, 4), LIST(HIGH, 4)},
    {LIST(LOW, 8), LIST(HIGH, 8)},
};
#undef LOW
#undef HIGH
#undef LIST

/* Swaps off-diagonal blocks, half as large each time. */
INLINE void transpose(vec *a)
{
    UNROLLED for (int k = 3; k >= 0; k--)
    {
        const int s = 1 << k;
        if (s >= LANES)
            continue;
        mask low, high;
        memcpy(&low, swaps[k][0], BYTES);
        memcpy(&high, swaps[k][1], BYTES);
        UNROLLED for (int i = 0; i < LANES; i++)
            if (!(i & s)) {
                const vec first = __builtin_shuffle(a[i], a[i + s], low);
                a[i + s] = __builtin_shuffle(a[i], a[i + s], high);
                a[i] = first;
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
 * factors would be read again for each element. */
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

