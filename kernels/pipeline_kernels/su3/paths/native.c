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

/* A factor: a matrix, or its adjoint. */
typedef struct {
    const vec *matrix;
    int adjoint;
} Factor;

static void multiply(vec *out, Factor a, Factor b)
{
    const vec *x = a.matrix, *y = b.matrix;
    if (a.adjoint)
        b.adjoint ? multiply_as(out, x, 1, y, 1, 0) : multiply_as(out, x, 1, y, 0, 0);
    else
        b.adjoint ? multiply_as(out, x, 0, y, 1, 0) : multiply_as(out, x, 0, y, 0, 0);
}

/* out += a b */
static void multiply_add(vec *out, Factor a, Factor b)
{
    const vec *x = a.matrix, *y = b.matrix;
    if (a.adjoint)
        b.adjoint ? multiply_as(out, x, 1, y, 1, 1) : multiply_as(out, x, 1, y, 0, 1);
    else
        b.adjoint ? multiply_as(out, x, 0, y, 1, 1) : multiply_as(out, x, 0, y, 0, 1);
}

INLINE Factor adjoint_of(Factor a) { return (Factor){a.matrix, !a.adjoint}; }

INLINE void add(vec *out, Factor a)
{
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        const vec *x = a.matrix + 2 * (a.adjoint ? N * j + i : N * i + j);
        out[2 * (N * i + j)] += x[0];
        out[2 * (N * i + j) + 1] += a.adjoint ? -x[1] : x[1];
    }
}

/* ---- one path ---- */

INLINE int64_t number_of(const Paths *paths, int64_t i, int64_t a, int64_t p)
{
    return paths->table[(i * paths->n_places + a) * paths->n_paths + p];
}

INLINE Factor factor_of(const Paths *paths, const vec *field, int64_t i, int64_t a, int64_t p)
{
    return (Factor){field + number_of(paths, i, a, p) * NUMBERS,
                    paths->adjoint[i * paths->n_paths + p]};
}

/* The product of all factors; `work` holds two matrices. */
static void multiply_out(const Paths *paths, const vec *field, int64_t a, int64_t p, vec *out,
                         vec *work)
{
    Factor before = factor_of(paths, field, 0, a, p);
    if (paths->length == 1) {
        memset(out, 0, NUMBERS * sizeof(vec));
        add(out, before);
    }
    for (int64_t i = 1; i < paths->length; i++) {
        vec *to = i == paths->length - 1 ? out : work + i % 2 * NUMBERS;
        multiply(to, before, factor_of(paths, field, i, a, p));
        before = (Factor){to, 0};
    }
}

/* Adds to `grads` what the derivative `by` by a product amounts to; `work` holds length + 2
 * matrices. */
static void spread(const Paths *paths, const vec *field, int64_t a, int64_t p, const vec *by,
                   vec *grads, vec *work)
{
    const int64_t length = paths->length;
    vec *two = work + length * NUMBERS;
    Factor before = factor_of(paths, field, 0, a, p), rest = {by, 0};
    for (int64_t i = 1; i < length - 1; i++) { /* products of the first i + 1 factors */
        multiply(work + i * NUMBERS, before, factor_of(paths, field, i, a, p));
        before = (Factor){work + i * NUMBERS, 0};
    }
    for (int64_t i = length - 1; i > 0; i--) {
        const Factor own = factor_of(paths, field, i, a, p);
        vec *to = grads + number_of(paths, i, a, p) * NUMBERS, *next = two + i % 2 * NUMBERS;
        before = i > 1 ? (Factor){work + (i - 1) * NUMBERS, 0} : factor_of(paths, field, 0, a, p);
        if (own.adjoint)
            multiply_add(to, adjoint_of(rest), before);
        else
            multiply_add(to, adjoint_of(before), rest);
        multiply(next, rest, adjoint_of(own));
        rest = (Factor){next, 0};
    }
    rest.adjoint = paths->adjoint[p];
    add(grads + number_of(paths, 0, a, p) * NUMBERS, rest);
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next samples from the
 * counter that they share. */

#define FOR_BLOCKS                                                                                \
    for (int64_t first;                                                                           \
         (first = __atomic_fetch_add(counter, LANES, __ATOMIC_RELAXED)) < paths->batch;)

int64_t n_lanes(void) { return LANES; }

/* Places whose products are moved between samples and lanes together: whole vectors of numbers. */
#define RUN 8

/* Bytes that a call needs. */
int64_t memory_size(const Paths *paths, int64_t gradient)
{
    const int64_t run = RUN * paths->n_paths;
    const int64_t matrices = (gradient ? 2 : 1) * paths->n_links + run + paths->length + 3;
    return BYTES * (1 + matrices * NUMBERS);
}

static vec *aligned(void *memory)
{
    return (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

void path_products(const REAL *links, REAL *out, const Paths *paths, int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS;
    const int64_t n_place = paths->n_paths * NUMBERS, n_out = paths->n_places * n_place;
    vec *field = aligned(memory), *result = field + n_in, *work = result + RUN * n_place;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, paths->batch - first);
        pack(field, links + first * n_in, n_in, n_in, n);
        for (int64_t begin = 0; begin < paths->n_places; begin += RUN) {
            const int64_t run = smaller(RUN, paths->n_places - begin);
            for (int64_t i = 0; i < run * paths->n_paths; i++)
                multiply_out(paths, field, begin + i / paths->n_paths, i % paths->n_paths,
                             result + i * NUMBERS, work);
            unpack(out + first * n_out + begin * n_place, result, run * n_place, n_out, n);
        }
    }
}

void path_gradient(const REAL *links, const REAL *by_out, REAL *by_links, const Paths *paths,
                   int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS;
    const int64_t n_place = paths->n_paths * NUMBERS, n_out = paths->n_places * n_place;
    vec *field = aligned(memory), *grads = field + n_in, *by = grads + n_in;
    vec *work = by + RUN * n_place;
    FOR_BLOCKS
    {
        const int64_t n = smaller(LANES, paths->batch - first);
        pack(field, links + first * n_in, n_in, n_in, n);
        memset(grads, 0, n_in * sizeof(vec));
        for (int64_t begin = 0; begin < paths->n_places; begin += RUN) {
            const int64_t run = smaller(RUN, paths->n_places - begin);
            pack(by, by_out + first * n_out + begin * n_place, run * n_place, n_out, n);
            for (int64_t i = 0; i < run * paths->n_paths; i++)
                spread(paths, field, begin + i / paths->n_paths, i % paths->n_paths,
                       by + i * NUMBERS, grads, work);
        }
        unpack(by_links + first * n_in, grads, n_in, n_in, n);
    }
}
