/* Products of a tall matrix (see __init__.py), float or double (macro REAL). After products.c.
 *
 * Every thread makes the same call and takes the next piece from the counter that they share.
 */
#define PANEL (COLUMNS * LANES)
#define ROWS (2 * TILE_ROWS) /* of a piece of `multiply_rows` */
#define DEEP 256             /* rows whose products are summed before the next ones */
#define LARGE (1 << 20)      /* bytes of a result that leaves the fast caches anyway */

typedef struct {
    const REAL *a, *b;
    REAL *out;
    int64_t n_rows, depth, width; /* of a: rows, columns; of the other: columns */
    int64_t across, down;         /* into how many pieces a sum is cut */
} Work;

int64_t count_columns(void) { return PANEL; }
int64_t count_rows(void) { return TILE_ROWS; }

typedef struct {
    const REAL *from;
    REAL *out;
    int64_t depth, width, row, step; /* distances in `from` of rows, of columns */
} Layout;

/* Lays a matrix out as panels of columns, the last filled with zeros, a panel in each piece. */
void lay_panels(const Layout *l, int64_t *counter)
{
    for (int64_t c; (c = PANEL * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < l->width;) {
        REAL *panel = l->out + c * l->depth;
        const int64_t n = smaller(PANEL, l->width - c);
        if (n < PANEL)
            memset(panel, 0, PANEL * l->depth * sizeof(REAL));
        for (int64_t k = 0; l->step == 1 && k < l->depth; k++)
            memcpy(panel + k * PANEL, l->from + k * l->row + c, n * sizeof(REAL));
        for (int64_t i = 0; l->step != 1 && i < n; i++)
            for (int64_t k = 0; k < l->depth; k++)
                panel[k * PANEL + i] = l->from[k * l->row + (c + i) * l->step];
    }
}

/* out = a b, where b lies as panels. */
void multiply_rows(const Work *w, int64_t *counter)
{
    const int is_aligned = (uintptr_t)w->out % BYTES == 0 && w->width % LANES == 0;
    const int64_t streams = is_aligned && w->n_rows * w->width * (int64_t)sizeof(REAL) > LARGE;
    for (int64_t r; (r = ROWS * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->n_rows;)
        for (int64_t c = 0; c < w->width; c += PANEL) {
            const Product p = {.a = w->a + r * w->depth, .b = w->b + c * w->depth,
                               .out = w->out + r * w->width + c,
                               .rows = smaller(ROWS, w->n_rows - r), .depth = w->depth,
                               .width = smaller(PANEL, w->width - c), .a_row = w->depth,
                               .a_step = 1, .b_row = PANEL, .out_row = w->width,
                               .streams = streams};
            multiply(&p);
        }
    finish_streams();
}

/* out = a^T b, a part of the rows and columns of the result in each piece. */
void sum_rows(const Work *w, int64_t *counter)
{
    const int64_t n_panels = (w->width + PANEL - 1) / PANEL;
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->across * w->down;) {
        const int64_t x = i % w->across, y = i / w->across;
        const int64_t c = x * n_panels / w->across * PANEL, r = y * w->depth / w->down;
        const int64_t end = smaller((x + 1) * n_panels / w->across * PANEL, w->width);
        Product p = {.a = w->a + r, .b = w->b + c, .out = w->out + r * w->width + c,
                     .rows = (y + 1) * w->depth / w->down - r, .width = end - c, .a_row = 1,
                     .a_step = w->depth, .b_row = w->width, .start_row = w->width,
                     .out_row = w->width};
        for (int64_t k = 0; k == 0 || k < w->n_rows; k += DEEP) {
            p.depth = smaller(DEEP, w->n_rows - k);
            multiply(&p);
            p.start = p.out;
            p.a += p.depth * w->depth;
            p.b += p.depth * w->width;
        }
    }
}
