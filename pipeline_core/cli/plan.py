"""`pipeline-core plan`: prediction of the cost of a training on more ranks."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_core.cli import options
from pipeline_core.project.run import Run
from pipeline_core.status.output import align

Name = Annotated[str, typer.Argument(help="An experiment as plugin/name.")]
Ranks = Annotated[int, typer.Option(min=1, help="Largest number of ranks; smaller ones as well.")]
Nodes = Annotated[int, typer.Option(min=1, help="Machines like this one.")]


def plan(
    experiment: Name,
    ranks: Ranks = 4,
    nodes: Nodes = 1,
    variant: options.Variant = options.BASE,
    device: options.Device = "auto",
    as_json: options.Json = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Predict time, memory, efficiency and cost of a training on 1, 2, 4, ... ranks.

    Some steps are measured here; data, graph and partition must exist.
    """
    from pipeline_core.profiling.planning import plan_training

    load = partial(load_run, workflows, results, experiment, variant, device)
    content = plan_training(load, list_ranks(ranks), nodes)
    typer.echo(json.dumps(content) if as_json else format_plan(content))


def list_ranks(most: int) -> list[int]:
    """Return powers of two below a number, and the number itself."""
    return [2**k for k in range(most.bit_length()) if 2**k < most] + [most]


def load_run(
    workflows: Path,
    results: Path,
    experiment: str,
    variant: str,
    device: str,
) -> Run:
    """Return the run of a plan."""
    run = options.load_project(workflows, results).run(experiment, variant)
    return replace(run, device=device)


def format_plan(content: Mapping[str, Any]) -> str:
    """Return a plan as a table of 80 columns, with a note on its measured parts."""
    unit = content["units"]
    cost = f"{unit[:-1]} h"
    head = ("ranks", "nodes", "step", "epoch", "speedup", "balance", "network", "memory", cost)
    rows = [
        (
            str(one["ranks"]),
            str(one["nodes"]),
            format_seconds(one["step_s"]),
            format_seconds(one["epoch_s"]),
            f"{one['speedup']:.2f}",
            f"{one['balance']:.2f}",
            f"{one['communication']:.2f}",
            "unknown" if one["memory"] is None else f"{one['memory'] / 1e9:.2f} GB",
            f"{one['unit_hours']:.3g}",
        )
        for one in content["ranks"]
    ]
    lines = [
        f"{content['experiment']} {content['variant']}",
        f"{_describe_length(content)} of {content['ranks'][0]['steps']} steps, "
        f"{content['units_per_node']} {unit} a machine",
        "",
        align([head, *rows]),
        "",
        _describe_measured(content),
        *(
            f"network {where}: {1e6 * one['alpha']:.3g} us, {one['bandwidth'] / 1e9:.3g} GB/s, "
            f"{one['source']}"
            for where, one in content["networks"].items()
        ),
        "projected: all else; balance x network is the efficiency",
        f"{cost}: of all epochs, without validation",
    ]
    return "\n".join(lines)


def _describe_length(content: Mapping[str, Any]) -> str:
    """Return the length of a planned training: in epochs, in minutes, or both limits."""
    epochs, minutes = content["epochs"], content.get("minutes")
    parts = [] if epochs is None else [f"{epochs} epochs"]
    parts += [] if minutes is None else [f"{minutes:g} minutes, epochs"]
    return " or ".join(parts)


def _describe_measured(content: Mapping[str, Any]) -> str:
    """Return a note on the measured parts of a plan."""
    if "measured" not in content:
        return "measured here: steps of own shares, the ranks of a machine at once, and memory"
    sizes = ", ".join(str(part["own"]) for part in content["measured"])
    return f"measured here: steps of parts of {sizes} own atoms, each alone"


def format_seconds(seconds: float) -> str:
    """Return a time with three digits in a suitable unit."""
    sizes = (("h", 7200.0, 3600.0), ("min", 120.0, 60.0), ("s", 1.0, 1.0), ("ms", 0.0, 1e-3))
    unit, size = next((unit, size) for unit, least, size in sizes if seconds >= least)
    return f"{seconds / size:.3g} {unit}"


COMMANDS = {"plan": plan}
