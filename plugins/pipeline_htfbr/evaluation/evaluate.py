"""Errors of a fitted surface, in cm⁻¹ and hartree: at its points, on the grid and off the grid.

The engine's evaluation compares the points and writes `run.metrics`, which is extended by the
key `surface`:

| key                 | content                                                                   |
|---------------------|---------------------------------------------------------------------------|
| `exact`             | name of the exact surface, "" if there is none                            |
| `method`            | how the surface was fitted                                                |
| `ranks`             | of the interior nodes, children before parents                            |
| `leaf_ranks`        | of the leaves                                                             |
| `degrees`           | of the functions of each coordinate                                       |
| `n_points`          | points of the dataset                                                     |
| `n_train`           | points that were fitted                                                   |
| `epochs`            | epochs, or iterations of a solver                                         |
| `seconds`           | time that they took together                                              |
| `seconds_per_epoch` | median over the records of the history                                    |
| `gap`               | |train - test| of the RMSE, by unit                                       |
| `errors`            | by place (train, val, test, grid, off_grid), see `errors_of`              |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core import units
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.distributed.world import find_world
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.fields import SPLITS
from pipeline_core.figures.results import read_history
from pipeline_core.project.run import Run
from pipeline_htfbr.data.points import Coordinate, read_points
from pipeline_htfbr.data.sampling import list_bounds, take_from_grid
from pipeline_htfbr.data.surfaces import ExactSurface, find_exact_surface
from pipeline_htfbr.inference.landscape import Fitted
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTEvaluateOptions, HTTrainOptions

Floats = NDArray[np.float64]

UNITS: Final = {name: units.find_factor("energy", name) for name in ("hartree", "cm^-1")}
"""Units in which errors are reported -> eV."""
WINDOWS: Final = (5000.0, 10_000.0, 20_000.0, 40_000.0)
"""Upper ends of the energy windows in which errors are reported, cm⁻¹ above the minimum."""
_BLOCK: Final = 50_000
"""Grid points that are held in memory at once, with all their functions."""


@dataclass(frozen=True)
class Compared:
    """Energies of one set of points.

    Attributes:
        label: Exact, (n,) eV.
        predicted: By the fit, (n,) eV.
        gradient_errors: RMSE of the derivative by each coordinate, (d,) eV per unit of the
            coordinate; None where gradients are not compared.
    """

    label: Floats
    predicted: Floats
    gradient_errors: Floats | None = None


def evaluate_surface(run: Run) -> dict[str, Any]:
    """Compare a surface with its points and, where there is one, with the exact surface.

    Called on every rank: they share the comparison with the points, rank 0 does the rest.

    Returns:
        MAE of every quantity by split; on rank 0 the RMSE in cm⁻¹ too.

    Raises:
        ValueError: As the engine's evaluation.
    """
    summary = evaluate_run(run)
    if find_world().rank == 0:
        content = store.read_json(run.metrics)
        report = report_surface(run)
        store.write_json(run.metrics, {**content, "surface": report})
        by_place = report["errors"].items()
        summary["RMSE"] = {place: f"{e['cm^-1']['rmse']:.4g} cm⁻¹" for place, e in by_place}
    return summary


def report_surface(run: Run) -> dict[str, Any]:
    """Return the content of the module's table, from the trained surface and `run.predictions`."""
    options = run.get_section("evaluate", HTEvaluateOptions)
    task = load_trained_task(run, torch.device("cpu"))
    surface, about = task.module, task.metadata
    assert isinstance(surface, Surface)
    assert about is not None
    points = read_points(run.data)
    compared = compare_points(run)
    exact = find_exact_surface(points.surface) if points.surface else None
    if exact is not None:
        compared |= compare_exact(Fitted(surface), exact, options, run.seed)
    least = min([points.energy.min(), *(c.label.min() for c in compared.values())])
    errors = {place: compute_errors(c, least, points.coordinates) for place, c in compared.items()}
    return {
        "exact": points.surface,
        "method": run.get_section("train", HTTrainOptions).method,
        "ranks": list(about["ranks"]),
        "leaf_ranks": list(about["leaf_ranks"]),
        "degrees": [leaf["degree"] for leaf in about["structure"]["leaves"]],
        "n_points": len(points.energy),
        "n_train": len(points.find_rows("train")),
        **read_training(run),
        "gap": _compute_gap(errors),
        "errors": errors,
    }


def compare_points(run: Run) -> dict[str, Compared]:
    """Return the evaluated splits, from `run.predictions`."""
    with SampleFile(run.predictions, "predictions") as file:
        codes = file.read_column("split")
        label, predicted = file.read_column("energy_label"), file.read_column("energy_predicted")
        slopes = None
        if "gradient_label" in file.fields:
            slopes = file.read_column("gradient_predicted") - file.read_column("gradient_label")
    compared = {}
    for code, split in enumerate(SPLITS):
        rows = codes == code
        if rows.any():
            deviation = None if slopes is None else _compute_rms(slopes[rows])
            compared[split] = Compared(label[rows], predicted[rows], deviation)
    return compared


def compare_exact(
    fitted: Fitted, exact: ExactSurface, options: HTEvaluateOptions, seed: int
) -> dict[str, Compared]:
    """Compare with an exact surface on its whole grid, and at uniform random points of its domain.

    Args:
        fitted: The fit, on the CPU.
        exact: The exact surface.
        options: Selection of the two sets of points.
        seed: Seed of the random points.

    Returns:
        "grid" and "off_grid", where the exact surface has a grid and a domain.
    """
    compared = {}
    if options.grid and exact.grid is not None:
        blocks = [
            (exact.energies(x), fitted.energies(x))
            for x in iterate_grid(exact.coordinates, exact.grid)
        ]
        label, predicted = (np.concatenate(part) for part in zip(*blocks, strict=True))
        compared["grid"] = Compared(label, predicted)
    bounded = all(None not in (c.lower, c.upper) for c in exact.coordinates)
    if options.off_grid_points and bounded:
        lower, upper = list_bounds(exact.coordinates)
        x = np.random.default_rng(seed).uniform(lower, upper, (options.off_grid_points, len(lower)))
        slopes = fitted.gradients(x) - exact.gradients(x)
        compared["off_grid"] = Compared(exact.energies(x), fitted.energies(x), _compute_rms(slopes))
    return compared


def iterate_grid(coordinates: Sequence[Coordinate], counts: Sequence[int]) -> Iterator[Floats]:
    """Yield the points of a regular grid, ends included.

    Args:
        coordinates: The coordinates, with domains.
        counts: Points along each coordinate, (d,).

    Yields:
        (n, d) in the units of the coordinates, the last one running fastest.
    """
    total = int(np.prod(counts))
    for start in range(0, total, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, total))
        yield take_from_grid(coordinates, counts, numbers)


def compute_errors(
    compared: Compared, least: float, coordinates: Sequence[Coordinate]
) -> dict[str, Any]:
    """Return the errors at one set of points.

    Args:
        compared: Exact and predicted energies.
        least: Energy of the minimum, eV.
        coordinates: The coordinates, for the units of gradients.

    Returns:
        `n_points`; `hartree` and `cm^-1`, each with rmse, mae and max_error; `relative`, the
        norm of the errors over the norm of the energies above the minimum; `windows`, each
        with `from`, `to` (None for no end), n_points and errors in cm⁻¹; and, where gradients are
        compared, `gradient`, the RMSE by each coordinate.
    """
    error, height = compared.predicted - compared.label, compared.label - least
    report: dict[str, Any] = {"n_points": len(error)}
    report |= {name: _measure(error / unit) for name, unit in UNITS.items()}
    norm = float(np.linalg.norm(height))
    report["relative"] = float(np.linalg.norm(error)) / norm if norm > 0 else None
    report["windows"] = list(_iterate_windows(error / UNITS["cm^-1"], height / UNITS["cm^-1"]))
    if compared.gradient_errors is not None:
        report["gradient"] = {
            c.name: {"rmse": float(size / UNITS["hartree"]), "unit": _name_slope_unit(c)}
            for c, size in zip(coordinates, compared.gradient_errors, strict=True)
        }
    return report


def read_training(run: Run) -> dict[str, Any]:
    """Return epochs and times from the history; None where it does not hold them."""
    records = read_history(run)
    timed = [r for r in records if r.get("seconds") is not None]
    ends = [0, *(record["epoch"] for record in timed)]
    rates = [
        record["seconds"] / (end - start)
        for record, (start, end) in zip(timed, pairwise(ends), strict=True)
        if end > start
    ]
    return {
        "epochs": records[-1]["epoch"] if records else None,
        "seconds": sum(record["seconds"] for record in timed) if timed else None,
        "seconds_per_epoch": float(np.median(rates)) if rates else None,
    }


def _compute_rms(errors: Floats) -> Floats:
    rms: Floats = np.sqrt((errors**2).mean(axis=0))
    return rms


def _measure(error: Floats) -> dict[str, float | None]:
    """Return the errors in the unit of `error`, None for no points."""
    if not len(error):
        return dict.fromkeys(("rmse", "mae", "max_error"))
    size = np.abs(error)
    return {
        "rmse": float(np.sqrt((size**2).mean())),
        "mae": float(size.mean()),
        "max_error": float(size.max()),
    }


def _iterate_windows(error: Floats, height: Floats) -> Iterator[dict[str, Any]]:
    """Yield the errors between one end and the next, and above the last; all in cm⁻¹."""
    for start, end in pairwise([0.0, *WINDOWS, np.inf]):
        inside = (height >= start) & (height < end)
        bounds = {"from": start, "to": None if end == np.inf else end}
        yield {**bounds, "n_points": int(inside.sum()), **_measure(error[inside])}


def _compute_gap(errors: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
    if not {"train", "test"} <= errors.keys():
        return None
    return {
        unit: abs(errors["train"][unit]["rmse"] - errors["test"][unit]["rmse"]) for unit in UNITS
    }


def _name_slope_unit(coordinate: Coordinate) -> str:
    return "hartree" if coordinate.unit == "1" else f"hartree/{coordinate.unit}"
