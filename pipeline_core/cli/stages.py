"""One command per stage: the work of the workflow's rules, by hand."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from pipeline_core.cli import options
from pipeline_core.distributed.launch import start_ranks
from pipeline_core.distributed.world import find_world
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.status.output import format_summary
from pipeline_core.system.memory import keep_freed_memory

logger = logging.getLogger(__name__)

HELP = {
    "graph": "Build the structure of samples that the model needs, such as neighbour graphs.",
    "partition": "Share the work between ranks.",
    "evaluate": "Compare predictions with labels of held-out samples.",
    "infer": "Use the trained model: molecular dynamics or what its plugin offers.",
    "profile": "Measure time and memory of training steps; project epochs on many ranks.",
}


def import_data(
    dataset: Annotated[
        str | None, typer.Option(help="Name of a dataset: datasets/NAME.yaml.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Plugin/name, for the data of a round of `learn`.")
    ] = None,
    variant: options.Variant = options.BASE,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Import raw files: samples, splits and reference energies."""
    project = options.load_project(workflows, results)
    if (dataset is None) == (experiment is None):
        raise ValueError("name either --dataset or --experiment")
    run = (
        project.load_dataset(dataset) if dataset else project.run(str(experiment), variant).dataset
    )
    if run is None:
        raise ValueError(f"{experiment} has no dataset")
    _run("data", run, run.options.plugin)


def draw_figures(
    experiment: options.Experiment,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Draw from workflows/evidence, not from results.")
    ] = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Draw all variants of an experiment and put the paper's numbers beside ours."""
    project = options.load_project(workflows, results)
    if evidence:
        from pipeline_core.figures.evidence import load_evidence

        run = load_evidence(experiment, project)
    else:
        run = project.load_experiment(experiment)
    _run("draw", run, run.model_info.name)


def train(
    experiment: options.Experiment,
    variant: options.Variant = options.BASE,
    ranks: options.Ranks = 1,
    device: options.Device = "auto",
    finish: Annotated[
        bool, typer.Option(help="Take no further step: write the best model of the saved state.")
    ] = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Train, resuming an earlier call; on many ranks by --ranks, srun, mpiexec or torchrun."""
    if ranks > 1 and find_world().size == 1:
        start_ranks(ranks)
    run = options.load_project(workflows, results).run(experiment, variant)
    if finish and not (run.state / "last.pt").exists():
        raise ValueError(f"{run.state / 'last.pt'}: no such file, so nothing can be finished")
    keep_freed_memory()
    _run("train", replace(run, device=device, is_finished=finish), run.model_info.name)


def infer(
    experiment: options.Experiment,
    variant: options.Variant = options.BASE,
    ranks: options.Ranks = 1,
    device: options.Device = "auto",
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Use the trained model; on many ranks, which divide structures, by --ranks or a launcher."""
    if ranks > 1 and find_world().size == 1:
        start_ranks(ranks)
    run = options.load_project(workflows, results).run(experiment, variant)
    _run("infer", replace(run, device=device), run.model_info.name)


def _make_command(stage: str) -> Callable[..., None]:
    def run_stage(
        experiment: options.Experiment,
        variant: options.Variant = options.BASE,
        device: options.Device = "auto",
        workflows: options.Workflows = options.WORKFLOWS,
        results: options.Results = options.RESULTS,
    ) -> None:
        run = options.load_project(workflows, results).run(experiment, variant)
        _run(stage, replace(run, device=device), run.model_info.name)

    run_stage.__doc__ = HELP[stage]
    return run_stage


def _run(hook: str, run: DatasetRun | Run | ExperimentRun, plugin: str | None) -> None:
    summary = run.registry.select_hook(hook, plugin)(run=run)
    if find_world().rank == 0 and summary:
        _show(summary)


def _show(summary: Mapping[str, Any]) -> None:
    try:
        typer.echo(format_summary(summary))
    except OSError as error:  # the stage has succeeded
        logger.warning("the summary cannot be written (%s)", error.strerror or error)


COMMANDS = {
    "data": import_data,
    "graph": _make_command("graph"),
    "partition": _make_command("partition"),
    "train": train,
    "evaluate": _make_command("evaluate"),
    "infer": infer,
    "profile": _make_command("profile"),
    "figures": draw_figures,
}
