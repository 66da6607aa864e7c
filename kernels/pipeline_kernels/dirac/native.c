/* Hops of Wilson's Dirac operator, their derivative by the links, and conjugate gradients (see the
 * package), float or double (macro REAL), for N = 2 or 3 colours (macro N) in D = 2 or 4 dimensions
 * (macro D). Stands on fields.c.
 *
 * Lanes of a vector are the same site of several sub-lattices of one configuration, and where there
 * are fewer of these than lanes, of several fields: lane `field * n_parts + part`. A unit is what
 * one vector has: fields of as many configurations, or right-hand sides of one. The neighbours of
 * a site in all lanes are one other site, in other lanes where the hop leaves the sub-lattice.
 *
 * Half a lattice of spinors or links is (half, numbers, LANES), even sites before odd ones.
 */
#define SPINS D
#define HALF (SPINS / 2)
#define SPINOR (2 * SPINS * N) /* numbers of a spinor */
#define ALL 2                  /* sites of both parities */

typedef struct {
    const int64_t *sites;        /* (2, half, n_parts): numbers of the sites of each parity */
    const int64_t *neighbours;   /* (2, half, D, 2): x + mu, x - mu in the half of the other parity,
                                    twice, plus 1 where lanes change */
    const int64_t *permutations; /* (D, 2, LANES): the lane from which each comes then */
    int64_t half, n_parts;
    int64_t batch, n_rhs;
} Lattice;

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

/* One half of the lattice from the other one. */
INLINE void hop_as(const Lattice *lattice, const Permutations *lanes, const vec *links,
                   const vec *psi, const vec *other, vec *out, int64_t parity,
                   const Factors *factors, const int adjoint)
{
    const int64_t half = lattice->half;
    const vec *own = links + parity * half * D * NUMBERS;
    const vec *others = links + (1 - parity) * half * D * NUMBERS;
    for (int64_t x = 0; x < half; x++) {
        const int64_t *next = lattice->neighbours + (parity * half + x) * D * 2;
        number sum[SPINS][N];
        UNROLLED for (int s = 0; s < SPINS; s++) UNROLLED for (int i = 0; i < N; i++) sum[s][i] =
            (number){{0}, {0}};
#define BOTH(mu)                                                                                  \
    {                                                                                             \
        const int64_t up = next[2 * (mu)] >> 1, down = next[2 * (mu) + 1] >> 1;                   \
        add_hop(sum, psi + up * SPINOR, own + (x * D + (mu)) * NUMBERS,                           \
                next[2 * (mu)] & 1 ? &lanes->lanes[mu][0] : 0, mu, 1, adjoint);                   \
        add_hop(sum, psi + down * SPINOR, others + (down * D + (mu)) * NUMBERS,                   \
                next[2 * (mu) + 1] & 1 ? &lanes->lanes[mu][1] : 0, mu, 0, adjoint);               \
    }
        BOTH(0)
        BOTH(1)
#if D == 4
        BOTH(2)
        BOTH(3)
#endif
#undef BOTH
        combine(out + x * SPINOR, sum, other ? other + x * SPINOR : 0, factors);
    }
}

static void hop(const Lattice *lattice, const Permutations *lanes, const vec *links, const vec *psi,
                const vec *other, vec *out, int64_t parity, const Factors *factors, int64_t adjoint)
{
    if (adjoint)
        hop_as(lattice, lanes, links, psi, other, out, parity, factors, 1);
    else
        hop_as(lattice, lanes, links, psi, other, out, parity, factors, 0);
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

/* ---- fields of a unit ---- */

INLINE int64_t n_fields(const Lattice *lattice) { return LANES / lattice->n_parts; }

static int64_t n_groups(const Lattice *lattice)
{
    const int64_t n = n_fields(lattice);
    return (lattice->batch + n - 1) / n;
}

/* Units: with several configurations each right-hand side of a group of them, with one some of its
 * right-hand sides. */
static int64_t n_units(const Lattice *lattice)
{
    const int64_t n = n_fields(lattice);
    return lattice->batch > 1 ? n_groups(lattice) * lattice->n_rhs : (lattice->n_rhs + n - 1) / n;
}

static int64_t group_of(const Lattice *lattice, int64_t unit)
{
    return lattice->batch > 1 ? unit / lattice->n_rhs : 0;
}

/* Number of a field in (batch, n_rhs), or -1 where a lane has none. */
static int64_t field_of(const Lattice *lattice, int64_t unit, int64_t number_in_unit)
{
    if (lattice->batch > 1) {
        const int64_t b = unit / lattice->n_rhs * n_fields(lattice) + number_in_unit;
        return b < lattice->batch ? b * lattice->n_rhs + unit % lattice->n_rhs : -1;
    }
    const int64_t r = unit * n_fields(lattice) + number_in_unit;
    return r < lattice->n_rhs ? r : -1;
}

/* Where the numbers of a site lie in each lane, null in a lane without a field. */
typedef struct {
    int64_t offset[LANES], part[LANES];
    int64_t width; /* numbers a site */
    int halved;    /* whether the field has the sites of one parity only */
} Rows;

static Rows rows_of_spinors(const Lattice *lattice, int64_t unit, int64_t parity)
{
    Rows rows = {.width = SPINOR, .halved = parity != ALL};
    const int64_t size = lattice->half * lattice->n_parts * SPINOR * (rows.halved ? 1 : 2);
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t field = field_of(lattice, unit, l / lattice->n_parts);
        rows.offset[l] = field < 0 ? -1 : field * size;
        rows.part[l] = l % lattice->n_parts;
    }
    return rows;
}

INLINE int64_t place_of(const Rows *rows, const int64_t *sites, int64_t l)
{
    const int64_t site = sites[rows->part[l]];
    return rows->offset[l] + (rows->halved ? site >> 1 : site) * rows->width;
}

static const REAL nothing[NUMBERS + SPINOR];

/* `count` numbers of a site in all lanes; those of the last vector may be read twice. */
INLINE void gather(vec *to, const REAL *from, const Rows *rows, const int64_t *sites,
                   const int64_t count)
{
    const REAL *row[LANES];
    UNROLLED for (int l = 0; l < LANES; l++)
        row[l] = rows->offset[l] < 0 ? nothing : from + place_of(rows, sites, l);
    if (count < LANES) {
        for (int64_t k = 0; k < count; k++)
            for (int l = 0; l < LANES; l++)
                to[k][l] = row[l][k];
        return;
    }
    for (int64_t begin = 0; begin < count; begin += LANES) {
        const int64_t first = smaller(begin, count - LANES);
        vec block[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) block[l] = *(const loose *)(row[l] + first);
        transpose(block);
        UNROLLED for (int l = 0; l < LANES; l++) to[first + l] = block[l];
    }
}

INLINE void scatter(REAL *to, const vec *from, const Rows *rows, const int64_t *sites,
                    const int64_t count)
{
    if (count < LANES) {
        for (int l = 0; l < LANES; l++)
            for (int64_t k = 0; k < count && rows->offset[l] >= 0; k++)
                to[place_of(rows, sites, l) + k] = from[k][l];
        return;
    }
    for (int64_t begin = 0; begin < count; begin += LANES) {
        const int64_t first = smaller(begin, count - LANES);
        vec block[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) block[l] = from[first + l];
        transpose(block);
        UNROLLED for (int l = 0; l < LANES; l++)
            if (rows->offset[l] >= 0)
                *(loose *)(to + place_of(rows, sites, l) + first) = block[l];
    }
}

static void gather_spinors(const Lattice *lattice, vec *to, const REAL *psi, int64_t unit,
                           int64_t parity, int halved)
{
    const Rows rows = rows_of_spinors(lattice, unit, halved ? parity : ALL);
    const int64_t *sites = lattice->sites + parity * lattice->half * lattice->n_parts;
    for (int64_t x = 0; x < lattice->half; x++)
        gather(to + x * SPINOR, psi, &rows, sites + x * lattice->n_parts, SPINOR);
}

static void scatter_spinors(const Lattice *lattice, REAL *psi, const vec *from, int64_t unit,
                            int64_t parity, int halved)
{
    const Rows rows = rows_of_spinors(lattice, unit, halved ? parity : ALL);
    const int64_t *sites = lattice->sites + parity * lattice->half * lattice->n_parts;
    for (int64_t x = 0; x < lattice->half; x++)
        scatter(psi, from + x * SPINOR, &rows, sites + x * lattice->n_parts, SPINOR);
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next unit from the counter
 * that they share. */

#define FOR_UNITS(count)                                                                          \
    for (int64_t unit; (unit = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < (count);)

int64_t n_lanes(void) { return LANES; }

int64_t count_groups(const Lattice *lattice) { return n_groups(lattice); }

int64_t count_units(const Lattice *lattice) { return n_units(lattice); }

/* Bytes of so many halves of a lattice of spinors. */
int64_t memory_size(const Lattice *lattice, int64_t n_halves)
{
    return BYTES * (1 + n_halves * lattice->half * SPINOR);
}

static vec *aligned(void *memory)
{
    return (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

/* Links (batch, D, V, N, N) as (groups, 2, half, D, NUMBERS, LANES). One configuration is repeated
 * in the lanes of all fields. */
void pack_links(const REAL *links, REAL *packed, const Lattice *lattice, int64_t *counter)
{
    const int64_t half = lattice->half, parts = lattice->n_parts;
    const int64_t volume = 2 * half * parts, size = 2 * half * D * NUMBERS;
    FOR_UNITS(n_groups(lattice))
    {
        for (int64_t mu = 0; mu < D; mu++) {
            Rows rows = {.width = NUMBERS, .halved = 0};
            for (int64_t l = 0; l < LANES; l++) {
                const int64_t b = lattice->batch > 1 ? unit * n_fields(lattice) + l / parts : 0;
                rows.offset[l] = b < lattice->batch ? (b * D + mu) * volume * NUMBERS : -1;
                rows.part[l] = l % parts;
            }
            for (int64_t x = 0; x < 2 * half; x++)
                gather((vec *)packed + unit * size + (x * D + mu) * NUMBERS, links, &rows,
                       lattice->sites + x * parts, NUMBERS);
        }
    }
}

/* (a + i b gamma5) H psi + (c + i d gamma5) other on the sites of `parity`; spinors in their usual
 * layout, `other` may be null. */
void combine_hops(const REAL *psi, const REAL *other, const REAL *packed, REAL *out,
                  const Lattice *lattice, const Factors *factors, int64_t parity, int64_t adjoint,
                  int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t size = lattice->half * SPINOR, group_size = 2 * lattice->half * D * NUMBERS;
    const int halved = parity != ALL;
    vec *source = aligned(memory), *result = source + 2 * size, *added = result + size;
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * group_size;
        for (int p = 0; p < 2; p++) /* source + p * size: the sites of parity p */
            if (!halved || p != parity)
                gather_spinors(lattice, source + p * size, psi, unit, p, halved);
        for (int p = 0; p < 2; p++) {
            if (halved && p != parity)
                continue;
            const vec *with = other == 0 ? 0 : added;
            if (other == psi && !halved)
                with = source + p * size;
            else if (other)
                gather_spinors(lattice, added, other, unit, p, halved);
            hop(lattice, &lanes, links, source + (1 - p) * size, with, result, p, factors, adjoint);
            scatter_spinors(lattice, out, result, unit, p, halved);
        }
    }
}

/* Adds sum_s first_s second_s^dagger. */
INLINE void add_outer(vec *by, number first[HALF][N], number second[HALF][N])
{
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        vec re = by[2 * (N * i + j)], im = by[2 * (N * i + j) + 1];
        UNROLLED for (int s = 0; s < HALF; s++)
        {
            re += first[s][i].re * second[s][j].re;
            im += first[s][i].im * second[s][j].re;
            re += first[s][i].im * second[s][j].im;
            im -= first[s][i].re * second[s][j].im;
        }
        by[2 * (N * i + j)] = re;
        by[2 * (N * i + j) + 1] = im;
    }
}

/* What the link from x in direction mu gets of P chi (x) and P psi (x + mu), with P = 1 -+ gamma. */
INLINE void add_pair(vec *by, const vec *here, const vec *there, const mask *lanes, const int mu,
                     const int minus)
{
    number first[HALF][N], second[HALF][N];
    project(first, here, mu, minus);
    project(second, there, mu, minus);
    if (lanes)
        permute(second, *lanes);
    add_outer(by, first, second); /* P P = 2 P, and both halves of P psi count alike */
}

/* The links of one half; those that no hop to `parity` crosses get nothing. */
static void add_gradient(const Lattice *lattice, const Permutations *lanes, const vec *chi,
                         const vec *psi, vec *by, int64_t p, int64_t parity, int64_t adjoint)
{
    const int64_t half = lattice->half, size = half * SPINOR;
    for (int64_t x = 0; x < half; x++) {
        const int64_t *next = lattice->neighbours + (p * half + x) * D * 2;
        const int64_t here = p * size + x * SPINOR;
#define LINK(mu)                                                                                  \
    {                                                                                             \
        const int64_t there = (1 - p) * size + (next[2 * (mu)] >> 1) * SPINOR;                    \
        const mask *change = next[2 * (mu)] & 1 ? &lanes->lanes[mu][0] : 0;                       \
        vec *link = by + (x * D + (mu)) * NUMBERS;                                                \
        if (parity == ALL || p == parity)                                                         \
            adjoint ? add_pair(link, chi + here, psi + there, change, mu, 0)                      \
                    : add_pair(link, chi + here, psi + there, change, mu, 1);                     \
        if (parity == ALL || p != parity)                                                         \
            adjoint ? add_pair(link, psi + here, chi + there, change, mu, 1)                      \
                    : add_pair(link, psi + here, chi + there, change, mu, 0);                     \
    }
        LINK(0)
        LINK(1)
#if D == 4
        LINK(2)
        LINK(3)
#endif
#undef LINK
    }
}

/* Bytes that `hop_gradient` needs. */
int64_t gradient_size(const Lattice *lattice)
{
    return BYTES * (1 + lattice->half * (4 * SPINOR + 2 * D * NUMBERS));
}

/* d Re(chi^dagger H psi) by links, without the signs of the boundary, summed over right-hand sides:
 * (batch, D, V, N, N), or with one configuration (n_fields, D, V, N, N), to be summed. */
void hop_gradient(const REAL *chi, const REAL *psi, REAL *out, const Lattice *lattice,
                  int64_t parity, int64_t adjoint, int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t half = lattice->half, parts = lattice->n_parts, size = half * SPINOR;
    const int64_t volume = 2 * half * parts, per_group = n_units(lattice) / n_groups(lattice);
    const int halved = parity != ALL;
    vec *left = aligned(memory), *right = left + 2 * size, *by = right + 2 * size;
    FOR_UNITS(n_groups(lattice))
    {
        memset(by, 0, 2 * half * D * NUMBERS * sizeof(vec));
        for (int64_t one = unit * per_group; one < (unit + 1) * per_group; one++) {
            for (int p = 0; p < 2; p++) {
                if (!halved || p == parity)
                    gather_spinors(lattice, left + p * size, chi, one, p, halved);
                if (!halved || p != parity)
                    gather_spinors(lattice, right + p * size, psi, one, p, halved);
            }
            for (int p = 0; p < 2; p++)
                add_gradient(lattice, &lanes, left, right, by + p * half * D * NUMBERS, p, parity,
                             adjoint);
        }
        for (int64_t mu = 0; mu < D; mu++) {
            Rows rows = {.width = NUMBERS, .halved = 0};
            for (int64_t l = 0; l < LANES; l++) {
                const int64_t b = unit * n_fields(lattice) + l / parts;
                const int kept = lattice->batch == 1 || b < lattice->batch;
                rows.offset[l] = kept ? (b * D + mu) * volume * NUMBERS : -1;
                rows.part[l] = l % parts;
            }
            for (int64_t x = 0; x < 2 * half; x++)
                scatter(out, by + (x * D + mu) * NUMBERS, &rows, lattice->sites + x * parts,
                        NUMBERS);
        }
    }
}

/* ---- conjugate gradients on Mhat^dagger Mhat ---- */

typedef struct {
    double kappa, twist; /* twist: 2 kappa mu */
    int64_t max_iterations;
} Equation;

/* Mhat psi, or Mhat^dagger psi, on odd sites; `even` is half a lattice of memory. */
static void apply_even_odd(const Lattice *lattice, const Permutations *lanes, const vec *links,
                           const Equation *equation, const vec *psi, vec *even, vec *out,
                           int64_t adjoint)
{
    const double twist = adjoint ? -equation->twist : equation->twist;
    const double scale = 1 / (1 + twist * twist);
    const Factors there = {{scale, -twist * scale}, {0, 0}};
    const Factors back = {{-equation->kappa * equation->kappa, 0}, {1, twist}};
    hop(lattice, lanes, links, psi, 0, even, 0, &there, adjoint);
    hop(lattice, lanes, links, even, psi, out, 1, &back, adjoint);
}

/* Re a^dagger b of each field, in all its lanes. */
static void multiply_fields(const Lattice *lattice, const vec *a, const vec *b, double *product)
{
    double sums[LANES] = {0};
    for (int64_t x = 0; x < lattice->half; x++) {
        vec part = {0}; /* of one site: numbers of REAL are added over no more */
        UNROLLED for (int k = 0; k < SPINOR; k++) part += a[x * SPINOR + k] * b[x * SPINOR + k];
        for (int l = 0; l < LANES; l++)
            sums[l] += part[l];
    }
    for (int64_t l = 0; l < LANES; l += lattice->n_parts) {
        double total = 0;
        for (int64_t part = 0; part < lattice->n_parts; part++)
            total += sums[l + part];
        for (int64_t part = 0; part < lattice->n_parts; part++)
            product[l + part] = total;
    }
}

/* The quotient, zero where b is; `otherwise` in lanes that are done. */
static vec divide(const double *a, const double *b, const int *done, double otherwise)
{
    vec out;
    for (int l = 0; l < LANES; l++)
        out[l] = done[l] ? otherwise : b[l] == 0 ? 0 : a[l] / b[l];
    return out;
}

/* Which lanes have |r|^2 <= goal; returns whether all have. */
static int find_done(const double *norm, const double *goal, int *done)
{
    int all_done = 1;
    for (int l = 0; l < LANES; l++) {
        done[l] = !(norm[l] > goal[l]);
        all_done &= done[l];
    }
    return all_done;
}

/* Iterates x, r and p, (units, half, SPINOR, LANES), from where they are until |r|^2 <= goal. `last`
 * holds |r|^2 of the step before, zero to begin with r as direction; both are (units, LANES). A field
 * that is done waits for the others of its unit. `counts` gets the iterations of each unit. */
void iterate_normal(REAL *x, REAL *r, REAL *p, const REAL *packed, double *last, const double *goal,
                    int64_t *counts, const Lattice *lattice, const Equation *equation,
                    int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t size = lattice->half * SPINOR, group_size = 2 * lattice->half * D * NUMBERS;
    vec *even = aligned(memory), *middle = even + size, *image = middle + size;
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * group_size;
        vec *solution = (vec *)x + unit * size, *residual = (vec *)r + unit * size;
        vec *direction = (vec *)p + unit * size;
        double norm[LANES], curvature[LANES], *before = last + unit * LANES;
        int done[LANES];
        int64_t n = 0;
        multiply_fields(lattice, residual, residual, norm);
        for (; !find_done(norm, goal + unit * LANES, done) && n < equation->max_iterations; n++) {
            const vec beta = divide(norm, before, done, 1), taken = divide(norm, norm, done, 0);
            for (int64_t k = 0; k < size; k++)
                direction[k] = taken * residual[k] + beta * direction[k];
            apply_even_odd(lattice, &lanes, links, equation, direction, even, middle, 0);
            apply_even_odd(lattice, &lanes, links, equation, middle, even, image, 1);
            multiply_fields(lattice, direction, image, curvature);
            const vec alpha = divide(norm, curvature, done, 0);
            for (int64_t k = 0; k < size; k++) {
                solution[k] += alpha * direction[k];
                residual[k] -= alpha * image[k];
            }
            for (int l = 0; l < LANES; l++)
                before[l] = done[l] ? before[l] : norm[l];
            multiply_fields(lattice, residual, residual, norm);
        }
        counts[unit] = n;
    }
}

/* Spinors on odd sites (batch, n_rhs, V / 2, ...) as (units, half, SPINOR, LANES), and back. */
void pack_odd(const REAL *psi, REAL *packed, const Lattice *lattice, int64_t *counter)
{
    const int64_t size = lattice->half * SPINOR;
    FOR_UNITS(n_units(lattice))
        gather_spinors(lattice, (vec *)packed + unit * size, psi, unit, 1, 1);
}

void unpack_odd(REAL *psi, const REAL *packed, const Lattice *lattice, int64_t *counter)
{
    const int64_t size = lattice->half * SPINOR;
    FOR_UNITS(n_units(lattice))
        scatter_spinors(lattice, psi, (const vec *)packed + unit * size, unit, 1, 1);
}
