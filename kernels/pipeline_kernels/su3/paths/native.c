/* Products of links along paths and their derivative (see the package), float or double (macro
 * REAL), for N = 2 or 3 colours (macro N). Stands on fields.c.
 *
 * All links of LANES samples are copied to a field of vectors, so that any link is read as it lies,
 * whatever the table says.
 */
typedef struct {
    const int64_t *table;   /* (length, n_places, n_paths) */
    const uint8_t *adjoint; /* (length, n_paths) */
    int64_t batch, n_links, length, n_places, n_paths;
} Paths;

/* ---- products ---- */

static void multiply(vec *out, const vec *a, int adjoint_a, const vec *b, int adjoint_b)
{
    if (adjoint_a)
        adjoint_b ? multiply_as(out, a, 1, b, 1, 0) : multiply_as(out, a, 1, b, 0, 0);
    else
        adjoint_b ? multiply_as(out, a, 0, b, 1, 0) : multiply_as(out, a, 0, b, 0, 0);
}

INLINE void copy(vec *out, const vec *a, int adjoint)
{
    if (!adjoint) {
        memcpy(out, a, NUMBERS * sizeof(vec));
        return;
    }
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        out[2 * (N * i + j)] = a[2 * (N * j + i)];
        out[2 * (N * i + j) + 1] = -a[2 * (N * j + i) + 1];
    }
}

INLINE void add(vec *out, const vec *a, int adjoint)
{
    vec own[NUMBERS];
    copy(own, a, adjoint);
    UNROLLED for (int i = 0; i < NUMBERS; i++) out[i] += own[i];
}

/* ---- one path ---- */

typedef struct {
    const vec *link;
    int64_t number;
    int adjoint;
} Step;

INLINE Step step_of(const Paths *paths, const vec *field, int64_t i, int64_t a, int64_t p)
{
    const int64_t number = paths->table[(i * paths->n_places + a) * paths->n_paths + p];
    return (Step){field + number * NUMBERS, number, paths->adjoint[i * paths->n_paths + p]};
}

/* The first i + 1 factors multiplied, for each i below `count`. */
static void multiply_out(const Paths *paths, const vec *field, int64_t a, int64_t p, int64_t count,
                         vec *products)
{
    for (int64_t i = 0; i < count; i++) {
        const Step step = step_of(paths, field, i, a, p);
        if (i == 0)
            copy(products, step.link, step.adjoint);
        else
            multiply(products + i * NUMBERS, products + (i - 1) * NUMBERS, 0, step.link,
                     step.adjoint);
    }
}

/* Adds to `grads` what the derivative `by` by a product amounts to; `work` holds length + 3
 * matrices. */
static void spread(const Paths *paths, const vec *field, int64_t a, int64_t p, const vec *by,
                   vec *grads, vec *work)
{
    const int64_t length = paths->length;
    vec *before = work, *by_link = work + length * NUMBERS;
    vec *rest = by_link + NUMBERS, *next = rest + NUMBERS;
    multiply_out(paths, field, a, p, length - 1, before);
    memcpy(rest, by, NUMBERS * sizeof(vec));
    for (int64_t i = length - 1; i >= 0; i--) {
        const Step step = step_of(paths, field, i, a, p);
        if (i == 0) {
            add(grads + step.number * NUMBERS, rest, step.adjoint);
            return;
        }
        multiply(by_link, before + (i - 1) * NUMBERS, 1, rest, 0);
        add(grads + step.number * NUMBERS, by_link, step.adjoint);
        multiply(next, rest, 0, step.link, !step.adjoint);
        memcpy(rest, next, NUMBERS * sizeof(vec));
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next samples from the
 * counter that they share. */

#define FOR_BLOCKS                                                                                \
    for (int64_t first;                                                                           \
         (first = __atomic_fetch_add(counter, LANES, __ATOMIC_RELAXED)) < paths->batch;)

int64_t n_lanes(void) { return LANES; }

/* Bytes that a call needs. */
int64_t memory_size(const Paths *paths, int64_t gradient)
{
    const int64_t out = paths->n_places * paths->n_paths;
    const int64_t matrices = (gradient ? 2 : 1) * paths->n_links + out + paths->length + 3;
    return BYTES * (1 + matrices * NUMBERS);
}

static vec *aligned(void *memory)
{
    return (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

void path_products(const REAL *links, REAL *out, const Paths *paths, int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS, length = paths->length;
    const int64_t n_products = paths->n_places * paths->n_paths, n_out = n_products * NUMBERS;
    vec *field = aligned(memory), *result = field + n_in, *work = result + n_out;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, paths->batch - first);
        pack(field, links + first * n_in, n_in, n_in, n);
        for (int64_t i = 0; i < n_products; i++) {
            multiply_out(paths, field, i / paths->n_paths, i % paths->n_paths, length, work);
            memcpy(result + i * NUMBERS, work + (length - 1) * NUMBERS, NUMBERS * sizeof(vec));
        }
        unpack(out + first * n_out, result, n_out, n_out, n);
    }
}

void path_gradient(const REAL *links, const REAL *by_out, REAL *by_links, const Paths *paths,
                   int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS;
    const int64_t n_products = paths->n_places * paths->n_paths, n_out = n_products * NUMBERS;
    vec *field = aligned(memory), *grads = field + n_in, *by = grads + n_in, *work = by + n_out;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, paths->batch - first);
        pack(field, links + first * n_in, n_in, n_in, n);
        pack(by, by_out + first * n_out, n_out, n_out, n);
        memset(grads, 0, n_in * sizeof(vec));
        for (int64_t i = 0; i < n_products; i++)
            spread(paths, field, i / paths->n_paths, i % paths->n_paths, by + i * NUMBERS, grads,
                   work);
        unpack(by_links + first * n_in, grads, n_in, n_in, n);
    }
}
