/* Gated messages and their derivatives (see __init__.py), float or double (macro REAL).
 *
 * Features are the lanes of vectors; rows are filled up with zeros to whole vectors. BLOCK messages
 * go through together and stay in the second-level cache: the rows that they read are gathered,
 * products with the weights run over all of them with sums in registers, and what lies between runs
 * message by message. No pass keeps an intermediate; the next one calculates it again, unless there
 * is memory for what the derivative by tables and factors takes of the values.
 *
 * Derivatives by parameters are summed over ranges of messages, each with a row of its own, so that
 * the order in which all is added does not depend on the threads.
 *
 * Symbols are those of the formulas; a prime is `d_` here.
 */
#define COLUMNS (REGISTERS / 8) /* vectors of a tile of a product: ROWS times COLUMNS sums */
#define ROWS 6
#define BLOCK 64
#define AHEAD 4 /* messages, of rows that are prefetched */
#define LINE 64 /* bytes of a line of cache */
#define EPSILON ((REAL)1e-5) /* of the normalisation, that of torch */

/* A row that is null means: that of the message itself. Factors, the projection, the weight with its
 * bias, and the derivatives by parameters may be null. */
typedef struct {
    const REAL *tables[3], *factors, *projection, *gain, *shift, *weight, *bias;
    const REAL *gradient;                /* by the sums */
    const REAL *d_tables[3], *d_factors; /* directions */
    const int64_t *rows[3], *factor_row, *target;
    REAL *messages, *by_sum;     /* of each message: its value, and the derivative by `gradient` */
    REAL *kept;                  /* of each message: du with a hidden layer, then y; or null */
    REAL *by_h, *by_features, *by_factor;           /* of each message */
    REAL *by_projection, *by_gain, *by_shift, *by_weight, *by_bias; /* of each range */
    int64_t n_messages, n_ranges;
    int64_t width, hidden, n_features; /* D, H and K */
} Arrays;

/* Vectors of a half row: D or H of them, whole, and n where h is summed, whose width is N; those of
 * a row of K features. */
typedef struct {
    int64_t d, h, n, k, N;
    vec *gain, *shift, *bias, *weight, *transposed;     /* (2, d), weight (2, H, d), (2, D, h) */
    vec *by_gain, *by_shift, *by_bias, *by_weight;      /* sums of one range, of those shapes */
    vec *projection, *backward, *by_projection;         /* (2, K, n), (2, N, k), (2, K, n) */
    vec *u, *du, *d_u, *curve;                          /* (2, BLOCK, h) */
    vec *y, *g, *d_y, *a;                               /* (2, BLOCK, d) */
    vec *x, *d_x, *sum, *d_sum;                         /* (BLOCK, k), (2, BLOCK, n) */
} Scratch;

enum { VALUE, FIRST, SECOND };

static int64_t scratch(const Arrays *A, vec *memory, Scratch *s)
{
    const int64_t d = (A->width + LANES - 1) / LANES, h = (A->hidden + LANES - 1) / LANES;
    vec *next = memory;
    const int64_t K = A->n_features, k = (K + LANES - 1) / LANES;
    const int64_t N = A->hidden ? A->hidden : A->width, n = A->hidden ? h : d;
    s->d = d, s->h = h, s->n = n, s->k = k, s->N = N;
    s->gain = next, next += 2 * d;
    s->shift = next, next += 2 * d;
    s->bias = next, next += 2 * d;
    s->weight = next, next += 2 * d * A->hidden;
    s->transposed = next, next += 2 * h * A->width;
    s->projection = next, next += 2 * n * K;
    s->backward = next, next += 2 * k * N;
    s->by_gain = next, next += 2 * d;
    s->by_shift = next, next += 2 * d;
    s->by_bias = next, next += 2 * d;
    s->by_weight = next, next += 2 * d * A->hidden;
    s->by_projection = next, next += 2 * n * K;
    s->u = next, next += 2 * BLOCK * h;
    s->du = next, next += 2 * BLOCK * h;
    s->d_u = next, next += 2 * BLOCK * h;
    s->curve = next, next += 2 * BLOCK * h;
    s->y = next, next += 2 * BLOCK * (d > h ? d : h); /* these take rows of h in the end */
    s->d_y = next, next += 2 * BLOCK * (d > h ? d : h);
    s->g = next, next += 2 * BLOCK * d;
    s->a = next, next += 2 * BLOCK * d;
    if (!K)
        return next - memory;
    s->x = next, next += BLOCK * k;
    s->d_x = next, next += BLOCK * k;
    s->sum = next, next += 2 * BLOCK * n;
    s->d_sum = next, next += 2 * BLOCK * n;
    return next - memory;
}

int64_t memory_size(const Arrays *A)
{
    Scratch s;
    return (scratch(A, 0, &s) + 1) * BYTES;
}

/* ---- products of matrices ---- */

/* out[r] += sum_k a[r * row + k * step] b[k], or = without `add`, for R rows of C vectors. */
INLINE void tile(const int R, const int C, const REAL *a, int64_t row, int64_t step, int64_t depth,
                 const vec *b, int64_t stride, vec *out, int add)
{
    vec sums[ROWS][COLUMNS];
    UNROLLED
    for (int r = 0; r < R; r++) {
        UNROLLED
        for (int c = 0; c < C; c++)
            sums[r][c] = (vec){0};
    }
    for (int64_t k = 0; k < depth; k++, a += step, b += stride) {
        vec right[COLUMNS];
        UNROLLED
        for (int c = 0; c < C; c++)
            right[c] = b[c];
        UNROLLED
        for (int r = 0; r < R; r++) {
            UNROLLED
            for (int c = 0; c < C; c++)
                sums[r][c] += a[r * row] * right[c];
        }
    }
    UNROLLED
    for (int r = 0; r < R; r++, out += stride) {
        UNROLLED
        for (int c = 0; c < C; c++)
            out[c] = add ? out[c] + sums[r][c] : sums[r][c];
    }
}

typedef void Tile(const REAL *, int64_t, int64_t, int64_t, const vec *, int64_t, vec *, int);

#define INSTANCE(R, C)                                                                            \
    static void tile_##R##_##C(const REAL *a, int64_t row, int64_t step, int64_t depth,           \
                               const vec *b, int64_t stride, vec *out, int add)                   \
    {                                                                                             \
        tile(R, C, a, row, step, depth, b, stride, out, add);                                     \
    }
#define EACH_ROW(F, C) F(1, C) F(2, C) F(3, C) F(4, C) F(5, C) F(6, C)
#define NAME(R, C) tile_##R##_##C,
EACH_ROW(INSTANCE, 1)
EACH_ROW(INSTANCE, 2)
#if COLUMNS == 4
EACH_ROW(INSTANCE, 3)
EACH_ROW(INSTANCE, 4)
static Tile *const tiles[COLUMNS][ROWS] = {
    {EACH_ROW(NAME, 1)}, {EACH_ROW(NAME, 2)}, {EACH_ROW(NAME, 3)}, {EACH_ROW(NAME, 4)}};
#else
static Tile *const tiles[COLUMNS][ROWS] = {{EACH_ROW(NAME, 1)}, {EACH_ROW(NAME, 2)}};
#endif

/* Size of the next of the nearly equal tiles, of at most `most` rows, into which `left` are cut. */
INLINE int64_t size_of(int64_t left, int64_t most)
{
    const int64_t n = (left + most - 1) / most;
    return (left + n - 1) / n;
}

/* `tile` for n rows of `stride` vectors. */
static void multiply(const REAL *a, int64_t row, int64_t step, int64_t n, int64_t depth,
                     const vec *b, int64_t stride, vec *out, int add)
{
    for (int64_t c = 0, columns; c < stride; c += columns) {
        columns = size_of(stride - c, COLUMNS);
        for (int64_t r = 0, rows; r < n; r += rows) {
            rows = size_of(n - r, ROWS);
            tiles[columns - 1][rows - 1](a + r * row, row, step, depth, b + c, stride,
                                         out + r * stride + c, add);
        }
    }
}

/* out = x W of both halves, x (2, BLOCK, h), out (2, BLOCK, d). */
static void through_weight(const Arrays *A, const Scratch *s, const vec *x, vec *out, int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)(x + half * BLOCK * s->h), s->h * LANES, 1, count, A->hidden,
                 s->weight + half * A->hidden * s->d, s->d, out + half * BLOCK * s->d, 0);
}

/* out = g Wᵀ of both halves, g (2, BLOCK, d), out (2, BLOCK, h). */
static void back_through_weight(const Arrays *A, const Scratch *s, const vec *g, vec *out,
                                int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)(g + half * BLOCK * s->d), s->d * LANES, 1, count, A->width,
                 s->transposed + half * A->width * s->h, s->h, out + half * BLOCK * s->h, 0);
}

/* by_weight += xᵀ g */
static void add_weight(const Arrays *A, const Scratch *s, const vec *x, const vec *g, int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)(x + half * BLOCK * s->h), 1, s->h * LANES, A->hidden, count,
                 g + half * BLOCK * s->d, s->d, s->by_weight + half * A->hidden * s->d, 1);
}

/* out = x P of both halves, x (BLOCK, k), out (2, BLOCK, n). */
static void project(const Arrays *A, const Scratch *s, const vec *x, vec *out, int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)x, s->k * LANES, 1, count, A->n_features,
                 s->projection + half * A->n_features * s->n, s->n, out + half * BLOCK * s->n, 0);
}

/* out = by_h Pᵀ, by_h (2, BLOCK, n), out (BLOCK, k). */
static void back_through_projection(const Scratch *s, const vec *by_h, vec *out, int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)(by_h + half * BLOCK * s->n), s->n * LANES, 1, count, s->N,
                 s->backward + half * s->N * s->k, s->k, out, half);
}

/* by_projection += xᵀ by_h */
static void add_projection(const Arrays *A, const Scratch *s, const vec *x, const vec *by_h,
                           int64_t count)
{
    for (int half = 0; half < 2; half++)
        multiply((const REAL *)x, 1, s->k * LANES, A->n_features, count, by_h + half * BLOCK * s->n,
                 s->n, s->by_projection + half * A->n_features * s->n, 1);
}

/* ---- the messages of a block ---- */

INLINE const REAL *row_of(const REAL *table, const int64_t *rows, int64_t e, int64_t size)
{
    return table + (rows ? rows[e] : e) * size;
}

/* Prefetch the rows of n tables that message e reads. */
INLINE void fetch(const REAL *const *tables, const int64_t *const *rows, int n, int64_t e,
                  int64_t size)
{
    for (int t = 0; t < n; t++) {
        const char *row = (const char *)row_of(tables[t], rows[t], e, size);
        for (int64_t i = 0; i < size * (int64_t)sizeof(REAL); i += LINE)
            __builtin_prefetch(row + i);
    }
}

/* Rows of the last table, filled up with zeros to whole vectors. */
static void gather_features(const Arrays *A, const Scratch *s, const REAL *table, int64_t first,
                            int64_t count, vec *x)
{
    const int64_t K = A->n_features;
    for (int64_t i = 0; i < count; i++) {
        const REAL *row = row_of(table, A->rows[2], first + i, K);
        for (int64_t v = 0; v < s->k; v++)
            x[i * s->k + v] = load(row + v * LANES, K - v * LANES);
    }
}

/* u = h s, and for derivatives du; of a direction u' and h' d²u. Without a hidden layer y and y'. */
INLINE void gather(const int KIND, const Arrays *A, const Scratch *s, int64_t first, int64_t count)
{
    const int64_t H = s->N, n = s->n;
    const int n_tables = A->n_features ? 2 : 3;
    for (int64_t i = 0; i < count; i++) {
        if (first + i + AHEAD < A->n_messages) {
            fetch(A->tables, A->rows, n_tables, first + i + AHEAD, 2 * H);
            if (KIND == SECOND)
                fetch(A->d_tables, A->rows, n_tables, first + i + AHEAD, 2 * H);
        }
        const REAL *x[3], *d_x[3];
        for (int t = 0; t < n_tables; t++) {
            x[t] = row_of(A->tables[t], A->rows[t], first + i, 2 * H);
            if (KIND == SECOND)
                d_x[t] = row_of(A->d_tables[t], A->rows[t], first + i, 2 * H);
        }
        for (int half = 0; half < 2; half++)
            for (int64_t v = 0; v < n; v++) {
                const int64_t c = half * H + v * LANES, left = H - v * LANES;
                const int64_t o = (half * BLOCK + i) * n + v;
                const vec last = n_tables == 3 ? load(x[2] + c, left) : s->sum[o];
                const vec h = load(x[0] + c, left) + load(x[1] + c, left) + last;
                vec d_h;
                if (KIND == SECOND) {
                    const vec d_last = n_tables == 3 ? load(d_x[2] + c, left) : s->d_sum[o];
                    d_h = load(d_x[0] + c, left) + load(d_x[1] + c, left) + d_last;
                }
                if (!A->hidden) {
                    s->y[o] = h;
                    if (KIND == SECOND)
                        s->d_y[o] = d_h;
                    continue;
                }
                const vec sig = sigmoid(h), u = h * sig, rest = sig - u * sig, du = rest + u;
                s->u[o] = u;
                if (KIND != VALUE || A->kept)
                    s->du[o] = du;
                if (KIND == SECOND) {
                    s->d_u[o] = d_h * du;
                    s->curve[o] = d_h * ((1 - sig) * (du + rest));
                }
            }
    }
}

INLINE void move(int back, REAL *kept, vec *row, int64_t n, int64_t width)
{
    for (int64_t v = 0; v < n; v++)
        if (back)
            row[v] = load(kept + v * LANES, width - v * LANES);
        else
            store(kept + v * LANES, row[v], width - v * LANES);
}

/* Keep du and y of a block, or get them back. */
static void move_kept(int back, const Arrays *A, const Scratch *s, int64_t first, int64_t count)
{
    const int64_t H = A->hidden, D = A->width;
    for (int64_t i = 0; i < count; i++)
        for (int half = 0; half < 2; half++) {
            REAL *row = A->kept + (first + i) * 2 * (H + D);
            move(back, row + half * H, s->du + (half * BLOCK + i) * s->h, s->h, H);
            move(back, row + 2 * H + half * D, s->y + (half * BLOCK + i) * s->d, s->d, D);
        }
}

/* r = (mean(y²) + ε)^(-½), after y has become y + b */
INLINE REAL normalise(const int V, const Arrays *A, const vec *bias, vec *y)
{
    vec sum = {0};
    UNROLLED
    for (int64_t v = 0; v < V; v++) {
        y[v] += bias[v];
        sum += y[v] * y[v];
    }
    const REAL square = add_lanes(sum) / A->width + EPSILON;
    return 1 / (sizeof(REAL) == 4 ? (REAL)__builtin_sqrtf(square) : (REAL)__builtin_sqrt(square));
}

/* From y of message e, the i-th of the block, what VALUE or FIRST is to give; y becomes g_y. */
INLINE void message(const int KIND, const int V, const Arrays *A, const Scratch *s, int64_t e,
                    int64_t i)
{
    const int64_t D = A->width;
    vec *core = s->y + i * V, *gate = s->y + (BLOCK + i) * V;
    const REAL r0 = normalise(V, A, s->bias, core), r1 = normalise(V, A, s->bias + V, gate);
    const REAL *g = KIND == FIRST ? row_of(A->gradient, A->target, e, D) : 0;
    const REAL *f = A->factors ? row_of(A->factors, A->factor_row, e, D) : 0;
    vec *g_core = s->g + i * V, *g_gate = s->g + (BLOCK + i) * V, k0 = {0}, k1 = {0};
    UNROLLED
    for (int64_t v = 0; v < V; v++) {
        const int64_t c = v * LANES, left = D - c;
        const vec n0 = core[v] * r0, n1 = gate[v] * r1;
        const vec z = s->gain[v] * n0 + s->shift[v];
        const vec q0 = sigmoid(z), q1 = sigmoid(s->gain[V + v] * n1 + s->shift[V + v]);
        const vec p = z * q0, m = p * q1, factor = f ? load(f + c, left) : (vec){0} + 1;
        if (KIND == VALUE) {
            store(A->messages + e * D + c, f ? m * factor : m, left);
            continue;
        }
        vec g_m = load(g + c, left);
        if (f) {
            store(A->by_factor + e * D + c, g_m * m, left);
            g_m *= factor;
        }
        const vec g_z0 = g_m * q1 * (q0 + p - p * q0), g_z1 = g_m * p * (q1 - q1 * q1);
        if (A->by_gain) {
            s->by_gain[v] += g_z0 * n0, s->by_gain[V + v] += g_z1 * n1;
            s->by_shift[v] += g_z0, s->by_shift[V + v] += g_z1;
        }
        core[v] = n0, gate[v] = n1;
        g_core[v] = g_z0 * s->gain[v], g_gate[v] = g_z1 * s->gain[V + v];
        k0 += g_core[v] * n0, k1 += g_gate[v] * n1;
    }
    if (KIND == VALUE)
        return;
    const REAL mean0 = add_lanes(k0) / D, mean1 = add_lanes(k1) / D;
    UNROLLED
    for (int64_t v = 0; v < V; v++) {
        g_core[v] = r0 * (g_core[v] - core[v] * mean0);
        g_gate[v] = r1 * (g_gate[v] - gate[v] * mean1);
        if (A->by_gain)
            s->by_bias[v] += g_core[v], s->by_bias[V + v] += g_gate[v];
    }
}

/* From y and y' of message e, what SECOND is to give; g becomes g_y and a becomes a_y. */
INLINE void message_second(const int V, const Arrays *A, const Scratch *s, int64_t e, int64_t i)
{
    const int64_t D = A->width;
    vec *y[2], *d_y[2], *g_n[2], *x[2];
    REAL r[2], c[2], k[2], mean[2];
    vec gn_n[2] = {{0}}, gn_dn[2] = {{0}}, x_n[2] = {{0}};
    for (int h = 0; h < 2; h++) {
        const int64_t o = (h * BLOCK + i) * V;
        y[h] = s->y + o, d_y[h] = s->d_y + o, g_n[h] = s->g + o, x[h] = s->a + o;
        r[h] = normalise(V, A, s->bias + h * V, y[h]);
        vec sum = {0};
        UNROLLED
        for (int64_t v = 0; v < V; v++) {
            y[h][v] *= r[h];
            sum += y[h][v] * d_y[h][v];
        }
        c[h] = add_lanes(sum) / D;
    }
    const REAL *gradient = row_of(A->gradient, A->target, e, D);
    const REAL *f = A->factors ? row_of(A->factors, A->factor_row, e, D) : 0;
    const REAL *d_f = f ? row_of(A->d_factors, A->factor_row, e, D) : 0;
    UNROLLED
    for (int64_t v = 0; v < V; v++) {
        const int64_t o = v * LANES, left = D - o;
        const vec n0 = y[0][v], n1 = y[1][v], gain0 = s->gain[v], gain1 = s->gain[V + v];
        const vec d_n0 = r[0] * (d_y[0][v] - n0 * c[0]), d_n1 = r[1] * (d_y[1][v] - n1 * c[1]);
        const vec d_z0 = gain0 * d_n0, d_z1 = gain1 * d_n1, z = gain0 * n0 + s->shift[v];
        const vec q0 = sigmoid(z), q1 = sigmoid(gain1 * n1 + s->shift[V + v]), p = z * q0;
        const vec rest = q0 - p * q0, dp = rest + p, dq = q1 - q1 * q1;
        const vec d_p = d_z0 * dp, d_q = d_z1 * dq, d_m = d_p * q1 + p * d_q;
        vec g_m = load(gradient + o, left), d_g_m = {0};
        if (f) {
            const vec factor = load(f + o, left), d_factor = load(d_f + o, left);
            store(A->by_factor + e * D + o, d_m * g_m, left);
            store(A->by_sum + e * D + o, d_m * factor + p * q1 * d_factor, left);
            d_g_m = g_m * d_factor;
            g_m *= factor;
        } else
            store(A->by_sum + e * D + o, d_m, left);
        const vec g_z0 = g_m * q1 * dp, g_z1 = g_m * p * dq;
        const vec a_z0 = g_m * q1 * ((1 - q0) * (dp + rest)) * d_z0 + dp * (g_m * d_q + d_g_m * q1);
        const vec a_z1 = dq * (g_m * (d_p + p * ((1 - q1 - q1) * d_z1)) + d_g_m * p);
        s->by_gain[v] += g_z0 * d_n0 + a_z0 * n0, s->by_gain[V + v] += g_z1 * d_n1 + a_z1 * n1;
        s->by_shift[v] += a_z0, s->by_shift[V + v] += a_z1;
        g_n[0][v] = gain0 * g_z0, g_n[1][v] = gain1 * g_z1;
        x[0][v] = gain0 * a_z0, x[1][v] = gain1 * a_z1;
        gn_n[0] += g_n[0][v] * n0, gn_n[1] += g_n[1][v] * n1;
        gn_dn[0] += g_n[0][v] * d_n0, gn_dn[1] += g_n[1][v] * d_n1;
        x_n[0] += x[0][v] * n0, x_n[1] += x[1][v] * n1;
    }
    for (int h = 0; h < 2; h++) {
        k[h] = add_lanes(gn_n[h]) / D;
        /* x is yet to change by -r (c g_n + k y'), and its mean with n by -2 r c k */
        mean[h] = (add_lanes(x_n[h]) + add_lanes(gn_dn[h])) / D - 2 * r[h] * c[h] * k[h];
        UNROLLED
        for (int64_t v = 0; v < V; v++) {
            const vec n = y[h][v], g = g_n[h][v];
            const vec moved = x[h][v] - r[h] * (c[h] * g + k[h] * d_y[h][v]);
            g_n[h][v] = r[h] * (g - n * k[h]);
            x[h][v] = r[h] * (moved - n * mean[h]);
            s->by_bias[h * V + v] += x[h][v];
        }
    }
}

/* by_h = g du, with `curve` + g_2 curve; with a projection kept, in place of h and h', with g_2 du */
static void store_rows(const Arrays *A, const Scratch *s, const vec *g, const vec *du,
                       const vec *g_2, const vec *curve, int64_t first, int64_t count)
{
    const int64_t H = s->N, vectors = s->n;
    for (int64_t i = 0; i < count; i++)
        for (int half = 0; half < 2; half++)
            for (int64_t v = 0; v < vectors; v++) {
                const int64_t o = (half * BLOCK + i) * vectors + v;
                vec by_h = du ? g[o] * du[o] : g[o];
                if (curve)
                    by_h += g_2[o] * curve[o];
                if (A->n_features) {
                    s->sum[o] = by_h;
                    if (g_2)
                        s->d_sum[o] = du ? g_2[o] * du[o] : g_2[o];
                }
                store(A->by_h + ((first + i) * 2 + half) * H + v * LANES, by_h, H - v * LANES);
            }
}

INLINE void messages(const int KIND, const int V, const Arrays *A, const Scratch *s, int64_t first,
                     int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (KIND == SECOND)
            message_second(V, A, s, first + i, i);
        else
            message(KIND, V, A, s, first + i, i);
}

/* The features' derivatives of a block, from those by h in place of h. */
INLINE void differentiate_projection(const int KIND, const Arrays *A, const Scratch *s,
                                     int64_t first, int64_t count)
{
    const int64_t K = A->n_features;
    if (A->by_projection) {
        add_projection(A, s, s->x, s->sum, count);
        if (KIND == SECOND)
            add_projection(A, s, s->d_x, s->d_sum, count);
    }
    back_through_projection(s, s->sum, s->x, count);
    for (int64_t i = 0; i < count; i++)
        for (int64_t v = 0; v < s->k; v++)
            store(A->by_features + (first + i) * K + v * LANES, s->x[i * s->k + v], K - v * LANES);
}

/* From tables, features and directions to u, du, y and their like. */
INLINE void go_to_y(const int KIND, const Arrays *A, const Scratch *s, int64_t first, int64_t count)
{
    if (A->n_features) {
        gather_features(A, s, A->tables[2], first, count, s->x);
        project(A, s, s->x, s->sum, count);
        if (KIND == SECOND) {
            gather_features(A, s, A->d_tables[2], first, count, s->d_x);
            project(A, s, s->d_x, s->d_sum, count);
        }
    }
    gather(KIND, A, s, first, count);
    if (A->hidden)
        through_weight(A, s, s->u, s->y, count);
    if (A->hidden && KIND == SECOND)
        through_weight(A, s, s->d_u, s->d_y, count);
}

INLINE void block(const int KIND, const Arrays *A, const Scratch *s, int64_t first, int64_t count)
{
    if (KIND == FIRST && A->kept)
        move_kept(1, A, s, first, count);
    else
        go_to_y(KIND, A, s, first, count);
    if (KIND == VALUE && A->kept)
        move_kept(0, A, s, first, count);
    switch (s->d) { /* common widths, for which loops over a row are unrolled */
    case 1:
        messages(KIND, 1, A, s, first, count);
        break;
    case 4:
        messages(KIND, 4, A, s, first, count);
        break;
    case 8:
        messages(KIND, 8, A, s, first, count);
        break;
    default:
        messages(KIND, s->d, A, s, first, count);
    }
    if (KIND == VALUE)
        return;
    const vec *g = KIND == SECOND ? s->a : s->g;
    if (!A->hidden)
        store_rows(A, s, g, 0, KIND == SECOND ? s->g : 0, 0, first, count);
    else {
        if (A->by_weight) {
            add_weight(A, s, s->u, g, count);
            if (KIND == SECOND)
                add_weight(A, s, s->d_u, s->g, count);
        }
        back_through_weight(A, s, g, s->y, count);
        if (KIND == SECOND) {
            back_through_weight(A, s, s->g, s->d_y, count);
            store_rows(A, s, s->y, s->du, s->d_y, s->curve, first, count);
        } else
            store_rows(A, s, s->y, s->du, 0, 0, first, count);
    }
    if (A->n_features)
        differentiate_projection(KIND, A, s, first, count);
}

/* ---- parameters, and their derivatives by range ---- */

static void pack(const REAL *from, int64_t n_rows, int64_t width, int64_t stride, vec *to)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t v = 0; v < stride; v++)
            to[r * stride + v] = load(from + r * width + v * LANES, width - v * LANES);
}

static void unpack(const vec *from, int64_t n_rows, int64_t width, int64_t stride, REAL *to)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t v = 0; v < stride; v++)
            store(to + r * width + v * LANES, from[r * stride + v], width - v * LANES);
}

/* from (2, n_rows, width), to (2, width, stride) vectors */
static void transpose(const REAL *from, int64_t n_rows, int64_t width, int64_t stride, vec *to)
{
    memset(to, 0, 2 * width * stride * BYTES);
    for (int64_t half = 0; half < 2; half++)
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t c = 0; c < width; c++)
                ((REAL *)(to + (half * width + c) * stride))[r] =
                    from[(half * n_rows + r) * width + c];
}

static void pack_parameters(const int KIND, const Arrays *A, const Scratch *s)
{
    const int64_t D = A->width, H = A->hidden;
    pack(A->gain, 2, D, s->d, s->gain);
    pack(A->shift, 2, D, s->d, s->shift);
    if (A->n_features) {
        pack(A->projection, 2 * A->n_features, s->N, s->n, s->projection);
        if (KIND != VALUE)
            transpose(A->projection, A->n_features, s->N, s->k, s->backward);
    }
    if (!H) {
        memset(s->bias, 0, 2 * s->d * BYTES);
        return;
    }
    pack(A->bias, 2, D, s->d, s->bias);
    pack(A->weight, 2 * H, D, s->d, s->weight);
    if (KIND != VALUE)
        transpose(A->weight, H, D, s->h, s->transposed);
}

static void store_sums(const Arrays *A, const Scratch *s, int64_t range)
{
    const int64_t D = A->width, H = A->hidden;
    unpack(s->by_gain, 2, D, s->d, A->by_gain + range * 2 * D);
    unpack(s->by_shift, 2, D, s->d, A->by_shift + range * 2 * D);
    if (A->n_features)
        unpack(s->by_projection, 2 * A->n_features, s->N, s->n,
               A->by_projection + range * 2 * A->n_features * s->N);
    if (H) {
        unpack(s->by_bias, 2, D, s->d, A->by_bias + range * 2 * D);
        unpack(s->by_weight, 2 * H, D, s->d, A->by_weight + range * 2 * H * D);
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next range from the counter
 * that they share. */

INLINE void ranges(const int KIND, const Arrays *A, int64_t *counter, void *memory)
{
    Scratch s;
    scratch(A, (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES), &s);
    pack_parameters(KIND, A, &s);
    for (int64_t n; (n = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < A->n_ranges;) {
        const int64_t end = (n + 1) * A->n_messages / A->n_ranges;
        if (KIND != VALUE)
            memset(s.by_gain, 0, (s.u - s.by_gain) * BYTES);
        for (int64_t first = n * A->n_messages / A->n_ranges; first < end; first += BLOCK)
            block(KIND, A, &s, first, smaller(BLOCK, end - first));
        if (KIND != VALUE && A->by_gain)
            store_sums(A, &s, n);
    }
}

#define ROUTINE(NAME, KIND)                                                                       \
    void NAME(const Arrays *A, int64_t *counter, void *memory)                                    \
    {                                                                                             \
        ranges(KIND, A, counter, memory);                                                         \
    }
ROUTINE(values, VALUE)
ROUTINE(gradient, FIRST)
ROUTINE(second, SECOND)
