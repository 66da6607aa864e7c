"""Figures of molecular dynamics: conserved energy, temperature, radial distribution functions."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style, tabulate
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]

_ENSEMBLES: Final = {
    "nve": "NVE",
    "nvt_langevin": "NVT (Langevin)",
    "nvt_nose_hoover": "NVT (Nosé–Hoover)",
    "npt": "NPT",
}
_COLUMNS: Final = (
    "ensemble",
    "n_atoms",
    "steps",
    "timestep_fs",
    "drift_meV_per_atom_per_ps",
    "fluctuation_meV_per_atom",
    "target_temperature_K",
    "temperature_mean_K",
    "temperature_std_K",
    "max_force_eV_per_A",
    "seconds_per_step",
)
"""Keys of a summary in the table of the runs."""


@dataclass(frozen=True)
class Trajectory:
    """One molecular-dynamics run of one variant.

    Attributes:
        name: Name of the run in the experiment.
        variant: Variant of its model.
        time: (n_frames,) ps.
        conserved: (n_frames,) conserved energy since the start, meV/atom.
        temperature: (n_frames,) K.
        rdf: "r" -> (n_bins,) Å and pair of elements -> (n_bins,); empty if not periodic.
        rdf_error: Pair of elements -> standard errors (n_bins,); empty if frames are too few.
        diffusion: "lag" -> (n_lags,) ps, element and element_error -> mean square displacement and
            its standard error (n_lags,), Å²; empty if the run is too short.
        summary: Its summary from inference.
    """

    name: str
    variant: str
    time: Floats
    conserved: Floats
    temperature: Floats
    rdf: dict[str, Floats]
    rdf_error: dict[str, Floats]
    diffusion: dict[str, Floats]
    summary: dict[str, Any]


def read_trajectories(experiment: ExperimentRun) -> dict[str, list[Trajectory]]:
    """Read all molecular-dynamics runs of all variants, by their names."""
    by_name: dict[str, list[Trajectory]] = {}
    for run in experiment.runs.values():
        for trajectory in read_run(run):
            by_name.setdefault(trajectory.name, []).append(trajectory)
    return by_name


def read_run(run: Run) -> list[Trajectory]:
    """Read all molecular-dynamics runs of one variant."""
    with results.open_inference(run) as file:
        groups = [(name, group) for name, group in (file or {}).items() if "conserved" in group]
        return [_read_trajectory(name, run.label, group) for name, group in groups]


def _read_trajectory(name: str, variant: str, group: Any) -> Trajectory:
    conserved = group["conserved"][:]
    return Trajectory(
        name=name,
        variant=variant,
        time=group["time"][:] / 1000,
        conserved=1000 * (conserved - conserved[0]) / len(group["atomic_numbers"]),
        temperature=group["temperature"][:],
        rdf=_read_arrays(group, "rdf"),
        rdf_error=_read_arrays(group, "rdf_error"),
        diffusion=_read_arrays(group, "diffusion"),
        summary={k: v.item() if isinstance(v, np.generic) else v for k, v in group.attrs.items()},
    )


def _read_arrays(group: Any, name: str) -> dict[str, Floats]:
    return {key: data[:] for key, data in group.get(name, {}).items()}


def draw_conservation(experiment: ExperimentRun) -> Drawn:
    """Draw conserved energy and temperature against time, a row per molecular-dynamics run."""
    runs = read_trajectories(experiment)
    if not runs:
        return None
    figure, axes = style.make_canvas(len(runs), 2, width=style.PAGE, height=2.1)
    for (left, right), members in zip(axes, runs.values(), strict=True):
        first, facts = members[0], members[0].summary
        title = f"{first.name.replace('_', ' ')}: {name_ensemble(first)}, {facts['n_atoms']} atoms"
        left.set_title(title)
        for number, run in enumerate(members):
            name = f"{run.variant}: " if len(members) > 1 else ""
            _draw_conserved(left, run, name, style.choose_colour(number))
            right.plot(run.time, run.temperature, color=style.choose_colour(number), linewidth=0.8)
        left.set_ylabel("conserved energy (meV/atom)")
        right.set_ylabel("temperature (K)")
        if facts["ensemble"] != "nve":
            target = facts["target_temperature_K"]
            right.axhline(target, color=style.FAINT, linestyle=":", zorder=0)
        style.add_legend_with_room(left)
    for axis in axes[-1]:
        axis.set_xlabel("time (ps)")
    return figure, tabulate(
        {"run": run.name, "variant": run.variant} | {c: run.summary.get(c) for c in _COLUMNS}
        for members in runs.values()
        for run in members
    )


def name_ensemble(run: Trajectory) -> str:
    """Return the name of the ensemble for readers."""
    return _ENSEMBLES.get(run.summary["ensemble"], str(run.summary["ensemble"]))


def _draw_conserved(axes: Axes, run: Trajectory, name: str, colour: str) -> None:
    drift = run.summary.get("drift_meV_per_atom_per_ps")
    text = f"{name}{format_number(drift, 2)} meV/atom/ps"
    axes.plot(run.time, run.conserved, color=colour, linewidth=0.8, alpha=0.8, label=text)
    if drift is not None:
        middle = run.conserved.mean() + drift * (run.time - run.time.mean())
        axes.plot(run.time, middle, color=colour, linestyle="--", linewidth=0.8)


def draw_rdf(experiment: ExperimentRun) -> Drawn:
    """Draw the radial distribution functions, a row for each run, a column for each pair."""
    runs = {
        name: [r for r in members if r.rdf]
        for name, members in read_trajectories(experiment).items()
    }
    runs = {name: members for name, members in runs.items() if members}
    if not runs:
        return None
    pairs = list(dict.fromkeys(p for members in runs.values() for p in members[0].rdf if p != "r"))
    n_columns = min(len(pairs), 3)
    rows = [
        (name, pairs[i : i + n_columns]) for name in runs for i in range(0, len(pairs), n_columns)
    ]
    width = style.PAGE if n_columns > 1 else style.COLUMN
    figure, axes = style.make_canvas(len(rows), n_columns, width=width, height=1.9)
    table: Rows = [["run", "variant", "pair", "r_A", "g", "g_error"]]
    for row, (name, members) in zip(axes, rows, strict=True):
        for panel in row[len(members) :]:
            panel.set_axis_off()
        for panel, pair in zip(row, members, strict=False):
            table += _draw_rdf_panel(panel, pair, runs[name])
        row[0].set_ylabel("g(r)")
        if len(runs) > 1:
            row[0].set_title(f"{name.replace('_', ' ')}: {row[0].get_title(loc='left')}")
    for panel in axes[-1]:
        panel.set_xlabel("distance r (Å)")
    style.add_legend_above(figure, axes[0][0])
    return figure, table


def _draw_rdf_panel(axes: Axes, pair: str, members: list[Trajectory]) -> Rows:
    rows: Rows = []
    axes.axhline(1, color=style.FAINT, linewidth=0.6, linestyle=":", zorder=0)
    for number, run in enumerate(members):
        if pair in run.rdf:
            colour, g, radii = style.choose_colour(number), run.rdf[pair], run.rdf["r"]
            axes.plot(radii, g, color=colour, label=run.variant)
            error = run.rdf_error.get(pair)
            if error is not None:
                draw_band(axes, radii, g, error, colour)
            errors = [None] * len(g) if error is None else error.tolist()
            rows += [
                [run.name, run.variant, pair, *point]
                for point in zip(radii.tolist(), g.tolist(), errors, strict=True)
            ]
    axes.set_title(pair.replace("-", "–"))
    axes.set(xlim=(0, float(members[0].rdf["r"].max())), ylim=(0, None))
    return rows


def draw_band(axes: Axes, x: Floats, y: Floats, error: Floats, colour: str) -> None:
    """Draw a band of two standard errors to either side, about 95 %."""
    axes.fill_between(x, y - 2 * error, y + 2 * error, color=colour, alpha=0.25, linewidth=0)
