"""Ranges of the training structures of a potential, for the card of the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from ase.data import atomic_masses, chemical_symbols
from ase.units import _amu  # kg; the unit of ASE's masses
from numpy.typing import NDArray

from pipeline_atoms.potential.task import read_references
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.units import GPA

_STRUCTURE: Final = ("split", "group", "atomic_numbers", "cell", "pbc")
_LABELS: Final = ("energy", "forces", "stress")
_GRAM_PER_CM3: Final = _amu * 1e3 / 1e-24
"""u/Å³ in g/cm³."""
_MOST_GROUPS: Final = 20
"""Number of groups that are listed by name."""

Arrays = Mapping[str, NDArray[Any]]


def describe_training(run: Run) -> dict[str, Any]:
    """Return the ranges of the training samples; empty for another data layout of a plugin."""
    dataset = run.dataset
    if dataset is None or dataset.options.plugin or not store.has_schema(run.data, "data"):
        return {}
    with SampleFile(run.data, "data", preload=False) as data:
        if not {*_STRUCTURE} <= data.fields.keys():
            return {}
        fields = [*_STRUCTURE, *(name for name in (*_LABELS, "head") if name in data.fields)]
        ranges = TrainingRanges([*read_references(data).values()])
    train = SPLITS.index("train")
    with SampleFile(run.data, "data", fields) as data:
        for sample in data:
            if sample["split"] == train:
                ranges.add(sample)
    return ranges.report()


class TrainingRanges:
    """Ranges of the training structures of a model.

    Args:
        references: Energies of free atoms by chemical symbol, eV, of each head of the data.
    """

    def __init__(self, references: Sequence[Mapping[str, float]]) -> None:
        self._references = np.array([[r.get(s, 0.0) for s in chemical_symbols] for r in references])
        self._ranges: dict[str, tuple[float, float]] = {}
        self._atoms: Counter[str] = Counter()
        self._groups: dict[str, None] = {}
        self._n_samples, self._force_square, self._n_forces = 0, 0.0, 0

    def add(self, sample: Arrays) -> None:
        """Add a structure with its labels, NaN where they are missing."""
        numbers = sample["atomic_numbers"]
        self._n_samples += 1
        self._atoms.update(chemical_symbols[z] for z in numbers.tolist())
        self._extend("atoms", len(numbers))
        if group := str(sample["group"]):
            self._groups.setdefault(group)
        if sample["pbc"].all():
            volume = abs(float(np.linalg.det(sample["cell"])))
            mass = float(atomic_masses[numbers].sum())
            self._extend("density", mass / volume * _GRAM_PER_CM3)
        if "energy" in sample:
            references = self._references[int(sample.get("head", 0))]
            left = float(sample["energy"]) - float(references[numbers].sum())
            self._extend("energy", left / len(numbers))
        if "stress" in sample and sample["pbc"].all():
            self._extend("pressure", -float(np.trace(sample["stress"])) / 3 / GPA)
        if "forces" in sample:
            self._add_forces(sample["forces"].astype(np.float64))

    def _add_forces(self, forces: NDArray[np.float64]) -> None:
        sizes = np.linalg.norm(forces, axis=1)
        sizes = sizes[np.isfinite(sizes)]
        self._force_square += float(sizes @ sizes)
        self._n_forces += len(sizes)
        for size in (sizes.min(initial=math.inf), sizes.max(initial=-math.inf)):
            self._extend("force", float(size))

    def _extend(self, name: str, value: float) -> None:
        if math.isfinite(value):
            low, high = self._ranges.get(name, (value, value))
            self._ranges[name] = min(low, value), max(high, value)

    def report(self) -> dict[str, Any]:
        """Return the ranges.

        Returns:
            structures; atoms_by_element; groups, the first by name, and n_groups; ranges, each the
            least and the largest: atoms of a structure, density in g/cm³ if periodic in three
            directions, energy minus reference energies in eV/atom, pressure in GPa, force on an
            atom in eV/Å; force_rms, the root mean square of the last.
        """
        content: dict[str, Any] = {
            "structures": self._n_samples,
            "atoms_by_element": dict(self._atoms),
            "groups": list(self._groups)[:_MOST_GROUPS],
            "n_groups": len(self._groups),
            "ranges": {name: list(both) for name, both in self._ranges.items()},
        }
        if self._n_forces:
            content["force_rms"] = math.sqrt(self._force_square / self._n_forces)
        return content
