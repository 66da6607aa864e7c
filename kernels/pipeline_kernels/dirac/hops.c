/* Hops of Wilson's Dirac operator. Stands on lattice.c. */
#define HALF (SPINS / 2)

typedef struct {
    double hops[2], other[2]; /* a + i b gamma5, c + i d gamma5 */
} Factors;

typedef struct {
    vec re, im;
} number;

typedef struct {
    mask lanes[D][2];
} Permutations;

#define FOR_EACH(s, i)                                                                            \
    UNROLLED for (int s = 0; s < HALF; s++) UNROLLED for (int i = 0; i < N; i++)

INLINE vec all(double x) { return (REAL)x - (vec){0}; }

/* ---- gamma matrices (reference.make_gammas) ----
 *
 * The upper right corner of gamma_mu has in row s one number, i^turns, in column `partner`; the
 * lower left one is its adjoint. So (1 - gamma_mu) psi is h above and -corner^dagger h below, with
 * h = upper - corner lower. */

INLINE int partner(const int mu, const int s)
{
    return D == 2 ? 0 : mu == 1 || mu == 2 ? 1 - s : s;
}

INLINE int turns(const int mu, const int s)
{
    if (D == 2)
        return mu == 0 ? 0 : 3;
    return mu == 0 ? 0 : mu == 1 ? 3 : mu == 2 ? (s == 0 ? 2 : 0) : s == 0 ? 3 : 1;
}

/* i^count a */
INLINE number turn(number a, const int count)
{
    switch (count & 3) {
    case 0: return a;
    case 1: return (number){-a.im, a.re};
    case 2: return (number){-a.re, -a.im};
    default: return (number){a.im, -a.re};
    }
}

INLINE number spinor_of(const vec *psi, int s, int i)
{
    return (number){psi[2 * (s * N + i)], psi[2 * (s * N + i) + 1]};
}

/* The upper half of (1 - gamma_mu) psi, or of (1 + gamma_mu) psi. */
INLINE void project(number h[HALF][N], const vec *psi, const int mu, const int minus)
{
    FOR_EACH(s, i)
    {
        const number upper = spinor_of(psi, s, i);
        const number lower = turn(spinor_of(psi, HALF + partner(mu, s), i),
                                  turns(mu, s) + (minus ? 2 : 0));
        h[s][i] = (number){upper.re + lower.re, upper.im + lower.im};
    }
}

INLINE void permute(number h[HALF][N], mask lanes)
{
    FOR_EACH(s, i)
    {
        h[s][i].re = __builtin_shuffle(h[s][i].re, lanes);
        h[s][i].im = __builtin_shuffle(h[s][i].im, lanes);
    }
}

/* ---- one hop ---- */

INLINE void add_hop(number sum[SPINS][N], const vec *psi, const vec *link, const mask *lanes,
                    const int mu, const int ahead, const int adjoint)
{
    const int minus = ahead != adjoint;
    number h[HALF][N], moved[HALF][N];
    project(h, psi, mu, minus);
    if (ahead && lanes)
        permute(h, *lanes);
    UNROLLED for (int i = 0; i < N; i++)
    {
        UNROLLED for (int s = 0; s < HALF; s++) moved[s][i] = (number){{0}, {0}};
        UNROLLED for (int j = 0; j < N; j++)
        {
            const vec *entry = link + 2 * (ahead ? N * i + j : N * j + i);
            const vec re = entry[0], im = ahead ? entry[1] : -entry[1];
            UNROLLED for (int s = 0; s < HALF; s++)
            {
                moved[s][i].re += re * h[s][j].re;
                moved[s][i].im += re * h[s][j].im;
                moved[s][i].re -= im * h[s][j].im;
                moved[s][i].im += im * h[s][j].re;
            }
        }
    }
    if (!ahead && lanes)
        permute(moved, *lanes);
    FOR_EACH(s, i)
    {
        number *upper = &sum[s][i], *lower = &sum[HALF + partner(mu, s)][i];
        const number below = turn(moved[s][i], (minus ? 2 : 0) + 4 - turns(mu, s));
        *upper = (number){upper->re + moved[s][i].re, upper->im + moved[s][i].im};
        *lower = (number){lower->re + below.re, lower->im + below.im};
    }
}

/* (a + i b gamma5) sum + (c + i d gamma5) other; `other` may be null. */
INLINE void combine(vec *out, number sum[SPINS][N], const vec *other, const Factors *factors)
{
    UNROLLED for (int s = 0; s < SPINS; s++)
    {
        const double chirality = s < HALF ? 1 : -1;
        const vec a = all(factors->hops[0]), b = all(chirality * factors->hops[1]);
        const vec c = all(factors->other[0]), d = all(chirality * factors->other[1]);
        UNROLLED for (int i = 0; i < N; i++)
        {
            const int place = 2 * (s * N + i);
            vec re = a * sum[s][i].re - b * sum[s][i].im;
            vec im = a * sum[s][i].im + b * sum[s][i].re;
            if (other) {
                re += c * other[place] - d * other[place + 1];
                im += c * other[place + 1] + d * other[place];
            }
            out[place] = re;
            out[place + 1] = im;
        }
    }
}

typedef struct {
    const Lattice *lattice;
    const Permutations *lanes;
    const vec *links;
    const Factors *factors;
    int64_t adjoint;
} Hops;

/* The spinor at one site from those of the other parity, `psi`, and the one there, or null. */
INLINE void hop_as(const Hops *hops, const vec *psi, const vec *other, vec *out, int64_t parity,
                   int64_t x, const int adjoint)
{
    const int64_t half = hops->lattice->half;
    const vec *own = hops->links + (parity * half + x) * D * NUMBERS;
    const vec *others = hops->links + (1 - parity) * half * D * NUMBERS;
    const int64_t *next = hops->lattice->neighbours + (parity * half + x) * D * 2;
    number sum[SPINS][N];
    UNROLLED for (int s = 0; s < SPINS; s++) UNROLLED for (int i = 0; i < N; i++) sum[s][i] =
        (number){{0}, {0}};
#define BOTH(mu)                                                                                  \
    {                                                                                             \
        const int64_t up = next[2 * (mu)] >> 1, down = next[2 * (mu) + 1] >> 1;                   \
        add_hop(sum, psi + up * SPINOR, own + (mu) * NUMBERS,                                     \
                next[2 * (mu)] & 1 ? &hops->lanes->lanes[mu][0] : 0, mu, 1, adjoint);             \
        add_hop(sum, psi + down * SPINOR, others + (down * D + (mu)) * NUMBERS,                   \
                next[2 * (mu) + 1] & 1 ? &hops->lanes->lanes[mu][1] : 0, mu, 0, adjoint);         \
    }
    BOTH(0)
    BOTH(1)
#if D == 4
    BOTH(2)
    BOTH(3)
#endif
#undef BOTH
    combine(out, sum, other, hops->factors);
}

static void hop_to_site(const Hops *hops, const vec *psi, const vec *other, vec *out,
                        int64_t parity, int64_t x)
{
    if (hops->adjoint)
        hop_as(hops, psi, other, out, parity, x, 1);
    else
        hop_as(hops, psi, other, out, parity, x, 0);
}

/* One half of the lattice from the other one, with spinors of its own, or null. */
static void hop_to_half(const Hops *hops, const vec *psi, const vec *other, vec *out,
                        int64_t parity)
{
    for (int64_t x = 0; x < hops->lattice->half; x++)
        hop_to_site(hops, psi, other ? other + x * SPINOR : 0, out + x * SPINOR, parity, x);
}

static Permutations read_permutations(const Lattice *lattice)
{
    Permutations out;
    for (int mu = 0; mu < D; mu++)
        for (int way = 0; way < 2; way++)
            for (int l = 0; l < LANES; l++)
                out.lanes[mu][way][l] = lattice->permutations[(2 * mu + way) * LANES + l];
    return out;
}

/* (a + i b gamma5) H psi + (c + i d gamma5) other on the sites of `parity`; spinors in their usual
 * layout, `other` may be null. Sites of both parities are treated in turn, so that links are still
 * at hand when the hop back needs them. */
void combine_hops(const REAL *psi, const REAL *other, const REAL *packed, REAL *out,
                  const Lattice *lattice, const Factors *factors, int64_t parity, int64_t adjoint,
                  int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t half = lattice->half, size = half * SPINOR;
    const int halved = parity != ALL;
    vec *source = aligned(memory); /* source + p * size: the sites of parity p */
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * 2 * half * D * NUMBERS;
        const Hops hops = {lattice, &lanes, links, factors, adjoint};
        const Rows rows = rows_of_spinors(lattice, unit, parity);
        for (int p = 0; p < 2; p++)
            if (p != parity)
                gather_spinors(lattice, source + p * size, psi, unit, p, halved);
        for (int64_t x = 0; x < half; x++)
            for (int p = 0; p < 2; p++) {
                if (halved && p != parity)
                    continue;
                const int64_t *sites = lattice->sites + (p * half + x) * lattice->n_parts;
                const vec *with = other ? source + p * size + x * SPINOR : 0;
                vec added[SPINOR], result[SPINOR];
                if (other && (halved || other != psi)) {
                    gather(added, other, &rows, sites, SPINOR);
                    with = added;
                }
                hop_to_site(&hops, source + (1 - p) * size, with, result, p, x);
                scatter(out, result, &rows, sites, SPINOR);
            }
    }
}
