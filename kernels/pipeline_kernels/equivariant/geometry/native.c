/* The geometry of edges and its reverse (see __init__.py), float or double (macro REAL).
 *
 * BLOCK edges go through together, one behind the other in each row of memory, so that the compiler
 * makes vectors of them.
 */
#define BLOCK 64
#define KNOT 3 /* rows of a knot */
#define ROWS 6 /* of a table, that make a weight: two knots */

typedef struct {
    int64_t axis, by, harmonic;
} Term;

typedef struct {
    const REAL *norms;   /* (lmax + 1, lmax + 1), by degree, then order */
    const REAL *hermite; /* (ROWS, ROWS): coefficients of the powers */
    const REAL *scale;   /* knots in an Å */
    const Term *terms;   /* of D, */
    const REAL *values;  /* and their values */
    int64_t lmax, n_intervals, n_terms, n_edges;
} Basis;

typedef REAL Lane[BLOCK];

INLINE int64_t count_harmonics(const Basis *basis) { return (basis->lmax + 1) * (basis->lmax + 1); }

int64_t memory_size(const Basis *basis)
{
    return BYTES + 2 * count_harmonics(basis) * sizeof(Lane);
}

INLINE Lane *align(void *memory)
{
    return (Lane *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

#define FOR_BLOCKS                                                                                 \
    for (int64_t start; (start = BLOCK * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) <       \
                        basis->n_edges;)
#define EACH for (int64_t i = 0; i < BLOCK; i++)

/* rows[k][i] = from[i][k] of the next `count` edges; what is beyond repeats the last of them. */
static void turn(const REAL *from, int64_t size, int64_t count, Lane *rows)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t k = 0; k < size; k++)
            rows[k][i] = from[(i < count ? i : count - 1) * size + k];
}

static void turn_back(Lane *rows, int64_t size, int64_t count, REAL *to)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < size; k++)
            to[i * size + k] = rows[k][i];
}

/* Solid harmonics about the z axis, by the recursion of harmonics.py. */
static void compute_harmonics(const Basis *basis, const REAL *x, const REAL *y, const REAL *z,
                              Lane *rows)
{
    Lane cosine, sine, square, below, legendre;
    EACH
    {
        cosine[i] = 1, sine[i] = 0;
        square[i] = x[i] * x[i] + y[i] * y[i] + z[i] * z[i];
    }
    for (int64_t m = 0; m <= basis->lmax; m++) {
        EACH
        {
            const REAL c = cosine[i], s = sine[i];
            cosine[i] = m ? x[i] * c - y[i] * s : 1;
            sine[i] = m ? x[i] * s + y[i] * c : 0;
            below[i] = 0, legendre[i] = 1;
        }
        for (int64_t l = m; l <= basis->lmax; l++) {
            const REAL norm = basis->norms[l * (basis->lmax + 1) + m];
            REAL *plus = rows[l * (l + 1) + m], *minus = rows[l * (l + 1) - m];
            if (l > m)
                EACH
                {
                    const REAL above = (2 * l - 1) * z[i] * legendre[i] -
                                       (l + m - 1) * square[i] * below[i];
                    below[i] = legendre[i];
                    legendre[i] = above / (l - m);
                }
            EACH plus[i] = norm * legendre[i] * cosine[i];
            if (m)
                EACH minus[i] = norm * legendre[i] * sine[i];
        }
    }
}

void measure(const Basis *basis, const REAL *vectors, REAL *directions, REAL *distances,
             REAL *harmonics, int64_t *first, REAL *factors, REAL *slopes, int64_t *counter,
             void *memory)
{
    const int64_t n = count_harmonics(basis);
    const REAL *H = basis->hermite, last = basis->n_intervals - 1;
    Lane *rows = align(memory), v[3], r, t, interval, of[ROWS], slope[ROWS];
    FOR_BLOCKS
    {
        const int64_t count = smaller(BLOCK, basis->n_edges - start);
        turn(vectors + 3 * start, 3, count, v);
        EACH
        {
            const REAL square = v[0][i] * v[0][i] + v[1][i] * v[1][i] + v[2][i] * v[2][i];
            r[i] = sizeof(REAL) == 4 ? (REAL)__builtin_sqrtf(square) : (REAL)__builtin_sqrt(square);
            for (int k = 0; k < 3; k++)
                v[k][i] /= -r[i];
            const REAL x = r[i] * basis->scale[0], whole = (REAL)(int64_t)x;
            interval[i] = x > last ? last : x > 0 ? whole : 0; /* 0 of what is no number */
            t[i] = x - interval[i];
        }
        for (int k = 0; k < ROWS; k++)
            EACH
            {
                REAL value = H[ROWS * k + ROWS - 1], derivative = 0;
                for (int j = ROWS - 2; j >= 0; j--) {
                    derivative = derivative * t[i] + value;
                    value = value * t[i] + H[ROWS * k + j];
                }
                of[k][i] = value, slope[k][i] = derivative;
            }
        compute_harmonics(basis, v[2], v[0], v[1], rows);
        turn_back(rows, n, count, harmonics + n * start);
        turn_back(v, 3, count, directions + 3 * start);
        turn_back(of, ROWS, count, factors + ROWS * start);
        turn_back(slope, ROWS, count, slopes + ROWS * start);
        for (int64_t i = 0; i < count; i++) {
            distances[start + i] = r[i];
            first[start + i] = KNOT * (int64_t)interval[i];
        }
    }
}

void reverse(const Basis *basis, const REAL *directions, const REAL *distances,
             const REAL *harmonics, const REAL *by_harmonics, const REAL *by_places,
             REAL *by_vectors, int64_t *counter, void *memory)
{
    const int64_t n = count_harmonics(basis);
    Lane *rows = align(memory), *by = rows + n, u[3], d[3], r[1], x[1];
    FOR_BLOCKS
    {
        const int64_t count = smaller(BLOCK, basis->n_edges - start);
        turn(harmonics + n * start, n, count, rows);
        turn(by_harmonics + n * start, n, count, by);
        turn(directions + 3 * start, 3, count, u);
        turn(distances + start, 1, count, r);
        turn(by_places + start, 1, count, x);
        memset(d, 0, sizeof(d));
        for (int64_t k = 0; k < basis->n_terms; k++) {
            const Term term = basis->terms[k];
            const REAL *g = by[term.by], *Y = rows[term.harmonic];
            REAL *sum = d[term.axis];
            EACH sum[i] += basis->values[k] * g[i] * Y[i];
        }
        EACH
        {
            const REAL along = d[0][i] * u[0][i] + d[1][i] * u[1][i] + d[2][i] * u[2][i];
            const REAL radial = along / r[0][i] - basis->scale[0] * x[0][i];
            for (int k = 0; k < 3; k++)
                d[k][i] = radial * u[k][i] - d[k][i] / r[0][i];
        }
        turn_back(d, 3, count, by_vectors + 3 * start);
    }
}
