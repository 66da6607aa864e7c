"""Rational-quadratic splines in Triton, as native.c calculates them.

Every number is a block of one per matrix; parameters are read again where they are needed, since
they are too many to be kept. A bin is a tuple, see `find_bin`; points are seen from the closer end.
"""

import triton
import triton.language as tl

from pipeline_kernels.su3.splines import reference

MIN_WIDTH = tl.constexpr(reference.MIN_WIDTH)
RISE = tl.constexpr(reference.RISE)
REST = tl.constexpr(1 - reference.RISE)


@triton.constexpr_function
def find_divisible_part(bins):
    """Return the part of [0, 1] that softmax distributes among the bins."""
    return 1 - bins * reference.MIN_WIDTH


@triton.jit
def scale_bins(parameters, BINS: tl.constexpr):
    """Return the constants that turn numbers into sizes of bins: see `_compute_size`."""
    top = tl.load(parameters)
    for k in range(1, BINS):
        top = tl.maximum(top, tl.load(parameters + k))
    total = tl.zeros_like(top)
    for k in range(BINS):
        total += tl.exp(tl.load(parameters + k) - top)
    return parameters, top, find_divisible_part(BINS) / total


@triton.jit
def _compute_size(scale, k):
    """Return the size of bin k."""
    parameters, top, factor = scale
    return tl.exp(tl.load(parameters + k) - top) * factor + MIN_WIDTH


@triton.jit
def compute_excess(u):
    """Return the slope of a parameter, less one, and its derivative."""
    above = u > 0
    part = tl.where(above, u * 0.0 + REST, u * 0.0 + RISE)
    power = tl.exp(-tl.abs(u))
    rest = part * (power - 1) + 1
    slope = part * power / rest
    return tl.log(rest) + tl.maximum(u, 0.0), tl.where(above, -slope + 1, slope)


@triton.jit
def find_bin(widths, heights, slopes, x, complement, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Return the bin of a point.

    Number, if mirrored, if first; start and its image, width, height, slopes less one at its ends;
    parameters of these, that at the smaller x first.
    """
    width, height, one, two = (
        _compute_size(widths, 0),
        _compute_size(heights, 0),
        tl.load(slopes),
        tl.load(slopes + 1),
    )
    start, end, number = tl.zeros_like(x), tl.zeros_like(x), (x * 0.0).to(tl.int32)
    next_start, next_end = width, height
    for k in range(1, BINS):
        inside = x >= (next_end if INVERSE else next_start)
        own_width, own_height = _compute_size(widths, k), _compute_size(heights, k)
        number = tl.where(inside, k, number)
        start, end = tl.where(inside, next_start, start), tl.where(inside, next_end, end)
        width, height = tl.where(inside, own_width, width), tl.where(inside, own_height, height)
        one = tl.where(inside, tl.load(slopes + k), one)
        two = tl.where(inside, tl.load(slopes + k + 1), two)
        next_start += own_width
        next_end += own_height
    mirrored, last = x > complement, number == BINS - 1
    first = (mirrored & last) | ((x <= complement) & (number == 0))
    start = tl.where(mirrored, tl.where(last, 0.0, -(start + width) + 1), start)
    end = tl.where(mirrored, tl.where(last, 0.0, -(end + height) + 1), end)
    left, _ = compute_excess(tl.where(mirrored, two, one))
    right, _ = compute_excess(tl.where(mirrored, one, two))
    return (number, mirrored, first), (start, end, width, height, left, right), (one, two)


@triton.jit
def _evaluate_point(inner, xi):
    """Return sigma, D, T / D, the shift and sum of slopes at a point, as native.c does."""
    start, end, width, height, left, right = inner
    sigma, eta = (height - width) / width, -xi + 1
    product, kappa = xi * eta, left + right - 2 * sigma
    D = kappa * product + sigma + 1
    ratio = ((sigma + 1) * (sigma * xi + left * eta) - kappa * product) / D
    slopes = right * xi * xi + 2 * sigma * product + left * eta * eta + 1
    return sigma, D, ratio, end - start + width * xi * ratio, slopes


@triton.jit
def evaluate_spline(within, x, complement, INVERSE: tl.constexpr):
    """Return the image and xi, of an inverse at the image.

    An image: F(x) / x - 1, the same from the other end, F'(x).
    """
    where, inner, _ = within
    _, mirrored, first = where
    start, end, width, height, left, right = inner
    near, far = tl.minimum(x, complement), tl.maximum(x, complement)
    if INVERSE:
        sigma = (height - width) / width
        kappa, theta = left + right - 2 * sigma, (near - end) / height
        rest, turn = -theta + 1, -2 * theta + 1
        a = sigma - left + theta * kappa
        b = left * turn + 2 * theta * sigma - theta * turn * kappa + 1
        root = tl.sqrt(b * b + 4 * a * a * theta * rest)
        plus = b >= 0
        v = tl.where(plus, 2 * rest * a, root - b) / tl.where(plus, b + root, 2 * a * theta)
        xi = theta * (v + 1)
        shift, ratio = start - end + width * theta * (v - sigma), (v - sigma) / (sigma + 1)
        _, D, _, _, slopes = _evaluate_point(inner, xi)
        part = D / (sigma + 1)
        slope = part * part / slopes
    else:
        xi = (near - start) / width
        sigma, D, ratio, shift, slopes = _evaluate_point(inner, xi)
        part = (sigma + 1) / D
        slope = part * part * slopes
    from_near, from_far = tl.where(first, ratio, shift / near), -shift / far
    low = tl.where(mirrored, from_far, from_near)
    return (low, tl.where(mirrored, from_near, from_far), slope), xi


@triton.jit
def _pull_bin(within, xi, x, weights, shift):
    """Return derivatives by point, start, end, width, height, left and right slope of the bin."""
    where, inner, _ = within
    first = where[2]
    _, _, width, _, left, right = inner
    by_low, by_high, by_log = weights
    sigma, D, ratio, moved, slopes = _evaluate_point(inner, xi)
    kappa, far, eta, more = left + right - 2 * sigma, -x + 1, -xi + 1, sigma + 1
    inside, outside = tl.where(first, 0.0, by_low / x), by_high / far
    shift = shift + inside - outside
    by_ratio = tl.where(first, by_low, 0.0) + shift * width * xi
    by_slopes, by_T = by_log / slopes, by_ratio / D
    by_D = -(by_ratio * ratio + 2 * by_log) / D
    by_kappa = (by_D - by_T) * xi * eta
    by_product = (by_D - by_T) * kappa + 2 * by_slopes * sigma
    by_sigma = 2 * by_log / more + by_D + 2 * by_slopes * xi * eta - 2 * by_kappa
    by_sigma += by_T * (sigma * xi + left * eta + more * xi)
    by_xi = shift * width * ratio + by_T * more * (sigma - left)
    by_xi += 2 * by_slopes * (right * xi - left * eta) + by_product * (-2 * xi + 1)
    by_point, by_height = by_xi / width, by_sigma / width
    by_width = shift * xi * ratio - by_height * more - by_point * xi
    by_left = by_T * more * eta + by_slopes * eta * eta + by_kappa
    by_right = by_slopes * xi * xi + by_kappa
    by_near = by_point - (inside / x + outside / far) * moved
    return by_near, -shift - by_point, shift, by_width, by_height, by_left, by_right


@triton.jit
def _store_sizes(out, present, scale, within, by, BINS: tl.constexpr):
    """Store derivatives by what bins were made of; `by`: those by size and start, and these."""
    where, _, _ = within
    number, mirrored, _ = where
    by_size, by_start, size, start = by
    beside = tl.where(mirrored, BINS - 1 - number, number).to(tl.float64)
    mean = (size - MIN_WIDTH) * by_size + (start - MIN_WIDTH * beside) * by_start
    mean = mean / find_divisible_part(BINS)
    for k in range(BINS):
        before = (mirrored & (number < k)) | ((mirrored == 0) & (number > k))
        part = tl.where(number == k, by_size, tl.where(before, by_start, 0.0))
        tl.store(out + k, (_compute_size(scale, k) - MIN_WIDTH) * (part - mean), present)


@triton.jit
def pull_spline(spline, point, weights, out, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Return the derivative by the point and stores those by all parameters.

    `spline` holds scalings of widths and heights, the bin, its image and xi; `point` x and its
    complement; `out` where to store for each matrix, and which there are.
    """
    sizes, within, image, xi = spline
    memory, present = out
    where, inner, parameters = within
    number, mirrored, _ = where
    low, high, slope = image
    by_low, by_high, by_log = weights
    if INVERSE:  # ratios and slope are one over those of F at x, and dx = (dy - dF) / F'
        by_low, by_high = -by_low * (low + 1) * (low + 1), -by_high * (high + 1) * (high + 1)
        by_log = -by_log
    own = (tl.where(mirrored, by_high, by_low), tl.where(mirrored, by_low, by_high), by_log)
    near = inner[0] + inner[2] * xi if INVERSE else tl.minimum(point[0], point[1])
    by_bin = _pull_bin(within, xi, near, own, tl.zeros_like(xi))
    by_x = by_bin[0]
    if INVERSE:
        by_x = by_x * slope
        by_bin = _pull_bin(within, xi, near, own, -by_x)
    _, by_start, by_end, by_width, by_height, by_left, by_right = by_bin
    start, end, width, height, _, _ = inner
    by = (by_width, by_start, width, start)
    _store_sizes(memory, present, sizes[0], within, by, BINS)
    by = (by_height, by_end, height, end)
    _store_sizes(memory + BINS, present, sizes[1], within, by, BINS)
    one = tl.where(mirrored, by_right, by_left) * compute_excess(parameters[0])[1]
    two = tl.where(mirrored, by_left, by_right) * compute_excess(parameters[1])[1]
    for k in range(BINS + 1):
        part = tl.where(number == k, one, tl.where(number == k - 1, two, 0.0))
        tl.store(memory + 2 * BINS + k, part, present)
    return tl.where(mirrored, -by_x, by_x)
