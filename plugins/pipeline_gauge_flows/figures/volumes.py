"""Effective sample size as a function of the volume."""

from typing import Final

import numpy as np
from matplotlib.ticker import NullLocator

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures import runs

_SMALL: Final = 0.1
"""Effective sample size below which the axis is logarithmic."""
_SIGMAS: Final = 2.0
"""Half width of the band of the law, in standard errors of ESS(V0)."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw ESS on all lattices, and ESS(V0)^(V/V0)."""
    evaluated = [one for one in runs.list_evaluated(experiment) if len(one.flow["volume_law"]) > 1]
    if not evaluated:
        return None
    figure, ((axes,),) = style.make_canvas(height=2.6)
    table: Rows = [["variant", "lattice", "volume", "ess", "error", "expected", "sigmas"]]
    names: dict[float, str] = {}
    for number, one in enumerate(evaluated):
        law = one.flow["volume_law"]
        names |= {entry["volume"]: runs.format_extents(entry) for entry in law}
        first, volumes = law[0], np.array([entry["volume"] for entry in law])
        x = np.geomspace(volumes.min(), volumes.max(), 100)
        shift = 1.012 ** (number - (len(evaluated) - 1) / 2)
        ess, error = first["ess"]["value"], first["ess"]["error"] or 0.0
        low, high = (max(ess + s * error, 1e-12) for s in (-_SIGMAS, _SIGMAS))
        powers = x / first["volume"]
        axes.fill_between(x, low**powers, min(high, 1.0) ** powers, color=one.colour, alpha=0.12)
        axes.plot(x, ess**powers, color=one.colour, linewidth=0.8)
        values, errors = ([entry["ess"][key] or 0.0 for entry in law] for key in ("value", "error"))
        axes.errorbar(volumes * shift, values, errors, fmt="o", color=one.colour, capsize=2)
        for entry in law:
            where = [one.run.variant, runs.format_extents(entry), entry["volume"]]
            expected = entry["expected"]["value"]
            table.append([*where, *entry["ess"].values(), expected, entry["sigmas"]])
    axes.set(xscale="log", ylabel="effective sample size", xlabel="lattice")
    least = min(float(row[3]) for row in table[1:])  # type: ignore[arg-type]
    axes.set_xticks(list(names), list(names.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    if least < _SMALL:
        axes.set_yscale("log")
        style.set_log_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, 1)
    for group in runs.group_runs(experiment):
        if group.colour in {one.colour for one in evaluated}:
            axes.plot([], [], "o-", color=group.colour, label=group.name)
    style.add_legend_above(figure, axes)
    return figure, table
