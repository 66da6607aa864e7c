"""Figure 8, d and e: a repeated cell and its predicted Hamiltonian."""

from typing import Any, Final

import h5py
import numpy as np
from ase.data import atomic_numbers as number_of
from ase.data import chemical_symbols, covalent_radii
from ase.data.colors import jmol_colors
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from pipeline_core.artifacts.extracts import shorten
from pipeline_core.figures import Drawn, results, style, tabulate
from pipeline_core.project.run import ExperimentRun
from pipeline_egnn_esp.inference import SCHEMA
from pipeline_papers.egnn_esp.figures import pictures

Floats = NDArray[np.float64]

_DECADES: Final = 7
"""Decades below the largest element that the colours cover."""
_DEPTH: Final = 6.0
"""Depth below the faces of the box to which atoms are drawn, Å."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the largest structure that has a picture."""
    content = experiment.extract("picture", lambda: _read_largest(experiment))
    if content is None:
        return None
    figure, ((left, right),) = style.make_canvas(1, 2, width=style.PAGE, height=3.2)
    figure.set_dpi(pictures.RASTER_DPI)
    _draw_structure(left, content)
    n_orbitals = content["orbitals"]
    elements = np.maximum(content["elements"], content["elements"].T)
    left.set_title(f"{len(content['positions']):,} atoms, {content['edges']:,} edges")
    largest = float(elements.max())
    image = right.imshow(
        np.ma.masked_equal(elements, 0),
        norm=LogNorm(largest / 10**_DECADES, largest),
        cmap="viridis",
        extent=(0, n_orbitals, n_orbitals, 0),
        interpolation="nearest",
    )
    right.set(title=f"predicted H, {n_orbitals:,} orbitals", xlabel="orbital", ylabel="orbital")
    figure.colorbar(image, ax=right, label="largest magnitude (eV)", shrink=0.85, pad=0.02)
    facts = {
        "structure": content["name"],
        "atoms": len(content["positions"]),
        **{name: content[name] for name in ("edges", "orbitals", "ranks")},
        "pixels_not_zero": float((elements > 0).mean()),
    }
    return figure, tabulate([facts])


def _read_largest(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Return the picture with the most orbitals of the first run that has one."""
    for run in experiment.runs.values():
        with results.open_inference(run, SCHEMA) as file:
            there = {name: group for name, group in (file or {}).items() if "picture" in group}
            if there:
                name = max(there, key=lambda one: there[one]["picture"].attrs["orbitals"])
                return {"name": name, **_read(there[name])}
    return None


def _read(group: h5py.Group) -> dict[str, Any]:
    picture = group["picture"]
    counts = {name: int(group.attrs[name]) for name in ("edges", "ranks")}
    return {
        **{name: picture[name][()] for name in picture},
        "positions": shorten(picture["positions"][()]),
        # The picture is symmetric, and the third digit does not change visible colours.
        "elements": shorten(np.triu(picture["elements"][()]), 2),
        **counts,
        "orbitals": int(picture.attrs["orbitals"]),
    }


def _draw_structure(axes: Axes, content: dict[str, Any]) -> None:
    numbers = content["atomic_numbers"]
    points, cell = pictures.wrap_into_box(content["positions"], content["cell"], content["pbc"])
    shown = pictures.find_near_faces(points, cell, _DEPTH)
    diameters = 1.6 * covalent_radii[numbers[shown]]
    pictures.draw_atoms(axes, points[shown], jmol_colors[numbers[shown]], diameters)
    pictures.draw_box(axes, cell)
    axes.legend(
        handles=[
            _make_key(symbol) for symbol in dict.fromkeys(chemical_symbols[z] for z in numbers)
        ],
        loc="lower center",
        ncols=4,
        bbox_to_anchor=(0.5, -0.08),
    )


def _make_key(symbol: str) -> Line2D:
    colour = jmol_colors[number_of[symbol]]
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 5, "markeredgewidth": 0}
    return Line2D([], [], color=colour, label=symbol, **look)
