/* The exponential of the algebra and its derivative (see the package), on matrices.c.
 *
 * A traceless Hermitian h obeys h^N = c[0] + ... + c[N-2] h^(N-2), so that exp(i h) is a polynomial
 * of degree N - 1 whose coefficients depend on the invariants c. The coefficients are summed as a
 * Taylor series of h / 2^k and squared k times, what their derivatives need along with them: no
 * eigenvalues, nothing to divide by, no input that is special. */

#define TERMS (sizeof(REAL) == sizeof(float) ? 13 : 18) /* for eigenvalues up to 1 */
#define MAX_HALVINGS 60

/* Of the series p(x) = f(x) + rest(x) (x^N - c[0] - ..), with the second factor zero at h: the
 * derivative of f by c[j] is x^j rest(x), in which powers from the N-th on are replaced as well. */
typedef struct {
    cvec f[N], rest[N];
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

/* p = h p */
INLINE void times_h(cvec *p, const vec *c)
{
    const cvec top = p[N - 1];
    UNROLLED for (int m = N - 1; m > 0; m--)
        p[m] = m < N - 1 ? c_add(p[m - 1], c_scale(c[m], top)) : p[m - 1];
    p[0] = c_scale(c[0], top);
}

/* p = h p + i^k factor, for k = 0 to 3 */
INLINE void horner_step(Poly *p, const vec *c, int k, double factor, const int derivatives)
{
    if (derivatives) {
        times_h(p->rest, c);
        p->rest[0] = c_add(p->rest[0], p->f[N - 1]);
    }
    times_h(p->f, c);
    if (k % 2)
        p->f[0].im += k == 3 ? -factor : factor;
    else
        p->f[0].re += k == 2 ? -factor : factor;
}

/* out = a b, of degrees up to 2 N - 2 */
INLINE void multiply_out(const cvec *a, const cvec *b, cvec *out)
{
    UNROLLED for (int k = 0; k < 2 * N - 1; k++) out[k] = complex_of(all(0), all(0));
    EACH(i, j) out[i + j] = c_mul_add(a[i], b[j], out[i + j]);
}

/* Replaces powers from the N-th on. */
INLINE void reduce(cvec *p, const vec *c)
{
    UNROLLED for (int k = 2 * N - 2; k >= N; k--)
        UNROLLED for (int i = 0; i < N - 1; i++)
            p[k - N + i] = c_add(p[k - N + i], c_scale(c[i], p[k]));
}

/* p = p^2 in the lanes of `m` */
INLINE void square_step(Poly *p, const vec *c, mask m, const int derivatives)
{
    cvec full[2 * N - 1], twice[N], rest[2 * N - 1];
    UNROLLED for (int k = 0; k < 2 * N - 1; k++) full[k] = complex_of(all(0), all(0));
    UNROLLED for (int k = 0; k < N; k++) twice[k] = c_scale(all(2), p->f[k]);
    EACH(i, j)
        if (i <= j)
            full[i + j] = c_mul_add(i < j ? twice[i] : p->f[i], p->f[j], full[i + j]);
    if (derivatives) {
        multiply_out(twice, p->rest, rest);
        reduce(rest, c);
        UNROLLED for (int k = N; k < 2 * N - 1; k++) rest[k - N] = c_add(rest[k - N], full[k]);
        UNROLLED for (int k = 0; k < N; k++) p->rest[k] = c_either(m, rest[k], p->rest[k]);
    }
    reduce(full, c);
    UNROLLED for (int k = 0; k < N; k++) p->f[k] = c_either(m, full[k], p->f[k]);
}

/* From powers and invariants of h to powers and invariants of 2 h, in the lanes of `m`. */
INLINE void rescale(Poly *p, vec *c, mask m, const int derivatives)
{
    UNROLLED for (int k = 0; k < N; k++)
    {
        if (k)
            p->f[k] = c_scale(either(m, all(1.0 / (1 << k)), all(1)), p->f[k]);
        if (derivatives)
            p->rest[k] = c_scale(either(m, all(1.0 / (1 << (N + k))), all(1)), p->rest[k]);
    }
    UNROLLED for (int j = 0; j < N - 1; j++) c[j] *= either(m, all(1 << (N - j)), all(1));
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
    double factorial[TERMS + 1]; /* its inverse, divided by the compiler where it is unrolled */
    factorial[0] = 1;
    UNROLLED for (int k = 1; k <= TERMS; k++) factorial[k] = factorial[k - 1] / k;
    Poly p;
    memset(&p, 0, sizeof(p));
    UNROLLED for (int k = TERMS; k >= 0; k--)
        horner_step(&p, c, k % 4, factorial[k], derivatives);
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

/* By a = i h, where g is the derivative by exp(a), whose polynomial has the invariants c. */
INLINE mat pull_exponential(const mat *h, const mat *square, const vec *c, const Poly *p,
                            const mat *g)
{
    const mat adjoint = m_adjoint(g);
    const cvec traces[3] = {m_trace(&adjoint), m_trace_mul(&adjoint, h),
                            m_trace_mul(&adjoint, square)};
    /* Explicit powers of h: the Hermitian part of f1 g^dagger + f2 (g^dagger h + h g^dagger) */
    mat out, part;
    EACH(i, j)
    {
        if (j < i)
            continue;
        UNROLLED for (int k = 1; k < N; k++)
        {
            const cvec x = c_mul(p->f[k], adjoint.e[i][j]), y = c_mul(p->f[k], adjoint.e[j][i]);
            mat *const to = k == 1 ? &out : &part;
            to->e[i][j] = complex_of(0.5 * (x.re + y.re), 0.5 * (x.im - y.im));
            to->e[j][i] = c_conj(to->e[i][j]);
        }
    }
    if (N == 3) {
        const mat product = m_mul(h, &part);
        EACH(i, j) out.e[i][j] = c_add(out.e[i][j],
                                       c_add(product.e[i][j], c_conj(product.e[j][i])));
    }
    cvec by[N];
    memcpy(by, p->rest, sizeof(by));
    UNROLLED for (int j = 0; j < N - 1; j++)
    {
        vec by_c = all(0);
        UNROLLED for (int k = 0; k < N; k++)
            by_c += by[k].re * traces[k].re - by[k].im * traces[k].im;
        m_add_scaled(&out, by_c, N - 1 - j == 1 ? h : square);
        times_h(by, c);
    }
    m_add_scalar(&out, complex_of(m_trace(&out).re * (-1.0 / N), all(0)));
    return times_i(&out);
}

/* By a, where g is the derivative by exp(a). */
INLINE mat exponential_gradient_of(const mat *a, const mat *g)
{
    const mat h = hermitian_part(a), square = m_mul_hermitian(&h, &h);
    vec c[N - 1];
    invariants(&h, &square, c);
    const Poly p = exponential_polynomial(c, 1);
    return pull_exponential(&h, &square, c, &p, g);
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
