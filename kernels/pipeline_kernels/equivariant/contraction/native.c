/* Polynomials of the features of atoms and their derivatives (see __init__.py), float or double
 * (macro REAL).
 *
 * A piece of work is a chunk of atoms of one element and as many channels as a vector has lanes, so
 * that the coefficients of all terms stay in the first two levels of cache. ATOMS atoms go through
 * together: what is loaded of a coefficient or of a table serves all of them.
 *
 * With L_l the left factors, G_r = g_o x_k the right ones times the cotangent of their output, and
 * sums over terms t, which have one of each:
 *
 *     Q_r = sum c_t L_l(t)    the outputs are sum x_k Q_r, and g_o Q_r is a part of df/dx_k
 *     R_l = sum c_t G_r(t)    the derivative of f = sum_o g_o out_o by L_l
 *     L_l(t) G_r(t)           the derivative by c_t
 *
 * A prime below (d in names) is the change along a direction u of x.
 */
#define ATOMS (REGISTERS / 8) /* two sums for each, and what they are made of */
#define ALIGNMENT 64

/* Early enough that the arrays of sums become registers. */
#define UNROLLED _Pragma("GCC unroll 4")

enum { VALUE, BY_FEATURES, BY_COEFFICIENTS, TANGENTS };

typedef struct {
    int64_t n_inputs, n_outputs, n_pairs, n_rights, n_terms, n_lefts;
    const int32_t *pairs, *rights, *right_offsets, *term_left, *left_offsets, *left_terms;
} Polynomial;

typedef struct {
    const REAL *x, *c, *g, *u; /* features, coefficients, cotangent, direction */
    REAL *out, *by_x, *by_c;   /* what is calculated; by_c for each chunk */
    const int64_t *order, *chunks;
    int64_t n_chunks, n_channels;
} Arrays;

typedef struct {
    vec *left, *d_left, *right, *d_right, *g, *out, *by_x;
    vec *c, *c_by_left, *by_c; /* of terms: ordered by right factor, and two by left factor */
} Scratch;

static Polynomial polynomial(const int32_t *code, const int64_t *sizes)
{
    Polynomial p = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], 1 + sizes[0] + sizes[2]};
    p.pairs = code + 4 * p.n_terms;
    p.rights = p.pairs + 2 * p.n_pairs;
    p.right_offsets = p.rights + 2 * p.n_rights;
    p.term_left = p.right_offsets + p.n_rights + 1;
    p.left_offsets = p.term_left + p.n_terms;
    p.left_terms = p.left_offsets + p.n_lefts + 1;
    return p;
}

static int64_t scratch(const Polynomial *p, vec *memory, Scratch *s)
{
    vec *next = memory;
    s->left = next, next += p->n_lefts * ATOMS;
    s->d_left = next, next += p->n_lefts * ATOMS;
    s->right = next, next += p->n_rights * ATOMS;
    s->d_right = next, next += p->n_rights * ATOMS;
    s->g = next, next += p->n_outputs * ATOMS;
    s->out = next, next += p->n_outputs * ATOMS;
    s->by_x = next, next += p->n_inputs * ATOMS;
    s->c = next, next += p->n_terms;
    s->c_by_left = next, next += p->n_terms;
    s->by_c = next, next += p->n_terms;
    return next - memory;
}

int64_t memory_size(const int64_t *sizes)
{
    const Polynomial p = polynomial(0, sizes);
    Scratch s;
    return scratch(&p, 0, &s) * (int64_t)sizeof(vec) + ALIGNMENT;
}

/* ---- between arrays, rows of n_channels, and vectors ---- */

INLINE void load_rows(const int N, const REAL *from, int64_t rows, int64_t stride, int64_t count,
                      const int64_t *atoms, vec *to)
{
    UNROLLED
    for (int a = 0; a < N; a++) {
        const REAL *row = from + atoms[a] * rows * stride;
        for (int64_t i = 0; i < rows; i++)
            to[i * N + a] = load(row + i * stride, count);
    }
}

INLINE void store_rows(const int N, REAL *to, int64_t rows, int64_t stride, int64_t count,
                       const int64_t *atoms, const vec *from)
{
    UNROLLED
    for (int a = 0; a < N; a++) {
        REAL *row = to + atoms[a] * rows * stride;
        for (int64_t i = 0; i < rows; i++)
            store(row + i * stride, from[i * N + a], count);
    }
}

/* ---- N atoms ---- */

INLINE void factors(const int KIND, const int N, const Polynomial *p, const Scratch *s)
{
    const vec *x = s->left + N, *u = s->d_left + N;
    vec *pair = s->left + (1 + p->n_inputs) * N, *d_pair = s->d_left + (1 + p->n_inputs) * N;
    UNROLLED
    for (int a = 0; a < N; a++) {
        s->left[a] = (vec){0} + 1;
        s->d_left[a] = (vec){0};
    }
    for (int64_t i = 0; i < p->n_pairs; i++) {
        const int64_t first = p->pairs[2 * i] * N, second = p->pairs[2 * i + 1] * N;
        UNROLLED
        for (int a = 0; a < N; a++) {
            pair[i * N + a] = x[first + a] * x[second + a];
            if (KIND == TANGENTS)
                d_pair[i * N + a] = u[first + a] * x[second + a] + x[first + a] * u[second + a];
        }
    }
    for (int64_t r = 0; KIND != VALUE && r < p->n_rights; r++) {
        const int64_t output = p->rights[2 * r] * N, input = p->rights[2 * r + 1] * N;
        UNROLLED
        for (int a = 0; a < N; a++) {
            s->right[r * N + a] = s->g[output + a] * x[input + a];
            if (KIND == TANGENTS)
                s->d_right[r * N + a] = s->g[output + a] * u[input + a];
        }
    }
}

/* Q of each right factor: the outputs, and a part of the derivative by x. */
INLINE void over_rights(const int KIND, const int N, const Polynomial *p, const Scratch *s)
{
    const vec *x = s->left + N, *u = s->d_left + N;
    for (int64_t r = 0; r < p->n_rights; r++) {
        const int64_t output = p->rights[2 * r] * N, input = p->rights[2 * r + 1] * N;
        vec q[ATOMS], d_q[ATOMS];
        UNROLLED
        for (int a = 0; a < N; a++)
            q[a] = d_q[a] = (vec){0};
        for (int64_t t = p->right_offsets[r]; t < p->right_offsets[r + 1]; t++) {
            const vec *left = s->left + p->term_left[t] * (int64_t)N;
            const vec *d_left = s->d_left + p->term_left[t] * (int64_t)N, c = s->c[t];
            UNROLLED
            for (int a = 0; a < N; a++) {
                q[a] += c * left[a];
                if (KIND == TANGENTS)
                    d_q[a] += c * d_left[a];
            }
        }
        UNROLLED
        for (int a = 0; a < N; a++) {
            if (KIND == VALUE)
                s->out[output + a] += q[a] * x[input + a];
            if (KIND == BY_FEATURES)
                s->by_x[input + a] += q[a] * s->g[output + a];
            if (KIND == TANGENTS) {
                s->out[output + a] += q[a] * u[input + a] + d_q[a] * x[input + a];
                s->by_x[input + a] += d_q[a] * s->g[output + a];
            }
        }
    }
}

/* Hands the derivative R by a left factor, or its change, on to the inputs that it is made of. */
INLINE void to_inputs(const int KIND, const int N, const Polynomial *p, const Scratch *s,
                      int64_t l, const vec *R, const vec *d_R)
{
    const vec *x = s->left + N, *u = s->d_left + N, *by_l = KIND == TANGENTS ? d_R : R;
    if (l > p->n_inputs) {
        const int32_t *pair = p->pairs + 2 * (l - 1 - p->n_inputs);
        const int64_t first = pair[0] * N, second = pair[1] * N;
        UNROLLED
        for (int a = 0; a < N; a++) {
            vec to_first = by_l[a] * x[second + a], to_second = by_l[a] * x[first + a];
            if (KIND == TANGENTS) {
                to_first += R[a] * u[second + a];
                to_second += R[a] * u[first + a];
            }
            s->by_x[first + a] += to_first; /* first and second can be the same */
            s->by_x[second + a] += to_second;
        }
    } else if (l > 0) {
        UNROLLED
        for (int a = 0; a < N; a++)
            s->by_x[(l - 1) * N + a] += by_l[a];
    }
}

/* R of each left factor, and the derivatives by coefficients. */
INLINE void over_lefts(const int KIND, const int N, const Polynomial *p, const Scratch *s)
{
    for (int64_t l = 0; l < p->n_lefts; l++) {
        vec R[ATOMS], d_R[ATOMS], left[ATOMS], d_left[ATOMS];
        UNROLLED
        for (int a = 0; a < N; a++) {
            R[a] = d_R[a] = (vec){0};
            left[a] = s->left[l * N + a];
            if (KIND == TANGENTS)
                d_left[a] = s->d_left[l * N + a];
        }
        for (int64_t e = p->left_offsets[l]; e < p->left_offsets[l + 1]; e++) {
            const int64_t r = p->left_terms[2 * e + 1] * (int64_t)N;
            const vec *G = s->right + r, *d_G = s->d_right + r;
            if (KIND != BY_COEFFICIENTS) {
                const vec c = s->c_by_left[e];
                UNROLLED
                for (int a = 0; a < N; a++) {
                    R[a] += c * G[a];
                    if (KIND == TANGENTS)
                        d_R[a] += c * d_G[a];
                }
            }
            if (KIND != BY_FEATURES) {
                vec sum = s->by_c[e], d_sum = {0};
                UNROLLED
                for (int a = 0; a < N; a++) {
                    sum += (KIND == TANGENTS ? d_left : left)[a] * G[a];
                    if (KIND == TANGENTS)
                        d_sum += left[a] * d_G[a];
                }
                s->by_c[e] = KIND == TANGENTS ? sum + d_sum : sum;
            }
        }
        if (KIND != BY_COEFFICIENTS)
            to_inputs(KIND, N, p, s, l, R, d_R);
    }
}

INLINE void some_atoms(const int KIND, const int N, const Polynomial *p, const Scratch *s,
                       const Arrays *A, int64_t channel, const int64_t *atoms)
{
    const int64_t stride = A->n_channels, count = stride - channel;
    const int outputs = KIND == VALUE || KIND == TANGENTS;
    const int inputs = KIND == BY_FEATURES || KIND == TANGENTS;
    load_rows(N, A->x + channel, p->n_inputs, stride, count, atoms, s->left + N);
    if (KIND == TANGENTS)
        load_rows(N, A->u + channel, p->n_inputs, stride, count, atoms, s->d_left + N);
    if (KIND != VALUE)
        load_rows(N, A->g + channel, p->n_outputs, stride, count, atoms, s->g);
    factors(KIND, N, p, s);
    if (outputs)
        memset(s->out, 0, p->n_outputs * N * sizeof(vec));
    if (inputs)
        memset(s->by_x, 0, p->n_inputs * N * sizeof(vec));
    if (KIND != BY_COEFFICIENTS)
        over_rights(KIND, N, p, s);
    if (KIND != VALUE)
        over_lefts(KIND, N, p, s);
    if (outputs)
        store_rows(N, A->out + channel, p->n_outputs, stride, count, atoms, s->out);
    if (inputs)
        store_rows(N, A->by_x + channel, p->n_inputs, stride, count, atoms, s->by_x);
}

/* ---- pieces, which threads take from a counter ---- */

INLINE void piece(const int KIND, const Polynomial *p, const Scratch *s, const Arrays *A,
                  int64_t number, int64_t channel)
{
    const int64_t *chunk = A->chunks + 3 * number, count = A->n_channels - channel;
    const REAL *c = A->c + chunk[0] * p->n_terms * A->n_channels + channel;
    for (int64_t t = 0; KIND != BY_COEFFICIENTS && t < p->n_terms; t++)
        s->c[t] = load(c + t * A->n_channels, count);
    for (int64_t e = 0; (KIND == BY_FEATURES || KIND == TANGENTS) && e < p->n_terms; e++)
        s->c_by_left[e] = s->c[p->left_terms[2 * e]];
    if (KIND == BY_COEFFICIENTS || KIND == TANGENTS)
        memset(s->by_c, 0, p->n_terms * sizeof(vec));
    int64_t i = chunk[1];
    for (; i + ATOMS <= chunk[2]; i += ATOMS)
        some_atoms(KIND, ATOMS, p, s, A, channel, A->order + i);
    for (; i + 2 <= chunk[2]; i += 2)
        some_atoms(KIND, 2, p, s, A, channel, A->order + i);
    for (; i < chunk[2]; i++)
        some_atoms(KIND, 1, p, s, A, channel, A->order + i);
    if (KIND == BY_COEFFICIENTS || KIND == TANGENTS) {
        REAL *by_c = A->by_c + number * p->n_terms * A->n_channels + channel;
        for (int64_t e = 0; e < p->n_terms; e++)
            store(by_c + p->left_terms[2 * e] * A->n_channels, s->by_c[e], count);
    }
}

#define ROUTINE(NAME, KIND)                                                                       \
    void NAME(const Arrays *A, const int32_t *code, const int64_t *sizes, int64_t *counter,       \
              char *memory)                                                                       \
    {                                                                                             \
        const Polynomial p = polynomial(code, sizes);                                             \
        const int64_t n_blocks = (A->n_channels + LANES - 1) / LANES;                             \
        Scratch s;                                                                                \
        int64_t n;                                                                                \
        scratch(&p, (vec *)(((uintptr_t)memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), &s);    \
        while ((n = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < A->n_chunks * n_blocks)   \
            piece(KIND, &p, &s, A, n / n_blocks, n % n_blocks * LANES);                           \
    }
ROUTINE(value, VALUE)
ROUTINE(by_features, BY_FEATURES)
ROUTINE(by_coefficients, BY_COEFFICIENTS)
ROUTINE(tangents, TANGENTS)
