/* Blocks of LANES matrices, from memory to vectors and back, behind matrices.c. */
#define NUMBERS (2 * N * N) /* of a matrix in memory: row after row, real and imaginary part */

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

typedef REAL row __attribute__((vector_size(sizeof(REAL) * LANES), aligned(sizeof(REAL)), may_alias));

INLINE vec load_row(const REAL *x)
{
#if defined(__AVX512F__) /* else a compiler widens floats half by half */
    if (sizeof(REAL) == sizeof(float))
        return (vec)_mm512_cvtps_pd(_mm256_loadu_ps((const float *)x));
#endif
    return __builtin_convertvector(*(const row *)x, vec);
}

#if BYTES == 64
#define LIST(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7)
#elif BYTES == 32
#define LIST(F) F(0), F(1), F(2), F(3)
#else
#define LIST(F) F(0), F(1)
#endif

/* A matrix of LANES vectors, in place: swaps off-diagonal blocks, half as large each time. */
INLINE void transpose(vec *a)
{
#define FIRST(j) (j & s ? LANES + j - s : j)
#define SECOND(j) (j & s ? LANES + j : j + s)
    UNROLLED for (int s = LANES / 2; s > 0; s /= 2)
        UNROLLED for (int i = 0; i < LANES; i++)
            if (!(i & s)) {
                const vec first = __builtin_shuffle(a[i], a[i + s], (mask){LIST(FIRST)});
                a[i + s] = __builtin_shuffle(a[i], a[i + s], (mask){LIST(SECOND)});
                a[i] = first;
            }
#undef FIRST
#undef SECOND
}

/* Numbers of a matrix are transposed LANES at a time, the last of them once more if need be. */
#define PARTS ((NUMBERS + LANES - 1) / LANES)
#define BEGIN(part) ((part) * LANES < NUMBERS - LANES ? (part) * LANES : NUMBERS - LANES)

/* n matrices, each of which begins `stride` numbers after the one before, and the first again in
 * place of those that a block has not. */
static void fill(REAL *block, const REAL *x, int64_t stride, int64_t n)
{
    for (int64_t l = 0; l < LANES; l++)
        memcpy(block + l * NUMBERS, x + (l < n ? l : 0) * stride, NUMBERS * sizeof(REAL));
}

/* The same as vectors, n at most LANES. */
INLINE mat load_strided(const REAL *x, int64_t stride, int64_t n)
{
    REAL block[LANES * NUMBERS];
    if (n < LANES) {
        fill(block, x, stride, n);
        x = block;
        stride = NUMBERS;
    }
    vec numbers[NUMBERS];
    UNROLLED for (int part = 0; part < PARTS; part++)
    {
        const int64_t begin = BEGIN(part);
        vec rows[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) rows[l] = load_row(x + l * stride + begin);
        transpose(rows);
        UNROLLED for (int i = 0; i < LANES; i++) numbers[begin + i] = rows[i];
    }
    mat a;
    EACH(i, j) a.e[i][j] = (cvec){numbers[2 * (N * i + j)], numbers[2 * (N * i + j) + 1]};
    return a;
}

INLINE mat load(const REAL *x, int64_t n) { return load_strided(x, NUMBERS, n); }

INLINE void store_block(REAL *x, const mat *a, int64_t stride)
{
    vec numbers[NUMBERS];
    EACH(i, j)
    {
        numbers[2 * (N * i + j)] = a->e[i][j].re;
        numbers[2 * (N * i + j) + 1] = a->e[i][j].im;
    }
    UNROLLED for (int part = 0; part < PARTS; part++)
    {
        const int64_t begin = BEGIN(part);
        vec rows[LANES];
        UNROLLED for (int i = 0; i < LANES; i++) rows[i] = numbers[begin + i];
        transpose(rows);
        UNROLLED for (int l = 0; l < LANES; l++)
            *(row *)(x + l * stride + begin) = __builtin_convertvector(rows[l], row);
    }
}

INLINE void store_strided(REAL *x, const mat *a, int64_t stride, int64_t n)
{
    REAL block[LANES * NUMBERS];
    const int whole = n == LANES;
    store_block(whole ? x : block, a, whole ? stride : NUMBERS);
    for (int64_t l = 0; !whole && l < n; l++)
        memcpy(x + l * stride, block + l * NUMBERS, NUMBERS * sizeof(REAL));
}

INLINE void store(REAL *x, const mat *a, int64_t n) { store_strided(x, a, NUMBERS, n); }

/* The same for a real vector per matrix, `width` numbers each. */
INLINE void load_rows(const double *x, int64_t width, int64_t n, vec *rows)
{
    if (n < LANES || width < LANES) {
        for (int64_t i = 0; i < width; i++)
            for (int64_t l = 0; l < LANES; l++)
                rows[i][l] = x[(l < n ? l : 0) * width + i];
        return;
    }
    for (int64_t begin = 0; begin < width; begin += LANES) {
        const int64_t place = begin < width - LANES ? begin : width - LANES;
        vec part[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) memcpy(&part[l], x + l * width + place, BYTES);
        transpose(part);
        UNROLLED for (int i = 0; i < LANES; i++) rows[place + i] = part[i];
    }
}

INLINE void store_rows(double *x, int64_t width, int64_t n, const vec *rows)
{
    if (n < LANES || width < LANES) {
        for (int64_t i = 0; i < width; i++)
            for (int64_t l = 0; l < n; l++)
                x[l * width + i] = rows[i][l];
        return;
    }
    for (int64_t begin = 0; begin < width; begin += LANES) {
        const int64_t place = begin < width - LANES ? begin : width - LANES;
        vec part[LANES];
        UNROLLED for (int i = 0; i < LANES; i++) part[i] = rows[place + i];
        transpose(part);
        UNROLLED for (int l = 0; l < LANES; l++) memcpy(x + l * width + place, &part[l], BYTES);
    }
}

/* ---- one block after the other ---- */

/* Blocks of one chunk after the other, each taken from the counter that all threads share. Within
 * the body: `first`, the first matrix, and `n`, how many. */
#define CHUNK 32
#define FOR_BLOCKS(total, counter)                                                                \
    for (int64_t chunk;                                                                           \
         (chunk = __atomic_fetch_add(counter, CHUNK * LANES, __ATOMIC_RELAXED)) < (total);)       \
        for (int64_t first = chunk, n;                                                            \
             first < chunk + CHUNK * LANES &&                                                     \
             (n = (total) - first < LANES ? (total) - first : LANES) > 0;                         \
             first += LANES)

/* Two stretches of memory that the next block reads or fills, prefetched while this one is
 * calculated: the processor foresees no numbers whose matrices lie far apart. No more at once than
 * it waits for at a time. */
typedef struct {
    const char *one, *other;
    int64_t n_lines; /* of the caches, in each */
} upcoming;

#define LINE 64
#define LINES_AT_ONCE 14

#define UPCOMING(from, to, n_numbers)                                                             \
    ((upcoming){(const char *)(from), (const char *)(to),                                         \
                first + n < total ? (n_numbers) * (int64_t)sizeof(*(from)) / LINE : 0})
/* Of what is read, where each matrix has `width` numbers: in halves. */
#define UPCOMING_OF(x, width)                                                                     \
    UPCOMING((x) + (first + n) * (width), (x) + (first + n) * (width) + n * (width) / 2,          \
             n * (width) / 2)
/* The same, and the array of derivatives. */
#define UPCOMING_BY(x, by_x, width)                                                               \
    UPCOMING((x) + (first + n) * (width), (by_x) + (first + n) * (width), n * (width))

INLINE void prefetch(upcoming *u)
{
    for (int k = 0; k < LINES_AT_ONCE && u->n_lines > 0; k++, u->n_lines--) {
        __builtin_prefetch(u->one, 0, 2);
        __builtin_prefetch(u->other, 0, 2);
        u->one += LINE;
        u->other += LINE;
    }
}
