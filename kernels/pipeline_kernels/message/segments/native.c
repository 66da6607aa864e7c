/* Rows of tables summed for each element, and rows of elements summed for each segment, float or
 * double (macro REAL).
 *
 * A row is cut into pieces of at most WIDE vectors, whose sums stay in registers; what is left of
 * whole vectors goes number by number. A segment is summed by one thread in the order of its plan, so
 * that the result does not depend on the threads, which take ranges of the output from a counter.
 */
#define WIDE 8
#define MAX_TABLES 4
#define MAX_SUMS 5

typedef struct {
    const REAL *values;             /* (n_elements, width) */
    const int64_t *order, *offsets; /* no order where the elements of a segment stand side by side */
    REAL *sums;                     /* (n_segments, width) */
    int64_t n_segments, width;
} Sum;

typedef struct {
    Sum sums[MAX_SUMS];
    int64_t n_sums, n_ranges;
} Sums;

typedef struct {
    const REAL *tables[MAX_TABLES];
    const int64_t *rows[MAX_TABLES];
    REAL *out; /* (n_elements, width) */
    int64_t n_tables, n_elements, width, n_ranges;
} Gather;

/* Calls F(C, c) for pieces of C vectors or, with C = 0, for one number that begin at column c. */
#define EACH_PIECE(F)                                                                             \
    do {                                                                                          \
        int64_t c = 0;                                                                            \
        for (; c + WIDE * LANES <= width; c += WIDE * LANES)                                      \
            F(WIDE, c);                                                                           \
        if (c + 4 * LANES <= width)                                                               \
            F(4, c), c += 4 * LANES;                                                              \
        if (c + 2 * LANES <= width)                                                               \
            F(2, c), c += 2 * LANES;                                                              \
        if (c + LANES <= width)                                                                   \
            F(1, c), c += LANES;                                                                  \
        for (; c < width; c++)                                                                    \
            F(0, c);                                                                              \
    } while (0)

INLINE void sum_piece(const int C, const Sum *s, int64_t segment, int64_t column)
{
    const int64_t end = s->offsets[segment + 1], width = s->width;
    vec sums[WIDE] = {{0}};
    REAL sum = 0;
    for (int64_t k = s->offsets[segment]; k < end; k++) {
        const REAL *row = s->values + (s->order ? s->order[k] : k) * width + column;
        if (C == 0)
            sum += *row;
        for (int v = 0; v < C; v++)
            sums[v] += load(row + v * LANES, LANES);
    }
    REAL *out = s->sums + segment * width + column;
    if (C == 0)
        *out = sum;
    for (int v = 0; v < C; v++)
        store(out + v * LANES, sums[v], LANES);
}

/* The first segment of range r, if each has as many rows to read and to write. */
static int64_t begin_range(const Sum *s, int64_t r, int64_t n_ranges)
{
    const int64_t all = s->offsets[s->n_segments] + s->n_segments, wanted = all * r / n_ranges;
    int64_t low = 0, high = s->n_segments;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (s->offsets[middle] + middle < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sum_segments(const Sums *S, int64_t *counter)
{
    for (int64_t n; (n = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < S->n_sums * S->n_ranges;) {
        const Sum *s = S->sums + n / S->n_ranges;
        const int64_t r = n % S->n_ranges, end = begin_range(s, r + 1, S->n_ranges), width = s->width;
        for (int64_t segment = begin_range(s, r, S->n_ranges); segment < end; segment++) {
#define PIECE(C, c) sum_piece(C, s, segment, c)
            EACH_PIECE(PIECE);
#undef PIECE
        }
    }
}

INLINE void gather_piece(const int C, const Gather *g, const REAL *const *rows, REAL *out,
                         int64_t column)
{
    vec sums[WIDE];
    REAL sum = 0;
    for (int t = 0; t < g->n_tables; t++) {
        const REAL *row = rows[t] + column;
        if (C == 0)
            sum = t ? sum + *row : *row;
        for (int v = 0; v < C; v++) {
            const vec x = load(row + v * LANES, LANES);
            sums[v] = t ? sums[v] + x : x;
        }
    }
    if (C == 0)
        out[column] = sum;
    for (int v = 0; v < C; v++)
        store(out + column + v * LANES, sums[v], LANES);
}

void gather_rows(const Gather *g, int64_t *counter)
{
    const int64_t width = g->width;
    for (int64_t n; (n = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < g->n_ranges;) {
        const int64_t end = (n + 1) * g->n_elements / g->n_ranges;
        for (int64_t e = n * g->n_elements / g->n_ranges; e < end; e++) {
            const REAL *rows[MAX_TABLES];
            for (int t = 0; t < g->n_tables; t++)
                rows[t] = g->tables[t] + g->rows[t][e] * width;
            REAL *out = g->out + e * width;
#define PIECE(C, c) gather_piece(C, g, rows, out, c)
            EACH_PIECE(PIECE);
#undef PIECE
        }
    }
}
