/* The contraction of a tree (see __init__.py), float or double (macro REAL).
 *
 * Samples are the lanes of vectors. A block of samples is copied into aligned rows of BLOCK
 * vectors, filled up with zeros, and goes through all nodes while it lies in the second-level
 * cache. Two routines do the arithmetic, each with its sums in registers:
 *
 *     combine   out[k] = sum_ij a[i] b[j] B[i, j, k]   for each sample
 *     outer     S[i, j, k] += a[i] b[j] c[k]           for each lane
 */
#define TILE (3 * REGISTERS / 8) /* 2 TILE sums, and what they are made of */
#ifndef BLOCK
#define BLOCK 32 /* vectors in a block: even, since `combine` takes two at a time */
#endif
#define STRIDE (BLOCK + 1) /* no power of two, so that rows do not share a cache set */
#define SAMPLES (BLOCK * LANES)

typedef struct {
    int64_t left, right, row; /* first rows of the children and of the node's own functions */
    int64_t n_left, n_right, n_own;
    int64_t offset; /* of its transfer tensor */
} Node;

typedef struct {
    int64_t n_features, n_rows; /* rows: features, then inner nodes, then the root */
    int64_t n_nodes, n_transfers;
    Node nodes[];
} Tree;

/* ---- arithmetic ---- */

/* Early enough that the arrays of sums become registers. */
#define UNROLLED _Pragma("GCC unroll 12")

INLINE void combine_tile(
    const int K, const vec *a, int64_t na, const vec *b, int64_t nb, const REAL *B, int64_t nc,
    vec *out, int64_t count, int add)
{
    for (int64_t v = 0; v < count; v += 2) {
        vec s0[TILE], s1[TILE];
        UNROLLED
        for (int k = 0; k < K; k++) {
            s0[k] = add ? out[k * STRIDE + v] : (vec){0};
            s1[k] = add ? out[k * STRIDE + v + 1] : (vec){0};
        }
        const REAL *entry = B;
        for (int64_t i = 0; i < na; i++) {
            const vec a0 = a[i * STRIDE + v], a1 = a[i * STRIDE + v + 1];
            for (int64_t j = 0; j < nb; j++, entry += nc) {
                const vec w0 = a0 * b[j * STRIDE + v], w1 = a1 * b[j * STRIDE + v + 1];
                UNROLLED
                for (int k = 0; k < K; k++) {
                    s0[k] += w0 * entry[k];
                    s1[k] += w1 * entry[k];
                }
            }
        }
        UNROLLED
        for (int k = 0; k < K; k++) {
            out[k * STRIDE + v] = s0[k];
            out[k * STRIDE + v + 1] = s1[k];
        }
    }
}

INLINE void outer_tile(
    const int I, const int K, const vec *a, const vec *b, const vec *c, vec *sums,
    int64_t step, int64_t count, int add)
{
    vec s0[TILE], s1[TILE];
    UNROLLED
    for (int i = 0; i < I; i++)
        s0[i] = s1[i] = (vec){0};
    for (int64_t v = 0; v < count; v++) {
        const vec second = b[v], p0 = second * c[v];
        const vec p1 = K > 1 ? second * c[STRIDE + v] : p0;
        UNROLLED
        for (int i = 0; i < I; i++) {
            /* volatile: loaded once, not as an operand of both products */
            const vec first = *(const volatile vec *)(a + i * STRIDE + v);
            s0[i] += first * p0;
            if (K > 1)
                s1[i] += first * p1;
        }
    }
    UNROLLED
    for (int i = 0; i < I; i++, sums += step) {
        sums[0] = add ? sums[0] + s0[i] : s0[i];
        if (K > 1)
            sums[1] = add ? sums[1] + s1[i] : s1[i];
    }
}

typedef void Combine(const vec *, int64_t, const vec *, int64_t, const REAL *, int64_t, vec *,
                     int64_t, int);
typedef void Outer(const vec *, const vec *, const vec *, vec *, int64_t, int64_t, int);

#define INSTANCE(N)                                                                               \
    static void combine_##N(const vec *a, int64_t na, const vec *b, int64_t nb, const REAL *B,    \
                            int64_t nc, vec *out, int64_t count, int add)                         \
    {                                                                                             \
        combine_tile(N, a, na, b, nb, B, nc, out, count, add);                                    \
    }                                                                                             \
    static void outer_##N##_1(const vec *a, const vec *b, const vec *c, vec *sums, int64_t step,  \
                              int64_t count, int add)                                             \
    {                                                                                             \
        outer_tile(N, 1, a, b, c, sums, step, count, add);                                        \
    }                                                                                             \
    static void outer_##N##_2(const vec *a, const vec *b, const vec *c, vec *sums, int64_t step,  \
                              int64_t count, int add)                                             \
    {                                                                                             \
        outer_tile(N, 2, a, b, c, sums, step, count, add);                                        \
    }
INSTANCE(1)
INSTANCE(2)
INSTANCE(3)
INSTANCE(4)
INSTANCE(5)
INSTANCE(6)
#if TILE > 6
INSTANCE(7)
INSTANCE(8)
INSTANCE(9)
INSTANCE(10)
INSTANCE(11)
INSTANCE(12)
#define SIZES(F, END) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) END
#else
#define SIZES(F, END) F(1) F(2) F(3) F(4) F(5) F(6) END
#endif
#define COMBINE(N) combine_##N,
#define OUTER(N) {outer_##N##_1, outer_##N##_2},
static Combine *const combines[TILE] = {SIZES(COMBINE, )};
static Outer *const outers[TILE][2] = {SIZES(OUTER, )};

/* Size of the next of the nearly equal tiles into which the last `left` rows are cut. */
static inline int64_t tile_of(int64_t left)
{
    const int64_t tiles = (left + TILE - 1) / TILE;
    return (left + tiles - 1) / tiles;
}

static void combine(const vec *a, int64_t na, const vec *b, int64_t nb, const REAL *B, int64_t nc,
                    vec *out, int64_t count, int add)
{
    for (int64_t k = 0, size; k < nc; k += size) {
        size = tile_of(nc - k);
        combines[size - 1](a, na, b, nb, B + k, nc, out + k * STRIDE, count, add);
    }
}

static void outer(const vec *a, int64_t na, const vec *b, int64_t nb, const vec *c, int64_t nc,
                  vec *sums, int64_t count, int add)
{
    for (int64_t i = 0, size; i < na; i += size) {
        size = tile_of(na - i);
        for (int64_t j = 0; j < nb; j++)
            for (int64_t k = 0, two; k < nc; k += two) {
                two = smaller(2, nc - k);
                outers[size - 1][two - 1](a + i * STRIDE, b + j * STRIDE, c + k * STRIDE,
                                          sums + (i * nb + j) * nc + k, nb * nc, count, add);
            }
    }
}

/* ---- memory ---- */

typedef struct {
    int64_t begin, length; /* samples */
    int64_t count;         /* vectors, even */
} Block;

static Block block_at(int64_t begin, int64_t end)
{
    const int64_t length = smaller(SAMPLES, end - begin);
    return (Block){begin, length, (length + 2 * LANES - 1) / (2 * LANES) * 2};
}

static void pack(vec *rows, const REAL *from, int64_t n_rows, int64_t n, Block block)
{
    for (int64_t r = 0; r < n_rows; r++) {
        REAL *row = (REAL *)(rows + r * STRIDE);
        memcpy(row, from + r * n + block.begin, block.length * sizeof(REAL));
        memset(row + block.length, 0, (block.count * LANES - block.length) * sizeof(REAL));
    }
}

static void unpack(REAL *to, const vec *rows, int64_t n_rows, int64_t n, Block block)
{
    for (int64_t r = 0; r < n_rows; r++)
        memcpy(to + r * n + block.begin, rows + r * STRIDE, block.length * sizeof(REAL));
}

/* B[j, k, i] and B[i, k, j] of B[i, j, k], as `combine` needs them for the two children. */
static void transpose(const Tree *tree, const REAL *transfers, REAL *by_left, REAL *by_right)
{
    for (int64_t t = 0; t < tree->n_nodes; t++) {
        const Node *node = tree->nodes + t;
        const int64_t na = node->n_left, nb = node->n_right, nc = node->n_own, o = node->offset;
        for (int64_t i = 0; i < na; i++)
            for (int64_t j = 0; j < nb; j++)
                for (int64_t k = 0; k < nc; k++) {
                    const REAL entry = transfers[o + (i * nb + j) * nc + k];
                    by_left[o + (j * nc + k) * na + i] = entry;
                    by_right[o + (i * nc + k) * nb + j] = entry;
                }
    }
}

/* ---- what is called from outside ----
 *
 * Every thread makes the same call with memory of its own and takes the next piece of work from
 * the counter that they share. */

static vec *aligned(void *memory)
{
    return (vec *)(((uintptr_t)memory + BYTES - 1) / BYTES * BYTES);
}

int64_t block_size(void) { return SAMPLES; }

/* Bytes that a call needs: two sets of rows, sums of lanes and two sets of transfers. */
int64_t memory_size(const Tree *tree)
{
    return BYTES * (1 + 2 * tree->n_rows * STRIDE + 3 * tree->n_transfers);
}

void contract(const Tree *tree, const REAL *features, const REAL *transfers, REAL *inner,
              REAL *root, int64_t n, int64_t *counter, void *memory)
{
    vec *values = aligned(memory);
    const int64_t n_blocks = (n + SAMPLES - 1) / SAMPLES, last = tree->n_rows - 1;
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_blocks;) {
        const Block block = block_at(i * SAMPLES, n);
        pack(values, features, tree->n_features, n, block);
        for (int64_t t = 0; t < tree->n_nodes; t++) {
            const Node *node = tree->nodes + t;
            combine(values + node->left * STRIDE, node->n_left, values + node->right * STRIDE,
                    node->n_right, transfers + node->offset, node->n_own,
                    values + node->row * STRIDE, block.count, 0);
        }
        unpack(inner, values + tree->n_features * STRIDE, last - tree->n_features, n, block);
        unpack(root, values + last * STRIDE, 1, n, block);
    }
}

void tangent(const Tree *tree, const REAL *features, const REAL *transfers, const REAL *inner,
             const REAL *direction, REAL *root, int64_t n, int64_t *counter, void *memory)
{
    const int64_t n_blocks = (n + SAMPLES - 1) / SAMPLES, last = tree->n_rows - 1;
    vec *values = aligned(memory), *changes = values + tree->n_rows * STRIDE;
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_blocks;) {
        const Block block = block_at(i * SAMPLES, n);
        pack(values, features, tree->n_features, n, block);
        pack(values + tree->n_features * STRIDE, inner, last - tree->n_features, n, block);
        for (int64_t t = 0; t < tree->n_nodes; t++) {
            const Node *node = tree->nodes + t;
            const int64_t na = node->n_left, nb = node->n_right, nc = node->n_own;
            const vec *left = values + node->left * STRIDE, *right = values + node->right * STRIDE;
            vec *change = changes + node->row * STRIDE;
            combine(left, na, right, nb, direction + node->offset, nc, change, block.count, 0);
            if (node->left >= tree->n_features)
                combine(changes + node->left * STRIDE, na, right, nb, transfers + node->offset, nc,
                        change, block.count, 1);
            if (node->right >= tree->n_features)
                combine(left, na, changes + node->right * STRIDE, nb, transfers + node->offset, nc,
                        change, block.count, 1);
        }
        unpack(root, changes + last * STRIDE, 1, n, block);
    }
}

/* Sums over the samples of one segment each go into a row of `partial`, so that the order in which
 * everything is added does not depend on the threads. `by_features` may be null. */
void gradient(const Tree *tree, const REAL *features, const REAL *transfers, const REAL *inner,
              const REAL *weights, REAL *by_features, REAL *partial, int64_t n, int64_t segment,
              int64_t *counter, void *memory)
{
    const int64_t n_segments = (n + segment - 1) / segment, last = tree->n_rows - 1;
    vec *values = aligned(memory), *grads = values + tree->n_rows * STRIDE;
    vec *sums = grads + tree->n_rows * STRIDE;
    REAL *to_left = (REAL *)(sums + tree->n_transfers), *to_right = to_left + tree->n_transfers;
    const int64_t first = by_features ? 0 : tree->n_features; /* row with a gradient */
    transpose(tree, transfers, to_left, to_right);
    for (int64_t s; (s = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_segments;) {
        const int64_t end = smaller(n, (s + 1) * segment);
        for (int64_t begin = s * segment; begin < end; begin += SAMPLES) {
            const Block block = block_at(begin, end);
            pack(values, features, tree->n_features, n, block);
            pack(values + tree->n_features * STRIDE, inner, last - tree->n_features, n, block);
            pack(grads + last * STRIDE, weights, 1, n, block);
            for (int64_t t = tree->n_nodes - 1; t >= 0; t--) {
                const Node *node = tree->nodes + t;
                const int64_t na = node->n_left, nb = node->n_right, nc = node->n_own;
                const vec *left = values + node->left * STRIDE;
                const vec *right = values + node->right * STRIDE;
                const vec *g = grads + node->row * STRIDE;
                outer(left, na, right, nb, g, nc, sums + node->offset, block.count,
                      begin > s * segment);
                if (node->left >= first)
                    combine(right, nb, g, nc, to_left + node->offset, na,
                            grads + node->left * STRIDE, block.count, 0);
                if (node->right >= first)
                    combine(left, na, g, nc, to_right + node->offset, nb,
                            grads + node->right * STRIDE, block.count, 0);
            }
            if (by_features)
                unpack(by_features, grads, tree->n_features, n, block);
        }
        for (int64_t e = 0; e < tree->n_transfers; e++)
            partial[s * tree->n_transfers + e] = add_lanes(sums[e]);
    }
}
