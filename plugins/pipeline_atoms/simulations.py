"""The stage `infer`: molecular dynamics and properties of an experiment."""

from contextlib import nullcontext
from functools import partial
from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.committee import make_run_committee
from pipeline_atoms.calculators.divided import DividedCalculator, can_be_divided
from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.config.properties import GROUP
from pipeline_atoms.dynamics.dynamics import remove_restarts, run_dynamics
from pipeline_atoms.dynamics.structures import read_start_structure
from pipeline_atoms.properties.catalogue import compute_properties
from pipeline_core.artifacts import store
from pipeline_core.artifacts.provenance import hash_file
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.project.run import Run


def simulate_run(run: Run) -> dict[str, Any]:
    """Run all molecular dynamics, then all properties; write `run.inference` and `md/*.extxyz`.

    Several ranks share each structure by domain decomposition, if the model supports it; rank 0
    moves the atoms and writes. Otherwise, and with a committee, rank 0 does all the work.

    Returns:
        The summary of each run of dynamics by its name, and summaries of properties as
        `properties`; empty on other ranks.

    Raises:
        ValueError: A start structure cannot be read, or a run exploded.
    """
    options = run.get_section("infer", InferOptions)
    with connect_ranks(run.device, run.state) as ranks:
        calculator = _make_calculator(run, options, ranks)
        if not ranks.is_rank_zero:
            if isinstance(calculator, DividedCalculator):
                calculator.follow()
            return {}
        lead = calculator.lead() if isinstance(calculator, DividedCalculator) else nullcontext()
        with lead:
            return _simulate(run, options, calculator)


def _make_calculator(run: Run, options: InferOptions, ranks: Ranks) -> Calculator | None:
    """Return the calculator of this rank; None if it has nothing to do."""
    if not options.has_work or not (ranks.is_rank_zero or ranks.size > 1):
        return None
    if run.members:
        if not ranks.is_rank_zero:
            return None
        committee = make_run_committee(run, str(ranks.device))
        if options.compile:
            _require_compiled(run, committee.members[0])
        return committee
    calculator_of = run.registry.select_hook("calculator", run.model_info.name)
    calculator = calculator_of(run=run, device=str(ranks.device))
    if options.compile:
        _require_compiled(run, calculator)
    if ranks.size > 1 and can_be_divided(calculator):
        section = run.get_section("partition", PartitionOptions)
        return DividedCalculator(calculator, ranks, section.method)
    return calculator


def _require_compiled(run: Run, calculator: Calculator) -> None:
    if not isinstance(calculator, PotentialCalculator):
        raise ValueError(
            f"infer.compile: plugin {run.model_info.name!r} has a calculator of its own, which is "
            "not compiled; remove infer.compile"
        )


def _simulate(run: Run, options: InferOptions, calculator: Calculator | None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    trajectories = {md.name: run.folder / "md" / f"{md.name}.extxyz" for md in options.md}
    model = hash_file(run.model) if options.md else ""
    with store.create(run.inference, "inference", run.make_provenance("infer")) as file:
        for md in options.md:
            start = read_start_structure(run, md.start, md.repeat)
            group, path = file.create_group(md.name), trajectories[md.name]
            summary = run_dynamics(start, calculator, md, run.seed, path, group, model)
            results[md.name] = summary | _describe_division(calculator)
        if calculator is not None and any(options.list_properties()):
            read = partial(_read_structure, run)
            results[GROUP] = compute_properties(options, calculator, read, file)
    for path in trajectories.values():
        remove_restarts(path)
    return results


def _read_structure(run: Run, start: str, place: str) -> Atoms:
    return read_start_structure(run, start, place=place)


def _describe_division(calculator: Calculator | None) -> dict[str, int]:
    """Return statistics of the domain decomposition so far."""
    if not isinstance(calculator, DividedCalculator):
        return {}
    return {
        "ranks": calculator.n_ranks,
        "neighbour_searches": calculator.neighbours.n_searches,
        "migrated_atoms": calculator.part.n_migrated,
    }
