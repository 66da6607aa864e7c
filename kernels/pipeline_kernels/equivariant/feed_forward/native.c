/* A feed-forward layer after a norm, and their derivatives (see __init__.py), float or double (macro
 * REAL).
 *
 * TILE rows go through together and stay in the second-level cache: components of a degree of all of
 * them are the rows of one product. No pass keeps an intermediate; the derivatives calculate all
 * again. Those by parameters are summed over ranges of rows, each with sums of its own, so that the
 * order in which all is added does not depend on the threads.
 */
#define TILE 12 /* a multiple of the rows of a tile of a product */
#define EPSILON ((REAL)1e-5)

/* Parameters lie one after the other, as their derivatives do. */
typedef struct {
    REAL *gain, *shift, *scales;              /* of the norm: (n), (n), (lmax, C) */
    REAL *up, *up_bias, *gates, *gates_bias;  /* (lmax + 1, C, H), (H), (n, G), (G) */
    REAL *down, *down_bias;                   /* (lmax + 1, C, H), transposed; (C) */
} Parameters;

typedef struct {
    const REAL *x, *g, *parameters, *by_parameters;
    const REAL *up, *gates, *down; /* transposed: (lmax + 1, H, C), (G, n), (lmax + 1, H, C) */
    REAL *out;
    int64_t n_rows, n_ranges, n_parameters;
    int64_t lmax, channels, hidden;
    int64_t natural, hidden_natural; /* the first channels, of true scalars in degree 0 */
} Work;

/* Of a tile, by degree, row and order; factors by row and degree. */
typedef struct {
    REAL *z, *y, *h, *by_y, *g, *by_z, *factors, *by_factors;
} Room;

static int64_t count_components(const Work *w) { return (w->lmax + 1) * (w->lmax + 1); }

static int64_t count_gates(const Work *w)
{
    return (w->lmax + 1) * w->hidden - w->hidden_natural;
}

static Parameters split(const Work *w, const REAL *from)
{
    const int64_t n = w->natural, C = w->channels, H = w->hidden, G = count_gates(w);
    Parameters p;
    p.gain = (REAL *)from;
    p.shift = p.gain + n;
    p.scales = p.shift + n;
    p.up = p.scales + w->lmax * C;
    p.up_bias = p.up + (w->lmax + 1) * C * H;
    p.gates = p.up_bias + H;
    p.gates_bias = p.gates + n * G;
    p.down = p.gates_bias + G;
    p.down_bias = p.down + (w->lmax + 1) * C * H;
    return p;
}

static int64_t make_room(const Work *w, REAL *memory, Room *room)
{
    const int64_t rows = TILE * count_components(w), few = TILE * (w->lmax + 1) * w->hidden;
    room->z = memory;
    room->y = room->z + rows * w->channels;
    room->h = room->y + rows * w->hidden;
    room->by_y = room->h + rows * w->hidden;
    room->g = room->by_y + rows * w->hidden;
    room->by_z = room->g + rows * w->channels;
    room->factors = room->by_z + rows * w->channels;
    room->by_factors = room->factors + few;
    return room->by_factors + few - memory;
}

int64_t memory_size(const Work *w)
{
    Room room;
    return make_room(w, 0, &room);
}

/* ---- passes over rows of channels ---- */

#define EACH_VECTOR(c, n, width)                                                                  \
    for (int64_t c = 0, n; c < (width); c += LANES)                                               \
        if ((n = smaller(LANES, (width) - c)), 1)

/* Move row i of a tile, of all components, from or to the place of each component. */
#define EACH_COMPONENT(l, k, j, i, count)                                                         \
    for (int64_t l = 0; l <= w->lmax; l++)                                                        \
        for (int64_t k = l * l, j = (count) * l * l + (i) * (2 * l + 1); k < (l + 1) * (l + 1);   \
             k++, j++)

/* ---- the norm of one row ---- */

typedef struct {
    REAL mean, scale, factor; /* of true scalars: mean, 1 / deviation; of all others */
} Norm;

INLINE REAL root(REAL square)
{
    return sizeof(REAL) == 4 ? (REAL)__builtin_sqrtf(square) : (REAL)__builtin_sqrt(square);
}

static Norm measure(const Work *w, const REAL *x)
{
    REAL mean = 0, square = 0, total = 0;
    for (int64_t c = 0; c < w->natural; c++)
        mean += x[c];
    mean /= w->natural;
    for (int64_t c = 0; c < w->natural; c++)
        square += (x[c] - mean) * (x[c] - mean);
    for (int64_t l = 1; l <= w->lmax; l++) {
        loose sum = {0};
        for (int64_t k = l * l; k < (l + 1) * (l + 1); k++)
            EACH_VECTOR(c, n, w->channels)
            {
                const loose v = load_channels(x + k * w->channels + c, n);
                sum += v * v;
            }
        total += add_lanes(sum) / (2 * l + 1);
    }
    total /= w->lmax * w->channels;
    return (Norm){mean, 1 / root(square / w->natural + EPSILON), 1 / root(total + EPSILON)};
}

/* z of row i of a tile of `count`. */
static void normalise(const Work *w, const Parameters *p, const REAL *x, REAL *z, int64_t i,
                      int64_t count)
{
    const Norm norm = measure(w, x);
    const int64_t C = w->channels;
    for (int64_t c = 0; c < C; c++)
        z[i * C + c] = c < w->natural
                           ? (x[c] - norm.mean) * norm.scale * p->gain[c] + p->shift[c]
                           : x[c] * norm.factor;
    EACH_COMPONENT(l, k, j, i, count)
    if (l > 0)
        EACH_VECTOR(c, n, C)
        {
            const loose v = load_channels(x + k * C + c, n) * norm.factor;
            store_channels(z + j * C + c, v * load_channels(p->scales + (l - 1) * C + c, n), n);
        }
}

/* out += derivatives by x of row i, from those by z; adds to those by parameters. */
static void differentiate_norm(const Work *w, const Parameters *p, const Parameters *by,
                               const REAL *x, const REAL *g, REAL *out, int64_t i, int64_t count)
{
    const Norm norm = measure(w, x);
    const int64_t C = w->channels, n_natural = w->natural;
    const REAL *g_0 = g + i * C;
    REAL mean = 0, with = 0, total = 0;
    for (int64_t c = 0; c < n_natural; c++) {
        const REAL unit = (x[c] - norm.mean) * norm.scale;
        by->gain[c] += g_0[c] * unit;
        by->shift[c] += g_0[c];
        mean += g_0[c] * p->gain[c];
        with += g_0[c] * p->gain[c] * unit;
    }
    for (int64_t c = 0; c < n_natural; c++) {
        const REAL unit = (x[c] - norm.mean) * norm.scale;
        out[c] += norm.scale * (g_0[c] * p->gain[c] - (mean + unit * with) / n_natural);
    }
    for (int64_t c = n_natural; c < C; c++) {
        out[c] += norm.factor * g_0[c];
        total += g_0[c] * x[c];
    }
    loose sum = {0};
    EACH_COMPONENT(l, k, j, i, count)
    if (l > 0)
        EACH_VECTOR(c, n, C)
        {
            const loose gx = load_channels(g + j * C + c, n) * load_channels(x + k * C + c, n);
            REAL *const by_scale = by->scales + (l - 1) * C + c;
            store_channels(by_scale, load_channels(by_scale, n) + gx * norm.factor, n);
            sum += gx * load_channels(p->scales + (l - 1) * C + c, n);
        }
    total = (total + add_lanes(sum)) * norm.factor * norm.factor / (w->lmax * C);
    EACH_COMPONENT(l, k, j, i, count)
    if (l > 0)
        EACH_VECTOR(c, n, C)
        {
            const loose u = load_channels(g + j * C + c, n) *
                            load_channels(p->scales + (l - 1) * C + c, n);
            const loose own = load_channels(x + k * C + c, n) * (total / (2 * l + 1));
            store_channels(out + k * C + c,
                           load_channels(out + k * C + c, n) + norm.factor * (u - own), n);
        }
}

/* ---- a tile ---- */

/* out = start + a b for rows of a degree, or all degrees of b and rows that follow each other. */
static void map(const REAL *a, int64_t a_row, const REAL *b, const REAL *start, int64_t start_row,
                REAL *out, int64_t out_row, int64_t rows, int64_t depth, int64_t width)
{
    const Product p = {.a = a, .b = b, .start = start, .out = out, .rows = rows, .depth = depth,
                       .width = width, .a_row = a_row, .a_step = 1, .b_row = width,
                       .start_row = start_row, .out_row = out_row};
    multiply(&p);
}

/* out += a^T b, of `rows` columns of a; out has rows side by side. */
static void add(const REAL *a, int64_t a_row, const REAL *b, int64_t b_row, REAL *out,
                int64_t rows, int64_t depth, int64_t width)
{
    const Product p = {.a = a, .b = b, .start = out, .out = out, .rows = rows, .depth = depth,
                       .width = width, .a_row = 1, .a_step = a_row, .b_row = b_row,
                       .start_row = width, .out_row = width};
    multiply(&p);
}

/* z, y and factors of a tile, and h = factors y. */
static void go_up(const Work *w, const Parameters *p, const Room *room, int64_t first,
                  int64_t count)
{
    const int64_t C = w->channels, H = w->hidden, N = w->hidden_natural;
    const int64_t F = (w->lmax + 1) * H, size = count_components(w) * C;
    for (int64_t i = 0; i < count; i++)
        normalise(w, p, w->x + (first + i) * size, room->z, i, count);
    for (int64_t l = 0; l <= w->lmax; l++)
        map(room->z + count * l * l * C, C, p->up + l * C * H, l ? 0 : p->up_bias, 0,
            room->y + count * l * l * H, H, count * (2 * l + 1), C, H);
    map(room->z, C, p->gates, p->gates_bias, 0, room->factors + N, F, count, w->natural, F - N);
    for (int64_t i = 0; i < count; i++)
        memcpy(room->factors + i * F, room->y + i * H, N * sizeof(REAL));
    EACH_VECTOR(c, n, count * F)
    store(room->factors + c, sigmoid(load(room->factors + c, n)), n);
    for (int64_t i = 0; i < count; i++)
        EACH_COMPONENT(l, k, j, i, count)
    EACH_VECTOR(c, n, H)
    store_channels(room->h + j * H + c,
                   load_channels(room->y + j * H + c, n) *
                       load_channels(room->factors + i * F + l * H + c, n),
                   n);
}

static void evaluate(const Work *w, const Parameters *p, const Room *room, int64_t first,
                     int64_t count)
{
    const int64_t C = w->channels, H = w->hidden, size = count_components(w) * C;
    go_up(w, p, room, first, count);
    for (int64_t l = 0; l <= w->lmax; l++)
        map(room->h + count * l * l * H, H, w->down + l * H * C, l ? 0 : p->down_bias, 0,
            room->z + count * l * l * C, C, count * (2 * l + 1), H, C);
    for (int64_t i = 0; i < count; i++) {
        const REAL *x = w->x + (first + i) * size;
        REAL *out = w->out + (first + i) * size;
        EACH_COMPONENT(l, k, j, i, count)
        EACH_VECTOR(c, n, C)
        store_channels(out + k * C + c,
                       load_channels(x + k * C + c, n) + load_channels(room->z + j * C + c, n), n);
    }
}

/* by_y and by_factors, the latter before the sigmoid, from by_h in by_y. */
static void differentiate_gate(const Work *w, const Room *room, int64_t count)
{
    const int64_t H = w->hidden, F = (w->lmax + 1) * H;
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l <= w->lmax; l++)
            EACH_VECTOR(c, n, H)
            {
                const loose f = load_channels(room->factors + i * F + l * H + c, n);
                loose sum = {0};
                for (int64_t j = count * l * l + i * (2 * l + 1), m = 0; m < 2 * l + 1; m++, j++) {
                    const loose by_h = load_channels(room->by_y + j * H + c, n);
                    sum += by_h * load_channels(room->y + j * H + c, n);
                    store_channels(room->by_y + j * H + c, by_h * f, n);
                }
                store_channels(room->by_factors + i * F + l * H + c, sum * f * (1 - f), n);
            }
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < w->hidden_natural; c++)
            room->by_y[i * H + c] += room->by_factors[i * F + c];
}

INLINE void add_rows(const REAL *rows, int64_t row, int64_t count, int64_t width, REAL *sum)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++)
            sum[c] += rows[i * row + c];
}

static void differentiate(const Work *w, const Parameters *p, const Parameters *by,
                          const Room *room, int64_t first, int64_t count)
{
    const int64_t C = w->channels, H = w->hidden, N = w->hidden_natural;
    const int64_t F = (w->lmax + 1) * H, size = count_components(w) * C;
    go_up(w, p, room, first, count);
    for (int64_t i = 0; i < count; i++)
        EACH_COMPONENT(l, k, j, i, count)
    EACH_VECTOR(c, n, C)
    store_channels(room->g + j * C + c, load_channels(w->g + (first + i) * size + k * C + c, n), n);
    for (int64_t l = 0; l <= w->lmax; l++) {
        const int64_t rows = count * (2 * l + 1);
        const REAL *g = room->g + count * l * l * C;
        map(g, C, p->down + l * C * H, 0, 0, room->by_y + count * l * l * H, H, rows, C, H);
        add(g, C, room->h + count * l * l * H, H, by->down + l * C * H, C, rows, H);
    }
    differentiate_gate(w, room, count);
    for (int64_t l = 0; l <= w->lmax; l++) {
        const int64_t rows = count * (2 * l + 1);
        const REAL *by_y = room->by_y + count * l * l * H;
        add(room->z + count * l * l * C, C, by_y, H, by->up + l * C * H, C, rows, H);
        map(by_y, H, w->up + l * H * C, 0, 0, room->by_z + count * l * l * C, C, rows, H, C);
    }
    const REAL *by_gates = room->by_factors + N;
    add(room->z, C, by_gates, F, by->gates, w->natural, count, F - N);
    map(by_gates, F, w->gates, room->by_z, C, room->by_z, C, count, F - N, w->natural);
    add_rows(by_gates, F, count, F - N, by->gates_bias);
    add_rows(room->by_y, H, count, H, by->up_bias);
    add_rows(room->g, C, count, C, by->down_bias);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = (first + i) * size;
        memcpy(w->out + at, w->g + at, size * sizeof(REAL));
        differentiate_norm(w, p, by, w->x + at, room->by_z, w->out + at, i, count);
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next range from the counter
 * that they share. */

#define EACH_TILE(first, count)                                                                   \
    const Parameters p = split(w, w->parameters);                                                 \
    Room room;                                                                                    \
    make_room(w, memory, &room);                                                                  \
    for (int64_t r; (r = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->n_ranges;)        \
        for (int64_t first = r * w->n_rows / w->n_ranges, end = (r + 1) * w->n_rows / w->n_ranges, \
                     count;                                                                       \
             first < end; first += count)                                                         \
            if ((count = smaller(TILE, end - first)), 1)

void value(const Work *w, int64_t *counter, REAL *memory)
{
    EACH_TILE(first, count)
    evaluate(w, &p, &room, first, count);
}

void gradient(const Work *w, int64_t *counter, REAL *memory)
{
    EACH_TILE(first, count)
    {
        const Parameters by = split(w, w->by_parameters + r * w->n_parameters);
        differentiate(w, &p, &by, &room, first, count);
    }
}

/* The norm alone. */
void norm_value(const Work *w, int64_t *counter, REAL *memory)
{
    const int64_t size = count_components(w) * w->channels;
    EACH_TILE(first, count)
    for (int64_t i = first; i < first + count; i++)
        normalise(w, &p, w->x + i * size, w->out + i * size, 0, 1);
}

void norm_gradient(const Work *w, int64_t *counter, REAL *memory)
{
    const int64_t size = count_components(w) * w->channels;
    EACH_TILE(first, count)
    {
        const Parameters by = split(w, w->by_parameters + r * w->n_parameters);
        memset(w->out + first * size, 0, count * size * sizeof(REAL));
        for (int64_t i = first; i < first + count; i++)
            differentiate_norm(w, &p, &by, w->x + i * size, w->g + i * size, w->out + i * size, 0,
                               1);
    }
}
