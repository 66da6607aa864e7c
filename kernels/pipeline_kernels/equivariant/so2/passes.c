/* Passes of a convolution over its edges (see products.py): operands of a tile of edges are made,
 * multiplied and forgotten. After native.c.
 *
 * A thread does all that a tile needs, in memory of its own, so that nothing waits for another
 * thread and what it makes stays in its cache. Tiles are taken in groups, whose number does not
 * depend on that of the threads: each group has its own sums over edges.
 */

/* Where a matrix lies: at an address, plus some elements for each edge before the tile; in the
 * memory of the thread, so many elements from its beginning; in room for the edges of this pass; or
 * at an address, plus some elements for each group before this one. */
enum { OF_EDGES, OF_THREAD, OF_PASS, OF_GROUP };

typedef struct {
    REAL *at;
    int64_t start, move, place;
} Operand;

typedef struct {
    Operand a, b, start, out; /* out = start + a b */
    int64_t rows, depth, width; /* -1: edges of the tile */
    int64_t a_row, a_step, b_row, start_row, out_row;
} Step;

/* Sums of the orders m and -m of the features of an edge, from one matrix to the other. */
typedef struct {
    Operand features, to;
    int64_t channels;
} Sum;

/* Features of which edges take rows, and the gradient by them. */
typedef struct {
    Work work;
    const REAL *x;
    REAL *by_x;    /* null: not here */
    int64_t first; /* of their channels among those of the operand */
} Table;

typedef struct {
    const Table *tables;
    const Sum *sums;
    const Step *steps;
    const REAL *frames, *factors; /* null: none */
    REAL *by_factors;             /* null: not wanted */
    Operand operand, gradient;    /* features by order; the gradient by them */
    int64_t n_tables, n_sums, n_steps, makes_operand, has_gradient;
    int64_t begin, end, n_tile, n_groups; /* edges of the pass, of a tile; groups of tiles */
} Pass;

typedef struct {
    int64_t first, count, group; /* edges */
    REAL *memory;
} Span;

INLINE REAL *find(const Operand *o, const Pass *p, const Span *t)
{
    switch (o->place) {
    case OF_THREAD:
        return t->memory + o->start;
    case OF_PASS:
        return o->at + o->start + (t->first - p->begin) * o->move;
    case OF_GROUP:
        return o->at + o->start + t->group * o->move;
    default:
        return o->at ? o->at + o->start + t->first * o->move : 0;
    }
}

/* ---- features that are in the frames of edges already ---- */

/* y = f x */
INLINE void scale_degree(const int l, const int64_t n, const REAL *x, const REAL *f, REAL *y,
                         const Work *work)
{
    UNROLLED
    for (int m = -l; m <= l; m++)
        if (place(l, m) >= 0) {
            const int64_t row = place(l, m) * work->channels;
            loose values = load_channels(x + row, n);
            if (f)
                values *= load_channels(f, n);
            store_channels(y + row, values, n);
        }
}

/* by_f = sum over components of g x */
INLINE void differentiate_scale(const int l, const int64_t n, const REAL *g, const REAL *x,
                                REAL *by_f, const Work *work)
{
    loose sum = {0};
    UNROLLED
    for (int m = -l; m <= l; m++)
        if (place(l, m) >= 0) {
            const int64_t row = place(l, m) * work->channels;
            sum += load_channels(g + row, n) * load_channels(x + row, n);
        }
    if (l > 0 && work->f_degree == 0)
        sum += load_channels(by_f, n);
    store_channels(by_f, sum, n);
}

static void scale_edge(const REAL *x, const REAL *f, REAL *y, const Work *work)
{
#define CALL(l) scale_degree(l, n, x + c, f ? f + l * work->f_degree + c : 0, y + c, work);
    CHANNELS(CALL)
#undef CALL
}

static void differentiate_factors(const REAL *g, const REAL *x, REAL *by_f, const Work *work)
{
#define CALL(l) differentiate_scale(l, n, g + c, x + c, by_f + l * work->f_degree + c, work);
    CHANNELS(CALL)
#undef CALL
}

/* ---- a tile ---- */

static void make_operand(const Pass *p, const Span *t)
{
    REAL *operand = find(&p->operand, p, t);
    for (const Table *table = p->tables; table < p->tables + p->n_tables; table++) {
        const Work *work = &table->work;
        for (int64_t e = t->first; e < t->first + t->count; e++) {
            const REAL *f = p->factors ? p->factors + e * work->f_edge + table->first : 0;
            REAL *y = operand + (e - t->first) * work->y_edge + table->first;
            if (p->frames)
                lift_edge(p->frames + e * ENTRIES, ROW(table->x, e), f, y, work);
            else
                scale_edge(table->x + e * work->y_edge, f, y, work);
        }
    }
}

static void multiply_step(const Step *s, const Pass *p, const Span *t)
{
    Product product = {.a = find(&s->a, p, t), .b = find(&s->b, p, t), .out = find(&s->out, p, t),
                       .rows = s->rows < 0 ? t->count : s->rows,
                       .depth = s->depth < 0 ? t->count : s->depth, .width = s->width,
                       .a_row = s->a_row, .a_step = s->a_step, .b_row = s->b_row,
                       .start_row = s->start_row, .out_row = s->out_row};
    product.start = find(&s->start, p, t);
    multiply(&product);
}

/* From the gradient by the operand, those by factors and by features of which each edge has its own
 * row; rows that several edges take wait for all of these. */
static void differentiate(const Pass *p, const Span *t)
{
    const REAL *gradient = find(&p->gradient, p, t);
    for (const Table *table = p->tables; table < p->tables + p->n_tables; table++) {
        const Work *work = &table->work;
        for (int64_t e = t->first; e < t->first + t->count; e++) {
            const REAL *D = p->frames ? p->frames + e * ENTRIES : 0;
            const REAL *g = gradient + (e - t->first) * work->y_edge + table->first;
            const int64_t first = e * work->f_edge + table->first;
            const REAL *f = p->factors ? p->factors + first : 0;
            if (p->by_factors && D)
                factor_edge(D, g, ROW(table->x, e), p->by_factors + first, work);
            else if (p->by_factors)
                differentiate_factors(g, table->x + e * work->y_edge, p->by_factors + first, work);
            if (table->by_x && D)
                lower_edge(D, g, f, table->by_x + e * DIM * work->channels, 0, work);
            else if (table->by_x)
                scale_edge(g, f, table->by_x + e * work->y_edge, work);
        }
    }
}

static void go_over_tile(const Pass *p, const Span *t)
{
    if (p->makes_operand)
        make_operand(p, t);
    for (const Sum *sum = p->sums; sum < p->sums + p->n_sums; sum++)
        for (int64_t e = 0; e < t->count; e++)
            add_orders(find(&sum->features, p, t), find(&sum->to, p, t), e, sum->channels);
    for (const Step *step = p->steps; step < p->steps + p->n_steps; step++)
        multiply_step(step, p, t);
    if (p->has_gradient)
        differentiate(p, t);
}

/* Every thread makes the same call and takes the next group from the counter that they share. */
void go_over(const Pass *p, int64_t *counter, REAL *memory)
{
    const int64_t n_tiles = (p->end - p->begin + p->n_tile - 1) / p->n_tile;
    for (int64_t group;
         (group = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < p->n_groups;) {
        const int64_t last = (group + 1) * n_tiles / p->n_groups;
        for (int64_t i = group * n_tiles / p->n_groups; i < last; i++) {
            const int64_t first = p->begin + i * p->n_tile;
            const Span span = {first, smaller(p->n_tile, p->end - first), group, memory};
            go_over_tile(p, &span);
        }
    }
}
