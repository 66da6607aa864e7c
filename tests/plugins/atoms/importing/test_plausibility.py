"""Frames that cannot be: each is named and left out, and its limit can be lifted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ase.build import bulk, molecule
from ase.neighborlist import neighbor_list

from pipeline_atoms.config.datasets import Limits
from pipeline_atoms.importing.plausibility import find_implausible
from plugins.atoms.importing.conftest import change_results


def make_sample(atoms, **labels) -> dict:
    structure = {
        "atomic_numbers": atoms.numbers.astype(np.int32),
        "positions": atoms.positions.copy(),
        "cell": atoms.cell.array.copy(),
        "pbc": atoms.pbc,
    }
    return structure | {name: np.asarray(value, dtype=float) for name, value in labels.items()}


def make_good() -> dict:
    atoms = bulk("Cu", cubic=True)
    forces = np.random.default_rng(0).normal(0, 1, (4, 3))
    forces -= forces.mean(axis=0)
    return make_sample(atoms, energy=-14.0, forces=forces, stress=np.eye(3), magmoms=np.ones(4))


def swap(sample) -> dict:
    return sample | {"positions": sample["forces"], "forces": sample["positions"]}


def edit(name, index, value) -> dict:
    sample = make_good()
    sample[name] = sample[name].copy()
    sample[name][index] = value
    return sample


@pytest.mark.parametrize(
    ("limit", "sample", "message"),
    [
        ("length", edit("positions", (2, 1), 1e5), r"coordinate of atom 2 is 1e\+05 Å"),
        ("force", edit("forces", (3, 0), 1e25), r"force of atom 3 is 1e\+25 eV/Å"),
        ("energy", make_good() | {"energy": np.asarray(-1e25)}, r"the energy of an atom"),
        ("stress", edit("stress", (0, 1), 1e4), r"a component of the stress is 1e\+04"),
        ("magmom", edit("magmoms", 1, -80.0), r"the magnetic moment of atom 1 is 80 µB"),
        ("volume", make_good() | {"cell": 0.9 * np.eye(3)}, r"volume of an atom is 0.182 Å³"),
        ("net_force", swap(make_good()), r"as if they were forces"),
        (
            "distance",
            edit("positions", 1, [3.55, 0.0, 0.0]),
            r"of atoms . \(Cu\) and .*0.06 Å, .*0.0227",
        ),
    ],
)
def test_what_cannot_be_is_named_and_may_be_meant(limit, sample, message):
    problem = find_implausible(sample, Limits())
    assert re.search(message, problem), problem
    assert f"set limits.{limit} of the source" in problem
    after = find_implausible(sample, Limits(**{limit: None}))
    assert after is None or f"limits.{limit}" not in after


def test_common_structures_are_plausible():
    dimer = molecule("H2")
    dimer.positions[1] = dimer.positions[0] + [0, 0, 0.3]  # far up the repulsive wall
    water = molecule("H2O")
    water.positions -= water.positions.mean(axis=0)
    forces = np.array([[2.0, 0, 0], [-1, 0, 0], [-1, 0, 1e-4]])
    for sample in (make_good(), make_sample(dimer), make_sample(water, forces=forces)):
        assert find_implausible(sample, Limits()) is None
    assert "is 1e+300 Å" in find_implausible(edit("positions", (2, 1), 1e300), Limits())
    for height in (1e-3, 1e-9):  # whose neighbours would take all memory
        flat = make_good() | {"cell": np.diag([1e3, 1e3, height])}
        assert "much smaller than an atom" in find_implausible(flat, Limits(volume=None))


@pytest.mark.parametrize("pbc", ["TTT", "TFT", "FFF"])
@pytest.mark.parametrize("skew", [0.0, 2.5])
def test_the_nearest_pair_is_that_of_ase(pbc, skew):
    atoms = bulk("Cu", cubic=True).repeat((2, 1, 2))
    atoms.cell[1, 0] += skew
    atoms.pbc = [letter == "T" for letter in pbc]
    atoms.rattle(1.5, seed=3)
    nearest = neighbor_list("d", atoms, 2.6).min()
    assert f" {nearest:.3g} Å" in find_implausible(make_sample(atoms), Limits(distance=0.99))


def test_the_import_names_file_and_frame(workshop, alloys):
    wrong = change_results(alloys[7])
    wrong.positions[1] = wrong.positions[0] + 0.05
    path = workshop.write("raw/a.xyz", [*alloys[:7], wrong, *alloys[8:]])
    run, summary = workshop.import_()
    assert (summary["samples"], summary["skipped"]) == (59, 1)
    assert f"such as {path}: frame 7: the distance of atoms 0" in summary["warnings"][0]
    with pytest.raises(ValueError, match=r"a.xyz: frame 7: the distance .*strict: false"):
        workshop.import_(strict=True)
    source = {"path": "raw/*.xyz", "limits": {"distance": None}}
    assert workshop.import_(sources=[source])[1]["samples"] == 60
    assert run.data.exists()
