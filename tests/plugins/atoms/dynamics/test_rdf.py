"""Oracles: the ideal gas, the shells of the fcc and the rocksalt lattice."""

import ase.build
import numpy as np
import pytest

from pipeline_atoms.dynamics.rdf import compute_radial_distribution


def make_frame(atoms):
    return atoms.positions, np.array(atoms.cell)


@pytest.mark.slow
def test_an_ideal_gas_has_no_structure():
    rng = np.random.default_rng(0)
    cell = 18.0 * (np.eye(3) + 0.2 * rng.random((3, 3)))
    numbers = np.repeat([8, 72], [300, 100])
    frames = [(rng.random((400, 3)) @ cell, cell) for _ in range(40)]

    radii, pairs = compute_radial_distribution(numbers, frames, radius=8.0, n_bins=16)

    assert list(pairs) == ["O-O", "O-Hf", "Hf-Hf"]
    for name, expected in {"O-O": 1 - 1 / 300, "O-Hf": 1.0, "Hf-Hf": 1 - 1 / 100}.items():
        assert pairs[name][4:] == pytest.approx(np.full(12, expected), abs=0.05), name
        weights = radii[4:] ** 2
        mean = np.average(pairs[name][4:], weights=weights)
        assert mean == pytest.approx(expected, abs=0.005), name


def test_shells_of_fcc_stand_where_they_must_and_hold_what_they_must():
    atoms = ase.build.bulk("Ar", "fcc", 4.0)  # one atom: all its neighbours are its own images
    radii, pairs = compute_radial_distribution(
        atoms.numbers, [make_frame(atoms)], radius=6.0, n_bins=600
    )
    density = 1 / atoms.get_volume()
    edges = np.linspace(0, 6, 601)
    coordination = pairs["Ar-Ar"] * density * 4 / 3 * np.pi * np.diff(edges**3)

    shells = {2.8284: 12, 4.0: 6, 4.8990: 24, 5.6569: 12}  # a sqrt(n/2): International Tables
    filled = np.flatnonzero(coordination > 0.5)
    assert radii[filled] == pytest.approx(list(shells), abs=0.0051)
    assert coordination[filled] == pytest.approx(list(shells.values()), rel=1e-9)


def test_unlike_neighbours_of_rocksalt_are_nearest():
    atoms = ase.build.bulk("NaCl", "rocksalt", 5.6, cubic=True)
    radii, pairs = compute_radial_distribution(
        atoms.numbers, [make_frame(atoms)], radius=4.5, n_bins=450
    )

    first = {name: radii[np.flatnonzero(g)[0]] for name, g in pairs.items()}
    assert first["Na-Cl"] == pytest.approx(2.8, abs=0.01)
    assert first["Na-Na"] == first["Cl-Cl"] == pytest.approx(5.6 / np.sqrt(2), abs=0.01)


def test_frames_count_alike_and_unwrapped_atoms_too():
    atoms = ase.build.bulk("Cu", cubic=True).repeat(2)
    rng = np.random.default_rng(1)
    one, two = atoms.copy(), atoms.copy()
    one.rattle(0.1, rng=rng)
    two.rattle(0.2, rng=rng)
    away = two.copy()
    away.positions += rng.integers(-3, 4, (len(two), 3)) @ np.array(two.cell)

    parts = [
        compute_radial_distribution(atoms.numbers, [make_frame(a)])[1]["Cu-Cu"] for a in (one, two)
    ]
    both = compute_radial_distribution(atoms.numbers, [make_frame(one), make_frame(away)])[1][
        "Cu-Cu"
    ]

    assert both == pytest.approx(np.mean(parts, axis=0))
