/* The exponential of the algebra and its derivative (see the package), on matrices.c.
 *
 * A traceless Hermitian h obeys h^N = c[0] + ... + c[N-2] h^(N-2), so that exp(i h) is a polynomial
 * of degree N - 1 whose coefficients depend on the invariants c. The coefficients are summed as a
 * Taylor series of h / 2^k and squared k times, derivatives by the invariants along with them: no
 * eigenvalues, nothing to divide by, no input that is special. */

#define TERMS (sizeof(REAL) == sizeof(float) ? 13 : 20) /* for eigenvalues up to 1 */
#define MAX_HALVINGS 60

typedef struct {
    cvec f[N];
    cvec by[N - 1][N]; /* derivatives by the invariants */
} Poly;

INLINE void invariants(const mat *h, const mat *square, vec *c)
{
#if N == 2
    c[0] = 0.5 * m_trace(square).re;
#else
    c[0] = m_det(h).re;
    c[1] = 0.5 * m_trace(square).re;
#endif
}

/* p = i h p + term */
INLINE void horner_step(Poly *p, const vec *c, double term, const int derivatives)
{
    const cvec top = p->f[N - 1];
    if (derivatives)
        UNROLLED for (int j = 0; j < N - 1; j++)
        {
            cvec next[N], last = p->by[j][N - 1];
            UNROLLED for (int m = 0; m < N; m++)
            {
                next[m] = m ? p->by[j][m - 1] : complex_of(all(0), all(0));
                if (m < N - 1)
                    next[m] = c_add(next[m], c_scale(c[m], last));
                if (m == j)
                    next[m] = c_add(next[m], top);
            }
            UNROLLED for (int m = 0; m < N; m++)
                p->by[j][m] = complex_of(-next[m].im, next[m].re);
        }
    UNROLLED for (int m = N - 1; m >= 0; m--)
    {
        cvec next = m ? p->f[m - 1] : complex_of(all(0), all(0));
        if (m < N - 1)
            next = c_add(next, c_scale(c[m], top));
        p->f[m] = complex_of(m ? -next.im : term - next.im, next.re);
    }
}

/* p = p^2 in the lanes of `m` */
INLINE void square_step(Poly *p, const vec *c, mask m, const int derivatives)
{
    cvec full[2 * N - 1], by[N - 1][2 * N - 1];
    UNROLLED for (int k = 0; k < 2 * N - 1; k++)
    {
        full[k] = complex_of(all(0), all(0));
        UNROLLED for (int j = 0; j < N - 1; j++) by[j][k] = full[k];
    }
    EACH(a, b)
    {
        full[a + b] = c_mul_add(p->f[a], p->f[b], full[a + b]);
        if (derivatives)
            UNROLLED for (int j = 0; j < N - 1; j++)
                by[j][a + b] = c_mul_add(c_scale(all(2), p->f[a]), p->by[j][b], by[j][a + b]);
    }
    UNROLLED for (int k = 2 * N - 2; k >= N; k--)
        UNROLLED for (int i = 0; i < N - 1; i++)
        {
            full[k - N + i] = c_add(full[k - N + i], c_scale(c[i], full[k]));
            if (derivatives)
                UNROLLED for (int j = 0; j < N - 1; j++)
                {
                    by[j][k - N + i] = c_add(by[j][k - N + i], c_scale(c[i], by[j][k]));
                    if (i == j)
                        by[j][k - N + i] = c_add(by[j][k - N + i], full[k]);
                }
        }
    UNROLLED for (int k = 0; k < N; k++)
    {
        p->f[k] = c_either(m, full[k], p->f[k]);
        if (derivatives)
            UNROLLED for (int j = 0; j < N - 1; j++)
                p->by[j][k] = c_either(m, by[j][k], p->by[j][k]);
    }
}

/* From powers and invariants of h to those of 2 h, in the lanes of `m`. */
INLINE void rescale(Poly *p, vec *c, mask m, const int derivatives)
{
    UNROLLED for (int k = 1; k < N; k++)
    {
        const vec factor = either(m, all(1.0 / (1 << k)), all(1));
        p->f[k] = c_scale(factor, p->f[k]);
        if (derivatives)
            UNROLLED for (int j = 0; j < N - 1; j++) p->by[j][k] = c_scale(factor, p->by[j][k]);
    }
    UNROLLED for (int j = 0; j < N - 1; j++)
    {
        c[j] *= either(m, all(1 << (N - j)), all(1));
        if (derivatives)
            UNROLLED for (int k = 0; k < N; k++)
                p->by[j][k] = c_scale(either(m, all(1.0 / (1 << (N - j))), all(1)), p->by[j][k]);
    }
}

INLINE Poly exponential_polynomial(vec *c, const int derivatives)
{
    vec bound = c[N - 2] * (N == 3 ? 4.0 / 3 : 1.0); /* of squared eigenvalues */
    vec halvings = all(0);
    int most = 0;
    for (; most < MAX_HALVINGS && any(bound > 1); most++) {
        const mask m = bound > 1;
        bound = either(m, 0.25 * bound, bound);
        halvings += either(m, all(1), all(0));
        UNROLLED for (int j = 0; j < N - 1; j++)
            c[j] *= either(m, all(1.0 / (1 << (N - j))), all(1));
    }
    double factorial[TERMS + 1];
    factorial[0] = 1;
    for (int k = 1; k <= TERMS; k++)
        factorial[k] = factorial[k - 1] / k;
    Poly p;
    memset(&p, 0, sizeof(p));
    for (int k = TERMS; k >= 0; k--)
        horner_step(&p, c, factorial[k], derivatives);
    for (; most > 0; most--) {
        const mask m = halvings >= (double)most;
        square_step(&p, c, m, derivatives);
        rescale(&p, c, m, derivatives);
    }
    return p;
}

/* f[0] + f[1] h + f[2] h^2 */
INLINE mat polynomial(const cvec *f, const mat *h, const mat *square)
{
    mat out = m_scale(f[1], h);
    m_add_scalar(&out, f[0]);
    if (N == 3)
        m_accumulate(&out, f[N - 1], square);
    return out;
}

/* By a, where g is the derivative by exp(a). */
INLINE mat exponential_gradient_of(const mat *a, const mat *g)
{
    const mat h = hermitian_part(a), square = m_mul_hermitian(&h, &h);
    vec c[N - 1];
    invariants(&h, &square, c);
    const Poly p = exponential_polynomial(c, 1);
    const mat adjoint = m_adjoint(g);
    const cvec traces[3] = {m_trace(&adjoint), m_trace_mul(&adjoint, &h),
                            m_trace_mul(&adjoint, &square)};
    /* Explicit powers of h: the Hermitian part of f1 g^dagger + f2 (g^dagger h + h g^dagger) */
    mat out, part;
    EACH(i, j)
    {
        if (j < i)
            continue;
        UNROLLED for (int k = 1; k < N; k++)
        {
            const cvec x = c_mul(p.f[k], adjoint.e[i][j]), y = c_mul(p.f[k], adjoint.e[j][i]);
            mat *const to = k == 1 ? &out : &part;
            to->e[i][j] = complex_of(0.5 * (x.re + y.re), 0.5 * (x.im - y.im));
            to->e[j][i] = c_conj(to->e[i][j]);
        }
    }
    if (N == 3) {
        const mat product = m_mul(&h, &part);
        EACH(i, j) out.e[i][j] = c_add(out.e[i][j],
                                       c_add(product.e[i][j], c_conj(product.e[j][i])));
    }
    UNROLLED for (int j = 0; j < N - 1; j++)
    {
        cvec by = c_mul(p.by[j][0], traces[0]);
        UNROLLED for (int k = 1; k < N; k++) by = c_mul_add(p.by[j][k], traces[k], by);
        m_accumulate(&out, complex_of(by.re, all(0)), N - 1 - j == 1 ? &h : &square);
    }
    m_add_scalar(&out, complex_of(m_trace(&out).re * (-1.0 / N), all(0)));
    return times_i(&out);
}

/* ---- what is called from outside ---- */

void exponential(const REAL *a, REAL *out, int64_t total, int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(a + first * NUMBERS, n), h = hermitian_part(&x);
        const mat square = m_mul_hermitian(&h, &h);
        vec c[N - 1];
        invariants(&h, &square, c);
        const Poly p = exponential_polynomial(c, 0);
        const mat u = polynomial(p.f, &h, &square);
        store(out + first * NUMBERS, &u, n);
    }
}

void exponential_gradient(const REAL *a, const REAL *g, REAL *out, int64_t total, int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(a + first * NUMBERS, n), y = load(g + first * NUMBERS, n);
        const mat grad = exponential_gradient_of(&x, &y);
        store(out + first * NUMBERS, &grad, n);
    }
}
