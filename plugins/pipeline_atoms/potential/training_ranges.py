"""Ranges of the training structures of a potential, for the card of the model."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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

_NOTHING: Final = np.zeros((0, 3))

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


def describe_training(run: Run) -> dict[str, Any]:
    """Return the ranges of the training samples; empty for another data layout of a plugin."""
    dataset = run.dataset
    if dataset is None or dataset.options.plugin or not store.has_schema(run.data, "data"):
        return {}
    with SampleFile(run.data, "data", preload=False) as data:
        if not {*_STRUCTURE} <= data.fields.keys():
            return {}
        fields = [*_STRUCTURE, *(name for name in (*_LABELS, "head") if name in data.fields)]
        by_head = read_references(data).values()
    references = np.array([[one.get(s, 0.0) for s in chemical_symbols] for one in by_head])
    train = SPLITS.index("train")
    with SampleFile(run.data, "data", fields) as data:
        return report_ranges((one for one in data if one["split"] == train), references)


def report_ranges(samples: Iterable[Arrays], references: Floats) -> dict[str, Any]:
    """Return the ranges of structures with their labels, NaN where they are missing.

    Args:
        samples: The structures.
        references: Energies of free atoms by atomic number, eV, of each head, (n_heads, n_z).

    Returns:
        structures; atoms_by_element; groups, the first by name, and n_groups; ranges, each the
        least and the largest: atoms of a structure, density in g/cm³ if periodic in three
        directions, energy minus reference energies in eV/atom, pressure in GPa, force on an atom in
        eV/Å; force_rms, the root mean square of the last.
    """
    ranges: dict[str, tuple[float, float]] = {}
    atoms, groups = Counter[str](), dict[str, None]()
    n_samples, n_forces, square = 0, 0, 0.0
    for sample in samples:
        n_samples += 1
        atoms.update(chemical_symbols[z] for z in sample["atomic_numbers"].tolist())
        if group := str(sample["group"]):
            groups.setdefault(group)
        sizes = np.linalg.norm(sample.get("forces", _NOTHING).astype(np.float64), axis=1)
        sizes = sizes[np.isfinite(sizes)]
        square, n_forces = square + float(sizes @ sizes), n_forces + len(sizes)
        ends = [float(sizes.min(initial=math.inf)), float(sizes.max(initial=-math.inf))]
        for name, values in (*_measure(sample, references), ("force", ends)):
            finite = [value for value in values if math.isfinite(value)]
            if finite:
                both = [*finite, *ranges.get(name, ())]
                ranges[name] = min(both), max(both)
    content: dict[str, Any] = {
        "structures": n_samples,
        "atoms_by_element": dict(atoms),
        "groups": list(groups)[:_MOST_GROUPS],
        "n_groups": len(groups),
        "ranges": {name: list(both) for name, both in ranges.items()},
    }
    return content | ({"force_rms": math.sqrt(square / n_forces)} if n_forces else {})


def _measure(sample: Arrays, references: Floats) -> Iterator[tuple[str, list[float]]]:
    """Yield names and values of the numbers of a structure that have a range."""
    numbers = sample["atomic_numbers"]
    yield "atoms", [len(numbers)]
    if sample["pbc"].all():
        volume = abs(float(np.linalg.det(sample["cell"])))
        yield "density", [float(atomic_masses[numbers].sum()) / volume * _GRAM_PER_CM3]
    if "energy" in sample:
        free = float(references[int(sample.get("head", 0))][numbers].sum())
        yield "energy", [(float(sample["energy"]) - free) / len(numbers)]
    if "stress" in sample and sample["pbc"].all():
        yield "pressure", [-float(np.trace(sample["stress"])) / 3 / GPA]
