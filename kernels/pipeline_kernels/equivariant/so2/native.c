/* Rotation of features to the frames of edges and back (see __init__.py), float or double (macro
 * REAL), for one layout. What depends on the layout stands before this text (sources.py):
 *
 *     LMAX, MMAX     highest degree and order
 *     DEGREES(F)     F(l) for each degree
 *
 * Channels are the lanes of vectors. The rows of a degree are held in registers, and each entry of
 * its block of the Wigner matrix is read once per vector of channels.
 */
#define DIM ((LMAX + 1) * (LMAX + 1))
#define START(l) ((l) * (4 * (l) * (l) - 1) / 3) /* where the block of a degree begins */
#define ENTRIES START(LMAX + 1)
#define N_SUMS (MMAX * (2 * LMAX + 1 - MMAX) / 2) /* rows of orders above 0 */
#define N_ROWS (LMAX + 1 + 2 * N_SUMS)

typedef struct {
    const int64_t *index; /* row of x of each edge; null: the edge itself */
    const int64_t *order; /* edges by row of x: null, or a permutation */
    const int64_t *first, *last; /* of each row of x, part of that list; null: the edge itself */
    int64_t begin, end; /* edges, of which y holds no others; or rows of x, if there is a list */
    int64_t y_begin; /* the edge that y begins with */
    int64_t chunk;   /* edges or rows that a thread takes at once */
    int64_t channels, natural; /* of x; those from the second number on are turned in y */
    int64_t y_edge, y_row; /* elements from one edge or row of y to the next */
    int64_t f_edge, f_degree; /* the same for factors */
} Work;

/* The row by order of the component (l, m), or -1. */
INLINE int place(const int l, const int m)
{
    const int a = m < 0 ? -m : m;
    if (a > MMAX)
        return -1;
    return (a ? (2 * a - 1) * (LMAX + 1) - a * (a - 1) : 0) + (m < 0 ? LMAX + 1 - a : 0) + l - a;
}

/* Ones in lanes whose channel is turned, from channel c on; null if none is. */
INLINE const loose *find_turned(const int64_t c, const int64_t n, loose *lanes, const Work *work)
{
    if (c + n <= work->natural)
        return 0;
    for (int64_t k = 0; k < LANES; k++)
        (*lanes)[k] = c + k >= work->natural;
    return lanes;
}

/* One of the values in turned lanes, the other elsewhere: exact, as products with 0 and 1 are. */
INLINE loose choose(const loose turned, const loose one, const loose other)
{
    return turned * one + (1 - turned) * other;
}

/* ---- some channels of one degree of one edge ---- */

/* Row i of D times rows. */
INLINE loose multiply_row(const int l, const int i, const REAL *D, const loose *rows)
{
    loose sum = D[i * (2 * l + 1)] * rows[0];
    UNROLLED
    for (int j = 1; j < 2 * l + 1; j++)
        sum += D[i * (2 * l + 1) + j] * rows[j];
    return sum;
}

/* y = P D f x */
INLINE void lift_degree(const int l, const int64_t n, const REAL *D, const REAL *x, const REAL *f,
                        REAL *y, const loose *turned, const Work *work)
{
    loose rows[2 * LMAX + 1];
    UNROLLED
    for (int j = 0; j < 2 * l + 1; j++) {
        rows[j] = load_channels(x + j * work->channels, n);
        if (f)
            rows[j] *= load_channels(f, n);
    }
    UNROLLED
    for (int m = 1; m <= l; m++)
        if (place(l, m) >= 0) {
            loose minus = multiply_row(l, l - m, D, rows), plus = multiply_row(l, l + m, D, rows);
            if (turned) {
                const loose before = plus;
                plus = choose(*turned, minus, plus);
                minus = choose(*turned, -before, minus);
            }
            store_channels(y + place(l, -m) * work->y_row, minus, n);
            store_channels(y + place(l, m) * work->y_row, plus, n);
        }
    store_channels(y + place(l, 0) * work->y_row, multiply_row(l, l, D, rows), n);
}

/* rows = D^T P^T y */
INLINE void turn_back(const int l, const int64_t n, const REAL *D, const REAL *y, loose *rows,
                      const loose *turned, const Work *work)
{
    UNROLLED
    for (int j = 0; j < 2 * l + 1; j++)
        rows[j] = (loose){0};
    UNROLLED
    for (int i = 0; i < 2 * l + 1; i++)
        if (place(l, i - l) >= 0) {
            loose row = load_channels(y + place(l, i - l) * work->y_row, n);
            if (turned && i != l) {
                const loose opposite = load_channels(y + place(l, l - i) * work->y_row, n);
                row = choose(*turned, i > l ? -opposite : opposite, row);
            }
            UNROLLED
            for (int j = 0; j < 2 * l + 1; j++)
                rows[j] += D[i * (2 * l + 1) + j] * row;
        }
}

/* x += f D^T P^T y, or without the sum */
INLINE void lower_degree(const int l, const int64_t n, const REAL *D, const REAL *y, const REAL *f,
                         REAL *x, const int adds, const loose *turned, const Work *work)
{
    loose rows[2 * LMAX + 1];
    turn_back(l, n, D, y, rows, turned, work);
    UNROLLED
    for (int j = 0; j < 2 * l + 1; j++) {
        if (f)
            rows[j] *= load_channels(f, n);
        if (adds)
            rows[j] += load_channels(x + j * work->channels, n);
    }
    /* After all were read, for some lanes of a row wait for those of the one before. */
    UNROLLED
    for (int j = 0; j < 2 * l + 1; j++)
        store_channels(x + j * work->channels, rows[j], n);
}

/* by_f = sum over components of x D^T P^T y */
INLINE void factor_degree(const int l, const int64_t n, const REAL *D, const REAL *y, const REAL *x,
                          REAL *by_f, const loose *turned, const Work *work)
{
    loose rows[2 * LMAX + 1], sum = {0};
    turn_back(l, n, D, y, rows, turned, work);
    UNROLLED
    for (int j = 0; j < 2 * l + 1; j++)
        sum += load_channels(x + j * work->channels, n) * rows[j];
    if (l > 0 && work->f_degree == 0)
        sum += load_channels(by_f, n);
    store_channels(by_f, sum, n);
}

/* ---- all of one edge ---- */

#define CHANNELS(CALL)                                                                            \
    int64_t c = 0;                                                                                \
    loose lanes;                                                                                  \
    for (; c + LANES <= work->channels; c += LANES) {                                             \
        const int64_t n = LANES;                                                                  \
        const loose *turned = find_turned(c, n, &lanes, work);                                    \
        DEGREES(CALL)                                                                             \
    }                                                                                             \
    const int64_t n = work->channels - c;                                                         \
    if (n > 0) {                                                                                  \
        const loose *turned = find_turned(c, n, &lanes, work);                                    \
        DEGREES(CALL)                                                                             \
    }

static void lift_edge(const REAL *D, const REAL *x, const REAL *f, REAL *y, const Work *work)
{
#define CALL(l)                                                                                   \
    lift_degree(l, n, D + START(l), x + l * l * work->channels + c,                               \
                f ? f + l * work->f_degree + c : 0, y + c, turned, work);
    CHANNELS(CALL)
#undef CALL
}

INLINE void lower_edge(const REAL *D, const REAL *y, const REAL *f, REAL *x, const int adds,
                       const Work *work)
{
#define CALL(l)                                                                                   \
    lower_degree(l, n, D + START(l), y + c, f ? f + l * work->f_degree + c : 0,                   \
                 x + l * l * work->channels + c, adds, turned, work);
    CHANNELS(CALL)
#undef CALL
}

static void factor_edge(const REAL *D, const REAL *y, const REAL *x, REAL *by_f, const Work *work)
{
#define CALL(l)                                                                                   \
    factor_degree(l, n, D + START(l), y + c, x + l * l * work->channels + c,                      \
                  by_f + l * work->f_degree + c, turned, work);
    CHANNELS(CALL)
#undef CALL
}

/* x_m + x_-m of the orders above 0 of edge e, one after the other. */
INLINE void add_orders(const REAL *x, REAL *out, int64_t e, int64_t channels)
{
    REAL *to = out + e * N_SUMS * channels;
    for (int m = 1; m <= MMAX; m++) {
        const REAL *plus = x + (e * N_ROWS + place(m, m)) * channels;
        const REAL *minus = x + (e * N_ROWS + place(m, -m)) * channels;
        for (int64_t i = 0; i < (LMAX + 1 - m) * channels; i++)
            *to++ = plus[i] + minus[i];
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call and takes the next edges or rows from the counter that they
 * share. Factors may be null. */

#define FOR_PIECES                                                                                \
    for (int64_t piece;                                                                           \
         (piece = work->begin + __atomic_fetch_add(counter, work->chunk, __ATOMIC_RELAXED)) <     \
         work->end;)                                                                              \
        for (int64_t k = piece; k < smaller(piece + work->chunk, work->end); k++)

#define ROW(x, k) ((x) + (work->index ? work->index[k] : (k)) * DIM * work->channels)

void lift(const REAL *x, const REAL *D, const REAL *f, REAL *y, const Work *work, int64_t *counter)
{
    FOR_PIECES
    lift_edge(D + k * ENTRIES, ROW(x, k), f ? f + k * work->f_edge : 0,
              y + (k - work->y_begin) * work->y_edge, work);
}

void lower(const REAL *y, const REAL *D, const REAL *f, REAL *x, const Work *work,
           int64_t *counter)
{
    FOR_PIECES
    {
        const int64_t first = work->first ? work->first[k] : k;
        const int64_t last = work->first ? work->last[k] : k + 1;
        for (int64_t i = first; i < last; i++) {
            const int64_t e = work->first && work->order ? work->order[i] : i;
            lower_edge(D + e * ENTRIES, y + (e - work->y_begin) * work->y_edge,
                       f ? f + e * work->f_edge : 0, x + k * DIM * work->channels,
                       work->first != 0, work);
        }
    }
}

void factor_gradient(const REAL *y, const REAL *D, const REAL *x, REAL *by_f, const Work *work,
                     int64_t *counter)
{
    FOR_PIECES
    factor_edge(D + k * ENTRIES, y + (k - work->y_begin) * work->y_edge, ROW(x, k),
                by_f + k * work->f_edge, work);
}
