"""The stage `infer`: the molecular dynamics that an experiment asks for."""

from __future__ import annotations

from typing import Any

from pipeline_core import store
from pipeline_core.config.sections import InferOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.inference.dynamics import run_dynamics
from pipeline_core.inference.structures import read_start_structure
from pipeline_core.run import Run


def simulate_run(run: Run) -> dict[str, Any]:
    """Do all molecular-dynamics runs, one after the other; write `run.inference` and `md/*.extxyz`.

    Rank 0 does all the work: one trajectory has nothing to share.

    Returns:
        The summary of each run by its name.

    Raises:
        ValueError: A start structure cannot be had, or a run exploded.
    """
    options = run.get_section("infer", InferOptions)
    calculator_of = run.registry.select_hook("calculator", run.model_info.name)
    results: dict[str, Any] = {}
    with connect_ranks(run.device, run.state) as ranks:
        if not ranks.is_rank_zero:
            return results
        with store.create(run.inference, "inference", run.make_provenance("infer")) as file:
            calculator = calculator_of(run=run, device=str(ranks.device)) if options.md else None
            for md in options.md:
                results[md.name] = run_dynamics(
                    read_start_structure(run, md.start, md.repeat),
                    calculator,
                    md,
                    run.seed,
                    run.folder / "md" / f"{md.name}.extxyz",
                    file.create_group(md.name),
                )
    return results
