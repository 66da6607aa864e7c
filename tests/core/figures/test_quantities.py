"""How numbers are written for readers."""

import ase.units
import pytest

from pipeline_core.figures.quantities import add_unit, find_quantity


def test_units_of_figures_agree_with_ase():
    assert find_quantity("stress").factor * ase.units.GPa == pytest.approx(1, rel=1e-6)
    assert find_quantity("forces").error_factor == 1000
    assert find_quantity("energy_per_atom").error_unit == "meV/atom"
    shown_as = find_quantity("order_parameter", "Hz")  # of a plugin
    assert (shown_as.title, shown_as.unit, shown_as.factor) == ("order parameter", "Hz", 1)
    assert add_unit("ratio", find_quantity("ratio").unit) == "ratio"
