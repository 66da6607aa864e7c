"""Silicon of Stillinger and Weber, Phys. Rev. B 31, 5262 (1985), from formula and parameters."""

import numpy as np
import torch
from ase.calculators.calculator import Calculator, all_changes
from ase.neighborlist import neighbor_list
from ase.stress import full_3x3_to_voigt_6_stress

EPSILON, SIGMA = 2.1682, 2.0951
"""eV and Å: 50 kcal/mol, and the length that gives the lattice constant of 5.431 Å."""
_A, _B, _P, _RANGE, _LAMBDA, _GAMMA = 7.049556277, 0.6022245584, 4, 1.8, 21.0, 1.2


class StillingerWeber(Calculator):
    """Energy, and forces and stress as its derivatives by torch."""

    implemented_properties = ("energy", "free_energy", "forces", "stress")

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        first, second, shifts = neighbor_list("ijS", atoms, _RANGE * SIGMA)
        positions = torch.tensor(atoms.positions, requires_grad=True)
        strain = torch.zeros((3, 3), dtype=torch.float64, requires_grad=True)
        deformed = torch.eye(3) + (strain + strain.T) / 2
        offsets = torch.from_numpy(shifts @ np.array(atoms.cell))
        vectors = (positions[second] - positions[first] + offsets) @ deformed
        energy = _compute_energy(vectors, first)
        forces, virial = torch.autograd.grad(-energy, (positions, strain))
        self.results = dict.fromkeys(("energy", "free_energy"), energy.item())
        self.results["forces"] = forces.numpy()
        if atoms.pbc.all():
            stress = -virial.numpy() / atoms.cell.volume
            self.results["stress"] = full_3x3_to_voigt_6_stress(stress)


def _compute_energy(vectors, first):
    r = vectors.norm(dim=1) / SIGMA
    pairs = _A * (_B * r**-_P - 1) * torch.exp(1 / (r - _RANGE))
    left, right = _list_angles(first)
    cosines = (vectors[left] * vectors[right]).sum(1) / (r[left] * r[right]) / SIGMA**2
    decay = torch.exp(_GAMMA / (r[left] - _RANGE) + _GAMMA / (r[right] - _RANGE))
    return EPSILON * (pairs.sum() / 2 + (_LAMBDA * decay * (cosines + 1 / 3) ** 2).sum())


def _list_angles(first):
    """Return the two edges of each pair of edges of one atom."""
    found = [
        np.stack(np.triu_indices(end - start, 1)) + start
        for start, end in zip(
            np.searchsorted(first, np.unique(first)),
            np.searchsorted(first, np.unique(first), side="right"),
            strict=True,
        )
    ]
    return np.concatenate(found, axis=1)
