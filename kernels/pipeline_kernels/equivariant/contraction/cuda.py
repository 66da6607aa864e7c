"""The contraction on NVIDIA GPUs: Triton, with a tile of atoms and channels in each program.

A program walks through the terms in the tables of the polynomial, which are data: one compilation
serves all polynomials. The inputs of its tile stay in the first level of cache. With a direction u
each kernel calculates the change along it instead, by the rule of products.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.equivariant.contraction.plan import CHUNK
from pipeline_kernels.equivariant.contraction.tables import Tables

ATOMS = 8  # of a tile
TILES = tl.constexpr(CHUNK // ATOMS)  # of a chunk
SPLITS = tl.constexpr(8)  # programs that share the terms of a chunk


class _Batch:
    """Atoms and polynomial, as the kernels take them.

    Attributes:
        atoms: `order` and `chunks` of `AtomsByElement`.
        tables: the polynomial that the kernels read.
        sizes: numbers of inputs, outputs and terms.
    """

    def __init__(self, order: Tensor, chunks: Tensor, code: Tensor, sizes: Sequence[int]) -> None:
        tables = Tables.of(code, sizes)
        self.atoms = order.contiguous(), chunks.contiguous()
        self.tables = tables.terms, tables.output_offsets, tables.derivatives, tables.input_offsets
        self.sizes = sizes[0], sizes[1], sizes[4]


def value(features: Tensor, coefficients: Tensor, *batch: Any) -> Tensor:
    """Implement `reference.value`."""
    return _value(features, None, coefficients, _Batch(*batch))


def by_features(features: Tensor, coefficients: Tensor, weights: Tensor, *batch: Any) -> Tensor:
    """Implement `reference.by_features`."""
    return _by_features(features, None, coefficients, weights, _Batch(*batch))


def by_coefficients(features: Tensor, weights: Tensor, n_present: int, *batch: Any) -> Tensor:
    """Implement `reference.by_coefficients`."""
    return _by_coefficients(features, None, weights, n_present, _Batch(*batch))


def tangents(
    features: Tensor, coefficients: Tensor, weights: Tensor, direction: Tensor, *batch: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.tangents`."""
    x, u, c, g, all_else = features, direction, coefficients, weights, _Batch(*batch)
    by_c = _by_coefficients(x, u, g, len(c), all_else)
    return _value(x, u, c, all_else), _by_features(x, u, c, g, all_else), by_c


def _value(x: Tensor, u: Tensor | None, c: Tensor, batch: _Batch) -> Tensor:
    out = x.new_empty(len(x), batch.sizes[1], x.shape[2])
    _launch(_sum_outputs, (x, u, c, out), batch, TILES.value)
    return out


def _by_features(x: Tensor, u: Tensor | None, c: Tensor, g: Tensor, batch: _Batch) -> Tensor:
    by_x = x.new_empty(x.shape)
    _launch(_differentiate_inputs, (x, u, c, g, by_x), batch, TILES.value)
    return by_x


def _by_coefficients(
    x: Tensor, u: Tensor | None, g: Tensor, n_present: int, batch: _Batch
) -> Tensor:
    chunks = batch.atoms[1]
    partial = x.new_empty(len(chunks), batch.sizes[2], x.shape[2])
    _launch(_differentiate_coefficients, (x, u, g, partial), batch, SPLITS.value)
    if len(partial) == n_present:
        return partial
    rows = torch.arange(n_present + 1, device=chunks.device)
    offsets = torch.searchsorted(chunks[:, 0].contiguous(), rows)
    return torch.segment_reduce(partial, "sum", offsets=offsets, axis=0)


def _launch(
    kernel: triton.JITFunction, tensors: tuple[Tensor | None, ...], batch: _Batch, parts: int
) -> None:
    """Start a program for each part of a chunk and each block of channels."""
    *inputs, result = tensors
    x = inputs[0]
    assert x is not None
    if x.numel() == 0:
        return
    n_channels = x.shape[2]
    width = min(64, max(16, triton.next_power_of_2(n_channels)))
    arrays = *(None if t is None else t.detach().contiguous() for t in inputs), result
    sizes = *batch.sizes, n_channels
    grid = (len(batch.atoms[1]) * parts, triton.cdiv(n_channels, width))
    with torch.cuda.device_of(x):
        kernel[grid](arrays, batch.atoms, batch.tables, sizes, ATOMS, width)


@triton.jit
def _sum_outputs(arrays, atoms, tables, sizes, ATOMS: tl.constexpr, WIDTH: tl.constexpr):
    x, u, c, out = arrays
    terms, offsets, _, _ = tables
    n_inputs, n_outputs, n_terms, n_channels = sizes
    element, first, last = _read_chunk(atoms[1], tl.program_id(0) // TILES)
    first += tl.program_id(0) % TILES * ATOMS
    if first >= last:
        return
    atom, channel, mask = _place_tile(atoms[0], first, last, n_channels, ATOMS, WIDTH)
    own = atom * n_inputs * n_channels + channel
    for o in range(n_outputs):
        total = tl.zeros((ATOMS, WIDTH), x.dtype.element_ty)
        for t in range(tl.load(offsets + o), tl.load(offsets + o + 1)):
            term = terms + 4 * t
            scale = tl.load(c + (element * n_terms + t) * n_channels + channel, mask, 0.0)
            total += scale * _multiply(x, u, term + 1, own, mask, n_channels)
        tl.store(out + (atom * n_outputs + o) * n_channels + channel, total, mask)


@triton.jit
def _differentiate_inputs(arrays, atoms, tables, sizes, ATOMS: tl.constexpr, WIDTH: tl.constexpr):
    x, u, c, g, by_x = arrays
    _, _, derivatives, offsets = tables
    n_inputs, n_outputs, n_terms, n_channels = sizes
    element, first, last = _read_chunk(atoms[1], tl.program_id(0) // TILES)
    first += tl.program_id(0) % TILES * ATOMS
    if first >= last:
        return
    atom, channel, mask = _place_tile(atoms[0], first, last, n_channels, ATOMS, WIDTH)
    own = atom * n_inputs * n_channels + channel
    for i in range(n_inputs):
        total = tl.zeros((ATOMS, WIDTH), x.dtype.element_ty)
        for e in range(tl.load(offsets + i), tl.load(offsets + i + 1)):
            entry = derivatives + 4 * e
            t, o = tl.load(entry), tl.load(entry + 1)
            scale = tl.load(c + (element * n_terms + t) * n_channels + channel, mask, 0.0)
            scale *= tl.load(g + (atom * n_outputs + o) * n_channels + channel, mask, 0.0)
            total += scale * _multiply_pair(x, u, entry + 2, own, mask, n_channels)
        tl.store(by_x + own + i * n_channels, total, mask)


@triton.jit
def _differentiate_coefficients(
    arrays, atoms, tables, sizes, ATOMS: tl.constexpr, WIDTH: tl.constexpr
):
    x, u, g, by_c = arrays
    terms, _, _, _ = tables
    n_inputs, n_outputs, n_terms, n_channels = sizes
    number = (tl.program_id(0) // SPLITS).to(tl.int64)
    _, first, last = _read_chunk(atoms[1], number)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    for t in range(tl.program_id(0) % SPLITS, n_terms, SPLITS):
        term = terms + 4 * t
        o = tl.load(term)
        total = tl.zeros((ATOMS, WIDTH), x.dtype.element_ty)
        for begin in range(first, last, ATOMS):
            atom, channel, mask = _place_tile(atoms[0], begin, last, n_channels, ATOMS, WIDTH)
            own = atom * n_inputs * n_channels + channel
            scale = tl.load(g + (atom * n_outputs + o) * n_channels + channel, mask, 0.0)
            total += scale * _multiply(x, u, term + 1, own, mask, n_channels)
        to = by_c + (number * n_terms + t) * n_channels + column
        tl.store(to, tl.sum(total, 0), column < n_channels)


@triton.jit
def _read_chunk(chunks, number):
    """Return the row of the coefficients of a chunk, its first atom and its last + 1."""
    chunk = chunks + 3 * number
    return tl.load(chunk), tl.load(chunk + 1), tl.load(chunk + 2)


@triton.jit
def _place_tile(order, first, last, n_channels, ATOMS: tl.constexpr, WIDTH: tl.constexpr):
    """Return atoms as a column, channels as a row, and which of both there are."""
    place = first + tl.arange(0, ATOMS)[:, None]
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    atom = tl.load(order + place, place < last, 0)
    return atom, channel, (place < last) & (channel < n_channels)


@triton.jit
def _multiply(x, u, term, own, mask, n_channels):
    """Return the product of the three inputs of a term, or its change along u."""
    k = tl.load(term + 2)
    product = _load_input(x, k, own, mask, n_channels, 1.0) * _multiply_pair(
        x, u, term, own, mask, n_channels
    )
    if u is not None:
        change = _load_input(u, k, own, mask, n_channels, 0.0)
        product += change * _multiply_pair(x, None, term, own, mask, n_channels)
    return product


@triton.jit
def _multiply_pair(x, u, factors, own, mask, n_channels):
    """Return the product of two inputs, or its change along u."""
    i, j = tl.load(factors), tl.load(factors + 1)
    a = _load_input(x, i, own, mask, n_channels, 1.0)
    b = _load_input(x, j, own, mask, n_channels, 1.0)
    if u is None:
        product = a * b
    else:
        product = a * _load_input(u, j, own, mask, n_channels, 0.0)
        product += b * _load_input(u, i, own, mask, n_channels, 0.0)
    return product


@triton.jit
def _load_input(x, index, own, mask, n_channels, absent: tl.constexpr):
    """Return an input of the atoms of the tile, a constant in place of one that is absent (-1)."""
    return tl.load(x + own + index * n_channels, mask & (index >= 0), absent)
