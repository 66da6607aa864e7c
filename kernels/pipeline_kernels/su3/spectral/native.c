/* The spectral map and its derivatives (see op.py), behind those of splines. */
#define SPLINES (N - 1)
#define PAIRS (N == 2 ? 1 : 3)

typedef struct {
    bin bins[SPLINES];
    point points[SPLINES];
    image images[SPLINES];
    vec growths[GAPS], changes[GAPS]; /* of gaps: by which part of itself, by how much */
} moved_gaps;

typedef struct {
    cvec single, upper, lower; /* exp(i theta' - i theta) */
    poly W; /* less one */
} rotation;

/* Sines of pairs: of half of the gap, or of half of all other gaps where the gap exceeds pi. */
typedef struct {
    mask wide[PAIRS];
    vec half[PAIRS], sine[PAIRS], cosine[PAIRS];
} sines;

INLINE cvec less_one(cvec a) { return complex_of(a.re - 1, a.im); }

INLINE void to_box(const vec *gaps, vec *x, vec *complement)
{
    if (N == 2) {
        x[0] = gaps[0] * (1 / TURN);
        complement[0] = gaps[1] * (1 / TURN);
    } else {
        const vec both = gaps[0] + gaps[1];
        x[0] = both * (1 / TURN);
        complement[0] = gaps[GAPS - 1] * (1 / TURN);
        x[SPLINES - 1] = gaps[0] / both;
        complement[SPLINES - 1] = gaps[1] / both;
    }
}

/* Leaves bins in the rows of widths and heights. */
INLINE moved_gaps move(const vec *gaps, vec *rows, int64_t bins, int inverse)
{
    moved_gaps m;
    vec x[SPLINES], complement[SPLINES];
    to_box(gaps, x, complement);
    UNROLLED for (int i = 0; i < SPLINES; i++)
    {
        vec *own = rows + i * (3 * bins + 1);
        normalise(own, bins);
        normalise(own + bins, bins);
        m.bins[i] = find(own, bins, x[i], complement[i], inverse);
        m.images[i] = evaluate(&m.bins[i], inverse, &m.points[i]);
    }
    const image s = m.images[0], r = m.images[SPLINES - 1];
    m.growths[0] = N == 2 ? s.low : s.low + r.low + s.low * r.low;
    if (N == 3)
        m.growths[1] = s.low + r.high + s.low * r.high;
    m.growths[GAPS - 1] = s.high;
    UNROLLED for (int k = 0; k < GAPS; k++) m.changes[k] = gaps[k] * m.growths[k];
    return m;
}

INLINE rotation rotate(const spectrum *s, const vec *changes)
{
    rotation r;
    vec single = all(0), half, sine, cosine, sine_half, cosine_half;
    if (N == 2) {
        half = 0.5 * either(s->gaps[0] > 0.5 * TURN, -changes[1], changes[0]);
    } else {
        vec by[N], upper, lower;
        angles_of(changes, by);
        from_angles(s, by, &single, &upper, &lower);
        half = 0.5 * either(s->split, changes[GAPS - 1], either(s->below, changes[0], changes[1]));
    }
    sin_cos(-0.5 * single, &sine, &cosine);
    sin_cos(half, &sine_half, &cosine_half);
    const cvec mean = complex_of(cosine, sine);
    r.upper = c_mul(mean, complex_of(cosine_half, sine_half));
    r.lower = c_mul(mean, complex_of(cosine_half, -sine_half));
    r.single = c_conj(c_mul(mean, mean));
    r.W = p_scale(c_times_i(c_scale(sine_half, mean)), &s->difference);
    const cvec middle = less_one(c_scale(cosine_half, mean));
    if (N == 3)
        p_accumulate(&r.W, c_sub(less_one(r.single), middle), &s->single);
    r.W.of[0] = c_add(r.W.of[0], middle);
    return r;
}

/* Of the gaps, or with changes added, where `wide` marks the gaps. */
INLINE sines sines_of(const vec *gaps, const vec *changes)
{
    sines out;
    UNROLLED for (int k = 0; k < PAIRS; k++)
    {
        const int i = (k + 1) % GAPS, j = (k + 2) % GAPS;
        out.wide[k] = gaps[k] > 0.5 * TURN;
        const vec rest = N == 2 ? gaps[i] : gaps[i] + gaps[j];
        out.half[k] = 0.5 * either(out.wide[k], rest, gaps[k]);
        if (changes) {
            const vec change = N == 2 ? changes[i] : changes[i] + changes[j];
            out.half[k] += 0.5 * either(out.wide[k], change, changes[k]);
        }
        sin_cos(out.half[k], &out.sine[k], &out.cosine[k]);
    }
    return out;
}

INLINE vec log_determinant(const moved_gaps *m, const sines *before, const sines *after)
{
    vec product = all(1);
    UNROLLED for (int k = 0; k < PAIRS; k++) product *= after->sine[k] / before->sine[k];
    product *= product;
    UNROLLED for (int i = 0; i < SPLINES; i++) product *= m->images[i].slope;
    if (N == 3)
        product *= 1 + m->images[0].low;
    return logarithm_of(larger(product, all(TINY)));
}

/* Derivative of the logarithm of sin(x / 2) / (x / 2), x = 2 half. */
INLINE vec curvature(vec half, vec sine, vec cosine)
{
    const vec x = 2 * half, square = x * x;
    const vec series = x * (-1.0 / 12) * (1 + square * (1.0 / 60) * (1 + square * (1.0 / 42)));
    return either(x < 0.03, series, 0.5 * (cosine / sine - 1 / half));
}

/* Adds f times the derivatives of twice the logarithms of the ratios of sines. */
INLINE void pull_sines(const vec *gaps, const moved_gaps *m, vec f, vec *by_gaps, vec *by_growths)
{
    const sines before = sines_of(gaps, 0), after = sines_of(gaps, m->changes);
    f *= 2;
    UNROLLED for (int k = 0; k < PAIRS; k++)
    {
        const vec old = curvature(before.half[k], before.sine[k], before.cosine[k]);
        const vec new = curvature(after.half[k], after.sine[k], after.cosine[k]);
        const mask wide = before.wide[k];
        const vec narrow = either(wide, all(0), f), spread = either(wide, f, all(0));
        by_growths[k] += narrow * (1 / (1 + m->growths[k]) + new * gaps[k]);
        by_gaps[k] += narrow * (new * (1 + m->growths[k]) - old);
        /* the others together, of which each is one part */
        const vec inverse = 0.5 / after.half[k];
        UNROLLED for (int l = 1; l < GAPS; l++)
        {
            const int i = (k + l) % GAPS, j = (k + GAPS - l) % GAPS;
            vec by = new * (1 + m->growths[i]) - old;
            if (N == 3)
                by += gaps[j] * (m->growths[i] - m->growths[j]) * 0.5 * inverse / before.half[k];
            by_growths[i] += spread * (inverse + new) * gaps[i];
            by_gaps[i] += spread * by;
        }
    }
}

/* Derivatives by gaps of what depends on the images of their box coordinates. */
INLINE void pull_splines(const vec *gaps, const moved_gaps *m, vec f, const vec *by_growths,
                         vec *by_gaps, vec *rows, int64_t bins, int inverse)
{
    const image s = m->images[0], r = m->images[SPLINES - 1];
    by_image by = {by_growths[0], by_growths[GAPS - 1], f};
    if (N == 3)
        by.low = by_growths[0] * (1 + r.low) + by_growths[1] * (1 + r.high) + f / (1 + s.low);
    vec by_x = pull_spline(&m->bins[0], &m->points[0], &s, by, inverse, rows, bins);
    by_x = by_x * (1 / TURN) - by_gaps[GAPS - 1];
    by_gaps[0] += by_x;
    if (N == 3) {
        by_gaps[1] += by_x;
        const by_image own = {by_growths[0] * (1 + s.low), by_growths[1] * (1 + s.low), f};
        const vec by_r = pull_spline(&m->bins[SPLINES - 1], &m->points[SPLINES - 1], &r, own,
                                       inverse, rows + 3 * bins + 1, bins);
        const vec both = gaps[0] + gaps[1], part = by_r / (both * both);
        by_gaps[0] += part * gaps[1];
        by_gaps[1] -= part * gaps[0];
    }
}

/* tr P F for single, upper and lower. */
INLINE void components(const spectrum *s, const mat *f, cvec *single, cvec *upper, cvec *lower)
{
    cvec traces[N] = {m_trace(f), m_trace_mul(&s->a, f)}, difference = complex_of(all(0), all(0));
    if (N == 3)
        traces[N - 1] = m_trace_mul(&s->square, f);
    *single = difference;
    UNROLLED for (int i = 0; i < N; i++)
    {
        difference = c_mul_add(s->difference.of[i], traces[i], difference);
        if (N == 3)
            *single = c_mul_add(s->single.of[i], traces[i], *single);
    }
    const cvec pair = c_scale(all(0.5), c_sub(traces[0], *single));
    *upper = c_add(pair, c_scale(all(0.5), difference));
    *lower = c_sub(pair, c_scale(all(0.5), difference));
}

/* Derivatives by the angles' changes, then by growths and gaps. */
INLINE void pull_changes(const spectrum *s, const moved_gaps *m, const vec *by_changes,
                         vec *by_gaps, vec *by_growths)
{
    vec by[2];
    if (N == 2) {
        by[0] = 0.5 * (by_changes[0] - by_changes[1]);
    } else {
        by[0] = (2 * by_changes[0] - by_changes[1] - by_changes[N - 1]) * (1.0 / 3);
        by[1] = (by_changes[0] + by_changes[1] - 2 * by_changes[N - 1]) * (1.0 / 3);
    }
    UNROLLED for (int k = 0; k < N - 1; k++)
    {
        by_growths[k] += s->gaps[k] * by[k];
        by_gaps[k] += m->growths[k] * by[k];
    }
}

/* i z g less what the polynomial with fixed coefficients has on the diagonal already */
INLINE cvec diagonal(const rotation *r, cvec z, cvec x, cvec component, vec g)
{
    cvec slope = r->W.of[1];
    if (N == 3)
        slope = c_mul_add(c_scale(all(2), r->W.of[N - 1]), x, slope);
    return c_sub(c_times_i(c_scale(g, z)), c_mul(c_conj(slope), component));
}

/* The derivative by the matrix: F is that by W, g those by the angles. In the eigenbasis W changes
 * off the diagonal by its divided differences times the change of the matrix, as any polynomial. */
INLINE mat pull_matrix(const spectrum *s, const rotation *r, const mat *F, cvec single, cvec upper,
                       cvec lower, const vec *g)
{
    vec g_single = all(0), g_upper, g_lower;
    from_angles(s, g, &g_single, &g_upper, &g_lower);
    cvec z[2], x_single = complex_of(all(0), all(0)), z_single = x_single;
    pair_of(s, &z[0], &z[1]);
    cvec x = c_times_i(c_scale(s->sine, s->phase)), middle = complex_of(all(0), all(0));
    mat out = m_scale(c_conj(r->W.of[1]), F);
    if (N == 3) {
        x_single = s->x;
        z_single = s->z;
        middle = c_scale(all(-0.5), s->x);
        const mat adjoint = m_adjoint(&s->a), right = m_mul(F, &adjoint), left = m_mul(&adjoint, F);
        const mat both = m_add(&left, &right);
        m_accumulate(&out, c_conj(r->W.of[N - 1]), &both);
    }
    add_projectors(&out, s, diagonal(r, z_single, x_single, single, g_single),
                   diagonal(r, z[0], c_add(middle, x), upper, g_upper),
                   diagonal(r, z[1], c_sub(middle, x), lower, g_lower));
    return out;
}

INLINE void map_blocks(const REAL *L, const double *parameters, REAL *W, double *log_det,
                       int64_t total, int64_t bins, int inverse, int64_t *counter)
{
    const int64_t width = SPLINES * (3 * bins + 1);
    vec rows[width];
    FOR_BLOCKS(total, counter)
    {
        upcoming next = UPCOMING_OF(parameters, width);
        prefetch(&next);
        const mat l = load(L + first * NUMBERS, n);
        const spectrum s = decompose(&l);
        prefetch(&next);
        load_rows(parameters + first * width, width, n, rows);
        const moved_gaps m = move(s.gaps, rows, bins, inverse);
        prefetch(&next);
        const rotation r = rotate(&s, m.changes);
        prefetch(&next);
        mat w = m_scalar(complex_of(all(1), all(0)));
        m_polynomial(&w, &r.W, &s);
        store(W + first * NUMBERS, &w, n);
        const sines before = sines_of(s.gaps, 0), after = sines_of(s.gaps, m.changes);
        const vec logarithm = log_determinant(&m, &before, &after);
        store_rows(log_det + first, 1, n, &logarithm);
    }
}

INLINE void gradient_blocks(const REAL *L, const double *parameters, const REAL *by_W,
                            const double *by_log_det, REAL *by_L, double *by_parameters,
                            int64_t total, int64_t bins, int inverse, int64_t *counter)
{
    const int64_t width = SPLINES * (3 * bins + 1);
    vec rows[width];
    FOR_BLOCKS(total, counter)
    {
        const mat l = load(L + first * NUMBERS, n), F = load(by_W + first * NUMBERS, n);
        upcoming next = UPCOMING_BY(parameters, by_parameters, width);
        prefetch(&next);
        const spectrum s = decompose(&l);
        prefetch(&next);
        vec f, by_gaps[GAPS], by_growths[GAPS], g[N], changes[N], single = all(0);
        load_rows(by_log_det + first, 1, n, &f);
        load_rows(parameters + first * width, width, n, rows);
        const moved_gaps m = move(s.gaps, rows, bins, inverse);
        prefetch(&next);
        const rotation r = rotate(&s, m.changes);
        UNROLLED for (int k = 0; k < GAPS; k++) by_gaps[k] = by_growths[k] = all(0);

        cvec in[3];
        components(&s, &F, &in[0], &in[1], &in[2]);
        if (N == 3)
            single = c_mul(c_conj(r.single), in[0]).im;
        to_angles(&s, single, c_mul(c_conj(r.upper), in[1]).im, c_mul(c_conj(r.lower), in[2]).im,
                  changes);
        prefetch(&next);
        pull_changes(&s, &m, changes, by_gaps, by_growths);
        pull_sines(s.gaps, &m, f, by_gaps, by_growths);
        pull_splines(s.gaps, &m, f, by_growths, by_gaps, rows, bins, inverse);
        store_rows(by_parameters + first * width, width, n, rows);

        UNROLLED for (int k = 0; k < N - 1; k++) by_gaps[k] = either(s.close, all(0), by_gaps[k]);
        g[0] = by_gaps[0];
        g[1] = N == 2 ? -by_gaps[0] : by_gaps[1] - by_gaps[0];
        if (N == 3)
            g[N - 1] = -by_gaps[1];
        const mat gradient = pull_matrix(&s, &r, &F, in[0], in[1], in[2], g);
        store(by_L + first * NUMBERS, &gradient, n);
    }
}

void spectral_map(const REAL *L, const double *parameters, REAL *W, double *log_det, int64_t bins,
                  int64_t inverse, int64_t total, int64_t *counter)
{
    if (inverse)
        map_blocks(L, parameters, W, log_det, total, bins, 1, counter);
    else
        map_blocks(L, parameters, W, log_det, total, bins, 0, counter);
}

void spectral_gradient(const REAL *L, const double *parameters, const REAL *by_W,
                       const double *by_log_det, REAL *by_L, double *by_parameters, int64_t bins,
                       int64_t inverse, int64_t total, int64_t *counter)
{
    if (inverse)
        gradient_blocks(L, parameters, by_W, by_log_det, by_L, by_parameters, total, bins, 1,
                        counter);
    else
        gradient_blocks(L, parameters, by_W, by_log_det, by_L, by_parameters, total, bins, 0,
                        counter);
}
