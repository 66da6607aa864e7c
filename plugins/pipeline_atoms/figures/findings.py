"""Numbers, tables, warnings and code on the use of potentials."""

from collections.abc import Iterator

from pipeline_atoms.figures import (
    committees,
    diffusion,
    dynamics,
    properties,
    snippets,
    uncertainty,
)
from pipeline_core.config.experiments import BASE
from pipeline_core.figures.findings import Findings, Number
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun, Run


def make_findings(experiment: ExperimentRun) -> Findings:
    """Return the numbers, tables, warnings and code on the use of potentials for the report."""
    base = experiment.runs[BASE]
    return Findings(
        numbers=[*committees.collect_numbers(base), *_collect_dynamics(base)],
        tables=[
            *diffusion.tabulate_diffusion(experiment),
            *properties.tabulate_properties(experiment),
        ],
        warnings=[*uncertainty.list_warnings(experiment), *properties.list_warnings(experiment)],
        snippets=list(snippets.write_snippets(experiment)),
    )


def _collect_dynamics(run: Run) -> Iterator[Number]:
    for trajectory in dynamics.read_run(run):
        facts = trajectory.summary
        drift = facts.get("drift_meV_per_atom_per_ps")
        yield Number(
            title=f"Dynamics, {dynamics.name_ensemble(trajectory)}",
            value=f"{facts['steps']:,} steps",
            note=f"{facts['n_atoms']:,} atoms, {facts['timestep_fs']:g} fs a step; "
            f"energy drifts by {format_number(drift, 2)} meV/atom/ps",
        )
