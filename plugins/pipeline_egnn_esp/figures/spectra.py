"""Bands and density of states of a predicted Hamiltonian, beside those of the data."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_egnn_esp.inference import SCHEMA
from pipeline_egnn_esp.options import ESPEvaluateOptions

Floats = NDArray[np.float64]
Part = dict[str, Any]

_LOOKS: Final[dict[str, Part]] = {
    "reference": {"color": style.INK, "linestyle": "-", "linewidth": 1.0, "label": "data"},
    "predicted": {"color": style.COLOURS[1], "linestyle": "--", "linewidth": 0.8, "label": "model"},
}
_AROUND: Final = 7.0
"""Energy range shown below the highest occupied and above the lowest empty level, eV."""


@dataclass(frozen=True)
class Spectra:
    """Bands, density of states and occupation of one structure.

    Attributes:
        name: Name of the structure.
        bands: k, x, ticks, labels, and levels by kind; empty if there are none.
        density: energy, and states by kind; likewise.
        n_occupied: Number of occupied levels; None if unknown.
    """

    name: str
    bands: Part
    density: Part
    n_occupied: int | None

    @property
    def window(self) -> tuple[float, float] | None:
        """The energies around the gap that are shown, eV; None for all."""
        if not self.bands or self.n_occupied is None:
            return None
        levels: Floats = self.bands["reference" if "reference" in self.bands else "predicted"]
        below, above = levels[:, : self.n_occupied], levels[:, self.n_occupied :]
        if not below.size or not above.size:
            return None
        return float(below.max()) - _AROUND, float(above.min()) + _AROUND


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the bands, and on their right the density of states, of the first structure with any."""
    spectra = _read_first(experiment)
    if spectra is None:
        return None
    widths = [w for w, part in ((2.2, spectra.bands), (1.0, spectra.density)) if part]
    figure, (row,) = style.make_canvas(
        1, len(widths), width=style.PAGE, height=3.0, width_ratios=widths, sharey=True
    )
    table: Rows = [["structure", "quantity", "x", "predicted", "reference"]]
    if spectra.bands:
        table += [[spectra.name, "band_eV", *cells] for cells in _draw_bands(row[0], spectra.bands)]
    if spectra.density:
        cells = _draw_density(row[-1], spectra.density, spectra.window)
        table += [[spectra.name, "states_per_eV", *one] for one in cells]
    row[0].set_ylabel("energy (eV)")
    if spectra.window is not None:
        row[0].set_ylim(spectra.window)
    style.add_legend_above(figure, row[-1])
    return figure, table


def _read_first(experiment: ExperimentRun) -> Spectra | None:
    for run in experiment.runs.values():
        with results.open_inference(run, SCHEMA) as file:
            for name, group in (file or {}).items():
                bands, density = (_read(group, part) for part in ("bands", "density"))
                if bands or density:
                    numbers = group["atomic_numbers"][()].tolist()
                    return Spectra(name, bands, density, _count_occupied(run, numbers))
    return None


def _read(group: Any, part: str) -> Part:
    if part not in group:
        return {}
    arrays = {name: data[()] for name, data in group[part].items()}
    return arrays | {"labels": list(group[part].attrs.get("labels", []))}


def _count_occupied(run: Run, numbers: list[int]) -> int | None:
    electrons = run.get_section("evaluate", ESPEvaluateOptions).electrons
    symbols = [chemical_symbols[number] for number in numbers]
    if not set(symbols) <= electrons.keys():
        return None
    return sum(electrons[symbol] for symbol in symbols) // 2


def _draw_bands(axes: Axes, bands: Part) -> Rows:
    x, predicted, other = bands["x"], bands["predicted"], bands.get("reference")
    jumps = np.flatnonzero(np.diff(x) <= 0) + 1  # where the path jumps
    for which, looks in _LOOKS.items():
        if which in bands:
            lines = np.insert(bands[which], jumps, np.nan, axis=0)
            drawn = axes.plot(np.insert(x, jumps, x[jumps]), lines, **{**looks, "label": None})
            drawn[0].set_label(looks["label"])
    ticks = _name_ticks(bands)
    for place in ticks:
        axes.axvline(place, color=style.FAINT, linewidth=0.5, zorder=0)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0)
    axes.set(xlim=(x[0], x[-1]), title="bands")
    return [
        [float(x[k]), float(e), None if other is None else float(other[k, n])]
        for n in range(predicted.shape[1])
        for k, e in enumerate(predicted[:, n])
    ]


def _name_ticks(bands: Part) -> dict[float, str]:
    """Return names of special points by their place; two points at one place are joined."""
    names: dict[float, str] = {}
    for place, label in zip(bands["ticks"].tolist(), bands["labels"], strict=True):
        text = label.decode() if isinstance(label, bytes) else label
        name = "Γ" if text == "G" else text
        names[place] = f"{names[place]}|{name}" if place in names else name
    return names


def _draw_density(axes: Axes, density: Part, window: tuple[float, float] | None) -> Rows:
    energy = density["energy"]
    for which, looks in _LOOKS.items():
        if which in density:
            axes.plot(density[which], energy, **looks)
    low, high = window or (energy[0], energy[-1])
    shown = (energy >= low) & (energy <= high)
    most = max(density[which][shown].max() for which in _LOOKS if which in density)
    axes.set(title="density of states", xlabel="states per eV and cell", xlim=(0, 1.05 * most))
    other = density.get("reference")
    reference = [None] * len(energy) if other is None else other.tolist()
    columns = energy.tolist(), density["predicted"].tolist(), reference
    return [list(cells) for cells in zip(*columns, strict=True)]
