/* Conjugate gradients on Mhat^dagger Mhat (see the package). Stands on hops.c. */

typedef struct {
    double kappa, twist; /* twist: 2 kappa mu */
    int64_t max_iterations;
} Equation;

/* Mhat psi, or Mhat^dagger psi, on odd sites; `even` is half a lattice of memory. */
static void apply_even_odd(const Lattice *lattice, const Permutations *lanes, const vec *links,
                           const Equation *equation, const vec *psi, vec *even, vec *out,
                           int64_t adjoint)
{
    const double twist = adjoint ? -equation->twist : equation->twist;
    const double scale = 1 / (1 + twist * twist);
    const Factors there = {{scale, -twist * scale}, {0, 0}};
    const Factors back = {{-equation->kappa * equation->kappa, 0}, {1, twist}};
    hop_to_half(&(Hops){lattice, lanes, links, &there, adjoint}, psi, 0, even, 0);
    hop_to_half(&(Hops){lattice, lanes, links, &back, adjoint}, even, psi, out, 1);
}

/* Re a^dagger b of each field, in all its lanes. */
static void multiply_fields(const Lattice *lattice, const vec *a, const vec *b, double *product)
{
    double sums[LANES] = {0};
    for (int64_t x = 0; x < lattice->half; x++) {
        vec part = {0}; /* of one site: numbers of REAL are added over no more */
        UNROLLED for (int k = 0; k < SPINOR; k++) part += a[x * SPINOR + k] * b[x * SPINOR + k];
        for (int l = 0; l < LANES; l++)
            sums[l] += part[l];
    }
    for (int64_t l = 0; l < LANES; l += lattice->n_parts) {
        double total = 0;
        for (int64_t part = 0; part < lattice->n_parts; part++)
            total += sums[l + part];
        for (int64_t part = 0; part < lattice->n_parts; part++)
            product[l + part] = total;
    }
}

/* The quotient, zero where b is; `otherwise` in lanes that are done. */
static vec divide(const double *a, const double *b, const int *done, double otherwise)
{
    vec out;
    for (int l = 0; l < LANES; l++)
        out[l] = done[l] ? otherwise : b[l] == 0 ? 0 : a[l] / b[l];
    return out;
}

/* Which lanes have |r|^2 <= goal; returns whether all have. */
static int find_done(const double *norm, const double *goal, int *done)
{
    int all_done = 1;
    for (int l = 0; l < LANES; l++) {
        done[l] = !(norm[l] > goal[l]);
        all_done &= done[l];
    }
    return all_done;
}

/* Iterates x, r and p, (units, half, SPINOR, LANES), from where they are until |r|^2 <= goal. `last`
 * holds |r|^2 of the step before, zero to begin with r as direction; both are (units, LANES). A field
 * that is done waits for the others of its unit. `counts` gets the iterations of each unit. */
void iterate_normal(REAL *x, REAL *r, REAL *p, const REAL *packed, double *last, const double *goal,
                    int64_t *counts, const Lattice *lattice, const Equation *equation,
                    int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t size = lattice->half * SPINOR, group_size = 2 * lattice->half * D * NUMBERS;
    vec *even = aligned(memory), *middle = even + size, *image = middle + size;
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * group_size;
        vec *solution = (vec *)x + unit * size, *residual = (vec *)r + unit * size;
        vec *direction = (vec *)p + unit * size;
        double norm[LANES], curvature[LANES], *before = last + unit * LANES;
        int done[LANES];
        int64_t n = 0;
        multiply_fields(lattice, residual, residual, norm);
        for (; !find_done(norm, goal + unit * LANES, done) && n < equation->max_iterations; n++) {
            const vec beta = divide(norm, before, done, 1), taken = divide(norm, norm, done, 0);
            for (int64_t k = 0; k < size; k++)
                direction[k] = taken * residual[k] + beta * direction[k];
            apply_even_odd(lattice, &lanes, links, equation, direction, even, middle, 0);
            apply_even_odd(lattice, &lanes, links, equation, middle, even, image, 1);
            multiply_fields(lattice, direction, image, curvature);
            const vec alpha = divide(norm, curvature, done, 0);
            for (int64_t k = 0; k < size; k++) {
                solution[k] += alpha * direction[k];
                residual[k] -= alpha * image[k];
            }
            for (int l = 0; l < LANES; l++)
                before[l] = done[l] ? before[l] : norm[l];
            multiply_fields(lattice, residual, residual, norm);
        }
        counts[unit] = n;
    }
}
