"""The fitted surface of a molecule as an ASE calculator."""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from pipeline_core.evaluation.trained import load_trained_task, require_finite
from pipeline_core.project.run import Run
from pipeline_htfbr.data.geometry import compute_variables
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.graph.build import TreeStructure
from pipeline_htfbr.inference.domain import SurfaceBox, make_domain
from pipeline_htfbr.model import Surface


class SurfaceCalculator(Calculator):  # type: ignore[misc] # ASE is not typed
    """ASE calculator of the energy (eV) and forces (eV/Å) of a molecule on a fitted surface.

    Args:
        module: The surface; it is copied.
        molecule: The variables of the surface as functions of the atomic positions.
        domain: Region of validity of the surface.
        device: Name of a torch device, for this calculator alone.
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
            ValueError: The atoms or their order differ from the molecule's, a position is not
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
                f"atoms {' '.join(symbols)}: the surface describes the molecule "
                f"{' '.join(expected)}; give these atoms in this order"
            )
        if np.any(atoms.pbc):
            raise ValueError(
                "the surface describes a free molecule without periodic images; "
                "set atoms.pbc = False"
            )
        lost = ~np.isfinite(atoms.positions).all(axis=1)
        if lost.any():
            atom = int(np.flatnonzero(lost)[0])
            place = ", ".join(f"{x:g}" for x in atoms.positions[atom])
            raise ValueError(f"atom {atom} has a non-finite position ({place}) Å; correct it")


def make_calculator(run: Run, device: str) -> SurfaceCalculator:
    """Return the trained surface of a run as an ASE calculator.

    Raises:
        ValueError: `run.model` is missing or of another run, or the dataset names no molecule.
    """
    task = load_trained_task(run, torch.device("cpu"))
    assert isinstance(task.module, Surface)
    assert task.metadata is not None
    if task.metadata["molecule"] is None:
        raise ValueError(
            f"{run.model}: the surface was fitted to points without a molecule, so its "
            "variables do not follow from positions of atoms; evaluate the exported sum of "
            "products, or fit points of a source that names its molecule, such as hono"
        )
    molecule = Molecule.from_dict(task.metadata["molecule"])
    structure = TreeStructure.from_dict(task.metadata["structure"])
    domain = make_domain(structure.coordinates, structure.leaves, molecule)
    return SurfaceCalculator(task.module, molecule, domain, device)
