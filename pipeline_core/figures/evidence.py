"""Evidence: the small files behind figures, kept with the experiments, to draw without training.

For an experiment `workflows/evidence` has an archive, laid out like results: histories, errors,
inference results, and extracts of larger files (`artifacts.extracts`). A JSON manifest beside
it records what the figures depend on: hashes of the files and of the plugins' sources, and of the
drawn files. If figures were drawn again by later sources, `sources_of_data` are the sources that
made the data.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.artifacts.extracts import Extracts
from pipeline_core.figures import savers
from pipeline_core.figures.archives import (
    copy_artifact,
    list_files,
    unpack_archive,
    write_archive,
)
from pipeline_core.figures.drawing import draw_compared
from pipeline_core.model_info import MAKERS
from pipeline_core.project import lineage
from pipeline_core.project.project import EVIDENCE, Project
from pipeline_core.project.run import READS, ExperimentRun, Run
from pipeline_core.registry import find_source_files

MOST_BYTES: Final = 1_000_000
"""Limit for the archive of one experiment, which is kept in the repository."""
_READ: Final = (*(name for name in READS["figures"] if name != "predictions"), "profile")
"""Artifacts that evidence keeps whole; extracts replace the others."""
_EXTRACTS: Final = "extracts.json"
_TOO_LARGE: Final = ("graph", "partition", "model")
_RECORDS: Final = "records.jsonl"
_LINES: Final = "*.svg"
"""Drawn files that also depend on the version of matplotlib."""
_DIGITS: Final = 5
_OFF_TIES: Final = 1 + 1e-7 / 3
"""Factor after which no decimal number of few digits lies halfway between two of `_DIGITS`."""
_NUMBER: Final = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+")
_IDENTIFIER: Final = re.compile(r"\b[A-Za-z]{1,2}[0-9a-f]{10}\b")
"""Identifiers of paths in SVG files, which matplotlib makes from all digits of their numbers."""


def keep_evidence(experiment: ExperimentRun, project: Project) -> Path:
    """Copy the inputs of the figures of an experiment, draw from them, and record all hashes.

    Args:
        experiment: Experiment with complete and current results.
        project: The project of its results.

    Returns:
        The archive.

    Raises:
        ValueError: A result is missing, stale, or made by another source of its plugin; figures
            differ from those drawn from the results; or the archive is too large to be kept.
    """
    lineage.require_current_results(experiment)
    for run in experiment.runs.values():
        _require_results(run)
    extracts = Extracts()
    expected = draw_compared(_replace_extracts(experiment, extracts))
    with tempfile.TemporaryDirectory() as scratch:
        for path in _list_files(experiment):
            copy_artifact(path, Path(scratch) / path.relative_to(project.results))
        extracts.write(Path(scratch) / experiment.experiment / _EXTRACTS)
        archive = Path(scratch) / "evidence.tar.xz"
        write_archive(Path(scratch), archive)
        drawn = draw_compared(_open_archive(archive, experiment.experiment, project))
        described = _describe(experiment, archive, drawn)
        _require_same(_digest(expected), described["drawn"], experiment)
        content = archive.read_bytes()
        _require_small(len(content), archive, experiment)
    made = {variant: _read_causes(run) for variant, run in experiment.runs.items()}
    kept = project.find_evidence(experiment.experiment)
    with store.write_atomic(kept) as temporary:
        temporary.write_bytes(content)
    store.write_json(_find_manifest(kept), {"made": made, **described})
    return kept


def _replace_extracts(experiment: ExperimentRun, extracts: Extracts) -> ExperimentRun:
    runs = {v: replace(run, extracts=extracts) for v, run in experiment.runs.items()}
    return replace(experiment, runs=runs)


def _require_small(size: int, archive: Path, experiment: ExperimentRun) -> None:
    if size > MOST_BYTES:
        sizes = {n: p.stat().st_size for n, p in list_files(unpack_archive(archive)).items()}
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{experiment.path}: evidence of {size / 1e6:.1f} MB, at most "
            f"{MOST_BYTES / 1e6:.0f} MB are kept, most of it {largest} "
            f"({sizes[largest] / 1e6:.1f} MB before it is compressed); reduce the output of the "
            "section infer, such as the frequency of frames, or leave out variants that no figure "
            "needs"
        )


def _require_same(
    expected: Mapping[str, str], drawn: Mapping[str, str], experiment: ExperimentRun
) -> None:
    other = [n for n in sorted(expected.keys() | drawn) if expected.get(n) != drawn.get(n)]
    if other:
        raise ValueError(
            f"{experiment.path}: {', '.join(other)}: drawn otherwise from evidence than from "
            "results; a figure reads what is not kept: see pipeline_core.artifacts.extracts"
        )


def load_evidence(name: str, project: Project) -> ExperimentRun:
    """Return an experiment with evidence as artifacts, and with its figures among the results.

    Raises:
        ValueError: The experiment has no evidence, or it is damaged.
    """
    return _open_archive(project.find_evidence(name), name, project)


def _open_archive(archive: Path, name: str, project: Project) -> ExperimentRun:
    folder = unpack_archive(archive)
    experiment = replace(project, results=folder).load_experiment(name)
    experiment = _replace_extracts(experiment, Extracts(folder / name / _EXTRACTS))
    return replace(experiment, folder=project.load_experiment(name).folder)


def _find_manifest(archive: Path) -> Path:
    return archive.with_name(archive.name.replace(".tar.xz", ".json"))


def list_evidence(workflows: Path) -> list[str]:
    """Return the experiments with evidence, as plugin/name."""
    found = (workflows / EVIDENCE).glob("*/*.tar.xz")
    return sorted(f"{path.parent.name}/{path.name.removesuffix('.tar.xz')}" for path in found)


def check_evidence(name: str, project: Project) -> list[str]:
    """Draw an experiment from its evidence; return all differences from what was kept, by name.

    Raises:
        ValueError: The experiment has no evidence, or it cannot be drawn.
    """
    recorded, experiment = _read_manifest(name, project), load_evidence(name, project)
    archive = project.find_evidence(name)
    if faults := _find_altered(recorded, experiment, archive):
        return faults
    drawn = draw_compared(experiment)
    changed = [*_list_changed(recorded, _describe(experiment, archive, drawn))]
    for file, text in drawn.items() if changed else ():  # for inspection
        savers.write(experiment.folder / file, text.encode())
    return [
        f"{experiment.folder / file}: not what was drawn from the same evidence" for file in changed
    ]


def redraw_evidence(name: str, project: Project) -> list[str]:
    """Draw evidence again after an intended change of figure code; record the new hashes.

    Returns:
        The drawn files that differ from before.

    Raises:
        ValueError: The experiment has no evidence, a file or an option differs from what was kept,
            or it cannot be drawn.
    """
    recorded, experiment = _read_manifest(name, project), load_evidence(name, project)
    archive = project.find_evidence(name)
    if faults := _find_altered(recorded, experiment, archive):
        listed = "\n".join(faults)
        raise ValueError(
            f"{listed}\nonly unchanged evidence is drawn again; restore it, or compute the "
            f"experiment, then pipeline-core keep-evidence {name}"
        )
    now = _describe(experiment, archive, draw_compared(experiment))
    sources = {"sources_of_data": _get_sources_of_data(recorded)}
    store.write_json(_find_manifest(archive), {"made": recorded["made"], **now, **sources})
    return list(_list_changed(recorded, now))


def list_drift(name: str, project: Project) -> list[str]:
    """Return the source files of plugins that have changed since the data were made."""
    then = _get_sources_of_data(_read_manifest(name, project))
    now = _hash_sources(load_evidence(name, project))
    return sorted(file for file in then.keys() | now.keys() if then.get(file) != now.get(file))


def _read_manifest(name: str, project: Project) -> Mapping[str, Any]:
    manifest = _find_manifest(project.find_evidence(name))
    if not manifest.is_file():
        raise ValueError(
            f"{manifest}: no such file; compute it, then pipeline-core keep-evidence {name}"
        )
    content: Mapping[str, Any] = store.read_json(manifest)
    return content


def _get_sources_of_data(recorded: Mapping[str, Any]) -> Mapping[str, str]:
    sources: Mapping[str, str] = recorded.get("sources_of_data", recorded["sources"])
    return sources


def _find_altered(
    recorded: Mapping[str, Any], experiment: ExperimentRun, archive: Path
) -> list[str]:
    """Return the files and options that differ from those that were kept."""
    files, now = recorded["files"], _hash_files(archive)
    faults = [
        f"{archive}: {file}: not the file that was kept"
        for file in sorted(files.keys() | now.keys())
        if files.get(file) != now.get(file)
    ]
    if faults:
        return faults
    lineage.require_current_results(experiment)
    return list(_compare_causes(recorded["made"], experiment))


def _hash_files(archive: Path) -> dict[str, str]:
    files = list_files(unpack_archive(archive))
    return {name: _hash(path) for name, path in files.items()}


def _read_causes(run: Run) -> dict[str, Any]:
    """Return the provenance of artifacts that are too large to be kept."""
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


def _list_changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the drawn files that differ between two descriptions."""
    same_pictures = then["matplotlib"] == now["matplotlib"]
    for file in sorted(then["drawn"].keys() | now["drawn"].keys()):
        compared = same_pictures or not Path(file).match(_LINES)
        if compared and then["drawn"].get(file) != now["drawn"].get(file):
            yield file


def _require_results(run: Run) -> None:
    metrics = store.read_json(run.metrics) if run.metrics.is_file() else None
    if metrics is None:
        raise ValueError(f"{run.metrics}: no such file; {run.name_command('evaluate')}")
    recorded = store.read_provenance(run.metrics).get("fingerprint")
    if recorded != run.registry.compute_fingerprint(run.model_info.name):
        raise ValueError(
            f"{run.metrics}: made by another source of plugin {run.model_info.name!r}; "
            f"compute it again: snakemake --config experiments={run.experiment}"
        )


def _list_files(experiment: ExperimentRun) -> Iterator[Path]:
    """Yield the existing files that figures read, each once."""
    found: dict[Path, None] = {}
    for run in experiment.runs.values():
        found |= dict.fromkeys(getattr(run, name) for name in _READ)
        found[run.folder / _RECORDS] = None
        for dataset in run.datasets:
            found |= dict.fromkeys((dataset.report, dataset.folder / _RECORDS))
    yield from (path for path in found if path.is_file())


def _describe(experiment: ExperimentRun, archive: Path, drawn: Mapping[str, str]) -> dict[str, Any]:
    """Return the hashes of the inputs, sources and drawn files of an experiment."""
    return {
        "files": _hash_files(archive),
        "sources": _hash_sources(experiment),
        "drawn": _digest(drawn),
        "matplotlib": version("matplotlib"),
    }


def _digest(drawn: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of drawn files by their names."""
    return {name: digest_drawn(text) for name, text in sorted(drawn.items())}


def digest_drawn(text: str) -> str:
    """Return a digest of a drawn file that does not depend on a processor's rounding.

    Sums of numpy differ in the last digits with the width of a processor's vectors, so numbers
    are rounded to `_DIGITS` digits.
    """
    text = _IDENTIFIER.sub("id", text)
    return hashlib.sha256(_NUMBER.sub(_round, text).encode()).hexdigest()


def _round(match: re.Match[str]) -> str:
    return f"{float(match.group()) * _OFF_TIES:.{_DIGITS}g}"


def _hash_sources(experiment: ExperimentRun) -> dict[str, str]:
    names = {info.name for info in experiment.models}
    plugins = [p for p in experiment.registry.plugins if p.model and p.model.name in names]
    packages = {name for p in plugins for name in (p.package, *p.extensions)}
    files = [(name.partition(".")[0], f) for name in packages for f in find_source_files(name)]
    return {f"{m}/{f.relative_to(_find_root(f, m))}": _hash(f) for m, f in sorted(files)}


def _find_root(file: Path, package: str) -> Path:
    """Return the folder of the package that a source file belongs to."""
    return next((p for p in file.parents if p.name == package), file.parent)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
