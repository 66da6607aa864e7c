"""A small MACE trained on Stillinger-Weber silicon has its properties; oracle: that potential."""

from dataclasses import replace

import ase.io
import numpy as np
import pytest
from ase.build import bulk

from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.properties.catalogue import compute_properties
from pipeline_core.artifacts import store
from pipeline_core.testing.projects import EXPERIMENT, call, prepare, write_project
from plugins.atoms.properties.stillinger_weber import StillingerWeber
from tiers import exhaustive

DATA = {
    "description": "Silicon",
    "citation": "Stillinger and Weber, Phys. Rev. B 31, 5262 (1985)",
    "sources": [{"path": "silicon.extxyz"}],
    "split": {"val": 0.1, "test": 0.1},
}
SECTIONS = {
    "model": {
        "channels": 16,
        "max_l": 0,
        "lmax": 2,
        "correlation": 2,
        "layers": 1,
        "radial_functions": 12,
        "radial_features": [64, 64],
    },
    "graph": {"cutoff": 3.9},
    "train": {
        "epochs": 200,
        "batch_size": 4,
        "optimizer": {"lr": 2e-2},
        "schedule": {"name": "cosine"},
        "loss": {
            "energy": {"weight": 1.0, "delta": 0.01},
            "forces": {"weight": 1.0, "delta": 0.1},
            "stress": {"weight": 0.05, "delta": 1.0, "unit": "GPa"},
        },
        "ema_decay": 0.98,
    },
}


def make_silicon(seed=0):
    """Return strained and shaken cells, every third with a vacancy on which neighbours close in."""
    random, frames = np.random.default_rng(seed), []
    for number in range(90):
        atoms = bulk("Si", a=5.431, cubic=True)
        if number % 3 == 0:
            vectors = atoms.get_distances(0, range(len(atoms)), mic=True, vector=True)
            nearest = np.linalg.norm(vectors, axis=1) < 2.5
            atoms.positions[nearest] -= random.uniform(0, 0.3) * vectors[nearest]
            del atoms[0]
        strain = random.normal(0, 0.02, (3, 3))
        atoms.set_cell(atoms.cell[:] @ (np.eye(3) + strain), scale_atoms=True)
        atoms.positions += random.normal(0, random.choice([0.02, 0.06, 0.12]), (len(atoms), 3))
        atoms.calc = StillingerWeber()
        atoms.get_potential_energy()
        frames.append(atoms)
    return frames


def ask(path):
    """Return the section `infer` with every property of a structure."""
    sections = ("relax", "eos", "elastic", "phonons", "vacancies")
    return {name: [{"name": "all", "structures": [str(path)]}] for name in sections}


def collect(path, found):
    """Return the numbers that are compared; those of modes are in the file."""
    one = {section: next(iter(found[section]["all"].values())) for section in found}
    with store.open_any(path) as file:
        group = file["properties/phonons/all/silicon"]
        names = group["point_names"].asstr()[:].tolist()
        at_x = group["point_frequencies"][names.index("X")]
    return {
        "lattice constant": one["relax"]["a_A"],
        "bulk modulus": one["eos"]["bulk_modulus_GPa"],
        **{name: one["elastic"][f"{name}_GPa"] for name in ("C11", "C12", "C44")},
        "TA at X": at_x.min(),
        "TO at X": at_x.max(),
        "vacancy": one["vacancies"]["formation_energy_eV"],
        "unrelaxed vacancy": one["vacancies"]["unrelaxed_energy_eV"],
    }


@exhaustive
@pytest.mark.slow
def test_properties_of_silicon(tmp_path):
    """Within 5 %, by the same sections; the test trains for most of a minute."""
    pytest.importorskip("phonopy")
    start = tmp_path / "silicon.extxyz"
    ase.io.write(start, bulk("Si", a=5.4))
    sections = SECTIONS | {"infer": ask(start)}
    project = write_project(tmp_path, "mace", sections, DATA)
    ase.io.write(tmp_path / "workflows/datasets/silicon.extxyz", make_silicon())
    run = replace(project.run(f"mace/{EXPERIMENT}"), device="cpu")
    prepare(run)
    call(run, "train")
    model = collect(run.inference, call(run, "infer")["properties"])

    options = InferOptions.model_validate(sections["infer"])
    with store.create(tmp_path / "exact.h5", "inference", {}) as file:
        exact = compute_properties(
            options, StillingerWeber(), lambda path, _: ase.io.read(path), file
        )
    assert model == pytest.approx(collect(tmp_path / "exact.h5", exact), rel=0.05)
