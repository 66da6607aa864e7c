/* The exponential of the algebra, its inverse, and their derivatives (see exponential.py).
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

/* a - a^dagger over 2, without its trace, times -i */
INLINE mat hermitian_part(const mat *a)
{
    mat h;
    EACH(i, j)
    {
        if (j < i)
            continue;
        const cvec x = a->e[i][j], y = a->e[j][i];
        h.e[i][j] = complex_of(0.5 * (x.im + y.im), 0.5 * (y.re - x.re));
        h.e[j][i] = c_conj(h.e[i][j]);
    }
    m_add_scalar(&h, c_scale(all(-1.0 / N), m_trace(&h)));
    return h;
}

INLINE mat times_i(const mat *h) { return m_scale(complex_of(all(0), all(1)), h); }

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

/* ---- logarithm ---- */

INLINE cvec inverse_of(cvec x) { return c_scale(1 / larger(c_norm(x), all(TINY)), c_conj(x)); }

/* x / sin x */
INLINE vec over_sine(vec x)
{
    const vec safe = larger(magnitude(x), all(TINY));
    vec sine, cosine;
    sin_cos(safe, &sine, &cosine);
    return safe / sine;
}

#if N == 3
/* i (a - b) / (exp(i a) - exp(i b)), c the third angle */
INLINE cvec angle_slope(vec a, vec b, vec c)
{
    vec sine, cosine;
    sin_cos(0.5 * c, &sine, &cosine);
    return c_scale(over_sine(0.5 * (a - b)), complex_of(cosine, sine));
}
#endif

/* Interpolates i angle at the eigenvalues of u: nodes a and b far from each other, then c. */
INLINE mat logarithm_of_unitary(const mat *u)
{
    vec t[N];
    unitary_angles(u, t);
#if N == 2
    mat out = m_scale(complex_of(over_sine(t[0]), all(0)), u);
#else
    const vec a = t[0], b = t[2], c = t[1];
    cvec za, zb, zc;
    sin_cos(a, &za.im, &za.re);
    sin_cos(b, &zb.im, &zb.re);
    sin_cos(c, &zc.im, &zc.re);
    const cvec ab = angle_slope(a, b, c), ac = angle_slope(a, c, b), bc = angle_slope(b, c, a);
    const mask near_a = a - c < c - b; /* then divide by the distance from b */
    const cvec change = c_either(near_a, c_sub(ac, ab), c_sub(bc, ab));
    const cvec second = c_mul(change, inverse_of(c_either(near_a, c_sub(zc, zb), c_sub(zc, za))));
    mat from_a = *u, from_b = *u;
    m_add_scalar(&from_a, c_scale(all(-1), za));
    m_add_scalar(&from_b, c_scale(all(-1), zb));
    mat out = m_mul(&from_a, &from_b);
    out = m_scale(second, &out);
    m_accumulate(&out, ab, &from_a);
#endif
    const mat h = hermitian_part(&out); /* takes out the first coefficient, and roundings */
    return times_i(&h);
}

#if N == 3
/* Slope of x cot x between x = (r - q) / 2 and (r - p) / 2, by h, for p near q. */
INLINE vec even_slope(vec p, vec q, vec r)
{
    vec sine, first, second, cosine;
    sin_cos(1.5 * r, &sine, &cosine);
    sin_cos(0.5 * (r - q), &first, &cosine);
    sin_cos(0.5 * (r - p), &second, &cosine);
    const vec numerator = sine - 1.5 * r / over_sine(0.5 * (p - q));
    return 0.25 * numerator / larger(first * second, all(TINY));
}

/* Where h is diagonal, multiplies y_ij by x cot x of x = (t_i - t_j) / 2, t the eigenvalues of h:
 * a0 y + a1 (h y + y h) + a2 h y h off the diagonal, where these coefficients are those of the
 * polynomial in the third eigenvalue that interpolates x cot x (t_k = -t_i - t_j and t_k^2 = t_i t_j
 * + c1), and projections to eigenvectors on the diagonal. */
INLINE mat even_part(const mat *h, const mat *square, const mat *y, const mat *product)
{
    vec t[3], even[3], sine, cosine;
    hermitian_eigenvalues(h, t);
    const vec c1 = 0.5 * m_trace(square).re, a = t[0], b = t[2], c = t[1];
    UNROLLED for (int k = 0; k < 3; k++)
    {
        const vec x = 0.5 * (t[(k + 1) % 3] - t[(k + 2) % 3]);
        sin_cos(x, &sine, &cosine);
        even[k] = over_sine(x) * cosine;
    }
    const mask near_a = a - c < c - b;
    const vec range = a - b, gap = either(near_a, c - b, c - a);
    const vec ab = (even[0] - even[2]) / larger(range, all(TINY));
    const vec near = even_slope(either(near_a, a, b), c, either(near_a, b, a));
    const vec a2 = (near - ab) * gap / larger(gap * gap, all(TINY)), a1 = -(ab + a2 * c);
    const vec a0 = even[0] - ab * a + a2 * (a * b + c1);
    mat out = m_mul_hermitian(product, h);
    out = m_scale(complex_of(a2, all(0)), &out);
    m_accumulate(&out, complex_of(a0, all(0)), y);
    EACH(i, j)
    {
        const cvec both = c_add(product->e[i][j], c_conj(product->e[j][i]));
        out.e[i][j] = c_add(out.e[i][j], c_scale(a1, both));
    }
    const vec t1 = m_trace(product).re, t2 = m_trace_mul(square, y).re;
    vec d[3] = {all(0), all(0), all(0)};
    UNROLLED for (int k = 0; k < 3; k++)
    {
        const vec slope = (t[k] - t[(k + 1) % 3]) * (t[k] - t[(k + 2) % 3]), norm = slope * slope;
        const vec lacking = 1 - (a0 + 2 * a1 * t[k] + a2 * t[k] * t[k]);
        const mask apart = norm > 1e-24 * range * range * range * range; /* else it lacks nothing */
        const vec f = either(apart, lacking * (t2 + t[k] * t1) / norm, all(0));
        d[0] += f * (t[k] * t[k] - c1);
        d[1] += f * t[k];
        d[2] += f;
    }
    m_accumulate(&out, complex_of(d[2], all(0)), square);
    m_accumulate(&out, complex_of(d[1], all(0)), h);
    m_add_scalar(&out, complex_of(d[0], all(0)));
    return out;
}
#else
INLINE mat even_part(const mat *h, const mat *square, const mat *y, const mat *product)
{
    const vec norm = 0.5 * m_trace(square).re, r = root(norm);
    vec sine, cosine;
    sin_cos(r, &sine, &cosine);
    const vec even = over_sine(r) * cosine;
    mat out = m_scale(complex_of(even, all(0)), y);
    const vec along = (1 - even) * m_trace(product).re / (2 * larger(norm, all(TINY)));
    m_accumulate(&out, complex_of(along, all(0)), h);
    return out;
}
#endif

/* By u = exp(a), where g is the derivative by a: the adjoint of ad / (1 - exp(-ad)), ad = [a, .],
 * which multiplies y_ij by x cot x - i x. */
INLINE mat logarithm_gradient_of(const mat *a, const mat *u, const mat *g)
{
    const mat h = hermitian_part(a), y = hermitian_part(g);
    const mat product = m_mul(&h, &y), square = m_mul_hermitian(&h, &h);
    mat out = even_part(&h, &square, &y, &product);
    EACH(i, j)
    {
        const cvec odd = c_sub(product.e[i][j], c_conj(product.e[j][i])); /* [h, y] */
        out.e[i][j] = c_add(out.e[i][j], complex_of(0.5 * odd.im, -0.5 * odd.re));
    }
    out = m_mul(u, &out);
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

void logarithm(const REAL *u, REAL *out, int64_t total, int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(u + first * NUMBERS, n), a = logarithm_of_unitary(&x);
        store(out + first * NUMBERS, &a, n);
    }
}

void logarithm_gradient(const REAL *a, const REAL *u, const REAL *g, REAL *out, int64_t total,
                        int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(a + first * NUMBERS, n), y = load(u + first * NUMBERS, n);
        const mat z = load(g + first * NUMBERS, n), grad = logarithm_gradient_of(&x, &y, &z);
        store(out + first * NUMBERS, &grad, n);
    }
}
