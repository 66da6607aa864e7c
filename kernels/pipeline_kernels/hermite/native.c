/* Splines of tables (see __init__.py), float or double (macro REAL). After polynomials.c.
 *
 * Every thread makes the same call and takes the next numbers from the counter that they share.
 */
#define PIECE 64 /* numbers */

typedef struct {
    const double *x;
    const REAL *table;
    double *by_x;
    REAL *const *groups; /* of columns: results, or derivatives by them */
    const int64_t *widths;
    int64_t n_groups, n, n_columns, n_intervals;
} Splines;

#define EACH(e)                                                                                   \
    for (int64_t piece;                                                                           \
         (piece = PIECE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < k->n;)              \
        for (int64_t e = piece; e < smaller(piece + PIECE, k->n); e++)

/* The first of the six rows for a number, and their factors. */
INLINE const REAL *find(const Splines *k, double x, REAL *f, REAL *df)
{
    int64_t interval = x < k->n_intervals ? (int64_t)x : k->n_intervals - 1;
    interval = x > 0 ? interval : 0;
    place((REAL)(x - interval), f, df);
    return k->table + 3 * interval * k->n_columns;
}

INLINE vec combine(const REAL *rows, int64_t stride, const REAL *f, int64_t count)
{
    vec sum = {0};
    for (int i = 0; i < FACTORS; i++)
        sum += f[i] * load(rows + i * stride, count);
    return sum;
}

void interpolate(const Splines *k, int64_t *counter)
{
    EACH(e)
    {
        REAL f[FACTORS], df[FACTORS];
        const REAL *rows = find(k, k->x[e], f, df);
        for (int64_t i = 0; i < k->n_groups; rows += k->widths[i++]) {
            const int64_t width = k->widths[i];
            REAL *out = k->groups[i] + e * width;
            for (int64_t c = 0; c < width; c += LANES)
                store(out + c, combine(rows + c, k->n_columns, f, width - c), width - c);
        }
    }
}

void differentiate(const Splines *k, int64_t *counter)
{
    EACH(e)
    {
        REAL f[FACTORS], df[FACTORS];
        const REAL *rows = find(k, k->x[e], f, df);
        vec sum = {0};
        for (int64_t i = 0; i < k->n_groups; rows += k->widths[i++]) {
            const int64_t width = k->widths[i];
            const REAL *g = k->groups[i] + e * width;
            for (int64_t c = 0; c < width; c += LANES)
                sum += load(g + c, width - c) * combine(rows + c, k->n_columns, df, width - c);
        }
        k->by_x[e] = add_lanes(sum);
    }
}
