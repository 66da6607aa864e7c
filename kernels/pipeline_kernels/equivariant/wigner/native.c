/* Wigner matrices of edges (see __init__.py), in double precision. After products.c.
 *
 * D[i, j] = K[i, j] cos(m_j a) - K[i, -j] sin(m_j a), where K of a tile of edges is the product of
 * 1, cos(b), sin(b), cos(2 b), ... with a constant matrix. Every thread makes the same call and takes
 * the next tile from the counter that they share.
 */
#define TILE (2 * TILE_ROWS)

typedef struct {
    const double *vectors, *table; /* (2 lmax + 1, n_entries) */
    void *out;
    int64_t n_edges, lmax, n_entries, is_single;
} Work;

/* Of a tile: waves of b, K, cos(m a) and -sin(m a) for m = -lmax, ..., lmax; D of an edge. */
typedef struct {
    double *waves, *K, *cosines, *sines, *D;
} Room;

INLINE int64_t count_waves(const Work *w) { return 2 * w->lmax + 1; }

static int64_t make_room(const Work *w, double *memory, Room *room)
{
    room->K = memory;
    room->D = room->K + TILE * w->n_entries;
    room->waves = room->D + w->n_entries;
    room->cosines = room->waves + TILE * count_waves(w);
    room->sines = room->cosines + TILE * count_waves(w);
    return room->sines + TILE * count_waves(w) - memory;
}

int64_t memory_size(const Work *w)
{
    Room room;
    return make_room(w, 0, &room);
}

/* Waves of edge i of a tile, along v. */
static void measure(const Work *w, const double *v, const Room *room, int64_t i)
{
    const double square = v[0] * v[0] + v[1] * v[1], length = __builtin_sqrt(square + v[2] * v[2]);
    const double beside = __builtin_sqrt(square);
    const double cos_a = beside ? v[0] / beside : 1, sin_a = beside ? v[1] / beside : 0;
    const double polar = v[2] / length, across = beside / length;
    double *const of_b = room->waves + i * count_waves(w);
    double *const cosine = room->cosines + i * count_waves(w) + w->lmax;
    double *const sine = room->sines + i * count_waves(w) + w->lmax;
    of_b[0] = cosine[0] = 1;
    sine[0] = 0;
    double c = 1, s = 0;
    for (int64_t m = 1; m <= w->lmax; m++) {
        const double before = c;
        c = before * polar - s * across;
        s = s * polar + before * across;
        of_b[2 * m - 1] = c;
        of_b[2 * m] = s;
        cosine[m] = cosine[-m] = cosine[m - 1] * cos_a + sine[m - 1] * sin_a;
        sine[m] = sine[m - 1] * cos_a - cosine[m - 1] * sin_a;
        sine[-m] = -sine[m];
    }
}

/* D of degree l; cosines and sines point to m = 0. */
INLINE void combine(const int64_t l, const double *K, const double *cosines, const double *sines,
                    double *D)
{
    const int64_t n = 2 * l + 1;
    for (int64_t i = 0; i < n; i++, K += n, D += n)
        for (int64_t j = 0; j < n; j++)
            D[j] = K[j] * cosines[j - l] + K[n - 1 - j] * sines[j - l];
}

static void combine_all(const Work *w, const Room *room, int64_t i)
{
    const double *K = room->K + i * w->n_entries;
    const double *const cosines = room->cosines + i * count_waves(w) + w->lmax;
    const double *const sines = room->sines + i * count_waves(w) + w->lmax;
    double *D = room->D;
    for (int64_t l = 0; l <= w->lmax; l++) {
        switch (l) { /* those that occur, with loops of constant length */
#define CASE(l)                                                                                   \
    case l:                                                                                       \
        combine(l, K, cosines, sines, D);                                                         \
        break;
            CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
        default:
            combine(l, K, cosines, sines, D);
        }
        K += (2 * l + 1) * (2 * l + 1);
        D += (2 * l + 1) * (2 * l + 1);
    }
}

static void store_frame(const Work *w, const Room *room, int64_t e)
{
    float *const few = (float *)w->out + e * w->n_entries;
    for (int64_t k = 0; w->is_single && k < w->n_entries; k++)
        few[k] = room->D[k];
    if (!w->is_single)
        memcpy((double *)w->out + e * w->n_entries, room->D, w->n_entries * sizeof(double));
}

void build(const Work *w, int64_t *counter, double *memory)
{
    const int64_t n = w->n_entries, n_waves = count_waves(w);
    Room room;
    make_room(w, memory, &room);
    for (int64_t e; (e = TILE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->n_edges;) {
        const int64_t count = smaller(TILE, w->n_edges - e);
        for (int64_t i = 0; i < count; i++)
            measure(w, w->vectors + 3 * (e + i), &room, i);
        const Product p = {.a = room.waves, .b = w->table, .out = room.K, .rows = count,
                           .depth = n_waves, .width = n, .a_row = n_waves, .a_step = 1,
                           .b_row = n, .out_row = n};
        multiply(&p);
        for (int64_t i = 0; i < count; i++) {
            combine_all(w, &room, i);
            store_frame(w, &room, e + i);
        }
    }
}
