"""The coordinates of a surface as functions of the positions of atoms."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Internal:
    """An internal coordinate.

    Attributes:
        kind: Distance, angle, cosine of the angle, or dihedral angle.
        atoms: Numbers of its 2, 3, 3 or 4 atoms; the vertex of an angle stands in the middle.
    """

    kind: Literal["distance", "angle", "cosine", "dihedral"]
    atoms: tuple[int, ...]


@dataclass(frozen=True)
class NormalModes:
    """Rectilinear, dimensionless normal coordinates q: positions = reference + Σ q displacement.

    Attributes:
        displacements: Displacements of all atoms for q = 1, (d, n_atoms, 3) Å.
        frequencies: Harmonic frequencies, (d,) cm⁻¹; the kinetic energy is Σ ħω (dq/dτ)²/2.
    """

    displacements: tuple[tuple[tuple[float, float, float], ...], ...]
    frequencies: tuple[float, ...]


@dataclass(frozen=True)
class Molecule:
    """Atoms whose internal coordinates are the variables of a surface.

    Attributes:
        symbols: Chemical symbol of each atom.
        masses: (n_atoms,) atomic mass units.
        reference: Positions of a minimum, (n_atoms, 3) Å.
        variables: Internal coordinates, one per variable in the surface's order, or normal modes.
    """

    symbols: tuple[str, ...]
    masses: tuple[float, ...]
    reference: tuple[tuple[float, float, float], ...]
    variables: tuple[Internal, ...] | NormalModes

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` is the inverse."""
        content = asdict(self)
        kind = "modes" if isinstance(self.variables, NormalModes) else "internal"
        content[kind] = content.pop("variables")
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the molecule from the output of `to_dict`."""
        if "modes" in content:
            modes = content["modes"]
            variables: Any = NormalModes(
                freeze(modes["displacements"]), tuple(modes["frequencies"])
            )
        else:
            internal = content["internal"]
            variables = tuple(Internal(one["kind"], tuple(one["atoms"])) for one in internal)
        return cls(
            tuple(content["symbols"]),
            tuple(content["masses"]),
            freeze(content["reference"]),
            variables,
        )


def freeze(nested: Any) -> Any:
    """Return nested lists of numbers as nested tuples."""
    return tuple(map(freeze, nested)) if isinstance(nested, list | tuple) else float(nested)
