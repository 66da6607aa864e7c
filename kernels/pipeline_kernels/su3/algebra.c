/* The algebra su(N) as a real vector space, and its linear maps, on matrices.c.
 *
 * Basis: antihermitian traceless T_a with tr T_a^dagger T_b = delta_ab, of each pair of colours one
 * real and one imaginary matrix, then the diagonal ones. A map is a real matrix of ROWS dimensions. */

#define ROWS (N * N - 1)

typedef struct {
    vec e[ROWS][ROWS];
} map;

static const double PAIR = 0.70710678118654752440; /* 1 / sqrt 2 */

/* Imaginary entry k of generator d of the diagonal ones. */
INLINE double diagonal_entry(int d, int k)
{
    if (d == 0)
        return k == 0 ? PAIR : k == 1 ? -PAIR : 0;
    return (k == 2 ? -2 : 1) * 0.40824829046386301637; /* 1 / sqrt 6 */
}

#define EACH_PAIR(i, j)                                                                           \
    UNROLLED for (int i = 1; i < N; i++) UNROLLED for (int j = 0; j < i; j++)
#define OF_PAIR(i, j) ((i) * ((i) - 1) + 2 * (j))
#define EACH_DIAGONAL(d) UNROLLED for (int d = 0; d < N - 1; d++)
#define OF_DIAGONAL(d) (N * (N - 1) + (d))

/* ---- elements ---- */

/* Of the part of m in the algebra. */
INLINE void components(const mat *m, vec *out)
{
    EACH_PAIR(i, j)
    {
        out[OF_PAIR(i, j)] = PAIR * (m->e[i][j].re - m->e[j][i].re);
        out[OF_PAIR(i, j) + 1] = PAIR * (m->e[i][j].im + m->e[j][i].im);
    }
    EACH_DIAGONAL(d)
    {
        vec total = diagonal_entry(d, 0) * m->e[0][0].im;
        UNROLLED for (int k = 1; k < N; k++) total += diagonal_entry(d, k) * m->e[k][k].im;
        out[OF_DIAGONAL(d)] = total;
    }
}

INLINE mat element(const vec *x)
{
    mat out;
    EACH_PAIR(i, j)
    {
        const vec re = PAIR * x[OF_PAIR(i, j)], im = PAIR * x[OF_PAIR(i, j) + 1];
        out.e[i][j] = complex_of(re, im);
        out.e[j][i] = complex_of(-re, im);
    }
    UNROLLED for (int k = 0; k < N; k++)
    {
        vec im = all(0);
        EACH_DIAGONAL(d) im += diagonal_entry(d, k) * x[OF_DIAGONAL(d)];
        out.e[k][k] = complex_of(all(0), im);
    }
    return out;
}

INLINE cvec turned(cvec a) { return complex_of(-a.im, a.re); } /* i a */

/* A generator times l, row by row: of a pair the real one, then the imaginary one. */
INLINE mat times_pair(int i, int j, int imaginary, const mat *l)
{
    mat out = m_scalar(complex_of(all(0), all(0)));
    UNROLLED for (int k = 0; k < N; k++)
    {
        const cvec x = c_scale(all(PAIR), l->e[j][k]), y = c_scale(all(PAIR), l->e[i][k]);
        out.e[i][k] = imaginary ? turned(x) : x;
        out.e[j][k] = imaginary ? turned(y) : c_scale(all(-1), y);
    }
    return out;
}

INLINE mat times_diagonal(int d, const mat *l)
{
    mat out;
    EACH(i, k) out.e[i][k] = turned(c_scale(all(diagonal_entry(d, i)), l->e[i][k]));
    return out;
}

INLINE void set_column(map *out, int b, double factor, const mat *m)
{
    vec column[ROWS];
    components(m, column);
    UNROLLED for (int a = 0; a < ROWS; a++) out->e[a][b] = factor * column[a];
}

/* factor times the map x -> part of x l in the algebra */
static void left_product(const mat *l, double factor, map *out)
{
    EACH_PAIR(i, j)
    {
        UNROLLED for (int imaginary = 0; imaginary < 2; imaginary++)
        {
            const mat m = times_pair(i, j, imaginary, l);
            set_column(out, OF_PAIR(i, j) + imaginary, factor, &m);
        }
    }
    EACH_DIAGONAL(d)
    {
        const mat m = times_diagonal(d, l);
        set_column(out, OF_DIAGONAL(d), factor, &m);
    }
}

INLINE mat column_element(const map *x, int b)
{
    vec column[ROWS];
    UNROLLED for (int a = 0; a < ROWS; a++) column[a] = x->e[a][b];
    return element(column);
}

/* The derivative by l of the product above, less its factor, where x is that by the result. */
static mat pull_left_product(const map *x)
{
    mat out = m_scalar(complex_of(all(0), all(0)));
    const cvec minus = complex_of(all(-1), all(0));
    EACH_PAIR(i, j)
    {
        UNROLLED for (int imaginary = 0; imaginary < 2; imaginary++)
        {
            const mat y = column_element(x, OF_PAIR(i, j) + imaginary);
            const mat m = times_pair(i, j, imaginary, &y);
            m_accumulate(&out, minus, &m);
        }
    }
    EACH_DIAGONAL(d)
    {
        const mat y = column_element(x, OF_DIAGONAL(d)), m = times_diagonal(d, &y);
        m_accumulate(&out, minus, &m);
    }
    return out;
}

/* ---- maps ---- */

#define EACH_ROW(a) for (int a = 0; a < ROWS; a++)
#define EACH_COLUMN(b) UNROLLED for (int b = 0; b < ROWS; b++)

static void multiply(const map *x, const map *y, map *out)
{
    EACH_ROW(a)
    {
        vec line[ROWS];
        EACH_COLUMN(b) line[b] = x->e[a][0] * y->e[0][b];
        EACH_COLUMN(k)
        {
            if (k == 0)
                continue;
            EACH_COLUMN(b) line[b] += x->e[a][k] * y->e[k][b];
        }
        EACH_COLUMN(b) out->e[a][b] = line[b];
    }
}

INLINE void add(map *out, vec factor, const map *x)
{
    EACH_ROW(a) EACH_COLUMN(b) out->e[a][b] += factor * x->e[a][b];
}

INLINE void add_diagonal(map *out, vec value) { EACH_COLUMN(a) out->e[a][a] += value; }

/* factor times the transpose */
static void transpose_map(const map *x, vec factor, map *out)
{
    EACH_ROW(a) EACH_COLUMN(b) out->e[a][b] = factor * x->e[b][a];
}

INLINE vec inner_map(const map *x, const map *y)
{
    vec total = all(0);
    EACH_ROW(a) EACH_COLUMN(b) total += x->e[a][b] * y->e[a][b];
    return total;
}

INLINE vec trace_map(const map *x)
{
    vec total = x->e[0][0];
    EACH_COLUMN(a) total += a ? x->e[a][a] : all(0);
    return total;
}

/* Gauss's elimination in place. */
static vec determinant(map *x)
{
    vec product = all(1);
    EACH_ROW(k)
    {
        product *= x->e[k][k];
        const vec inverse = 1 / x->e[k][k];
        for (int a = k + 1; a < ROWS; a++) {
            const vec factor = x->e[a][k] * inverse;
            for (int b = k + 1; b < ROWS; b++)
                x->e[a][b] -= factor * x->e[k][b];
        }
    }
    return product;
}

/* Jordan's elimination in place. */
static void invert(map *x)
{
    EACH_ROW(k)
    {
        const vec inverse = 1 / x->e[k][k];
        x->e[k][k] = all(1);
        vec line[ROWS];
        EACH_COLUMN(b) line[b] = x->e[k][b] *= inverse;
        EACH_ROW(a)
        {
            if (a == k)
                continue;
            const vec factor = x->e[a][k];
            x->e[a][k] = all(0);
            EACH_COLUMN(b) x->e[a][b] -= factor * line[b];
        }
    }
}
