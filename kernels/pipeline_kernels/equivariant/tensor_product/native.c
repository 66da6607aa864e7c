/* The channelwise tensor product and its derivatives (see __init__.py), float or double (macro
 * REAL), for one plan. What depends on the plan stands before this text (cpu.py):
 *
 *     PATHS(F)           F(path, d1, d3, row in h, row in out) for each path
 *     places_<path>      where T[m1, m3] of the path lies among the N_SUMS that are not zero, or -1
 *     COUPLE, UNCOUPLE   T from Y, dY from dT, all of them
 *     N_PATHS, N_SUMS, DIM_IN, DIM_SH, DIM_OUT; MAX_D1, MAX_D3, the largest d1 and d3
 *
 * Channels are the lanes of vectors, of which C is a multiple. The sum over m2,
 * T[m1, m3] = sum C[m1, m2, m3] Y[m2], is the same for all channels and made once per edge. The
 * rows of one edge lie in the first-level cache while the paths go over them.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define QUAD 16
#define LANES ((int64_t)(BYTES / sizeof(REAL)))
#define INLINE static inline __attribute__((always_inline))
/* Early enough that the arrays of sums become registers. */
#define UNROLLED _Pragma("GCC unroll 32")

typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef REAL aligned_vec __attribute__((vector_size(BYTES)));
typedef REAL quad __attribute__((vector_size(QUAD), may_alias));

typedef struct {
    const int64_t *order, *offsets; /* edges of each node: null, or a permutation; a list */
    const int64_t *senders, *receivers;
    int64_t n_nodes, chunk; /* nodes that a thread takes at once */
    int64_t channels;
} Graph;

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE vec at(const REAL *row) { return *(const vec *)row; }

static void couple(const REAL *Y, REAL *T) { COUPLE }

static void uncouple(const aligned_vec *dT, REAL *by_Y)
{
    aligned_vec dY[DIM_SH] = {{0}};
    UNCOUPLE
    for (int m = 0; m < DIM_SH; m++) {
        const quad *part = (const quad *)(dY + m);
        quad sum = part[0];
        for (int q = 1; q < BYTES / QUAD; q++)
            sum += part[q];
        by_Y[m] = sum[0];
        for (int l = 1; l < QUAD / (int)sizeof(REAL); l++)
            by_Y[m] += sum[l];
    }
}

/* ---- one path of one edge ---- */

/* out[m3] += T[m1, m3] w h[m1] */
INLINE void add_product(const int d1, const int d3, const int16_t *place, const REAL *T,
                        const REAL *w, const REAL *h, REAL *out, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        vec x[MAX_D1];
        UNROLLED
        for (int i = 0; i < d1; i++)
            x[i] = at(w + c) * at(h + i * channels + c);
        UNROLLED
        for (int k = 0; k < d3; k++) {
            vec sum = at(out + k * channels + c);
            UNROLLED
            for (int i = 0; i < d1; i++)
                if (place[i * d3 + k] >= 0)
                    sum += T[place[i * d3 + k]] * x[i];
            *(vec *)(out + k * channels + c) = sum;
        }
    }
}

/* With u[m1] = T[m1, m3] g[m3]: by_h[m1] += w u[m1], by_w = h[m1] u[m1], and the lanes of
 * dT[m1, m3] = w h[m1] g[m3] if `with_Y`. */
INLINE void add_gradient(const int with_Y, const int d1, const int d3, const int16_t *place,
                         const REAL *T, const REAL *w, const REAL *h, const REAL *g, REAL *by_h,
                         REAL *by_w, aligned_vec *dT, int64_t channels)
{
    vec sums[MAX_D1 * MAX_D3];
    UNROLLED
    for (int t = 0; t < d1 * d3; t++)
        sums[t] = (vec){0};
    for (int64_t c = 0; c < channels; c += LANES) {
        const vec weight = at(w + c);
        vec x[MAX_D1], u[MAX_D1], total = {0};
        UNROLLED
        for (int i = 0; i < d1; i++) {
            x[i] = weight * at(h + i * channels + c);
            u[i] = (vec){0};
        }
        UNROLLED
        for (int k = 0; k < d3; k++) {
            const vec row = at(g + k * channels + c);
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
            *(vec *)(by_h + i * channels + c) += weight * u[i];
        }
        *(vec *)(by_w + c) = total;
    }
    UNROLLED
    for (int t = 0; t < d1 * d3; t++)
        if (with_Y && place[t] >= 0)
            dT[place[t]] = sums[t];
}

/* ---- all paths of one edge ---- */

static void edge_product(const REAL *T, const REAL *w, const REAL *h, REAL *out, int64_t channels)
{
#define PATH(P, D1, D3, ROW_H, ROW_OUT)                                                           \
    add_product(D1, D3, places_##P, T, w + P * channels, h + ROW_H * channels,                    \
                out + ROW_OUT * channels, channels);
    PATHS(PATH)
#undef PATH
}

#define PATH(P, D1, D3, ROW_H, ROW_OUT)                                                           \
    add_gradient(WITH_Y, D1, D3, places_##P, T, w + P * channels, h + ROW_H * channels,           \
                 g + ROW_OUT * channels, by_h + ROW_H * channels, by_w + P * channels, dT,        \
                 channels);
static void edge_gradient(const REAL *T, const REAL *w, const REAL *h, const REAL *g, REAL *by_h,
                          REAL *by_w, aligned_vec *dT, int64_t channels)
{
#define WITH_Y 0
    PATHS(PATH)
#undef WITH_Y
}

static void edge_gradient_with_Y(const REAL *T, const REAL *w, const REAL *h, const REAL *g,
                                 REAL *by_h, REAL *by_w, aligned_vec *dT, int64_t channels)
{
#define WITH_Y 1
    PATHS(PATH)
#undef WITH_Y
}

/* ---- edges in order ---- */

INLINE int64_t edge_at(const Graph *graph, int64_t k)
{
    return graph->order ? graph->order[k] : k;
}

/* Asks for the weights of the edge after the k-th, which come from far. Inlined, since a call whose
 * result is nothing would be left out. */
INLINE void fetch_next(const REAL *w, const Graph *graph, int64_t k)
{
    if (k + 1 == graph->offsets[graph->n_nodes])
        return;
    const char *row = (const char *)(w + edge_at(graph, k + 1) * N_PATHS * graph->channels);
    for (int64_t i = 0; i < N_PATHS * graph->channels * (int64_t)sizeof(REAL); i += 64)
        __builtin_prefetch(row + i);
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next nodes from the counter
 * that they share. */

int64_t lanes(void) { return LANES; }

/* Asks for large pages in memory not yet touched: thousands of small ones take longer to be handed
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

int64_t memory_size(int64_t channels)
{
    return BYTES * (N_SUMS + 1) + sizeof(REAL) * (DIM_IN + N_PATHS) * channels;
}

/* The edges of a node are those that it receives. */
void product(const REAL *h, const REAL *Y, const REAL *w, REAL *out, const Graph *graph,
             int64_t *counter, void *memory)
{
    (void)memory;
    const int64_t channels = graph->channels;
    REAL T[N_SUMS];
    for (int64_t i; (i = __atomic_fetch_add(counter, graph->chunk, __ATOMIC_RELAXED)) <
                    graph->n_nodes;)
        for (int64_t n = i; n < smaller(i + graph->chunk, graph->n_nodes); n++) {
            REAL *row = out + n * DIM_OUT * channels;
            memset(row, 0, DIM_OUT * channels * sizeof(REAL));
            for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
                const int64_t e = edge_at(graph, k);
                fetch_next(w, graph, k);
                couple(Y + e * DIM_SH, T);
                edge_product(T, w + e * N_PATHS * channels,
                             h + graph->senders[e] * DIM_IN * channels, row, channels);
            }
        }
}

/* The edges of a node are those that it sends; without `by_h`, of any grouping. Each of the last
 * three may be null. */
void gradient(const REAL *g, const REAL *h, const REAL *Y, const REAL *w, REAL *by_h, REAL *by_Y,
              REAL *by_w, const Graph *graph, int64_t *counter, void *memory)
{
    const int64_t channels = graph->channels;
    aligned_vec *dT = (aligned_vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
    REAL *unused_h = (REAL *)(dT + N_SUMS), *unused_w = unused_h + DIM_IN * channels;
    REAL T[N_SUMS];
    memset(unused_h, 0, DIM_IN * channels * sizeof(REAL));
    for (int64_t i; (i = __atomic_fetch_add(counter, graph->chunk, __ATOMIC_RELAXED)) <
                    graph->n_nodes;)
        for (int64_t n = i; n < smaller(i + graph->chunk, graph->n_nodes); n++) {
            REAL *row = by_h ? by_h + n * DIM_IN * channels : unused_h;
            memset(row, 0, DIM_IN * channels * sizeof(REAL));
            for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
                const int64_t e = edge_at(graph, k);
                fetch_next(w, graph, k);
                couple(Y + e * DIM_SH, T);
                (by_Y ? edge_gradient_with_Y : edge_gradient)(
                    T, w + e * N_PATHS * channels, h + graph->senders[e] * DIM_IN * channels,
                    g + graph->receivers[e] * DIM_OUT * channels, row,
                    by_w ? by_w + e * N_PATHS * channels : unused_w, dT, channels);
                if (by_Y)
                    uncouple(dT, by_Y + e * DIM_SH);
            }
        }
}
