/* Softmax of the logits of each segment (see __init__.py), float or double (macro REAL).
 *
 * A segment is one thread's: the sum of its exponentials has the order of its plan. Threads take
 * pieces of segments from the counter that they share.
 */
#include <tgmath.h>

#define PIECE 64 /* segments */

INLINE void normalise(const REAL *logits, REAL *weights, const int64_t *order, int64_t begin,
                      int64_t end, int64_t heads, REAL *largest)
{
    REAL *total = largest + heads;
    for (int64_t h = 0; h < heads; h++) {
        largest[h] = -INFINITY;
        total[h] = 0;
    }
#define EACH_LOGIT                                                                                \
    for (int64_t k = begin; k < end; k++)                                                         \
        for (int64_t h = 0, i = (order ? order[k] : k) * heads; h < heads; h++, i++)
    EACH_LOGIT /* so that a logit of NaN becomes the largest, and shows */
        largest[h] = largest[h] >= logits[i] ? largest[h] : logits[i];
    EACH_LOGIT
    {
        weights[i] = exp(logits[i] - largest[h]);
        total[h] += weights[i];
    }
    EACH_LOGIT
        weights[i] /= total[h];
#undef EACH_LOGIT
}

void softmax(const REAL *logits, REAL *weights, const int64_t *order, const int64_t *offsets,
             int64_t n_segments, int64_t heads, int64_t *counter, REAL *workspace)
{
    for (int64_t s; (s = PIECE * __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_segments;)
        for (const int64_t end = smaller(s + PIECE, n_segments); s < end; s++)
            normalise(logits, weights, order, offsets[s], offsets[s + 1], heads, workspace);
}
