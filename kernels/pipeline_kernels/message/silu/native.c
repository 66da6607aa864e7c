/* Derivatives of the activation of second order (see __init__.py), float or double (macro REAL).
 * After sigmoid.c.
 *
 * Every thread makes the same call and takes the next piece from the counter that they share.
 */
#define PIECE 4096 /* elements */

typedef struct {
    const REAL *d, *g, *z;
    REAL *by_g, *by_z;
    int64_t size;
} Work;

/* Zero where `sigmoid` stays at its end: times a large z that would not be small. */
INLINE vec open_gate(vec z)
{
    return (vec)((bits)sigmoid(z) & ~(bits)(z < -OF(87, 708)));
}

/* A vector at most, from place i on. */
INLINE void bend_at(const Work *w, int64_t i, int64_t count)
{
    const vec z = load(w->z + i, count), s = open_gate(z), rest = 1 - s;
    const vec d = load(w->d + i, count), g = load(w->g + i, count);
    store(w->by_g + i, d * (s * (1 + z * rest)), count);
    store(w->by_z + i, d * g * (s * rest * (2 + z * (rest - s))), count);
}

/* by_g = d silu'(z), by_z = d g silu''(z) */
void bend(const Work *w, int64_t *counter)
{
    for (int64_t i; (i = PIECE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < w->size;) {
        const int64_t end = smaller(i + PIECE, w->size);
        for (; i + LANES <= end; i += LANES)
            bend_at(w, i, LANES);
        if (i < end)
            bend_at(w, i, end - i);
    }
}
