"""Figures of relaxed structures, equations of state, elastic constants, and defects."""

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline_atoms.figures.properties import Property, make_rows, name_panel, read_properties
from pipeline_core.figures import Drawn, style
from pipeline_core.project.run import ExperimentRun

_LINE: Final = 0.28
"""Height of a structure in a list, inches."""
_EDGES: Final = 0.9
"""Height of axis and legend, inches."""
_MARKS: Final = ("o", "s", "^")
_STRESSES: Final = ("xx", "yy", "zz", "yz", "xz", "xy")


def draw_relaxation(experiment: ExperimentRun) -> Drawn:
    """Draw the change of cells and the energy gained by relaxation, a line per structure."""
    found = read_properties(experiment, "relax")
    if not found:
        return None
    figure, ((left, right),) = _make_list(found, 2)
    for number, one in enumerate(found):
        changes = _measure_cell(one) if "volume_per_atom_A3" in one.summary else []
        for place, (name, change) in enumerate(changes):
            colour = style.choose_colour(place)
            label = name if number == 0 else None
            left.plot(change, number, _MARKS[place % 3], color=colour, markersize=4, label=label)
    gained = [1000 * one.summary["energy_gained_per_atom_eV"] for one in found]
    right.barh(range(len(found)), gained, height=0.5)
    left.axvline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    left.set_xlabel("change by relaxation (%)")
    right.set_xlabel("energy gained (meV/atom)")
    style.add_legend_above(figure, left)
    return figure, make_rows(found)


def _measure_cell(one: Property) -> list[tuple[str, float]]:
    """Return the changes of lengths and volume, %."""
    before, after = one.arrays["cell_before"], one.arrays["cell"]
    lengths = np.linalg.norm(after, axis=1) / np.linalg.norm(before, axis=1)
    ratios = [*lengths.tolist(), float(abs(np.linalg.det(after) / np.linalg.det(before)))]
    return [(n, 100 * (r - 1)) for n, r in zip(("a", "b", "c", "volume"), ratios, strict=True)]


def draw_equations(experiment: ExperimentRun) -> Drawn:
    """Draw energy against volume; phases of one composition share a panel."""
    found = read_properties(experiment, "eos")
    if not found:
        return None
    panels: dict[tuple[str, str, str], list[Property]] = {}
    for one in found:
        panels.setdefault((one.entry, one.summary["formula"], one.variant), []).append(one)
    figure, axes = style.make_grid(len(panels), height=2.5)
    for panel, (key, members) in zip(axes, panels.items(), strict=True):
        lowest = min(one.arrays["curve_energies"].min() for one in members)
        for number, one in enumerate(members):
            colour = style.choose_colour(number)
            energies, curve = (
                1000 * (one.arrays[n] - lowest) for n in ("energies", "curve_energies")
            )
            modulus = one.summary["bulk_modulus_GPa"]
            label = f"{one.label}: {modulus:.4g} GPa"
            panel.plot(one.arrays["volumes"], energies, "o", color=colour, markersize=3)
            panel.plot(one.arrays["curve_volumes"], curve, color=colour, label=label)
        several = len({one.variant for one in found}) > 1
        panel.set_title(f"{key[1]}, {key[2]}" if several else key[1])
        panel.set(xlabel="volume (Å³/atom)", ylabel="energy (meV/atom)")
        style.add_legend_with_room(panel)
    return figure, make_rows(found)


def draw_elasticity(experiment: ExperimentRun) -> Drawn:
    """Draw matrices of elastic constants, with their numbers."""
    found = read_properties(experiment, "elastic")
    if not found:
        return None
    figure, axes = style.make_grid(len(found), height=2.5)
    for panel, one in zip(axes, found, strict=True):
        constants = one.arrays["constants"]
        largest = float(np.abs(constants).max())
        panel.imshow(constants, cmap="RdBu", vmin=-1.6 * largest, vmax=1.6 * largest)
        for (row, column), value in np.ndenumerate(constants):
            text = f"{value:.0f}".replace("-", "−") if abs(value) > largest / 1000 else "·"
            panel.text(column, row, text, ha="center", va="center", fontsize=6)
        panel.set_xticks(range(6), _STRESSES)
        panel.set_yticks(range(6), _STRESSES)
        panel.set_title(name_panel(one, found))
    return figure, make_rows(found)


def draw_vacancies(experiment: ExperimentRun) -> Drawn:
    """Draw formation energies of vacancies, before and after their atoms relax."""
    found = read_properties(experiment, "vacancies")
    keys = {"unrelaxed": "unrelaxed_energy_eV", "relaxed": "formation_energy_eV"}
    return _draw_energies(found, keys, "formation energy (eV)")


def draw_surfaces(experiment: ExperimentRun) -> Drawn:
    """Draw energies of surfaces, before and after their atoms relax."""
    found = read_properties(experiment, "surfaces")
    keys = {"unrelaxed": "unrelaxed_energy_J_per_m2", "relaxed": "surface_energy_J_per_m2"}
    return _draw_energies(found, keys, "surface energy (J/m²)")


def _draw_energies(found: list[Property], keys: dict[str, str], label: str) -> Drawn:
    """Draw numbers from summaries, a line per structure; `keys` maps labels to their keys."""
    if not found:
        return None
    figure, ((panel,),) = _make_list(found, 1)
    for place, (name, key) in enumerate(keys.items()):
        pairs = [(one.summary[key], n) for n, one in enumerate(found) if key in one.summary]
        if pairs:
            values, places = zip(*pairs, strict=True)
            colour = style.choose_colour(place)
            panel.plot(values, places, "so"[place], color=colour, markersize=4, label=name)
    panel.set_xlabel(label)
    style.add_legend_above(figure, panel)
    return figure, make_rows(found)


def _make_list(found: list[Property], n_columns: int) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with a line for each structure, from top to bottom."""
    height = _EDGES + _LINE * len(found)
    width = style.PAGE if n_columns > 1 else style.COLUMN
    figure, axes = style.make_canvas(1, n_columns, width=width, height=height, sharey=True)
    axes[0][0].set_yticks(range(len(found)), [name_panel(one, found) for one in found])
    axes[0][0].set_ylim(len(found) - 0.5, -0.5)
    return figure, axes
