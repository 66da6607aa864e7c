"""All arrays that travel between stages, each with its name, shape, unit and kind.

The *kind* of an array is the meaning of its rows. Arrays of the kind `sample` (a structure, a
point of a surface, a lattice configuration) have one row per sample; all other kinds are ragged: a
sample owns a varying number of rows, and the arrays of all samples are concatenated. A field that
holds row numbers of another kind names that kind in `indexes`, so that batching can shift them
without special cases.

Index convention, everywhere: an edge is (receiver, sender); its vector points from receiver to
sender. A floating-point label that is NaN is missing; the data stage refuses NaN in raw files, so
NaN has no other meaning.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

_TABLE: Final = """
X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se
Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy
Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf
Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
"""
SYMBOLS: Final = tuple(_TABLE.split())
"""Chemical symbols by atomic number; X stands for no element."""

Kind = Literal["sample", "atom", "edge", "bond", "angle", "block", "entry"]
RAGGED: Final[tuple[Kind, ...]] = ("atom", "edge", "bond", "angle", "block", "entry")


@dataclass(frozen=True, slots=True)
class Field:
    """One named array.

    Attributes:
        name: Key in stores and batches.
        shape: Shape of one row; an empty tuple for a scalar.
        unit: Unit inside the engine; "1" for a pure number.
        kind: Meaning of a row.
        dtype: NumPy type on disk.
        indexes: The kind of the rows that the values number, or None.
        exact: True if batches keep it in double precision whatever the model computes in: for total
            energies and positions, whose small differences matter.
        label: True if the value is a target that may be missing (NaN).
        doc: One sentence of description.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    kind: Kind
    dtype: str
    doc: str
    indexes: Kind | None = None
    label: bool = False
    exact: bool = False


_ALL: Final = (
    Field(
        "cell",
        (3, 3),
        "Å",
        "sample",
        "f8",
        "Rows are the lattice vectors; zero if not periodic.",
        exact=True,
    ),
    Field("pbc", (3,), "1", "sample", "bool", "Whether each lattice vector is periodic."),
    Field("energy", (), "eV", "sample", "f8", "Total energy.", label=True, exact=True),
    Field("stress", (3, 3), "eV/Å³", "sample", "f8", "(1/V) dE/dε; tension positive.", label=True),
    Field("group", (), "1", "sample", "str", "Name of the group that a split may keep together."),
    Field("head", (), "1", "sample", "i4", "Which of the heads of the model the sample is for."),
    Field("split", (), "1", "sample", "i1", "Split of the sample: its place in `SPLITS`."),
    Field("source", (), "1", "sample", "str", "File and frame that the sample was read from."),
    Field("atomic_numbers", (), "1", "atom", "i4", "Atomic number Z."),
    Field("positions", (3,), "Å", "atom", "f8", "Cartesian coordinates, not wrapped.", exact=True),
    Field("forces", (3,), "eV/Å", "atom", "f8", "Minus the gradient of the energy.", label=True),
    Field("magmoms", (), "µB", "atom", "f8", "Size of the site's magnetic moment.", label=True),
    Field(
        "edge_index",
        (2,),
        "1",
        "edge",
        "i4",
        "(receiver, sender) atoms of a neighbour pair.",
        "atom",
    ),
    Field("edge_shift", (3,), "1", "edge", "i2", "Cell image of the sender, in lattice vectors."),
    Field(
        "edge_bond",
        (),
        "1",
        "edge",
        "i4",
        "The undirected bond that a directed edge belongs to.",
        "bond",
    ),
    Field("bond_edge", (), "1", "bond", "i4", "The directed edge that represents a bond.", "edge"),
    Field(
        "angle_edges",
        (2,),
        "1",
        "angle",
        "i4",
        "Two edges with one receiver; all ordered pairs.",
        "edge",
    ),
)

SPLITS: Final = ("train", "val", "test")
"""Names of the splits; the field `split` holds their places in this tuple: 0, 1, 2."""

FIELDS: Final[dict[str, Field]] = {field.name: field for field in _ALL}


def find_field(name: str) -> Field:
    """Return the field called `name`.

    Raises:
        ValueError: There is no such field.
    """
    if name not in FIELDS:
        raise ValueError(
            f"unknown field {name!r}; the fields are {', '.join(FIELDS)}, and a plugin describes "
            "one of its own by a Field"
        )
    return FIELDS[name]


def store_rows(field: Field, rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows of a field in its type on disk.

    Raises:
        ValueError: A whole number does not fit into it.
    """
    if field.dtype == "str" or rows.dtype == (dtype := np.dtype(field.dtype)):
        return rows
    if dtype.kind in "iu" and rows.dtype.kind in "iu" and rows.size:
        limits, least, most = np.iinfo(dtype), int(rows.min()), int(rows.max())
        if least < limits.min or most > limits.max:
            cure = "wrap the positions into the cell" if "shift" in field.name else "divide it"
            raise ValueError(
                f"{field.name} would be {least if least < limits.min else most}, and numbers from "
                f"{limits.min} to {limits.max} can be stored; {cure}"
            )
    return rows.astype(dtype)
