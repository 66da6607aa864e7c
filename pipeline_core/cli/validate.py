"""`pipeline-core validate`: all checks of experiments that are possible before a run."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline_core.cli import options
from pipeline_core.config.experiments import BASE
from pipeline_core.config.raw_files import MissingFilesError
from pipeline_core.config.sections import FiguresOptions
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.project import Project, list_all_experiments
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.status.output import align, count

ARTIFACTS = {
    "graph": "graph",
    "partition": "partition",
    "train": "model",
    "evaluate": "metrics",
    "infer": "inference",
}
"""Stage to the artifact that exists once it has run."""

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Experiments as plugin/name, whose raw files must be there or have a download; all if "
        "none, whose raw files may be missing."
    ),
]


def validate(
    experiments: Names = None,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Check experiments, their datasets and raw files; print what would run."""
    project = options.load_project(workflows, results)
    names = experiments or list_all_experiments(workflows)
    if not names:
        raise ValueError(
            f"{workflows / 'experiments'}: holds no experiments; write one: pipeline-core "
            "new-experiment --help"
        )
    problems, missing = [], []
    for name in names:
        try:
            experiment = load_checked(project, name)
            _check_data(experiment, may_miss=not experiments)
        except ValueError as error:
            problems.append(str(error))
            continue
        typer.echo(describe(experiment))
        missing += [name] if any(map(explain_absence, _list_datasets(experiment))) else []
    if problems:
        raise ValueError("\n".join(dict.fromkeys("\n".join(problems).splitlines())))
    verb = "is" if len(names) == 1 else "are"
    lack = f"; data are missing for {', '.join(missing)}" if missing else ""
    typer.echo(f"{count(len(names), 'experiment')} {verb} valid{lack}")


def load_checked(project: Project, name: str) -> ExperimentRun:
    """Load an experiment after a check of everything that it names except raw files.

    Raises:
        ValueError: Something is wrong or missing.
    """
    experiment = project.load_experiment(name)
    for run in experiment.runs.values():
        _check_inputs(run, project.results)
    _check_figures(experiment)
    return experiment


def _check_inputs(run: Run, results: Path) -> None:
    """Check that the input files of training and inference that no stage writes exist."""
    for stage, key in (("train", "train.start_from"), ("infer", "infer")):
        for path in run.list_inputs(stage).values():
            is_made = path.resolve().is_relative_to(results.resolve())
            if not is_made and not path.is_file():
                raise ValueError(
                    f"{path}: no such file, but {run.experiment} (variant {run.variant}) names it "
                    f"in {key}; correct the path, or put the file there"
                )


def _check_figures(experiment: ExperimentRun) -> None:
    """Check that the figures of an experiment exist, unless its plugin draws them itself.

    Figures of all plugins are only loaded if needed.
    """
    section = experiment.runs[BASE].sections["figures"]
    plugins = [p for p in experiment.registry.plugins if p.model in (None, experiment.model_info)]
    draws_itself = any("draw" in plugin.hooks for plugin in plugins)
    if isinstance(section, FiguresOptions) and section.names != "all" and not draws_itself:
        from pipeline_core.figures.drawing import choose_figures

        choose_figures(experiment)


def _list_datasets(experiment: ExperimentRun) -> list[DatasetRun]:
    """Return all datasets that a stage of any variant reads, each once."""
    return list(
        {one.name: one for run in experiment.runs.values() for one in run.datasets}.values()
    )


def explain_absence(dataset: DatasetRun) -> str | None:
    """Return a message on missing raw files of a dataset; None if all exist."""
    try:
        files = dataset.find_raw_files()
    except MissingFilesError as error:
        return str(error)
    # Labels of a round are made later, not missing.
    if all(path.is_file() for path in files.values()) or dataset.grows:
        return None
    return f"pipeline-core download --dataset {dataset.name}"


def _check_data(experiment: ExperimentRun, *, may_miss: bool) -> None:
    """Check the raw files of an experiment; missing ones are accepted if `may_miss`."""
    for dataset in _list_datasets(experiment):
        for part in dataset.parts:
            try:
                _check_files(part)
            except MissingFilesError:
                if not may_miss:
                    raise


def _check_files(dataset: DatasetRun) -> None:
    """Check that the raw files of a dataset exist or can be fetched, and can be read."""
    dataset.registry.select_hook("check_data", dataset.options.plugin)(run=dataset)
    dataset.find_raw_files()


def describe(experiment: ExperimentRun) -> str:
    """Return the planned work as a table: one row a variant, one column a stage.

    Plugin, dataset, seed and ranks have columns where they differ.
    """
    head = f"{experiment.experiment}: {experiment.file.description.strip()}"
    data = "; ".join(map(_describe_data, experiment.datasets)) or "no dataset"
    facts = f"  plugin {experiment.model_info.name}, scale {experiment.file.scale}, {data}"
    runs = experiment.runs.values()
    words = {
        "plugin": [run.model_info.name for run in runs],
        "dataset": [run.dataset.name if run.dataset else "none" for run in runs],
        "seed": [str(run.seed) for run in runs],
        "ranks": [str(run.ranks) for run in runs],
    }
    columns = {
        "  variant": [f"  {run.variant}" for run in runs],
        **{word: values for word, values in words.items() if len(set(values)) > 1},
        **{stage: [_describe_state(run, stage) for run in runs] for stage in ARTIFACTS},
    }
    return "\n".join(
        [head, facts, align([list(columns), *zip(*columns.values(), strict=True)]), ""]
    )


def _describe_data(dataset: DatasetRun) -> str:
    state = "imported" if dataset.data.exists() else "to be imported"
    missing = explain_absence(dataset)
    if missing is not None:
        return f"dataset {dataset.name} ({state}; data missing: {missing})"
    files = dataset.find_raw_files().values()
    if dataset.grows:
        n_labelled = sum(path.is_file() for path in dataset.list_expected())
        wanted = len(dataset.list_expected())
        return f"dataset {dataset.name} ({n_labelled} of {wanted} labels, {state})"
    size = sum(path.stat().st_size for path in files)
    return f"dataset {dataset.name} ({count(len(files), 'raw file')}, {size / 1e6:.1f} MB, {state})"


def _describe_state(run: Run, stage: str) -> str:
    """Return "exists", "to run", or the variant with which a stage is shared."""
    if not run.has_work(stage):
        return "none"
    artifact = getattr(run, ARTIFACTS[stage])
    if artifact.parent != run.folder:
        return f"as {artifact.parent.name}"
    return "exists" if artifact.exists() else "to run"


COMMANDS = {"validate": validate}
