"""A trained potential as an ASE calculator."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from numpy.typing import NDArray

from pipeline_core.batch import Batch, collate, move_to_device
from pipeline_core.config.sections import GraphOptions
from pipeline_core.graphs import Arrays
from pipeline_core.inference.moving_graph import MovingGraph
from pipeline_core.inference.potentials import TrainedPotential, load_potential
from pipeline_core.potential import Potential
from pipeline_core.run import Run

_VOIGT: Final = ([0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1])
"""Rows and columns of xx yy zz yz xz xy."""


class PotentialCalculator(Calculator):  # type: ignore[misc] # ASE is not typed
    """Energy, forces, stress and magnetic moments of a `Potential`, as far as it predicts them.

    The units are ASE's: eV, eV/Å, eV/Å³ (tension positive, Voigt order xx yy zz yz xz xy), µB. The
    stress is given for cells that are periodic in all three directions.

    Args:
        module: The potential; it is copied, so that the caller's one keeps its device and type.
        graph: Cutoffs of the graph that the module expects.
        elements: Chemical symbols of the elements that it was trained on.
        device: A torch device name, for this calculator alone.
        dtype: Floating-point type, for this calculator alone.
    """

    def __init__(
        self,
        module: Potential,
        graph: GraphOptions,
        elements: Sequence[str],
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.elements = tuple(elements)
        self._device, self._dtype, self._graph = torch.device(device), dtype, MovingGraph(graph)
        self._last: _Collated | None = None
        self._module = deepcopy(module).to(self._device, dtype).eval().requires_grad_(False)
        offered = ("energy", "forces", "stress", "magmoms")
        self.implemented_properties = [name for name in offered if name in module.predicts]
        if "energy" in module.predicts:
            self.implemented_properties.append("free_energy")

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Compute everything that the module predicts for `atoms`.

        Raises:
            ValueError: The structure holds an element that the model does not know, or no two atoms
                are within the cutoff.
        """
        super().calculate(atoms, properties, system_changes)
        with torch.no_grad():
            outputs = self._module(self._make_batch(self.atoms))
        results = {n: outputs[n].double().cpu().numpy() for n in self._module.predicts}
        if not self.atoms.pbc.all():
            results.pop("stress", None)
        self.results = _convert_results(results, self.implemented_properties)

    def _make_batch(self, atoms: Atoms) -> Batch:
        """Return the batch of a structure; of a graph that is still the last one, its tensors."""
        last, cell, pbc = self._last, np.array(atoms.cell), atoms.pbc
        if last is None or not np.array_equal(atoms.numbers, last.numbers):
            self._check_elements(atoms)
            last = None
        positions, graph = self._graph.update(atoms.positions, cell, pbc)
        if last is None or graph is not last.graph:
            numbers = atoms.numbers.copy()
            sample = {"atomic_numbers": numbers, "positions": positions, "cell": cell, "pbc": pbc}
            batch = move_to_device(collate([sample | graph], self._dtype), self._device)
            self._last = _Collated(numbers, graph, batch)
            return batch
        return last.batch | {"positions": torch.from_numpy(positions).to(last.batch["positions"])}

    def _check_elements(self, atoms: Atoms) -> None:
        unknown = [n for n, s in enumerate(atoms.symbols) if s not in self.elements]
        if unknown:
            raise ValueError(
                f"the model knows {', '.join(self.elements)} and no {atoms.symbols[unknown[0]]} "
                f"(atom {unknown[0]} of {atoms.symbols.formula.format('metal')}); train it on data "
                "that hold the element, or choose a model that covers it"
            )


class _Collated(NamedTuple):
    """A structure as a batch, all of which but the positions serves until its graph changes."""

    numbers: NDArray[np.int64]
    graph: Arrays  # belongs to one cell and its boundaries
    batch: Batch


def _convert_results(outputs: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    results = {name: outputs[name] for name in wanted if name in outputs}
    if "energy" in results:
        results["energy"] = results["free_energy"] = float(outputs["energy"][0])
    if "stress" in results:
        results["stress"] = outputs["stress"][0][_VOIGT]
    return results


def make_run_calculator(run: Run, device: str) -> PotentialCalculator:
    """Return the trained potential of a run as an ASE calculator.

    Raises:
        ValueError: `run.model` is missing, not of this run, or not a potential.
    """
    potential = load_potential(run)
    return make_calculator(potential, device, potential.dtype)


def make_calculator(
    potential: TrainedPotential, device: str, dtype: torch.dtype
) -> PotentialCalculator:
    """Return a trained potential as an ASE calculator."""
    return PotentialCalculator(potential.module, potential.graph, potential.elements, device, dtype)
