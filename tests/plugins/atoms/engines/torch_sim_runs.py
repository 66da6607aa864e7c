"""Structures in torch-sim, and dynamics there."""

import numpy as np
import torch
import torch_sim
from ase import units


def make_state(structures):
    """Return structures as one state, in double precision."""
    return torch_sim.io.atoms_to_state(structures, torch.device("cpu"), torch.float64)


def list_energies(model, structures, steps, timestep):
    """Return the potential energies of dynamics at constant energy, (steps + 1, n_systems) eV.

    torch-sim's units are those of LAMMPS' style `metal`, with its time in Å (Da/eV)^1/2 as ASE's.
    """
    state = make_state(structures)
    momenta = torch.tensor(np.concatenate([atoms.get_momenta() for atoms in structures]))
    dt, kT = torch.tensor(timestep * units.fs), torch.tensor(0.0)
    if callable(torch_sim.integrators.nve):  # until 0.3
        start, step = torch_sim.integrators.nve(model, dt=dt, kT=kT)
        state = start(state)
    else:
        nve = torch_sim.integrators.nve
        state, step = nve.nve_init(state, model, kT=kT), lambda s: nve.nve_step(s, model, dt=dt)
    state.momenta = momenta
    energies = [state.energy.numpy().copy()]
    for _ in range(steps):
        state = step(state)
        energies.append(state.energy.numpy().copy())
    return np.array(energies)
