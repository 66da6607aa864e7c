"""The arrays that the compiled loops of `rows.py` read and write; D features, hidden width H."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK: Final = 64
"""Messages of a block; products of larger matrices start threads of the linear algebra library."""


class Case(NamedTuple):
    """What is read; without a hidden layer `weight` is empty, without factors `factors` is.

    Shapes: tables (n_t, 2 H), indices (n_messages,), factors (n_factors, D), gradient (n_targets,
    D), weight (2, H, D), bias, gain and shift (2, D).
    """

    tables: tuple[Floats, Floats, Floats]
    indices: tuple[Ints, Ints, Ints]
    factors: Floats
    factor_index: Ints
    gradient: Floats
    target: Ints
    weight: Floats
    bias: Floats
    gain: Floats
    shift: Floats


class Directions(NamedTuple):
    """Changes of tables and factors, of their shapes."""

    tables: tuple[Floats, Floats, Floats]
    factors: Floats


class Outputs(NamedTuple):
    """Derivatives by message: by h (n_messages, 2 H), by factor and by gradient (n_messages, D)."""

    h: Floats
    factor: Floats
    gradient: Floats


class Sums(NamedTuple):
    """Derivatives by the parameters, (n_ranges, *shape of the parameter)."""

    gain: Floats
    shift: Floats
    weight: Floats
    bias: Floats


class Block(NamedTuple):
    """Scratch memory of a block.

    Shapes: u, s, du (2, BLOCK, H); n, q, g_z, g_y (2, BLOCK, D); p, g_m (BLOCK, D); r, k
    (2, BLOCK); product (H, D). Without a hidden layer n shares the memory of u, and du is one.
    """

    u: Floats
    s: Floats
    du: Floats
    n: Floats
    q: Floats
    g_z: Floats
    g_y: Floats
    p: Floats
    g_m: Floats
    r: Floats
    k: Floats
    product: Floats


class Change(NamedTuple):
    """Scratch memory of the changes of a block.

    Shapes: h_t, u_t (2, BLOCK, H); y_t, n_t, pq_t, a_z, a_y (2, BLOCK, D); g_m_t (BLOCK, D); c
    (2, BLOCK). Without a hidden layer y_t shares the memory of h_t.
    """

    h_t: Floats
    u_t: Floats
    y_t: Floats
    n_t: Floats
    pq_t: Floats
    a_z: Floats
    a_y: Floats
    g_m_t: Floats
    c: Floats


def block(case: Case) -> Block:
    """Allocate the scratch memory of a block."""
    hidden, pair, single = _shapes(case)
    u = np.empty(hidden, np.float32)
    return Block(
        u=u,
        s=np.empty(hidden, np.float32),
        du=np.ones(hidden, np.float32),
        n=np.empty(pair, np.float32) if case.weight.size else u,
        q=np.empty(pair, np.float32),
        g_z=np.empty(pair, np.float32),
        g_y=np.empty(pair, np.float32),
        p=np.empty(single, np.float32),
        g_m=np.empty(single, np.float32),
        r=np.empty((2, BLOCK), np.float32),
        k=np.empty((2, BLOCK), np.float32),
        product=np.empty(case.weight.shape[1:], np.float32),
    )


def change(case: Case) -> Change:
    """Allocate the scratch memory of the changes of a block."""
    hidden, pair, single = _shapes(case)
    h_t = np.empty(hidden, np.float32)
    return Change(
        h_t=h_t,
        u_t=np.empty(hidden, np.float32),
        y_t=np.empty(pair, np.float32) if case.weight.size else h_t,
        n_t=np.empty(pair, np.float32),
        pq_t=np.empty(pair, np.float32),
        a_z=np.empty(pair, np.float32),
        a_y=np.empty(pair, np.float32),
        g_m_t=np.zeros(single, np.float32),
        c=np.empty((2, BLOCK), np.float32),
    )


def _shapes(case: Case) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int]]:
    width = case.gain.shape[1]
    return (2, BLOCK, case.tables[0].shape[1] // 2), (2, BLOCK, width), (BLOCK, width)
