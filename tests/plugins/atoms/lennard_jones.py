"""A Lennard-Jones `Potential`, of the same formula as ASE's `LennardJones(smooth=True)`."""

import torch
from ase.calculators.lj import LennardJones as AseLennardJones

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.potential import Potential

ARGON = {"sigma": 3.405, "epsilon": 0.01032, "onset": 5.0, "cutoff": 6.5}
"""Å and eV: A. Rahman, Phys. Rev. 136, A405 (1964), with a nearer cutoff to be fast."""
GRAPH = GraphOptions(cutoff=ARGON["cutoff"])


class LennardJones(Potential):
    """Pair energy 4 epsilon (x^12 - x^6), x = sigma / r, brought smoothly to zero at the cutoff.

    The one parameter scales it.
    """

    def __init__(self, predicts=("energy", "forces", "stress"), scale=1.0):
        super().__init__(predicts)
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def energies(self, batch, vectors):
        r2 = (vectors**2).sum(1)
        x6 = (ARGON["sigma"] ** 2 / r2) ** 3
        pair = 4 * self.scale * ARGON["epsilon"] * (x6**2 - x6) * _compute_switch(r2)
        atoms = pair.new_zeros(len(batch["atomic_numbers"]))
        atoms = atoms.index_add(0, batch["edge_index"][:, 0], 0.5 * pair)
        energy = pair.new_zeros(len(batch["cell"])).index_add(0, batch["atom_sample"], atoms)
        return {"energy": energy, "magmoms": atoms}


def make_calculator(predicts=("energy", "forces", "stress"), scale=1.0, dtype=torch.float64):
    """Return our calculator of it."""
    return PotentialCalculator(LennardJones(predicts, scale), GRAPH, ["Ar"], dtype=dtype)


def make_ase_lennard_jones():
    """Return ASE's calculator of the same energy."""
    return AseLennardJones(
        sigma=ARGON["sigma"],
        epsilon=ARGON["epsilon"],
        rc=ARGON["cutoff"],
        ro=ARGON["onset"],
        smooth=True,
    )


def _compute_switch(r2):
    on, off = ARGON["onset"] ** 2, ARGON["cutoff"] ** 2
    middle = (off - r2) ** 2 * (off + 2 * r2 - 3 * on) / (off - on) ** 3
    return torch.where(r2 < on, torch.ones_like(r2), torch.where(r2 < off, middle, 0 * r2))
