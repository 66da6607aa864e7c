"""The Triton kernels of gated messages: each program takes whole blocks of messages, both halves.

Symbols follow the package's formulas; a prime is `d_` here, core and gate end in 0 and 1.
Blocks are (messages, D), filled up with zeros to powers of two; the hidden layer is gone through in
chunks of its width, so that what a program holds fits into registers. Numbers are read in the type
that they have and calculated in that of the parameters. Nothing is kept: h is gathered again where
it is needed again.

A kernel of derivatives goes over blocks in steps of all programs. Each program adds derivatives by
parameters in an own place, and these are added later: nothing is added atomically, so that the
order depends on the number of programs alone.

| argument     | holds                                                                            |
|--------------|----------------------------------------------------------------------------------|
| `data`       | tables, factors or None, derivative of the loss by the sums or None              |
| `rows`       | for each of `data` the row that a message reads, or None for the message's own   |
| `parameters` | gain, shift, weight and bias, without a hidden layer the first two               |
| `directions` | changes of tables and factors                                                    |
| `operands`   | these four, the last for second derivatives alone                                |
| `sums`       | derivatives by parameters, (programs, ...) each, or None                         |
| `count`      | number of messages                                                               |
| `block`      | messages of a block, `count`, and whether it is the first of the program         |
"""

from dataclasses import dataclass

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # of the normalisation, as in torch
CHUNK = tl.constexpr(16)  # of the width of the hidden layer


@dataclass(frozen=True)
class Shape:
    """Compile-time options of a kernel.

    Attributes:
        width: D.
        hidden: H, or 0 without a hidden layer.
        block: Messages per block.
        precision: Precision of float32 matrix products, as in `tl.dot`.
    """

    width: int
    hidden: int
    block: int
    precision: str

    @property
    def columns(self) -> int:
        """Width of half a table."""
        return self.hidden or self.width


@triton.jit
def compute_messages(messages, data, rows, parameters, count: tl.int64, SHAPE: tl.constexpr):
    """Store messages times their factors."""
    operands = data, rows, parameters
    e = tl.program_id(0).to(tl.int64) * SHAPE.block + tl.arange(0, SHAPE.block)
    block = e, count, True
    _, _, z0 = _normalise(operands, block, 0, SHAPE)
    _, _, z1 = _normalise(operands, block, 1, SHAPE)
    m = z0 * tl.sigmoid(z0) * tl.sigmoid(z1)
    if data[3] is not None:
        m *= _load(data, operands, 3, block, SHAPE)
    _store(messages, m, block, SHAPE)


@triton.jit
def compute_gradient(outputs, sums, data, rows, parameters, count: tl.int64, SHAPE: tl.constexpr):
    """Store derivatives by h and factor of each message; sum those by parameters."""
    by_h, by_factor = outputs
    operands = data, rows, parameters
    first = tl.program_id(0).to(tl.int64) * SHAPE.block
    while first < count:
        block = first + tl.arange(0, SHAPE.block), count, first < tl.num_programs(0) * SHAPE.block
        r0, n0, z0 = _normalise(operands, block, 0, SHAPE)
        r1, n1, z1 = _normalise(operands, block, 1, SHAPE)
        q0, q1 = tl.sigmoid(z0), tl.sigmoid(z1)
        p = z0 * q0
        g_m = _load(data, operands, 4, block, SHAPE)
        if data[3] is not None:
            _store(by_factor, g_m * p * q1, block, SHAPE)
            g_m *= _load(data, operands, 3, block, SHAPE)
        g_z0, g_z1 = g_m * q1 * (q0 + p - p * q0), g_m * p * (q1 - q1 * q1)
        _finish(by_h, sums, operands, (r0, n0), g_z0, block, 0, SHAPE)
        _finish(by_h, sums, operands, (r1, n1), g_z1, block, 1, SHAPE)
        first += tl.num_programs(0) * SHAPE.block
        tl.debug_barrier()  # threads read back sums that others have written


@triton.jit
def _finish(by_h, sums, operands, state, g_z, block, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Store the derivatives by h of half a block and add those by its parameters."""
    r, n = state
    g_n = _load_vector(operands[2][0], HALF, SHAPE) * g_z
    g_y = r * (g_n - n * _average(n * g_n, SHAPE))
    if sums is not None:
        _add_vector(sums[0], g_z * n, block, HALF, SHAPE)
        _add_vector(sums[1], g_z, block, HALF, SHAPE)
    if SHAPE.hidden:
        if sums is not None:
            _add_vector(sums[3], g_y, block, HALF, SHAPE)
        for start in range(0, SHAPE.hidden, CHUNK):
            h = _gather(operands[0], operands, block, start, CHUNK, HALF, SHAPE)
            s, weight = tl.sigmoid(h), _load_weight(operands[2], start, HALF, SHAPE)
            g_h = _multiply(g_y, tl.trans(weight), SHAPE) * (s + h * s * (1 - s))
            _store_half(by_h, g_h, block, start, HALF, SHAPE)
            if sums is not None:
                by_weight = _multiply(tl.trans(h * s), g_y, SHAPE)
                _add_weight(sums[2], by_weight, block, start, HALF, SHAPE)
    else:
        _store_half(by_h, g_y, block, 0, HALF, SHAPE)


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
    operands = data, rows, parameters, directions
    first = tl.program_id(0).to(tl.int64) * SHAPE.block
    while first < count:
        block = first + tl.arange(0, SHAPE.block), count, first < tl.num_programs(0) * SHAPE.block
        r0, n0, z0 = _normalise(operands, block, 0, SHAPE)
        r1, n1, z1 = _normalise(operands, block, 1, SHAPE)
        d_y0 = _transform(operands, block, True, 0, SHAPE)
        d_y1 = _transform(operands, block, True, 1, SHAPE)
        d_n0 = r0 * (d_y0 - n0 * _average(n0 * d_y0, SHAPE))
        d_n1 = r1 * (d_y1 - n1 * _average(n1 * d_y1, SHAPE))
        d_z0 = _load_vector(parameters[0], 0, SHAPE) * d_n0
        d_z1 = _load_vector(parameters[0], 1, SHAPE) * d_n1
        q0, q1 = tl.sigmoid(z0), tl.sigmoid(z1)
        p = z0 * q0
        dp, dq = q0 + p - p * q0, q1 - q1 * q1
        d_p, d_q = d_z0 * dp, d_z1 * dq
        d_m = d_p * q1 + p * d_q
        g_m = _load(data, operands, 4, block, SHAPE)
        d_g_m = tl.zeros_like(g_m)
        if data[3] is None:
            _store(by_sum, d_m, block, SHAPE)
        else:
            factor = _load(data, operands, 3, block, SHAPE)
            d_factor = _load(directions, operands, 3, block, SHAPE)
            _store(by_sum, d_m * factor + p * q1 * d_factor, block, SHAPE)
            _store(by_factor, g_m * d_m, block, SHAPE)
            d_g_m = g_m * d_factor
            g_m *= factor
        g_z0, g_z1 = g_m * q1 * dp, g_m * p * dq
        a_z0 = (g_m * d_q + d_g_m * q1) * dp
        a_z0 += g_m * q1 * (1 - q0) * (dp + q0 - p * q0) * d_z0
        a_z1 = (g_m * d_p + d_g_m * p) * dq + g_m * p * dq * (1 - 2 * q1) * d_z1
        state0, state1 = (r0, n0, d_y0, d_n0), (r1, n1, d_y1, d_n1)
        _finish_second(by_h, sums, operands, state0, (g_z0, a_z0), block, 0, SHAPE)
        _finish_second(by_h, sums, operands, state1, (g_z1, a_z1), block, 1, SHAPE)
        first += tl.num_programs(0) * SHAPE.block
        tl.debug_barrier()  # threads read back sums that others have written


@triton.jit
def _finish_second(
    by_h, sums, operands, state, slopes, block, HALF: tl.constexpr, SHAPE: tl.constexpr
):
    """Do as `_finish` with derivatives of the change."""
    r, n, d_y, d_n = state
    g_z, a_z = slopes
    gain = _load_vector(operands[2][0], HALF, SHAPE)
    g_n = gain * g_z
    c, k = _average(n * d_y, SHAPE), _average(n * g_n, SHAPE)
    x = gain * a_z - r * (c * g_n + k * d_y)
    a_y = r * (x - n * (_average(n * x, SHAPE) + _average(g_n * d_n, SHAPE)))
    g_y = r * (g_n - n * k)
    _add_vector(sums[0], g_z * d_n + a_z * n, block, HALF, SHAPE)
    _add_vector(sums[1], a_z, block, HALF, SHAPE)
    if SHAPE.hidden:
        _add_vector(sums[3], a_y, block, HALF, SHAPE)
        for start in range(0, SHAPE.hidden, CHUNK):
            h = _gather(operands[0], operands, block, start, CHUNK, HALF, SHAPE)
            d_h = _gather(operands[3], operands, block, start, CHUNK, HALF, SHAPE)
            s, weight = tl.sigmoid(h), tl.trans(_load_weight(operands[2], start, HALF, SHAPE))
            u = h * s
            du = s + u - u * s
            d2u = (1 - s) * (du + s - u * s)
            a_h = _multiply(a_y, weight, SHAPE) * du + _multiply(g_y, weight, SHAPE) * d2u * d_h
            _store_half(by_h, a_h, block, start, HALF, SHAPE)
            by_weight = _multiply(tl.trans(u), a_y, SHAPE)
            by_weight += _multiply(tl.trans(d_h * du), g_y, SHAPE)
            _add_weight(sums[2], by_weight, block, start, HALF, SHAPE)
    else:
        _store_half(by_h, a_y, block, 0, HALF, SHAPE)


# ---- the steps of half a block ----


@triton.jit
def _normalise(operands, block, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return r, n and z."""
    y = _transform(operands, block, False, HALF, SHAPE)
    r = 1 / tl.sqrt(_average(y * y, SHAPE) + EPSILON)
    n = y * r
    gain, shift = operands[2][0], operands[2][1]
    return r, n, _load_vector(gain, HALF, SHAPE) * n + _load_vector(shift, HALF, SHAPE)


@triton.jit
def _transform(operands, block, CHANGE: tl.constexpr, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return y or its change."""
    tables = operands[3] if CHANGE else operands[0]
    if SHAPE.hidden:
        y = tl.zeros((block[0].shape[0], _pad(SHAPE.width)), operands[2][0].dtype.element_ty)
        if not CHANGE:
            y += _load_vector(operands[2][3], HALF, SHAPE)
        for start in range(0, SHAPE.hidden, CHUNK):
            h = _gather(operands[0], operands, block, start, CHUNK, HALF, SHAPE)
            s = tl.sigmoid(h)
            u = h * s
            if CHANGE:
                u = _gather(tables, operands, block, start, CHUNK, HALF, SHAPE) * (s + u - u * s)
            y += _multiply(u, _load_weight(operands[2], start, HALF, SHAPE), SHAPE)
    else:
        y = _gather(tables, operands, block, 0, _pad(SHAPE.width), HALF, SHAPE)
    return y


@triton.jit
def _average(x, SHAPE: tl.constexpr):
    return (tl.sum(x, 1) / SHAPE.width)[:, None]


@triton.jit
def _multiply(a, b, SHAPE: tl.constexpr):
    return tl.dot(a, b, input_precision=SHAPE.precision, out_dtype=a.dtype)


# ---- from memory and back ----


@triton.constexpr_function
def _pad(width):
    """Return the padded number of columns that `tl.dot` takes for a width."""
    return max(16, triton.next_power_of_2(width))


@triton.jit
def _gather(
    tables, operands, block, start, WIDTH: tl.constexpr, HALF: tl.constexpr, SHAPE: tl.constexpr
):
    """Return the sum of the rows of half the tables, some columns from `start`."""
    e, count, _ = block
    rows, parameters = operands[1], operands[2]
    c = start + tl.arange(0, WIDTH)[None, :]
    mask = (e < count)[:, None] & (c < SHAPE.columns)
    h = tl.zeros(mask.shape, parameters[0].dtype.element_ty)
    for t in tl.static_range(3):
        row = e if rows[t] is None else tl.load(rows[t] + e, e < count, 0)
        place = (2 * row + HALF)[:, None] * SHAPE.columns + c
        h += tl.load(tables[t] + place, mask, 0.0).to(h.dtype)
    return h


@triton.jit
def _load(data, operands, place: tl.constexpr, block, SHAPE: tl.constexpr):
    """Return the rows of width D that messages read at a place of `data`."""
    e, count, _ = block
    rows, parameters = operands[1], operands[2]
    d = tl.arange(0, _pad(SHAPE.width))[None, :]
    row = e if rows[place] is None else tl.load(rows[place] + e, e < count, 0)
    mask = (e < count)[:, None] & (d < SHAPE.width)
    values = tl.load(data[place] + row[:, None] * SHAPE.width + d, mask, 0.0)
    return values.to(parameters[0].dtype.element_ty)


@triton.jit
def _store(out, values, block, SHAPE: tl.constexpr):
    e, count, _ = block
    d = tl.arange(0, values.shape[1])[None, :]
    tl.store(out + e[:, None] * SHAPE.width + d, values, (e < count)[:, None] & (d < SHAPE.width))


@triton.jit
def _store_half(by_h, values, block, start, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Store some columns, from `start`, of half the derivatives by h."""
    e, count, _ = block
    c = start + tl.arange(0, values.shape[1])[None, :]
    place = (2 * e + HALF)[:, None] * SHAPE.columns + c
    tl.store(by_h + place, values, (e < count)[:, None] & (c < SHAPE.columns))


@triton.jit
def _load_vector(parameter, HALF: tl.constexpr, SHAPE: tl.constexpr):
    d = tl.arange(0, _pad(SHAPE.width))
    return tl.load(parameter + HALF * SHAPE.width + d, d < SHAPE.width, 0.0)[None, :]


@triton.jit
def _load_weight(parameters, start, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Return a chunk of rows of the weight."""
    place, mask = _place_weight(start, HALF, SHAPE)
    return tl.load(parameters[2] + place, mask, 0.0)


@triton.jit
def _place_weight(start, HALF: tl.constexpr, SHAPE: tl.constexpr):
    i, d = start + tl.arange(0, CHUNK)[:, None], tl.arange(0, _pad(SHAPE.width))[None, :]
    mask = (i < SHAPE.hidden) & (d < SHAPE.width)
    return (HALF * SHAPE.hidden + i) * SHAPE.width + d, mask


@triton.jit
def _add_vector(total, values, block, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Add values, summed over the messages of a block, to the sum of the program."""
    d = tl.arange(0, _pad(SHAPE.width))
    own = total + (2 * tl.program_id(0).to(tl.int64) + HALF) * SHAPE.width + d
    _add(own, tl.sum(values, 0), d < SHAPE.width, block)


@triton.jit
def _add_weight(total, values, block, start, HALF: tl.constexpr, SHAPE: tl.constexpr):
    """Add a chunk of derivatives by the weight to the sum of the program."""
    place, mask = _place_weight(start, HALF, SHAPE)
    own = total + tl.program_id(0).to(tl.int64) * 2 * SHAPE.hidden * SHAPE.width + place
    _add(own, values, mask, block)


@triton.jit
def _add(own, values, mask, block):
    before = tl.load(own, mask & (not block[2]), 0.0)
    tl.debug_barrier()  # small tiles are read by several threads and written by one of them
    tl.store(own, before + values, mask)
