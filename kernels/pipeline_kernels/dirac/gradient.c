/* Derivative of hops by the links. Stands on hops.c. */

/* Adds sum_s first_s second_s^dagger. */
INLINE void add_outer(vec *by, number first[HALF][N], number second[HALF][N])
{
    UNROLLED for (int i = 0; i < N; i++) UNROLLED for (int j = 0; j < N; j++)
    {
        vec re = by[2 * (N * i + j)], im = by[2 * (N * i + j) + 1];
        UNROLLED for (int s = 0; s < HALF; s++)
        {
            re += first[s][i].re * second[s][j].re;
            im += first[s][i].im * second[s][j].re;
            re += first[s][i].im * second[s][j].im;
            im -= first[s][i].re * second[s][j].im;
        }
        by[2 * (N * i + j)] = re;
        by[2 * (N * i + j) + 1] = im;
    }
}

/* What the link from x in direction mu gets of P chi (x) and P psi (x + mu), with P = 1 -+ gamma. */
INLINE void add_pair(vec *by, const vec *here, const vec *there, const mask *lanes, const int mu,
                     const int minus)
{
    number first[HALF][N], second[HALF][N];
    project(first, here, mu, minus);
    project(second, there, mu, minus);
    if (lanes)
        permute(second, *lanes);
    add_outer(by, first, second); /* P P = 2 P, and both halves of P psi count alike */
}

/* The links of one half; those that no hop to `parity` crosses get nothing. */
static void add_gradient(const Lattice *lattice, const Permutations *lanes, const vec *chi,
                         const vec *psi, vec *by, int64_t p, int64_t parity, int64_t adjoint)
{
    const int64_t half = lattice->half, size = half * SPINOR;
    for (int64_t x = 0; x < half; x++) {
        const int64_t *next = lattice->neighbours + (p * half + x) * D * 2;
        const int64_t here = p * size + x * SPINOR;
#define LINK(mu)                                                                                  \
    {                                                                                             \
        const int64_t there = (1 - p) * size + (next[2 * (mu)] >> 1) * SPINOR;                    \
        const mask *change = next[2 * (mu)] & 1 ? &lanes->lanes[mu][0] : 0;                       \
        vec *link = by + (x * D + (mu)) * NUMBERS;                                                \
        if (parity == ALL || p == parity)                                                         \
            adjoint ? add_pair(link, chi + here, psi + there, change, mu, 0)                      \
                    : add_pair(link, chi + here, psi + there, change, mu, 1);                     \
        if (parity == ALL || p != parity)                                                         \
            adjoint ? add_pair(link, psi + here, chi + there, change, mu, 1)                      \
                    : add_pair(link, psi + here, chi + there, change, mu, 0);                     \
    }
        LINK(0)
        LINK(1)
#if D == 4
        LINK(2)
        LINK(3)
#endif
#undef LINK
    }
}

/* Bytes that `hop_gradient` needs. */
int64_t gradient_size(const Lattice *lattice)
{
    return BYTES * (1 + lattice->half * (4 * SPINOR + 2 * D * NUMBERS));
}

/* d Re(chi^dagger H psi) by links, without the signs of the boundary, summed over right-hand sides:
 * (batch, D, V, N, N), or with one configuration (n_fields, D, V, N, N), to be summed. */
void hop_gradient(const REAL *chi, const REAL *psi, REAL *out, const Lattice *lattice,
                  int64_t parity, int64_t adjoint, int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t half = lattice->half, parts = lattice->n_parts, size = half * SPINOR;
    const int64_t volume = 2 * half * parts, per_group = n_units(lattice) / n_groups(lattice);
    const int halved = parity != ALL;
    vec *left = aligned(memory), *right = left + 2 * size, *by = right + 2 * size;
    FOR_UNITS(n_groups(lattice))
    {
        memset(by, 0, 2 * half * D * NUMBERS * sizeof(vec));
        for (int64_t one = unit * per_group; one < (unit + 1) * per_group; one++) {
            for (int p = 0; p < 2; p++) {
                if (!halved || p == parity)
                    gather_spinors(lattice, left + p * size, chi, one, p, halved);
                if (!halved || p != parity)
                    gather_spinors(lattice, right + p * size, psi, one, p, halved);
            }
            for (int p = 0; p < 2; p++)
                add_gradient(lattice, &lanes, left, right, by + p * half * D * NUMBERS, p, parity,
                             adjoint);
        }
        for (int64_t mu = 0; mu < D; mu++) {
            Rows rows = {.width = NUMBERS, .halved = 0};
            for (int64_t l = 0; l < LANES; l++) {
                const int64_t b = unit * n_fields(lattice) + l / parts;
                const int kept = lattice->batch == 1 || b < lattice->batch;
                rows.offset[l] = kept ? (b * D + mu) * volume * NUMBERS : -1;
                rows.part[l] = l % parts;
            }
            for (int64_t x = 0; x < 2 * half; x++)
                scatter(out, by + (x * D + mu) * NUMBERS, &rows, lattice->sites + x * parts,
                        NUMBERS);
        }
    }
}
