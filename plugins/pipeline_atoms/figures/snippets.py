"""Code for the report that loads the potential and the trajectories of an experiment."""

from collections.abc import Iterator
from typing import Final

from pipeline_core.artifacts import store
from pipeline_core.config.experiments import BASE
from pipeline_core.figures.findings import Snippet
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.report.variants import rank_groups

_LOAD: Final = """\
from ase.io import read
from pipeline_atoms.calculators.loading import load_calculator

atoms = read("structure.xyz")  # yours
atoms.calc = load_calculator("{model}"{head})
print(atoms.get_potential_energy(), "eV")
print(atoms.get_forces(), "eV/Å")
"""
_TRAJECTORY: Final = """\

frames = read("{trajectory}", ":")
"""


def write_snippets(experiment: ExperimentRun) -> Iterator[Snippet]:
    """Yield code that loads the best model; none if it is missing or not a calculator."""
    ranked = rank_groups(experiment)
    best = ranked[0].group.runs[0] if ranked else experiment.runs[BASE]
    if not best.model.exists() or not _is_calculator(best):
        return
    heads = store.read_provenance(best.model).get("card", {}).get("heads", [])
    code = _LOAD.format(model=best.model, head=f', head="{heads[0]}"' if heads else "")
    trajectories = sorted((best.folder / "md").glob("*.extxyz"))
    code += _TRAJECTORY.format(trajectory=trajectories[0]) if trajectories else ""
    word = f" --head {heads[0]}" if heads else ""
    of_heads = f" Its heads are {', '.join(heads)}." if heads else ""
    yield Snippet(
        title="Use the model",
        code=code,
        note=f"The model of the variant {best.variant}, as a calculator of ASE.{of_heads} For all "
        f"structures of files: pipeline-core predict {best.model} FILE{word}",
    )


def _is_calculator(run: Run) -> bool:
    """Return True if the plugin of a model or this one makes an ASE calculator of it."""
    own = [p for p in run.registry.plugins if p.model == run.model_info]
    return "forces" in run.model_info.predicts or any("calculator" in p.hooks for p in own)
