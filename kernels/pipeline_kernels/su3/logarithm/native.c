/* The logarithm of the group and its derivative (see the package), on matrices.c: angles from the
 * characteristic polynomial, then polynomials in the matrix. No eigenvector is calculated.
 */

INLINE void order(vec *high, vec *low)
{
    const vec a = *high, b = *low;
    *high = larger(a, b);
    *low = lesser(a, b);
}

/* Of a Hermitian matrix, in descending order; absolute error a few roundings of the largest. */
INLINE void hermitian_eigenvalues(const mat *h, vec *values)
{
    const vec mean = m_trace(h).re * (1.0 / N);
    mat a = *h;
    m_add_scalar(&a, complex_of(-mean, all(0)));
#if N == 2
    const vec r = root(a.e[0][0].re * a.e[0][0].re + c_norm(a.e[0][1]));
    values[0] = mean + r;
    values[1] = mean - r;
#else
    /* x^3 - 3 p x - 2 q = 0, x = 2 sqrt(p) cos((f - 2 pi k) / 3), tan f = sqrt(p^3 - q^2) / q */
    const mat square = m_mul_hermitian(&a, &a);
    const vec norm = m_trace(&square).re, p = norm * (1.0 / 6), q = 0.5 * m_det(&a).re;
    const vec s = root(norm * beyond_line(&a, &square, norm)) * (1.0 / 6);
    vec sine, cosine;
    sin_cos(arc(s, q) * (1.0 / 3), &sine, &cosine);
    const vec r = root(p), c = r * cosine, d = 1.73205080756887729353 * r * sine;
    values[0] = mean + 2 * c;
    values[1] = mean - c + d;
    values[2] = mean - c - d;
#endif
}

/* Angles of a special unitary matrix, descending, of sum 0, first minus last <= 2 pi. */
INLINE void unitary_angles(const mat *u, vec *angles)
{
#if N == 2
    /* a0 + i a.sigma: the antihermitian part has the eigenvalues +- i |a| */
    const vec a0 = 0.5 * (u->e[0][0].re + u->e[1][1].re);
    const vec a3 = 0.5 * (u->e[0][0].im - u->e[1][1].im);
    const vec a1 = 0.5 * (u->e[0][1].im + u->e[1][0].im);
    const vec a2 = 0.5 * (u->e[0][1].re - u->e[1][0].re);
    angles[0] = arc(root(a1 * a1 + a2 * a2 + a3 * a3), a0);
    angles[1] = -angles[0];
#else
    /* z = m + x, x^3 - 3 p x - 2 q = 0 as above, and s^2 = q^2 - p^3 > 0 since det u = 1 */
    const cvec m = c_scale(all(1.0 / 3), m_trace(u));
    mat a = *u;
    m_add_scalar(&a, c_scale(all(-1), m));
    const mat square = m_mul(&a, &a);
    const cvec p = c_scale(all(1.0 / 6), m_trace(&square));
    const cvec q = c_scale(all(1.0 / 6), m_trace_mul(&a, &square));
    const vec norm = m_inner(&a, &a).re;
    const vec s = root(norm * beyond_line(&a, &square, norm)) * (1.0 / 6);
    const cvec cube = complex_of(q.re + with_sign(s, q.re), q.im); /* the larger one of q +- s */
    vec sine, cosine, inverse;
    sin_cos(arc(cube.im, cube.re) * (1.0 / 3), &sine, &cosine);
    const vec r = cube_root(root(c_norm(cube)), &inverse);
    const cvec x = complex_of(r * cosine, r * sine);
    const cvec y = c_mul(p, complex_of(inverse * cosine, -inverse * sine)); /* p / x */
    /* m + x w^k + y w^-k, w = (-1 + i sqrt(3)) / 2 */
    const cvec sum = c_add(x, y), half = c_scale(all(-0.5), sum);
    const cvec turn = c_scale(all(0.86602540378443864676), c_sub(x, y)); /* times i */
    const cvec z0 = c_add(m, sum), middle = c_add(m, half);
    angles[0] = arc(z0.im, z0.re);
    angles[1] = arc(middle.im + turn.re, middle.re - turn.im);
    angles[2] = arc(middle.im - turn.re, middle.re + turn.im);
    order(&angles[0], &angles[1]);
    order(&angles[1], &angles[2]);
    order(&angles[0], &angles[1]);
    const vec total = angles[0] + angles[1] + angles[2];
    const mask above = total > 3.14159265358979323846, below = total < -3.14159265358979323846;
    const vec top = angles[0], middle_angle = angles[1], bottom = angles[2];
    const double whole_turn = 6.28318530717958647693;
    angles[0] = either(above, middle_angle, either(below, bottom + whole_turn, top));
    angles[1] = either(above, bottom, either(below, top, middle_angle));
    angles[2] = either(above, top - whole_turn, either(below, middle_angle, bottom));
    const vec excess = (angles[0] + angles[1] + angles[2]) * (1.0 / 3);
    UNROLLED for (int k = 0; k < 3; k++) angles[k] -= excess;
#endif
}

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

void logarithm(const REAL *u, REAL *out, int64_t total, int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(u + first * NUMBERS, n), a = logarithm_of_unitary(&x);
        store(out + first * NUMBERS, &a, n);
    }
}

void logarithm_gradient(const REAL *u, const REAL *a, const REAL *g, REAL *out, int64_t total,
                        int64_t *counter)
{
    FOR_BLOCKS(total, counter)
    {
        const mat x = load(a + first * NUMBERS, n), y = load(u + first * NUMBERS, n);
        const mat z = load(g + first * NUMBERS, n), grad = logarithm_gradient_of(&x, &y, &z);
        store(out + first * NUMBERS, &grad, n);
    }
}
