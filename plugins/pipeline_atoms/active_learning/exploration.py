"""First step of an active-learning round: exploration by models, and picks to be labelled."""

import time
from contextlib import suppress
from typing import Any

import h5py
import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.io.extxyz import write_xyz

from pipeline_atoms.active_learning.picking import (
    Candidate,
    measure_spread,
    pick_at_random,
    pick_by_spread,
)
from pipeline_atoms.active_learning.round import Round, require_round
from pipeline_atoms.calculators.committee import Committee
from pipeline_atoms.dynamics.dynamics import remove_restarts, run_dynamics
from pipeline_atoms.dynamics.structures import read_start_structure
from pipeline_atoms.importing.plausibility import find_implausible
from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.artifacts import provenance, store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.seals import identify
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.system.locks import hold, locate_lock


def pick_structures(experiment: ExperimentRun, variant: str, device: str = "cpu") -> dict[str, Any]:
    """Explore with the models of the round before, and pick structures to be labelled.

    Writes `Round.picks` and `Round.report`.

    Raises:
        ValueError: A model or a start structure is missing, or too few structures can be used.
    """
    run = experiment.run(variant)
    one = require_round(run)
    with hold(locate_lock(run.folder, "pick"), "picking"):
        begin = time.perf_counter()
        before, seed = experiment.run(one.before), run.seed + one.number
        models = [experiment.run(name) for name in one.explorers]
        calculator_of = run.registry.select_hook("calculator", run.model_info.name)
        calculators = [calculator_of(run=model, device=device) for model in models]
        identities = {model.variant: identify(model.model) for model in models}
        explorer = Committee(calculators) if len(calculators) > 1 else calculators[0]
        model = " ".join(identities.values())
        candidates, refused = _explore(one, before, explorer, seed, model)
        picks, distance = _choose(one, before, candidates, seed)
        report = {
            "round": one.number,
            "arm": one.arm,
            "candidates": len(candidates),
            "largest_spread": max(candidate.spread for candidate in candidates),
            "refused": refused,
            "distance": distance,
            "picks": [_describe(pick) for pick in picks],
            "seconds": round(time.perf_counter() - begin, 3),
        }
        record = provenance.make_record(
            inputs={**identities, "data": identify(before.data)},
            stage="pick",
            experiment=run.experiment,
            variant=run.variant,
            seed=seed,
            options=one.options.model_dump(mode="json"),
        )
        with store.write_atomic(one.picks) as path, path.open("w", encoding="utf-8") as file:
            for pick in picks:
                write_xyz(file, Structure.of(pick.atoms).make_atoms())
        store.write_json(one.report, report, record)
    return {key: report[key] for key in ("candidates", "largest_spread", "distance", "seconds")}


def _choose(
    one: Round, before: Run, candidates: list[Candidate], seed: int
) -> tuple[list[Candidate], float | None]:
    """Return the picks, and the distance between them; None if they are picked at random."""
    count = one.options.per_round
    if one.arm == "random":
        return pick_at_random(candidates, count, seed), None
    return pick_by_spread(candidates, _read_labelled(before), count, one.options.distance)


def _explore(
    one: Round, before: Run, explorer: Calculator, seed: int, model: str
) -> tuple[list[Candidate], dict[str, int]]:
    """Return candidates from the dynamics, and the number of refused frames of each run."""
    candidates: list[Candidate] = []
    refused = {}
    folder = one.folder / "explore"
    folder.mkdir(parents=True, exist_ok=True)
    for md in one.options.md:
        start = read_start_structure(before, md.start, md.repeat)
        trajectory = folder / f"{md.name}.extxyz"
        with h5py.File(f"{md.name}.h5", "w", driver="core", backing_store=False) as file:
            # A run that exploded leaves its frames.
            try:
                run_dynamics(start, explorer, md, seed, trajectory, file.create_group("md"), model)
            except ValueError:
                if "positions" not in file["md"]:
                    raise
            frames = zip(
                file["md/time"][1:], file["md/positions"][1:], file["md/cell"][1:], strict=True
            )
            met = [_judge(start, md.name, *frame, explorer, one) for frame in frames]
        kept = [candidate for candidate in met if candidate is not None]
        candidates += kept
        refused[md.name] = len(met) - len(kept)
    for md in one.options.md:
        remove_restarts(folder / f"{md.name}.extxyz")
    if not candidates:
        raise ValueError(
            f"learn: all structures of {', '.join(refused)} exceed learn.limits: the model is "
            "not good enough to explore; give it more data, or lower temperature and steps"
        )
    return candidates, refused


def _judge(
    start: Atoms,
    name: str,
    moment: float,
    positions: np.ndarray,
    cell: np.ndarray,
    explorer: Calculator,
    one: Round,
) -> Candidate | None:
    """Return a frame with its spread; None if it should not be labelled."""
    moved = {"positions": positions, "cell": cell}
    structure = Structure.of_fields(vars(Structure.of(start)) | moved)
    atoms, sample, limits = structure.make_atoms(), vars(structure), one.options.limits
    if not np.isfinite(atoms.positions).all() or find_implausible(sample, limits):
        return None
    with suppress(ValueError):  # a model refuses the structure
        forces = explorer.get_forces(atoms)
        if find_implausible({**sample, "forces": forces}, limits) is None:
            deviations = explorer.results.get("forces_spread", np.zeros_like(forces))
            return Candidate(atoms, name, float(moment), measure_spread(deviations))
    return None


def _read_labelled(before: Run) -> list[Atoms]:
    with SampleFile(before.data, "data", INPUTS) as data:
        return [Structure.of_fields(data.read(row)).make_atoms() for row in range(len(data))]


def _describe(pick: Candidate) -> dict[str, Any]:
    return {
        "simulation": pick.simulation,
        "time_fs": pick.time,
        "spread": pick.spread,
        "formula": pick.atoms.get_chemical_formula(),
    }
