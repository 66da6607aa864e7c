/* A layer of staples and its derivative (see the package), float or double (macro REAL), for N = 2
 * or 3 colours (macro N). Stands on fields.c.
 *
 * All links of LANES samples are copied to a field of vectors, so that a neighbour is read as it
 * lies, whatever the tables hold. Staples of one link in all channels are multiplied out, then
 * combined, before those of the next.
 */
/* Of sums in registers: rows, columns of a combination, rows of the other side of a pair. */
#define ROWS 4
#define COLUMNS (REGISTERS >= 32 ? 2 * N : N) /* divides NUMBERS */
#define PAIRED (REGISTERS >= 32 ? 4 : 2)
#define LONGEST 64 /* links over which sums are kept in REAL */

typedef struct {
    const int64_t *forward, *backward; /* neighbours of each site, direction by direction */
    const uint8_t *active;             /* of each link */
    const REAL *coefficients;          /* (n_out, n_staples) */
    int64_t batch, n_in, n_out, n_directions, volume;
} Layer;

INLINE int64_t n_links(const Layer *layer) { return layer->n_directions * layer->volume; }
INLINE int64_t n_staples(const Layer *layer)
{
    return layer->n_in * (2 * layer->n_directions - 1);
}

/* ---- from samples to lanes and back ---- */

/* Where the matrix of channel k of K and link `at` (direction by direction) lies in a field: all
 * channels of all links of a site together, far from what shares the cache sets. */
INLINE int64_t place(const Layer *layer, int64_t K, int64_t k, int64_t at)
{
    const int64_t mu = at / layer->volume, x = at % layer->volume;
    return ((x * layer->n_directions + mu) * K + k) * NUMBERS;
}

/* Links that are moved between samples and lanes together: whole vectors of numbers. */
#define RUN 8

/* Matrices of K channels of n samples; lanes beyond n become zero. `run` is memory for one. */
static void pack_all(const Layer *layer, vec *field, const REAL *samples, int64_t K, int64_t n,
                     vec *run)
{
    const int64_t links = n_links(layer), sample = K * links * NUMBERS;
    for (int64_t k = 0; k < K; k++)
        for (int64_t begin = 0; begin < links; begin += RUN) {
            const int64_t count = smaller(RUN, links - begin);
            pack(run, samples + (k * links + begin) * NUMBERS, count * NUMBERS, sample, n);
            for (int64_t r = 0; r < count; r++)
                memcpy(field + place(layer, K, k, begin + r), run + r * NUMBERS,
                       NUMBERS * sizeof(vec));
        }
}

static void unpack_all(const Layer *layer, REAL *samples, const vec *field, int64_t K, int64_t n,
                       vec *run)
{
    const int64_t links = n_links(layer), sample = K * links * NUMBERS;
    for (int64_t k = 0; k < K; k++)
        for (int64_t begin = 0; begin < links; begin += RUN) {
            const int64_t count = smaller(RUN, links - begin);
            for (int64_t r = 0; r < count; r++)
                memcpy(run + r * NUMBERS, field + place(layer, K, k, begin + r),
                       NUMBERS * sizeof(vec));
            unpack(samples + (k * links + begin) * NUMBERS, run, count * NUMBERS, sample, n);
        }
}

#define PLAIN 0
#define ADJOINT 1

/* ---- combinations ---- */

/* out[r] = sum_j f[r, j] x[j], of rows of NUMBERS vectors, for some rows and columns */
INLINE void combine_tile(const int rows, vec *out, const REAL *f, int64_t f_row, int64_t f_step,
                         const vec *x, int64_t count)
{
    vec sums[ROWS][COLUMNS];
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int c = 0; c < COLUMNS; c++)
        sums[r][c] = (vec){0};
    for (int64_t j = 0; j < count; j++)
        UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int c = 0; c < COLUMNS; c++)
            sums[r][c] += f[r * f_row + j * f_step] * x[j * NUMBERS + c];
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int c = 0; c < COLUMNS; c++)
        out[r * NUMBERS + c] = sums[r][c];
}

static void combine(vec *out, int64_t n, const REAL *f, int64_t f_row, int64_t f_step, const vec *x,
                    int64_t count)
{
    for (int64_t c = 0; c < NUMBERS; c += COLUMNS) {
        int64_t r = 0;
        for (; r + ROWS <= n; r += ROWS)
            combine_tile(ROWS, out + r * NUMBERS + c, f + r * f_row, f_row, f_step, x + c, count);
        for (; r < n; r++)
            combine_tile(1, out + r * NUMBERS + c, f + r * f_row, f_row, f_step, x + c, count);
    }
}

/* sums[a, b] += x[a] . y[b], over NUMBERS vectors, for some rows of each */
INLINE void pair_tile(const int na, const int nb, vec *sums, int64_t step, const vec *x,
                      const vec *y)
{
    vec s[PAIRED][ROWS];
    UNROLLED for (int a = 0; a < na; a++) UNROLLED for (int b = 0; b < nb; b++)
        s[a][b] = sums[a * step + b];
    for (int c = 0; c < NUMBERS; c++)
        UNROLLED for (int a = 0; a < na; a++) UNROLLED for (int b = 0; b < nb; b++)
            s[a][b] += x[a * NUMBERS + c] * y[b * NUMBERS + c];
    UNROLLED for (int a = 0; a < na; a++) UNROLLED for (int b = 0; b < nb; b++)
        sums[a * step + b] = s[a][b];
}

static void pair(vec *sums, const vec *x, int64_t n, const vec *y, int64_t count)
{
    for (int64_t a = 0; a < n;) {
        const int64_t na = a + PAIRED <= n ? PAIRED : 1;
        for (int64_t b = 0; b < count;) {
            const int64_t nb = b + ROWS <= count ? ROWS : 1;
            vec *to = sums + a * count + b;
            const vec *from = x + a * NUMBERS, *with = y + b * NUMBERS;
            if (na == PAIRED && nb == ROWS)
                pair_tile(PAIRED, ROWS, to, count, from, with);
            else if (na == PAIRED)
                pair_tile(PAIRED, 1, to, count, from, with);
            else if (nb == ROWS)
                pair_tile(1, ROWS, to, count, from, with);
            else
                pair_tile(1, 1, to, count, from, with);
            b += nb;
        }
        a += na;
    }
}

/* ---- staples of one link ---- */

typedef struct {
    int64_t left, middle, right; /* where the links of channel 0 that are multiplied lie */
} Path;

/* mu and nu at x: the path through x + nu, then that through x - nu. */
INLINE void paths(const Layer *layer, int64_t mu, int64_t nu, int64_t x, Path *two)
{
    const int64_t V = layer->volume, K = layer->n_in, *ahead = layer->forward + mu * V;
    const int64_t up = layer->forward[nu * V + x], down = layer->backward[nu * V + x];
#define AT(direction, site) place(layer, K, 0, (direction) * V + (site))
    two[0] = (Path){AT(nu, x), AT(mu, up), AT(nu, ahead[x])};
    two[1] = (Path){AT(nu, down), AT(mu, down), AT(nu, ahead[down])};
#undef AT
}

/* All that is combined, in the order of the coefficients. `corner` is a matrix to work with. */
static void staples_at(const Layer *layer, const vec *field, int64_t mu, int64_t x, vec *staples,
                       vec *corner)
{
    const int64_t K = layer->n_in, n_others = layer->n_directions - 1;
    memcpy(staples, field + place(layer, K, 0, mu * layer->volume + x), K * NUMBERS * sizeof(vec));
    for (int64_t other = 0; other < n_others; other++) {
        Path two[2];
        paths(layer, mu, other + (other >= mu), x, two);
        vec *right = staples + (1 + other) * K * NUMBERS, *left = right + n_others * K * NUMBERS;
        for (int64_t k = 0; k < K; k++) {
            const vec *links = field + k * NUMBERS;
            multiply_as(corner, links + two[0].left, PLAIN, links + two[0].middle, PLAIN, 0);
            multiply_as(right + k * NUMBERS, corner, PLAIN, links + two[0].right, ADJOINT, 0);
            multiply_as(corner, links + two[1].middle, PLAIN, links + two[1].right, PLAIN, 0);
            multiply_as(left + k * NUMBERS, links + two[1].left, ADJOINT, corner, PLAIN, 0);
        }
    }
}

/* Adds to `grads` what derivatives `by` all that `staples_at` gives amount to. */
static void spread(const Layer *layer, const vec *field, int64_t mu, int64_t x, const vec *by,
                   vec *grads, vec *corner)
{
    const int64_t K = layer->n_in, n_others = layer->n_directions - 1;
    vec *own = grads + place(layer, K, 0, mu * layer->volume + x);
    for (int64_t i = 0; i < K * NUMBERS; i++)
        own[i] += by[i];
    for (int64_t other = 0; other < n_others; other++) {
        Path two[2];
        paths(layer, mu, other + (other >= mu), x, two);
        const vec *by_right = by + (1 + other) * K * NUMBERS;
        const vec *by_left = by_right + n_others * K * NUMBERS;
        for (int64_t k = 0; k < K; k++, by_right += NUMBERS, by_left += NUMBERS) {
            const vec *links = field + k * NUMBERS;
            vec *to = grads + k * NUMBERS;
            /* R = a b c^dagger: g c b^dagger, a^dagger g c, g^dagger a b */
            const vec *a = links + two[0].left, *b = links + two[0].middle;
            const vec *c = links + two[0].right;
            multiply_as(corner, by_right, PLAIN, c, PLAIN, 0);
            multiply_as(to + two[0].left, corner, PLAIN, b, ADJOINT, 1);
            multiply_as(to + two[0].middle, a, ADJOINT, corner, PLAIN, 1);
            multiply_as(corner, a, PLAIN, b, PLAIN, 0);
            multiply_as(to + two[0].right, by_right, ADJOINT, corner, PLAIN, 1);
            /* L = a^dagger b c: b c g^dagger, a g c^dagger, b^dagger a g */
            a = links + two[1].left, b = links + two[1].middle;
            c = links + two[1].right;
            multiply_as(corner, a, PLAIN, by_left, PLAIN, 0);
            multiply_as(to + two[1].middle, corner, PLAIN, c, ADJOINT, 1);
            multiply_as(to + two[1].right, b, ADJOINT, corner, PLAIN, 1);
            multiply_as(corner, b, PLAIN, c, PLAIN, 0);
            multiply_as(to + two[1].left, corner, PLAIN, by_left, ADJOINT, 1);
        }
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next samples from the
 * counter that they share. */

#define FOR_BLOCKS                                                                                \
    for (int64_t first;                                                                           \
         (first = __atomic_fetch_add(counter, LANES, __ATOMIC_RELAXED)) < layer->batch;)

int64_t n_lanes(void) { return LANES; }

/* Bytes that a call needs. */
int64_t memory_size(const Layer *layer, int64_t gradient)
{
    const int64_t in = layer->n_in * n_links(layer), run = RUN * layer->n_out + RUN;
    const int64_t work = (gradient ? 2 : 1) * (in + n_staples(layer)) + layer->n_out + run + 1;
    const int64_t pairs = gradient ? layer->n_out * n_staples(layer) : 0;
    return BYTES * (1 + work * NUMBERS + pairs);
}

/* Runs of links of one direction: the first one, `at`, and how many, `count`. All directions of some
 * sites come before the next sites. */
#define FOR_RUNS(at, count)                                                                       \
    for (int64_t x = 0, count; x < V && (count = smaller(RUN, V - x)); x += RUN)                  \
        for (int64_t at = x; at < D * V; at += V)

void staples(const REAL *links, REAL *out, const Layer *layer, int64_t *counter, void *memory)
{
    const int64_t V = layer->volume, D = layer->n_directions, J = n_staples(layer);
    const int64_t in = layer->n_in * D * V * NUMBERS, n_result = layer->n_out * D * V * NUMBERS;
    const int64_t row = RUN * NUMBERS;
    vec *field = aligned(memory), *products = field + in, *corner = products + J * NUMBERS;
    vec *result = corner + NUMBERS, *rows = result + layer->n_out * NUMBERS;
    vec *run = rows + layer->n_out * row;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, layer->batch - first);
        pack_all(layer, field, links + first * in, layer->n_in, n, run);
        FOR_RUNS(at, count)
        {
            for (int64_t r = 0; r < count; r++) {
                if (layer->active[at + r]) {
                    staples_at(layer, field, at / V, x + r, products, corner);
                    combine(result, layer->n_out, layer->coefficients, J, 1, products, J);
                } else
                    memset(result, 0, layer->n_out * NUMBERS * sizeof(vec));
                for (int64_t k = 0; k < layer->n_out; k++)
                    memcpy(rows + k * row + r * NUMBERS, result + k * NUMBERS,
                           NUMBERS * sizeof(vec));
            }
            for (int64_t k = 0; k < layer->n_out; k++)
                unpack(out + first * n_result + (k * D * V + at) * NUMBERS, rows + k * row,
                       count * NUMBERS, n_result, n);
        }
    }
}

static void sum_lanes(double *out, vec *sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t l = 0; l < LANES; l++)
            sum += sums[i][l];
        out[i] += sum;
        sums[i] = (vec){0};
    }
}

/* Sums over the lattice and each LANES samples are added to a row of `partial`, zero before, so that
 * the order in which everything is added does not depend on the threads. */
void staples_gradient(const REAL *links, const REAL *by_out, REAL *by_links, double *partial,
                      const Layer *layer, int64_t *counter, void *memory)
{
    const int64_t V = layer->volume, D = layer->n_directions, J = n_staples(layer);
    const int64_t in = layer->n_in * D * V * NUMBERS, n_result = layer->n_out * D * V * NUMBERS;
    const int64_t row = RUN * NUMBERS;
    vec *field = aligned(memory), *grads = field + in, *products = grads + in;
    vec *by_products = products + J * NUMBERS, *corner = by_products + J * NUMBERS;
    vec *by = corner + NUMBERS, *rows = by + layer->n_out * NUMBERS;
    vec *run = rows + layer->n_out * row, *sums = run + row;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, layer->batch - first);
        double *total = partial + first / LANES * layer->n_out * J;
        pack_all(layer, field, links + first * in, layer->n_in, n, run);
        memset(grads, 0, in * sizeof(vec));
        memset(sums, 0, layer->n_out * J * sizeof(vec));
        int64_t n_summed = 0;
        FOR_RUNS(at, count)
        {
            for (int64_t k = 0; k < layer->n_out; k++)
                pack(rows + k * row, by_out + first * n_result + (k * D * V + at) * NUMBERS,
                     count * NUMBERS, n_result, n);
            for (int64_t r = 0; r < count; r++) {
                if (!layer->active[at + r])
                    continue;
                for (int64_t k = 0; k < layer->n_out; k++)
                    memcpy(by + k * NUMBERS, rows + k * row + r * NUMBERS, NUMBERS * sizeof(vec));
                staples_at(layer, field, at / V, x + r, products, corner);
                pair(sums, by, layer->n_out, products, J);
                combine(by_products, J, layer->coefficients, 1, J, by, layer->n_out);
                spread(layer, field, at / V, x + r, by_products, grads, corner);
                if (++n_summed % LONGEST == 0)
                    sum_lanes(total, sums, layer->n_out * J);
            }
        }
        unpack_all(layer, by_links + first * in, grads, layer->n_in, n, run);
        sum_lanes(total, sums, layer->n_out * J);
    }
}
