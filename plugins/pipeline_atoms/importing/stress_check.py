"""Consistency of forces and stress with the energies, by finite strain between frames.

Along a straight path from one frame to another with the same atoms, in the lattice vectors h (rows)
and the fractional coordinates s of a periodic structure, the energy changes by

    dE = V σ : (h⁻¹ dh) − Σ_atoms F · (ds h),    σ = (1/V) ∂E/∂ε

(V volume, σ stress with tension positive, F forces, x = s h positions; the first term is the work
of the strain, the second the work of atoms moving inside the cell; O. H. Nielsen and R. M. Martin,
Phys. Rev. B 32, 3780 (1985)). From dE at both ends, the trapezoid rule gives E_b − E_a up to the
third order of the change. Stress from vibration appears up to twice too small, since frames differ
by as much as they vibrate. Frames of equal cells test the forces, frames of different cells the
stress, and frames without a cell the forces, with x in place of s h; `agreement` evaluates the
pairs.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.importing.agreement import FEWEST_PAIRS, Agreement, measure_agreement
from pipeline_atoms.importing.sources import RawSource

Sample = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]

_LARGEST_STRAIN: Final = 0.03
_SMALLEST_STRAIN: Final = 1e-4
_LARGEST_MOVE: Final = 0.2  # Å
_STILL: Final = 1e-6  # Å; atoms that move less do no work
_KEPT_CELLS: Final = 4  # of each set of atoms, for pairs with the next frame
_KEPT_ATOMS: Final = 200_000


class WorkCheck:
    """Comparison of energy differences with work, over pairs of frames.

    Memory is bounded: for each set of atoms the latest frames of a few cells are kept, and for
    pairs only a few numbers.

    Args:
        n_pairs: Largest number of pairs for each label, drawn evenly from all usable ones.
    """

    def __init__(self, n_pairs: int) -> None:
        self._reservoirs = {name: _Reservoir(n_pairs) for name in ("forces", "stress")}
        self._families: OrderedDict[bytes, OrderedDict[bytes, Sample]] = OrderedDict()
        self._n_atoms = 0

    def add(self, sample: Sample) -> None:
        """Pair a sample in the engine's units with earlier ones, and keep it for later ones."""
        pbc = sample["pbc"]
        if pbc.any() != pbc.all() or not np.isfinite(sample.get("energy", np.nan)):
            return  # the meaning of the cell of a slab or wire is unknown
        atoms, cell = sample["atomic_numbers"].tobytes(), b""
        if pbc.all():
            cell = sample["cell"].tobytes()
        family = self._families.setdefault(atoms, OrderedDict())
        self._families.move_to_end(atoms)
        for other_cell, other in family.items():
            tested = "forces" if other_cell == cell else "stress"
            if tested in sample and self._reservoirs[tested].draw_place():
                self._reservoirs[tested].offer(_compare_pair(other, sample))
        self._keep(family, cell, sample)

    def _keep(self, family: OrderedDict[bytes, Sample], cell: bytes, sample: Sample) -> None:
        n_atoms = len(sample["atomic_numbers"])
        self._n_atoms += n_atoms * (cell not in family)
        family[cell] = sample
        family.move_to_end(cell)
        if len(family) > _KEPT_CELLS:
            family.popitem(last=False)
            self._n_atoms -= n_atoms
        while self._n_atoms > _KEPT_ATOMS and len(self._families) > 1:
            _, oldest = self._families.popitem(last=False)
            self._n_atoms -= sum(len(kept["atomic_numbers"]) for kept in oldest.values())

    def measure_agreements(self) -> dict[str, Agreement]:
        """Return the agreement of the forces and of the stress with the energies."""
        forces, stress = (r.get_pairs() for r in self._reservoirs.values())
        return {
            "forces": measure_agreement(forces[:, 0], forces[:, 1]),
            "stress": measure_agreement(stress[:, 0] - stress[:, 1], stress[:, 2]),
        }


def explain_unchecked_stress(agreement: Agreement, source: RawSource) -> str:
    """Return a warning that a stress is unchecked, and the frames that would check it.

    Args:
        agreement: Agreement of stress and energies, undetermined for want of pairs of frames.
        source: Source of the stress.
    """
    units = source.units
    return (
        f"stress of {source.options.path}: its sign and unit could not be checked against the "
        f"energies (pairs of strained frames: {agreement.pairs}, needed: {FEWEST_PAIRS}); it is "
        f"taken to be in {units.stress} with positive {units.stress_sign}. Frames of one set of "
        f"atoms would tell whose cells differ by a strain of {_SMALLEST_STRAIN:g} to "
        f"{_LARGEST_STRAIN:g} and whose atoms move by less than {_LARGEST_MOVE:g} Å, such as a "
        "few single points of one frame with its cell strained by 1 %"
    )


def explain_unchecked_forces(agreement: Agreement, source: RawSource) -> str:
    """Return a warning that forces are unchecked, and the frames that would check them.

    Args:
        agreement: Agreement of forces and energies, undetermined for want of pairs of frames.
        source: Source of the forces.
    """
    return (
        f"forces of {source.options.path}: their unit could not be checked against the energies "
        f"(pairs of nearly equal frames: {agreement.pairs}, needed: {FEWEST_PAIRS}); they are "
        f"taken to be in {source.units.force}. Frames of one set of atoms in one cell would tell "
        f"whose atoms move by less than {_LARGEST_MOVE:g} Å, such as a few steps of a trajectory"
    )


class _Reservoir:
    """Reservoir sample of a stream of pairs (Vitter's algorithm R, drawn before the work)."""

    def __init__(self, size: int) -> None:
        self._pairs: list[Floats] = []
        self._size, self._seen, self._place = size, 0, 0
        self._rng = np.random.default_rng(0)

    def draw_place(self) -> bool:
        """Draw if the next pair is taken."""
        if len(self._pairs) < self._size:
            self._place = len(self._pairs)
            return True
        self._seen += 1
        self._place = int(self._rng.integers(self._size + self._seen))
        return self._place < self._size

    def offer(self, pair: Floats | None) -> None:
        """Take the drawn pair; None if its frames do not form a pair."""
        if pair is not None:
            self._pairs[self._place : self._place + 1] = [pair]

    def get_pairs(self) -> Floats:
        """Return the sampled pairs, (n_pairs, 3)."""
        return np.array(self._pairs).reshape(-1, 3)


def _compare_pair(a: Sample, b: Sample) -> Floats | None:
    """Return energy difference, work of forces and work of stress from a to b, eV/atom, (3,).

    None if the frames are too different for the trapezoid rule, or lack a label.
    """
    if not a["pbc"].any():
        return _compare_molecules(a, b)
    difference = b["cell"] - a["cell"]
    to_fractional = np.linalg.inv(a["cell"]), np.linalg.inv(b["cell"])
    strain = np.abs(to_fractional[0] @ difference).max()
    if strain > _LARGEST_STRAIN or 0 < strain < _SMALLEST_STRAIN:
        return None
    move = b["positions"] @ to_fractional[1] - a["positions"] @ to_fractional[0]  # (n_atoms, 3)
    move -= move[0]  # moving all atoms alike takes no work, but may cross a face of the cell
    move -= np.round(move)
    move -= move.mean(axis=0)
    distance = np.linalg.norm(move @ a["cell"], axis=1).max()
    if distance > _LARGEST_MOVE:
        return None
    of_forces = of_stress = 0.0
    for frame, inverse in zip((a, b), to_fractional, strict=True):
        if distance > _STILL:
            of_forces -= 0.5 * float(np.sum(_read_label(frame, "forces") * (move @ frame["cell"])))
        if strain > 0:
            rate = inverse @ difference
            volume = abs(float(np.linalg.det(frame["cell"])))
            rate = (rate + rate.T) / 2
            of_stress += 0.5 * volume * float(np.sum(_read_label(frame, "stress") * rate))
    works = np.array([b["energy"] - a["energy"], of_forces, of_stress]) / len(move)
    return works if np.isfinite(works).all() else None


def _compare_molecules(a: Sample, b: Sample) -> Floats | None:
    """Compare two frames without a cell, like `_compare_pair`; the work of a stress is zero."""
    move = b["positions"] - a["positions"]  # (n_atoms, 3)
    move -= move.mean(axis=0)  # all atoms alike: no work
    distance = np.linalg.norm(move, axis=1).max()
    if not _STILL < distance <= _LARGEST_MOVE:
        return None
    forces = _read_label(a, "forces") + _read_label(b, "forces")
    works = np.array([b["energy"] - a["energy"], -0.5 * float(np.sum(forces * move)), 0.0])
    return works / len(move) if np.isfinite(works).all() else None


def _read_label(sample: Sample, name: str) -> Floats:
    return sample.get(name, np.array(np.nan))
