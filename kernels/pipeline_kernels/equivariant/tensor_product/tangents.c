/* How derivatives of the tensor product change along directions of h, Y and w, behind native.c:
 * what training on forces takes most time for (mixed_product). All directions in one pass, so that
 * the weights and their direction, which come from far, are read once and nothing is added up behind.
 */

/* ---- one path of one edge ---- */

/* out[m3] += T[m1, m3] (dw h + w dh)[m1] + dT[m1, m3] w h[m1] */
INLINE void add_product_tangent(const int d1, const int d3, const int16_t *place, const REAL *T,
                                const REAL *dT, const REAL *w, const REAL *dw, const REAL *h,
                                const REAL *dh, REAL *out, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        const loose weight = at(w + c), change = at(dw + c);
        loose x[MAX_D1], dx[MAX_D1];
        UNROLLED
        for (int i = 0; i < d1; i++) {
            const loose feature = at(h + i * channels + c);
            x[i] = weight * feature;
            dx[i] = change * feature + weight * at(dh + i * channels + c);
        }
        UNROLLED
        for (int k = 0; k < d3; k++) {
            loose sum = at(out + k * channels + c);
            UNROLLED
            for (int i = 0; i < d1; i++)
                if (place[i * d3 + k] >= 0)
                    sum += T[place[i * d3 + k]] * dx[i] + dT[place[i * d3 + k]] * x[i];
            *(loose *)(out + k * channels + c) = sum;
        }
    }
}

/* With u[m1] = T[m1, m3] g[m3] and du of dT likewise: by_h[m1] += dw u[m1] + w du[m1],
 * by_w = dh[m1] u[m1] + h[m1] du[m1], and by_dw = h[m1] u[m1]; more of both if `adds`. */
INLINE void add_gradient_tangent(const int d1, const int d3, const int16_t *place, const REAL *T,
                                 const REAL *dT, const REAL *w, const REAL *dw, const REAL *h,
                                 const REAL *dh, const REAL *g, REAL *by_h, REAL *by_w,
                                 REAL *by_dw, int adds, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        const loose weight = at(w + c), change = at(dw + c);
        loose u[MAX_D1], du[MAX_D1], total = {0}, first = {0};
        if (adds) {
            total = at(by_w + c);
            first = at(by_dw + c);
        }
        UNROLLED
        for (int i = 0; i < d1; i++)
            u[i] = du[i] = (loose){0};
        UNROLLED
        for (int k = 0; k < d3; k++) {
            const loose row = at(g + k * channels + c);
            UNROLLED
            for (int i = 0; i < d1; i++)
                if (place[i * d3 + k] >= 0) {
                    u[i] += T[place[i * d3 + k]] * row;
                    du[i] += dT[place[i * d3 + k]] * row;
                }
        }
        UNROLLED
        for (int i = 0; i < d1; i++) {
            const loose feature = at(h + i * channels + c);
            total += at(dh + i * channels + c) * u[i] + feature * du[i];
            first += feature * u[i];
            *(loose *)(by_h + i * channels + c) += change * u[i] + weight * du[i];
        }
        *(loose *)(by_w + c) = total;
        *(loose *)(by_dw + c) = first;
    }
}

/* ---- one path of one edge, for each coupling ---- */

typedef struct {
    const REAL *Y, *dY, *w, *dw, *h, *dh;
} Factors;

typedef void ProductTangent(Factors f, REAL *out, int64_t channels);
typedef void GradientTangent(Factors f, const REAL *g, REAL *by_h, REAL *by_w, REAL *by_dw,
                             int adds, int64_t channels);

#define INSTANCE_TANGENTS(I, D1, D3, N)                                                           \
    INLINE void couple_##I(const REAL *Y, REAL *T)                                                \
    {                                                                                             \
        COUPLE_##I                                                                                \
    }                                                                                             \
    static void product_tangent_##I(Factors f, REAL *out, int64_t channels)                       \
    {                                                                                             \
        REAL T[N], dT[N];                                                                         \
        couple_##I(f.Y, T);                                                                       \
        couple_##I(f.dY, dT);                                                                     \
        add_product_tangent(D1, D3, places_##I, T, dT, f.w, f.dw, f.h, f.dh, out, channels);      \
    }                                                                                             \
    static void gradient_tangent_##I(Factors f, const REAL *g, REAL *by_h, REAL *by_w,            \
                                     REAL *by_dw, int adds, int64_t channels)                     \
    {                                                                                             \
        REAL T[N], dT[N];                                                                         \
        couple_##I(f.Y, T);                                                                       \
        couple_##I(f.dY, dT);                                                                     \
        add_gradient_tangent(D1, D3, places_##I, T, dT, f.w, f.dw, f.h, f.dh, g, by_h, by_w,      \
                             by_dw, adds, channels);                                              \
    }
COUPLINGS(INSTANCE_TANGENTS)

#define NAME_PRODUCT_TANGENT(I, D1, D3, N) product_tangent_##I,
#define NAME_GRADIENT_TANGENT(I, D1, D3, N) gradient_tangent_##I,
static ProductTangent *const product_tangents[] = {COUPLINGS(NAME_PRODUCT_TANGENT)};
static GradientTangent *const gradient_tangents[] = {COUPLINGS(NAME_GRADIENT_TANGENT)};

/* ---- edges in order ---- */

typedef struct {
    const REAL *h, *Y, *w, *dh, *dY, *dw; /* of all nodes, of all edges */
} Moving;

INLINE Factors factors_at(const Moving *all, const Graph *graph, int64_t e, Path path, int64_t p)
{
    const int64_t channels = graph->channels;
    const int64_t row = (graph->senders[e] * graph->dim_in + path.row_h) * channels;
    const int64_t weight = weights_at(graph, e) + p * channels, Y = e * graph->dim_sh + path.row_Y;
    return (Factors){all->Y + Y,      all->dY + Y,  all->w + weight,
                     all->dw + weight, all->h + row, all->dh + row};
}

/* As `product`, of the derivative by g. */
void product_tangent(const Moving *all, REAL *out, const Graph *graph, int64_t *counter)
{
    const int64_t channels = graph->channels;
    FOR_NODES
    {
        REAL *row = out + n * graph->dim_out * channels;
        memset(row, 0, graph->dim_out * channels * sizeof(REAL));
        for (int64_t k = graph->offsets[n]; k < graph->offsets[n + 1]; k++) {
            const int64_t e = edge_at(graph, k);
            fetch_next(all->w, graph, k);
            fetch_next(all->dw, graph, k);
            for (int64_t p = 0; p < graph->n_paths; p++) {
                const Path path = graph->paths[p];
                product_tangents[path.coupling](factors_at(all, graph, e, path, p),
                                                row + path.row_out * channels, channels);
            }
        }
    }
}
