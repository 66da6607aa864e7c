/* What C of this family stands on: small complex matrices and their eigenvalues. The text of
 * vectors.c is put before this one, then those of blocks.c and of a kernel (sources.py).
 *
 *     N      macro: number of colours, 2 or 3
 *     REAL   macro: what matrices in memory are made of, float or double
 *
 * Matrices are the lanes of vectors: a block of LANES matrices is one `mat`, each of whose 2 N N
 * numbers is a vector. All arithmetic is double. A lane never looks at its neighbours, so that a
 * result does not depend on what else is in the block.
 */
typedef struct {
    vec re, im;
} cvec;

typedef struct {
    cvec e[N][N];
} mat;

/* ---- complex numbers ---- */

INLINE cvec complex_of(vec re, vec im) { return (cvec){re, im}; }
INLINE cvec c_add(cvec a, cvec b) { return (cvec){a.re + b.re, a.im + b.im}; }
INLINE cvec c_sub(cvec a, cvec b) { return (cvec){a.re - b.re, a.im - b.im}; }
INLINE cvec c_conj(cvec a) { return (cvec){a.re, -a.im}; }
INLINE cvec c_scale(vec f, cvec a) { return (cvec){f * a.re, f * a.im}; }
INLINE vec c_norm(cvec a) { return a.re * a.re + a.im * a.im; } /* |a|^2 */
INLINE cvec c_mul(cvec a, cvec b)
{
    return (cvec){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
INLINE cvec c_mul_add(cvec a, cvec b, cvec c) /* a b + c */
{
    return (cvec){a.re * b.re - (a.im * b.im - c.re), a.re * b.im + (a.im * b.re + c.im)};
}
INLINE cvec c_either(mask m, cvec a, cvec b)
{
    return (cvec){either(m, a.re, b.re), either(m, a.im, b.im)};
}

/* ---- matrices ---- */

#define EACH(i, j)                                                                                \
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)

INLINE mat m_scalar(cvec f)
{
    mat out;
    EACH(i, j) out.e[i][j] = i == j ? f : (cvec){all(0), all(0)};
    return out;
}

INLINE mat m_add(const mat *a, const mat *b)
{
    mat out;
    EACH(i, j) out.e[i][j] = c_add(a->e[i][j], b->e[i][j]);
    return out;
}

INLINE mat m_scale(cvec f, const mat *a)
{
    mat out;
    EACH(i, j) out.e[i][j] = c_mul(f, a->e[i][j]);
    return out;
}

/* out += f a */
INLINE void m_accumulate(mat *out, cvec f, const mat *a)
{
    EACH(i, j) out->e[i][j] = c_mul_add(f, a->e[i][j], out->e[i][j]);
}

/* out += f a, f real */
INLINE void m_add_scaled(mat *out, vec f, const mat *a)
{
    EACH(i, j)
    {
        out->e[i][j].re += f * a->e[i][j].re;
        out->e[i][j].im += f * a->e[i][j].im;
    }
}

INLINE void m_add_scalar(mat *out, cvec f)
{
    UNROLLED for (int i = 0; i < N; i++) out->e[i][i] = c_add(out->e[i][i], f);
}

INLINE mat m_adjoint(const mat *a)
{
    mat out;
    EACH(i, j) out.e[i][j] = c_conj(a->e[j][i]);
    return out;
}

/* a b */
INLINE mat m_mul(const mat *a, const mat *b)
{
    mat out;
    EACH(i, j)
    {
        cvec sum = c_mul(a->e[i][0], b->e[0][j]);
        UNROLLED for (int k = 1; k < N; k++) sum = c_mul_add(a->e[i][k], b->e[k][j], sum);
        out.e[i][j] = sum;
    }
    return out;
}

/* a b, known to be Hermitian: each pair of entries is calculated once. */
INLINE mat m_mul_hermitian(const mat *a, const mat *b)
{
    mat out;
    EACH(i, j)
    {
        if (j < i)
            continue;
        cvec sum = c_mul(a->e[i][0], b->e[0][j]);
        UNROLLED for (int k = 1; k < N; k++) sum = c_mul_add(a->e[i][k], b->e[k][j], sum);
        if (i == j)
            sum.im = all(0);
        out.e[i][j] = sum;
        out.e[j][i] = c_conj(sum);
    }
    return out;
}

INLINE cvec m_trace(const mat *a)
{
    cvec sum = a->e[0][0];
    UNROLLED for (int i = 1; i < N; i++) sum = c_add(sum, a->e[i][i]);
    return sum;
}

/* The sum of one for each row, which do not wait for each other. */
INLINE cvec c_total(const cvec *rows)
{
    cvec sum = rows[0];
    UNROLLED for (int i = 1; i < N; i++) sum = c_add(sum, rows[i]);
    return sum;
}

/* tr a b */
INLINE cvec m_trace_mul(const mat *a, const mat *b)
{
    cvec rows[N];
    EACH(i, j) rows[i] = j ? c_mul_add(a->e[i][j], b->e[j][i], rows[i])
                           : c_mul(a->e[i][j], b->e[j][i]);
    return c_total(rows);
}

/* tr a^dagger b */
INLINE cvec m_inner(const mat *a, const mat *b)
{
    cvec rows[N];
    EACH(i, j)
    {
        const cvec x = c_conj(a->e[i][j]);
        rows[i] = j ? c_mul_add(x, b->e[i][j], rows[i]) : c_mul(x, b->e[i][j]);
    }
    return c_total(rows);
}

/* Matrix of cofactors: inverse(a) = transpose(cofactors) / det. */
INLINE mat m_cofactors(const mat *a)
{
    mat out;
#if N == 2
    EACH(i, j) out.e[i][j] = i == j ? a->e[1 - i][1 - j] : c_scale(all(-1), a->e[1 - i][1 - j]);
#else
    EACH(i, j)
    {
        const int k = (i + 1) % 3, l = (i + 2) % 3, p = (j + 1) % 3, q = (j + 2) % 3;
        out.e[i][j] = c_sub(c_mul(a->e[k][p], a->e[l][q]), c_mul(a->e[k][q], a->e[l][p]));
    }
#endif
    return out;
}

INLINE cvec m_det_of(const mat *a, const mat *cofactors)
{
    cvec sum = c_mul(a->e[0][0], cofactors->e[0][0]);
    UNROLLED for (int j = 1; j < N; j++) sum = c_mul_add(a->e[0][j], cofactors->e[0][j], sum);
    return sum;
}

INLINE cvec m_det(const mat *a)
{
    const mat cofactors = m_cofactors(a); /* what is not used is not calculated */
    return m_det_of(a, &cofactors);
}

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

INLINE mat times_i(const mat *h)
{
    mat out;
    EACH(i, j) out.e[i][j] = complex_of(-h->e[i][j].im, h->e[i][j].re);
    return out;
}

/* ---- eigenvalues ---- */

/* Squared length of what is left of a^2 once its components along a and 1 are taken out; the entries
 * of `a` have no trace. With <a, a> it gives the discriminant prod |x_i - x_j|^2 of a normal 3x3
 * matrix, as the Gram determinant of 1, a, a^2, without the cancellation of p^3 - q^2. */
INLINE vec beyond_line(const mat *a, const mat *square, vec norm)
{
    mat rest = *square;
    const cvec mean = c_scale(all(-1.0 / N), m_trace(square)), along = m_inner(a, square);
    m_add_scalar(&rest, mean);
    m_accumulate(&rest, c_scale(-1 / larger(norm, all(TINY)), along), a);
    return m_inner(&rest, &rest).re;
}
