"""The Triton kernels of gated messages: each program takes whole blocks of messages, both halves.

Symbols are those of the package's formulas; a prime is `d_` here, core and gate end in 0 and 1.
Blocks are (messages, D) or (messages, H), filled up with zeros to powers of two. Numbers are read
in the type that they have and calculated in that of the parameters. No kernel keeps an
intermediate; the next one calculates it again.

A kernel of derivatives goes over blocks in steps of all programs. It sums derivatives by parameters
on the way and stores one sum a program, to be added later: nothing is added atomically, so that the
order depends on the number of programs alone.

| argument     | holds                                                                           |
|--------------|---------------------------------------------------------------------------------|
| `data`       | tables, factors or None, derivative of the loss by the sums or None             |
| `rows`       | for each of `data` the row that a message reads, or None for that of the message |
| `directions` | changes of tables and factors                                                   |
| `parameters` | gain, shift, weight and bias, the last two or None                              |
| `sums`       | derivatives by parameters, (programs, ...) each                                 |
| `count`      | number of messages                                                              |
| `block`      | messages of a block, and `count`                                                |
"""

from dataclasses import dataclass

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # of the normalisation, that of torch


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for.

    Attributes:
        width: D.
        hidden: H, or 0 without a hidden layer.
        block: Messages of a block.
        precision: Of products of matrices in float32, as `tl.dot` takes it.
        with_parameters: Whether derivatives by parameters are wanted.
    """

    width: int
    hidden: int
    block: int
    precision: str
    with_parameters: bool

    @property
    def columns(self) -> int:
        """Width of half a table."""
        return self.hidden or self.width


@triton.jit
def compute_messages(messages, data, rows, parameters, count: tl.int64, SHAPE: tl.constexpr):
    """Store messages times their factors."""
    e = tl.program_id(0).to(tl.int64) * SHAPE.block + tl.arange(0, SHAPE.block)
    block = e, count
    _, _, z0 = _normalise(_gather(data, rows, block, parameters, 0, SHAPE), parameters, 0, SHAPE)
    _, _, z1 = _normalise(_gather(data, rows, block, parameters, 1, SHAPE), parameters, 1, SHAPE)
    m = z0 * tl.sigmoid(z0) * tl.sigmoid(z1)
    if data[3] is not None:
        m *= _load(data, rows, 3, block, parameters, SHAPE)
    _store(messages, m, block, SHAPE.width)


@triton.jit
def compute_gradient(outputs, sums, data, rows, parameters, count: tl.int64, SHAPE: tl.constexpr):
    """Store derivatives by h and factor of each message; sum those by parameters."""
    by_h, by_factor = outputs
    total0, total1 = _make_totals(parameters, SHAPE), _make_totals(parameters, SHAPE)
    first = tl.program_id(0).to(tl.int64) * SHAPE.block
    while first < count:
        block = first + tl.arange(0, SHAPE.block), count
        h0 = _gather(data, rows, block, parameters, 0, SHAPE)
        h1 = _gather(data, rows, block, parameters, 1, SHAPE)
        r0, n0, z0 = _normalise(h0, parameters, 0, SHAPE)
        r1, n1, z1 = _normalise(h1, parameters, 1, SHAPE)
        q0, q1 = tl.sigmoid(z0), tl.sigmoid(z1)
        p = z0 * q0
        g_m = _load(data, rows, 4, block, parameters, SHAPE)
        if data[3] is not None:
            _store(by_factor, g_m * p * q1, block, SHAPE.width)
            g_m *= _load(data, rows, 3, block, parameters, SHAPE)
        g_z0, g_z1 = g_m * q1 * (q0 + p - p * q0), g_m * p * (q1 - q1 * q1)
        total0 = _finish(by_h, total0, (h0, r0, n0), g_z0, parameters, block, 0, SHAPE)
        total1 = _finish(by_h, total1, (h1, r1, n1), g_z1, parameters, block, 1, SHAPE)
        first += tl.num_programs(0) * SHAPE.block
    if SHAPE.with_parameters:
        _store_totals(sums, total0, 0, SHAPE)
        _store_totals(sums, total1, 1, SHAPE)


@triton.jit
def _finish(
    by_h,
    total,
    state,
    g_z,
    parameters,
    block,
    HALF: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Store the derivatives by h of half a block; return sums with those by its parameters."""
    h, r, n = state
    g_n = _load_vector(parameters[0], HALF, SHAPE) * g_z
    g_y = r * (g_n - n * _average(n * g_n, SHAPE))
    by_gain, by_shift, by_bias, by_weight = total
    by_rows = g_y
    if SHAPE.hidden:
        s = tl.sigmoid(h)
        by_rows = _pull_back(g_y, parameters, HALF, SHAPE) * (s + h * s * (1 - s))
        if SHAPE.with_parameters:
            by_weight += _multiply(tl.trans(h * s), g_y, SHAPE)
            by_bias += tl.sum(g_y, 0)
    if SHAPE.with_parameters:
        by_gain += tl.sum(g_z * n, 0)
        by_shift += tl.sum(g_z, 0)
    _store(by_h, by_rows, (2 * block[0] + HALF, 2 * block[1]), SHAPE.columns)
    return by_gain, by_shift, by_bias, by_weight


@triton.jit
def compute_second(
    outputs,
    sums,
    directions,
    data,
    rows,
    parameters,
    count: tl.int64,
    SHAPE: tl.constexpr,
):
    """Store derivatives of the change by g, h and factor of each message; sum those by parameters.

    What `outputs` has first is the derivative by g before it is summed for each target.
    """
    by_sum, by_h, by_factor = outputs
    total0, total1 = _make_totals(parameters, SHAPE), _make_totals(parameters, SHAPE)
    first = tl.program_id(0).to(tl.int64) * SHAPE.block
    while first < count:
        block = first + tl.arange(0, SHAPE.block), count
        h0 = _gather(data, rows, block, parameters, 0, SHAPE)
        h1 = _gather(data, rows, block, parameters, 1, SHAPE)
        d_h0 = _gather(directions, rows, block, parameters, 0, SHAPE)
        d_h1 = _gather(directions, rows, block, parameters, 1, SHAPE)
        r0, n0, z0 = _normalise(h0, parameters, 0, SHAPE)
        r1, n1, z1 = _normalise(h1, parameters, 1, SHAPE)
        d_y0, d_n0 = _change(h0, d_h0, r0, n0, parameters, 0, SHAPE)
        d_y1, d_n1 = _change(h1, d_h1, r1, n1, parameters, 1, SHAPE)
        d_z0 = _load_vector(parameters[0], 0, SHAPE) * d_n0
        d_z1 = _load_vector(parameters[0], 1, SHAPE) * d_n1
        q0, q1 = tl.sigmoid(z0), tl.sigmoid(z1)
        p = z0 * q0
        dp, dq = q0 + p - p * q0, q1 - q1 * q1
        d_p, d_q = d_z0 * dp, d_z1 * dq
        d_m = d_p * q1 + p * d_q
        g_m = _load(data, rows, 4, block, parameters, SHAPE)
        d_g_m = tl.zeros_like(g_m)
        if data[3] is None:
            _store(by_sum, d_m, block, SHAPE.width)
        else:
            factor = _load(data, rows, 3, block, parameters, SHAPE)
            d_factor = _load(directions, rows, 3, block, parameters, SHAPE)
            _store(by_sum, d_m * factor + p * q1 * d_factor, block, SHAPE.width)
            _store(by_factor, g_m * d_m, block, SHAPE.width)
            d_g_m = g_m * d_factor
            g_m *= factor
        g_z0, g_z1 = g_m * q1 * dp, g_m * p * dq
        a_z0 = (g_m * d_q + d_g_m * q1) * dp
        a_z0 += g_m * q1 * (1 - q0) * (dp + q0 - p * q0) * d_z0
        a_z1 = (g_m * d_p + d_g_m * p) * dq + g_m * p * dq * (1 - 2 * q1) * d_z1
        state0, state1 = (h0, d_h0, r0, n0, d_y0, d_n0), (h1, d_h1, r1, n1, d_y1, d_n1)
        total0 = _finish_second(by_h, total0, state0, (g_z0, a_z0), parameters, block, 0, SHAPE)
        total1 = _finish_second(by_h, total1, state1, (g_z1, a_z1), parameters, block, 1, SHAPE)
        first += tl.num_programs(0) * SHAPE.block
    _store_totals(sums, total0, 0, SHAPE)
    _store_totals(sums, total1, 1, SHAPE)


@triton.jit
def _change(h, d_h, r, n, parameters, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return the changes y' and n'."""
    d_y = d_h
    if SHAPE.hidden:
        s = tl.sigmoid(h)
        d_u = d_h * (s + h * s * (1 - s))
        d_y = _multiply(d_u, _load_weight(parameters[2], HALF, SHAPE), SHAPE)
    return d_y, r * (d_y - n * _average(n * d_y, SHAPE))


@triton.jit
def _finish_second(
    by_h,
    total,
    state,
    slopes,
    parameters,
    block,
    HALF: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Do as `_finish` with derivatives of the change."""
    h, d_h, r, n, d_y, d_n = state
    g_z, a_z = slopes
    gain = _load_vector(parameters[0], HALF, SHAPE)
    g_n = gain * g_z
    c, k = _average(n * d_y, SHAPE), _average(n * g_n, SHAPE)
    x = gain * a_z - r * (c * g_n + k * d_y)
    a_y = r * (x - n * (_average(n * x, SHAPE) + _average(g_n * d_n, SHAPE)))
    g_y = r * (g_n - n * k)
    by_gain, by_shift, by_bias, by_weight = total
    by_rows = a_y
    if SHAPE.hidden:
        s = tl.sigmoid(h)
        u = h * s
        du = s + u - u * s
        by_weight += _multiply(tl.trans(u), a_y, SHAPE)
        by_weight += _multiply(tl.trans(d_h * du), g_y, SHAPE)
        by_bias += tl.sum(a_y, 0)
        d2u = (1 - s) * (du + s - u * s)
        by_rows = _pull_back(a_y, parameters, HALF, SHAPE) * du
        by_rows += _pull_back(g_y, parameters, HALF, SHAPE) * d2u * d_h
    _store(by_h, by_rows, (2 * block[0] + HALF, 2 * block[1]), SHAPE.columns)
    by_gain += tl.sum(g_z * d_n + a_z * n, 0)
    return by_gain, by_shift + tl.sum(a_z, 0), by_bias, by_weight


# ---- the steps of half a block ----


@triton.jit
def _normalise(h, parameters, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return r, n and z."""
    y = h
    if SHAPE.hidden:
        y = _multiply(h * tl.sigmoid(h), _load_weight(parameters[2], HALF, SHAPE), SHAPE)
        y += _load_vector(parameters[3], HALF, SHAPE)
    r = 1 / tl.sqrt(_average(y * y, SHAPE) + EPSILON)
    n = y * r
    z = _load_vector(parameters[0], HALF, SHAPE) * n + _load_vector(parameters[1], HALF, SHAPE)
    return r, n, z


@triton.jit
def _average(x, SHAPE: tl.constexpr):
    return (tl.sum(x, 1) / SHAPE.width)[:, None]


@triton.jit
def _pull_back(g_y, parameters, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return g_y Wᵀ."""
    return _multiply(g_y, tl.trans(_load_weight(parameters[2], HALF, SHAPE)), SHAPE)


@triton.jit
def _multiply(a, b, SHAPE: tl.constexpr):
    return tl.dot(a, b, input_precision=SHAPE.precision, out_dtype=a.dtype)


# ---- from memory and back ----


@triton.constexpr_function
def _pad(width):
    """Return how many columns hold a width: what `tl.dot` takes."""
    return max(16, triton.next_power_of_2(width))


@triton.jit
def _gather(tables, rows, block, parameters, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return the sum of the rows of half the tables."""
    e, count = block
    c = tl.arange(0, _pad(SHAPE.columns))[None, :]
    mask = (e < count)[:, None] & (c < SHAPE.columns)
    h = tl.zeros(mask.shape, parameters[0].dtype.element_ty)
    for t in tl.static_range(3):
        row = e if rows[t] is None else tl.load(rows[t] + e, e < count, 0)
        place = (2 * row + HALF)[:, None] * SHAPE.columns + c
        h += tl.load(tables[t] + place, mask, 0.0).to(h.dtype)
    return h


@triton.jit
def _load(data, rows, place: tl.constexpr, block, parameters, SHAPE: tl.constexpr):
    """Return the rows of width D that messages read at a place of `data`."""
    e, count = block
    d = tl.arange(0, _pad(SHAPE.width))[None, :]
    row = e if rows[place] is None else tl.load(rows[place] + e, e < count, 0)
    mask = (e < count)[:, None] & (d < SHAPE.width)
    values = tl.load(data[place] + row[:, None] * SHAPE.width + d, mask, 0.0)
    return values.to(parameters[0].dtype.element_ty)


@triton.jit
def _store(out, values, block, width: tl.constexpr):
    e, count = block
    c = tl.arange(0, values.shape[1])[None, :]
    tl.store(out + e[:, None] * width + c, values, (e < count)[:, None] & (c < width))


@triton.jit
def _load_vector(parameter, HALF: tl.constexpr, SHAPE: tl.constexpr):
    d = tl.arange(0, _pad(SHAPE.width))
    return tl.load(parameter + HALF * SHAPE.width + d, d < SHAPE.width, 0.0)[None, :]


@triton.jit
def _load_weight(weight, HALF: tl.constexpr, SHAPE: tl.constexpr):
    place, mask = _place_weight(HALF, SHAPE)
    return tl.load(weight + place, mask, 0.0)


@triton.jit
def _place_weight(HALF: tl.constexpr, SHAPE: tl.constexpr):
    i, d = tl.arange(0, _pad(SHAPE.hidden))[:, None], tl.arange(0, _pad(SHAPE.width))[None, :]
    mask = (i < SHAPE.hidden) & (d < SHAPE.width)
    return (HALF * SHAPE.hidden + i) * SHAPE.width + d, mask


@triton.jit
def _make_totals(parameters, SHAPE: tl.constexpr):
    """Return zeros for the derivatives by gain, shift, bias and weight of half the features."""
    vector = tl.zeros((_pad(SHAPE.width),), parameters[0].dtype.element_ty)
    rows: tl.constexpr = _pad(SHAPE.hidden) if SHAPE.hidden else 1
    weight = tl.zeros((rows, _pad(SHAPE.width)), parameters[0].dtype.element_ty)
    return vector, vector, vector, weight


@triton.jit
def _store_totals(sums, total, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Store the sums of a program."""
    program = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, _pad(SHAPE.width))
    own = (2 * program + HALF) * SHAPE.width + d
    tl.store(sums[0] + own, total[0], d < SHAPE.width)
    tl.store(sums[1] + own, total[1], d < SHAPE.width)
    if SHAPE.hidden:
        tl.store(sums[3] + own, total[2], d < SHAPE.width)
        place, mask = _place_weight(HALF, SHAPE)
        weight = sums[2] + program * 2 * SHAPE.hidden * SHAPE.width
        tl.store(weight + place, total[3], mask)
