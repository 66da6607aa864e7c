/* The tensor product with weights w = x A and its derivatives (see __init__.py), float or double (macro
 * REAL). After products.c; the couplings stand before both (couplings.py).
 *
 * BLOCK edges go through together: their weights, and derivatives by these, are made and used in
 * memory of the thread that stays in the second-level cache. Columns of A lie in panels, and so do
 * those of weights. Edges are in the order of their receivers; what goes to senders is kept for the
 * edges of a part of the receivers and added in a second pass. Derivatives by A are summed over
 * ranges of receivers, each with sums of its own, so that no order depends on the threads.
 */
#define PANEL (COLUMNS * LANES)
#define BLOCK (2 * TILE_ROWS)
#define WIDE (REGISTERS == 32 ? 2 : 1) /* vectors of channels that meet a coupling at once */
#define UNROLL_ALL _Pragma("GCC unroll 32")

typedef struct {
    int64_t coupling;              /* its number */
    int64_t row_h, row_Y, row_out; /* where components begin */
} Path;

typedef struct {
    const REAL *g, *h, *Y, *x, *dh, *dY, *dx;
    const REAL *A, *A_T; /* (n_paths channels / PANEL, K, PANEL); (n_paths channels, K) */
    REAL *out, *by_h, *by_Y, *by_x, *by_A; /* of by_h the edges of the part; of by_A all ranges */
    const int64_t *senders, *offsets;      /* the latter of receivers */
    const Path *paths;
    int64_t n_paths, dim_in, dim_sh, dim_out, channels, K;
    int64_t begin, end; /* receivers of the part */
    int64_t n_ranges;
} Work;

/* ---- edges that go through together ---- */

typedef struct {
    int64_t first, count, n_T;
    int64_t n_runs, nodes[BLOCK], runs[BLOCK + 1]; /* edges of a receiver that follow each other */
    const REAL *h[BLOCK], *dh[BLOCK];
    REAL *T, *dT;                 /* (BLOCK, n_T), those of all paths */
    REAL *w, *dw, *by_w, *by_dw;  /* panels of (BLOCK, PANEL) */
    REAL *by_h;                   /* (count, dim_in, channels) */
    vec *by_Y;                    /* (BLOCK, dim_sh), lanes to be added */
} Block;

/* Where numbers of a path and some channels lie among those of an edge, or of a node. */
typedef struct {
    int64_t T, w, h, out, Y;
} Place;

INLINE loose at(const REAL *row) { return *(const loose *)row; }

#define FOR_RUNS(r) for (int64_t r = 0; r < b->n_runs; r++)
#define FOR_EDGES(e, r) for (int64_t e = b->runs[r]; e < b->runs[r + 1]; e++)
#define EACH(i, n)                                                                                \
    UNROLL_ALL                                                                                    \
    for (int i = 0; i < (n); i++)

/* out[m3] += T[m1, m3] w h[m1] */
INLINE void sum_products(const int d1, const int d3, const int16_t *place, const Work *k,
                         const Block *b, Place p)
{
    const int64_t C = k->channels;
    FOR_RUNS(r)
    {
        REAL *out = k->out + b->nodes[r] * k->dim_out * C + p.out;
        loose sums[MAX_D3][WIDE];
        EACH(m, d3) EACH(j, WIDE) sums[m][j] = at(out + m * C + j * LANES);
        FOR_EDGES(e, r)
        {
            const REAL *T = b->T + e * b->n_T + p.T, *h = b->h[e] + p.h;
            const REAL *w = b->w + p.w + e * PANEL;
            loose x[MAX_D1][WIDE];
            EACH(i, d1) EACH(j, WIDE) x[i][j] = at(w + j * LANES) * at(h + i * C + j * LANES);
            EACH(m, d3) EACH(i, d1) if (place[i * d3 + m] >= 0)
            {
                const REAL t = T[place[i * d3 + m]];
                EACH(j, WIDE) sums[m][j] += t * x[i][j];
            }
        }
        EACH(m, d3) EACH(j, WIDE) *(loose *)(out + m * C + j * LANES) = sums[m][j];
    }
}

/* With u[m1] = T[m1, m3] g[m3]: by_h[m1] += w u[m1], by_w = h[m1] u[m1]. */
INLINE void sum_gradients(const int d1, const int d3, const int16_t *place, const Work *k,
                          const Block *b, Place p)
{
    const int64_t C = k->channels;
    FOR_RUNS(r)
    {
        const REAL *g = k->g + b->nodes[r] * k->dim_out * C + p.out;
        loose rows[MAX_D3][WIDE];
        EACH(m, d3) EACH(j, WIDE) rows[m][j] = at(g + m * C + j * LANES);
        FOR_EDGES(e, r)
        {
            const REAL *T = b->T + e * b->n_T + p.T, *h = b->h[e] + p.h;
            const REAL *w = b->w + p.w + e * PANEL;
            REAL *by_h = b->by_h + e * k->dim_in * C + p.h, *by_w = b->by_w + p.w + e * PANEL;
            loose u[MAX_D1][WIDE], total[WIDE];
            EACH(i, d1) EACH(j, WIDE) u[i][j] = (loose){0};
            EACH(j, WIDE) total[j] = (loose){0};
            EACH(m, d3) EACH(i, d1) if (place[i * d3 + m] >= 0)
            {
                const REAL t = T[place[i * d3 + m]];
                EACH(j, WIDE) u[i][j] += t * rows[m][j];
            }
            EACH(i, d1) EACH(j, WIDE)
            {
                total[j] += at(h + i * C + j * LANES) * u[i][j];
                *(loose *)(by_h + i * C + j * LANES) += at(w + j * LANES) * u[i][j];
            }
            EACH(j, WIDE) *(loose *)(by_w + j * LANES) = total[j];
        }
    }
}

/* The same of all channels, and by_Y, of which dT[m1, m3] = w h[m1] g[m3]; its sums over channels
 * stay in registers. */
INLINE void sum_all_gradients(const int d1, const int d3, const int16_t *place, const Work *k,
                              const Block *b, Place p, vec *dT, int64_t e, const REAL *g)
{
    const int64_t C = k->channels;
    const REAL *T = b->T + e * b->n_T + p.T, *h = b->h[e] + p.h;
    REAL *by_h = b->by_h + e * k->dim_in * C + p.h;
    loose sums[MAX_D1 * MAX_D3];
    EACH(t, d1 * d3) sums[t] = (loose){0};
    for (int64_t c = 0, v = p.w + e * PANEL; c < C; c += LANES) {
        const loose weight = at(b->w + v);
        loose x[MAX_D1], u[MAX_D1], total = {0};
        EACH(i, d1)
        {
            x[i] = weight * at(h + i * C + c);
            u[i] = (loose){0};
        }
        EACH(m, d3)
        {
            const loose row = at(g + m * C + c);
            EACH(i, d1) if (place[i * d3 + m] >= 0)
            {
                u[i] += T[place[i * d3 + m]] * row;
                sums[i * d3 + m] += x[i] * row;
            }
        }
        EACH(i, d1)
        {
            total += at(h + i * C + c) * u[i];
            *(loose *)(by_h + i * C + c) += weight * u[i];
        }
        *(loose *)(b->by_w + v) = total;
        v += (c + LANES) % PANEL ? LANES : LANES + (BLOCK - 1) * PANEL;
    }
    EACH(t, d1 * d3) if (place[t] >= 0) dT[place[t]] = sums[t];
}

/* out[m3] += T[m1, m3] (dw h + w dh)[m1] + dT[m1, m3] w h[m1]; with u[m1] = T[m1, m3] g[m3] and du of
 * dT likewise, by_h[m1] += dw u[m1] + w du[m1], by_w = dh[m1] u[m1] + h[m1] du[m1], and
 * by_dw = h[m1] u[m1]. */
INLINE void sum_tangents(const int d1, const int d3, const int16_t *place, const Work *k,
                         const Block *b, Place p)
{
    const int64_t C = k->channels;
    FOR_RUNS(r)
    {
        const int64_t node = b->nodes[r] * k->dim_out * C + p.out;
        loose rows[MAX_D3], sums[MAX_D3];
        EACH(m, d3)
        {
            rows[m] = at(k->g + node + m * C);
            sums[m] = at(k->out + node + m * C);
        }
        FOR_EDGES(e, r)
        {
            const int64_t v = p.w + e * PANEL;
            const REAL *T = b->T + e * b->n_T + p.T, *dT = b->dT + e * b->n_T + p.T;
            const REAL *h = b->h[e] + p.h, *dh = b->dh[e] + p.h;
            REAL *by_h = b->by_h + e * k->dim_in * C + p.h;
            const loose weight = at(b->w + v), change = at(b->dw + v);
            loose x[MAX_D1], dx[MAX_D1], u[MAX_D1], du[MAX_D1], total = {0}, first = {0};
            EACH(i, d1)
            {
                x[i] = weight * at(h + i * C);
                dx[i] = change * at(h + i * C) + weight * at(dh + i * C);
                u[i] = du[i] = (loose){0};
            }
            EACH(m, d3) EACH(i, d1) if (place[i * d3 + m] >= 0)
            {
                const REAL t = T[place[i * d3 + m]], dt = dT[place[i * d3 + m]];
                sums[m] += t * dx[i];
                sums[m] += dt * x[i];
                u[i] += t * rows[m];
                du[i] += dt * rows[m];
            }
            EACH(i, d1)
            {
                total += at(dh + i * C) * u[i] + at(h + i * C) * du[i];
                first += at(h + i * C) * u[i];
                *(loose *)(by_h + i * C) += change * u[i] + weight * du[i];
            }
            *(loose *)(b->by_w + v) = total;
            *(loose *)(b->by_dw + v) = first;
        }
        EACH(m, d3) *(loose *)(k->out + node + m * C) = sums[m];
    }
}

/* ---- each coupling ---- */

typedef void Couple(const REAL *Y, REAL *T);
typedef void Sum(const Work *k, const Block *b, Place p);

#define INSTANCE_COUPLING(I, D1, D3, N)                                                           \
    static void couple_##I(const REAL *Y, REAL *T) { COUPLE_##I }                                 \
    static void products_##I(const Work *k, const Block *b, Place p)                              \
    {                                                                                             \
        sum_products(D1, D3, places_##I, k, b, p);                                                \
    }                                                                                             \
    static void gradients_##I(const Work *k, const Block *b, Place p)                             \
    {                                                                                             \
        sum_gradients(D1, D3, places_##I, k, b, p);                                               \
    }                                                                                             \
    static void all_gradients_##I(const Work *k, const Block *b, Place p)                         \
    {                                                                                             \
        FOR_RUNS(r) FOR_EDGES(e, r)                                                               \
        {                                                                                         \
            const REAL *g = k->g + b->nodes[r] * k->dim_out * k->channels + p.out;                \
            vec dT[N], *dY = b->by_Y + e * k->dim_sh + p.Y;                                       \
            sum_all_gradients(D1, D3, places_##I, k, b, p, dT, e, g);                             \
            UNCOUPLE_##I                                                                          \
        }                                                                                         \
    }                                                                                             \
    static void tangents_##I(const Work *k, const Block *b, Place p)                              \
    {                                                                                             \
        sum_tangents(D1, D3, places_##I, k, b, p);                                                \
    }
COUPLINGS(INSTANCE_COUPLING)

enum { PRODUCTS, GRADIENTS, ALL_GRADIENTS, TANGENTS, N_SUMS };

typedef struct {
    int64_t n_T;
    Couple *couple;
    Sum *sums[N_SUMS];
} Kernels;

#define NAME_KERNELS(I, D1, D3, N)                                                                \
    {N, couple_##I, {products_##I, gradients_##I, all_gradients_##I, tangents_##I}},
static const Kernels kernels[] = {COUPLINGS(NAME_KERNELS)};

/* ---- a block ---- */

static int64_t count_T(const Work *k)
{
    int64_t n = 0;
    for (int64_t p = 0; p < k->n_paths; p++)
        n += kernels[k->paths[p].coupling].n_T;
    return n;
}

/* Divides memory of a thread, or tells how many numbers it has. */
static int64_t make_room(const Work *k, REAL *memory, Block *b)
{
    const int64_t size = BLOCK * k->n_paths * k->channels;
    b->n_T = count_T(k);
    b->by_Y = (vec *)memory;
    b->w = memory + BLOCK * k->dim_sh * LANES;
    b->dw = b->w + size;
    b->by_w = b->dw + size;
    b->by_dw = b->by_w + size;
    b->T = b->by_dw + size;
    b->dT = b->T + BLOCK * b->n_T;
    return b->dT + BLOCK * b->n_T - memory;
}

int64_t memory_size(const Work *k)
{
    Block b;
    return make_room(k, 0, &b) * sizeof(REAL) + BYTES;
}

static void couple(const Work *k, const Block *b, const REAL *Y, REAL *T)
{
    for (int64_t e = 0; e < b->count; e++)
        for (int64_t p = 0; p < k->n_paths; p++) {
            const Kernels *own = kernels + k->paths[p].coupling;
            own->couple(Y + (b->first + e) * k->dim_sh + k->paths[p].row_Y, T);
            T += own->n_T;
        }
}

/* Takes `count` edges, the first of which is one of `node`. */
static void take(const Work *k, Block *b, int64_t first, int64_t count, int64_t node)
{
    const int64_t size = k->dim_in * k->channels;
    b->first = first;
    b->count = count;
    b->n_runs = 0;
    b->by_h = k->by_h + (first - k->offsets[k->begin]) * size;
    for (int64_t e = 0; e < count; e++) {
        b->h[e] = k->h + k->senders[first + e] * size;
        b->dh[e] = k->dh + k->senders[first + e] * size;
        while (first + e >= k->offsets[node + 1])
            node++;
        if (e == 0 || b->nodes[b->n_runs - 1] != node) {
            b->nodes[b->n_runs] = node;
            b->runs[b->n_runs++] = e;
        }
    }
    b->runs[b->n_runs] = count;
    couple(k, b, k->Y, b->T);
}

/* All paths and channels, some at once. */
static void run(const Work *k, const Block *b, int sum, int64_t step)
{
    for (int64_t c = 0; c < k->channels; c += step) {
        Place at = {0};
        for (int64_t p = 0; p < k->n_paths; p++) {
            const Path path = k->paths[p];
            const int64_t column = p * k->channels + c;
            at.w = column / PANEL * PANEL * BLOCK + column % PANEL;
            at.h = path.row_h * k->channels + c;
            at.out = path.row_out * k->channels + c;
            at.Y = path.row_Y;
            const Kernels *own = kernels + path.coupling;
            own->sums[sum](k, b, at);
            at.T += own->n_T;
        }
    }
}

/* w = x A */
static void map(const Work *k, const Block *b, const REAL *x, REAL *w)
{
    for (int64_t c = 0; c < k->n_paths * k->channels; c += PANEL) {
        const Product p = {.a = x + b->first * k->K, .b = k->A + c * k->K, .out = w + c * BLOCK,
                           .rows = b->count, .depth = k->K, .width = PANEL, .a_row = k->K,
                           .a_step = 1, .b_row = PANEL, .out_row = PANEL};
        multiply(&p);
    }
}

/* by_x = by_w A^T */
static void map_back(const Work *k, const Block *b)
{
    REAL *out = k->by_x + b->first * k->K;
    for (int64_t c = 0; c < k->n_paths * k->channels; c += PANEL) {
        const Product p = {.a = b->by_w + c * BLOCK, .b = k->A_T + c * k->K, .start = c ? out : 0,
                           .out = out, .rows = b->count, .depth = PANEL, .width = k->K,
                           .a_row = PANEL, .a_step = 1, .b_row = k->K, .start_row = k->K,
                           .out_row = k->K};
        multiply(&p);
    }
}

/* by_A += x^T by_w, of a range */
static void add_outer(const Work *k, const Block *b, const REAL *x, const REAL *by_w, int64_t range)
{
    REAL *by_A = k->by_A + range * k->n_paths * k->channels * k->K;
    for (int64_t c = 0; c < k->n_paths * k->channels; c += PANEL) {
        REAL *out = by_A + c * k->K;
        const Product p = {.a = x + b->first * k->K, .b = by_w + c * BLOCK, .start = out,
                           .out = out, .rows = k->K, .depth = b->count, .width = PANEL, .a_row = 1,
                           .a_step = k->K, .b_row = PANEL, .start_row = PANEL, .out_row = PANEL};
        multiply(&p);
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next range from the counter
 * that they share. */

int64_t count_columns(void) { return PANEL; }

INLINE int64_t cut_range(const Work *k, int64_t r)
{
    return k->begin + r * (k->end - k->begin) / k->n_ranges;
}

/* Sums of the receivers of a range begin with zero. */
INLINE void clear(const Work *k, int64_t range)
{
    const int64_t size = k->dim_out * k->channels, node = cut_range(k, range);
    memset(k->out + node * size, 0, (cut_range(k, range + 1) - node) * size * sizeof(REAL));
}

#define FOR_RANGES(b, range)                                                                      \
    Block b;                                                                                      \
    make_room(k, (REAL *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES), &b);                  \
    for (int64_t range;                                                                           \
         (range = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < k->n_ranges;)

/* Blocks of nearly equal size. */
#define FOR_BLOCKS(b, range)                                                                      \
    for (int64_t node = cut_range(k, range), e = k->offsets[node],                                \
                 last = k->offsets[cut_range(k, range + 1)];                                      \
         e < last && (take(k, &b, e, cut(last - e, BLOCK), node), 1);                             \
         node = b.nodes[b.n_runs - 1], e += b.count)

void mixed_product(const Work *k, int64_t *counter, void *memory)
{
    FOR_RANGES(b, range)
    {
        clear(k, range);
        FOR_BLOCKS(b, range)
        {
            map(k, &b, k->x, b.w);
            run(k, &b, PRODUCTS, WIDE * LANES);
        }
    }
}

/* by_h of the edges of the part; by_Y, by_x and by_A may be null. */
void mixed_gradient(const Work *k, int64_t *counter, void *memory)
{
    const int64_t size = k->dim_in * k->channels;
    FOR_RANGES(b, range)
    FOR_BLOCKS(b, range)
    {
        map(k, &b, k->x, b.w);
        memset(b.by_h, 0, b.count * size * sizeof(REAL));
        if (k->by_Y) {
            memset(b.by_Y, 0, BLOCK * k->dim_sh * sizeof(*b.by_Y));
            run(k, &b, ALL_GRADIENTS, k->channels);
            for (int64_t i = 0; i < b.count * k->dim_sh; i++)
                k->by_Y[b.first * k->dim_sh + i] = add_lanes(b.by_Y[i]);
        } else
            run(k, &b, GRADIENTS, WIDE * LANES);
        if (k->by_x)
            map_back(k, &b);
        if (k->by_A)
            add_outer(k, &b, k->x, b.by_w, range);
    }
}

/* How derivatives by g, h, x and A change along directions of h, Y and x; the last two may be
 * null. */
void mixed_tangents(const Work *k, int64_t *counter, void *memory)
{
    const int64_t size = k->dim_in * k->channels;
    FOR_RANGES(b, range)
    {
        clear(k, range);
        FOR_BLOCKS(b, range)
        {
            map(k, &b, k->x, b.w);
            map(k, &b, k->dx, b.dw);
            couple(k, &b, k->dY, b.dT);
            memset(b.by_h, 0, b.count * size * sizeof(REAL));
            run(k, &b, TANGENTS, LANES);
            if (k->by_x)
                map_back(k, &b);
            if (k->by_A) {
                add_outer(k, &b, k->x, b.by_w, range);
                add_outer(k, &b, k->dx, b.by_dw, range);
            }
        }
    }
}

/* Adds what edges of a part send to their senders' sums. `next` is where each sender's edges of the
 * part begin in `order` (null: as they stand), and is moved to the next part. */
void add_to_senders(const Work *k, REAL *sums, const int64_t *order, const int64_t *offsets,
                    int64_t *next, int64_t n_senders, int64_t *counter)
{
    const int64_t size = k->dim_in * k->channels;
    const int64_t first = k->offsets[k->begin], end = k->offsets[k->end];
    for (int64_t i; (i = __atomic_fetch_add(counter, 16, __ATOMIC_RELAXED)) < n_senders;)
        for (int64_t s = i; s < smaller(i + 16, n_senders); s++)
            for (; next[s] < offsets[s + 1]; next[s]++) {
                const int64_t e = order ? order[next[s]] : next[s];
                if (e >= end)
                    break;
                const REAL *row = k->by_h + (e - first) * size;
                for (int64_t c = 0; c < size; c += LANES)
                    *(loose *)(sums + s * size + c) += at(row + c);
            }
}
