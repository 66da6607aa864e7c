/* The tensor product with weights that are interpolated for each edge (interpolated.py), behind
 * native.c. The weights of an edge are a sum of ROWS rows of a table that follow each other; they
 * are made in memory of the thread, which the first-level cache holds, and used up at once.
 */
enum { ROWS = 6 };

typedef struct {
    const REAL *table;
    const int64_t *first;           /* of the rows of each edge */
    const REAL *factors, *slopes;   /* of its rows: the weights, and their derivative */
} Interpolation;

int64_t interpolation_memory_size(const Graph *graph)
{
    return memory_size(graph) + BYTES + 3 * sizeof(REAL) * graph->n_paths * graph->channels;
}

/* Weights of edge e and, if `with_slopes`, their derivatives: rows are read once for both. */
INLINE void interpolate(const int with_slopes, const Interpolation *I, int64_t e, int64_t size,
                        REAL *w, REAL *dw)
{
    const REAL *rows = I->table + I->first[e] * size;
    vec f[ROWS], df[ROWS];
    UNROLLED
    for (int k = 0; k < ROWS; k++) {
        f[k] = (vec){0} + I->factors[ROWS * e + k];
        if (with_slopes)
            df[k] = (vec){0} + I->slopes[ROWS * e + k];
    }
    for (int64_t c = 0; c < size; c += LANES) {
        vec value = {0}, slope = {0};
        UNROLLED
        for (int k = 0; k < ROWS; k++) {
            const vec row = at(rows + k * size + c);
            value += f[k] * row;
            if (with_slopes)
                slope += df[k] * row;
        }
        *(loose *)(w + c) = value;
        if (with_slopes)
            *(loose *)(dw + c) = slope;
    }
}

INLINE REAL sum_products(const REAL *x, const REAL *y, int64_t size)
{
    vec sum = {0};
    for (int64_t c = 0; c < size; c += LANES)
        sum += at(x + c) * at(y + c);
    return add_lanes(sum);
}

/* As `product`. */
void interpolated_product(const REAL *h, const REAL *Y, const Interpolation *I, REAL *out,
                          const Graph *graph, int64_t *counter, void *memory)
{
    const int64_t channels = graph->channels, size = graph->n_paths * channels;
    REAL *w = memory;
    FOR_NODES
    {
        REAL *row = out + n * graph->dim_out * channels;
        memset(row, 0, graph->dim_out * channels * sizeof(REAL));
        for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
            const int64_t e = edge_at(graph, k);
            const REAL *h_e = h + graph->senders[e] * graph->dim_in * channels;
            interpolate(0, I, e, size, w, 0);
            for (int64_t p = 0; p < graph->n_paths; p++) {
                const Path path = graph->paths[p];
                products[path.coupling](Y + e * graph->dim_sh + path.row_Y, w + p * channels,
                                        h_e + path.row_h * channels, row + path.row_out * channels,
                                        channels);
            }
        }
    }
}

/* As `gradient`, with the derivative by what the weights are functions of. */
void interpolated_gradient(const REAL *g, const REAL *h, const REAL *Y, const Interpolation *I,
                           REAL *by_h, REAL *by_Y, REAL *by_x, const Graph *graph,
                           int64_t *counter, void *memory)
{
    const int64_t channels = graph->channels, size = graph->n_paths * channels;
    vec *dY = (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
    REAL *unused_h = (REAL *)(dY + graph->dim_sh), *w = unused_h + graph->dim_in * channels;
    REAL *by_w = w + size, *dw = by_w + size;
    memset(unused_h, 0, graph->dim_in * channels * sizeof(REAL));
    FOR_NODES
    {
        REAL *row = by_h ? by_h + n * graph->dim_in * channels : unused_h;
        memset(row, 0, graph->dim_in * channels * sizeof(REAL));
        for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
            const int64_t e = edge_at(graph, k);
            const REAL *g_e = g + graph->receivers[e] * graph->dim_out * channels;
            const REAL *h_e = h + graph->senders[e] * graph->dim_in * channels;
            interpolate(1, I, e, size, w, dw);
            memset(dY, 0, graph->dim_sh * sizeof(*dY));
            for (int64_t p = 0; p < graph->n_paths; p++) {
                const Path path = graph->paths[p];
                gradients[path.coupling][1](Y + e * graph->dim_sh + path.row_Y, w + p * channels,
                                            h_e + path.row_h * channels,
                                            g_e + path.row_out * channels,
                                            row + path.row_h * channels, by_w + p * channels, 0,
                                            dY + path.row_Y, channels);
            }
            by_x[e] = sum_products(by_w, dw, size);
            for (int64_t m = 0; m < graph->dim_sh; m++)
                by_Y[e * graph->dim_sh + m] = add_lanes(dY[m]);
        }
    }
}
