"""Figure 10 of the paper: efficiency of strong and weak scaling, projected."""

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun

Efficiencies = dict[int, float]
"""Ranks -> efficiency, %."""

_REFERENCE: Final = 4
"""Ranks that efficiencies refer to, as in the paper."""
_LINES: Final = {"pairing": "--", "balanced": "-"}
_PUBLISHED: Final = {
    "strong": {
        8: "strong_8_efficiency",
        16: "strong_16_efficiency",
        32: "strong_32_efficiency",
    },
    "weak": {8: "weak_first", 16: "weak_second", 32: "weak_third"},
}
"""Ids of the paper's numbers by mode and ranks; it does not assign the weak ones to networks."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw efficiency against ranks: a panel for each mode, a line for variant and strategy."""
    curves = _read_efficiencies(experiment)
    if not curves:
        return None
    figure, (row,) = style.make_canvas(1, 2, width=style.PAGE, height=2.6, sharey=True)
    table: Rows = [["mode", "variant", "strategy", "ranks", "efficiency"]]
    for axes, (mode, ids) in zip(row, _PUBLISHED.items(), strict=True):
        mine = {key[1:]: curve for key, curve in curves.items() if key[0] == mode}
        published = read_paper(experiment)
        paper = {n: published[name].value for n, name in ids.items() if name in published}
        _draw_panel(axes, mine, paper)
        axes.set_title("steps of one size" if mode == "strong" else "steps that grow")
        for (variant, strategy), curve in {**mine, ("paper", "pairing"): paper}.items():
            table += [[mode, variant, strategy, n, value] for n, value in curve.items()]
    row[0].set_ylabel(f"efficiency from {_REFERENCE} ranks (%)")
    row[0].set_ylim(0, 110)
    row[0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    style.add_legend_above(figure, row[0])
    return figure, table


def _read_efficiencies(experiment: ExperimentRun) -> dict[tuple[str, str, str], Efficiencies]:
    """Return mode, variant and strategy -> efficiencies, where other rank counts exist, too."""
    curves: dict[tuple[str, str, str], dict[int, Mapping[str, Any]]] = {}
    for run in experiment.runs.values():
        profile = results.read_profile(run) if isinstance(run.options, CHGNetOptions) else None
        for entry in (profile or {}).get("projection", ()):
            if entry["strategy"] in _LINES and entry["ranks"] >= _REFERENCE:
                key = entry["mode"], run.variant, entry["strategy"]
                curves.setdefault(key, {})[entry["ranks"]] = entry
    return {
        key: _compute_efficiencies(entries)
        for key, entries in curves.items()
        if _REFERENCE in entries and len(entries) > 1
    }


def _compute_efficiencies(entries: Mapping[int, Mapping[str, Any]]) -> Efficiencies:
    """Return time per sample and rank at the reference over the same at each number of ranks."""
    times = {n: n * entry["seconds"] / entry["samples"] for n, entry in entries.items()}
    return {n: 100 * times[_REFERENCE] / times[n] for n in sorted(times)}


def _draw_panel(
    axes: Axes, curves: Mapping[tuple[str, str], Efficiencies], paper: Efficiencies
) -> None:
    variants = list(dict.fromkeys(variant for variant, _ in curves))
    for (variant, strategy), curve in curves.items():
        colour = style.choose_colour(variants.index(variant))
        line = _LINES[strategy]
        label = f"{variant}, {strategy} (projected)"
        axes.plot(
            list(curve),
            list(curve.values()),
            line,
            marker="o",
            color=colour,
            label=label,
            markerfacecolor="white",
        )
    axes.plot(list(paper), list(paper.values()), "x", color=style.INK, label="the paper, A100")
    axes.axhline(100, color=style.FAINT, linestyle=":", linewidth=0.8, zorder=0)
    ranks = {n for curve in [*curves.values(), paper] for n in curve}
    style.set_rank_axis(axes, ranks or {_REFERENCE})
