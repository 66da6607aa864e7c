"""Paths of the models and trajectories of an experiment, and code to load them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline_core.artifacts import store
from pipeline_core.config.experiments import BASE
from pipeline_core.figures.findings import Table
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.report.chapter import Snippet
from pipeline_core.report.variants import rank_groups

_INTERNAL: Final = (
    *("graph.h5", "partition.h5", "history.jsonl", "records.jsonl", "metrics.json"),
    *("predictions.h5", "profile.json", "logs", "state"),
)
"""Files that the report shows otherwise, or that only the workflow reads."""
_MOST_FILES: Final = 6
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


def tabulate_files(experiment: ExperimentRun) -> Table | None:
    """Return the paths of the results of each variant; None if there are none."""
    found = {variant: _list_files(run) for variant, run in experiment.runs.items()}
    rows = [[variant, *line] for variant, lines in found.items() for line in lines]
    if not rows:
        return None
    return Table(title="Files", header=["variant", "what", "path"], rows=rows)


def _list_files(run: Run) -> list[list[str]]:
    """Return kind and path of all lasting files; of a folder with many the folder itself."""
    lines = []
    for path in sorted(run.folder.glob("[!.]*")):
        if path.name in _INTERNAL:
            continue
        files = sorted(path.glob("[!.]*")) if path.is_dir() else [path]
        if len(files) > _MOST_FILES:
            lines.append([f"{len(files):,} files", f"{path}/"])
        else:
            lines += [[_name_kind(file, run), str(file)] for file in files]
    return sorted(lines, key=lambda line: line[1] != str(run.model))


def _name_kind(path: Path, run: Run) -> str:
    if path.suffix == ".extxyz":
        return "trajectory"
    return {run.model: "model", run.inference: "use of the model"}.get(path, "export")


def _list_trajectories(run: Run) -> list[str]:
    return [str(path) for path in sorted((run.folder / "md").glob("*.extxyz"))]


def write_snippet(experiment: ExperimentRun) -> Snippet | None:
    """Return code that loads the best model; None if it is missing or not a calculator."""
    ranked = rank_groups(experiment)
    best = ranked[0].group.runs[0] if ranked else experiment.runs[BASE]
    if not best.model.exists() or not _is_calculator(best):
        return None
    heads = store.read_provenance(best.model).get("card", {}).get("heads", [])
    code = _LOAD.format(model=best.model, head=f', head="{heads[0]}"' if heads else "")
    trajectories = _list_trajectories(best)
    code += _TRAJECTORY.format(trajectory=trajectories[0]) if trajectories else ""
    word = f" --head {heads[0]}" if heads else ""
    of_heads = f" Its heads are {', '.join(heads)}." if heads else ""
    return Snippet(
        title="Use the model",
        code=code,
        note=f"The model of the variant {best.variant}, as a calculator of ASE.{of_heads} For all "
        f"structures of files: pipeline-core predict {best.model} FILE{word}",
    )


def _is_calculator(run: Run) -> bool:
    """Return True if the engine or the plugin makes an ASE calculator of a model."""
    own = [p for p in run.registry.plugins if p.model == run.model_info]
    return "forces" in run.model_info.predicts or any("calculator" in p.hooks for p in own)
