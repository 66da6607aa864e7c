"""Self-diffusion in molecular dynamics: mean square displacements and coefficients."""

from collections.abc import Iterator
from typing import Final

from pipeline_atoms.figures.dynamics import Trajectory, draw_band, read_trajectories
from pipeline_core.figures import Drawn, style, tabulate
from pipeline_core.figures.findings import Table
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun

_KEYS: Final = ("m2_per_s", "error_m2_per_s", "exponent", "displacement_A")


def draw_diffusion(experiment: ExperimentRun) -> Drawn:
    """Draw mean square displacements of each element, a panel per run of dynamics."""
    runs = _list_runs(experiment)
    if not runs:
        return None
    figure, panels = style.make_grid(len(runs), height=2.4)
    several = len({run.variant for run in runs}) > 1
    for panel, run in zip(panels, runs, strict=True):
        lags = run.diffusion["lag"]
        for number, element in enumerate(_list_elements(run)):
            values, colour = run.diffusion[element], style.choose_colour(number)
            label = f"{element}: {_describe(run, element)}"
            panel.plot(lags, values, color=colour, label=label)
            draw_band(panel, lags, values, run.diffusion[f"{element}_error"], colour)
        title = run.name.replace("_", " ")
        panel.set_title(f"{title}: {run.variant}" if several else title)
        panel.set(xlabel="time between two frames (ps)", ylabel="mean square displacement (Å²)")
        panel.set(xlim=(0, None), ylim=(0, None))
        style.add_legend_with_room(panel)
    names = ("D_m2_per_s", "D_error_m2_per_s", "exponent", "displacement_A")
    return figure, tabulate(
        {"run": run.name, "variant": run.variant, "element": element}
        | dict(zip(names, _read_numbers(run, element), strict=True))
        for run in runs
        for element in _list_elements(run)
    )


def tabulate_diffusion(experiment: ExperimentRun) -> list[Table]:
    """Tabulate the coefficients for the report; no table without dynamics long enough."""
    runs = _list_runs(experiment)
    rows = [
        [
            run.name.replace("_", " "),
            run.variant,
            element,
            f"{run.summary['temperature_mean_K']:.0f}",
            _format(value, error),
            format_number(exponent, 2),
            format_number(moved),
        ]
        for run in runs
        for element in _list_elements(run)
        for value, error, exponent, moved in [_read_numbers(run, element)]
    ]
    if not rows:
        return []
    header = ["Run", "Variant", "Element", "T (K)", "D (m²/s)", "α", "Displacement (Å)"]
    note = (
        "Standard errors over blocks of the second half of a run, displacements over all of it. "
        "Mean square displacements grow as the power α of time, 1 where atoms diffuse. Atoms that "
        "vibrate about their places have no D."
    )
    return [Table(title="Diffusion", header=header, rows=rows, note=note)]


def _list_runs(experiment: ExperimentRun) -> list[Trajectory]:
    runs = [run for members in read_trajectories(experiment).values() for run in members]
    return [run for run in runs if run.diffusion]


def _list_elements(run: Trajectory) -> Iterator[str]:
    return (name for name in run.diffusion if name.isalpha() and name != "lag")


def _read_numbers(run: Trajectory, element: str) -> list[float | None]:
    """Read the numbers that `_KEYS` name; None for atoms that only vibrate."""
    return [run.summary.get(f"diffusion_{element}_{key}") for key in _KEYS]


def _describe(run: Trajectory, element: str) -> str:
    value, error, _, moved = _read_numbers(run, element)
    if value is None:
        return f"no diffusion, {format_number(moved)} Å in all"
    return f"D = {_format(value, error)} m²/s"


def _format(value: float | None, error: float | None) -> str:
    """Format a number and its error with a common power of ten."""
    if value is None or error is None:
        return "–"
    power = int(f"{max(abs(value), error):e}".split("e")[1]) if value or error else 0
    scale = 10.0**-power
    text = f"({scale * value:.2f} ± {scale * error:.2f})e{power:+03d}"
    return text.replace("-", "−")
