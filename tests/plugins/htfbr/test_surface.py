"""Surfaces and their leaves. Oracle: numpy.polynomial evaluates and differentiates series."""

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev, legendre

from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.graph.build import _choose_domain
from pipeline_htfbr.graph.dimension_tree import build_balanced, make_nodes
from pipeline_htfbr.model import Surface, draw_weights, standardize
from pipeline_kernels.tree import TreeShape

DOMAINS = [(-1.5, 0.5), (2.0, 3.0), (-0.65, 0.25)]


def make_surface(*, leaf_ranks=None, degree=3, rank=4, gradients=True, seed=0):
    """A surface of three coordinates with random weights in double precision."""
    leaves = [Leaf(family="chebyshev", degree=degree, lower=a, upper=b) for a, b in DOMAINS]
    counts = leaf_ranks or (degree + 1,) * 3
    shape = TreeShape(tuple(counts), make_nodes(build_balanced(range(3)), [rank, 1]))
    module = Surface(leaves, shape, gradients=gradients).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        module.shift.fill_(-3.0)
        module.scale.fill_(0.7)
    return module


def expand_in_series(module):
    """Coefficients of all products of Chebyshev polynomials, (n, n, n), by NumPy alone."""
    B, root = (tensor.detach().numpy() for tensor in module.shape.split_transfers(module.transfers))
    maps = [np.eye(leaf.count) for leaf in module.leaves]
    if len(module.maps):
        maps = [one.detach().numpy() for one in module.maps]
    return np.einsum("ai,bj,cl,ijk,kl->abc", *maps, B, root[:, :, 0])


def draw_places(n=50):
    lower, upper = np.array(DOMAINS).T
    x = np.random.default_rng(0).uniform(lower, upper, (n, 3))
    return x, 2 * (x - lower) / (upper - lower) - 1, 2 / (upper - lower)


@pytest.mark.parametrize("leaf_ranks", [None, (2, 3, 4)])
def test_energies_and_gradients_are_those_of_the_series(leaf_ranks):
    module = make_surface(leaf_ranks=leaf_ranks)
    x, s, ds_dx = draw_places()
    c = expand_in_series(module)
    result = module({"x": torch.from_numpy(x)})
    expected = -3.0 + 0.7 * chebyshev.chebval3d(*s.T, c)
    np.testing.assert_allclose(result["energy"].detach(), expected, rtol=1e-12)
    for mu in range(3):
        slope = chebyshev.chebval3d(*s.T, chebyshev.chebder(c, axis=mu))
        np.testing.assert_allclose(
            result["gradient"][:, mu].detach(), 0.7 * ds_dx[mu] * slope, rtol=1e-10, atol=1e-10
        )


def test_gradients_are_recorded_only_if_wanted():
    module, batch = make_surface(), {"x": torch.from_numpy(draw_places()[0])}
    with torch.no_grad():
        silent = module(batch)
    assert not any(tensor.requires_grad for tensor in silent.values())
    loud = module(batch)
    assert all(tensor.requires_grad for tensor in loud.values())
    torch.testing.assert_close(silent["gradient"], loud["gradient"].detach(), rtol=0, atol=0)
    assert set(make_surface(gradients=False)(batch)) == {"energy"}


def test_chebyshev_polynomials():
    leaf = Leaf(family="chebyshev", degree=9, lower=-2.0, upper=6.0)
    x = np.linspace(-2, 6, 41)
    result = leaf.functions(torch.from_numpy(x))
    np.testing.assert_allclose(result, chebyshev.chebvander((x - 2) / 4, 9).T, atol=1e-13)
    assert leaf.count == 10
    assert leaf.degrees == list(range(10))


def test_legendre_polynomials_are_orthonormal():
    leaf = Leaf(family="legendre", degree=7, lower=-1.0, upper=1.0)
    x, weights = legendre.leggauss(8)
    result = leaf.functions(torch.from_numpy(x)).numpy()
    norms = np.sqrt(2 * np.arange(8) + 1)
    np.testing.assert_allclose(result, (legendre.legvander(x, 7) * norms).T, atol=1e-13)
    np.testing.assert_allclose((result * weights / 2) @ result.T, np.eye(8), atol=1e-12)


@pytest.mark.parametrize("family", ["fourier", "cosine"])
def test_trigonometric_functions_repeat_and_follow_their_degrees(family):
    leaf = Leaf(family=family, degree=3, lower=0.0, upper=1.0, period=0.8)
    x = np.linspace(0, 1, 30)
    result = leaf.functions(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(leaf.functions(torch.from_numpy(x + 0.8)), result, atol=1e-13)
    assert len(result) == leaf.count == len(leaf.degrees)
    waves = [np.exp(2j * np.pi * m * x / 0.8) for m in leaf.degrees]
    sine = [family == "fourier" and i % 2 == 0 and i > 0 for i in range(leaf.count)]
    expected = [w.imag if odd else w.real for w, odd in zip(waves, sine, strict=True)]
    np.testing.assert_allclose(result, expected, atol=1e-13)


def test_graded_weights_pass_on_the_products_of_lowest_degree():
    torch.manual_seed(0)
    module = make_surface(degree=5, rank=6)
    draw_weights(module, "graded")
    node = module.shape.split_transfers(module.transfers)[0].detach().numpy()  # (6, 6, 6)
    degree = np.add.outer(np.arange(6), np.arange(6)).ravel()
    low = degree <= 2  # 1, s, t, s², st, t²: six products for six functions
    assert low.sum() == 6
    assert np.linalg.cond(node.reshape(36, 6)[low]) < 1.5
    assert np.abs(node.reshape(36, 6)[~low]).max() < 0.1


def test_random_weights_keep_the_variance():
    torch.manual_seed(0)
    shape = TreeShape((20, 20), make_nodes([0, 1], [1]))
    leaves = [Leaf(family="chebyshev", degree=19, lower=-1.0, upper=1.0)] * 2
    module, values = Surface(leaves, shape, gradients=False), []
    table = torch.randn(40, 500)
    for _ in range(40):
        draw_weights(module, "random")
        values.append(module.evaluate_table(table).detach())
    assert float(torch.cat(values).std()) == pytest.approx(1.0, abs=0.1)


def test_the_training_energies_have_mean_zero_and_spread_one():
    module, energies = make_surface(), np.random.default_rng(0).normal(5, 3, 400)
    standardize(module, torch.from_numpy(energies))
    f = (energies - float(module.shift)) / float(module.scale)
    assert f.mean() == pytest.approx(0, abs=1e-12)
    assert f.std(ddof=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"rank": [3, 3]}}, "model.rank: 2 values for 1 interior nodes"),
        ({"model": {"leaf_rank": 11}}, "model.leaf_rank"),
        ({"graph": {"tree": [[0, 1], 1]}}, "graph.tree misses 2"),
        ({"graph": {"degree": [3, 3]}}, "graph.degree: 2 values for 3 coordinates"),
        ({"graph": {"basis": "fourier"}}, "x0, which has no period"),
    ],
)
def test_shapes_that_do_not_fit(project, points, tmp_path, sections, message):
    with pytest.raises(ValueError, match=message):
        project(tmp_path, points(lambda x: x[:, 0]), sections)


def test_total_energies_keep_their_digits():
    module = make_surface()
    module.shift.fill_(-5578.123456789)
    module.float()
    assert module.transfers.dtype == torch.float32
    assert (module.shift.dtype, float(module.shift)) == (torch.float64, -5578.123456789)


@pytest.mark.parametrize(("x", "upper"), [
    (np.arange(-180, 180, 5.0), 180.0),  # all around
    (np.arange(-180, 90, 5.0), 85.0),  # an arc
    (np.random.default_rng(0).uniform(-180, 180, 2000), None),
])  # fmt: skip
def test_points_all_around_a_period_have_the_whole_for_their_domain(x, upper):
    torsion = Coordinate(name="tau", unit="degree", period=360.0)
    low, high = _choose_domain(torsion, np.unique(x), 0.0)
    assert low == x.min()
    assert high == pytest.approx(x.min() + 360 if upper is None else upper)
