"""Conversion of models trained by other programs into `model.pt`."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.build import bulk

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.task import collate_structures
from pipeline_atoms.structure import Structure
from pipeline_core.artifacts import provenance
from pipeline_core.artifacts.foreign import ForeignFormat, ForeignModel
from pipeline_core.batch import Batch
from pipeline_core.config.experiments import BASE
from pipeline_core.model_info import ModelInfo
from pipeline_core.training.model_file import save_model

_ELEMENTS: Final = 4
"""Number of elements in the probe structure that identifies a model by its predictions."""


def write_foreign_model(
    path: Path, source: Path, kind: ForeignFormat, model: ForeignModel, info: ModelInfo
) -> None:
    """Write a converted potential as the stage `train` would, with predictions to check it by.

    Args:
        path: The file to write, atomically.
        source: The file of the other program.
        kind: Format of that file.
        model: The model read from it.
        info: The plugin.
    """
    experiment = f"{info.name}/{source.stem}"
    facts = provenance.make_record(
        inputs={source.name: provenance.hash_file(source)},
        experiment=experiment,
        variant=BASE,
        plugin=info.name,
        converted_from=kind.name,
        card=_make_card(source, kind, model, info),
    )
    trained = model.module, model.metadata, {"batch": _make_probe(model, info)}
    save_model(path, info, (experiment, BASE), trained, facts)


def _make_probe(model: ForeignModel, info: ModelInfo) -> Batch:
    """Return a distorted cubic cell of four atoms, of the first elements of the model."""
    graph = info.section_models["graph"].model_validate(model.metadata["graph"])
    assert isinstance(graph, GraphOptions)
    elements = list(model.metadata["elements"])[:_ELEMENTS]
    atoms: Atoms = bulk("Cu", "fcc", a=0.9 * graph.cutoff, cubic=True)
    atoms.symbols = np.resize(elements, len(atoms)).tolist()
    atoms.positions += np.random.default_rng(0).normal(0, 0.02 * graph.cutoff, (len(atoms), 3))
    parameter = next(model.module.parameters())
    return collate_structures([Structure.of(atoms)], graph, parameter.dtype)


def _make_card(
    source: Path, kind: ForeignFormat, model: ForeignModel, info: ModelInfo
) -> dict[str, Any]:
    """Return the card of the model, as `training.card.make_card` does for a trained one."""
    published = kind.identify(source)
    of_data = {"name": source.name, "description": f"unknown: a file of {kind.name}"}
    if published is not None:
        of_data = {"name": published.name, "description": published.data}
    return {
        "summary": info.summary,
        "citation": info.citation,
        "parameters": sum(parameter.numel() for parameter in model.module.parameters()),
        "elements": list(model.metadata["elements"]),
        "heads": list(getattr(model.module, "head_names", ())),
        "datasets": [
            {
                **of_data,
                "citation": published.address if published else "",
                "licence": published.licence if published else "",
            }
        ],
        "training": {},
    }
