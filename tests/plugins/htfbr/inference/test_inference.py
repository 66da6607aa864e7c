"""Stage `infer`.

Oracles: stationary points of HONO as published, surfaces in closed form, and the cuts of the exact
surface of which the model of the stage's tests is the sum.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from pipeline_core.artifacts import store
from pipeline_core.testing.projects import call
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.inference.domain import make_domain
from pipeline_htfbr.inference.landscape import Exact, Fitted
from pipeline_htfbr.inference.stationary import choose_starts, find_stationary_points, pair_points
from pipeline_htfbr.inference.use import SCHEMA
from plugins.htfbr.additive import (
    INVERSE_CM,
    TRANS,
    build_additive,
    build_hono_surface,
    draw_hono_points,
    make_hono_leaves,
    make_hono_sections,
    write_hono,
)
from tiers import run_first

TURN = 2 * np.pi


def make_box(leaves, names="abcdef", **units):
    coordinates = [
        Coordinate(name=name, unit=units.get(name, "1"), period=leaf.period)
        for name, leaf in zip(names, leaves, strict=False)
    ]
    return make_domain(coordinates, leaves, None)


def make_hono_domain():
    return make_domain(HONO().coordinates, make_hono_leaves(), HONO().molecule)


def make_chebyshev(lower, upper, degree=14):
    return Leaf(family="chebyshev", degree=degree, lower=lower, upper=upper)


@pytest.fixture(scope="module")
def points_of_hono():
    """Stationary points of the exact surface, from random points of low energy."""
    box, points = make_hono_domain(), draw_hono_points(3000)
    starts = choose_starts(points.x, points.energy, box)
    return find_stationary_points(Exact(HONO(), 1e-3 * box.length), box, starts)


def test_stationary_points_of_hono_are_the_published_ones(points_of_hono):
    """Richter et al., J. Chem. Phys. 120, 1306 (2004): trans, cis 93 cm⁻¹, barrier 4105 cm⁻¹."""
    trans, cis, barrier = points_of_hono
    assert [point.order for point in points_of_hono] == [0, 0, 1]
    assert np.allclose(trans.x, TRANS, atol=2e-3)
    assert cis.x[5] == pytest.approx(0, abs=1e-6)
    assert (cis.energy - trans.energy) / INVERSE_CM == pytest.approx(93.0, abs=0.1)
    assert (barrier.energy - trans.energy) / INVERSE_CM == pytest.approx(4105.8, abs=0.1)
    assert np.degrees(barrier.x[5]) == pytest.approx(86.5, abs=0.3)


@pytest.mark.slow
def test_all_stationary_points_of_a_double_well():
    """V = (x² - 1)² + 2 y² - 0.3 y: minima at x = ±1, saddle at x = 0, all at y = 0.075."""
    leaves = [make_chebyshev(-2, 2, 4), make_chebyshev(-1, 1, 2)]
    surface = build_additive(leaves, [lambda x: (x**2 - 1) ** 2, lambda y: 2 * y**2 - 0.3 * y])
    starts = np.array([[-1.8, 0.9], [1.3, -0.7], [-0.4, 0.3]])

    left, right, saddle = find_stationary_points(Fitted(surface), make_box(leaves), starts)

    assert sorted([left.x[0], right.x[0]]) == pytest.approx([-1, 1])
    assert saddle.x == pytest.approx([0, 0.075], abs=1e-9)
    assert saddle.energy - left.energy == pytest.approx(1)
    assert np.allclose(left.hessian, [[8, 0], [0, 4]])
    assert np.allclose(saddle.hessian, [[-4, 0], [0, 4]])


def test_nothing_is_found_on_a_slope():
    leaves = [make_chebyshev(-1, 1, 2)] * 2
    surface = build_additive(leaves, [lambda x: x + 0.1 * x**2, np.zeros_like])
    starts = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    assert find_stationary_points(Fitted(surface), make_box(leaves), starts) == []


def test_periodic_coordinates_have_no_bounds():
    """V = 1 - cos(3 (x - 0.1)) + y²: three minima and three saddle points in a turn."""
    leaves = [
        Leaf(family="fourier", degree=3, lower=-np.pi, upper=np.pi, period=TURN),
        make_chebyshev(-1, 1, 2),
    ]
    surface = build_additive(leaves, [lambda x: 1 - np.cos(3 * (x - 0.1)), np.square])
    starts = np.array([[-3.0, 0.3], [0.5, 0.2], [2.9, -0.4], [-1.0, 0.0]])

    result = find_stationary_points(Fitted(surface), make_box(leaves), starts)

    angles = {order: sorted(p.x[0] for p in result if p.order == order) for order in (0, 1)}
    third = TURN / 3
    assert angles[0] == pytest.approx([0.1 - third, 0.1, 0.1 + third])
    assert angles[1] == pytest.approx(sorted([0.1 - third / 2, 0.1 + third / 2, 0.1 - np.pi]))


@pytest.mark.slow
@pytest.mark.parametrize("family", run_first(["cosine", "chebyshev"]))
def test_points_on_the_edge_of_half_a_turn_are_found(family):
    """V = a cos τ + b cos 2τ in [0, π], a lone torsion: minima at both edges, by symmetry."""
    leaves = make_hono_leaves()
    leaves[5] = replace(leaves[5], family=family, degree=12)
    wells = [lambda x, at=at: 5 * (x - at) ** 2 for at in TRANS[:5]]
    surface = build_additive(leaves, [*wells, lambda t: 0.01 * np.cos(t) - 0.25 * np.cos(2 * t)])
    box = make_domain(HONO().coordinates, leaves, HONO().molecule)
    start = np.append(TRANS[:5], 0.4)[None]

    result = find_stationary_points(
        Fitted(surface), box, np.concatenate([start, start + 1e-2, [TRANS]])
    )

    assert [p.order for p in result] == [0, 0, 1]
    assert [p.x[5] for p in result] == pytest.approx([np.pi, 0, np.arccos(0.01)], abs=1e-4)


def test_hessians_by_autograd_and_by_differences_agree():
    surface, box = build_hono_surface(), make_hono_domain()
    x = box.lower + box.length * np.random.default_rng(0).uniform(0.1, 0.9, (4, 6))
    fitted = Fitted(surface)
    differences = Exact(fitted, 1e-3 * box.length)
    assert np.allclose(fitted.gradients(x), differences.gradients(x))
    assert np.allclose(fitted.hessians(x), differences.hessians(x), rtol=1e-4, atol=1e-3)


def test_unusable_values_end_a_search_only():
    """An exact surface may fail somewhere, as one of self-consistent charges does."""

    class Holed:
        def energies(self, x):
            return np.where(x[:, 0] > 0.5, np.nan, (x**2).sum(1))

        def gradients(self, x):
            return np.where(x[:, :1] > 0.5, np.nan, 2 * x)

    leaves = [make_chebyshev(-1, 1)] * 2
    starts = np.array([[0.9, 0.0], [-0.4, 0.3]])
    (result,) = find_stationary_points(Exact(Holed(), np.full(2, 1e-3)), make_box(leaves), starts)
    assert np.allclose(result.x, 0, atol=1e-9)


def test_corresponding_points_are_the_nearest_of_one_order(points_of_hono):
    box = make_hono_domain()
    moved = [replace(p, x=p.x + 0.02 * box.length) for p in points_of_hono]
    shuffled = [moved[2], moved[0], moved[1]]
    assert pair_points(shuffled, points_of_hono, box) == [(1, 0), (2, 1), (0, 2)]
    assert pair_points(shuffled[:1], points_of_hono[:2], box) == []


def test_low_starts_lie_apart():
    """Two wells of equal depth both get starts, although one holds most of the points."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-0.5, 0.02, (400, 2)), rng.normal(0.5, 0.02, (20, 2))])
    energies = np.concatenate([np.linspace(0, 1, 400), np.linspace(0, 0.04, 20)])
    chosen = choose_starts(x, energies, make_box([make_chebyshev(-1, 1)] * 2), 4)
    assert set(np.sign(chosen[:, 0])) == {-1, 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, project):
    folder = tmp_path_factory.mktemp("infer")
    cuts = [["tau"], ["r_ON", "tau"]]
    run = project(folder, draw_hono_points(), make_hono_sections(cuts=cuts, cut_points=7))
    write_hono(run)
    return run


@pytest.fixture(scope="module")
def used(trained):
    return trained, call(trained, "infer")


@pytest.mark.slow
def test_cuts_hold_the_fitted_beside_the_exact_surface(used):
    """The model is the sum of the exact cuts through the trans minimum, so it has them."""
    run, summary = used
    assert summary["cuts"] == 2
    with store.open_artifact(run.inference, SCHEMA) as file:
        assert np.allclose(file.attrs["minimum"], TRANS, atol=2e-3)
        cut, both = file["cuts/tau"], file["cuts/r_ON,tau"]
        assert np.allclose(cut["axis_0"], np.linspace(0, np.pi, 7))
        assert np.allclose(cut["fitted"], cut["exact"], atol=2e-5)
        assert np.ptp(cut["exact"]) > 0.4  # the barrier, and more without relaxation
        assert json.loads(both.attrs["coordinates"]) == ["r_ON", "tau"]
        assert both["fitted"].shape == both["exact"].shape == (7, 7)
        x = np.tile(file.attrs["minimum"], (7, 1))
        x[:, 0], x[:, 5] = both["axis_0"][:], both["axis_1"][:]
        assert np.allclose(np.diag(both["exact"]), HONO().energies(x))


@pytest.mark.slow
def test_stationary_points_of_both_surfaces_are_matched(used):
    """Trans is the same of both; cis is not, since the sum of cuts relaxes nothing."""
    run, summary = used
    with store.open_artifact(run.inference, SCHEMA) as file:
        group = file["stationary"]
        fitted, exact = group["fitted"], group["exact"]
        assert exact["order"][:].tolist() == [0, 0, 1]
        assert exact["relative"][:] == pytest.approx([0, 93.0, 4105.8], abs=0.1)
        assert [0, 0] in group["pairs"][:].tolist()
        assert np.allclose(fitted["x"][0], exact["x"][0], atol=2e-3)
        torsion = HONO().energies(np.stack([TRANS, [*TRANS[:5], 0.0]]))
        unrelaxed = (torsion[1] - torsion[0]) / INVERSE_CM
        assert unrelaxed == pytest.approx(fitted["relative"][1], rel=0.01)
        assert fitted["frequencies"].shape == fitted["x"].shape
        # The stretch of OH hardly couples to the others.
        assert fitted["frequencies"][0, 5] == pytest.approx(exact["frequencies"][0, 5], rel=0.01)
        pairs = group["pairs"][:]
        assert len(pairs) == int(summary["matched"].split()[0])
        difference = fitted["relative"][:][pairs[:, 0]] - exact["relative"][:][pairs[:, 1]]
        assert summary["largest_difference_cm1"] == np.abs(difference).max()


@pytest.mark.slow
def test_the_export_lies_beside(used):
    run, summary = used
    assert summary["terms"] <= 1 + 5 * 12 + 6
    for name in summary["files"]:
        assert (run.folder / name).exists()
    assert summary["error_bound"] <= 1e-8


@pytest.mark.slow
def test_no_cuts_mean_one_along_every_coordinate(tmp_path, project):
    infer = {"stationary_points": False, "export": False, "cut_points": 3}
    points = replace(draw_hono_points(), surface="", molecule=None)
    run = project(tmp_path, points, make_hono_sections(**infer))
    write_hono(run)
    summary = call(run, "infer")
    assert summary == {"cuts": 6}
    with store.open_artifact(run.inference, SCHEMA) as file:
        assert sorted(file["cuts"]) == sorted(one.name for one in HONO().coordinates)
        assert "exact" not in file["cuts/tau"]
        assert "stationary" not in file
        assert np.allclose(file.attrs["minimum"], TRANS, atol=2e-3)
    assert not (run.folder / "hierarchical.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (["tau", "tau"], r"infer\.cuts: \['tau', 'tau'\]; name one coordinate, or two different"),
        ([], r"infer\.cuts: \[\]; name one coordinate"),
        (["r_HN"], r"infer\.cuts: 'r_HN' is not a coordinate of .*; choose from r_ON, r_OH"),
    ],
)
def test_bad_cuts_are_explained(trained, cut, message):
    section = trained.sections["infer"].model_copy(update={"cuts": [cut]})
    run = replace(trained, sections={**trained.sections, "infer": section})
    with pytest.raises(ValueError, match=message):
        call(run, "infer")
