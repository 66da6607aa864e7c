"""Every type of layer with every mask: gauge transformations, round trips, dense Jacobians.

Jacobians are those of finite differences on the smallest lattices that a mask closes on.
"""

from itertools import product

import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice
from plugins.gauge_flows.small import (
    LAYERS,
    draw_gauge,
    draw_links,
    jacobian,
    make_flow,
    transform_gauge,
)
from tiers import cover_pairs, exhaustive, run_first

SMALL = {"direction": (2, 2), "location": (2, 2), "m4": (4, 4)}
DENSE = [
    *(("direction", extents, n) for extents in ((2, 2), (2, 2, 2)) for n in (2, 3)),
    *(("location", extents, n) for extents in ((2, 2), (2, 2, 2)) for n in (2, 3)),
    ("m4", (4, 4), 2),
    ("m4", (4, 4), 3),
]


def make_layers(kind, lattice, pattern):
    """Return a layer of each of two sweeps."""
    flow = make_flow(kind, lattice, [(pattern, 2)])
    return [flow.layers[1], flow.layers[-2]]


def compute_jacobian(layer, lattice):
    """Compare log-determinant and shape of the Jacobian of a layer; return how far from unity."""
    links, context = draw_links(lattice, 1), layer.make_context(lattice)
    with torch.no_grad():
        dense = jacobian(lambda u: layer(u, context)[0], links)
        log_det = layer(links, context)[1]
    n = lattice.n_colours**2 - 1
    blocks = dense.unflatten(0, (-1, n)).unflatten(2, (-1, n)).transpose(1, 2)  # link by link
    active = context.mask.flatten()
    is_same = torch.eye(len(active), dtype=torch.bool)
    unity = torch.eye(n) * is_same[..., None, None].double()
    torch.testing.assert_close(blocks[~active], unity[~active], rtol=0, atol=1e-9)
    assert (blocks[~active].abs() > 1e-9).sum() == n * (~active).sum()
    between = blocks[active][:, active][~is_same[active][:, active]]
    assert (between == 0).all()
    determinant = torch.linalg.slogdet(dense)
    assert determinant.sign == 1
    torch.testing.assert_close(log_det[0], determinant.logabsdet, rtol=1e-8, atol=1e-8)
    mixed = blocks[active][:, ~active].abs().max()
    return float(log_det.abs()), float(mixed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", run_first(product(LAYERS, DENSE), *zip(LAYERS, DENSE[::-1], strict=False))
)
def test_the_jacobian_is_triangular_and_has_the_determinant(case):
    kind, (pattern, extents, n_colours) = case
    lattice = Lattice(extents, n_colours)
    for layer in make_layers(kind, lattice, pattern):
        size, mixed = compute_jacobian(layer, lattice)
        assert size > 1e-3
        assert mixed > 1e-3  # frozen links do have a say


@exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["direction", "location"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_jacobian_in_four_dimensions(kind, pattern):
    lattice = Lattice((2, 2, 2, 2), 3)
    size, _ = compute_jacobian(make_layers(kind, lattice, pattern)[1], lattice)
    assert size > 1e-3


VOLUMES = [
    *((extents, n) for extents in ((4, 4), (4, 4, 4)) for n in (2, 3)),
    ((4, 4, 4, 4), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("volume", "pattern", "kind"), cover_pairs(VOLUMES, SMALL, LAYERS))
def test_layers_are_equivariant_and_invertible(kind, pattern, volume):
    extents, n_colours = volume
    lattice = Lattice(extents, n_colours)
    links, gauge = draw_links(lattice), draw_gauge(lattice)
    for layer in make_layers(kind, lattice, pattern):
        layer.requires_grad_(False)
        context = layer.make_context(lattice)
        moved, log_det = layer(links, context)
        turned, same = layer(transform_gauge(links, gauge, lattice), context)
        expected = transform_gauge(moved, gauge, lattice)
        torch.testing.assert_close(turned, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(same, log_det, rtol=0, atol=1e-11)
        back, opposite = layer(moved, context, inverse=True)
        torch.testing.assert_close(back, links, rtol=0, atol=1e-12)
        torch.testing.assert_close(opposite, -log_det, rtol=0, atol=1e-11)
        assert (moved - links).abs().max() > 1e-2
        one = torch.eye(n_colours, dtype=moved.dtype).expand_as(moved)
        torch.testing.assert_close(moved @ moved.mH, one, rtol=0, atol=1e-13)
        torch.testing.assert_close(torch.linalg.det(moved), one[..., 0, 0], rtol=0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYERS)
def test_derivatives_of_both_ways(kind):
    """Of links and weights, by torch's gradcheck; the inverse by its implicit function too."""
    lattice = Lattice((2, 2), 3)
    (layer, _), links = make_layers(kind, lattice, "direction"), draw_links(lattice, 1)
    names, weights = zip(*layer.named_parameters(), strict=True)
    context = layer.make_context(lattice)

    def mapped(inverse, shift, *weights):
        generators = torch.linalg.matrix_exp(1j * (shift + shift.mH) * traceless)
        call = torch.func.functional_call
        named = dict(zip(names, weights, strict=True))
        moved, log_det = call(layer, named, (generators @ links, context, inverse))
        return torch.view_as_real(moved), log_det

    traceless = torch.ones(3, 3) - torch.eye(3)
    shift = (0.1 + 0.05j) * torch.randn(links.shape, generator=torch.Generator().manual_seed(3))
    shift = shift.to(torch.complex128).requires_grad_()
    for inverse in (False, True):
        some = [w.detach().requires_grad_() for w in weights]
        assert torch.autograd.gradcheck(
            lambda *x, inverse=inverse: mapped(inverse, *x), (shift, *some), fast_mode=True
        )


def test_unitary_up_to_the_largest_step():
    """Where the weights of a residual layer saturate it is one to one still."""
    lattice = Lattice((4, 4), 3)
    flow = make_flow("residual", lattice, [("m4", 1)])
    layer, links = flow.layers[0], draw_links(lattice, 8)
    context = layer.make_context(lattice)
    with torch.no_grad():
        layer.conditioner.constant += 50
        moved, log_det = layer(links, context)
        steps = layer._bound_weights(layer.conditioner(torch.zeros(1, 56)))
        assert 0.85 < float(steps.abs().sum(-1).max()) < 0.9
        back, opposite = layer(moved, context, inverse=True)
    torch.testing.assert_close(back, links, rtol=0, atol=1e-11)
    torch.testing.assert_close(opposite, -log_det, rtol=0, atol=1e-10)
