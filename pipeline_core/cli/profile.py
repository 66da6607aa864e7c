"""`pipeline-core profile`: how long training steps take, and how much memory."""

from __future__ import annotations

import time
from dataclasses import replace

import typer

from pipeline_core.cli import options
from pipeline_core.cli.output import format_summary
from pipeline_core.observers.records import write_record


def profile(
    experiment: options.Experiment,
    variant: options.Variant = options.BASE,
    device: options.Device = "auto",
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Measure time and memory of training steps of a trained model; project epochs on many ranks.

    What is measured stands in the section `profile` of the experiment.
    """
    from pipeline_core.profiling.study import profile_run

    begin = time.perf_counter()
    run = replace(options.project(workflows, results).run(experiment, variant), device=device)
    summary = profile_run(run)
    write_record(run.folder, "profile", time.perf_counter() - begin, summary)
    if summary:
        typer.echo(format_summary(summary))


COMMANDS = {"profile": profile}
