"""A network for the data of a run, and the task that trains it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from ase.data import chemical_symbols

from pipeline_core.atomistic import potential_task
from pipeline_core.fields import SPLITS
from pipeline_core.run import Run
from pipeline_core.samples import SampleFile
from pipeline_core.task import Task
from pipeline_mace.model import MACE, Facts
from pipeline_mace.options import MACEOptions


def mace_task(run: Run, options: MACEOptions) -> Task:
    """Build the network of a run.

    Elements, the average number of neighbours and the scale of the energies are those of the
    training split; a trained network brings its own, also where it is trained further.

    Raises:
        ValueError: Files do not fit together.
    """
    if run.metadata is not None:
        known = run.metadata
        facts = Facts(tuple(known["elements"]), known["average_neighbours"])
    else:
        facts = _facts(run)
    module = MACE(options, facts)
    if options.scale_shift and run.metadata is None:
        module.scale.fill_(_force_scale(run))
    return potential_task(
        run,
        module,
        elements=list(facts.elements),  # with fine-tuning perhaps more than those of the data
        average_neighbours=facts.average_neighbours,
    )


def _facts(run: Run) -> Facts:
    with SampleFile(run.data, "data", ["split"]) as data:
        elements = sorted(_listed(data.attributes["elements"]), key=chemical_symbols.index)
        train = data.column("split") == SPLITS.index("train")
        n_atoms = data.counts("atom")
    with SampleFile(run.graph, "graph", []) as graph:
        n_edges = graph.counts("edge")
    average = n_edges[train].sum() / max(1, n_atoms[train].sum())
    return Facts(tuple(elements), max(float(average), 1.0))


def _force_scale(run: Run) -> float:
    """Return the root mean square of the components of the training forces, 1 without forces."""
    with SampleFile(run.data, "data", []) as data:
        labels = _listed(data.attributes["labels"])
    if "forces" not in labels:
        return 1.0
    total, count = 0.0, 0
    with SampleFile(run.data, "data", ["split", "forces"]) as data:
        for number in np.flatnonzero(data.column("split") == SPLITS.index("train")):
            forces = data.read(int(number))["forces"]
            present = forces[~np.isnan(forces)].astype(np.float64)
            total, count = total + float(present @ present), count + len(present)
    scale = (total / count) ** 0.5 if count else 1.0
    return scale if scale > 0 else 1.0


def _listed(text: Any) -> list[str]:
    found: list[str] = json.loads(text)
    return found
