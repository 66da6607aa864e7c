"""Agreement of forces and stress with the energies. Oracle: ASE's EMT potential for Cu and Al."""

from __future__ import annotations

from collections import Counter

import ase.units
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT

from pipeline_atoms.importing.agreement import measure_agreement
from pipeline_atoms.importing.stress_check import WorkCheck


def sample_of(atoms: Atoms, *, forces=1.0, stress=1.0, energy=1.0) -> dict:
    """What EMT says of a structure as a sample, labels multiplied with a factor."""
    atoms.calc = EMT()
    return {
        "atomic_numbers": atoms.numbers.astype(np.int32),
        "positions": atoms.positions.copy(),
        "cell": atoms.cell.array.copy(),
        "pbc": atoms.pbc,
        "energy": np.asarray(atoms.get_potential_energy() * energy),
        "forces": atoms.get_forces() * forces,
        **({"stress": atoms.get_stress(voigt=False) * stress} if atoms.pbc.all() else {}),
    }


def make_crystal(numbers=(29, 13, 29, 29)) -> Atoms:
    atoms = bulk("Cu", cubic=True, a=3.75)
    atoms.numbers[:] = numbers
    return atoms


def strain(rng, size=0.01, rattle=0.03, base=None) -> Atoms:
    atoms = make_crystal() if base is None else base.copy()
    atoms.set_cell(atoms.cell.array @ (np.eye(3) + rng.uniform(-size, size, (3, 3))), True)
    atoms.positions += rng.normal(0, rattle, atoms.positions.shape)
    return atoms


def check_structures(structures, n_pairs=64, **factors):
    check = WorkCheck(n_pairs)
    for atoms in structures:
        check.add(sample_of(atoms, **factors))
    return check.measure_agreements()


@pytest.fixture(scope="module")
def strained_frames():
    rng = np.random.default_rng(1)
    return [strain(rng, rattle=0.01) for _ in range(40)]


@pytest.fixture(scope="module")
def rattled_frames():
    rng = np.random.default_rng(2)
    return [strain(rng, size=0.0) for _ in range(40)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.0, "confirmed"),
        (-1.0, "wrong sign"),
        (10.0, "wrong unit"),  # kbar read as GPa
        (0.1, "wrong unit"),
        (1 / ase.units.GPa, "wrong unit"),
        (-10.0, "wrong sign"),
    ],
)
def test_sign_and_unit_of_the_stress(strained_frames, factor, verdict):
    actual = check_structures(strained_frames, stress=factor)["stress"]
    assert actual.verdict == verdict
    assert actual.factor == pytest.approx(1 / factor, rel=0.05)
    assert actual.interval[0] <= actual.factor <= actual.interval[1]
    if factor == 1:
        assert actual.rest_as_given < 0.2 * actual.rest_without < 0.2 * actual.rest_flipped
    if factor == -1:
        assert actual.rest_flipped < 0.2 * actual.rest_without < 0.2 * actual.rest_as_given


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "confirmed"), (-1.0, "wrong sign")])
@pytest.mark.parametrize("rattle", [0.0, 0.03, 0.06])
def test_vibration_does_not_hide_the_sign(rattle, factor, verdict):
    rng = np.random.default_rng(2)
    frames = [strain(rng, size=0.01, rattle=rattle) for _ in range(60)]
    assert check_structures(frames, stress=factor)["stress"].verdict == verdict


@pytest.fixture(scope="module")
def molecules():
    """Molecules wherever they stand, with cells and without."""
    rng, frames = np.random.default_rng(4), []
    for _ in range(40):
        atoms = make_crystal()
        atoms.pbc, atoms.cell = False, rng.uniform(10, 20, 3) * rng.integers(0, 2)
        atoms.positions += rng.normal(0, 0.02, atoms.positions.shape) + rng.normal(0, 5, 3)
        frames.append(atoms)
    return frames


@pytest.mark.parametrize("frames", ["rattled_frames", "molecules"])
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "confirmed"), (-1.0, "wrong sign"), (51.42, "wrong unit")]
)
def test_sign_and_unit_of_the_forces(request, frames, factor, verdict):
    actual = check_structures(request.getfixturevalue(frames), forces=factor)
    assert actual["forces"].verdict == verdict
    assert actual["stress"].verdict == "undetermined"
    assert actual["stress"].pairs == 0


def test_a_wrong_unit_of_the_energy_shows(rattled_frames):
    actual = check_structures(rattled_frames, energy=1 / ase.units.Hartree)["forces"]
    assert actual.verdict == "wrong unit"
    assert actual.factor == pytest.approx(1 / ase.units.Hartree, rel=0.05)


@pytest.mark.slow
def test_shifted_and_wrapped_atoms_are_the_same(strained_frames):
    rng = np.random.default_rng(4)
    moved = [atoms.copy() for atoms in strained_frames]
    for atoms in moved:
        atoms.positions += rng.uniform(-2, 2, 3)
        atoms.wrap()
    actual, plain = check_structures(moved)["stress"], check_structures(strained_frames)["stress"]
    assert actual.factor == pytest.approx(plain.factor, rel=1e-6)
    assert actual.pairs == plain.pairs


def change_sample(sample, i, case, rng):
    """Leave out or spoil a label of the i-th sample."""
    if case == "no forces":
        del sample["forces"]
    elif case == "no stress":
        sample["stress"] = np.full((3, 3), np.nan)
    elif i % 8 == 0:  # each frame makes pairs with four others
        sample["energy"] = sample["energy"] + rng.normal(0, 50)
    return sample


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "n", "verdict"),
    [
        ("no forces", 20, "confirmed"),
        ("a quarter of jumping energies", 40, "confirmed"),
        ("no stress", 10, "undetermined"),
        ("few pairs", 3, "undetermined"),
    ],
)
def test_what_decides(case, n, verdict):
    rng, check = np.random.default_rng(6), WorkCheck(64)
    rattle = 0.0 if case == "no forces" else 0.01
    for i in range(n):
        check.add(change_sample(sample_of(strain(rng, rattle=rattle)), i, case, rng))
    actual = check.measure_agreements()["stress"]
    assert actual.verdict == verdict
    assert case != "no stress" or actual.pairs == 0


def test_frames_too_different_make_no_pairs():
    rng = np.random.default_rng(7)
    far_apart = [strain(rng, size=0.0, base=make_crystal()) for _ in range(10)]
    for i, atoms in enumerate(far_apart):
        atoms.set_cell(atoms.cell.array * (1 + 0.05 * i), scale_atoms=True)
    other_atoms = [make_crystal(numbers) for numbers in ((29, 29, 29, 13), (29, 13, 29, 29))]
    slabs = [strain(rng) for _ in range(10)]
    for atoms in slabs:
        atoms.pbc = (True, True, False)
    for frames in (far_apart, other_atoms, slabs):
        actual = check_structures(frames)
        assert {name: (f.pairs, f.verdict) for name, f in actual.items()} == {
            "forces": (0, "undetermined"),
            "stress": (0, "undetermined"),
        }


def test_pairs_and_memory_are_bounded(strained_frames, monkeypatch):
    monkeypatch.setattr("pipeline_atoms.importing.stress_check._KEPT_ATOMS", 40)
    rng = np.random.default_rng(9)
    check = WorkCheck(16)
    samples = [sample_of(atoms) for atoms in strained_frames]
    for i in range(3000):
        sample = samples[i % len(samples)] | {"atomic_numbers": rng.integers(1, 4, 4)}
        check.add(sample)
        kept = sum(len(s["positions"]) for f in check._families.values() for s in f.values())
        assert kept == check._n_atoms <= 40 + 4
    assert len(check._reservoirs["stress"].get_pairs()) == 16


def test_chance_decides_nothing():
    """Of 2000 sets in which energies and work have nothing to do with each other, hardly any."""
    rng = np.random.default_rng(1)
    verdicts = Counter(
        measure_agreement(rng.normal(0, 1, n), rng.normal(0, 1, n)).verdict
        for n in rng.integers(7, 65, 2000)
    )
    assert verdicts["wrong sign"] + verdicts["wrong unit"] <= 0.01 * 2000


def test_coverage_of_the_interval():
    """Of 2000 samples with heavy-tailed errors 99 % of the intervals hold the true factor."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        work = rng.normal(0, 1, 40)
        low, high = measure_agreement(work + 0.5 * rng.standard_cauchy(40), work).interval
        held += low <= 1.0 <= high
    assert 0.98 <= held / 2000 <= 0.999
