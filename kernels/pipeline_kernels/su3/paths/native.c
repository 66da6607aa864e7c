/* Products of links along paths and their derivative (see the package), float or double (macro
 * REAL), for N = 2 or 3 colours (macro N). Stands on fields.c.
 *
 * LANES places of one sample are the lanes: their links are gathered, number by number of the table,
 * from what the caches hold of the sample, and derivatives are added to it one lane after another.
 * A lane may name the link of another.
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

INLINE Factor adjoint_of(Factor a) { return (Factor){a.matrix, !a.adjoint}; }

INLINE void copy(vec *out, Factor a)
{
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        const vec *x = a.matrix + 2 * (a.adjoint ? N * j + i : N * i + j);
        out[2 * (N * i + j)] = x[0];
        out[2 * (N * i + j) + 1] = a.adjoint ? -x[1] : x[1];
    }
}

/* ---- matrices of LANES places ---- */

/* The matrices that lie so many numbers behind `x`. */
INLINE void gather(vec *to, const REAL *x, const int64_t *behind)
{
    int64_t begin = 0;
    UNROLLED for (; begin + LANES <= NUMBERS; begin += LANES)
    {
        vec rows[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) rows[l] = *(const loose *)(x + behind[l] + begin);
        transpose(rows);
        UNROLLED for (int l = 0; l < LANES; l++) to[begin + l] = rows[l];
    }
    UNROLLED for (; begin < NUMBERS; begin++)
        UNROLLED for (int l = 0; l < LANES; l++) to[begin][l] = x[behind[l] + begin];
}

/* Adds the first n, one after the other: two may be one. */
INLINE void add_to(REAL *x, const int64_t *behind, const vec *from, int64_t n)
{
    REAL rows[LANES][NUMBERS];
    unpack(rows[0], from, NUMBERS, NUMBERS, LANES);
    for (int64_t l = 0; l < n; l++) {
        REAL *to = x + behind[l];
        int64_t i = 0;
        UNROLLED for (; i + LANES <= NUMBERS; i += LANES)
            *(loose *)(to + i) += *(const loose *)(rows[l] + i);
        UNROLLED for (; i < NUMBERS; i++) to[i] += rows[l][i];
    }
}

/* ---- one path from n places on ---- */

typedef struct {
    int64_t a, n, p; /* the first place, how many, the path */
} Bundle;

/* How many numbers behind the first link of a sample the links of a bundle lie, LANES of each
 * factor; lanes beyond n repeat the first one. */
static void find(int64_t *behind, const Paths *paths, Bundle b)
{
    for (int64_t i = 0; i < paths->length; i++) {
        const int64_t *numbers = paths->table + (i * paths->n_places + b.a) * paths->n_paths + b.p;
        for (int64_t l = 0; l < LANES; l++)
            behind[i * LANES + l] = numbers[(l < b.n ? l : 0) * paths->n_paths] * NUMBERS;
    }
}

static void gather_all(vec *factors, const Paths *paths, const REAL *sample, const int64_t *behind)
{
    for (int64_t i = 0; i < paths->length; i++)
        gather(factors + i * NUMBERS, sample, behind + i * LANES);
}

INLINE Factor factor_of(const Paths *paths, const vec *factors, int64_t i, int64_t p)
{
    return (Factor){factors + i * NUMBERS, paths->adjoint[i * paths->n_paths + p]};
}

/* Products of the first i + 1 factors, to `products` in place i; the first is not copied. Return
 * the last. */
static Factor multiply_out(vec *products, const Paths *paths, const vec *factors, int64_t n,
                           int64_t p)
{
    Factor before = factor_of(paths, factors, 0, p);
    for (int64_t i = 1; i < n; i++) {
        multiply(products + i * NUMBERS, before, factor_of(paths, factors, i, p));
        before = (Factor){products + i * NUMBERS, 0};
    }
    return before;
}

/* Adds to the derivatives by a sample's links, `grads`, what the derivative `by` by products amounts
 * to. `products` has room for length + 3 matrices. */
static void spread(const Paths *paths, const vec *factors, REAL *grads, const int64_t *behind,
                   const vec *by, Bundle b, vec *products)
{
    const int64_t length = paths->length, p = b.p;
    vec *two = products + length * NUMBERS, *grad = two + 2 * NUMBERS;
    multiply_out(products, paths, factors, length - 1, p);
    Factor rest = {by, 0};
    for (int64_t i = length - 1; i > 0; i--) {
        const Factor own = factor_of(paths, factors, i, p);
        const Factor before = i > 1 ? (Factor){products + (i - 1) * NUMBERS, 0}
                                    : factor_of(paths, factors, 0, p);
        if (own.adjoint)
            multiply(grad, adjoint_of(rest), before);
        else
            multiply(grad, adjoint_of(before), rest);
        add_to(grads, behind + i * LANES, grad, b.n);
        vec *next = two + i % 2 * NUMBERS;
        multiply(next, rest, adjoint_of(own));
        rest = (Factor){next, 0};
    }
    rest.adjoint = paths->adjoint[p];
    copy(grad, rest);
    add_to(grads, behind, grad, b.n);
}

/* ---- what comes next ----
 *
 * Prefetched: the processor cannot predict scattered reads. */

enum { LINE = 64 / sizeof(REAL) };

/* A part of some numbers. */
INLINE void prefetch(const REAL *from, int64_t n_numbers, int64_t part, int64_t n_parts)
{
    for (int64_t i = n_numbers * part / n_parts; i < n_numbers * (part + 1) / n_parts; i += LINE)
        __builtin_prefetch(from + i, 0, 2);
}

/* Products of the next places, a part for each path, and links of the next sample, a part for each
 * bundle. */
INLINE void look_ahead(const Paths *paths, const REAL *links, int64_t next, const REAL *products,
                       Bundle b)
{
    const int64_t n_in = paths->n_links * NUMBERS, n_place = paths->n_paths * NUMBERS;
    const int64_t n_blocks = (paths->n_places + LANES - 1) / LANES;
    prefetch(products + (b.a + LANES) * n_place,
             smaller(LANES, paths->n_places - b.a - LANES) * n_place, b.p, paths->n_paths);
    if (next < paths->batch)
        prefetch(links + next * n_in, n_in, b.a / LANES * paths->n_paths + b.p,
                 n_blocks * paths->n_paths);
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next sample from the counter
 * that they share, before it begins with the one that it has. */

#define TAKE() __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)
#define FOR_SAMPLES                                                                               \
    for (int64_t sample = TAKE(), next; sample < paths->batch && ((next = TAKE()), 1); sample = next)
#define FOR_BUNDLES(b)                                                                            \
    for (Bundle b = {0, 0, 0};                                                                    \
         b.a < paths->n_places && (b.n = smaller(LANES, paths->n_places - b.a)); b.a += LANES)    \
        for (b.p = 0; b.p < paths->n_paths; b.p++)

int64_t n_lanes(void) { return LANES; }

/* Memory of a call. */
typedef struct {
    int64_t *behind;
    vec *one, *factors, *products;
} Room;

static Room divide(const Paths *paths, void *memory)
{
    vec *one = aligned(memory), *factors = one + NUMBERS;
    vec *products = factors + paths->length * NUMBERS;
    return (Room){(int64_t *)(products + (paths->length + 3) * NUMBERS), one, factors, products};
}

/* Bytes that a call needs. */
int64_t memory_size(const Paths *paths)
{
    const int64_t behind = paths->length * LANES * sizeof(int64_t);
    return behind + BYTES * (1 + (2 * paths->length + 4) * NUMBERS);
}

void path_products(const REAL *links, REAL *out, const Paths *paths, int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS, n_place = paths->n_paths * NUMBERS;
    const Room room = divide(paths, memory);
    FOR_SAMPLES
    FOR_BUNDLES(b)
    {
        REAL *to = out + sample * paths->n_places * n_place;
        look_ahead(paths, links, next, to, b);
        find(room.behind, paths, b);
        gather_all(room.factors, paths, links + sample * n_in, room.behind);
        copy(room.one, multiply_out(room.products, paths, room.factors, paths->length, b.p));
        unpack(to + b.a * n_place + b.p * NUMBERS, room.one, NUMBERS, n_place, b.n);
    }
}

void path_gradient(const REAL *links, const REAL *by_out, REAL *by_links, const Paths *paths,
                   int64_t *counter, void *memory)
{
    const int64_t n_in = paths->n_links * NUMBERS, n_place = paths->n_paths * NUMBERS;
    const Room room = divide(paths, memory);
    FOR_SAMPLES
    {
        REAL *grads = by_links + sample * n_in;
        memset(grads, 0, n_in * sizeof(REAL));
        FOR_BUNDLES(b)
        {
            const REAL *from = by_out + sample * paths->n_places * n_place;
            look_ahead(paths, links, next, from, b);
            int64_t places[LANES];
            for (int64_t l = 0; l < LANES; l++)
                places[l] = (l < b.n ? l : 0) * n_place;
            gather(room.one, from + b.a * n_place + b.p * NUMBERS, places);
            find(room.behind, paths, b);
            gather_all(room.factors, paths, links + sample * n_in, room.behind);
            spread(paths, room.factors, grads, room.behind, room.one, b, room.products);
        }
    }
}
