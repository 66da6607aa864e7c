/* Eigenangles and projectors (formulas in decomposition.py), on matrices.c.
 *
 * A projector is never formed: it is a polynomial in the traceless part A of the matrix. Of three
 * eigenvalues the single one is opposite to the closest pair; the upper one of the pair is ahead of
 * the lower one by less than half a turn.
 */
#define GAPS (N == 2 ? 2 : 3) /* between neighbours on the circle */
#define TURN 6.28318530717958647693
#define SMALLEST 1e-30 /* gap: keeps ratios of gaps defined where they vanish */
#define EPSILON (sizeof(REAL) == 4 ? 1.1920928955078125e-07 : 2.220446049250313e-16)

typedef struct {
    cvec of[N]; /* coefficients of 1, A, A^2 */
} poly;

typedef struct {
    mat a, square; /* A, and A^2 for N = 3 */
    vec gaps[GAPS];
    vec half; /* the gap of the pair */
    cvec phase; /* of the pair: half-way between its eigenvalues */
    poly single, difference; /* projector; of upper less lower */
    cvec z, x; /* single eigenvalue, of the matrix and of A */
    vec sine, cosine; /* of half the gap of the pair */
    mask split, below; /* where the single angle is: between the pair, or the last */
    mask close; /* all are equal but for noise */
} spectrum;

INLINE cvec c_times_i(cvec a) { return complex_of(-a.im, a.re); } /* i a */

INLINE poly p_scale(cvec f, const poly *p)
{
    poly out;
    UNROLLED for (int i = 0; i < N; i++) out.of[i] = c_mul(f, p->of[i]);
    return out;
}

INLINE void p_accumulate(poly *out, cvec f, const poly *p)
{
    UNROLLED for (int i = 0; i < N; i++) out->of[i] = c_mul_add(f, p->of[i], out->of[i]);
}

/* out += p(A) */
INLINE void m_polynomial(mat *out, const poly *p, const spectrum *s)
{
    EACH(i, j)
    {
        cvec sum = c_mul_add(p->of[1], s->a.e[i][j], out->e[i][j]);
        if (i == j)
            sum = c_add(sum, p->of[0]);
        if (N == 3)
            sum = c_mul_add(p->of[N - 1], s->square.e[i][j], sum);
        out->e[i][j] = sum;
    }
}

/* The numbers of single, upper and lower eigenvalue, in the order of angles; and back. */
INLINE void to_angles(const spectrum *s, vec single, vec upper, vec lower, vec *out)
{
    if (N == 2) {
        out[0] = upper;
        out[1] = lower;
    } else {
        out[0] = either(s->split, lower, either(s->below, upper, single));
        out[1] = either(s->split, single, either(s->below, lower, upper));
        out[N - 1] = either(s->split, upper, either(s->below, single, lower));
    }
}

INLINE void from_angles(const spectrum *s, const vec *in, vec *single, vec *upper, vec *lower)
{
    if (N == 2) {
        *upper = in[0];
        *lower = in[1];
    } else {
        *single = either(s->split, in[1], either(s->below, in[N - 1], in[0]));
        *upper = either(s->split, in[N - 1], either(s->below, in[0], in[1]));
        *lower = either(s->split, in[0], either(s->below, in[1], in[N - 1]));
    }
}

#if N == 3
/* The root of x^3 - 3 p x - 2 q that is farthest from the other two. */
INLINE cvec single_root(const mat *a, const mat *square, cvec p)
{
    const cvec q = c_scale(all(1.0 / 6), m_trace_mul(a, square));
    const vec norm = m_inner(a, a).re;
    const vec s = root(norm * beyond_line(a, square, norm)) * (1.0 / 6); /* sqrt(q^2 - p^3) */
    const cvec cube = complex_of(q.re + with_sign(s, q.re), q.im);
    vec sine, cosine, inverse;
    sin_cos(arc(cube.im, cube.re) * (1.0 / 3), &sine, &cosine);
    const vec r = cube_root(root(c_norm(cube)), &inverse);
    const cvec x = complex_of(r * cosine, r * sine);
    const cvec y = c_mul(p, complex_of(inverse * cosine, -inverse * sine));
    const cvec sum = c_add(x, y), half = c_scale(all(-0.5), sum);
    const cvec side = c_times_i(c_scale(all(0.86602540378443864676), c_sub(x, y)));
    cvec farthest = sum;
    vec distance = c_norm(c_sub(c_mul(sum, sum), p));
    UNROLLED for (int k = 0; k < 2; k++)
    {
        const cvec other = k ? c_sub(half, side) : c_add(half, side);
        const vec its = c_norm(c_sub(c_mul(other, other), p));
        farthest = c_either(its > distance, other, farthest);
        distance = larger(its, distance);
    }
    return farthest;
}

/* Gaps from the single angle t and half the gap of the pair: see decomposition.py. */
INLINE void set_gaps(spectrum *s, vec t, cvec centre)
{
    const cvec z = s->z;
    const cvec other = c_scale(with_sign(all(1), t), c_times_i(complex_of(1 - z.re, -z.im)));
    const cvec along = c_either(z.re > 0, complex_of(1 + z.re, z.im), other);
    const mask opposite = centre.re * along.re < centre.im * along.im;
    s->split = opposite & (magnitude(t) <= TURN / 3);
    t = either(opposite & ~s->split, t - with_sign(all(TURN), t), t);
    s->below = t < 0;
    const vec far = 1.5 * magnitude(t) - s->half, near = 2 * s->half;
    const vec middle = 0.5 * TURN - s->half;
    s->gaps[0] = either(s->split, middle - 1.5 * t, either(s->below, near, far));
    s->gaps[1] = either(s->split, middle + 1.5 * t, either(s->below, far, near));
    s->gaps[N - 1] = either(s->split, near, TURN - (near + far));
}
#endif

INLINE spectrum decompose(const mat *u)
{
    spectrum s;
    const cvec m = c_scale(all(1.0 / N), m_trace(u));
    s.a = *u;
    m_add_scalar(&s.a, c_scale(all(-1), m));
#if N == 2
    s.sine = root(0.5 * m_inner(&s.a, &s.a).re);
    s.cosine = m.re;
    s.half = arc(s.sine, s.cosine);
    s.phase = complex_of(all(1), all(0));
    s.gaps[0] = 2 * s.half;
    s.gaps[1] = TURN - 2 * s.half;
    poly block = {{complex_of(all(0), all(0)), complex_of(all(1), all(0))}};
    s.close = (mask)all(0);
#else
    s.square = m_mul(&s.a, &s.a);
    const cvec p = c_scale(all(1.0 / 6), m_trace(&s.square));
    const cvec x = single_root(&s.a, &s.square, p), square = c_mul(x, x);
    const cvec slope = c_scale(all(3), c_sub(square, p));
    const vec norm = c_norm(slope), noise = all(64 * EPSILON);
    s.close = norm < noise * noise * noise * noise;
    const cvec one_over = c_scale(1 / either(s.close, all(1), norm), c_conj(slope));
    s.x = c_either(s.close, complex_of(all(0), all(0)), x);
    const cvec zero = complex_of(all(0), all(0)), third = complex_of(all(1.0 / 3), all(0));
    s.single.of[N - 1] = c_either(s.close, zero, one_over);
    s.single.of[1] = c_mul(s.x, s.single.of[N - 1]);
    const cvec constant = c_mul(c_sub(square, c_scale(all(3), p)), one_over);
    s.single.of[0] = c_either(s.close, third, constant);
    poly block = p_scale(c_scale(all(-1.5), s.x), &s.single);
    block.of[0] = c_add(block.of[0], c_scale(all(0.5), s.x));
    block.of[1].re += 1;
    mat b = m_scalar(zero);
    m_polynomial(&b, &block, &s);
    s.sine = root(0.5 * m_inner(&b, &b).re);
    const cvec centre = c_sub(m, c_scale(all(0.5), s.x));
    s.cosine = root(c_norm(centre));
    s.half = arc(s.sine, s.cosine);
    s.phase = c_scale(1 / s.cosine, centre);
    s.z = c_add(m, s.x);
    const vec t = arc(s.z.im, s.z.re);
    s.z = c_scale(1 / root(c_norm(s.z)), s.z);
    set_gaps(&s, t, centre);
#endif
    /* block = (upper less lower eigenvalue) / 2 difference */
    const mask none = (s.sine < TINY) | s.close;
    const vec scale = either(none, all(0), 1 / larger(s.sine, all(TINY)));
    s.difference = p_scale(c_scale(-scale, c_times_i(c_conj(s.phase))), &block);
    UNROLLED for (int k = 0; k < GAPS; k++) s.gaps[k] = larger(s.gaps[k], all(SMALLEST));
    return s;
}

/* Angles of sum zero from the differences of consecutive ones. */
INLINE void angles_of(const vec *gaps, vec *angles)
{
    if (N == 2) {
        angles[0] = 0.5 * gaps[0];
        angles[1] = -angles[0];
    } else {
        angles[0] = (2 * gaps[0] + gaps[1]) * (1.0 / 3);
        angles[1] = (gaps[1] - gaps[0]) * (1.0 / 3);
        angles[N - 1] = (gaps[0] + 2 * gaps[1]) * (-1.0 / 3);
    }
}

/* Eigenvalues of upper and lower: the phase of the pair turned by half its gap. */
INLINE void pair_of(const spectrum *s, cvec *upper, cvec *lower)
{
    const cvec along = c_scale(s->cosine, s->phase), across = c_times_i(c_scale(s->sine, s->phase));
    *upper = c_add(along, across);
    *lower = c_sub(along, across);
}

/* out += sum_k f_k P_k */
INLINE void add_projectors(mat *out, const spectrum *s, cvec single, cvec upper, cvec lower)
{
    const cvec mean = c_scale(all(0.5), c_add(upper, lower));
    const cvec half = c_scale(all(0.5), c_sub(upper, lower));
    poly p = p_scale(half, &s->difference);
    if (N == 3)
        p_accumulate(&p, c_sub(single, mean), &s->single);
    p.of[0] = c_add(p.of[0], mean);
    m_polynomial(out, &p, s);
}
