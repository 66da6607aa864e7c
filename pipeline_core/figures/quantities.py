"""Names, units and scales of predicted quantities in figures."""

from dataclasses import dataclass
from typing import Final

from pipeline_core.units import GPA


@dataclass(frozen=True)
class Quantity:
    """A quantity as figures show it.

    Attributes:
        name: Name in the metrics.
        title: Name for readers.
        unit: Unit of values.
        factor: Factor from the engine's unit to `unit`.
        error_unit: Unit of errors, so that they are numbers like 23 rather than 0.023.
        error_factor: Factor from the engine's unit to `error_unit`.
    """

    name: str
    title: str
    unit: str
    factor: float
    error_unit: str
    error_factor: float


_QUANTITIES: Final = (
    Quantity("energy", "energy", "eV", 1, "meV", 1000),
    Quantity("energy_per_atom", "energy", "eV/atom", 1, "meV/atom", 1000),
    Quantity("forces", "force", "eV/Å", 1, "meV/Å", 1000),
    Quantity("stress", "stress", "GPa", 1 / GPA, "GPa", 1 / GPA),
    Quantity("magmoms", "magnetic moment", "µB", 1, "mµB", 1000),
)
_BY_NAME: Final = {quantity.name: quantity for quantity in _QUANTITIES}


def find_quantity(name: str, unit: str = "1") -> Quantity:
    """Return a quantity as figures show it; an unlisted one keeps its name and `unit`."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    shown = "" if unit == "1" else unit
    return Quantity(name, name.replace("_", " "), shown, 1, shown, 1)


def add_unit(text: str, unit: str) -> str:
    """Return a label for an axis, such as "force (eV/Å)"."""
    return f"{text} ({unit})" if unit else text
