"""Figure 8, c: distributions of errors by shell of distance and by pair of orbitals."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_egnn_esp.data.basis import LETTERS
from pipeline_egnn_esp.figures.elements import Elements, read_elements

Floats = NDArray[np.float64]

_SHELL: Final = 1.0
"""Width of a shell of distance, Å."""
_SHOWN: Final = (2.5, 97.5)
"""Percentiles between which a violin is drawn, as in the paper."""
_BINS: Final = 40
_COLOURS: Final = {"of atoms": style.COLOURS[1], "of pairs": style.COLOURS[0]}


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw a violin for each group of elements, with its mean."""
    panels = experiment.extract("violins", lambda: _make_panels(read_elements(experiment)))
    if panels is None:
        return None
    widths = [max(4, len(groups)) for groups in panels.values()]
    figure, (row,) = style.make_canvas(
        1, 2, width=style.PAGE, height=2.7, width_ratios=widths, sharey=True
    )
    table: Rows = [["by", "group", "of", "elements", "mean_meV", "median_meV"]]
    for axes, (label, groups) in zip(row, panels.items(), strict=True):
        _draw_violins(axes, groups)
        axes.set_xlabel(label)
        for one in groups:
            facts = [label.split()[0], one["name"], one["kind"], one["count"]]
            table.append([*facts, one["mean"], one["median"]])
    row[0].set(ylabel="error (meV)", yscale="log")
    for kind, colour in _COLOURS.items():
        row[0].fill_between([], [], color=colour, alpha=0.5, label=f"elements {kind}")
    row[0].plot([], [], color=style.INK, linewidth=1, label="mean")
    style.add_legend_above(figure, row[0])
    return figure, table


Groups = Mapping[tuple[str, str], Floats]
"""Errors, meV, by name and kind of a group."""
Violin = dict[str, Any]
"""Name and kind of a group, its numbers in the table, and its width over the magnitude."""


def _make_panels(held_out: Elements | None) -> dict[str, list[Violin]] | None:
    """Return the violins of each panel by the label of its axis; None without elements."""
    if held_out is None:
        return None
    panels = {
        "distance (Å)": _group_by_distance(held_out),
        "orbitals": _group_by_orbitals(held_out),
    }
    return {
        label: [
            {"name": name, "kind": kind, **_make_violin(errors)}
            for (name, kind), errors in groups.items()
        ]
        for label, groups in panels.items()
    }


def _group_by_distance(held_out: Elements) -> Groups:
    error, off = 1e3 * held_out.error, ~held_out.on_site
    groups = {("0", "of atoms"): error[held_out.on_site]}
    shells = (held_out.distance // _SHELL).astype(int)
    for shell in np.unique(shells[off]).tolist():
        name = f"{shell * _SHELL:g}–{(shell + 1) * _SHELL:g}"
        groups[name, "of pairs"] = error[off & (shells == shell)]
    return groups


def _group_by_orbitals(held_out: Elements) -> Groups:
    error, groups = 1e3 * held_out.error, {}
    for kind, chosen in (("of atoms", held_out.on_site), ("of pairs", ~held_out.on_site)):
        for first, second in np.unique(held_out.pair[chosen], axis=0).tolist():
            mine = chosen & (held_out.pair == (first, second)).all(axis=1)
            groups[f"{LETTERS[first]}{LETTERS[second]}", kind] = error[mine]
    return groups


def _make_violin(errors: Floats) -> Violin:
    """Return the smoothed histogram of magnitudes over logarithmic bins, with mean and median."""
    facts = {"mean": float(errors.mean()), "median": float(np.median(errors))}
    violin: Violin = {"count": len(errors), **facts, "middles": None, "half": None}
    positive = errors[errors > 0]
    if len(positive):
        low, high = np.percentile(positive, _SHOWN)
        edges = np.geomspace(low, max(high, 1.01 * low), _BINS + 1)
        counts, _ = np.histogram(positive, edges)
        smooth = np.convolve(np.pad(counts, 2, mode="edge"), np.ones(5) / 5, mode="valid")
        violin |= {"middles": np.sqrt(edges[1:] * edges[:-1])}
        violin |= {"half": 0.42 * smooth / smooth.max()}
    return violin


def _draw_violins(axes: Axes, groups: Sequence[Violin]) -> None:
    for place, one in enumerate(groups):
        if one["half"] is not None:
            ends, colour = (place - one["half"], place + one["half"]), _COLOURS[one["kind"]]
            axes.fill_betweenx(one["middles"], *ends, color=colour, alpha=0.5, linewidth=0)
            mean = [one["mean"]] * 2
            axes.plot([place - 0.3, place + 0.3], mean, color=style.INK, linewidth=1)
    names = [one["name"] for one in groups]
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    if max(map(len, names)) > 3:
        axes.tick_params(axis="x", labelrotation=60)
