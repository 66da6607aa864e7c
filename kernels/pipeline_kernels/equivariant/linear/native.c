/* Linear maps of equivariant features (see __init__.py), float or double (macro REAL). After
 * products.c.
 *
 * A block of weights maps one representation: C channels to D, or D to C where it is transposed.
 * Blocks count by group, degree and representation. Every thread makes the same call and takes the
 * next piece from the counter that they share.
 */
#define PANEL (COLUMNS * LANES)
#define DEEP 128 /* rows whose products are summed before the next ones */

typedef struct {
    const REAL *x, *g;
    REAL *out, *panels;
    REAL *const *weights;   /* of each degree: (groups, count C, D) */
    const int64_t *offsets; /* of the groups of rows */
    const int64_t *counts;  /* representations of each degree */
    const double *factors;  /* of each degree */
    const REAL *bias;       /* of degree 0, or null */
    int64_t n_groups, n_degrees, n_blocks; /* of a group */
    int64_t C, D, dim_in, is_transposed;
} Work;

/* One representation: its degree, its number in it, its first component among those that come in. */
typedef struct {
    int64_t degree, number, row;
} Block;

int64_t count_columns(void) { return PANEL; }

static Block find_block(const Work *w, int64_t i)
{
    Block b = {0, i, 0};
    while (b.number >= w->counts[b.degree]) {
        b.row += w->counts[b.degree] * (2 * b.degree + 1);
        b.number -= w->counts[b.degree++];
    }
    b.row += b.number * (2 * b.degree + 1);
    return b;
}

static REAL *find_weights(const Work *w, Block b, int64_t group)
{
    return w->weights[b.degree] + (group * w->counts[b.degree] + b.number) * w->C * w->D;
}

INLINE int64_t count_panels(int64_t width) { return (width + PANEL - 1) / PANEL; }

/* Lays each block out as panels of columns, times its factor, the last filled with zeros. */
void lay_panels(const Work *w, int64_t *counter)
{
    const int64_t depth = w->is_transposed ? w->D : w->C, width = w->is_transposed ? w->C : w->D;
    const int64_t n_blocks = w->n_groups * w->n_blocks;
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_blocks;) {
        const Block b = find_block(w, i % w->n_blocks);
        const REAL *from = find_weights(w, b, i / w->n_blocks);
        const REAL factor = (REAL)w->factors[b.degree];
        for (int64_t c = 0; c < width; c += PANEL) {
            REAL *panel = w->panels + (i * count_panels(width) * PANEL + c) * depth;
            const int64_t n = smaller(PANEL, width - c);
            if (n < PANEL)
                memset(panel, 0, PANEL * depth * sizeof(REAL));
            for (int64_t k = 0; !w->is_transposed && k < depth; k++)
                for (int64_t j = 0; j < n; j++)
                    panel[k * PANEL + j] = factor * from[k * width + c + j];
            for (int64_t j = 0; w->is_transposed && j < n; j++)
                for (int64_t k = 0; k < depth; k++)
                    panel[k * PANEL + j] = factor * from[(c + j) * depth + k];
        }
    }
}

/* out = x W for all components of a block: of a few rows those of one row are the rows of a
 * product, of many rows a component is. */
INLINE void multiply_block(Product p, int64_t n_rows, int64_t a_move, int64_t out_move,
                           int64_t n_components)
{
    const int64_t a_row = p.a_row, out_row = p.out_row, is_few = n_rows < n_components;
    p.rows = is_few ? n_components : n_rows;
    p.a_row = is_few ? a_move : a_row;
    p.out_row = is_few ? out_move : out_row;
    for (int64_t i = 0; i < (is_few ? n_rows : n_components); i++) {
        p.start_row = p.start == p.out ? p.out_row : 0;
        multiply(&p);
        p.a += is_few ? a_row : a_move;
        p.out += is_few ? out_row : out_move;
        p.start = p.start ? p.out : 0; /* the bias has one component */
    }
}

/* Rows of one group, from `first` on. */
static void map_group(const Work *w, int64_t group, int64_t first, int64_t n_rows)
{
    const int64_t transposed = w->is_transposed, dim_out = w->n_degrees * w->n_degrees;
    const int64_t depth = transposed ? w->D : w->C, width = transposed ? w->C : w->D;
    const int64_t a_row = (transposed ? dim_out : w->dim_in) * depth;
    const int64_t out_row = (transposed ? w->dim_in : dim_out) * width;
    const int64_t size = count_panels(width) * PANEL * depth;
    int64_t used = 0;
    for (int64_t i = 0; i < w->n_blocks; i++) {
        const Block b = find_block(w, i);
        const int64_t square = b.degree * b.degree, n_components = 2 * b.degree + 1;
        const REAL *a = w->x + first * a_row + (transposed ? square : b.row) * depth;
        REAL *out = w->out + first * out_row + (transposed ? b.row : square) * width;
        const REAL *panels = w->panels + (group * w->n_blocks + i) * size;
        used = b.row + n_components;
        for (int64_t c = 0; c < width; c += PANEL) {
            const REAL *sums = b.number ? out + c : i == 0 && w->bias ? w->bias + c : 0;
            const Product p = {.a = a, .b = panels + c * depth, .out = out + c,
                               .start = transposed ? 0 : sums,
                               .depth = depth, .width = smaller(PANEL, width - c),
                               .a_row = a_row, .a_step = 1, .b_row = PANEL, .out_row = out_row};
            multiply_block(p, n_rows, depth, width, n_components);
        }
    }
    for (int64_t r = first; transposed && r < first + n_rows; r++)
        memset(w->out + r * out_row + used * width, 0, (w->dim_in - used) * width * sizeof(REAL));
}

void map_rows(const Work *w, int64_t *counter)
{
    for (int64_t piece; (piece = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) >= 0;) {
        int64_t group = 0, n_pieces = 0;
        for (; group < w->n_groups; group++, piece -= n_pieces) {
            n_pieces = (w->offsets[group + 1] - w->offsets[group] + TILE_ROWS - 1) / TILE_ROWS;
            if (piece < n_pieces)
                break;
        }
        if (group == w->n_groups)
            return;
        const int64_t first = w->offsets[group] + piece * TILE_ROWS;
        map_group(w, group, first, smaller(TILE_ROWS, w->offsets[group + 1] - first));
    }
}

/* weights = a sum of x^T g over the rows of their group, a part of the rows of a block a piece. */
void sum_rows(const Work *w, int64_t *counter)
{
    const int64_t C = w->C, D = w->D, dim_out = w->n_degrees * w->n_degrees;
    const int64_t n_parts = (C + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t n_pieces = w->n_groups * w->n_blocks * n_parts;
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_pieces;) {
        const int64_t part = i % n_parts, group = i / n_parts / w->n_blocks;
        const Block b = find_block(w, i / n_parts % w->n_blocks);
        const int64_t r = part * C / n_parts, n_rows = (part + 1) * C / n_parts - r;
        const int64_t end = w->offsets[group + 1];
        REAL *out = find_weights(w, b, group) + r * D;
        Product p = {.out = out, .rows = n_rows, .width = D, .a_row = 1, .a_step = w->dim_in * C,
                     .b_row = dim_out * D, .start_row = D, .out_row = D};
        for (int64_t k = w->offsets[group]; k < end; k += DEEP)
            for (int64_t m = 0; m < 2 * b.degree + 1; m++) {
                p.a = w->x + (k * w->dim_in + b.row + m) * C + r;
                p.b = w->g + (k * dim_out + b.degree * b.degree + m) * D;
                p.depth = smaller(DEEP, end - k);
                multiply(&p);
                p.start = out;
            }
        const REAL factor = p.start ? (REAL)w->factors[b.degree] : 0;
        for (int64_t j = 0; j < n_rows * D; j++)
            out[j] = p.start ? factor * out[j] : 0;
    }
}
