"""Paths of the results of an experiment."""

from pathlib import Path
from typing import Final

from pipeline_core.figures.findings import Table
from pipeline_core.project.run import ExperimentRun, Run

_INTERNAL: Final = (
    *("graph.h5", "partition.h5", "history.jsonl", "records.jsonl", "metrics.json"),
    *("predictions.h5", "profile.json", "logs", "state"),
)
"""Files that the report shows otherwise, or that only the workflow reads."""
_MOST_FILES: Final = 6


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
