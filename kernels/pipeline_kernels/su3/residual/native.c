/* The residual step and its derivatives (see op.py), behind psi.c.
 *
 * Where the step is one to one, x (1 + Psi M) x > 0 for every x != 0: elimination needs no pivots. */

#define PICARD 4
#define NEWTON 60
#define TOLERANCE 1e-9 /* of the last step of Newton's iteration, whose error is its square */

/* Of one link: exp(g), and how the map turns as the link turns, 1 + Psi M. */
typedef struct {
    mat loop, turn; /* U Sigma^dagger, exp(g) */
    vec c[N - 1];   /* invariants of h */
    Poly exponential;
    psi_of of_h;
    map M, psi, slope;
    upcoming next;
} point;

/* ---- one link ---- */

INLINE void evaluate(const mat *u, const mat *sigma, point *p, const int derivatives)
{
    const mat adjoint = m_adjoint(sigma);
    p->loop = m_mul(u, &adjoint);
    mat *power = p->of_h.power;
    power[1] = hermitian_part(&p->loop);
    const mat square = m_mul_hermitian(&power[1], &power[1]);
    power[N - 1] = N == 3 ? square : power[1];
    invariants(&power[1], &square, p->c);
    vec c[N - 1];
    memcpy(c, p->c, sizeof(c));
    p->exponential = exponential_polynomial(c, derivatives);
    prefetch(&p->next);
    p->turn = polynomial(p->exponential.f, &power[1], &square);
    compute_pairs(p->c, &p->of_h, derivatives);
    prefetch(&p->next);
    compute_psi(&p->of_h, &p->psi);
    prefetch(&p->next);
    left_product(&p->loop, 1, &p->M);
    prefetch(&p->next);
    multiply(&p->psi, &p->M, &p->slope);
    add_diagonal(&p->slope, all(1));
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
        evaluate(&u, sigma, p, 0);
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

/* Adds the derivative by the loop of factor times the log-determinant; needs the slope inverted. */
static void pull_log_determinant(point *p, vec factor, mat *by_loop)
{
    map product;
    multiply(&p->slope, &p->psi, &product); /* tr slope^-1 Psi dM */
    prefetch(&p->next);
    const mat by_M = pull_left_product(&product);
    prefetch(&p->next);
    multiply(&p->M, &p->slope, &product); /* tr M slope^-1 dPsi */
    prefetch(&p->next);
    const mat by_g = pull_psi(&p->of_h, &product);
    prefetch(&p->next);
    m_add_scaled(by_loop, factor, &by_M);
    m_add_scaled(by_loop, factor, &by_g);
}

/* The derivative by the loop, where `by` is that by exp(g) U. */
INLINE mat pull_turn(const point *p, const mat *u, const mat *by)
{
    const mat adjoint = m_adjoint(u), by_turn = m_mul(by, &adjoint), *h = &p->of_h.power[1];
    const mat square = N == 3 ? p->of_h.power[N - 1] : m_mul_hermitian(h, h);
    return pull_exponential(h, &square, p->c, &p->exponential, &by_turn);
}

/* Derivatives of both results by u and Sigma. */
static void pull(point *p, const mat *u, const mat *sigma, const mat *by_moved, vec by_log_det,
                 mat *by_u, mat *by_sigma)
{
    mat by_loop = pull_turn(p, u, by_moved);
    if (any((mask)(by_log_det != 0))) {
        prefetch(&p->next);
        invert(&p->slope);
        prefetch(&p->next);
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
    m_add_scaled(&by_loop, all(-1), &own);
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
        m_add_scaled(&total, rows[k], &path);
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
        p.next = UPCOMING_OF(paths, n_paths * NUMBERS);
        prefetch(&p.next);
        mat image;
        if (inverse) {
            image = solve(&u, &sigma, &p);
            evaluate(&image, &sigma, &p, 0);
        } else {
            evaluate(&u, &sigma, &p, 0);
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
        p.next = UPCOMING_BY(paths, by_paths, n_paths * NUMBERS);
        prefetch(&p.next);
        mat by_u, by_sigma;
        if (inverse) {
            const mat source = load(moved + first * NUMBERS, n);
            evaluate(&source, &sigma, &p, 1);
            pull_inverse(&p, &source, &u, &sigma, &by, factor, &by_u, &by_sigma);
        } else {
            evaluate(&u, &sigma, &p, 1);
            pull(&p, &u, &sigma, &by, factor, &by_u, &by_sigma);
        }
        store(by_U + first * NUMBERS, &by_u, n);
        for (int64_t k = 0; k < n_paths; k++) {
            const mat path = load_strided(own + k * NUMBERS, n_paths * NUMBERS, n);
            by_rows[k] = m_inner(&path, &by_sigma).re;
            mat by_path;
            EACH(i, j) by_path.e[i][j] = c_scale(rows[k], by_sigma.e[i][j]);
            store_strided(by_paths + (first * n_paths + k) * NUMBERS, &by_path,
                          n_paths * NUMBERS, n);
        }
        store_rows(by_weights + first * n_paths, n_paths, n, by_rows);
    }
}
