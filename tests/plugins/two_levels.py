"""Two levels of theory of the same structures: the second is the first stretched, and shifted by
element, exactly."""

import yaml
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from pipeline_atoms.testing.example_data import make_alloys
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

SHIFT = {"Al": -3.0, "Cu": 5.0, "Ag": 1.5}
STRETCH = 1.3
HEADS = ["low", "high"]
MODEL = {
    "channels": 8,
    "lmax": 2,
    "max_l": 1,
    "radial_functions": 6,
    "radial_features": [16],
    "readout_features": 8,
}


def relabel(atoms):
    """Return the structure at the second level of theory."""
    other = atoms.copy()
    energy = STRETCH * atoms.get_potential_energy() + sum(SHIFT[s] for s in atoms.symbols)
    other.calc = SinglePointCalculator(other, energy=energy, forces=STRETCH * atoms.get_forces())
    return other


LOW = make_alloys(30)
HIGH = [relabel(atoms) for atoms in LOW]


def write_levels(folder, **sections):
    """Write both datasets, mixtures of them with heads and without, and the experiment `levels`.

    Args:
        folder: Of the project.
        sections: Of the experiment, beside network and dataset, which have both heads.
    """
    datasets, experiments = folder / "workflows/datasets", folder / "workflows/experiments"
    for path in (datasets, experiments):
        path.mkdir(parents=True)
    for name, frames in zip(HEADS, (LOW, HIGH), strict=True):
        write(datasets / f"{name}.extxyz", frames)
        split = {"val": 0.2, "test": 0.0}
        content = {"sources": [{"path": f"{name}.extxyz"}], "split": split}
        _save(datasets / f"{name}.yaml", content | {"labels": ["energy", "forces"]})
    _save(datasets / "both.yaml", {"parts": [{"dataset": name, "head": name} for name in HEADS]})
    _save(datasets / "mixed.yaml", {"parts": [{"dataset": name} for name in HEADS]})
    content = {"plugin": "mace", "dataset": "both", "model": {**MODEL, "heads": HEADS}}
    _save(experiments / "levels.yaml", content | {"graph": {"cutoff": 4.0}} | sections)
    return Project(folder / "workflows", folder / "results", load_registry())


def _save(path, content):
    path.write_text(yaml.safe_dump({"description": path.stem, **content}))
