"""`pipeline-core report`: one page of all experiments."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline_core.cli import options

Names = Annotated[
    list[str] | None, typer.Argument(help="Experiments as plugin/name; all with figures if none.")
]
Output = Annotated[Path | None, typer.Option(help="The page; RESULTS/report.html by default.")]


def write(
    experiments: Names = None,
    output: Output = None,
    results: options.Results = options.RESULTS,
) -> None:
    """Put the figures and numbers of all experiments onto one page, for any browser."""
    from pipeline_core.report.collect import find_figures, write_report

    drawn = find_figures(results)
    for name in experiments or []:
        if name not in drawn:
            raise ValueError(
                f"{results / name / 'figures'}: no such folder; draw it: "
                f"pipeline-core figures --experiment {name}"
            )
    if not drawn:
        raise ValueError(f"{results}: no figures of any experiment; run snakemake")
    path = output or results / "report.html"
    write_report(path, {name: drawn[name] for name in experiments or drawn})
    typer.echo(path)


COMMANDS = {"report": write}
