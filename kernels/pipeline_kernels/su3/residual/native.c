/* The residual step and its derivatives (see op.py), behind the exponential and algebra.c. Of
 * A = ad_g, in which g = i h,
 *
 *     Psi = (1 - exp(-A)) / A = 1 - A sum_k A^2k / (2 k + 2)! + A^2 sum_k A^2k / (2 k + 3)!
 *
 * The squared differences of the eigenvalues of h are roots of a polynomial whose coefficients are
 * known from the invariants of h. It annihilates A, with -A^2 in place of its argument, so that both
 * sums are polynomials of POWERS terms: the Taylor series is summed for their coefficients, as that
 * of the exponential is. No eigenvalues, nothing to divide by.
 *
 * Where the step is one to one, x (1 + Psi M) x > 0 for every x != 0: elimination needs no pivots. */

#define POWERS (N == 2 ? 1 : 3)
#define PSI_TERMS 12 /* of each sum, for eigenvalues of A up to 2 */
#define PICARD 4
#define NEWTON 60
#define TOLERANCE 1e-9 /* of the last step of Newton's iteration, whose error is its square */

/* Coefficients of one of the sums, and their derivatives by the invariants of h. */
typedef struct {
    vec of[POWERS], by[N - 1][POWERS];
} sum;

/* Of one link: g, and how the map turns as the link turns, 1 + Psi M. */
typedef struct {
    mat loop, h, square, turn; /* U Sigma^dagger, h, h^2, exp(g) */
    vec c[N - 1];              /* invariants of h */
    map A, A2, A3, M, psi, slope;
    sum odd, even;
} point;

/* ---- Psi ---- */

/* The sum over k of y^k / (2 k + first)!, with y^POWERS replaced. */
INLINE sum series(const vec *c, int first)
{
    vec q[POWERS], by[N - 1][POWERS]; /* y^POWERS = q[0] + q[1] y + ..; by the invariants */
    double factor[PSI_TERMS];
    memset(by, 0, sizeof(by));
#if N == 2
    q[0] = -4 * c[0];
    by[0][0] = all(-4);
#else
    q[0] = 27 * c[0] * c[0] - 4 * c[1] * c[1] * c[1];
    q[1] = -9 * c[1] * c[1];
    q[2] = -6 * c[1];
    by[0][0] = 54 * c[0];
    by[1][0] = -12 * c[1] * c[1];
    by[1][1] = -18 * c[1];
    by[1][2] = all(-6);
#endif
    factor[0] = first == 2 ? 1.0 / 2 : 1.0 / 6;
    for (int k = 1; k < PSI_TERMS; k++)
        factor[k] = factor[k - 1] / ((2 * k + first) * (2 * k + first - 1));
    sum s;
    memset(&s, 0, sizeof(s));
    for (int k = PSI_TERMS - 1; k >= 0; k--) {
        const vec top = s.of[POWERS - 1];
        UNROLLED for (int i = 0; i < N - 1; i++)
        {
            const vec last = s.by[i][POWERS - 1];
            UNROLLED for (int m = POWERS - 1; m >= 0; m--)
                s.by[i][m] = (m ? s.by[i][m - 1] : all(0)) + q[m] * last + by[i][m] * top;
        }
        UNROLLED for (int m = POWERS - 1; m >= 0; m--)
            s.of[m] = (m ? s.of[m - 1] : all(factor[k])) + q[m] * top;
    }
    return s;
}

/* What multiplies A^3 in Psi. */
INLINE void third_power_factor(const point *p, map *out)
{
    memset(out, 0, sizeof(*out));
#if N == 3
    add_diagonal(out, -p->odd.of[1]);
    add(out, p->even.of[1], &p->A);
    add(out, -p->odd.of[2], &p->A2);
    add(out, p->even.of[2], &p->A3);
#endif
}

static void compute_psi(point *p)
{
    const mat g = times_i(&p->h);
    left_product(&g, -2, &p->A);
    p->odd = series(p->c, 2);
    p->even = series(p->c, 3);
    multiply(&p->A, &p->A, &p->A2);
    memset(&p->psi, 0, sizeof(p->psi));
    if (N == 3) {
        map factor;
        multiply(&p->A, &p->A2, &p->A3);
        third_power_factor(p, &factor);
        multiply(&p->A3, &factor, &p->psi);
    }
    add_diagonal(&p->psi, all(1));
    add(&p->psi, -p->odd.of[0], &p->A);
    add(&p->psi, p->even.of[0], &p->A2);
}

/* Returns the derivative by g, where `by` is that by Psi, as a matrix in the algebra. */
static mat pull_psi(const point *p, const map *by)
{
    map by_A, by_A2, part;
    memset(&by_A, 0, sizeof(map));
    memset(&by_A2, 0, sizeof(map));
    add(&by_A, -p->odd.of[0], by);
    add(&by_A2, p->even.of[0], by);
    vec by_odd[POWERS], by_even[POWERS];
    by_odd[0] = -inner_map(by, &p->A);
    by_even[0] = inner_map(by, &p->A2);
#if N == 3
    /* Psi = .. + A^3 factor, and A^3 is antisymmetric */
    map factor, transposed, by_factor, by_A3;
    third_power_factor(p, &factor);
    multiply(&p->A3, by, &by_factor);
    EACH_ROW(a) EACH_COLUMN(b) by_factor.e[a][b] = -by_factor.e[a][b];
    transpose_map(&factor, all(1), &transposed);
    multiply(by, &transposed, &by_A3);
    add(&by_A3, p->even.of[2], &by_factor);
    add(&by_A, p->even.of[1], &by_factor);
    add(&by_A2, -p->odd.of[2], &by_factor);
    by_odd[1] = -trace_map(&by_factor);
    by_odd[2] = -inner_map(&by_factor, &p->A2);
    by_even[1] = inner_map(&by_factor, &p->A);
    by_even[2] = inner_map(&by_factor, &p->A3);
    multiply(&by_A3, &p->A2, &part); /* A^3 = A A^2 */
    add(&by_A, all(1), &part);
    multiply(&p->A, &by_A3, &part);
    add(&by_A2, all(-1), &part);
#endif
    multiply(&by_A2, &p->A, &part); /* A^2 = A A */
    add(&by_A, all(-1), &part);
    multiply(&p->A, &by_A2, &part);
    add(&by_A, all(-1), &part);
    mat by_g = pull_left_product(&by_A), by_h = m_scalar(complex_of(all(0), all(0)));
    EACH(i, j) by_g.e[i][j] = c_scale(all(-2), by_g.e[i][j]);
    UNROLLED for (int i = 0; i < N - 1; i++)
    {
        vec by_c = all(0);
        UNROLLED for (int m = 0; m < POWERS; m++)
            by_c += p->odd.by[i][m] * by_odd[m] + p->even.by[i][m] * by_even[m];
        /* tr h^2 / 2 is the last invariant, the determinant the first of three colours */
        m_accumulate(&by_h, complex_of(by_c, all(0)), N - 1 - i == 1 ? &p->h : &p->square);
    }
    EACH(i, j) by_g.e[i][j] = c_add(by_g.e[i][j], turned(by_h.e[i][j]));
    const mat part_of = hermitian_part(&by_g);
    return times_i(&part_of);
}

/* ---- one link ---- */

static void evaluate(const mat *u, const mat *sigma, point *p)
{
    const mat adjoint = m_adjoint(sigma);
    p->loop = m_mul(u, &adjoint);
    p->h = hermitian_part(&p->loop);
    p->square = m_mul_hermitian(&p->h, &p->h);
    invariants(&p->h, &p->square, p->c);
    compute_psi(p);
    left_product(&p->loop, 1, &p->M);
    multiply(&p->psi, &p->M, &p->slope);
    add_diagonal(&p->slope, all(1));
    vec c[N - 1];
    memcpy(c, p->c, sizeof(c));
    const Poly f = exponential_polynomial(c, 0);
    p->turn = polynomial(f.f, &p->h, &p->square);
}

/* exp of the part of a in the algebra, times `factor` */
static mat exponential_of_part(const mat *a, double factor)
{
    mat h = hermitian_part(a);
    EACH(i, j) h.e[i][j] = c_scale(all(factor), h.e[i][j]);
    const mat square = m_mul_hermitian(&h, &h);
    vec c[N - 1];
    invariants(&h, &square, c);
    const Poly f = exponential_polynomial(c, 0);
    return polynomial(f.f, &h, &square);
}

/* The link whose image is `moved`; not a number where the iteration does not end. */
static mat solve(const mat *moved, const mat *sigma, point *p)
{
    mat u = *moved;
    const mat adjoint = m_adjoint(sigma), moved_adjoint = m_adjoint(moved);
    for (int k = 0; k < PICARD; k++) {
        const mat loop = m_mul(&u, &adjoint), back = exponential_of_part(&loop, -1);
        u = m_mul(&back, moved);
    }
    mask open = (mask)(all(0) == all(0));
    for (int k = 0; k < NEWTON && any(open); k++) {
        evaluate(&u, sigma, p);
        invert(&p->slope);
        const mat across = m_mul(&u, &moved_adjoint), error = m_mul(&across, &p->turn);
        vec x[ROWS], step[ROWS], largest = all(0);
        components(&error, x);
        EACH_COLUMN(a)
        {
            step[a] = p->slope.e[a][0] * x[0];
            EACH_COLUMN(b) step[a] += b ? p->slope.e[a][b] * x[b] : all(0);
            largest = larger(largest, magnitude(step[a]));
        }
        const mat generator = element(step), back = exponential_of_part(&generator, -1);
        const mat next = m_mul(&back, &u);
        EACH(i, j) u.e[i][j] = c_either(open, next.e[i][j], u.e[i][j]);
        open &= (mask)(largest > TOLERANCE);
    }
    EACH(i, j) u.e[i][j] = c_either(open, complex_of(all(NAN), all(NAN)), u.e[i][j]);
    return u;
}

/* Adds the derivatives by u and Sigma of factor times the log-determinant; inverts the slope. */
static void pull_log_determinant(point *p, vec factor, mat *by_loop)
{
    map product, by;
    multiply(&p->slope, &p->psi, &product); /* tr slope^-1 Psi dM */
    transpose_map(&product, factor, &by);
    mat part = pull_left_product(&by);
    *by_loop = m_add(by_loop, &part);
    multiply(&p->M, &p->slope, &product); /* tr M slope^-1 dPsi */
    transpose_map(&product, factor, &by);
    part = pull_psi(p, &by);
    *by_loop = m_add(by_loop, &part);
}

/* The derivative by the loop, where `by` is that by exp(g) U. */
INLINE mat pull_turn(const point *p, const mat *u, const mat *by)
{
    const mat adjoint = m_adjoint(u), by_turn = m_mul(by, &adjoint);
    return exponential_gradient_of(&p->loop, &by_turn);
}

/* Derivatives of both results by u and Sigma. */
static void pull(point *p, const mat *u, const mat *sigma, const mat *by_moved, vec by_log_det,
                 mat *by_u, mat *by_sigma)
{
    mat by_loop = pull_turn(p, u, by_moved);
    if (any((mask)(by_log_det != 0))) {
        invert(&p->slope);
        pull_log_determinant(p, by_log_det, &by_loop);
    }
    const mat turn = m_adjoint(&p->turn), direct = m_mul(&turn, by_moved);
    const mat along = m_mul(&by_loop, sigma), adjoint = m_adjoint(&by_loop);
    *by_u = m_add(&direct, &along);
    *by_sigma = m_mul(&adjoint, u);
}

/* The same of the inverse, whose result is u: those of its implicit function. */
static void pull_inverse(point *p, const mat *u, const mat *moved, const mat *sigma,
                         const mat *by_u, vec by_log_det, mat *by_moved, mat *by_sigma)
{
    mat by_loop = m_scalar(complex_of(all(0), all(0)));
    invert(&p->slope);
    if (any((mask)(by_log_det != 0)))
        pull_log_determinant(p, -by_log_det, &by_loop);
    mat total = m_mul(&by_loop, sigma);
    total = m_add(&total, by_u);
    const mat adjoint = m_adjoint(u), across = m_mul(&total, &adjoint);
    vec x[ROWS], y[ROWS];
    components(&across, x);
    EACH_COLUMN(a)
    {
        y[a] = p->slope.e[0][a] * x[0];
        EACH_COLUMN(b) y[a] += b ? p->slope.e[b][a] * x[b] : all(0);
    }
    const mat generator = element(y), left = m_mul(&p->turn, &generator);
    const mat turn = m_adjoint(&p->turn), both = m_mul(&left, &turn);
    *by_moved = m_mul(&both, moved);
    const mat own = pull_turn(p, u, by_moved);
    m_accumulate(&by_loop, complex_of(all(-1), all(0)), &own);
    const mat across_loop = m_adjoint(&by_loop);
    *by_sigma = m_mul(&across_loop, u);
}

/* ---- what is called from outside ---- */

INLINE mat load_sum(const REAL *paths, const double *weights, int64_t n_paths, int64_t n,
                    vec *rows)
{
    mat total = m_scalar(complex_of(all(0), all(0)));
    load_rows(weights, n_paths, n, rows);
    for (int64_t k = 0; k < n_paths; k++) {
        const mat path = load_strided(paths + k * NUMBERS, n_paths * NUMBERS, n);
        m_accumulate(&total, complex_of(rows[k], all(0)), &path);
    }
    return total;
}

void residual_step(const REAL *U, const REAL *paths, const double *weights, REAL *moved,
                   double *log_det, int64_t n_paths, int64_t inverse, int64_t total,
                   int64_t *counter)
{
    vec rows[n_paths];
    FOR_BLOCKS(total, counter)
    {
        const mat u = load(U + first * NUMBERS, n);
        const mat sigma = load_sum(paths + first * n_paths * NUMBERS, weights + first * n_paths,
                                   n_paths, n, rows);
        point p;
        mat image;
        if (inverse) {
            image = solve(&u, &sigma, &p);
            evaluate(&image, &sigma, &p);
        } else {
            evaluate(&u, &sigma, &p);
            image = m_mul(&p.turn, &u);
        }
        store(moved + first * NUMBERS, &image, n);
        vec logarithm = logarithm_of(determinant(&p.slope));
        logarithm = inverse ? -logarithm : logarithm;
        store_rows(log_det + first, 1, n, &logarithm);
    }
}

void residual_gradient(const REAL *U, const REAL *paths, const double *weights, const REAL *moved,
                       const REAL *by_moved, const double *by_log_det, REAL *by_U, REAL *by_paths,
                       double *by_weights, int64_t n_paths, int64_t inverse, int64_t total,
                       int64_t *counter)
{
    vec rows[n_paths], by_rows[n_paths];
    FOR_BLOCKS(total, counter)
    {
        const mat u = load(U + first * NUMBERS, n), by = load(by_moved + first * NUMBERS, n);
        const REAL *own = paths + first * n_paths * NUMBERS;
        const mat sigma = load_sum(own, weights + first * n_paths, n_paths, n, rows);
        vec factor;
        load_rows(by_log_det + first, 1, n, &factor);
        point p;
        mat by_u, by_sigma;
        if (inverse) {
            const mat source = load(moved + first * NUMBERS, n);
            evaluate(&source, &sigma, &p);
            pull_inverse(&p, &source, &u, &sigma, &by, factor, &by_u, &by_sigma);
        } else {
            evaluate(&u, &sigma, &p);
            pull(&p, &u, &sigma, &by, factor, &by_u, &by_sigma);
        }
        store(by_U + first * NUMBERS, &by_u, n);
        for (int64_t k = 0; k < n_paths; k++) {
            const mat path = load_strided(own + k * NUMBERS, n_paths * NUMBERS, n);
            by_rows[k] = m_inner(&path, &by_sigma).re;
            const mat by_path = m_scale(complex_of(rows[k], all(0)), &by_sigma);
            store_strided(by_paths + (first * n_paths + k) * NUMBERS, &by_path,
                          n_paths * NUMBERS, n);
        }
        store_rows(by_weights + first * n_paths, n_paths, n, by_rows);
    }
}
