"""Stage `infer`: molecular dynamics and properties of materials with the trained potential."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.run import Run

if TYPE_CHECKING:
    from ase.calculators.calculator import Calculator


@hookimpl(trylast=True)
def infer(run: Run) -> Summary:
    """Do what the section `infer` asks for; write `run.inference`, trajectories."""
    from pipeline_core.inference.simulations import simulate_run

    return simulate_run(run)


@hookimpl(trylast=True)
def calculator(run: Run, device: str) -> Calculator:
    """Give the trained potential of a run as an ASE calculator."""
    from pipeline_core.inference.calculator import make_run_calculator

    return make_run_calculator(run, device)
