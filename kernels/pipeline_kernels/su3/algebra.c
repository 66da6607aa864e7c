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

INLINE void set_column(map *out, int b, double factor, const mat *m)
{
    vec column[ROWS];
    components(m, column);
    UNROLLED for (int a = 0; a < ROWS; a++) out->e[a][b] = factor * column[a];
}

/* The same of a matrix that has two rows, i above j. */
INLINE void set_column_of_rows(map *out, int b, double factor, int i, int j, const cvec *row_i,
                               const cvec *row_j)
{
    EACH_PAIR(p, q)
    {
        const cvec *below = p == i ? row_i : p == j ? row_j : 0;
        const cvec *above = q == i ? row_i : q == j ? row_j : 0;
        vec re = below ? below[q].re : -above[p].re, im = below ? below[q].im : above[p].im;
        if (below && above) {
            re -= above[p].re;
            im += above[p].im;
        }
        out->e[OF_PAIR(p, q)][b] = factor * PAIR * re;
        out->e[OF_PAIR(p, q) + 1][b] = factor * PAIR * im;
    }
    EACH_DIAGONAL(d) out->e[OF_DIAGONAL(d)][b] =
        factor * diagonal_entry(d, i) * row_i[i].im + factor * diagonal_entry(d, j) * row_j[j].im;
}

/* factor times the map x -> part of x l in the algebra */
INLINE void left_product(const mat *l, double factor, map *out)
{
    EACH_PAIR(i, j)
    {
        cvec minus[N], first[N], second[N]; /* T l has the rows l_j, -l_i; or i l_j, i l_i */
        UNROLLED for (int k = 0; k < N; k++)
        {
            minus[k] = complex_of(-l->e[i][k].re, -l->e[i][k].im);
            first[k] = turned(l->e[j][k]);
            second[k] = turned(l->e[i][k]);
        }
        const int b = OF_PAIR(i, j);
        set_column_of_rows(out, b, factor * PAIR, i, j, l->e[j], minus);
        set_column_of_rows(out, b + 1, factor * PAIR, i, j, first, second);
    }
    EACH_DIAGONAL(d)
    {
        mat m;
        EACH(i, k) m.e[i][k] = turned(c_scale(all(diagonal_entry(d, i)), l->e[i][k]));
        set_column(out, OF_DIAGONAL(d), factor, &m);
    }
}

INLINE mat row_element(const map *x, int a) { return element(x->e[a]); }

/* The derivative by l of the product above, less its factor, where x is that by the result,
 * transposed. */
static mat pull_left_product(const map *x)
{
    mat out;
    mat diagonal[N - 1];
    EACH_DIAGONAL(d) diagonal[d] = row_element(x, OF_DIAGONAL(d));
    EACH(i, k)
    {
        cvec sum = c_scale(all(-diagonal_entry(0, i)), diagonal[0].e[i][k]);
        if (N == 3)
            sum = c_add(sum, c_scale(all(-diagonal_entry(1, i)), diagonal[N - 2].e[i][k]));
        out.e[i][k] = turned(sum);
    }
    EACH_PAIR(i, j)
    {
        const mat re = row_element(x, OF_PAIR(i, j)), im = row_element(x, OF_PAIR(i, j) + 1);
        UNROLLED for (int k = 0; k < N; k++)
        {
            const cvec above = turned(im.e[j][k]), below = turned(im.e[i][k]);
            const cvec to_i = c_add(re.e[j][k], above), to_j = c_sub(below, re.e[i][k]);
            out.e[i][k] = c_sub(out.e[i][k], c_scale(all(PAIR), to_i));
            out.e[j][k] = c_sub(out.e[j][k], c_scale(all(PAIR), to_j));
        }
    }
    return out;
}

/* ---- maps ---- */

#define EACH_ROW(a) for (int a = 0; a < ROWS; a++)
#define EACH_COLUMN(b) UNROLLED for (int b = 0; b < ROWS; b++)

/* Rows of a product that are calculated together, as many as have registers. */
#define TOGETHER (BYTES == 64 && ROWS % 2 == 0 ? 2 : 1)

static void multiply(const map *restrict x, const map *restrict y, map *restrict out)
{
    for (int a = 0; a < ROWS; a += TOGETHER) {
        vec line[TOGETHER][ROWS];
        UNROLLED for (int r = 0; r < TOGETHER; r++)
            EACH_COLUMN(b) line[r][b] = x->e[a + r][0] * y->e[0][b];
        UNROLLED for (int k = 1; k < ROWS; k++)
            EACH_COLUMN(b)
                UNROLLED for (int r = 0; r < TOGETHER; r++) line[r][b] += x->e[a + r][k] * y->e[k][b];
        UNROLLED for (int r = 0; r < TOGETHER; r++)
            EACH_COLUMN(b) out->e[a + r][b] = line[r][b];
    }
}

INLINE void add_diagonal(map *out, vec value) { EACH_COLUMN(a) out->e[a][a] += value; }

/* Gauss's elimination in place. */
static vec determinant(map *x)
{
    vec product = all(1);
    UNROLLED for (int k = 0; k < ROWS; k++)
    {
        product *= x->e[k][k];
        const vec inverse = 1 / x->e[k][k];
        UNROLLED for (int a = k + 1; a < ROWS; a++)
        {
            const vec factor = x->e[a][k] * inverse;
            UNROLLED for (int b = k + 1; b < ROWS; b++) x->e[a][b] -= factor * x->e[k][b];
        }
    }
    return product;
}

/* Jordan's elimination in place, of one row or of two at once, which halves what is stored. */
INLINE void eliminate(map *x, int k, const int n)
{
    vec line[2][ROWS];
    if (n == 2) {
        const vec a = x->e[k][k], b = x->e[k][k + 1], c = x->e[k + 1][k], d = x->e[k + 1][k + 1];
        const vec inverse = 1 / (a * d - b * c);
        const vec p = d * inverse, q = -b * inverse, r = -c * inverse, s = a * inverse;
        x->e[k][k] = x->e[k + 1][k + 1] = all(1);
        x->e[k][k + 1] = x->e[k + 1][k] = all(0);
        EACH_COLUMN(m)
        {
            const vec first = x->e[k][m], second = x->e[k + 1][m];
            line[0][m] = p * first + q * second;
            line[1][m] = r * first + s * second;
        }
    } else {
        const vec inverse = 1 / x->e[k][k];
        x->e[k][k] = all(1);
        EACH_COLUMN(m) line[0][m] = x->e[k][m] * inverse;
    }
    EACH_ROW(a)
    {
        if (a >= k && a < k + n)
            continue;
        const vec first = x->e[a][k], second = n == 2 ? x->e[a][k + 1] : all(0);
        x->e[a][k] = all(0);
        if (n == 2)
            x->e[a][k + 1] = all(0);
        EACH_COLUMN(m)
        {
            vec value = x->e[a][m] - first * line[0][m];
            x->e[a][m] = n == 2 ? value - second * line[1][m] : value;
        }
    }
    UNROLLED for (int r = 0; r < n; r++) EACH_COLUMN(m) x->e[k + r][m] = line[r][m];
}

static void invert(map *x)
{
    int k = 0;
    for (; k + 2 <= ROWS; k += 2)
        eliminate(x, k, 2);
    if (k < ROWS)
        eliminate(x, k, 1);
}
