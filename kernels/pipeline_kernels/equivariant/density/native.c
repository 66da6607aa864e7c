/* The density of atoms around the middle of edges (see __init__.py), in double precision. After
 * products.c and sigmoid.c.
 *
 * Of one edge after the other, atoms of one kind at a time: each is a lane of what calculates
 * harmonics, and one term of a product of matrices, harmonics by functions of the distance. Every
 * thread makes the same call, with memory of its own, and takes the next edges from the counter that
 * they share.
 */
#define PIECE 16 /* edges */

typedef struct {
    const double *vectors, *norms; /* (lmax + 1, lmax + 1) of harmonics */
    const int64_t *kinds, *index, *order, *offsets; /* order may be null */
    void *out;
    int64_t n_edges, most; /* edges, and those of one receiver at most */
    int64_t lmax, n_functions, n_kinds, is_single;
    double cutoff, width, softening;
} Work;

/* Of the atoms of a kind, padded to whole vectors; harmonics by component, functions by atom. */
typedef struct {
    double *squares, *x, *y, *z, *cosine, *sine, *below, *legendre;
    double *harmonics, *functions, *sums;
    int64_t *near;
    int64_t stride;
} Room;

static int64_t count_components(const Work *w) { return (w->lmax + 1) * (w->lmax + 1); }

static int64_t make_room(const Work *w, double *memory, Room *room)
{
    const int64_t n = (w->most + LANES - 1) / LANES * LANES;
    double **const lists[] = {&room->squares, &room->x, &room->y, &room->z,
                              &room->cosine, &room->sine, &room->below, &room->legendre};
    double *next = memory;
    for (int i = 0; i < 8; i++, next += n)
        *lists[i] = next;
    room->near = (int64_t *)next;
    room->harmonics = next + n;
    room->functions = room->harmonics + n * count_components(w);
    room->sums = room->functions + n * w->n_functions;
    room->stride = n;
    return room->sums + count_components(w) * w->n_kinds * w->n_functions - memory;
}

int64_t memory_size(const Work *w)
{
    Room room;
    return make_room(w, 0, &room);
}

INLINE int64_t find(const Work *w, int64_t k) { return w->order ? w->order[k] : k; }

/* List the edges whose senders are near the middle of edge e; return how many. */
static int64_t find_near(const Work *w, const Room *room, int64_t e)
{
    const int64_t first = w->offsets[w->index[e]], count = w->offsets[w->index[e] + 1] - first;
    const double *const v = w->vectors + 3 * e, most = w->cutoff * w->cutoff;
    for (int64_t k = 0; k < count; k++) {
        const double *const u = w->vectors + 3 * find(w, first + k);
        const double x = u[0] - 0.5 * v[0], y = u[1] - 0.5 * v[1], z = u[2] - 0.5 * v[2];
        room->squares[k] = x * x + y * y + z * z;
    }
    int64_t n = 0;
    for (int64_t k = 0; k < count; k++) {
        room->near[n] = find(w, first + k);
        n += (room->squares[k] < most) & (room->near[n] != e);
    }
    return n;
}

/* Gaussians of one atom at t from the first centre, as many functions at once as there are lanes. */
static void expand(const Work *w, double t, double factor, double *out)
{
    loose number;
    for (int64_t i = 0; i < LANES; i++)
        number[i] = i;
    for (int64_t n = 0; n < w->n_functions; n += LANES) {
        const vec u = t - (double)n - number;
        store_channels(out + n, factor * exponential(-0.5 * u * u),
                       smaller(LANES, w->n_functions - n));
    }
}

/* Put the atoms of one kind, seen from the middle of edge e, into the room: directions and
 * functions of the distance; return how many. */
static int64_t gather(const Work *w, const Room *room, int64_t e, int64_t kind, int64_t n_near)
{
    const double *const v = w->vectors + 3 * e;
    int64_t n = 0;
    for (int64_t i = 0; i < n_near; i++) {
        const int64_t other = room->near[i];
        if (w->kinds[other] != kind)
            continue;
        const double *const u = w->vectors + 3 * other;
        const double x = u[0] - 0.5 * v[0], y = u[1] - 0.5 * v[1], z = u[2] - 0.5 * v[2];
        const double square = x * x + y * y + z * z;
        const double length = __builtin_sqrt(square + w->softening * w->softening);
        const double fading = 1 - square / (w->cutoff * w->cutoff);
        room->x[n] = x / length, room->y[n] = y / length, room->z[n] = z / length;
        expand(w, (length - w->softening) / w->width, fading * fading,
               room->functions + n * w->n_functions);
        n++;
    }
    return n;
}

#define EACH_VECTOR(i) for (int64_t i = 0; i < n; i += LANES)
#define AT(list) (*(loose *)((list) + i))

/* Harmonics of the first n directions, as `solid_harmonics` has them. */
static void evaluate(const Work *w, const Room *r, int64_t n)
{
    EACH_VECTOR(i)
    {
        AT(r->squares) = AT(r->x) * AT(r->x) + AT(r->y) * AT(r->y) + AT(r->z) * AT(r->z);
        AT(r->cosine) = (loose){0} + 1;
        AT(r->sine) = (loose){0};
    }
    for (int64_t m = 0; m <= w->lmax; m++) {
        EACH_VECTOR(i)
        {
            const loose cosine = AT(r->cosine), sine = AT(r->sine);
            if (m) {
                AT(r->cosine) = AT(r->x) * cosine - AT(r->y) * sine;
                AT(r->sine) = AT(r->x) * sine + AT(r->y) * cosine;
            }
            AT(r->below) = (loose){0};
            AT(r->legendre) = (loose){0} + 1;
        }
        for (int64_t l = m; l <= w->lmax; l++) {
            double *const plus = r->harmonics + (l * (l + 1) + m) * r->stride;
            double *const minus = r->harmonics + (l * (l + 1) - m) * r->stride;
            const double a = 2 * l - 1, b = l + m - 1, c = l > m ? 1.0 / (l - m) : 0;
            const double norm = w->norms[l * (w->lmax + 1) + m];
            EACH_VECTOR(i)
            {
                loose legendre = AT(r->legendre);
                if (l > m) {
                    const loose above =
                        (a * AT(r->z) * legendre - b * AT(r->squares) * AT(r->below)) * c;
                    AT(r->below) = legendre;
                    AT(r->legendre) = legendre = above;
                }
                if (m)
                    AT(minus) = norm * legendre * AT(r->sine);
                AT(plus) = norm * legendre * AT(r->cosine);
            }
        }
    }
}

static void project(const Work *w, const Room *room, int64_t e)
{
    const int64_t dim = count_components(w), width = w->n_kinds * w->n_functions;
    const int64_t n_near = find_near(w, room, e);
    for (int64_t kind = 0; kind < w->n_kinds; kind++) {
        const int64_t n = gather(w, room, e, kind, n_near);
        evaluate(w, room, n);
        const Product sum = {.a = room->harmonics, .b = room->functions,
                             .out = room->sums + kind * w->n_functions, .rows = dim, .depth = n,
                             .width = w->n_functions, .a_row = room->stride, .a_step = 1,
                             .b_row = w->n_functions, .out_row = width};
        multiply(&sum);
    }
    const int64_t begin = e * dim * width;
    for (int64_t i = 0; w->is_single && i < dim * width; i++)
        ((float *)w->out)[begin + i] = room->sums[i];
    if (!w->is_single)
        memcpy((double *)w->out + begin, room->sums, dim * width * sizeof(double));
}

void project_edges(const Work *w, int64_t *counter, double *memory)
{
    Room room;
    make_room(w, memory, &room);
    for (int64_t piece;
         (piece = PIECE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->n_edges;)
        for (int64_t e = piece; e < smaller(piece + PIECE, w->n_edges); e++)
            project(w, &room, e);
}
