"""Small example data, labelled in a second by the effective-medium theory of ASE."""

from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write
from pydantic import BaseModel

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.hookspecs import Example
from pipeline_core.model_info import ModelInfo


def make_alloys(count: int, seed: int = 0) -> list[Atoms]:
    """Return strained and rattled four-atom cells of random composition, with labels.

    Args:
        count: Number of structures, of copper, silver and aluminium.
        seed: Seed of the random numbers.

    Returns:
        Structures with energy, eV, forces, eV/Å, and stress, eV/Å³, by the potential of Jacobsen,
        Stoltze and Nørskov, Surf. Sci. 366, 394 (1996), as implemented in ASE.
    """
    random = np.random.default_rng(seed)
    structures = []
    for _ in range(count):
        atoms = bulk("Cu", "fcc", a=3.9, cubic=True)
        atoms.symbols = random.choice(["Cu", "Ag", "Al"], size=len(atoms))
        strain = np.eye(3) + random.uniform(-0.04, 0.04, (3, 3))
        atoms.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
        atoms.positions += random.normal(0, 0.08, atoms.positions.shape)
        atoms.calc = EMT()
        atoms.get_potential_energy()
        atoms.get_stress()
        structures.append(atoms)
    return structures


ALLOYS: Final[Mapping[str, Any]] = {
    "description": "Alloys of copper, silver and aluminium, labelled by effective-medium theory",
    "citation": "Jacobsen, Stoltze and Nørskov, Surf. Sci. 366, 394 (1996), as in ASE",
    "sources": [{"path": "alloys.extxyz"}],
    "split": {"val": 0.2, "test": 0.2},
}
"""The dataset file of the example, for structures beside it."""
_TRAIN: Final = {
    "epochs": 2,
    "batch_size": 3,
    "loss": {"energy": {}, "forces": {}, "stress": {"unit": "GPa"}},
}
_DYNAMICS: Final = {"md": [{"name": "short", "steps": 5, "every": 1}]}
_POTENTIAL: Final = "pipeline_atoms.testing:PotentialConformance"


def make_example(info: ModelInfo) -> Example:
    """Return the example of a model: alloys, and sections for training and dynamics on them."""
    own: dict[str, tuple[type[BaseModel], Mapping[str, Any]]] = {
        "train": (TrainOptions, _TRAIN),
        "infer": (InferOptions, _DYNAMICS),
    }
    models, text = info.section_models, StringIO()
    write(text, make_alloys(15), format="extxyz")
    is_potential = "energy" in info.predicts and issubclass(models["graph"], GraphOptions)
    return Example(
        dataset=ALLOYS,
        files={"alloys.extxyz": text.getvalue()},
        sections={name: s for name, (kind, s) in own.items() if issubclass(models[name], kind)},
        suites=(_POTENTIAL,) if is_potential else (),
    )
