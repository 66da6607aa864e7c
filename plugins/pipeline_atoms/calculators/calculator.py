"""A trained potential as an ASE calculator."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.data import atomic_numbers, chemical_symbols
from ase.geometry import wrap_positions
from ase.stress import full_3x3_to_voigt_6_stress
from numpy.typing import NDArray

from pipeline_atoms.calculators.potentials import TrainedPotential, load_potential
from pipeline_atoms.calculators.verlet_list import StructureGraphBuilder, VerletList
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions, find_head
from pipeline_atoms.edge_counts import require_sound
from pipeline_atoms.graphs import Arrays
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.potential.task import collate_structures
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, collate, move_to_device
from pipeline_core.evaluation.trained import require_finite
from pipeline_core.fields import find_field
from pipeline_core.project.run import Run
from pipeline_core.system.memory import keep_freed_memory
from pipeline_core.training.out_of_memory import report_out_of_memory


class PotentialCalculator(Calculator):  # type: ignore[misc] # ASE is not typed
    """Energy, forces, stress and magnetic moments of a `Potential`, if it predicts them.

    The units are ASE's: eV, eV/Å, eV/Å³ (tension positive, Voigt order xx yy zz yz xz xy), µB. The
    stress is given for cells that are periodic in all three directions.

    Args:
        module: The potential; it is copied, so that the original keeps its device and type.
        graph: Cutoffs of the graph that the module expects.
        elements: Chemical symbols of the elements that it was trained on.
        device: A torch device name, for this calculator alone.
        dtype: Floating-point type, for this calculator alone.
        head: Name of the head to predict with, if the module has several.

    Raises:
        ValueError: The module has no such head, or several heads and none is named.

    Attributes:
        module: The copy.
        neighbours: Neighbour list of the structure as it moves.
    """

    def __init__(
        self,
        module: Potential,
        graph: GraphOptions,
        elements: Sequence[str],
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        head: str | None = None,
    ) -> None:
        super().__init__()
        self.elements = tuple(elements)
        self.graph, self.dtype = graph, dtype
        self.neighbours: VerletList[Any] = VerletList(StructureGraphBuilder(graph))
        self._device = torch.device(device)
        if self._device.type == "cpu":
            keep_freed_memory()  # each step allocates what the one before has freed
        self._last: _Collated | None = None
        self.module = deepcopy(module).to(self._device, dtype).eval().requires_grad_(False)
        self.head, self.module.head = head, find_head(module.head_names, head)
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
            ValueError: The structure has no atoms, an element that the model was not trained on,
                coinciding atoms, or no two atoms within the cutoff; a coordinate is not finite, or
                a periodic direction has no lattice vector; memory does not suffice; or a
                prediction is not finite.
        """
        super().calculate(atoms, properties, system_changes)
        results = self._predict(self.atoms)
        if not self.atoms.pbc.all():
            results.pop("stress", None)
        require_finite(results)
        self.results = _convert_results(results, self.implemented_properties)

    def predict(self, structures: Sequence[Atoms]) -> list[dict[str, NDArray[np.float64]]]:
        """Return the predictions for several structures, calculated as one batch.

        Args:
            structures: At least one.

        Returns:
            For each, name to array in the engine's units; the stress is (3, 3).

        Raises:
            ValueError: As `calculate` does.
        """
        placed = []
        for atoms in structures:
            require_known(atoms.numbers, self.elements)
            one = Structure.of(atoms)
            require_sound(one.positions, one.cell, one.pbc)
            placed.append(replace(one, positions=wrap_positions(one.positions, one.cell, one.pbc)))
        batch = collate_structures(placed, self.graph, self.dtype)
        batch = move_to_device(batch, self._device)
        with torch.no_grad(), report_out_of_memory(partial(_describe_size, batch)):
            outputs = self.module(batch)
        wanted = [n for n in self.module.predicts if n in outputs]
        arrays = {n: outputs[n].double().cpu().numpy() for n in wanted}
        require_finite(arrays)
        ends = np.cumsum([len(atoms) for atoms in structures])[:-1]
        rows = {
            n: np.split(a, ends) if find_field(n).kind == "atom" else a for n, a in arrays.items()
        }
        return [{n: rows[n][i] for n in wanted} for i in range(len(structures))]

    def forget(self) -> None:
        """Discard the neighbour list, so that results do not depend on earlier structures."""
        self.neighbours.forget()
        self._last = None

    def _predict(self, atoms: Atoms) -> dict[str, NDArray[np.float64]]:
        """Return the predictions by name."""
        batch = self._make_batch(atoms)
        with torch.no_grad(), report_out_of_memory(partial(_describe_size, batch)):
            outputs = self.module(batch)
        return {n: outputs[n].double().cpu().numpy() for n in self.module.predicts}

    def _make_batch(self, atoms: Atoms) -> Batch:
        """Return the batch of a structure, with the tensors of the last graph if it is the same."""
        last = self._last
        if last is None or not np.array_equal(atoms.numbers, last.numbers):
            require_known(atoms.numbers, self.elements)
        structure = Structure.of(atoms)
        positions, graph = self.neighbours.update(structure)
        if last is None or graph is not last.graph:
            sample = vars(structure) | {"positions": positions}
            batch = move_to_device(collate([sample | graph], self.dtype), self._device)
            self._last = _Collated(structure.atomic_numbers, graph, batch)
            return batch
        return last.batch | {"positions": torch.from_numpy(positions).to(last.batch["positions"])}


class _Collated(NamedTuple):
    """A structure as a batch, reused with new positions until its graph changes."""

    numbers: NDArray[np.int32]
    graph: Arrays  # belongs to one set of atoms, cell and periodicity
    batch: Batch


def require_known(numbers: NDArray[Any], elements: Sequence[str]) -> None:
    """Check that a model was trained on all elements of a structure.

    Args:
        numbers: Atomic numbers, (n_atoms,).
        elements: Chemical symbols of the elements that it was trained on.

    Raises:
        ValueError: It was not.
    """
    trained = [atomic_numbers[symbol] for symbol in elements]
    unknown = np.flatnonzero(~np.isin(numbers, trained))
    if len(unknown):
        z = int(numbers[unknown[0]])
        name = chemical_symbols[z] if 0 < z < len(chemical_symbols) else f"element {z}"
        raise ValueError(
            f"the model was trained on {', '.join(elements)}, not on {name} (atom {unknown[0]} of "
            f"{len(numbers)}); train it on data with this element, or choose a model that "
            "covers it"
        )


def _describe_size(batch: Batch) -> str:
    edges = len(batch["edge_index"])
    return f"on a structure of {len(batch['positions'])} atoms and {edges} edges; use a smaller one"


def _convert_results(outputs: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    results = {name: outputs[name] for name in wanted if name in outputs}
    if "energy" in results:
        results["energy"] = results["free_energy"] = float(outputs["energy"][0])
    if "stress" in results:
        results["stress"] = full_3x3_to_voigt_6_stress(outputs["stress"][0])
    return results


def make_run_calculator(run: Run, device: str) -> PotentialCalculator:
    """Return the trained potential of a run as an ASE calculator, compiled with `infer.compile`.

    Raises:
        ValueError: `run.model` is missing, not of this run, not a potential, or cannot be compiled.
    """
    potential = load_potential(run)
    infer = run.sections.get("infer")
    options = infer if isinstance(infer, InferOptions) else InferOptions()
    return make_calculator(potential, device, potential.dtype, options.head, options.compile)


def make_calculator(
    potential: TrainedPotential,
    device: str,
    dtype: torch.dtype,
    head: str | None = None,
    compiled: bool = False,
) -> PotentialCalculator:
    """Return a trained potential as an ASE calculator.

    Raises:
        ValueError: It has no such head, or cannot be compiled although this is requested.
    """
    module = potential.module
    if compiled:
        if torch.device(device).type != "cpu":
            raise ValueError(
                f"infer.compile: compiled models run on the CPU and not on {device}; use device "
                "cpu, or remove infer.compile"
            )
        module = module.compile_inference()
    return PotentialCalculator(module, potential.graph, potential.elements, device, dtype, head)
