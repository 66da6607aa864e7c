"""Trained potentials as models of torch-sim, which moves many structures in one batch."""

from typing import Any

import numpy as np
import torch
from ase.calculators.calculator import Calculator
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.calculators.calculator import PotentialCalculator, require_known
from pipeline_atoms.calculators.verlet_list import StructureGraphBuilder, VerletList
from pipeline_atoms.graphs import Arrays
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, collate, move_to_device
from pipeline_core.evaluation.trained import require_finite

try:
    from torch_sim.models.interface import ModelInterface
except ImportError as error:
    raise ImportError(
        f"torch-sim cannot be used here ({error}); install it: pip install "
        "'pipeline-core[torch-sim]'"
    ) from error


class TorchSimModel(ModelInterface):  # type: ignore[misc] # torch-sim is an extra
    """Energies, forces and stresses of batched structures, in torch-sim's metal units.

    The units are eV, eV/Å, and eV/Å³ with tension positive, as in the engine. Magnetic moments are
    included if the model predicts them.

    Args:
        calculator: Calculator from `calculators.loading.load_calculator` for a potential; it
            determines the device and the type.

    Raises:
        ValueError: It is not a calculator of one potential, such as a committee.
    """

    def __init__(self, calculator: Calculator) -> None:
        super().__init__()
        if not isinstance(calculator, PotentialCalculator):
            raise ValueError(
                f"torch-sim takes one potential, not a {type(calculator).__name__}; load "
                "one member of a committee by the path of its model.pt"
            )
        self._calculator = calculator
        self._device = next(calculator.module.parameters()).device
        self._dtype = calculator.dtype
        self._compute_forces = "forces" in calculator.implemented_properties
        self._compute_stress = "stress" in calculator.implemented_properties
        self._neighbours: list[VerletList[Arrays]] = []

    def forward(self, state: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Predict energies, forces and stresses.

        Args:
            state: A `torch_sim.SimState`, periodic in all directions if stresses are needed.
            **kwargs: Further arguments of torch-sim, which are ignored.

        Returns:
            energy, (n_systems,); forces, (n_atoms, 3); stress, (n_systems, 3, 3).

        Raises:
            ValueError: As the calculator does for any structure.
        """
        pbc = np.broadcast_to(torch.as_tensor(state.pbc).cpu().numpy(), 3)
        batch = self._make_batch(state, pbc)
        with torch.no_grad():
            outputs = self._calculator.module(batch)
        names = [n for n in self._calculator.module.predicts if n != "stress" or pbc.all()]
        require_finite({name: outputs[name].cpu().numpy() for name in names})
        return {name: outputs[name] for name in names}

    def _make_batch(self, state: Any, pbc: NDArray[np.bool_]) -> Batch:
        """Return all structures with their graphs, which are reused while atoms move little."""
        positions, numbers, systems, cells = (
            tensor.detach().cpu().numpy()
            for tensor in (
                state.positions.double(),
                state.atomic_numbers,
                state.system_idx,
                state.row_vector_cell.double(),
            )
        )
        require_known(numbers, self._calculator.elements)
        while len(self._neighbours) < len(cells):
            self._neighbours.append(VerletList(StructureGraphBuilder(self._calculator.graph)))
        samples = []
        for number, cell in enumerate(cells):
            mine = systems == number
            structure = Structure(numbers[mine].astype(np.int32), positions[mine], cell, pbc)
            places, graph = self._neighbours[number].update(structure)
            samples.append({**vars(structure), "positions": places, **graph})
        return move_to_device(collate(samples, self._dtype), self._device)
