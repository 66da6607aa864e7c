"""The two steps of a round before its training: picking structures, and labelling one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ase.io
import h5py
import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.mixing import AverageCalculator
from ase.io.extxyz import write_xyz

from pipeline_core import provenance, store
from pipeline_core.importing.plausibility import find_implausible
from pipeline_core.inference.dynamics import remove_restarts, run_dynamics
from pipeline_core.inference.structures import read_start_structure
from pipeline_core.learning.labels import label_structure
from pipeline_core.learning.picking import (
    Candidate,
    measure_spread,
    pick_at_random,
    pick_by_spread,
)
from pipeline_core.locks import hold, locate_lock
from pipeline_core.round_run import Round
from pipeline_core.run import ExperimentRun, Run
from pipeline_core.samples import SampleFile
from pipeline_core.seals import identify

_STRUCTURE = ["atomic_numbers", "positions", "cell", "pbc"]


def find_round(run: Run) -> Round:
    """Return the round of a run.

    Raises:
        ValueError: It is none, or its committee's leader picks.
    """
    if run.round is None:
        raise ValueError(
            f"{run.experiment}: the variant {run.variant!r} picks nothing; name a round of the "
            "section `learn`, such as round_1"
        )
    return run.round


def pick_structures(experiment: ExperimentRun, variant: str, device: str = "cpu") -> dict[str, Any]:
    """Explore by the models of the round before, and pick what is to be labelled.

    Writes `Round.picks` and `Round.report`.

    Raises:
        ValueError: A model is missing, a start cannot be had, or too few structures can be used.
    """
    run = experiment.run(variant)
    one = find_round(run)
    with hold(locate_lock(run.folder, "pick"), "picking"):
        begin = time.perf_counter()
        before, seed = experiment.run(one.before), run.seed + one.number
        models = [experiment.run(name) for name in one.committee]
        calculator_of = run.registry.select_hook("calculator", run.model_info.name)
        calculators = [calculator_of(run=model, device=device) for model in models]
        identities = {model.variant: identify(model.model) for model in models}
        candidates, refused = _explore(
            one, before, calculators, seed, " ".join(identities.values())
        )
        distance = None
        if one.arm == "random":
            picks = pick_at_random(candidates, one.options.per_round, seed)
        else:
            known = _read_known(before)
            picks, distance = pick_by_spread(
                candidates, known, one.options.per_round, one.options.distance
            )
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
        inputs = {**identities, "data": identify(before.data)}
        record = provenance.make_record(
            inputs=inputs,
            stage="pick",
            experiment=run.experiment,
            variant=run.variant,
            seed=seed,
            options=one.options.model_dump(mode="json"),
        )
        with store.write_atomic(one.picks) as path, path.open("w", encoding="utf-8") as file:
            for pick in picks:
                write_xyz(file, _bare(pick.atoms))
        store.write_json(one.report, report, record)
    return {key: report[key] for key in ("candidates", "largest_spread", "distance", "seconds")}


def label_pick(run: Run, number: int, threads: int = 1) -> dict[str, Any]:
    """Label a pick of a round.

    Raises:
        ValueError: There is no such pick, or `label_structure` fails.
    """
    one = find_round(run)
    if not 0 <= number < one.options.per_round:
        raise ValueError(f"--number: {number} is no pick of 0 to {one.options.per_round - 1}")
    path = one.labels[number]
    with hold(locate_lock(path.parent, str(number)), f"the label {number}"):
        atoms = ase.io.read(one.picks, index=number)
        return {path.name: label_structure(atoms, one.options.label_with, path, threads)}


def _explore(
    one: Round, before: Run, calculators: Sequence[Calculator], seed: int, model: str
) -> tuple[list[Candidate], dict[str, int]]:
    """Return what the dynamics met and can be labelled, and how much was refused of each run."""
    mean = calculators[0] if len(calculators) == 1 else AverageCalculator(list(calculators))
    candidates: list[Candidate] = []
    refused = {}
    folder = one.folder / "explore"
    folder.mkdir(parents=True, exist_ok=True)
    for md in one.options.md:
        start = read_start_structure(before, md.start, md.repeat)
        trajectory = folder / f"{md.name}.extxyz"
        with h5py.File(f"{md.name}.h5", "w", driver="core", backing_store=False) as file:
            # What broke down has left its frames.
            try:
                run_dynamics(start, mean, md, seed, trajectory, file.create_group("md"), model)
            except ValueError:
                if "positions" not in file["md"]:
                    raise
            frames = zip(
                file["md/time"][1:], file["md/positions"][1:], file["md/cell"][1:], strict=True
            )
            met = [_judge(start, md.name, *frame, calculators, one) for frame in frames]
        kept = [candidate for candidate in met if candidate is not None]
        candidates += kept
        refused[md.name] = len(met) - len(kept)
    for md in one.options.md:
        remove_restarts(folder / f"{md.name}.extxyz")
    if not candidates:
        raise ValueError(
            f"learn: all structures of {', '.join(refused)} are beyond learn.limits: the model is "
            "not good enough to explore; give it more data, or lower temperature and steps"
        )
    return candidates, refused


def _judge(
    start: Atoms,
    name: str,
    moment: float,
    positions: np.ndarray,
    cell: np.ndarray,
    calculators: Sequence[Calculator],
    one: Round,
) -> Candidate | None:
    """Return a frame with its spread; None if nobody should label it."""
    atoms = _bare(start)
    atoms.set_cell(np.asarray(cell, dtype=float))
    atoms.positions = np.asarray(positions, dtype=float)
    sample = {
        "atomic_numbers": atoms.numbers,
        "positions": atoms.positions,
        "cell": atoms.cell[:],
        "pbc": atoms.pbc,
    }
    limits = one.options.limits
    if not np.isfinite(atoms.positions).all() or find_implausible(sample, limits):
        return None
    with suppress(ValueError):  # a model has nothing to say on it
        forces = np.array([calculator.get_forces(atoms) for calculator in calculators])
        if find_implausible({**sample, "forces": forces.mean(axis=0)}, limits) is None:
            return Candidate(atoms, name, float(moment), measure_spread(forces))
    return None


def _read_known(before: Run) -> list[Atoms]:
    with SampleFile(before.data, "data", _STRUCTURE) as data:
        samples = [data.read(row) for row in range(len(data.read_column("split")))]
    return [
        Atoms(s["atomic_numbers"], s["positions"], cell=s["cell"], pbc=s["pbc"]) for s in samples
    ]


def _bare(atoms: Atoms) -> Atoms:
    return Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)


def _describe(pick: Candidate) -> dict[str, Any]:
    return {
        "simulation": pick.simulation,
        "time_fs": pick.time,
        "spread": pick.spread,
        "formula": pick.atoms.get_chemical_formula(),
    }
