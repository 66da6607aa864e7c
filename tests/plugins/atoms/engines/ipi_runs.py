"""Structures in i-PI, which moves them with the forces of a driver."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
from ase import units

from processes import make_environment

TIME = np.sqrt(units._amu / units._me * units.Ha) / units.Bohr
"""ASE's unit of time, Å (Da/eV)^1/2, in atomic units."""

INPUT = """<simulation verbosity='quiet' safe_stride='10000'>
  <output prefix='moved'>
    <properties filename='energies' stride='1'> [ step, potential, pressure_md ] </properties>
  </output>
  <total_steps> {n_steps} </total_steps>
  <ffsocket name='model' mode='unix' pbc='false'>
    <address> {address} </address> <latency> 1e-4 </latency>
  </ffsocket>
  <system>
    <initialize nbeads='1'>
      <cell mode='manual'> {cell} </cell>
      <positions mode='manual'> {positions} </positions>
      <labels mode='manual'> [ {labels} ] </labels>
      <masses mode='manual'> {masses} </masses>
      <velocities mode='manual'> {velocities} </velocities>
    </initialize>
    <forces> <force forcefield='model'/> </forces>
    <ensemble> <temperature units='kelvin'> 60 </temperature> </ensemble>
    <motion mode='dynamics'>
      <dynamics mode='nve'> <timestep> {timestep} </timestep> </dynamics>
    </motion>
  </system>
</simulation>
"""


def show(values):
    """Return numbers as i-PI reads them, to the last digit."""
    return "[" + ", ".join(map(repr, np.ravel(values).tolist())) + "]"


def write_input(atoms, address, steps, timestep):
    """Return what i-PI reads, in atomic units: dynamics at constant energy.

    Args:
        atoms: With velocities, and a cell as i-PI wants it, a lower triangle.
        address: Name of a socket.
        steps: Their number.
        timestep: fs.
    """
    return INPUT.format(
        n_steps=steps,
        address=address,
        cell=show(atoms.cell[:].T / units.Bohr),
        positions=show(atoms.positions / units.Bohr),
        labels=", ".join(atoms.symbols),
        masses=show(atoms.get_masses() * units._amu / units._me),
        velocities=show(atoms.get_velocities() / units.Bohr / TIME),
        timestep=timestep * units.fs * TIME,
    )


@contextmanager
def run_ipi(atoms, folder, steps, timestep):
    """Start i-PI; yield the address that it listens at, and wait for its end."""
    name = f"pipeline-{uuid4().hex[:12]}"
    (folder / "input.xml").write_text(write_input(atoms, name, steps, timestep))
    program = Path(sys.executable).with_name("i-pi")
    with subprocess.Popen(
        [sys.executable, program, "input.xml"], cwd=folder, env=make_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            yield f"unix:{name}"
            said, _ = process.communicate(timeout=60)
            assert process.returncode == 0, said
        finally:
            process.kill()


def read_energies(folder):
    """Return the potential energies that i-PI has written, eV."""
    return np.loadtxt(folder / "moved.energies")[:, 1] * units.Ha


def read_pressures(folder):
    """Return the pressures that i-PI has written, with that of the velocities, eV/Å³."""
    return np.loadtxt(folder / "moved.energies")[:, 2] * units.Ha / units.Bohr**3
