/* Rational-quadratic splines and their derivatives (see the package), behind those of angles.
 *
 * A row is a vector: the numbers of a parameter in all lanes. Points are seen from the closer end.
 */
#define MIN_WIDTH 1e-3
#define RISE 0.6317524953863372 /* 1 - exp(MIN_SLOPE - 1) */

typedef struct {
    vec low, high, slope; /* F(x) / x - 1, (1 - F(x)) / (1 - x) - 1, F'(x) */
} image;

typedef struct {
    mask mirrored, first;
    vec number; /* of the bin */
    vec near, far; /* the point, from the closer and the other end */
    vec start, end, width, height; /* end: image of start */
    vec left, right; /* slopes of F at the ends, less one */
    vec parameters[2]; /* of these, that at the smaller x first */
} bin;

typedef struct {
    vec sigma, kappa, xi, eta, product; /* xi eta */
    vec D, ratio, shift, slopes; /* D and T / D of the package, F(x) - x, F'(x) (D / (1 + sigma))^2 */
} point;

typedef struct {
    vec near, start, end, width, height, left, right;
} by_bin; /* derivatives by these */

typedef struct {
    vec low, high, log_slope;
} by_image;

/* exp(x) for x <= 0, down to 1e-304: exponential_of in fewer steps. */
INLINE vec decay(vec x)
{
    vec k;
    const vec p = exponential_part(larger(x, all(-700)), &k);
    return (vec)((mask)p + ((bits_of(k) - (mask)all(ROUNDING)) << 52));
}

/* Replaces rows that softmax makes bins of by the bins. */
INLINE void normalise(vec *rows, int64_t bins)
{
    vec top = rows[0], sum = all(0);
    for (int64_t k = 1; k < bins; k++)
        top = larger(top, rows[k]);
    for (int64_t k = 0; k < bins; k++) {
        rows[k] = decay(rows[k] - top);
        sum += rows[k];
    }
    const vec scale = (1 - (double)bins * MIN_WIDTH) / sum;
    for (int64_t k = 0; k < bins; k++)
        rows[k] = MIN_WIDTH + scale * rows[k];
}

/* Slope less one: log(1 + part (exp(-|u|) - 1)), and |u| if positive. */
INLINE vec excess(vec u)
{
    const vec part = either(u > 0, all(1 - RISE), all(RISE));
    return logarithm_of(1 + part * (decay(-magnitude(u)) - 1)) + larger(u, all(0));
}

INLINE vec excess_slope(vec u)
{
    const vec part = either(u > 0, all(1 - RISE), all(RISE)), power = decay(-magnitude(u));
    const vec slope = part * power / (1 + part * (power - 1));
    return either(u > 0, 1 - slope, slope);
}

/* rows: widths and heights after `normalise`, and parameters of slopes. */
INLINE bin find(const vec *rows, int64_t bins, vec x, vec complement, int inverse)
{
    const vec *widths = rows, *heights = rows + bins, *slopes = rows + 2 * bins;
    bin b = {.mirrored = x > complement, .near = lesser(x, complement), .number = all(0)};
    b.far = larger(x, complement);
    b.width = widths[0];
    b.height = heights[0];
    vec left = slopes[0], right = slopes[1], start = all(0), end = all(0);
    vec next_start = widths[0], next_end = heights[0];
    for (int64_t k = 1; k < bins; k++) {
        const mask inside = x >= (inverse ? next_end : next_start);
        b.number = either(inside, all((double)k), b.number);
        start = either(inside, next_start, start);
        end = either(inside, next_end, end);
        b.width = either(inside, widths[k], b.width);
        b.height = either(inside, heights[k], b.height);
        left = either(inside, slopes[k], left);
        right = either(inside, slopes[k + 1], right);
        next_start += widths[k];
        next_end += heights[k];
    }
    const mask last = b.number == (double)(bins - 1);
    b.first = (b.mirrored & last) | (~b.mirrored & (b.number == 0));
    const vec rest = either(last, all(0), 1 - (start + b.width));
    b.start = either(b.mirrored, rest, start);
    b.end = either(b.mirrored, either(last, all(0), 1 - (end + b.height)), end);
    b.parameters[0] = left;
    b.parameters[1] = right;
    b.left = excess(either(b.mirrored, right, left));
    b.right = excess(either(b.mirrored, left, right));
    return b;
}

INLINE point at(const bin *b, vec xi)
{
    point p = {.xi = xi, .eta = 1 - xi, .sigma = (b->height - b->width) / b->width};
    p.product = p.xi * p.eta;
    p.kappa = b->left + b->right - 2 * p.sigma;
    p.D = 1 + p.sigma + p.kappa * p.product;
    const vec T = (1 + p.sigma) * (p.sigma * xi + b->left * p.eta) - p.kappa * p.product;
    p.ratio = T / p.D;
    p.shift = b->end - b->start + b->width * xi * p.ratio;
    p.slopes = 1 + b->right * xi * xi + 2 * p.sigma * p.product + b->left * p.eta * p.eta;
    return p;
}

INLINE vec slope_of(const point *p)
{
    const vec part = (1 + p->sigma) / p->D;
    return part * part * p->slopes;
}

/* Image of the point in the bin; fills `p`, of an inverse at the image. */
INLINE image evaluate(const bin *b, int inverse, point *p)
{
    vec near, shift, slope;
    if (!inverse) {
        *p = at(b, (b->near - b->start) / b->width);
        shift = p->shift;
        near = either(b->first, p->ratio, shift / b->near);
        slope = slope_of(p);
    } else {
        const vec sigma = (b->height - b->width) / b->width;
        const vec kappa = b->left + b->right - 2 * sigma, theta = (b->near - b->end) / b->height;
        const vec rest = 1 - theta, turn = 1 - 2 * theta;
        const vec a = sigma - b->left + theta * kappa;
        const vec c = 1 + b->left * turn + 2 * theta * sigma - theta * turn * kappa;
        const vec r = root(c * c + 4 * a * a * theta * rest);
        const mask plus = c >= 0;
        const vec v = either(plus, 2 * rest * a, r - c) / either(plus, c + r, 2 * a * theta);
        *p = at(b, theta * (1 + v));
        shift = b->start - b->end + b->width * theta * (v - sigma);
        near = either(b->first, (v - sigma) / (1 + sigma), shift / b->near);
        slope = 1 / slope_of(p);
    }
    const vec far = -shift / b->far;
    return (image){either(b->mirrored, far, near), either(b->mirrored, near, far), slope};
}

/* Derivatives of
 *     f.low (F(x) / x - 1) + f.high ((1 - F(x)) / (1 - x) - 1) + f.log_slope log F'(x) + shift F(x)
 * with x from the closer end, and F(x) at fixed x. */
INLINE by_bin pull_bin(const bin *b, const point *p, vec x, by_image f, vec shift)
{
    by_bin g;
    const vec far = 1 - x, inner = either(b->first, all(0), f.low / x), outer = f.high / far;
    shift += inner - outer;
    const vec ratio = either(b->first, f.low, all(0)) + shift * b->width * p->xi;
    const vec slopes = f.log_slope / p->slopes, T = ratio / p->D;
    const vec D = -(ratio * p->ratio + 2 * f.log_slope) / p->D;
    const vec kappa = (D - T) * p->product;
    const vec product = (D - T) * p->kappa + 2 * slopes * p->sigma;
    const vec more = 1 + p->sigma;
    const vec sigma = 2 * f.log_slope / more + D + 2 * slopes * p->product - 2 * kappa +
                      T * (p->sigma * p->xi + b->left * p->eta + more * p->xi);
    const vec xi = shift * b->width * p->ratio + T * more * (p->sigma - b->left) +
                   2 * slopes * (b->right * p->xi - b->left * p->eta) + product * (1 - 2 * p->xi);
    const vec moved = xi / b->width;
    g.near = moved - (inner / x + outer / far) * p->shift;
    g.start = -shift - moved;
    g.end = shift;
    g.height = sigma / b->width;
    g.width = shift * p->xi * p->ratio - g.height * more - moved * p->xi;
    g.left = T * more * p->eta + slopes * p->eta * p->eta + kappa;
    g.right = slopes * p->xi * p->xi + kappa;
    return g;
}

/* Replaces rows of bins by derivatives by what they were made of. */
INLINE void spread(vec *rows, int64_t bins, const bin *b, vec by_size, vec size, vec by_sum, vec sum)
{
    const vec beside = either(b->mirrored, (double)(bins - 1) - b->number, b->number);
    const vec mean = ((size - MIN_WIDTH) * by_size + (sum - MIN_WIDTH * beside) * by_sum) /
                     (1 - (double)bins * MIN_WIDTH);
    for (int64_t k = 0; k < bins; k++) {
        const mask before = ((double)k < b->number) ^ b->mirrored;
        const vec by = either(b->number == (double)k, by_size, either(before, by_sum, all(0)));
        rows[k] = (rows[k] - MIN_WIDTH) * (by - mean);
    }
}

/* Derivative by the point, and by all parameters in place of their rows. */
INLINE vec pull_spline(const bin *b, const point *p, const image *made, by_image f, int inverse,
                         vec *rows, int64_t bins)
{
    vec x = b->near, low = made->low, high = made->high, by_x;
    by_image own = {either(b->mirrored, f.high, f.low), either(b->mirrored, f.low, f.high),
                    f.log_slope};
    by_bin g;
    if (inverse) {
        /* ratios and slope are one over those of F at x, and dx = (dy - dF) / F' */
        low = either(b->mirrored, made->high, made->low);
        high = either(b->mirrored, made->low, made->high);
        own.low *= -(1 + low) * (1 + low);
        own.high *= -(1 + high) * (1 + high);
        own.log_slope = -own.log_slope;
        x = b->start + b->width * p->xi;
        by_x = pull_bin(b, p, x, own, all(0)).near * made->slope;
        g = pull_bin(b, p, x, own, -by_x);
    } else {
        g = pull_bin(b, p, x, own, all(0));
        by_x = g.near;
    }
    spread(rows, bins, b, g.width, b->width, g.start, b->start);
    spread(rows + bins, bins, b, g.height, b->height, g.end, b->end);
    const vec left = either(b->mirrored, g.right, g.left) * excess_slope(b->parameters[0]);
    const vec right = either(b->mirrored, g.left, g.right) * excess_slope(b->parameters[1]);
    for (int64_t k = 0; k <= bins; k++)
        rows[2 * bins + k] = either(b->number == (double)k, left, all(0)) +
                             either(b->number + 1 == (double)k, right, all(0));
    return either(b->mirrored, -by_x, by_x);
}
