"""Construction of a network for the data of a run, and of its training task."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.task import build_potential_task, read_references
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.config.sections import PUBLISHED, TrainOptions
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.task import Task
from pipeline_mace.conversion.foreign import StartingMACE, read_published
from pipeline_mace.model.network import Facts
from pipeline_mace.options import MACEOptions


def build_mace_task(run: Run, options: MACEOptions) -> Task:
    """Build the network of a run.

    Elements, the average number of neighbours, scale and shift of the energies are measured on the
    training split, scale and shift of each head on its part. Trained and published networks keep
    their own, also when they are fine-tuned.

    Raises:
        ValueError: Files do not belong together.
    """
    start = run.get_section("train", TrainOptions).start_from or ""
    is_published = run.metadata is None and start.startswith(PUBLISHED)
    if run.metadata is not None:
        metadata = run.metadata
        facts = Facts(tuple(metadata["elements"]), metadata["average_neighbours"])
    elif is_published:
        facts = read_published(start.removeprefix(PUBLISHED), options).find_facts()
    else:
        facts = _read_facts(run)
    module = StartingMACE(options, facts, run.get_section("graph", GraphOptions))
    if options.scale_shift and run.metadata is None and not is_published:
        for head, (scale, shift) in _read_scales_and_shifts(run).items():
            place = options.heads.index(head) if head in options.heads[1:] else 0
            module.scale.view(-1)[place] = scale
            module.shift.view(-1)[place] = shift
    return build_potential_task(
        run,
        module,
        elements=list(facts.elements),  # in fine-tuning perhaps more than in the data
        average_neighbours=facts.average_neighbours,
    )


def _read_facts(run: Run) -> Facts:
    with SampleFile(run.data, "data", ["split"]) as data:
        elements = sorted(_split_names(data.attributes["elements"]), key=chemical_symbols.index)
        train = data.read_column("split") == SPLITS.index("train")
        n_atoms = data.count_rows("atom")
    with SampleFile(run.graph, "graph", []) as graph:
        n_edges = graph.count_rows("edge")
    average = n_edges[train].sum() / max(1, n_atoms[train].sum())
    return Facts(tuple(elements), max(float(average), 1.0))


def _read_scales_and_shifts(run: Run) -> dict[str, tuple[float, float]]:
    """Return scale and shift of the energies of atoms, eV, from the training labels of each head.

    The scale is the root mean square of the components of the forces, 1 without forces. The shift
    is the mean energy of an atom beyond the reference energies: the binding energy, where these
    are energies of free atoms, and nearly zero where they are fitted.
    """
    with SampleFile(run.data, "data", []) as data:
        labels, by_head = _split_names(data.attributes["labels"]), read_references(data)
    return {
        head: _measure_scale_and_shift(run, labels, own, number if head else None)
        for number, (head, own) in enumerate(by_head.items())
    }


def _measure_scale_and_shift(
    run: Run, labels: Sequence[str], references: Mapping[str, float], head: int | None = None
) -> tuple[float, float]:
    """Return scale and shift of the training samples, of one head if it is given."""
    by_number = {atomic_numbers[symbol]: energy for symbol, energy in references.items()}
    head_fields = [] if head is None else ["head"]
    fields = ["atomic_numbers", *({"energy", "forces"} & set(labels))]
    squares, energies = np.zeros(2), np.zeros(2)  # sum and count
    with SampleFile(run.data, "data", ["split", *head_fields, *fields]) as data:
        train = SPLITS.index("train")
        own = (one for one in data if one["split"] == train and one.get("head") == head)
        for sample in own:
            forces = sample.get("forces", np.zeros(0))
            squares += np.nansum(forces.astype(np.float64) ** 2), np.isfinite(forces).sum()
            free = sum(by_number.get(z, 0.0) for z in sample["atomic_numbers"].tolist())
            energy = (float(sample.get("energy", np.nan)) - free) / len(sample["atomic_numbers"])
            energies += (energy, 1) if np.isfinite(energy) else (0, 0)
    scale = (squares[0] / squares[1]) ** 0.5 if squares[1] else 1.0
    return float(scale) or 1.0, float(energies[0] / max(energies[1], 1))


def _split_names(text: Any) -> list[str]:
    names: list[str] = json.loads(text)
    return names
