/* Edges of a network with constant weights (see __init__.py), float or double (macro REAL). After
 * polynomials.c.
 *
 * Every thread makes the same call and takes the next edges from the counter that they share.
 */
#define PIECE 128 /* edges */

typedef struct {
    const REAL *vectors, *by_harmonics, *by_x;
    const double *norms, *slopes; /* (lmax + 1, lmax + 1); of harmonics, of those of `terms` */
    const int64_t *terms;         /* axis, row, column of each */
    REAL *directions, *distance, *harmonics;
    int64_t *first;
    REAL *factors, *factor_slopes, *by_vectors;
    int64_t n_edges, lmax, n_intervals, n_terms;
    double scale;
} Work;

#define EACH_EDGE(e)                                                                              \
    for (int64_t piece;                                                                           \
         (piece = PIECE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < k->n_edges;)        \
        for (int64_t e = piece; e < smaller(piece + PIECE, k->n_edges); e++)

INLINE REAL root(REAL square)
{
    return sizeof(REAL) == 4 ? (REAL)__builtin_sqrtf(square) : (REAL)__builtin_sqrt(square);
}

/* Harmonics about y of a unit vector, as `solid_harmonics` of (z, x, y). */
static void expand(const Work *k, const REAL *u, REAL *rows)
{
    const REAL x = u[2], y = u[0], z = u[1];
    REAL cosine = 1, sine = 0;
    for (int64_t m = 0; m <= k->lmax; m++) {
        if (m) {
            const REAL before = cosine;
            cosine = x * cosine - y * sine;
            sine = x * sine + y * before;
        }
        REAL below = 0, legendre = 1;
        for (int64_t l = m; l <= k->lmax; l++) {
            if (l > m) {
                const REAL above = (2 * l - 1) * z * legendre - (l + m - 1) * below;
                below = legendre;
                legendre = above / (l - m);
            }
            const REAL scaled = (REAL)k->norms[l * (k->lmax + 1) + m] * legendre;
            rows[l * (l + 1) + m] = scaled * cosine;
            if (m)
                rows[l * (l + 1) - m] = scaled * sine;
        }
    }
}

void measure(const Work *k, int64_t *counter)
{
    const int64_t n = (k->lmax + 1) * (k->lmax + 1);
    EACH_EDGE(e)
    {
        const REAL *v = k->vectors + 3 * e;
        REAL *u = k->directions + 3 * e;
        const REAL r = root(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), x = r * (REAL)k->scale;
        for (int i = 0; i < 3; i++)
            u[i] = -v[i] / r;
        k->distance[e] = r;
        expand(k, u, k->harmonics + n * e);
        const int64_t interval = x < k->n_intervals ? (int64_t)x : k->n_intervals - 1;
        k->first[e] = 3 * interval;
        place(x - interval, k->factors + FACTORS * e, k->factor_slopes + FACTORS * e);
    }
}

void differentiate(const Work *k, int64_t *counter)
{
    const int64_t n = (k->lmax + 1) * (k->lmax + 1);
    EACH_EDGE(e)
    {
        const REAL *u = k->directions + 3 * e, *Y = k->harmonics + n * e;
        const REAL *g = k->by_harmonics + n * e;
        REAL a[3] = {0}, inward = 0;
        for (int64_t i = 0; i < k->n_terms; i++) {
            const int64_t *term = k->terms + 3 * i;
            a[term[0]] += (REAL)k->slopes[i] * g[term[1]] * Y[term[2]];
        }
        for (int i = 0; i < 3; i++)
            inward += a[i] * u[i];
        const REAL along = -(REAL)k->scale * k->by_x[e];
        for (int i = 0; i < 3; i++)
            k->by_vectors[3 * e + i] = along * u[i] - (a[i] - inward * u[i]) / k->distance[e];
    }
}
