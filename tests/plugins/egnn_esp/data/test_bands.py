"""Levels and rotations. Oracles: CP2K's own levels, two runs of one rotated molecule, e3nn, ASE."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase.dft.kpoints import monkhorst_pack
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

from pipeline_atoms.readers.cp2k_input import read_structure
from pipeline_atoms.structure import Structure
from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.bands import (
    compute_density_of_states,
    compute_levels,
    compute_levels_near,
    make_band_path,
)
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.csr import read_csr
from pipeline_egnn_esp.data.elements import Elements, Places
from pipeline_egnn_esp.data.matrices import BlockMatrix, find_pairs_within
from pipeline_egnn_esp.data.matrix_checks import compute_asymmetry_about_axis
from plugins.egnn_esp.reference import (
    CP2K,
    WATER,
    WHOLE,
    read_cp2k_levels,
    read_matrices_of,
    read_packed_frame,
    read_printed_levels,
    read_shipped,
    select_within,
)
from plugins.egnn_esp.rotation import rotate_matrix
from real_data import find

OCCUPIED = 48


@pytest.mark.slow
def test_levels_of_a_shipped_frame_are_those_of_cp2k():
    """All 72 levels at the 27 k-points of CP2K's own calculation, as its output prints them.

    Rounding of the shipped numbers moves occupied levels by 0.014 meV and the highest by 0.08 meV.
    """
    k, energies = read_cp2k_levels()
    assert energies.shape == (27, 72)
    actual = compute_levels(read_packed_frame(WHOLE), k)
    assert_allclose(actual, energies, rtol=0, atol=1e-4)
    assert_allclose(actual[:, :OCCUPIED], energies[:, :OCCUPIED], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_the_shipped_matrices_end_at_10_angstrom():
    """As their README says: occupied levels move by 0.5 meV, the highest by 27 meV."""
    k, energies = read_cp2k_levels()
    frame, whole = read_shipped("tetragonal-2000K"), select_within(read_packed_frame(WHOLE), 10)
    error = np.abs(compute_levels(frame, k) - energies)
    assert 4e-4 < error[:, :OCCUPIED].max() < 6e-4
    assert 0.02 < error.max() < 0.03
    ours, theirs = _sort_blocks(frame), _sort_blocks(whole)
    # Half a step of the coarsest rounding each.
    assert_allclose(ours[0], theirs[0], atol=HARTREE * (2.0**-21 + 1.8e-7))
    assert_allclose(ours[1], theirs[1], atol=2.0**-22 + 1.8e-7)


def _sort_blocks(matrix: BlockMatrix) -> np.ndarray:
    """Return Hamiltonian and overlap with the blocks in the order of their names."""
    keys = np.hstack([matrix.block_shift, matrix.block_atoms])
    number = np.repeat(np.arange(len(keys)), matrix.shapes.prod(axis=1))
    rank = np.empty(len(keys), dtype=int)
    rank[np.lexsort(keys.T[::-1])] = np.arange(len(keys))
    order = np.argsort(rank[number], kind="stable")
    return np.stack([matrix.hamiltonian[order], matrix.overlap[order]])


@pytest.mark.parametrize(("run", "basis"), [("chain", {}), ("chain_upper", WATER)])
def test_levels_of_a_skew_chain_are_those_of_cp2k(water_runs, run, basis):
    k, energies = read_printed_levels(water_runs / "chain/levels.bs")
    assert_allclose(
        compute_levels(read_matrices_of(water_runs / run, basis=basis), k), energies, atol=1e-5
    )


def test_levels_of_silicon_are_those_of_cp2k():
    k, energies = read_printed_levels(CP2K / "si8.bs")
    actual = compute_levels(read_matrices_of(find("cp2k/si8_k"), basis={"Si": [0, 1]}), k)
    assert_allclose(actual, energies, atol=1e-4)


def test_two_runs_of_a_rotated_molecule_map_onto_each_other():
    """Orbitals up to f; the Hamiltonian only to the egg-box error of CP2K's grid, 5.2 meV."""
    first, second = (_read_molecule(name) for name in ("rot_a_300", "rot_b_300"))
    rotation = np.load(find("cp2k/rotated_molecule/R.npy"))
    turned = rotate_matrix(first, rotation)
    vectors = [m.structure.positions - m.structure.positions[0] for m in (turned, second)]
    assert_allclose(vectors[0], vectors[1], atol=1e-7)
    assert_allclose(turned.overlap, second.overlap, atol=1e-8)
    assert np.abs(turned.overlap - first.overlap).max() > 0.1
    assert_allclose(turned.hamiltonian, second.hamiltonian, atol=6e-3)


def _read_molecule(name: str) -> BlockMatrix:
    folder = find("cp2k/rotated_molecule") / name
    atoms = read_structure(folder / "job.inp")
    basis = Basis({"Hf": (0, 0, 0, 1, 1, 2, 2, 3), "O": (0, 0, 1, 1, 2)})
    return _gather(folder, atoms, basis, find_pairs_within(atoms, 10))


def _gather(folder: Path, atoms: Structure, basis: Basis, pairs) -> BlockMatrix:
    """Return the matrices of the Gamma point, as they stand in the files."""
    parts, n = [], basis.count_orbitals_per_atom(atoms.atomic_numbers).sum()
    for kind in ("ks-KS", "s-S"):
        row, column, value = read_csr(folder / f"job-{kind}_SPIN_1-1_0.csr", n)
        elements = Elements(np.zeros((len(row), 3), dtype=int), row, column, value)
        parts.append(Places(atoms, basis, *pairs).gather(elements).entries)
    return BlockMatrix(atoms, basis, *pairs, parts[0] * HARTREE, parts[1])


def _move_farther(matrix: BlockMatrix) -> np.ndarray:
    return np.flatnonzero(matrix.lengths > 0.1)


def test_overlaps_are_symmetric_about_the_line_of_two_atoms(water_runs):
    """Slater and Koster: exact for orbitals that are centred at atoms; CP2K's numbers up to d."""
    for matrix in (read_packed_frame(WHOLE), read_matrices_of(water_runs / "chain", cutoff=20)):
        assert compute_asymmetry_about_axis(matrix, _move_farther(matrix)).max() < 1e-6
        positions = np.roll(matrix.structure.positions, 1, axis=0)
        wrong = replace(matrix, structure=replace(matrix.structure, positions=positions))
        assert compute_asymmetry_about_axis(wrong, _move_farther(wrong)).max() > 0.05


def test_overlaps_of_f_orbitals_are_symmetric_about_the_line_of_two_atoms():
    matrix = _read_molecule("rot_b_300")
    assert compute_asymmetry_about_axis(matrix, _move_farther(matrix)).max() < 1e-8


@pytest.mark.parametrize("sign", [1, -1], ids=["rotation", "reflection"])
def test_levels_do_not_depend_on_the_orientation(sign):
    frame = read_shipped("cubic-2000K", "019")
    turned = rotate_matrix(frame, sign * Rotation.random(rng=np.random.default_rng(0)).as_matrix())
    assert_allclose(turned.lengths, frame.lengths, atol=1e-12)
    assert_allclose(
        compute_levels(turned, [0.1, 0.2, 0.3]), compute_levels(frame, [0.1, 0.2, 0.3]), atol=1e-9
    )


def test_levels_near_an_energy_are_the_nearest_of_all():
    frame = read_shipped("monoclinic-2000K")
    k = [0.25, 0.5, 0.1]
    every = compute_levels(frame, k)
    middle = every[40:56].mean()
    nearest = np.sort(every[np.argsort(np.abs(every - middle))[:8]])
    assert_allclose(compute_levels_near(frame, middle, 8, k), nearest, atol=1e-7)


def test_a_density_of_states_counts_them():
    energies = compute_levels(read_shipped("cubic-0600K"), monkhorst_pack([2, 2, 2]))
    assert energies.shape == (8, 72)
    grid = np.linspace(energies.min() - 5, energies.max() + 5, 20_001)
    density = compute_density_of_states(energies, grid, 0.2)
    assert np.trapezoid(density, grid) == pytest.approx(72, rel=1e-9)
    below = compute_density_of_states(energies[:1], grid, 0.2)
    peak = compute_density_of_states([[0.0]], np.array([0.0]), 0.5)[0]
    assert peak == pytest.approx(1 / (0.5 * np.sqrt(2 * np.pi)))
    assert np.trapezoid(below, grid) == pytest.approx(72, rel=1e-9)


def test_a_path_runs_through_the_special_points_of_ase():
    frame = read_shipped("cubic-0600K")
    path = make_band_path(frame, 20, "GX")
    assert path.path == "GX"
    assert_allclose(path.kpts[0], 0)
    with pytest.raises(ValueError, match="no special point"):
        make_band_path(frame, 20, "GQ9")


def test_a_bad_overlap_is_refused():
    frame = read_shipped("cubic-0600K")
    with pytest.raises(ValueError, match=r"not positive definite.*larger cutoff"):
        compute_levels(replace(frame, overlap=frame.overlap - np.where(frame.overlap == 1, 2, 0)))


def test_gamma_levels_are_those_that_the_output_prints(water_runs):
    """A folded run still has the right levels: its matrices are H(0) of the crystal."""
    folder = water_runs / "chain_gamma"
    text = (folder / "out.log").read_text()
    rows = re.findall(r"^ MO\| +\d+ +\S+ +(-?\d+\.\d+) +\S+$", text, re.MULTILINE)
    atoms, basis = read_structure(folder / "job.inp"), Basis({"O": (0, 1), "H": (0,)})
    pairs = np.argwhere(np.triu(np.ones((3, 3)))), np.zeros((6, 3), dtype=int)
    levels = compute_levels(_gather(folder, atoms, basis, pairs))
    assert_allclose(levels, np.array(rows, dtype=float), atol=1e-6)
