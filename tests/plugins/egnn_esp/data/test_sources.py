"""Reading and writing matrices, and the data stage.

Oracles: CP2K's two triangles, its images and its Gamma point; what was written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import DatasetRun
from pipeline_core.stages.builtin import load_registry
from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.bands import compute_levels
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.cp2k_log import read_log
from pipeline_egnn_esp.data.csr import read_csr
from pipeline_egnn_esp.data.datasets import DeepHSource, MatrixDataset
from pipeline_egnn_esp.data.deeph import read_deeph, write_deeph
from pipeline_egnn_esp.data.matrices import BlockMatrix, find_pairs_within, is_first
from pipeline_egnn_esp.data.matrix_checks import require_sound
from pipeline_egnn_esp.data.stage import make_data, read_basis, read_matrix
from pipeline_egnn_esp.data.writers import write_cp2k
from plugins.egnn_esp.reference import (
    HAFNIA,
    ROOT,
    WATER,
    WHOLE,
    read_matrices_of,
    read_shipped,
    select_within,
    write_dataset,
)
from real_data import find
from tiers import run_first

DEEPH = DeepHSource(reader="deeph", path="hamiltonians.h5")


def read_one_image(folder: Path, kind: str, number: int) -> np.ndarray:
    name = {"KS": "ks-KS", "S": "s-S"}[kind]
    matrix = np.zeros((6, 6))
    row, column, value = read_csr(folder / f"job-{name}_SPIN_1_R_{number}-1_0.csr", 6)
    matrix[row, column] = value
    return matrix


def fill_dense(matrix: BlockMatrix, quantity: str, shift) -> np.ndarray:
    """Return the matrix of one image, both members of hermitian pairs put in."""
    counts = matrix.basis.count_orbitals_per_atom(matrix.structure.atomic_numbers)
    starts = np.cumsum(counts) - counts
    whole = np.zeros((counts.sum(), counts.sum()))
    for block, (i, j), R in zip(
        matrix.iterate_blocks(quantity), matrix.block_atoms, matrix.block_shift, strict=True
    ):
        rows, columns = np.arange(counts[i]) + starts[i], np.arange(counts[j]) + starts[j]
        if (shift == R).all():
            whole[np.ix_(rows, columns)] = block
        if (-np.array(shift) == R).all():
            whole[np.ix_(columns, rows)] = block.T
    return whole


@pytest.mark.slow
def test_every_image_of_a_run_is_in_its_blocks(water_runs):
    folder = water_runs / "chain"
    matrix = read_matrices_of(folder, cutoff=13.0)
    images = read_log(folder / "out.log").images
    assert len(images["KS"]) == 53
    for number, image in enumerate(images["KS"], 1):
        H, S = (read_one_image(folder, kind, number) for kind in ("KS", "S"))
        assert_allclose(fill_dense(matrix, "hamiltonian", image), H * HARTREE, atol=1e-9)
        assert_allclose(fill_dense(matrix, "overlap", image), S, atol=1e-10)


def test_upper_triangles_in_binary_files_give_the_same(water_runs):
    full = read_matrices_of(water_runs / "chain", cutoff=15.0)
    upper = read_matrices_of(water_runs / "chain_upper", cutoff=15.0, basis=WATER)
    assert upper.basis == full.basis
    assert_array_equal(upper.block_shift, full.block_shift)
    assert_allclose(upper.overlap, full.overlap, atol=1e-12)
    assert_allclose(upper.hamiltonian, full.hamiltonian, atol=1e-9)


def test_positions_may_be_those_of_a_restart_file(moved):
    """Oracles: CP2K's trajectory, and the levels that it prints after the last step."""
    matrix = read_matrices_of(moved, basis=WATER, cutoff=15.0, structure="job-1.restart")
    require_sound(matrix)
    frame = (moved / "job-pos-1.xyz").read_text().splitlines()[-3:]
    last = np.array([line.split()[1:] for line in frame], dtype=float)
    images = (last - matrix.structure.positions) @ np.linalg.inv(matrix.structure.cell)
    assert_allclose(images, np.rint(images), atol=1e-9)
    assert not (images == 0).all()
    rows = re.findall(r"^ MO\| +\d+ +(-?\d+\.\d+) .*\d$", (moved / "out.log").read_text(), re.M)
    printed = np.array(rows, dtype=float).reshape(2, 3, 6) * HARTREE  # steps, k-points, levels
    assert_allclose(
        compute_levels(matrix, np.outer([-1, 0, 1], [0, 0, 1 / 3])), printed[1], atol=1e-6
    )
    with pytest.raises(ValueError, match="the images refer to other positions"):
        require_sound(
            read_matrices_of(moved, basis=WATER, cutoff=15.0)
        )  # with the input, the first ones


def test_the_images_are_those_that_the_last_step_lists(moved):
    options = {"basis": WATER, "cutoff": 15.0, "structure": "job-1.restart"}
    expected = read_matrices_of(moved, **options)
    text = (moved / "out.log").read_text()
    second = "         2     -1      0      0\n"  # image; of the first step alone
    other = text.replace(second, second.replace("-1", "-9"), 1)
    assert other != text
    (moved / "out.log").write_text(other)
    assert_array_equal(read_matrices_of(moved, **options).hamiltonian, expected.hamiltonian)


def test_images_add_up_to_the_gamma_point(water_runs, chain):
    """CP2K's overlap of another run, of the Gamma point alone."""
    gamma = water_runs / "chain_gamma/job-s-S_SPIN_1-1_0.csr"
    row, column, value = read_csr(gamma, 6)
    folded = np.zeros((6, 6))
    folded[row, column] = folded[column, row] = value
    matrix = read_matrices_of(chain, cutoff=13.0)
    images = read_log(chain / "out.log").images["S"]
    total = sum(fill_dense(matrix, "overlap", image) for image in images)
    assert_allclose(total, folded, atol=1e-8)
    (chain / gamma.name).write_bytes(gamma.read_bytes())
    assert_array_equal(read_matrices_of(chain, cutoff=13.0).overlap, matrix.overlap)


def test_a_large_gamma_cell_is_read_as_its_nearest_images(tmp_path):
    """Oracle: the same molecule without periods. An atom in the middle goes to another corner."""
    matrix = _read_gamma(tmp_path, "XYZ", cutoff=7.0)
    free = _read_gamma(tmp_path, "NONE", cutoff=7.0)
    assert_allclose(np.sort(matrix.overlap), np.sort(free.overlap), atol=1e-14)
    require_sound(matrix)
    assert np.abs(matrix.structure.positions).max() <= 7
    assert matrix.block_shift.any()


def _read_gamma(folder: Path, periodic: str, cutoff: float) -> BlockMatrix:
    own = folder / periodic
    own.mkdir()
    source = find("cp2k/rotated_molecule/rot_a_300")
    for path in source.glob("*.csr"):
        (own / path.name).write_bytes(path.read_bytes())
    text = (source / "job.inp").read_text()
    (own / "job.inp").write_text(text.replace("PERIODIC NONE", f"PERIODIC {periodic}"))
    (own / "out.log").write_text(
        " CP2K| Input file name    job.inp\n GLOBAL| Project name    job\n"
        "    - Atoms:    3\n    - Shells:     18\n    - Spherical basis functions:    52\n"
        " PROGRAM ENDED AT\n"
    )
    basis = {"Hf": [0, 0, 0, 1, 1, 2, 2, 3], "O": [0, 0, 1, 1, 2]}
    return read_matrices_of(own, cutoff=cutoff, basis=basis)


def test_an_output_that_was_appended_to_counts_from_its_last_run(chain):
    log = chain / "out.log"
    log.write_text(log.read_text().replace("53 periodic", "54 periodic") + log.read_text())
    assert len(read_log(log).images["KS"]) == 53


@pytest.mark.slow
@pytest.mark.parametrize("frame", run_first(["000", "019"]))
def test_matrices_survive_the_layout_of_deeph(tmp_path, frame):
    matrix = select_within(read_shipped("monoclinic-2000K", frame), 6.0)
    write_deeph(tmp_path, matrix)
    again = read_deeph(tmp_path / "hamiltonians.h5", DEEPH)
    _assert_same(again, matrix)
    with h5py.File(tmp_path / "hamiltonians.h5") as file:
        assert len(file) == 2 * len(matrix.block_atoms) - 12
        # p of OpenMX is (x, y, z), ours (y, z, x); d is (z², x²-y², xy, xz, yz).
        ours = matrix.get_block("hamiltonian", int(np.flatnonzero(matrix.is_on_site)[0]))
        order = [0, 1, 4, 2, 3, 7, 9, 5, 8, 6]
        assert_array_equal(file["[0, 0, 0, 1, 1]"][()], ours[np.ix_(order, order)])


def _assert_same(again: BlockMatrix, matrix: BlockMatrix, tolerance: float = 0.0) -> None:
    assert_array_equal(again.structure.atomic_numbers, matrix.structure.atomic_numbers)
    assert_allclose(again.structure.positions, matrix.structure.positions, atol=1e-12)
    assert_allclose(again.structure.cell, matrix.structure.cell, atol=1e-12)
    assert again.basis == matrix.basis

    def by_name(one: BlockMatrix):
        keys = map(tuple, np.hstack([one.block_shift, one.block_atoms]).tolist())
        blocks = map(one.iterate_blocks, ("hamiltonian", "overlap"))
        return dict(zip(keys, zip(*blocks, strict=True), strict=True))

    ours, theirs = by_name(again), by_name(matrix)
    assert ours.keys() == theirs.keys()
    for key, blocks in ours.items():
        assert_allclose(blocks, theirs[key], rtol=0, atol=tolerance, err_msg=str(key))


@pytest.mark.slow
def test_matrices_survive_the_files_of_cp2k(tmp_path):
    matrix = read_shipped("cubic-2000K", "003")
    files = write_cp2k(tmp_path, matrix)
    images = [tuple(map(int, line.split()[1:])) for line in files[-1].read_text().splitlines()[1:]]
    assert images[0] == (0, 0, 0)
    for number, image in list(enumerate(images, 1))[:30]:
        for kind, quantity, unit in (("KS", "hamiltonian", HARTREE), ("S", "overlap", 1.0)):
            path = tmp_path / f"job-{kind.lower()}-{kind}_SPIN_1_R_{number}-1_0.csr"
            row, column, value = read_csr(path, 72)
            actual = np.zeros((72, 72))
            actual[row, column] = value * unit
            assert_allclose(actual, fill_dense(matrix, quantity, image), rtol=1e-15, atol=0)


def test_blocks_are_one_of_each_pair_of_the_engines_graph():
    atoms = read_shipped("cubic-0600K").structure
    block_atoms, block_shift = find_pairs_within(atoms, 6.0)
    index, shift, _ = build_neighbour_graph(atoms.positions, atoms.cell, atoms.pbc, 6.0)
    assert len(block_atoms) == len(index) / 2 + 12
    edges = {
        (*s, i, j) for (i, j), s in zip(index.tolist(), map(tuple, shift.tolist()), strict=True)
    }
    ours = set(map(tuple, np.hstack([block_shift, block_atoms]).tolist()))
    twins = {(-x, -y, -z, j, i) for x, y, z, i, j in ours}
    assert ours | twins == edges | {(0, 0, 0, i, i) for i in range(12)}
    assert is_first(*block_atoms.T, block_shift).all()


@pytest.mark.slow
def test_the_shipped_dataset_holds_out_whole_runs(tmp_path):
    path = ROOT / "workflows/datasets/hfo2_matrices.yaml"
    import yaml

    options = MatrixDataset.model_validate(yaml.safe_load(path.read_text()))
    folder = tmp_path / "results/datasets/hfo2_matrices"
    run = DatasetRun("hfo2_matrices", path, options, folder, load_registry())
    summary = make_data(run)
    assert (summary["samples"], summary["train"], summary["val"], summary["test"]) == (79, 65, 7, 7)
    assert summary["warnings"] == []
    report = json.loads(run.report.read_text())
    assert report["groups"]["largest"]["tetragonal-2000K"] == {"train": 0, "val": 0, "test": 7}
    assert report["common_shells"] == [0, 0, 1, 2]
    with SampleFile(run.data, "data") as data:
        assert read_basis(data) == Basis({"Hf": (0, 0, 1, 2), "O": (0, 1)})
        assert json.loads(data.attributes["elements"]) == [8, 72]
        place = data.read_column("source").tolist().index("hfo2/matrices/cubic-2000K.h5:013")
        assert data.read_column("group")[place] == "cubic-2000K"
        assert SPLITS[data.read_column("split")[place]] == "train"
        _assert_same(
            read_matrix(data.read(place), read_basis(data)), read_shipped("cubic-2000K", "013")
        )
    assert "hfo2/matrices/cubic-2000K.h5" in read_provenance(run.data)["inputs"]


@pytest.mark.slow
def test_sources_of_all_kinds_make_one_dataset(water_runs, tmp_path):
    write_deeph(tmp_path / "deeph/a", read_matrices_of(water_runs / "chain"))
    sources = [
        {"reader": "cp2k_matrices", "path": f"{water_runs}/*/out.log", "group": "folder",
         "basis": WATER},
        {"reader": "deeph", "path": f"{tmp_path}/deeph/*/hamiltonians.h5", "split": "test"},
        {"reader": "packed", "path": str(WHOLE), "basis": HAFNIA, "cutoff": 5.0,
         "split": "train"},
    ]  # fmt: skip
    (water_runs / "chain_gamma/out.log").rename(water_runs / "chain_gamma/kept.log")
    try:
        run = write_dataset(tmp_path, *sources, split={"method": "list", "val_groups": ["chain_*"]})
        summary = make_data(run)
    finally:
        (water_runs / "chain_gamma/kept.log").rename(water_runs / "chain_gamma/out.log")
    # The same structure thrice, once by name in the test: so all of them are.
    assert (summary["train"], summary["val"], summary["test"]) == (1, 0, 3)
    assert "2 samples have the structure of an earlier one" in summary["warnings"][-1]
    with SampleFile(run.data, "data") as data:
        basis = read_basis(data)
        assert basis.common == (0, 0, 1, 2)
        samples = [read_matrix(data.read(i), basis) for i in range(4)]
        assert_array_equal(data.read_column("group")[:3], ["chain", "chain_upper", "deeph"])
    assert samples[3].lengths.max() < 5
    assert_allclose(samples[1].hamiltonian, samples[0].hamiltonian, atol=1e-9)
    order = samples[2].overlap.sum(), samples[2].hamiltonian.sum()
    assert order == pytest.approx((samples[0].overlap.sum(), samples[0].hamiltonian.sum()))
    content = json.loads(run.report.read_text())
    assert content["largest"]["images"] == 53
