"""Errors of a surface whose deviation from the exact one is a formula.

Oracle: the exact surface is the fitted one plus a + b x_0, so every error follows from NumPy alone.
"""

import itertools
import json

import numpy as np
import pytest
import torch

from pipeline_core.figures import learning, results, style
from pipeline_core.project.project import Project
from pipeline_core.report import story
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from pipeline_core.training.model_file import write_model
from pipeline_htfbr.data.points import Coordinate, Points
from pipeline_htfbr.evaluation import evaluate as evaluation

HARTREE = 27.211386245988
INVERSE_CM = 1.239841984e-4
A, B = 0.02, -0.07
COORDINATES = (
    Coordinate(name="r", unit="bohr", lower=1.0, upper=3.0),
    Coordinate(name="c", unit="1", lower=-0.5, upper=0.5),
    Coordinate(name="t", unit="radian", lower=0.0, upper=np.pi, period=2 * np.pi),
)
GRID = (5, 4, 3)
N = 300


class Exact:
    """The fitted surface plus a + b x_0."""

    coordinates, molecule, grid = COORDINATES, None, GRID

    def __init__(self, module):
        self._module = module

    def energies(self, x):
        with torch.no_grad():
            return self._module.energies(torch.from_numpy(x)).numpy() + A + B * x[:, 0]

    def gradients(self, x):
        x = torch.from_numpy(x).requires_grad_()
        (slopes,) = torch.autograd.grad(self._module.energies(x).sum(), x)
        return slopes.numpy() + np.array([B, 0, 0])


def make_points(energy, slopes, x, surface="toy"):
    split = (np.arange(N) % 3).astype(np.int8)
    group = np.full(N, "all", dtype=object)
    return Points(
        coordinates=COORDINATES,
        x=x,
        energy=energy,
        gradient=slopes,
        group=group,
        split=split,
        surface=surface,
    )


@pytest.fixture(scope="module")
def write_trained(tmp_path_factory, project):
    """Write points and a model that misses them by -(a + b x_0); return the run and both."""

    def write(surface="toy", **sections):
        content = {"model": {"rank": 2}, "graph": {"degree": 3}} | sections
        content.setdefault("evaluate", {"off_grid_points": 500})
        low, high = np.array([(c.lower, c.upper) for c in COORDINATES]).T
        x = np.random.default_rng(1).uniform(low, high, (N, 3))
        points = make_points(np.sin(x).sum(1), np.cos(x), x, surface)
        folder = tmp_path_factory.mktemp("evaluated")
        task = build_task(project(folder, points, content))
        task.module.double()
        with torch.no_grad():
            task.module.scale.fill_(0.5)
        exact = Exact(task.module)
        points = make_points(exact.energies(x), exact.gradients(x), x, surface)
        run = project(folder, points, content)  # whose graph is that of these points
        weights, provenance = task.module.state_dict(), run.make_provenance("train")
        write_model(run, task, weights, ("val", np.arange(4)), provenance)
        patch.setattr(evaluation, "find_exact_surface", {"toy": exact}.get)
        lines = [
            {"epoch": e, "seconds": s, "train": {"loss": 0.1}} for e, s in ((10, 9.0), (30, 4))
        ]
        run.history.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run, x, exact

    with pytest.MonkeyPatch.context() as patch:
        yield write


def read_report(run):
    call(run, "evaluate")
    return json.loads(run.metrics.read_text())


def check(result, error):
    """Compare with the formulas of the textbook, in both units."""
    assert result["n_points"] == len(error)
    for unit, factor in (("hartree", HARTREE), ("cm^-1", INVERSE_CM)):
        sizes = np.abs(error) / factor
        expected = {
            "rmse": np.sqrt((sizes**2).mean()),
            "mae": sizes.mean(),
            "max_error": sizes.max(),
        }
        assert result[unit] == pytest.approx(expected, rel=1e-6)


@pytest.fixture(scope="module")
def evaluated(write_trained):
    """What is reported of the usual run, its points and the exact surface."""
    run, x, exact = write_trained()
    return read_report(run)["surface"], x, exact


def test_errors_of_splits_grid_and_random_points(evaluated):
    report, x, exact = evaluated
    errors = report["errors"]
    assert list(errors) == ["train", "val", "test", "grid", "off_grid"]
    for code, split in enumerate(("train", "val", "test")):
        check(errors[split], (A + B * x[:, 0])[code::3])
    axes = [np.linspace(c.lower, c.upper, n) for c, n in zip(COORDINATES, GRID, strict=True)]
    grid = np.array(list(itertools.product(*axes)))
    check(errors["grid"], A + B * grid[:, 0])
    energy = exact.energies(grid)
    least = min(energy.min(), exact.energies(x).min())
    norm = np.linalg.norm(energy - least)
    expected = np.linalg.norm(A + B * grid[:, 0]) / norm
    assert errors["grid"]["relative"] == pytest.approx(expected, rel=1e-2)  # least: off the grid
    # Uniform in r from 1 to 3: the mean of (a + b r)² by Gauss-Legendre, within sampling error.
    nodes, weights = np.polynomial.legendre.leggauss(4)
    mean = np.sum(weights / 2 * (A + B * (nodes + 2)) ** 2)
    rmse = errors["off_grid"]["hartree"]["rmse"] * HARTREE
    assert errors["off_grid"]["n_points"] == 500
    assert rmse == pytest.approx(np.sqrt(mean), rel=0.05)


def test_the_gap_is_the_difference_of_the_errors(evaluated):
    gap, x = evaluated[0]["gap"], evaluated[1]
    train, test = (np.sqrt(((A + B * x[i::3, 0]) ** 2).mean()) for i in (0, 2))
    assert gap["hartree"] * HARTREE == pytest.approx(abs(train - test), rel=1e-6)
    assert gap["cm^-1"] * INVERSE_CM == pytest.approx(abs(train - test), rel=1e-6)


@pytest.mark.slow
def test_windows_divide_the_points_by_their_energy(write_trained, monkeypatch):
    monkeypatch.setattr(evaluation, "WINDOWS", (1000.0, 4000.0))
    run, x, exact = write_trained(evaluate={"off_grid_points": 0})
    errors = read_report(run)["surface"]["errors"]
    assert list(errors) == ["train", "val", "test", "grid"]
    windows = errors["test"]["windows"]
    bounds = [(w["from"], w["to"]) for w in windows]
    assert bounds == [(0, 1e3), (1e3, 4e3), (4e3, None)]
    assert sum(w["n_points"] for w in windows) == N // 3
    axes = [np.linspace(c.lower, c.upper, n) for c, n in zip(COORDINATES, GRID, strict=True)]
    grid = np.array(list(itertools.product(*axes)))
    least = min(exact.energies(grid).min(), exact.energies(x).min())
    height = (exact.energies(x[2::3]) - least) / INVERSE_CM
    inside = (height >= 1e3) & (height < 4e3)
    error = np.abs(A + B * x[2::3, 0])[inside] / INVERSE_CM
    assert windows[1]["n_points"] == inside.sum() > 0
    assert windows[1]["mae"] == pytest.approx(error.mean(), rel=1e-6)
    assert windows[1]["max_error"] == pytest.approx(error.max(), rel=1e-6)


@pytest.mark.slow
def test_gradients_are_compared_where_they_were_trained(write_trained):
    run, *_ = write_trained(train={"gradient_weight": 1.0})
    errors = read_report(run)["surface"]["errors"]
    for place in ("train", "test", "off_grid"):
        result = errors[place]["gradient"]
        assert {name: one["unit"] for name, one in result.items()} == {
            "r": "hartree/bohr",
            "c": "hartree",
            "t": "hartree/radian",
        }
        assert result["r"]["rmse"] * HARTREE == pytest.approx(abs(B), rel=1e-5)
        assert result["c"]["rmse"] * HARTREE < 1e-5
    assert "gradient" not in errors["grid"]


def test_training_times_are_those_of_the_history(evaluated):
    result = evaluated[0]
    # 9 s for 10 epochs, then 4 s for 20.
    assert (result["epochs"], result["seconds"]) == (30, 13.0)
    assert result["seconds_per_epoch"] == pytest.approx((0.9 + 0.2) / 2)
    assert (result["n_train"], result["method"], result["exact"]) == (100, "solver", "toy")
    assert (result["ranks"], result["leaf_ranks"]) == ([2, 1], [4, 4, 7])
    assert result["degrees"] == [3, 3, 3]


@pytest.mark.slow
def test_without_an_exact_surface_the_points_alone_are_compared(write_trained):
    run, *_ = write_trained(surface="")
    assert list(read_report(run)["surface"]["errors"]) == ["train", "val", "test"]


@pytest.mark.slow
def test_the_engines_metrics_stay_and_its_figures_speak_of_points(write_trained):
    run, x, _ = write_trained()
    record = {"epoch": 40, "lr": 1.0, "train": {"loss": 1.0}, "mae": {"energy": 0.5}}
    run.history.write_text(json.dumps(record) + "\n")
    metrics = read_report(run)
    mae = metrics["splits"]["test"]["quantities"]["energy"]["mae"]
    assert mae == pytest.approx(np.abs(A + B * x[2::3, 0]).mean(), rel=1e-6)
    folder = run.folder.parents[2]
    project = Project(folder / "workflows", folder / "results", load_registry())
    experiment = project.load_experiment("points")
    assert results.name_reference(experiment) == "reference"
    assert story.judge(experiment)[0].startswith("Energy error on 100 test points: ")
    with style.apply_style():
        figure, _ = learning.draw(experiment)
    assert figure.axes[1].get_ylabel() == "energy MAE (meV)"
    assert figure.axes[1].lines[0].get_ydata() == [500.0]


def test_the_grid_is_cut_into_blocks_that_hold_each_point_once(monkeypatch):
    monkeypatch.setattr(evaluation, "_BLOCK", 7)
    axes = [np.linspace(c.lower, c.upper, n) for c, n in zip(COORDINATES, GRID, strict=True)]
    blocks = list(evaluation.iterate_grid(COORDINATES, GRID))
    assert {len(block) for block in blocks} == {7, 60 % 7}
    assert np.array_equal(np.concatenate(blocks), list(itertools.product(*axes)))
