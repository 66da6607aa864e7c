"""Figure 13 of the paper: shares of time in which ranks compute, communicate and wait."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.mace.figures.configurations import (
    CONFIGURATIONS,
    Configuration,
    find_configuration,
    list_trained,
    read_profiles,
)

Profile = dict[str, NDArray[np.float64]]

_PARTS: Final = {
    "compute": (style.COLOURS[0], ""),
    "communication": (style.COLOURS[4], "////"),
    "idle": ("#D0D0D0", "...."),
}
"""Colour and hatch of each part, from below."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw measured seconds of each rank, and projected shares on the most ranks."""
    measured, (most, projected) = _read_measured(experiment), _read_projected(experiment)
    if not measured and not projected:
        return None
    shown = [bool(measured), bool(projected)]
    figure, (row,) = style.make_canvas(1, sum(shown), width=style.PAGE, height=2.6)
    if measured:
        _draw_ranks(row[0], measured)
    if projected:
        _draw_shares(row[-1], projected, most)
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=part)
        for part, (colour, hatch) in _PARTS.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    table: Rows = [["configuration", "status", "ranks", "rank", *_PARTS, "unit"]]
    for c, profile in measured.items():
        ranks = np.stack([profile[part] for part in _PARTS], axis=1)  # (n_ranks, n_parts)
        table += [
            [c.name, "measured", len(ranks), n, *map(float, parts), "s"]
            for n, parts in enumerate(ranks)
        ]
    for c, entry in projected.items():
        parts = [entry[part] for part in _PARTS]
        table.append([c.name, "projected", most, "mean", *parts, "s"])
    return figure, table


def _read_measured(experiment: ExperimentRun) -> dict[Configuration, Profile]:
    """Return the profile of each configuration on the most ranks that were profiled."""
    profiles = [(one, results.read_rank_seconds(one.run)) for one in list_trained(experiment)]
    profiled = [(one, profile) for one, profile in profiles if profile and one.ranks > 1]
    most = max((one.ranks for one, _ in profiled), default=0)
    by_configuration: dict[Configuration, Profile] = {}
    for one, profile in profiled:
        if one.ranks == most:
            by_configuration.setdefault(one.configuration, profile)
    return {c: by_configuration[c] for c in CONFIGURATIONS if c in by_configuration}


def _read_projected(experiment: ExperimentRun) -> tuple[int, dict[Configuration, dict[str, Any]]]:
    """Return the strong scaling of each configuration on the most ranks."""
    entries = [
        (find_configuration(experiment.runs[variant], entry["strategy"]), entry)
        for variant, content in read_profiles(experiment).items()
        for entry in content.get("projection", ())
        if entry["mode"] == "strong"
    ]
    most = max((entry["ranks"] for _, entry in entries), default=0)
    by_configuration: dict[Configuration, dict[str, Any]] = {}
    for configuration, entry in entries:
        if configuration is not None and entry["ranks"] == most:
            by_configuration.setdefault(configuration, entry)
    return most, {c: by_configuration[c] for c in CONFIGURATIONS if c in by_configuration}


def _draw_ranks(axes: Axes, measured: dict[Configuration, Profile]) -> None:
    """Draw a bar for each rank, grouped by configuration."""
    places, names = [], []
    for group, (configuration, profile) in enumerate(measured.items()):
        n_ranks = len(profile["compute"])
        width = 0.8 / n_ranks
        centres = group + width * (np.arange(n_ranks) - (n_ranks - 1) / 2)
        _draw_stack(axes, centres, profile, 0.9 * width)
        places += list(centres)
        names += [str(rank) for rank in range(n_ranks)]
        below: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "top", "fontsize": 7}
        style.annotate(axes, _wrap(configuration), (group, 0), (0, -14), **below)
    axes.set_xticks(places, names)
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel="epoch (s)", title="measured here, by rank")
    axes.set_xlabel(" \n ")  # room for the names of the configurations


def _draw_shares(axes: Axes, projected: dict[Configuration, dict[str, Any]], most: int) -> None:
    whole = [sum(entry[part] for part in _PARTS) for entry in projected.values()]
    shares = {
        part: np.array([100 * e[part] / w for e, w in zip(projected.values(), whole, strict=True)])
        for part in _PARTS
    }
    _draw_stack(axes, np.arange(len(projected)), shares, 0.7)
    for place, compute in enumerate(shares["compute"]):
        axes.annotate(
            f"{compute:.0f} %", (place, compute / 2), ha="center", va="center", color="white"
        )
    axes.set_xticks(range(len(projected)), [_wrap(c) for c in projected])
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel="share of an epoch (%)", ylim=(0, 100), title=f"projected on {most} ranks")


def _wrap(configuration: Configuration) -> str:
    return configuration.name.replace(" ", "\n")


def _draw_stack(axes: Axes, places: NDArray[Any], parts: Profile, width: float) -> None:
    bottom = np.zeros(len(places))
    for part, (colour, hatch) in _PARTS.items():
        axes.bar(places, parts[part], width, bottom, color=colour, hatch=hatch, edgecolor="white")
        bottom = bottom + parts[part]
