"""Layers of staples.

Oracles: gauge covariance; plaquettes of a lattice counted by torch.roll; torch's own derivative
through the formula; finite differences.
"""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.su3 import plaquette_staples, staple_layer
from pipeline_kernels.su3.staples import reference
from pipeline_kernels.su3.staples.op import _gradient, _layer

LIMITS = {torch.complex64: 5e-6, torch.complex128: 2e-14}
LATTICES = [(2, 3), (3, 2, 4), (2, 2, 3, 2)]


def make_tables(extents):
    """The sites after and before each, `(D, V)`."""
    sites = torch.arange(math.prod(extents)).view(extents)
    moved = [[sites.roll(by, d).flatten() for d in range(len(extents))] for by in (-1, 1)]
    return torch.stack(moved[0]), torch.stack(moved[1])


def make_case(extents, n_colours, dtype=torch.complex128, batch=5, n_in=2, n_out=3):
    """Fields, coefficients, a derivative by the result, and the tables with a mask."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape, dtype=dtype):
        return torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)

    D, V = len(extents), math.prod(extents)
    S = normal(batch, n_in, D, V, n_colours, n_colours)
    coefficients = normal(n_out, n_in * (2 * D - 1)).real.contiguous()
    G = normal(batch, n_out, D, V, n_colours, n_colours)
    mask = torch.rand(D, V, generator=generator) < 0.6
    return S, coefficients, G, (*make_tables(extents), mask)


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize("n_colours", [2, 3])
@pytest.mark.parametrize("extents", LATTICES)
def test_equals_the_formula(implementation, extents, n_colours, dtype):
    S, coefficients, G, plan = make_case(extents, n_colours, dtype)
    S.requires_grad_()
    coefficients.requires_grad_()
    wide = [x.detach().to(torch.promote_types(x.dtype, torch.float64)) for x in (S, coefficients)]
    wide = [x.requires_grad_() for x in wide]
    expected = reference.staple_layer(*wide, *plan)
    grads = torch.autograd.grad(expected, wide, G.to(torch.complex128))
    result = staple_layer(S, coefficients, *plan)
    for ours, theirs in zip(
        [result, *torch.autograd.grad(result, (S, coefficients), G)],
        [expected, *grads],
        strict=True,
    ):
        scale = float(theirs.detach().abs().max())
        assert ours.shape == theirs.shape
        assert_close(ours.to(theirs.dtype) / scale, theirs / scale, rtol=0, atol=LIMITS[dtype])


@pytest.mark.parametrize("batch", [1, 8, 19])
@pytest.mark.parametrize(("n_in", "n_out"), [(1, 8), (3, 1), (4, 5)])
def test_any_number_of_samples_and_channels(compiled_c, use_threads, batch, n_in, n_out):
    S, coefficients, G, plan = make_case((2, 2), 3, batch=batch, n_in=n_in, n_out=n_out)
    with use_threads(2):
        result = _layer(S, coefficients, *plan), *_gradient(S, coefficients, G, *plan)
    expected = (
        reference.staple_layer(S, coefficients, *plan),
        *reference.staple_gradient(S, coefficients, G, *plan),
    )
    for ours, theirs in zip(result, expected, strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-13 * float(theirs.abs().max()))
    again = _layer(S, coefficients, *plan), *_gradient(S, coefficients, G, *plan)
    for ours, once in zip(result, again, strict=True):
        assert torch.equal(ours, once)  # whatever the number of threads


def test_a_sample_does_not_depend_on_others(compiled_c):
    S, coefficients, _, plan = make_case((2, 3), 3, batch=11)
    whole = staple_layer(S, coefficients, *plan)
    parts = [staple_layer(part, coefficients, *plan) for part in S.split(3)]
    assert torch.equal(torch.cat(parts), whole)


def test_other_layouts(implementation):
    S, coefficients, _, plan = make_case((2, 3), 3)
    expected = staple_layer(S.mH.contiguous(), coefficients, *plan)
    result = staple_layer(S.mH, coefficients.T.contiguous().T.float().double(), *plan)
    assert_close(staple_layer(S.mH, coefficients, *plan), expected, rtol=0, atol=0)
    assert_close(result, expected, rtol=0, atol=1e-5)
    assert staple_layer(S[:0], coefficients, *plan).shape == (0, 3, *S.shape[2:])


@pytest.mark.parametrize("n_colours", [2, 3])
@pytest.mark.parametrize("extents", LATTICES)
def test_transforms_as_links_do(implementation, unitary, extents, n_colours):
    S, coefficients, _, (forward, backward, _) = make_case(extents, n_colours)
    V = math.prod(extents)
    rotations = unitary(5 * V, n_colours).view(5, 1, 1, V, n_colours, n_colours)

    def rotated(field):
        ahead = torch.cat([rotations[:, :, :, forward[d]] for d in range(len(extents))], 2)
        return rotations @ field @ ahead.mH

    result = staple_layer(rotated(S), coefficients, forward, backward)
    expected = rotated(staple_layer(S, coefficients, forward, backward))
    assert_close(result, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("extents", LATTICES)
def test_links_and_staples_close_plaquettes(implementation, unitary, extents):
    """Each plaquette contains four links: traces summed over links count it four times."""
    D, V = len(extents), math.prod(extents)
    U = unitary(2 * D * V, 3).view(2, D, V, 3, 3)
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


def test_staples_come_in_order(implementation, unitary):
    """Those through x + nu for each nu in turn, then those through x - nu."""
    extents = (2, 3, 2)
    forward, backward = make_tables(extents)
    U = unitary(3 * 12, 3).view(1, 3, 12, 3, 3)
    result, x, mu = plaquette_staples(U, forward, backward), 7, 1
    for place, nu in enumerate((0, 2)):
        up, down, ahead = forward[nu, x], backward[nu, x], forward[mu, x]
        right = U[0, nu, x] @ U[0, mu, up] @ U[0, nu, ahead].mH
        left = U[0, nu, down].mH @ U[0, mu, down] @ U[0, nu, forward[mu, down]]
        assert_close(result[0, place, mu, x], right, rtol=0, atol=1e-14)
        assert_close(result[0, 2 + place, mu, x], left, rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_colours", [2, 3])
def test_derivatives(implementation, n_colours):
    S, coefficients, _, plan = make_case((2, 2), n_colours, batch=1, n_in=1, n_out=2)

    def layer(S, coefficients):
        return staple_layer(S, coefficients, *plan)

    inputs = S.requires_grad_(), coefficients.requires_grad_()
    assert gradcheck(layer, inputs, fast_mode=True)
    assert gradgradcheck(layer, inputs, fast_mode=True)


def test_only_the_arguments_are_kept(implementation):
    S, coefficients, _, plan = make_case((2, 2, 2), 3, n_in=4, n_out=4)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        staple_layer(S.requires_grad_(), coefficients, *plan)
    addresses = {t.data_ptr() for t in (S, coefficients, *plan)}
    assert {t.data_ptr() for t in kept} <= addresses


@pytest.mark.slow
def test_operators(implementation):
    S, coefficients, G, plan = make_case((2, 2), 2, batch=2)
    opcheck(_layer, (S.requires_grad_(), coefficients.requires_grad_(), *plan))
    opcheck(_gradient, (S.detach(), coefficients.detach(), G, *plan))


def test_refuses_what_does_not_fit():
    S, coefficients, _, (forward, backward, mask) = make_case((2, 2), 3)
    with pytest.raises(ValueError, match=r"S: expected \(batch, channels, D, V, N, N\)"):
        staple_layer(S[0], coefficients, forward, backward)
    with pytest.raises(ValueError, match=r"coefficients: expected real numbers \(n, 6\)"):
        staple_layer(S, coefficients[:, 1:], forward, backward)
    with pytest.raises(ValueError, match="forward: expected"):
        staple_layer(S, coefficients, forward[:, 1:], backward)
    with pytest.raises(ValueError, match="backward: expected"):
        staple_layer(S, coefficients, forward, backward.int())
    with pytest.raises(ValueError, match="mask: expected"):
        staple_layer(S, coefficients, forward, backward, mask.int())
