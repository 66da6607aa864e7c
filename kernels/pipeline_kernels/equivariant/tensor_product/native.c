/* The channelwise tensor product and its derivatives (see __init__.py), float or double (macro
 * REAL). After products.c; the couplings stand before both (couplings.py), and a plan is a list of
 * paths that use them.
 *
 * Channels are the lanes of vectors, of which C is a multiple. The sum over m2,
 * T[m1, m3] = sum C[m1, m2, m3] Y[m2], is the same for all channels and made once per path of an
 * edge. The rows of one edge lie in the first-level cache while the paths go over them.
 */
#include <sys/mman.h>

typedef struct {
    int64_t coupling;       /* its number */
    int64_t row_h, row_Y, row_out; /* where components begin */
} Path;

typedef struct {
    const int64_t *order, *offsets; /* edges of each node: null, or a permutation; a list */
    const int64_t *senders, *receivers;
    const int64_t *rows; /* of the weights; null where each edge has its own */
    const Path *paths;
    int64_t n_paths, dim_in, dim_sh, dim_out;
    int64_t n_nodes, chunk; /* nodes that a thread takes at once */
    int64_t channels;
} Graph;

INLINE loose at(const REAL *row) { return *(const loose *)row; }

/* ---- one path of one edge ---- */

/* out[m3] += T[m1, m3] w h[m1] */
INLINE void add_product(const int d1, const int d3, const int16_t *place, const REAL *T,
                        const REAL *w, const REAL *h, REAL *out, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        loose x[MAX_D1];
        UNROLLED
        for (int i = 0; i < d1; i++)
            x[i] = at(w + c) * at(h + i * channels + c);
        UNROLLED
        for (int k = 0; k < d3; k++) {
            loose sum = at(out + k * channels + c);
            UNROLLED
            for (int i = 0; i < d1; i++)
                if (place[i * d3 + k] >= 0)
                    sum += T[place[i * d3 + k]] * x[i];
            *(loose *)(out + k * channels + c) = sum;
        }
    }
}

/* With u[m1] = T[m1, m3] g[m3]: by_h[m1] += w u[m1], by_w = h[m1] u[m1] (more of it if `adds`), and the
 * lanes of dT[m1, m3] = w h[m1] g[m3] if `with_Y`. */
INLINE void add_gradient(const int with_Y, const int d1, const int d3, const int16_t *place,
                         const REAL *T, const REAL *w, const REAL *h, const REAL *g, REAL *by_h,
                         REAL *by_w, int adds, vec *dT, int64_t channels)
{
    loose sums[MAX_D1 * MAX_D3];
    UNROLLED
    for (int t = 0; t < d1 * d3; t++)
        sums[t] = (loose){0};
    for (int64_t c = 0; c < channels; c += LANES) {
        const loose weight = at(w + c);
        loose x[MAX_D1], u[MAX_D1], total = adds ? at(by_w + c) : (loose){0};
        UNROLLED
        for (int i = 0; i < d1; i++) {
            x[i] = weight * at(h + i * channels + c);
            u[i] = (loose){0};
        }
        UNROLLED
        for (int k = 0; k < d3; k++) {
            const loose row = at(g + k * channels + c);
            UNROLLED
            for (int i = 0; i < d1; i++)
                if (place[i * d3 + k] >= 0) {
                    u[i] += T[place[i * d3 + k]] * row;
                    if (with_Y)
                        sums[i * d3 + k] += x[i] * row;
                }
        }
        UNROLLED
        for (int i = 0; i < d1; i++) {
            total += at(h + i * channels + c) * u[i];
            *(loose *)(by_h + i * channels + c) += weight * u[i];
        }
        *(loose *)(by_w + c) = total;
    }
    UNROLLED
    for (int t = 0; t < d1 * d3; t++)
        if (with_Y && place[t] >= 0)
            dT[place[t]] = sums[t];
}

/* ---- one path of one edge, for each coupling ---- */

typedef void PathProduct(const REAL *Y, const REAL *w, const REAL *h, REAL *out,
                         int64_t channels);
typedef void PathGradient(const REAL *Y, const REAL *w, const REAL *h, const REAL *g, REAL *by_h,
                          REAL *by_w, int adds, vec *dY, int64_t channels);

#define INSTANCE_PATHS(I, D1, D3, N)                                                                    \
    static void product_##I(const REAL *Y, const REAL *w, const REAL *h, REAL *out,               \
                            int64_t channels)                                                     \
    {                                                                                             \
        REAL T[N];                                                                                \
        COUPLE_##I add_product(D1, D3, places_##I, T, w, h, out, channels);                       \
    }                                                                                             \
    static void gradient_##I(const REAL *Y, const REAL *w, const REAL *h, const REAL *g,          \
                             REAL *by_h, REAL *by_w, int adds, vec *dY, int64_t channels) \
    {                                                                                             \
        (void)dY;                                                                                 \
        REAL T[N];                                                                                \
        COUPLE_##I add_gradient(0, D1, D3, places_##I, T, w, h, g, by_h, by_w, adds, 0, channels); \
    }                                                                                             \
    static void gradient_with_Y_##I(const REAL *Y, const REAL *w, const REAL *h, const REAL *g,   \
                                    REAL *by_h, REAL *by_w, int adds, vec *dY,            \
                                    int64_t channels)                                             \
    {                                                                                             \
        REAL T[N];                                                                                \
        vec dT[N];                                                                        \
        COUPLE_##I add_gradient(1, D1, D3, places_##I, T, w, h, g, by_h, by_w, adds, dT,          \
                                  channels);                                                      \
        UNCOUPLE_##I                                                                              \
    }
COUPLINGS(INSTANCE_PATHS)

#define NAME_PRODUCT(I, D1, D3, N) product_##I,
#define NAME_GRADIENTS(I, D1, D3, N) {gradient_##I, gradient_with_Y_##I},
static PathProduct *const products[] = {COUPLINGS(NAME_PRODUCT)};
static PathGradient *const gradients[][2] = {COUPLINGS(NAME_GRADIENTS)};

/* ---- edges in order ---- */

INLINE int64_t edge_at(const Graph *graph, int64_t k)
{
    return graph->order ? graph->order[k] : k;
}

INLINE int64_t weights_at(const Graph *graph, int64_t e)
{
    return (graph->rows ? graph->rows[e] : e) * graph->n_paths * graph->channels;
}

/* Prefetches the weights of the edge after the k-th. Inlined, since a call whose
 * result is nothing would be left out. */
INLINE void fetch_next(const REAL *w, const Graph *graph, int64_t k)
{
    if (k + 1 == graph->offsets[graph->n_nodes])
        return;
    const int64_t size = graph->n_paths * graph->channels;
    const char *row = (const char *)(w + weights_at(graph, edge_at(graph, k + 1)));
    for (int64_t i = 0; i < size * (int64_t)sizeof(REAL); i += 64)
        __builtin_prefetch(row + i);
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next nodes from the counter
 * that they share. */

int64_t count_lanes(void) { return LANES; }

/* Requests huge pages for untouched memory: thousands of small ones take longer to be handed
 * over than to be filled. */
void prefer_large_pages(void *memory, int64_t n_bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t size = 1 << 21, begin = ((uintptr_t)memory + size - 1) / size * size;
    const uintptr_t end = ((uintptr_t)memory + n_bytes) / size * size;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#endif
}

int64_t memory_size(const Graph *graph)
{
    return BYTES * (graph->dim_sh + 1) + sizeof(REAL) * (graph->dim_in + 1) * graph->channels;
}

#define FOR_NODES                                                                                 \
    for (int64_t i; (i = __atomic_fetch_add(counter, graph->chunk, __ATOMIC_RELAXED)) <           \
                    graph->n_nodes;)                                                              \
        for (int64_t n = i; n < smaller(i + graph->chunk, graph->n_nodes); n++)

/* The edges of a node are those that it receives. */
void product(const REAL *h, const REAL *Y, const REAL *w, REAL *out, const Graph *graph,
             int64_t *counter, void *memory)
{
    (void)memory;
    const int64_t channels = graph->channels;
    FOR_NODES
    {
        REAL *row = out + n * graph->dim_out * channels;
        memset(row, 0, graph->dim_out * channels * sizeof(REAL));
        for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
            const int64_t e = edge_at(graph, k);
            const REAL *h_e = h + graph->senders[e] * graph->dim_in * channels;
            const REAL *Y_e = Y + e * graph->dim_sh, *w_e = w + weights_at(graph, e);
            fetch_next(w, graph, k);
            for (int64_t p = 0; p < graph->n_paths; p++) {
                const Path path = graph->paths[p];
                products[path.coupling](Y_e + path.row_Y, w_e + p * channels,
                                        h_e + path.row_h * channels, row + path.row_out * channels,
                                        channels);
            }
        }
    }
}

/* The edges of a node are those that it sends; without `by_h`, of any grouping. Each of the last
 * three may be null. */
void gradient(const REAL *g, const REAL *h, const REAL *Y, const REAL *w, REAL *by_h, REAL *by_Y,
              REAL *by_w, const Graph *graph, int64_t *counter, void *memory)
{
    const int64_t channels = graph->channels, n_paths = graph->n_paths;
    vec *dY = (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
    REAL *unused_h = (REAL *)(dY + graph->dim_sh), *unused_w = unused_h + graph->dim_in * channels;
    memset(unused_h, 0, graph->dim_in * channels * sizeof(REAL));
    FOR_NODES
    {
        REAL *row = by_h ? by_h + n * graph->dim_in * channels : unused_h;
        memset(row, 0, graph->dim_in * channels * sizeof(REAL));
        for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
            const int64_t e = edge_at(graph, k);
            const REAL *g_e = g + graph->receivers[e] * graph->dim_out * channels;
            const REAL *h_e = h + graph->senders[e] * graph->dim_in * channels;
            const REAL *Y_e = Y + e * graph->dim_sh, *w_e = w + e * n_paths * channels;
            fetch_next(w, graph, k);
            memset(dY, 0, graph->dim_sh * sizeof(*dY));
            for (int64_t p = 0; p < n_paths; p++) {
                const Path path = graph->paths[p];
                gradients[path.coupling][by_Y != 0](
                    Y_e + path.row_Y, w_e + p * channels, h_e + path.row_h * channels,
                    g_e + path.row_out * channels, row + path.row_h * channels,
                    by_w ? by_w + (e * n_paths + p) * channels : unused_w, 0, dY + path.row_Y,
                    channels);
            }
            for (int64_t m = 0; by_Y && m < graph->dim_sh; m++)
                by_Y[e * graph->dim_sh + m] = add_lanes(dY[m]);
        }
    }
}
