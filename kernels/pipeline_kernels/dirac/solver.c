/* Conjugate gradients on Mhat^dagger Mhat (see the package), for spinors on odd sites,
 * (batch, n_rhs, V / 2, ...). Stands on hops.c. */
#include <math.h>

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

/* The goal of each lane's field, of those of (batch, n_rhs); infinity in a lane without one. */
static void spread_goals(const Lattice *lattice, int64_t unit, const double *goals, double *goal)
{
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t field = field_of(lattice, unit, l / lattice->n_parts);
        goal[l] = field < 0 ? INFINITY : goals[field];
    }
}

/* Iterates from a residual until |r|^2 <= goal, and writes what is to be added to x. The direction of
 * the search, (units, half, SPINOR, LANES), and |r|^2 of the step before, (units, LANES), zero to
 * begin with r as direction, stay for the next call. A field that is done waits for the others of
 * its unit. `counts` gets the iterations of each unit. */
void iterate_normal(const REAL *r, REAL *step, REAL *search, const REAL *packed, double *last,
                    const double *goals, int64_t *counts, const Lattice *lattice,
                    const Equation *equation, int64_t *counter, void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t size = lattice->half * SPINOR, group_size = 2 * lattice->half * D * NUMBERS;
    vec *even = aligned(memory), *middle = even + size, *image = middle + size;
    vec *residual = image + size, *solution = residual + size;
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * group_size;
        vec *direction = (vec *)search + unit * size;
        double norm[LANES], goal[LANES], curvature[LANES], *before = last + unit * LANES;
        int done[LANES];
        int64_t n = 0;
        gather_spinors(lattice, residual, r, unit, 1, 1);
        memset(solution, 0, size * sizeof(vec));
        spread_goals(lattice, unit, goals, goal);
        multiply_fields(lattice, residual, residual, norm);
        for (; !find_done(norm, goal, done) && n < equation->max_iterations; n++) {
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
        scatter_spinors(lattice, step, solution, unit, 1, 1);
    }
}

/* r = b - Mhat^dagger Mhat x, and |r|^2 of each field, (batch, n_rhs). */
void compute_residual(const REAL *x, const REAL *b, REAL *r, double *norms, const REAL *packed,
                      const Lattice *lattice, const Equation *equation, int64_t *counter,
                      void *memory)
{
    const Permutations lanes = read_permutations(lattice);
    const int64_t size = lattice->half * SPINOR, group_size = 2 * lattice->half * D * NUMBERS;
    vec *even = aligned(memory), *middle = even + size, *image = middle + size;
    vec *given = image + size;
    FOR_UNITS(n_units(lattice))
    {
        const vec *links = (const vec *)packed + group_of(lattice, unit) * group_size;
        double norm[LANES];
        gather_spinors(lattice, given, x, unit, 1, 1);
        apply_even_odd(lattice, &lanes, links, equation, given, even, middle, 0);
        apply_even_odd(lattice, &lanes, links, equation, middle, even, image, 1);
        gather_spinors(lattice, given, b, unit, 1, 1);
        for (int64_t k = 0; k < size; k++)
            image[k] = given[k] - image[k];
        scatter_spinors(lattice, r, image, unit, 1, 1);
        multiply_fields(lattice, image, image, norm);
        for (int64_t l = 0; l < LANES; l += lattice->n_parts) {
            const int64_t field = field_of(lattice, unit, l / lattice->n_parts);
            if (field >= 0)
                norms[field] = norm[l];
        }
    }
}
