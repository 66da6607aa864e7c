"""Evidence: the small files behind figures, kept with the experiments, to draw without training.

`workflows/evidence` has the layout of a folder of results, and holds of it what figures read, of
predictions as little as `thinning` leaves. For each experiment `evidence.json` says what else must
be so for the figures to come out as they did: hashes of the files and of the plugins' sources, and
of what was drawn. Where figures were drawn again by later sources, `sources_of_data` are those that
the data were made by.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pipeline_core import lineage, store
from pipeline_core.figures.drawing import draw_compared, draw_experiment
from pipeline_core.figures.thinning import copy_predictions
from pipeline_core.model_info import MAKERS
from pipeline_core.project import EVIDENCE, Project
from pipeline_core.registry import find_source_files
from pipeline_core.run import READS, ExperimentRun, Run

MANIFEST: Final = "evidence.json"
MOST_BYTES: Final = 20_000_000
"""Of the evidence of one experiment: it is kept in the repository."""
_READ: Final = (*READS["figures"], "profile", "partition")
_TOO_LARGE: Final = ("graph", "partition", "model")
_RECORDS: Final = "records.jsonl"
_WHO_AND_WHEN: Final = ("provenance.csv", "provenance.svg")
"""Drawn files that say by what software data were imported."""
_LINES: Final = "*.svg"
"""Drawn files that depend on the version of matplotlib, too."""
_DIGITS: Final = 5
_OFF_TIES: Final = 1 + 1e-7 / 3
"""Factor after which no decimal number of few digits lies halfway between two of `_DIGITS`."""
_NUMBER: Final = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+")
_IDENTIFIER: Final = re.compile(r"\b[A-Za-z]{1,2}[0-9a-f]{10}\b")
"""Of paths in SVG files: matplotlib makes them of all digits of their numbers."""


def keep_evidence(experiment: ExperimentRun, project: Project) -> Path:
    """Copy what the figures of an experiment read, draw them from it, and note their hashes.

    Args:
        experiment: With results that are complete and current.
        project: The project of its results.

    Returns:
        The folder of the evidence.

    Raises:
        ValueError: A result is missing, stale, or made by another source of its plugin; figures
            come out otherwise than from the results; or the files are too large to be kept.
    """
    lineage.require_current_results(experiment)
    for run in experiment.runs.values():
        _require_results(run)
    folder = project.workflows / EVIDENCE
    home = folder / experiment.experiment
    shutil.rmtree(home, ignore_errors=True)
    kept = load_evidence(experiment.experiment, project)
    stays = _find_same_imports(experiment, kept)
    _copy_files(experiment, kept, project, stays)
    try:
        _require_small(kept, home)
        expected, described = _draw(experiment), _describe(kept, folder)
        _require_same(expected, described["drawn"], kept, _WHO_AND_WHEN if stays else ())
    except ValueError:
        shutil.rmtree(home)
        raise
    made = {variant: _read_causes(run) for variant, run in experiment.runs.items()}
    store.write_json(home / MANIFEST, {"made": made, **described})
    return home


def _find_same_imports(experiment: ExperimentRun, kept: ExperimentRun) -> set[Path]:
    """Return files of datasets of which others have kept the same, imported another time.

    Those stay as they are, since the evidence of others relies on them.
    """
    stays: set[Path] = set()
    for ours, theirs in zip(experiment.runs.values(), kept.runs.values(), strict=True):
        for dataset, known in zip(ours.datasets, theirs.datasets, strict=True):
            if _is_same_import(dataset.report, known.report):
                stays |= {dataset.report, dataset.folder / _RECORDS}
    return stays


def _copy_files(
    experiment: ExperimentRun, kept: ExperimentRun, project: Project, stays: set[Path]
) -> None:
    left = stays | {run.predictions for run in experiment.runs.values()}
    for path in _list_files(experiment):
        if path not in left:
            target = project.workflows / EVIDENCE / path.relative_to(project.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    copy_predictions(experiment, kept)


def _is_same_import(report: Path, known: Path) -> bool:
    """Return whether a report says the same as another, but for who imported and when."""
    if not (report.is_file() and known.is_file()):
        return False
    first, second = store.read_json(report), store.read_json(known)
    for content in (first, second):
        facts = content.pop("provenance", {})
        content["made_of"] = {key: facts.get(key) for key in ("options", "inputs")}
    return bool(first == second)


def _require_small(kept: ExperimentRun, home: Path) -> None:
    sizes = {path: path.stat().st_size for path in _list_files(kept)}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise ValueError(
            f"{home}: evidence of {sum(sizes.values()) / 1e6:.1f} MB, at most "
            f"{MOST_BYTES / 1e6:.0f} MB are kept, most of it {largest.name} of "
            f"{largest.parent.name} ({sizes[largest] / 1e6:.1f} MB); {_advise(largest.name)}"
        )


def _advise(name: str) -> str:
    """Return what makes a file smaller."""
    cures = {
        "predictions.h5": "hold out fewer samples, or name fewer splits in evaluate.splits",
        "inference.h5": "ask for less in the section infer, such as frames less often",
        "partition.h5": "take a smaller dataset",
    }
    return cures.get(name, "leave out variants that no figure needs")


def _require_same(
    expected: Mapping[str, str],
    drawn: Mapping[str, str],
    kept: ExperimentRun,
    ignored: Collection[str],
) -> None:
    names = sorted((expected.keys() | drawn) - {*ignored})
    other = [name for name in names if expected.get(name) != drawn.get(name)]
    if other:
        raise ValueError(
            f"{kept.path}: {', '.join(other)}: drawn otherwise from evidence than from results; a "
            "figure reads what is not kept: see pipeline_core.figures.thinning"
        )


def load_evidence(name: str, project: Project) -> ExperimentRun:
    """Return an experiment whose artifacts are evidence, and whose figures go among the results."""
    drawn = replace(project, results=project.workflows / EVIDENCE).load_experiment(name)
    return replace(drawn, folder=project.load_experiment(name).folder)


def list_evidence(workflows: Path) -> list[str]:
    """Return the experiments of which there is evidence, as plugin/name."""
    found = (workflows / EVIDENCE).glob(f"*/*/{MANIFEST}")
    return sorted(path.parent.relative_to(workflows / EVIDENCE).as_posix() for path in found)


def check_evidence(name: str, project: Project) -> list[str]:
    """Draw an experiment from its evidence; return what is not as it was kept, each by its name.

    Raises:
        ValueError: There is no evidence of the experiment, or it cannot be drawn.
    """
    known, experiment = _read_manifest(name, project), load_evidence(name, project)
    folder = project.workflows / EVIDENCE
    if faults := _find_altered(known, experiment, folder):
        return faults
    changed = [*_list_changed(known, _describe(experiment, folder))]
    if changed:
        draw_experiment(experiment)  # to be looked at
    return [
        f"{experiment.folder / file}: not what was drawn from the same evidence" for file in changed
    ]


def redraw_evidence(name: str, project: Project) -> list[str]:
    """Draw what is kept by figure code that was changed on purpose; note the new hashes.

    Returns:
        The drawn files that come out otherwise than before.

    Raises:
        ValueError: There is no evidence of the experiment, a file or an option is not as it was
            kept, or it cannot be drawn.
    """
    known, experiment = _read_manifest(name, project), load_evidence(name, project)
    folder = project.workflows / EVIDENCE
    if faults := _find_altered(known, experiment, folder):
        told = "\n".join(faults)
        raise ValueError(
            f"{told}\nonly what is as it was kept is drawn again; restore it, or compute the "
            f"experiment, then pipeline-core keep-evidence {name}"
        )
    now = _describe(experiment, folder)
    sources = {"sources_of_data": _get_sources_of_data(known)}
    store.write_json(folder / name / MANIFEST, {"made": known["made"], **now, **sources})
    return list(_list_changed(known, now))


def list_drift(name: str, project: Project) -> list[str]:
    """Return the source files of plugins that have changed since the data were made."""
    known = _get_sources_of_data(_read_manifest(name, project))
    now = _hash_sources(load_evidence(name, project))
    return sorted(file for file in known.keys() | now.keys() if known.get(file) != now.get(file))


def _read_manifest(name: str, project: Project) -> Mapping[str, Any]:
    manifest = project.workflows / EVIDENCE / name / MANIFEST
    if not manifest.is_file():
        raise ValueError(
            f"{manifest}: no such file; compute it, then pipeline-core keep-evidence {name}"
        )
    content: Mapping[str, Any] = store.read_json(manifest)
    return content


def _get_sources_of_data(known: Mapping[str, Any]) -> Mapping[str, str]:
    sources: Mapping[str, str] = known.get("sources_of_data", known["sources"])
    return sources


def _find_altered(known: Mapping[str, Any], experiment: ExperimentRun, folder: Path) -> list[str]:
    """Return which files and options are not those that were kept."""
    faults = [
        f"{folder / file}: not the file that was kept"
        for file, digest in known["files"].items()
        if not (folder / file).is_file() or _hash(folder / file) != digest
    ]
    if faults:
        return faults
    lineage.require_current_results(experiment)
    return list(_compare_causes(known["made"], experiment))


def _read_causes(run: Run) -> dict[str, Any]:
    """Return what those artifacts were made of that are too large to be kept."""
    made = {}
    for name in _TOO_LARGE:
        path, stage = getattr(run, name), MAKERS[name]
        facts = store.read_provenance(path) if path.is_file() else {}
        if "options" in facts:
            made[stage] = {key: facts[key] for key in ("plugin", "seed", "options")}
    return made


def _compare_causes(made: Mapping[str, Any], experiment: ExperimentRun) -> Iterator[str]:
    for variant in made.keys() | experiment.runs.keys():
        if variant not in made or variant not in experiment.runs:
            yield f"{experiment.path}: variant {variant!r} is not in both experiment and evidence"
            continue
        run = experiment.runs[variant]
        for stage, facts in made[variant].items():
            if problem := lineage.compare_causes(run, stage, facts):
                yield f"{experiment.path}: {variant}: {problem}; {run.name_command(stage)}"


def _list_changed(known: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the drawn files that are not the same in two descriptions."""
    same_pictures = known["matplotlib"] == now["matplotlib"]
    for file in sorted(known["drawn"].keys() | now["drawn"].keys()):
        compared = same_pictures or not Path(file).match(_LINES)
        if compared and known["drawn"].get(file) != now["drawn"].get(file):
            yield file


def _require_results(run: Run) -> None:
    metrics = store.read_json(run.metrics) if run.metrics.is_file() else None
    if metrics is None:
        raise ValueError(f"{run.metrics}: no such file; {run.name_command('evaluate')}")
    known = store.read_provenance(run.metrics).get("fingerprint")
    if known != run.registry.compute_fingerprint(run.model_info.name):
        raise ValueError(
            f"{run.metrics}: made by another source of plugin {run.model_info.name!r}; "
            f"compute it again: snakemake --config experiments={run.experiment}"
        )


def _list_files(experiment: ExperimentRun) -> Iterator[Path]:
    """Yield what figures read, each once, as far as it is there."""
    found: dict[Path, None] = {}
    for run in experiment.runs.values():
        found |= dict.fromkeys(getattr(run, name) for name in _READ)
        found[run.folder / _RECORDS] = None
        for dataset in run.datasets:
            found |= dict.fromkeys((dataset.report, dataset.folder / _RECORDS))
    yield from (path for path in found if path.is_file())


def _describe(experiment: ExperimentRun, folder: Path) -> dict[str, Any]:
    """Draw an experiment; return the hashes of what was read and of what was drawn."""
    return {
        "files": {str(p.relative_to(folder)): _hash(p) for p in _list_files(experiment)},
        "sources": _hash_sources(experiment),
        "drawn": _draw(experiment),
        "matplotlib": version("matplotlib"),
    }


def _draw(experiment: ExperimentRun) -> dict[str, str]:
    """Draw an experiment; return the digests of its numbers and lines by the names of the files."""
    return {name: digest_drawn(text) for name, text in sorted(draw_compared(experiment).items())}


def digest_drawn(text: str) -> str:
    """Return a digest of a drawn file that is the same on processors that round otherwise.

    Sums of numpy differ in the last digits with the width of a processor's vectors, so numbers
    count to `_DIGITS` digits.
    """
    text = _IDENTIFIER.sub("id", text)
    return hashlib.sha256(_NUMBER.sub(_round, text).encode()).hexdigest()


def _round(match: re.Match[str]) -> str:
    return f"{float(match.group()) * _OFF_TIES:.{_DIGITS}g}"


def _hash_sources(experiment: ExperimentRun) -> dict[str, str]:
    names = {info.name for info in experiment.models}
    modules = {p.target for p in experiment.registry.plugins if p.model and p.model.name in names}
    files = [(m.partition(".")[0], f) for m in modules for f in find_source_files(m)]
    return {f"{m}/{f.relative_to(_find_root(f, m))}": _hash(f) for m, f in sorted(files)}


def _find_root(file: Path, package: str) -> Path:
    """Return the folder of the package that a source file belongs to."""
    return next((p for p in file.parents if p.name == package), file.parent)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
