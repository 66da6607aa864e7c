"""Every bad input stops the data stage; the message says where and what to do; no file appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ase.units
import numpy as np
import pytest
from ase import Atoms

from plugins.atoms.importing.conftest import change_results, label_atoms


def keep(frames):
    return frames


def drop_half_of_stress(frames):
    return [change_results(a, stress=None) if i % 2 else a for i, a in enumerate(frames)]


def drop_stress(frames):
    return [change_results(a, stress=None) for a in frames]


def scale_stress(factor):
    return lambda frames: [
        change_results(a, stress=factor * a.get_stress(voigt=False)) for a in frames
    ]


def scale_energies(frames):
    """Energies in kcal/mol and forces in kcal/mol/Å, beside a stress in eV/Å³."""
    factor = ase.units.mol / ase.units.kcal
    return [
        change_results(a, energy=a.get_potential_energy() * factor, forces=a.get_forces() * factor)
        for a in frames
    ]


def reverse_forces(frames):
    """Same cells, opposite forces."""
    rng, result = np.random.default_rng(0), []
    for _ in range(20):
        moved = frames[0].copy()
        moved.positions += rng.normal(0, 0.03, (4, 3))
        moved = label_atoms(moved)
        result.append(change_results(moved, forces=-moved.get_forces()))
    return result


def rename_labels(frames):
    result = []
    for atoms in frames:
        copy = atoms.copy()
        copy.info["REF_energy"] = atoms.get_potential_energy()
        copy.arrays["REF_forces"] = atoms.get_forces()
        copy.info["REF_stress"] = atoms.get_stress(voigt=False)
        result.append(copy)
    return result


class Case(NamedTuple):
    """What is written, how it is cut, what the dataset file says, and words of the message."""

    frames: Callable[[list[Atoms]], list[Atoms]]
    dataset: dict[str, Any]
    words: tuple[str, ...]
    cut: Callable[[str], str] = str


STRICT = {"strict": True}
KCAL = {"energy": "kcal/mol", "force": "kcal/mol/angstrom"}
CASES = {
    "truncated file": Case(
        keep, STRICT, ("a.xyz: frame 59", "truncated", "strict: false"), lambda text: text[:-30]
    ),
    "truncated within the first frame": Case(
        keep, {}, ("none of 1 frames", "'extxyz' is the right reader"), lambda text: text[:250]
    ),
    "empty file": Case(keep, {}, ("a.xyz", "holds no frames"), lambda text: ""),
    "stress on half of the frames": Case(
        drop_half_of_stress,
        {},
        ("stress is missing in 30 of 60", "first in raw/a.xyz, frame 1", "`partial`", "`labels`"),
    ),
    "stress on no frame": Case(
        drop_stress, {}, ("none of 60 frames has stress", "energy, forces", "remove stress")
    ),
    "stress with the wrong sign": Case(
        scale_stress(-1),
        {},
        ("'raw/*.xyz'", "stress: wrong sign", "set units.stress_sign: pressure"),
    ),
    "stress in another unit": Case(
        scale_stress(1602.1766),
        {},
        ("stress: wrong unit", "units.stress is eV/angstrom^3, kbar would fit"),
    ),
    "energies in another unit": Case(
        scale_energies,
        {},
        ("stress: wrong unit", "; units.energy is eV, kcal/mol would fit"),
    ),
    "energies in the wrong declared unit": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "units": KCAL}]},
        (
            "stress: wrong unit",
            "units.energy is kcal/mol, eV would fit",
            "units.stress is eV/angstrom^3, kcal/mol/angstrom^3 would fit",
        ),
    ),
    "a factor that is no unit's": Case(
        scale_stress(1 / 6),
        {},
        ("no other unit of stress or energies alone would fit", "units.length"),
    ),
    "gradients for forces": Case(reverse_forces, {}, ("forces: wrong sign", "negate")),
    "keys that differ": Case(
        rename_labels,
        {},
        ("none of 60 frames has energy", "did you mean 'REF_energy'", "set keys.energy"),
    ),
    "a key for another label alone": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "keys": {"energy": "energy"}}]},
        ("none of 60 frames has forces", "add keys.forces"),
    ),
    "no file": Case(
        keep,
        {"sources": [{"path": "row/*.xyz"}]},
        ("alloys.yaml:", "sources.0.path: no file matches 'row/*.xyz' in", "datasets"),
    ),
    "an unknown unit": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "units": {"stress": "Gpa"}}]},
        ("alloys.yaml: sources.0.units", "did you mean 'GPa'"),
    ),
    "an unknown reader": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "reader": "extxzy"}]},
        ("sources.0.reader", "did you mean 'extxyz'"),
    ),
    "a file in two sources": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz"}, {"path": "raw/a.*"}]},
        ("raw/a.xyz also belongs to", "'raw/*.xyz'", "disjoint"),
    ),
    "a group that no frame has": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "group": "foldr"}]},
        ("group 'foldr'", "did you mean 'folder'"),
    ),
    "a group split without groups": Case(
        keep, {"split": {"method": "group"}}, ("declares no `group`", "'group' needs")
    ),
    "a group that does not exist": Case(
        keep,
        {
            "sources": [{"path": "raw/*.xyz", "group": "file"}],
            "split": {"method": "list", "val_groups": ["b.xyz"]},
        },
        ("split.val_groups: no group matches 'b.xyz'", "did you mean 'a.xyz'"),
    ),
    "nothing left to train on": Case(
        keep,
        {"sources": [{"path": "raw/*.xyz", "split": "test"}]},
        ("alloys.yaml", "no sample for training", "60 test"),
    ),
    "absurd reference energies": Case(
        keep, {"max_reference_energy": 1e-6}, ("absurd", "max_reference_energy = 1e-06 eV")
    ),
    "a missing reference energy": Case(
        keep, {"reference_energies": {"Cu": -1.0}}, ("no energy for Al", "least_squares")
    ),
    "a partial label that is not kept": Case(
        keep, {"labels": ["energy"], "partial": ["stress"]}, ("stress is not in `labels`",)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_message_and_no_file(workshop, alloys, case):
    path = workshop.write("raw/a.xyz", case.frames(alloys))
    path.write_text(case.cut(path.read_text()))
    run = workshop.dataset(**case.dataset)
    with pytest.raises(ValueError, match=r"alloys\.yaml|a\.xyz") as caught:
        workshop.registry.select_hook("data", None)(run=run)
    message = str(caught.value)
    assert [word for word in case.words if word not in message] == [], message
    assert not run.folder.exists() or list(run.folder.iterdir()) == []


def test_a_failed_import_leaves_the_earlier_one_alone(workshop, alloys):
    path = workshop.write("raw/a.xyz", alloys)
    run, _ = workshop.import_()
    before = run.data.read_bytes(), run.report.read_bytes()
    path.write_text(path.read_text()[:250])
    with pytest.raises(ValueError, match="none of 1 frames"):
        workshop.import_()
    assert (run.data.read_bytes(), run.report.read_bytes()) == before
