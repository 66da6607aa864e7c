/* Products of matrices whose rows lie at any distance, with sums in registers.
 *
 * After lanes.c. The right operand and the result have rows of numbers side by side; the left one,
 * of which each number meets a whole row, may lie either way.
 */
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Early enough that the arrays of rows become registers. */
#define UNROLLED _Pragma("GCC unroll 32")

/* The first n lanes, fewer than there are; memcpy of a size that is not constant takes ten times as
 * long. REAL is a compile-time constant, so one of the two branches is left. */
#if defined(__AVX512F__)
#define FIRST(n) ((1u << (n)) - 1)
INLINE loose load_some(const REAL *row, int64_t n)
{
    if (sizeof(REAL) == sizeof(float))
        return (loose)_mm512_maskz_loadu_ps((__mmask16)FIRST(n), row);
    return (loose)_mm512_maskz_loadu_pd((__mmask8)FIRST(n), row);
}

INLINE void store_some(REAL *row, loose values, int64_t n)
{
    if (sizeof(REAL) == sizeof(float))
        _mm512_mask_storeu_ps(row, (__mmask16)FIRST(n), (__m512)values);
    else
        _mm512_mask_storeu_pd(row, (__mmask8)FIRST(n), (__m512d)values);
}
#elif defined(__AVX2__)
static const int32_t ones[2 * BYTES / 4] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define FIRST(n) _mm256_loadu_si256((const __m256i *)(ones + (LANES - (n)) * sizeof(REAL) / 4))
INLINE loose load_some(const REAL *row, int64_t n)
{
    if (sizeof(REAL) == sizeof(float))
        return (loose)_mm256_maskload_ps((const float *)row, FIRST(n));
    return (loose)_mm256_maskload_pd((const double *)row, FIRST(n));
}

INLINE void store_some(REAL *row, loose values, int64_t n)
{
    if (sizeof(REAL) == sizeof(float))
        _mm256_maskstore_ps((float *)row, FIRST(n), (__m256)values);
    else
        _mm256_maskstore_pd((double *)row, FIRST(n), (__m256d)values);
}
#else
INLINE loose load_some(const REAL *row, int64_t n)
{
    loose part = {0};
    memcpy(&part, row, n * sizeof(REAL));
    return part;
}

INLINE void store_some(REAL *row, loose values, int64_t n)
{
    memcpy(row, &values, n * sizeof(REAL));
}
#endif

/* Stores a vector past the caches, at an aligned address; what comes after `finish_streams` finds it
 * in memory. */
INLINE void stream(REAL *row, loose values)
{
#if defined(__AVX512F__)
    _mm512_stream_ps((float *)row, (__m512)values);
#elif defined(__AVX2__)
    _mm256_stream_ps((float *)row, (__m256)values);
#elif defined(__SSE2__)
    _mm_stream_ps((float *)row, (__m128)values);
#else
    *(loose *)row = values;
#endif
}

INLINE void finish_streams(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* n is a constant, LANES, but for the last channels. */
INLINE loose load_channels(const REAL *row, int64_t n)
{
    return n == LANES ? *(const loose *)row : load_some(row, n);
}

INLINE void store_channels(REAL *row, loose values, int64_t n)
{
    if (n == LANES)
        *(loose *)row = values;
    else
        store_some(row, values, n);
}

/* out = start + a b, sums over `depth`. A row of `start` may be that of all, with a distance of 0,
 * or `start` null. With `streams`, whole vectors of `out`, all aligned, go past the caches. */
typedef struct {
    const REAL *a, *b, *start;
    REAL *out;
    int64_t rows, depth, width;
    int64_t a_row, a_step, b_row, start_row, out_row;
    int64_t streams;
} Product;

#define COLUMNS 2 /* vectors of a tile */
#define TILE_ROWS (REGISTERS * 3 / 8)

/* R rows of C vectors, of which the last has n lanes. */
INLINE void multiply_tile(const int R, const int C, const Product *p, const REAL *a, const REAL *b,
                          const REAL *start, REAL *out, const int64_t n)
{
    const REAL *quads[] = {a, a + 4 * p->a_row, a + 8 * p->a_row}; /* four rows have one address */
    const int64_t row = p->a_row, rows[] = {0, row, 2 * row, 3 * row};
    loose sums[TILE_ROWS][COLUMNS];
    UNROLLED
    for (int r = 0; r < R; r++) {
        UNROLLED
        for (int c = 0; c < C; c++)
            sums[r][c] = start ? load_channels(start + r * p->start_row + c * LANES,
                                               c == C - 1 ? n : LANES)
                               : (loose){0};
    }
    for (int64_t k = 0, i = 0; k < p->depth; k++, i += p->a_step, b += p->b_row) {
        loose right[COLUMNS];
        UNROLLED
        for (int c = 0; c < C; c++)
            right[c] = load_channels(b + c * LANES, c == C - 1 ? n : LANES);
        UNROLLED
        for (int r = 0; r < R; r++) {
            UNROLLED
            for (int c = 0; c < C; c++)
                sums[r][c] += (quads[r / 4] + i)[rows[r % 4]] * right[c];
        }
    }
    if (n == LANES && p->streams) {
        UNROLLED
        for (int r = 0; r < R; r++) {
            UNROLLED
            for (int c = 0; c < C; c++)
                stream(out + r * p->out_row + c * LANES, sums[r][c]);
        }
        return;
    }
    UNROLLED
    for (int r = 0; r < R; r++) {
        UNROLLED
        for (int c = 0; c < C; c++)
            store_channels(out + r * p->out_row + c * LANES, sums[r][c], c == C - 1 ? n : LANES);
    }
}

typedef void Tile(const Product *, const REAL *, const REAL *, const REAL *, REAL *, int64_t);

#define INSTANCE(R, C)                                                                            \
    static void tile_##R##_##C(const Product *p, const REAL *a, const REAL *b, const REAL *start, \
                               REAL *out, int64_t n)                                              \
    {                                                                                             \
        if (n == LANES)                                                                           \
            multiply_tile(R, C, p, a, b, start, out, LANES);                                      \
        else                                                                                      \
            multiply_tile(R, C, p, a, b, start, out, n);                                          \
    }
#define NAME(R, C) tile_##R##_##C,
#define SIX(F, C) F(1, C) F(2, C) F(3, C) F(4, C) F(5, C) F(6, C)
#if REGISTERS == 32
#define EACH_ROW(F, C) SIX(F, C) F(7, C) F(8, C) F(9, C) F(10, C) F(11, C) F(12, C)
#else
#define EACH_ROW(F, C) SIX(F, C)
#endif
EACH_ROW(INSTANCE, 1)
EACH_ROW(INSTANCE, 2)
static Tile *const tiles[COLUMNS][TILE_ROWS] = {{EACH_ROW(NAME, 1)}, {EACH_ROW(NAME, 2)}};

/* Size of the next of the nearly equal parts, of at most `most`, into which `left` are cut. */
INLINE int64_t cut(int64_t left, int64_t most)
{
    const int64_t n = (left + most - 1) / most;
    return (left + n - 1) / n;
}

/* All rows of a product. */
static void multiply(const Product *p)
{
    for (int64_t c = 0; c < p->width; c += COLUMNS * LANES) {
        const int64_t left = smaller(p->width - c, COLUMNS * LANES);
        const int64_t columns = (left + LANES - 1) / LANES, n = left - (columns - 1) * LANES;
        for (int64_t r = 0, rows; r < p->rows; r += rows) {
            rows = cut(p->rows - r, TILE_ROWS);
            tiles[columns - 1][rows - 1](p, p->a + r * p->a_row, p->b + c,
                                         p->start ? p->start + r * p->start_row + c : 0,
                                         p->out + r * p->out_row + c, n);
        }
    }
}
