/* First derivatives of the tensor product with weights w = x A, which edges share, and how they
 * change along directions (see __init__.py). Behind native.c and tangents.c of the tensor product.
 *
 * Edges go in the order of the rows of x, BLOCK rows at once: derivatives by their weights are made
 * and used in memory of the thread that stays in the second-level cache. What goes to senders is
 * kept for the edges of a part of the rows and added in a second pass. Derivatives by A are summed
 * over ranges of rows, each with sums of its own, so that no order depends on the threads.
 */
#define BLOCK (4 * TILE_ROWS)

typedef struct {
    const REAL *g;
    Moving moving;
    const REAL *x, *dx, *A_T;        /* of rows; (n_paths channels, K) */
    REAL *by_h, *by_Y, *by_x, *by_A; /* of the edges of the part, of all edges, of all rows;
                                      * (n_ranges, K, n_paths channels) */
    int64_t K, begin, end, n_ranges; /* rows of the part, and into how many ranges it is cut */
} Mixed;

/* Rows that go through together. */
typedef struct {
    int64_t first, end, stride; /* of weights; more than there are, since caches hold few lines whose
                                 * distance is a power of two */
    vec *dY;
    REAL *by_w, *by_dw; /* (BLOCK, stride) */
} Block;

/* Divides the workspace of a thread, or counts its bytes. */
static int64_t make_room(const Graph *graph, char *memory, Block *b)
{
    b->stride = graph->n_paths * graph->channels + LANES;
    b->dY = (vec *)memory;
    b->by_w = (REAL *)(b->dY + graph->dim_sh);
    b->by_dw = b->by_w + BLOCK * b->stride;
    return (char *)(b->by_dw + BLOCK * b->stride) - memory;
}

int64_t mixed_memory_size(const Graph *graph)
{
    Block b;
    return make_room(graph, 0, &b) + BYTES;
}

/* Prefetches what the k-th edge by row reads of its receiver, and the weights of its row. */
INLINE void fetch_edge(const Graph *graph, const REAL *g, const REAL *w, int64_t k)
{
    if (k >= graph->offsets[graph->n_nodes])
        return;
    const int64_t e = edge_at(graph, k), size = graph->dim_out * graph->channels * sizeof(REAL);
    const char *row = (const char *)(g + graph->receivers[e] * graph->dim_out * graph->channels);
    for (int64_t i = 0; i < size; i += 64)
        __builtin_prefetch(row + i);
    fetch_next(w, graph, k - 1);
}

/* ---- an edge ---- */

typedef void Step(const Mixed *k, const Graph *graph, const Block *b, int64_t e, REAL *by_h,
                  int64_t weight, int adds);

static void step_gradient(const Mixed *k, const Graph *graph, const Block *b, int64_t e, REAL *by_h,
                          int64_t weight, int adds)
{
    const int64_t C = graph->channels;
    const REAL *g = k->g + graph->receivers[e] * graph->dim_out * C;
    if (k->by_Y)
        memset(b->dY, 0, graph->dim_sh * sizeof(*b->dY));
    for (int64_t p = 0; p < graph->n_paths; p++) {
        const Path path = graph->paths[p];
        const REAL *h = k->moving.h + (graph->senders[e] * graph->dim_in + path.row_h) * C;
        gradients[path.coupling][k->by_Y != 0](
            k->moving.Y + e * graph->dim_sh + path.row_Y,
            k->moving.w + weights_at(graph, e) + p * C, h, g + path.row_out * C,
            by_h + path.row_h * C, b->by_w + weight + p * C, adds, b->dY + path.row_Y, C);
    }
    for (int64_t m = 0; k->by_Y && m < graph->dim_sh; m++)
        k->by_Y[e * graph->dim_sh + m] = add_lanes(b->dY[m]);
}

static void step_tangents(const Mixed *k, const Graph *graph, const Block *b, int64_t e, REAL *by_h,
                          int64_t weight, int adds)
{
    const int64_t C = graph->channels;
    const REAL *g = k->g + graph->receivers[e] * graph->dim_out * C;
    for (int64_t p = 0; p < graph->n_paths; p++) {
        const Path path = graph->paths[p];
        gradient_tangents[path.coupling](factors_at(&k->moving, graph, e, path, p),
                                         g + path.row_out * C, by_h + path.row_h * C,
                                         b->by_w + weight + p * C, b->by_dw + weight + p * C,
                                         adds, C);
    }
}

/* ---- a block ---- */

static void step_all(const Mixed *k, const Graph *graph, const Block *b, Step *step, const REAL *w)
{
    const int64_t size = graph->dim_in * graph->channels, before = graph->offsets[k->begin];
    for (int64_t row = b->first; row < b->end; row++) {
        const int64_t weight = (row - b->first) * b->stride;
        if (graph->offsets[row] == graph->offsets[row + 1]) { /* no edge has these weights */
            memset(b->by_w + weight, 0, b->stride * sizeof(REAL));
            memset(b->by_dw + weight, 0, b->stride * sizeof(REAL));
        }
        for (int64_t i = graph->offsets[row]; i < graph->offsets[row + 1]; i++) {
            REAL *by_h = k->by_h + (i - before) * size;
            memset(by_h, 0, size * sizeof(REAL));
            fetch_edge(graph, k->g, w, i + 1);
            step(k, graph, b, edge_at(graph, i), by_h, weight, i > graph->offsets[row]);
        }
    }
}

/* by_x = by_w A^T */
static void map_back(const Mixed *k, const Graph *graph, const Block *b)
{
    const Product p = {.a = b->by_w, .b = k->A_T, .out = k->by_x + b->first * k->K,
                       .rows = b->end - b->first, .depth = graph->n_paths * graph->channels,
                       .width = k->K, .a_row = b->stride, .a_step = 1, .b_row = k->K,
                       .out_row = k->K};
    multiply(&p);
}

/* by_A += x^T by_w, of a range */
static void add_outer(const Mixed *k, const Graph *graph, const Block *b, const REAL *x,
                      const REAL *by_w, int64_t range)
{
    const int64_t width = graph->n_paths * graph->channels;
    REAL *by_A = k->by_A + range * width * k->K;
    const Product p = {.a = x + b->first * k->K, .b = by_w, .start = by_A, .out = by_A,
                       .rows = k->K, .depth = b->end - b->first, .width = width, .a_row = 1,
                       .a_step = k->K, .b_row = b->stride, .start_row = width, .out_row = width};
    multiply(&p);
}

/* ---- what is called from outside ----
 *
 * The nodes of the graph are rows of the weights. Every thread makes the same call with memory of
 * its own and takes the next range of the part from the counter that they share. */

INLINE int64_t cut_range(const Mixed *k, int64_t r)
{
    return k->begin + r * (k->end - k->begin) / k->n_ranges;
}

#define FOR_BLOCKS(b, range)                                                                      \
    Block b;                                                                                      \
    make_room(graph, (char *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES), &b);              \
    for (int64_t range;                                                                           \
         (range = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < k->n_ranges;)               \
        for (int64_t last = (b.first = cut_range(k, range), cut_range(k, range + 1));             \
             b.first < last && (b.end = b.first + cut(last - b.first, BLOCK), 1);                 \
             b.first = b.end)

/* Each of by_Y, by_x and by_A may be null. */
void mixed_gradient(const Mixed *k, const Graph *graph, int64_t *counter, void *memory)
{
    FOR_BLOCKS(b, range)
    {
        step_all(k, graph, &b, step_gradient, k->moving.w);
        if (k->by_x)
            map_back(k, graph, &b);
        if (k->by_A)
            add_outer(k, graph, &b, k->x, b.by_w, range);
    }
}

/* How derivatives by h, x and A change along directions of h, Y and x. */
void mixed_tangents(const Mixed *k, const Graph *graph, int64_t *counter, void *memory)
{
    FOR_BLOCKS(b, range)
    {
        step_all(k, graph, &b, step_tangents, k->moving.dw);
        map_back(k, graph, &b);
        add_outer(k, graph, &b, k->x, b.by_w, range);
        add_outer(k, graph, &b, k->dx, b.by_dw, range);
    }
}

/* Adds what edges of a part send to their senders' sums. `next` is where each sender's edges of the
 * part begin among its own, which are given by their place in the order of rows, and is moved to the
 * next part. */
void add_to_senders(const Mixed *k, REAL *sums, const int64_t *places, const int64_t *offsets,
                    int64_t *next, int64_t n_senders, const Graph *graph, int64_t *counter)
{
    const int64_t size = graph->dim_in * graph->channels;
    const int64_t first = graph->offsets[k->begin], end = graph->offsets[k->end];
    for (int64_t i; (i = __atomic_fetch_add(counter, 16, __ATOMIC_RELAXED)) < n_senders;)
        for (int64_t s = i; s < smaller(i + 16, n_senders); s++)
            for (; next[s] < offsets[s + 1]; next[s]++) {
                const int64_t place = places ? places[next[s]] : next[s];
                if (place >= end)
                    break;
                const REAL *row = k->by_h + (place - first) * size;
                for (int64_t c = 0; c < size; c += LANES)
                    *(loose *)(sums + s * size + c) += at(row + c);
            }
}
