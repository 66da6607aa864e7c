"""Uncertainty of forces in dynamics of a committee."""

import numpy as np
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]


def draw_dynamics(experiment: ExperimentRun) -> Drawn:
    """Draw the widest interval of a force against time, a panel per run of dynamics."""
    runs = [(v, *one) for v, run in experiment.runs.items() for one in _read_dynamics(run)]
    if not runs:
        return None
    figure, axes = style.make_canvas(len(runs), 1, width=style.PAGE, height=2.1)
    table: Rows = [["run", "variant", "time_fs", "force_uncertainty_eV_per_A", "flagged"]]
    for (panel,), (variant, name, time, half, limit) in zip(axes, runs, strict=True):
        flagged = half > limit
        panel.plot(time / 1000, half, linewidth=0.8)
        panel.plot(time[flagged] / 1000, half[flagged], "o", markersize=3, color=style.COLOURS[1])
        panel.axhline(limit, color=style.FAINT, linestyle=":", zorder=0)
        text = f"{flagged.sum():,} of {len(half):,} frames flagged"
        panel.set_title(f"{name.replace('_', ' ')}: {text}")
        panel.set_ylabel("widest ± of a force (eV/Å)")
        panel.set_ylim(0, None)
        rows = zip(time.tolist(), half.tolist(), flagged.tolist(), strict=True)
        table += [[name, variant, *row] for row in rows]
    axes[-1][0].set_xlabel("time (ps)")
    return figure, table


def _read_dynamics(run: Run) -> list[tuple[str, Floats, Floats, float]]:
    with results.open_inference(run) as file:
        groups = {n: group for n, group in (file or {}).items() if "force_uncertainty" in group}
        return [
            (n, g["time"][:], g["force_uncertainty"][:], float(g.attrs["flag_above_eV_per_A"]))
            for n, g in groups.items()
        ]


def list_warnings(experiment: ExperimentRun) -> list[str]:
    """List dynamics with flagged frames, or stopped for the uncertainty of their forces."""
    lines = []
    for run in experiment.runs.values():
        with results.open_inference(run) as file:
            for name, group in (file or {}).items():
                facts = group.attrs
                if facts.get("flagged_frames", 0):
                    lines.append(
                        f"Dynamics {name!r}: in {facts['flagged_frames']} of {facts['frames']} "
                        "frames the committee does not know the forces, the first at "
                        f"{facts['first_flagged_fs']:g} fs (above "
                        f"{facts['flag_above_eV_per_A']:.3g} eV/Å)."
                    )
                if "stopped_at_step" in facts:
                    lines.append(
                        f"Dynamics {name!r} was stopped at step {facts['stopped_at_step']}, "
                        "as the committee does not know the forces."
                    )
    return lines
