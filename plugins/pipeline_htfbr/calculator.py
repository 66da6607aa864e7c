"""The fitted surface of a molecule as an ASE calculator."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from pipeline_core.evaluation.trained import load_trained_task, require_finite
from pipeline_core.run import Run
from pipeline_htfbr.geometry import compute_variables
from pipeline_htfbr.inference.domain import SurfaceBox, make_domain
from pipeline_htfbr.molecule import Molecule
from pipeline_htfbr.structure import TreeStructure
from pipeline_htfbr.surface import Surface


class SurfaceCalculator(Calculator):  # type: ignore[misc] # ASE is not typed
    """Energy (eV) and forces (eV/Å) of a molecule on a fitted surface.

    Args:
        module: The surface; it is copied.
        molecule: How its variables follow from the positions of atoms.
        domain: Where it may be used.
        device: A torch device name, for this calculator alone.
    """

    def __init__(
        self, module: Surface, molecule: Molecule, domain: SurfaceBox, device: str = "cpu"
    ) -> None:
        super().__init__()
        self.implemented_properties = ["energy", "free_energy", "forces"]
        self.molecule, self._domain = molecule, domain
        self._module = deepcopy(module).to(device, torch.float64).eval()

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Compute energy and forces.

        Raises:
            ValueError: The atoms are not those of the molecule in its order, a position is not
                finite, two atoms coincide, or the geometry lies outside of the domain.
        """
        super().calculate(atoms, properties, system_changes)
        self._check(self.atoms)
        with torch.enable_grad():
            positions = torch.tensor(self.atoms.positions, dtype=torch.float64, requires_grad=True)
            x = compute_variables(positions, self.molecule, self._domain.coordinates)
            signs, shifts = self._domain.find_image(x.detach().numpy())
            x = torch.from_numpy(signs) * x + torch.from_numpy(shifts)
            energy = self._module.energies(x[None].to(self._module.shift.device))[0]
            (gradient,) = torch.autograd.grad(energy, positions)
        value = float(energy.detach())
        self.results = {"energy": value, "free_energy": value, "forces": -gradient.numpy()}
        require_finite(self.results)

    def _check(self, atoms: Atoms) -> None:
        expected = self.molecule.symbols
        symbols = tuple(atoms.symbols)
        if symbols != expected:
            raise ValueError(
                f"atoms {' '.join(symbols)}: the surface is one of the molecule "
                f"{' '.join(expected)}; give these atoms in this order"
            )
        if np.any(atoms.pbc):
            raise ValueError(
                "the surface is one of a free molecule and knows no periodic images; "
                "set atoms.pbc = False"
            )
        lost = ~np.isfinite(atoms.positions).all(axis=1)
        if lost.any():
            atom = int(np.flatnonzero(lost)[0])
            place = ", ".join(f"{x:g}" for x in atoms.positions[atom])
            raise ValueError(f"atom {atom} is at ({place}) Å, which is no place; correct it")


def make_calculator(run: Run, device: str) -> SurfaceCalculator:
    """Return the trained surface of a run as an ASE calculator.

    Raises:
        ValueError: `run.model` is missing or not of this run, or no molecule is known.
    """
    task = load_trained_task(run, torch.device("cpu"))
    assert isinstance(task.module, Surface)
    assert task.metadata is not None
    if task.metadata["molecule"] is None:
        raise ValueError(
            f"{run.model}: the surface was fitted to points of which no molecule is known, so its "
            "variables do not follow from positions of atoms; evaluate the exported sum of "
            "products, or fit points of a source that knows its molecule, such as hono"
        )
    molecule = Molecule.from_dict(task.metadata["molecule"])
    structure = TreeStructure.from_dict(task.metadata["structure"])
    domain = make_domain(structure.coordinates, structure.leaves, molecule)
    return SurfaceCalculator(task.module, molecule, domain, device)
