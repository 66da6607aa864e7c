"""The routines of splines.c in numba: one spline at one point, seen from the closer end."""

import math

from numba import njit

from pipeline_kernels.su3.splines import MIN_WIDTH, RISE


@njit(cache=True, nogil=True)
def normalise(row):
    """Replaces numbers that softmax makes bins of by the bins."""
    top, total = row.max(), 0.0
    for k in range(len(row)):
        row[k] = math.exp(row[k] - top)
        total += row[k]
    for k in range(len(row)):
        row[k] = MIN_WIDTH + (1 - len(row) * MIN_WIDTH) / total * row[k]


@njit(cache=True, nogil=True)
def _excess(u):
    """Returns the slope that a parameter stands for, less one, and its derivative."""
    part = 1 - RISE if u > 0 else RISE
    power = math.exp(-abs(u))
    slope = part * power / (1 + part * (power - 1))
    return math.log1p(part * (power - 1)) + max(u, 0), 1 - slope if u > 0 else slope


@njit(cache=True, nogil=True)
def find(row, x, complement, inverse):
    """Returns the bin of a point: number, if mirrored, if first, corner, size, slopes less one."""
    bins = len(row) // 3
    widths, heights, slopes = row[:bins], row[bins : 2 * bins], row[2 * bins :]
    k, start, end = 0, 0.0, 0.0
    while k < bins - 1 and x >= (end + heights[k] if inverse else start + widths[k]):
        start, end, k = start + widths[k], end + heights[k], k + 1
    width, height, mirrored = widths[k], heights[k], x > complement
    left, right = _excess(slopes[k])[0], _excess(slopes[k + 1])[0]
    if not mirrored:
        return k, False, k == 0, (start, end), (width, height), (left, right)
    last = k == bins - 1
    corner = (0.0, 0.0) if last else (1 - (start + width), 1 - (end + height))
    return k, True, last, corner, (width, height), (right, left)


@njit(cache=True, nogil=True)
def _shape(within):
    (width, height), (left, right) = within[4:]
    sigma = (height - width) / width
    return sigma, left + right - 2 * sigma


@njit(cache=True, nogil=True)
def _shift(xi, within):
    """Returns T, D (see `splines`) and F(x) - x."""
    sigma, kappa = _shape(within)
    (start, end), (width, _), (left, _) = within[3:]
    eta = 1 - xi
    D = 1 + sigma + kappa * xi * eta
    T = (1 + sigma) * (sigma * xi + left * eta) - kappa * xi * eta
    return T, D, end - start + width * xi * T / D


@njit(cache=True, nogil=True)
def _slopes(xi, within):
    sigma, _ = _shape(within)
    left, right = within[5]
    eta = 1 - xi
    return 1 + right * xi * xi + 2 * sigma * xi * eta + left * eta * eta


@njit(cache=True, nogil=True)
def slope_at(xi, within):
    """Returns F'(x)."""
    sigma, kappa = _shape(within)
    part = (1 + sigma) / (1 + sigma + kappa * xi * (1 - xi))
    return part * part * _slopes(xi, within)


@njit(cache=True, nogil=True)
def evaluate(within, x, complement, inverse):
    """Returns F(x) / x - 1, the same from the other end, F'(x), and xi, of an inverse at F(x)."""
    near, far = min(x, complement), max(x, complement)
    (start, end), (width, height), (left, _) = within[3:]
    sigma, kappa = _shape(within)
    if inverse:
        theta = (near - end) / height
        rest, turn = 1 - theta, 1 - 2 * theta
        a = sigma - left + theta * kappa
        b = 1 + left * turn + 2 * theta * sigma - theta * turn * kappa
        root = math.sqrt(b * b + 4 * a * a * theta * rest)
        v = 2 * rest * a / (b + root) if b >= 0 else (root - b) / (2 * a * theta)
        xi = theta * (1 + v)
        shift = start - end + width * theta * (v - sigma)
        ratio, slope = (v - sigma) / (1 + sigma), 1 / slope_at(xi, within)
    else:
        xi = (near - start) / width
        T, D, shift = _shift(xi, within)
        ratio, slope = T / D, slope_at(xi, within)
    from_near, from_far = ratio if within[2] else shift / near, -shift / far
    if within[1]:
        return from_far, from_near, slope, xi
    return from_near, from_far, slope, xi


@njit(cache=True, nogil=True)
def _pull(within, xi, x, weights, shift):
    """Returns derivatives by point, corner, size and slopes of the bin: `pull` in splines.c."""
    (width, _), (left, right) = within[4:]
    low, high, log_slope = weights
    sigma, kappa = _shape(within)
    T, D, moved = _shift(xi, within)
    M, more, eta, far = _slopes(xi, within), 1 + sigma, 1 - xi, 1 - x
    inner, outer = 0.0 if within[2] else low / x, high / far
    shift += inner - outer
    ratio = (low if within[2] else 0.0) + shift * width * xi
    by_M, by_T = log_slope / M, ratio / D
    by_D = -(ratio * T / D + 2 * log_slope) / D
    by_kappa = (by_D - by_T) * xi * eta
    by_product = (by_D - by_T) * kappa + 2 * by_M * sigma
    by_sigma = 2 * log_slope / more + by_D + 2 * by_M * xi * eta - 2 * by_kappa
    by_sigma += by_T * (sigma * xi + left * eta + more * xi)
    by_xi = shift * width * T / D + by_T * more * (sigma - left)
    by_xi += 2 * by_M * (right * xi - left * eta) + by_product * (1 - 2 * xi)
    by_point, by_height = by_xi / width, by_sigma / width
    by_width = shift * xi * T / D - by_height * more - by_point * xi
    by_left = by_T * more * eta + by_M * eta * eta + by_kappa
    by_right = by_M * xi * xi + by_kappa
    by_near = by_point - (inner / x + outer / far) * moved
    return by_near, (-shift - by_point, shift), (by_width, by_height), (by_left, by_right)


@njit(cache=True, nogil=True)
def _spread(row, k, mirrored, by_size, by_sum):
    """Replaces bins by derivatives by what they were made of."""
    mean = 0.0
    for j in range(len(row)):
        before = j > k if mirrored else j < k
        by = by_size if j == k else by_sum if before else 0.0
        mean += (row[j] - MIN_WIDTH) * by
    mean /= 1 - len(row) * MIN_WIDTH
    for j in range(len(row)):
        before = j > k if mirrored else j < k
        by = by_size if j == k else by_sum if before else 0.0
        row[j] = (row[j] - MIN_WIDTH) * (by - mean)


@njit(cache=True, nogil=True)
def evaluate_back(within, made, x, complement, weights, inverse, row):
    """Returns the derivative by the point and replaces the row by those by all parameters."""
    k, mirrored = within[:2]
    low, high, slope, xi = made
    by_low, by_high, by_log = weights
    if inverse:
        by_low *= -(1 + low) * (1 + low)
        by_high *= -(1 + high) * (1 + high)
        by_log = -by_log
    own = (by_high, by_low, by_log) if mirrored else (by_low, by_high, by_log)
    near = within[3][0] + within[4][0] * xi if inverse else min(x, complement)
    by_x, corner, size, slopes = _pull(within, xi, near, own, 0.0)
    if inverse:  # dx = (dy - dF) / F'
        by_x *= slope
        _, corner, size, slopes = _pull(within, xi, near, own, -by_x)
    bins = len(row) // 3
    _spread(row[:bins], k, mirrored, size[0], corner[0])
    _spread(row[bins : 2 * bins], k, mirrored, size[1], corner[1])
    first, second = (slopes[1], slopes[0]) if mirrored else slopes
    first *= _excess(row[2 * bins + k])[1]
    second *= _excess(row[2 * bins + k + 1])[1]
    row[2 * bins :] = 0
    row[2 * bins + k], row[2 * bins + k + 1] = first, second
    return -by_x if mirrored else by_x
