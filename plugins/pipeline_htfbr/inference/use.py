"""All requested uses of a fitted surface, one after the other."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.artifacts.extracts import BULK
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.project.run import Run
from pipeline_core.units import find_factor
from pipeline_htfbr.data.geometry import differentiate_variables
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.data.points import read_points
from pipeline_htfbr.data.surfaces import find_exact_surface
from pipeline_htfbr.graph.build import TreeStructure
from pipeline_htfbr.inference.cuts import choose_cuts, write_cut
from pipeline_htfbr.inference.domain import SurfaceBox, make_domain
from pipeline_htfbr.inference.export import export_surface
from pipeline_htfbr.inference.landscape import Exact, Fitted, Landscape
from pipeline_htfbr.inference.stationary import (
    StationaryPoint,
    choose_starts,
    find_minima,
    find_stationary_points,
    pair_points,
)
from pipeline_htfbr.inference.vibrations import compute_frequencies
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTInferOptions

Floats = NDArray[np.float64]

SCHEMA = "plugin/htfbr/inference"
_DIFFERENCE = 1e-3
"""Steps of the finite differences of an exact surface, relative to the domain."""


def use_surface(run: Run) -> dict[str, Any]:
    """Cut the surface, search its stationary points and export it; write `run.inference`.

    Rank 0 does all the work.

    Raises:
        ValueError: `run.model` is missing or of another run, or the coordinates of a cut are wrong.
    """
    with connect_ranks(run.device, run.state) as ranks:
        return _write_inference(run) if ranks.is_rank_zero else {}


def _write_inference(run: Run) -> dict[str, Any]:
    options = run.get_section("infer", HTInferOptions)
    # A tree of a few thousand numbers at a few hundred points is too little work for a GPU.
    task = load_trained_task(run, torch.device("cpu"))
    assert isinstance(task.module, Surface)
    assert task.metadata is not None
    surface, content = task.module.double(), task.metadata
    structure = TreeStructure.from_dict(content["structure"])
    molecule = Molecule.from_dict(content["molecule"]) if content["molecule"] else None
    domain = make_domain(structure.coordinates, structure.leaves, molecule)
    cuts = choose_cuts(options.cuts, structure.coordinates)
    landscapes = _make_landscapes(surface, domain, content["surface"])
    starts = _choose_starts(run, domain, molecule)
    summary: dict[str, Any] = {"cuts": len(cuts)}
    with store.create(run.inference, SCHEMA, run.make_provenance("infer")) as file:
        stationary = _search(landscapes, domain, starts, saddles=options.stationary_points)
        minimum, energy = _find_lowest(stationary["fitted"], landscapes["fitted"], starts)
        file.attrs["coordinates"] = json.dumps([asdict(one) for one in structure.coordinates])
        file.attrs["minimum"], file.attrs["minimum_energy"] = minimum, energy
        for cut in cuts:
            name = ",".join(structure.coordinates[mu].name for mu in cut).replace("/", "_")
            group = file.create_group(f"cuts/{name}")
            group.attrs[BULK] = True
            write_cut(group, cut, minimum, options.cut_points, domain, landscapes)
        if options.stationary_points:
            tables = {
                name: _make_table(points, domain, molecule) for name, points in stationary.items()
            }
            summary |= _write_stationary(
                file.create_group("stationary"), tables, stationary, domain
            )
    if options.export:
        summary |= export_surface(run, surface, structure, molecule)
    return summary


def _make_landscapes(surface: Surface, domain: SurfaceBox, name: str) -> dict[str, Landscape]:
    landscapes: dict[str, Landscape] = {"fitted": Fitted(surface)}
    exact = find_exact_surface(name)
    if exact is not None:
        landscapes["exact"] = Exact(exact, _DIFFERENCE * domain.length)
    return landscapes


def _choose_starts(run: Run, domain: SurfaceBox, molecule: Molecule | None) -> Floats:
    """Return the reference geometry, if there is one, and training points of low energy."""
    points = read_points(run.data)
    rows = points.find_rows("train")
    starts = choose_starts(points.x[rows], points.energy[rows], domain)
    if molecule is None:
        return starts
    reference, _ = differentiate_variables(
        np.array(molecule.reference), molecule, domain.coordinates
    )
    return np.concatenate([domain.fold(reference[None]), starts])


def _search(
    landscapes: dict[str, Landscape], domain: SurfaceBox, starts: Floats, *, saddles: bool
) -> dict[str, list[StationaryPoint]]:
    if not saddles:
        return {"fitted": find_minima(landscapes["fitted"], domain, starts)}
    return {name: find_stationary_points(one, domain, starts) for name, one in landscapes.items()}


def _find_lowest(
    points: Sequence[StationaryPoint], fitted: Landscape, starts: Floats
) -> tuple[Floats, float]:
    """Return the lowest minimum; the lowest start if the domain holds none."""
    minima = [point for point in points if point.order == 0]
    if minima:
        return minima[0].x, minima[0].energy
    energies = fitted.energies(starts)
    return starts[np.argmin(energies)], float(energies.min())


def _make_table(
    points: Sequence[StationaryPoint], domain: SurfaceBox, molecule: Molecule | None
) -> dict[str, NDArray[Any]]:
    d = len(domain.lower)
    energies = np.array([point.energy for point in points])
    lowest = min((point.energy for point in points if point.order == 0), default=np.nan)
    table = {
        "order": np.array([point.order for point in points], dtype=np.int64),
        "x": np.array([point.x for point in points]).reshape(-1, d),
        "energy": energies,
        "relative": (energies - lowest) / find_factor("energy", "cm^-1"),
    }
    if molecule is not None:
        frequencies = [_compute_frequencies(point, domain, molecule) for point in points]
        table["frequencies"] = np.array(frequencies).reshape(-1, d)
    return table


def _compute_frequencies(point: StationaryPoint, domain: SurfaceBox, molecule: Molecule) -> Floats:
    try:
        return compute_frequencies(point.x, point.hessian, molecule, domain.coordinates)
    except ValueError:  # no geometry has these values: an artefact of the fit, which is kept
        return np.full(len(point.x), np.nan)


def _write_stationary(
    group: h5py.Group,
    tables: dict[str, dict[str, NDArray[Any]]],
    points: dict[str, list[StationaryPoint]],
    domain: SurfaceBox,
) -> dict[str, Any]:
    """Write the tables; return the summary."""
    for name, table in tables.items():
        for key, array in table.items():
            group.create_dataset(f"{name}/{key}", data=array)
    orders = tables["fitted"]["order"]
    summary: dict[str, Any] = {"minima": int((orders == 0).sum())}
    summary["saddle_points"] = int((orders == 1).sum())
    if "exact" in points:
        matched = pair_points(points["fitted"], points["exact"], domain)
        group.create_dataset("pairs", data=np.array(matched, dtype=np.int64).reshape(-1, 2))
        ours, exact = tables["fitted"]["relative"], tables["exact"]["relative"]
        differences = [float(ours[i] - exact[j]) for i, j in matched]
        summary["matched"] = f"{len(matched)} of {len(points['exact'])}"
        if np.isfinite(differences).any():
            summary["largest_difference_cm1"] = float(np.nanmax(np.abs(differences)))
    return summary
