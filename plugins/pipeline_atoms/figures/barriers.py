"""Energies along paths between two minima."""

from pipeline_atoms.figures.properties import make_rows, name_panel, read_properties
from pipeline_core.figures import Drawn, style
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun


def draw_barriers(experiment: ExperimentRun) -> Drawn:
    """Draw energies along paths, a panel per path."""
    found = read_properties(experiment, "neb")
    if not found:
        return None
    figure, axes = style.make_grid(len(found), height=2.5)
    for panel, one in zip(axes, found, strict=True):
        arrays, barrier = one.arrays, one.summary["barrier_eV"]
        panel.plot(arrays["curve_path"], arrays["curve_energies"])
        panel.plot(arrays["path"], arrays["energies"], "o", color=style.COLOURS[0])
        panel.axhline(barrier, color=style.FAINT, linestyle=":", zorder=0)
        value = f"{format_number(barrier)} eV" if one.summary["converged"] else "not converged"
        panel.set_title(f"{name_panel(one, found)}: {value}")
        panel.set(xlabel="path (Å)", ylabel="energy (eV)")
    return figure, make_rows(found)
