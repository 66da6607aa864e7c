/* The special unitary factor of a matrix, and its derivative (see op.py). */

#define MAX_STEPS 24
/* Squared change below which the next one, half its square, is a rounding. */
#define CONVERGED (sizeof(REAL) == sizeof(float) ? 1e-10 : 1e-16)

/* By Newton's iteration x <- (s x + x^-dagger / s) / 2. Unlike (x x^dagger)^(-1/2) x it does not
 * square the condition of x. */
INLINE mat unitary_factor(const mat *m)
{
    mat x = *m;
#if N == 2 /* one step with s^2 = |det x|^-1 ends at a multiple of a unitary matrix */
    const mat cofactors = m_cofactors(&x);
    const cvec det = m_det_of(&x, &cofactors);
    const cvec phase = c_scale(1 / root(c_norm(det)), det);
    EACH(i, j) x.e[i][j] = c_mul_add(phase, c_conj(cofactors.e[i][j]), x.e[i][j]);
    return m_scale(complex_of(1 / root(0.5 * m_inner(&x, &x).re), all(0)), &x);
#else
    mask active = ~(mask){0};
    for (int step = 0; step < MAX_STEPS && any(active); step++) {
        const mat cofactors = m_cofactors(&x);
        const cvec det = m_det_of(&x, &cofactors);
        const vec inverse = 1 / c_norm(det);
        const vec ratio = m_inner(&cofactors, &cofactors).re * inverse; /* |x^-1|^2, and |x|^2 : */
        const vec norm = m_inner(&x, &x).re;
        vec s = all(0.5), f = 0.5 * inverse;
        const mask uneven = magnitude(ratio - norm) > 0.1 * norm;
        if (any(uneven)) {
            const vec scale = root(root(ratio / norm));
            s = either(uneven, s * scale, s);
            f = either(uneven, f / scale, f);
        }
        const cvec factor = c_scale(f, det);
        vec change = all(0);
        EACH(i, j)
        {
            const cvec next = c_mul_add(factor, c_conj(cofactors.e[i][j]), c_scale(s, x.e[i][j]));
            change += c_norm(c_sub(next, x.e[i][j]));
            x.e[i][j] = c_either(active, next, x.e[i][j]);
        }
        active &= change > CONVERGED;
    }
    return x;
#endif
}

/* u det(u)^(-1/N), principal root */
INLINE mat without_determinant(const mat *u)
{
    const cvec det = m_det(u);
    vec sine, cosine;
    sin_cos(arc(det.im, det.re) * (1.0 / N), &sine, &cosine);
    return m_scale(complex_of(cosine, -sine), u);
}

/* z -> x with p x + x p = z, for Hermitian z and positive p, of eigenvalues s_i. With the elementary
 * symmetric polynomials e of these and q = e1 - p, of eigenvalues s_j + s_k, q z q / det q has the
 * elements z_ij / (s_i + s_j) that x needs off the diagonal of the basis where p is diagonal. What
 * the diagonal lacks is a polynomial of p: no difference of eigenvalues appears. */
INLINE mat half_anticommutator(const mat *p, const mat *z)
{
    const vec e1 = m_trace(p).re;
    const mat cofactors = m_cofactors(p);
    const vec t0 = m_trace(z).re, t1 = m_trace_mul(p, z).re;
#if N == 2
    const vec e2 = m_det_of(p, &cofactors).re, f = 0.5 / (e1 * e2);
    mat x = m_scale(complex_of(1 / e1, all(0)), z);
    m_accumulate(&x, complex_of(f * (t1 - e1 * t0), all(0)), p);
    m_add_scalar(&x, complex_of(f * ((e1 * e1 - e2) * t0 - e1 * t1), all(0)));
#else
    const vec e2 = m_trace(&cofactors).re, e3 = m_det_of(p, &cofactors).re;
    mat square; /* by Cayley and Hamilton, p^2 - e1 p + e2 = cofactors^T */
    EACH(i, j) square.e[i][j] = c_add(c_scale(e1, p->e[i][j]), cofactors.e[j][i]);
    m_add_scalar(&square, complex_of(-e2, all(0)));
    mat q = m_scale(complex_of(all(-1), all(0)), p);
    m_add_scalar(&q, complex_of(e1, all(0)));
    const vec det = e1 * e2 - e3, f = 0.5 / (det * e3), t2 = m_trace_mul(&square, z).re;
    const vec a = e1 * e2 - e3, b = e1 * e1, c = 2 * e1 * e3 - b * e2;
    const mat half = m_mul(&q, z);
    mat x = m_mul_hermitian(&half, &q);
    x = m_scale(complex_of(1 / det, all(0)), &x);
    m_accumulate(&x, complex_of(f * (a * t0 - b * t1 + e1 * t2), all(0)), &square);
    m_accumulate(&x, complex_of(f * (c * t0 + (b * e1 - e3) * t1 - b * t2), all(0)), p);
    const vec d = e1 * e2 * e2 - e3 * (b + e2);
    m_add_scalar(&x, complex_of(f * (d * t0 + c * t1 + a * t2), all(0)));
#endif
    return x;
}

/* By m, where w is its unitary factor without its determinant, and g the derivative by w.
 * With w = u / phase, m = u p, i z = w^dagger g - h.c.: u i x, p x + x p = z. */
INLINE mat factor_gradient(const mat *m, const mat *w, const mat *g)
{
    const mat inverse = m_adjoint(w);
    mat p = m_mul(&inverse, m), z = m_mul(&inverse, g);
    cvec phase = m_trace(&p);
    phase = c_scale(1 / root(c_norm(phase)), phase);
    p = m_scale(c_conj(phase), &p);
    EACH(i, j)
    {
        if (j < i)
            continue;
        const cvec a = z.e[i][j], b = z.e[j][i], c = p.e[i][j], d = p.e[j][i];
        z.e[i][j] = complex_of(a.im + b.im, b.re - a.re);
        p.e[i][j] = complex_of(0.5 * (c.re + d.re), 0.5 * (c.im - d.im));
        z.e[j][i] = c_conj(z.e[i][j]);
        p.e[j][i] = c_conj(p.e[i][j]);
    }
    m_add_scalar(&z, c_scale(all(-1.0 / N), m_trace(&z)));
    mat x = half_anticommutator(&p, &z);
    x = m_mul(w, &x);
    return m_scale(complex_of(-phase.im, phase.re), &x);
}

/* ---- what is called from outside ---- */

void project(const REAL *m, REAL *out, int64_t total, int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(m + first * NUMBERS, n);
        mat u = unitary_factor(&x);
        u = without_determinant(&u);
        store(out + first * NUMBERS, &u, n);
    }
}

void project_gradient(const REAL *m, const REAL *w, const REAL *g, REAL *out, int64_t total,
                      int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(m + first * NUMBERS, n), y = load(w + first * NUMBERS, n);
        const mat z = load(g + first * NUMBERS, n), grad = factor_gradient(&x, &y, &z);
        store(out + first * NUMBERS, &grad, n);
    }
}
