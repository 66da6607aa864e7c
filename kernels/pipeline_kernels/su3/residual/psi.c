/* The map Psi of the residual step and its derivative, behind algebra.c. Of A = ad_g, in which
 * g = i h,
 *
 *     Psi = (1 - exp(-A)) / A = 1 - A sum_k A^2k / (2 k + 2)! + A^2 sum_k A^2k / (2 k + 3)!
 *
 * The squared differences of the eigenvalues of h are roots of a polynomial whose coefficients are
 * known from the invariants of h. It annihilates A, with -A^2 in place of its argument, so that both
 * sums are polynomials of POWERS terms: the Taylor series is summed for their coefficients, as that
 * of the exponential is. No eigenvalues, nothing to divide by.
 *
 * A X = i (h X - X h), and powers of h from the N-th on are sums of lower ones, so that
 *
 *     Psi X = sum_kl f_kl h^k X h^l,    k, l < N,    f_lk = conj(f_kl).
 *
 * This is applied to X with one entry, E_ij, each of which takes 2 N^2 products, where a power of A
 * takes (N^2 - 1)^3. */

#define POWERS (N == 2 ? 1 : 3)
#define DEGREE (2 * POWERS) /* of Psi as a polynomial of A */
#define PSI_TERMS 12        /* of each sum, for eigenvalues of A up to 2 */

/* Coefficients of one of the sums, and their derivatives by the invariants of h. */
typedef struct {
    vec of[POWERS], by[N - 1][POWERS];
} sum;

/* f, of which the real part is symmetric and the imaginary part antisymmetric. */
typedef struct {
    vec re[N][N], im[N][N];
} pairs;

/* f, its derivatives by the invariants of h, and powers of h. */
typedef struct {
    mat power[N];
    pairs f, by[N - 1];
} psi_of;

/* ---- coefficients ---- */

/* s = y s, with y^POWERS = q[0] + q[1] y + .. */
INLINE void times_y(vec *s, const vec *q)
{
    const vec top = s[POWERS - 1];
    UNROLLED for (int m = POWERS - 1; m > 0; m--) s[m] = s[m - 1] + q[m] * top;
    s[0] = q[0] * top;
}

/* The sum over k of y^k / (2 k + first)!, with y^POWERS replaced. Where that adds a multiple `rest`
 * of what is zero, the derivative by q[m] is y^m rest. */
INLINE sum series(const vec *c, int first, const int derivatives)
{
    vec q[POWERS], rest[POWERS];
    double factor[PSI_TERMS];
#if N == 2
    q[0] = -4 * c[0];
#else
    q[0] = 27 * c[0] * c[0] - 4 * c[1] * c[1] * c[1];
    q[1] = -9 * c[1] * c[1];
    q[2] = -6 * c[1];
#endif
    factor[0] = first == 2 ? 1.0 / 2 : 1.0 / 6;
    UNROLLED for (int k = 1; k < PSI_TERMS; k++)
        factor[k] = factor[k - 1] / ((2 * k + first) * (2 * k + first - 1));
    sum s;
    memset(&s, 0, sizeof(s));
    memset(rest, 0, sizeof(rest));
    UNROLLED for (int k = PSI_TERMS - 1; k >= 0; k--)
    {
        if (derivatives) {
            times_y(rest, q);
            rest[0] += s.of[POWERS - 1];
        }
        times_y(s.of, q);
        s.of[0] += factor[k];
    }
    if (derivatives)
        UNROLLED for (int m = 0; m < POWERS; m++)
        {
            UNROLLED for (int k = 0; k < POWERS; k++)
            {
#if N == 2
                s.by[0][k] = -4 * rest[k];
#else
                if (m == 0)
                    s.by[0][k] = 54 * c[0] * rest[k];
                s.by[1][k] = (m ? s.by[1][k] : all(0)) +
                             (m == 0 ? -12 * c[1] * c[1] : m == 1 ? -18 * c[1] : all(-6)) * rest[k];
#endif
            }
            times_y(rest, q);
        }
    return s;
}

INLINE void set_pairs(pairs *f, int k, int l, vec re, vec im)
{
    f->re[k][l] = f->re[l][k] = re;
    f->im[k][l] = im;
    f->im[l][k] = -im;
}

/* Entry of x f, of which x stands for h on the left. */
INLINE vec shifted(const vec (*f)[N], int k, int l, const vec *c)
{
    if (k == N - 1)
        return f[k - 1][l];
    return k ? f[k - 1][l] + c[k] * f[N - 1][l] : c[k] * f[N - 1][l];
}

/* i (x - y) f, of which y stands for h on the right */
INLINE pairs times_A(const pairs *f, const vec *c)
{
    pairs out;
    EACH(k, l)
        if (k <= l)
            set_pairs(&out, k, l, -(shifted(f->im, k, l, c) + shifted(f->im, l, k, c)),
                      k < l ? shifted(f->re, k, l, c) - shifted(f->re, l, k, c) : all(0));
    return out;
}

/* Adds what the derivative of the above by c[j] does to f. */
INLINE void add_slope(pairs *out, int j, const pairs *f)
{
    UNROLLED for (int l = 0; l < N; l++)
    {
        const vec re = f->re[N - 1][l], im = f->im[N - 1][l];
        if (l == j)
            out->re[j][j] -= 2 * im;
        else
            set_pairs(out, j, l, out->re[j][l] - im, out->im[j][l] + re);
    }
}

/* Fills in f, and with `derivatives` those by the invariants c. */
INLINE void compute_pairs(const vec *c, psi_of *psi, const int derivatives)
{
    const sum odd = series(c, 2, derivatives), even = series(c, 3, derivatives);
    memset(&psi->f, 0, sizeof(pairs));
    memset(psi->by, 0, sizeof(psi->by));
    UNROLLED for (int n = DEGREE; n >= 0; n--)
    {
        const int m = (n - 1) / 2; /* coefficient of A^n: -odd[m], even[m], or 1 */
        if (n < DEGREE) {
            if (derivatives)
                UNROLLED for (int j = 0; j < N - 1; j++)
                {
                    psi->by[j] = times_A(&psi->by[j], c);
                    add_slope(&psi->by[j], j, &psi->f);
                }
            psi->f = times_A(&psi->f, c);
        }
        psi->f.re[0][0] += n == 0 ? all(1) : n % 2 ? -odd.of[m] : even.of[m];
        if (derivatives && n)
            UNROLLED for (int j = 0; j < N - 1; j++)
                psi->by[j].re[0][0] += n % 2 ? -odd.by[j][m] : even.by[j][m];
    }
}

/* ---- the map ---- */

/* Of a pair of colours, where z is the image of E_ij: those of the real and imaginary matrix. */
INLINE void set_pair_columns(map *out, int i, int j, const mat *z)
{
    const int b = OF_PAIR(i, j);
    EACH_PAIR(p, q)
    {
        const cvec x = z->e[p][q], y = z->e[q][p];
        out->e[OF_PAIR(p, q)][b] = x.re - y.re;
        out->e[OF_PAIR(p, q) + 1][b] = x.im + y.im;
        out->e[OF_PAIR(p, q)][b + 1] = y.im - x.im;
        out->e[OF_PAIR(p, q) + 1][b + 1] = x.re + y.re;
    }
    EACH_DIAGONAL(d)
    {
        vec re = all(0), im = all(0);
        UNROLLED for (int k = 0; k < N; k++)
        {
            re += 2 * PAIR * diagonal_entry(d, k) * z->e[k][k].re;
            im += 2 * PAIR * diagonal_entry(d, k) * z->e[k][k].im;
        }
        out->e[OF_DIAGONAL(d)][b] = im;
        out->e[OF_DIAGONAL(d)][b + 1] = re;
    }
}

/* The entry of Psi E_ij = sum_k h^k E_ij right_k. */
INLINE cvec image_entry(const psi_of *psi, const mat *right, int i, int j, int m, int n)
{
    cvec sum = m == i ? right[0].e[j][n] : complex_of(all(0), all(0));
    UNROLLED for (int k = 1; k < N; k++)
        sum = c_mul_add(psi->power[k].e[m][i], right[k].e[j][n], sum);
    return sum;
}

/* Psi times a traceless diagonal matrix, from the images of E_00 and E_11 and Psi 1 = 1. */
INLINE void set_diagonal_columns(map *out, const psi_of *psi, const mat *right)
{
    mat image[N - 1];
    UNROLLED for (int i = 0; i < N - 1; i++) EACH(m, n)
        if (m <= n) {
            image[i].e[m][n] = image_entry(psi, right, i, i, m, n);
            image[i].e[n][m] = c_conj(image[i].e[m][n]);
        }
    EACH_DIAGONAL(d)
    {
        const double last = diagonal_entry(d, N - 1);
        mat total = m_scalar(complex_of(all(last), all(0)));
        UNROLLED for (int i = 0; i < N - 1; i++)
            m_add_scaled(&total, all(diagonal_entry(d, i) - last), &image[i]);
        total = times_i(&total);
        set_column(out, OF_DIAGONAL(d), 1, &total);
    }
}

static void compute_psi(const psi_of *psi, map *out)
{
    mat right[N]; /* sum_l f_kl h^l */
    UNROLLED for (int k = 0; k < N; k++)
    {
        right[k] = m_scalar(complex_of(psi->f.re[k][0], psi->f.im[k][0]));
        UNROLLED for (int l = 1; l < N; l++)
            m_accumulate(&right[k], complex_of(psi->f.re[k][l], psi->f.im[k][l]), &psi->power[l]);
    }
    EACH_PAIR(i, j)
    {
        mat z;
        EACH(m, n) z.e[m][n] = image_entry(psi, right, i, j, m, n);
        set_pair_columns(out, i, j, &z);
    }
    set_diagonal_columns(out, psi, right);
}

/* ---- its derivative ---- */

/* row += x m */
INLINE void add_row_product(cvec *row, const cvec *x, const mat *m)
{
    UNROLLED for (int n = 0; n < N; n++)
        UNROLLED for (int k = 0; k < N; k++) row[n] = c_mul_add(x[k], m->e[k][n], row[n]);
}

/* Adds to C_l, for all l, what E_ij h^l b is. */
INLINE void add_contraction(mat *C, const psi_of *psi, int i, int j, const mat *b)
{
    UNROLLED for (int n = 0; n < N; n++) C[0].e[i][n] = c_add(C[0].e[i][n], b->e[j][n]);
    UNROLLED for (int l = 1; l < N; l++) add_row_product(C[l].e[i], psi->power[l].e[j], b);
}

/* C_l = sum_ab T_b h^l T_a^dagger x_ba: the derivative of sum_kl f_kl tr h^k C_l by f and h is that
 * of sum_ab Psi_ab x_ba. */
static void contract(const psi_of *psi, const map *x, mat *C)
{
    UNROLLED for (int l = 0; l < N; l++) C[l] = m_scalar(complex_of(all(0), all(0)));
    EACH_PAIR(i, j)
    {
        const mat re = row_element(x, OF_PAIR(i, j)), im = row_element(x, OF_PAIR(i, j) + 1);
        mat b;
        EACH(m, n) b.e[m][n] = c_scale(all(-PAIR), c_add(re.e[m][n], turned(im.e[m][n])));
        add_contraction(C, psi, i, j, &b);
        const mat adjoint = m_adjoint(&b);
        add_contraction(C, psi, j, i, &adjoint);
    }
    mat diagonal[N - 1];
    EACH_DIAGONAL(d) diagonal[d] = row_element(x, OF_DIAGONAL(d));
    UNROLLED for (int k = 0; k < N; k++)
    {
        mat b = m_scalar(complex_of(all(0), all(0)));
        EACH_DIAGONAL(d) m_add_scaled(&b, all(-diagonal_entry(d, k)), &diagonal[d]);
        b = times_i(&b);
        add_contraction(C, psi, k, k, &b);
    }
}

/* Derivative of sum_kl f_kl tr h^k C_l by h with f as it is, Hermitian. */
INLINE mat pull_powers(const psi_of *psi, const mat *C)
{
    mat by[N]; /* twice the Hermitian part of sum_l f_kl C_l */
    UNROLLED for (int k = 1; k < N; k++)
    {
        mat total = m_scale(complex_of(psi->f.re[k][0], psi->f.im[k][0]), &C[0]);
        UNROLLED for (int l = 1; l < N; l++)
            m_accumulate(&total, complex_of(psi->f.re[k][l], psi->f.im[k][l]), &C[l]);
        const mat adjoint = m_adjoint(&total);
        by[k] = m_add(&total, &adjoint);
    }
#if N == 3
    const mat product = m_mul(&psi->power[1], &by[2]), adjoint = m_adjoint(&product);
    by[1] = m_add(&by[1], &product);
    by[1] = m_add(&by[1], &adjoint);
#endif
    return by[1];
}

/* The derivative of sum_ab Psi_ab x_ba by g, as a matrix in the algebra. */
static mat pull_psi(const psi_of *psi, const map *x)
{
    mat C[N];
    contract(psi, x, C);
    mat by_h = pull_powers(psi, C);
    vec by_c[N - 1];
    UNROLLED for (int j = 0; j < N - 1; j++) by_c[j] = all(0);
    EACH(k, l)
    {
        if (k > l)
            continue;
        cvec trace = k ? m_trace_mul(&psi->power[k], &C[l]) : m_trace(&C[l]);
        trace = k < l ? c_scale(all(2), trace) : trace;
        UNROLLED for (int j = 0; j < N - 1; j++)
            by_c[j] += psi->by[j].re[k][l] * trace.re - psi->by[j].im[k][l] * trace.im;
    }
    /* tr h^2 / 2 is the last invariant, the determinant the first of three colours */
    UNROLLED for (int j = 0; j < N - 1; j++) m_add_scaled(&by_h, by_c[j], &psi->power[N - 1 - j]);
    m_add_scalar(&by_h, complex_of(m_trace(&by_h).re * (-1.0 / N), all(0)));
    return times_i(&by_h);
}
