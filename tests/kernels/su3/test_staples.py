"""Layers of staples.

Oracles: gauge covariance; plaquettes of a lattice counted by torch.roll; torch's own derivative
through the formula (`reference`); finite differences.
"""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import LinkContract
from kernels.su3.matrices import COLOURS, draw_normal, draw_unitary, make_tables
from pipeline_kernels.su3 import plaquette_staples, staple_layer
from pipeline_kernels.su3.staples import reference
from tiers import run_first

LATTICES = [(3, 2, 4), (2, 3), (2, 2, 3, 2)]
SOME_LATTICES = run_first(LATTICES, (2, 3), (2, 2, 3, 2))


def draw_fields(extents, n_colours, batch=5, n_in=2, n_out=3, seed=1):
    """Draw fields and coefficients."""
    D, V = len(extents), math.prod(extents)
    S = draw_normal(batch, n_in, D, V, n_colours, n_colours, seed=seed)
    return S, draw_normal(n_out, n_in * (2 * D - 1), seed=seed).real.contiguous()


class TestStaples(LinkContract):
    folder = "su3/staples"
    tolerances = {torch.float64: 5e-14, torch.float32: 1e-5}
    options = {"extents": LATTICES, "n_colours": [3, 2], "batch": [5, 19], "channels": [(2, 3)]}
    few = {"extents": (1, 2), "n_colours": 2, "batch": 1, "channels": (1, 2)}
    many, empty = {"extents": (2, 2), "batch": 19, "channels": (3, 1)}, {"batch": 0}
    random = {
        "batch": st.integers(0, 19),
        "channels": st.sampled_from([(1, 8), (3, 1), (4, 5)]),
        "extents": st.sampled_from([(2, 2), (2, 3), (1, 2, 1)]),
    }
    interpreted = (
        {"extents": (1, 3), "n_colours": 2, "batch": 2, "channels": (1, 2)},
        {"extents": (1, 3), "batch": 2, "channels": (1, 3)},
        {"extents": (2, 1, 1), "n_colours": 2, "batch": 3, "channels": (2, 1)},
    )
    refused = [
        (0, lambda S: S[0], r"S: expected \(batch, channels, D, V, N, N\)"),
        (
            1,
            lambda coefficients: coefficients[:, 1:],
            r"coefficients: expected \(n, 10",
        ),
        (2, lambda forward: forward[:, 1:], "forward: expected"),
        (3, lambda backward: backward.int(), "backward: expected"),
        (4, lambda mask: mask.int(), "mask: expected"),
    ]

    def draw(self, generator, extents, n_colours, batch, channels):
        seed = generator.initial_seed()
        fields = draw_fields(extents, n_colours, batch, *channels, seed)
        mask = torch.rand(len(extents), math.prod(extents), generator=generator) < 0.6
        plan = (*make_tables(extents), mask)
        return Call(staple_layer, reference.staple_layer, fields, plan)


def test_a_sample_does_not_depend_on_others(compiled_c):
    (S, coefficients), tables = draw_fields((2, 3), 3, batch=11), make_tables((2, 3))
    whole = staple_layer(S, coefficients, *tables)
    parts = [staple_layer(part, coefficients, *tables) for part in S.split(3)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("n_colours", COLOURS)
@pytest.mark.parametrize("extents", SOME_LATTICES)
def test_transforms_as_links_do(implementation, extents, n_colours):
    (S, coefficients), (forward, backward) = draw_fields(extents, n_colours), make_tables(extents)
    V = math.prod(extents)
    rotations = draw_unitary(5 * V, n_colours).view(5, 1, 1, V, n_colours, n_colours)

    def rotate(field):
        ahead = torch.cat([rotations[:, :, :, forward[d]] for d in range(len(extents))], 2)
        return rotations @ field @ ahead.mH

    result = staple_layer(rotate(S), coefficients, forward, backward)
    expected = rotate(staple_layer(S, coefficients, forward, backward))
    assert_close(result, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("extents", SOME_LATTICES)
def test_links_and_staples_close_plaquettes(implementation, extents):
    """Each plaquette contains four links: traces summed over links count it four times."""
    D, V = len(extents), math.prod(extents)
    U = draw_unitary(2 * D * V, 3).view(2, D, V, 3, 3)
    result = plaquette_staples(U, *make_tables(extents))
    assert result.shape == (2, 2 * (D - 1), D, V, 3, 3)
    total = (U[:, None] * result.conj()).sum().real
    grid = U.view(2, D, *extents, 3, 3)
    expected = torch.zeros((), dtype=torch.float64)
    for nu in range(D):
        for mu in range(nu):
            a, b = grid[:, mu], grid[:, nu]
            ahead, across = b.roll(-1, mu + 1), a.roll(-1, nu + 1)
            loop = a @ ahead @ across.mH @ b.mH
            expected += loop.diagonal(dim1=-2, dim2=-1).sum().real
    assert_close(total, 4 * expected, rtol=1e-12, atol=0)


def test_staples_come_in_order(implementation):
    """Those through x + nu for each nu in turn, then those through x - nu."""
    forward, backward = make_tables((2, 3, 2))
    U = draw_unitary(3 * 12, 3).view(1, 3, 12, 3, 3)
    result, x, mu = plaquette_staples(U, forward, backward), 7, 1
    for place, nu in enumerate((0, 2)):
        up, down, ahead = forward[nu, x], backward[nu, x], forward[mu, x]
        right = U[0, nu, x] @ U[0, mu, up] @ U[0, nu, ahead].mH
        left = U[0, nu, down].mH @ U[0, mu, down] @ U[0, nu, forward[mu, down]]
        assert_close(result[0, place, mu, x], right, rtol=0, atol=1e-14)
        assert_close(result[0, 2 + place, mu, x], left, rtol=0, atol=1e-14)


def test_only_the_arguments_are_kept(implementation):
    (S, coefficients), tables = draw_fields((2, 2, 2), 3, n_in=4, n_out=4), make_tables((2, 2, 2))
    plan, kept = (*tables, torch.ones(3, 8, dtype=torch.bool)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        staple_layer(S.requires_grad_(), coefficients, *plan)
    addresses = {t.data_ptr() for t in (S, coefficients, *plan)}
    assert {t.data_ptr() for t in kept} <= addresses


@pytest.mark.gpu
def test_gpu_calculates_samples_in_tiles(gpu, monkeypatch):
    """A batch whose staples are too large to be held at once."""
    from pipeline_kernels.su3.staples import cuda

    (S, coefficients), tables = draw_fields((4, 2, 3, 2), 3, 17, 5, 4), make_tables((4, 2, 3, 2))
    there = [x.to(gpu) for x in (S, coefficients, *tables)]
    expected = staple_layer(*there)
    monkeypatch.setattr(cuda, "TILE_BYTES", 2**18)
    assert_close(staple_layer(*there), expected, rtol=0, atol=1e-13 * float(expected.abs().max()))
