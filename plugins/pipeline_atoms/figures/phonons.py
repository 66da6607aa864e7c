"""Figures of phonons: bands, density of states, thermodynamics."""

import numpy as np
from matplotlib.axes import Axes

from pipeline_atoms.figures.properties import Property, make_rows, name_panel, read_properties
from pipeline_core.figures import Drawn, style
from pipeline_core.project.run import ExperimentRun


def draw_phonons(experiment: ExperimentRun) -> Drawn:
    """Draw bands, density of states and thermodynamic functions, a row per structure."""
    found = read_properties(experiment, "phonons")
    if not found:
        return None
    figure, axes = style.make_canvas(
        len(found), 3, width=style.PAGE, height=2.3, width_ratios=(4, 1, 2)
    )
    for (bands, density, thermal), one in zip(axes, found, strict=True):
        _draw_bands(bands, one)
        bands.set_title(name_panel(one, found))
        density.fill_betweenx(one.arrays["dos_frequencies"], one.arrays["dos"], alpha=0.3)
        density.plot(one.arrays["dos"], one.arrays["dos_frequencies"], linewidth=0.8)
        density.set(ylim=bands.get_ylim(), xlim=(0, None), xticks=[], yticklabels=[])
        density.set_xlabel("DOS")
        for number, (key, name) in enumerate(
            (("heat_capacity", "heat capacity"), ("entropy", "entropy"))
        ):
            colour = style.choose_colour(number)
            thermal.plot(one.arrays["temperatures"], one.arrays[key], color=colour, label=name)
        thermal.axhline(3, color=style.FAINT, linestyle=":", linewidth=0.6, zorder=0)
        thermal.set(xlabel="temperature (K)", ylabel="k/atom", ylim=(0, None))
        thermal.legend(loc="lower right")
    return figure, make_rows(found)


def _draw_bands(panel: Axes, one: Property) -> None:
    distances, frequencies = one.arrays["band_distances"], one.arrays["band_frequencies"]
    ends = np.cumsum(one.arrays["stretch_lengths"])
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        panel.plot(
            distances[start:end], frequencies[start:end], color=style.COLOURS[0], linewidth=0.8
        )
    low, high = min(0.0, float(frequencies.min())), float(frequencies.max())
    panel.set(xlim=(distances[0], distances[-1]), ylim=(1.05 * low, 1.05 * high))
    if one.summary["imaginary"]:
        panel.axhspan(1.05 * low, 0, color=style.COLOURS[1], alpha=0.12, linewidth=0)
        panel.text(0.01, 0.02, "imaginary", transform=panel.transAxes, color=style.COLOURS[1])
    panel.axhline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    places, names = _name_places(one)
    panel.set_xticks(places, names)
    for place in places:
        panel.axvline(place, color=style.FAINT, linewidth=0.4, zorder=0)
    panel.set_ylabel("frequency (THz)")


def _name_places(one: Property) -> tuple[list[float], list[str]]:
    """Return positions and labels of named points on the path; coinciding points share a label."""
    places: dict[float, list[str]] = {}
    ends = np.cumsum(one.arrays["stretch_lengths"])
    starts = (0, *ends[:-1])
    for start, end, names in zip(starts, ends, one.arrays["stretch_ends"], strict=True):
        for index, name in zip((start, end - 1), names, strict=True):
            at = places.setdefault(round(float(one.arrays["band_distances"][index]), 9), [])
            shown = "Γ" if name == "G" else str(name)
            if shown not in at:
                at.append(shown)
    return list(places), ["|".join(names) for names in places.values()]
