"""`pipeline-core plan-structure`: projected time and memory of a large structure on more ranks."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pipeline_core.cli import options
from pipeline_core.cli.plan import Name, Ranks, format_seconds, list_ranks, load_run
from pipeline_core.status.output import align

Atoms = Annotated[int, typer.Option(min=1, help="Atoms of the structure.")]


def plan_structure(
    experiment: Name,
    atoms: Atoms,
    ranks: Ranks = 1024,
    variant: options.Variant = options.BASE,
    device: options.Device = "auto",
    as_json: options.Json = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Project time and memory of an MD step of a large structure divided over 1, 2, 4, ... ranks.

    Parts of a crystal from the data are measured on this machine; the data stage must have run.
    """
    from pipeline_atoms.profiling.large_structures import plan_structure as plan_parts

    run = load_run(workflows, results, experiment, variant, device)
    content = plan_parts(run, atoms, list_ranks(ranks))
    typer.echo(json.dumps(content) if as_json else format_structure_plan(content))


def format_structure_plan(content: Mapping[str, Any]) -> str:
    """Format the plan of a structure as a table of 80 columns, and list what was measured."""
    head = ("ranks", "own atoms", "halo", "step", "speedup", "efficiency", "memory")
    rows = [
        (
            str(one["ranks"]),
            str(one["own"]),
            str(one["halo"]),
            format_seconds(one["step_s"]),
            f"{one['speedup']:.{0 if one['speedup'] >= 100 else 1}f}",
            f"{one['efficiency']:.2f}",
            "unknown" if one["memory"] is None else f"{one['memory'] / 1e9:.3g} GB",
        )
        for one in content["ranks"]
    ]
    sizes = ", ".join(str(part["own"]) for part in content["parts"])
    network, device = content["network"], "GPU" if content["device"] == "cuda" else "cores"
    has = "a GPU" if device == "GPU" else f"{content['threads']} cores"
    return "\n".join(
        [
            f"{content['experiment']} {content['variant']}: dynamics of {content['atoms']} atoms",
            "",
            align([head, *rows]),
            "",
            f"measured here: parts of {sizes} atoms on {has}, {content['precision']}",
            f"network: {1e6 * network['alpha']:.3g} us, {network['bandwidth'] / 1e9:.3g} GB/s, "
            f"{network['source']}",
            f"projected: all else, for ranks of {has} each; parts are cubes",
            "memory: what a step adds; time of the integrator on rank 0 is not counted",
        ]
    )


COMMANDS = {"plan-structure": plan_structure}
