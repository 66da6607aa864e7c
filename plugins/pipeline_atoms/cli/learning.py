"""`pipeline-core pick` and `label`: the steps of a round of active learning."""

from typing import Annotated

import typer

from pipeline_core.cli import options
from pipeline_core.status.output import format_summary

Number = Annotated[int, typer.Option(help="Number of the pick, from 0.")]
Threads = Annotated[int, typer.Option(min=1, help="Cores for the labelling program.")]


def pick(
    experiment: options.Experiment,
    variant: options.Variant,
    device: options.Device = "auto",
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Explore with the models of the round before, and pick structures to be labelled."""
    from pipeline_atoms.active_learning.exploration import pick_structures
    from pipeline_core.distributed.ranks import connect_ranks

    loaded = options.load_project(workflows, results).load_experiment(experiment)
    with connect_ranks(device, loaded.run(variant).state) as ranks:
        typer.echo(format_summary(pick_structures(loaded, variant, str(ranks.device))))


def label(
    experiment: options.Experiment,
    variant: options.Variant,
    number: Number,
    threads: Threads = 1,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Label a pick of a round; an existing label is kept."""
    from pipeline_atoms.active_learning.labels import label_pick

    run = options.load_project(workflows, results).run(experiment, variant)
    typer.echo(format_summary(label_pick(run, number, threads)))


COMMANDS = {"pick": pick, "label": label}
