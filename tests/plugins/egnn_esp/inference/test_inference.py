"""The stage `infer`: files, levels, refusals, and two ranks that write what one writes.

Oracles: readers of the formats, scipy's dense eigenvalues, the matrices of the data.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import ase.io
import h5py
import numpy as np
import pytest
import scipy.linalg
import torch
from ase import Atoms

from forked_ranks import run_on_ranks
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.structure import Structure
from pipeline_core.config.sections import PartitionOptions
from pipeline_egnn_esp.data.bands import compute_levels
from pipeline_egnn_esp.data.datasets import DeepHSource
from pipeline_egnn_esp.data.deeph import read_deeph
from pipeline_egnn_esp.data.matrices import BlockMatrix, is_first
from pipeline_egnn_esp.data.writers import write_cp2k
from pipeline_egnn_esp.inference import forward, memory
from pipeline_egnn_esp.inference.infer import infer_run
from pipeline_egnn_esp.inference.memory import count_matrix_bytes
from pipeline_egnn_esp.inference.options import ESPInferOptions, PredictedStructure
from plugins.egnn_esp import reference, trained
from plugins.egnn_esp.reference import assert_same_blocks, name_blocks
from tiers import exhaustive


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with a trained model; its files are not to be changed."""
    path = tmp_path_factory.mktemp("trained")
    trained.train(path)
    return path


@pytest.fixture
def own(folder, tmp_path):
    """The same project, with a folder of results for this test alone."""
    (tmp_path / "workflows").symlink_to(folder / "workflows")
    for name in ("datasets", "egnn_esp/small/base"):
        (tmp_path / "results" / name).mkdir(parents=True)
        for path in (folder / "results" / name).iterdir():
            (tmp_path / "results" / name / path.name).symlink_to(path)
    return tmp_path


def predict_structure(folder, **structure):
    """Run the stage for one structure; returns run, summary, and the matrices of the file."""
    run = trained.open_run(folder, {"structures": [{"name": "one", **structure}]})
    summary = infer_run(run)["one"]
    path = run.folder / "matrices/one.h5"
    with h5py.File(path) as file:
        names = file["one/atom_pairs"][:].astype(np.int64)
        places = [file[f"one/{k}"][()] for k in ("atomic_numbers", "positions", "cell", "pbc")]
        H, S = (file[f"one/{k}"][:] if k in file["one"] else None for k in "HS")
    matrix = BlockMatrix(Structure(*places), reference.BASIS, names[:, 3:], names[:, :3], H, S)
    return run, summary, matrix


@pytest.mark.slow
def test_the_stage_writes_what_the_readers_read(own, tmp_path):
    """Files of CP2K are those of `write_cp2k`, which `test_sources` reads."""
    run, summary, matrix = predict_structure(own, outputs=["deeph", "cp2k_csr"])
    assert (summary["atoms"], summary["ranks"]) == (12, 1)
    names = np.concatenate([matrix.block_atoms, matrix.block_shift], axis=1)
    np.testing.assert_array_equal(names, np.unique(names, axis=0))  # sorted, and each once
    assert is_first(*matrix.block_atoms.T, matrix.block_shift).all()

    packed = reference.read_packed_frame(run.folder / "matrices/one.h5", "one")
    for quantity in ("hamiltonian", "overlap"):
        assert_same_blocks(packed, matrix, quantity, 0)
    layout = DeepHSource(reader="deeph", path="x")
    read = read_deeph(run.folder / "matrices/one.deeph/hamiltonians.h5", layout)
    for quantity in ("hamiltonian", "overlap"):
        assert_same_blocks(read, matrix, quantity, 1e-13)
    (tmp_path / "cp2k").mkdir()
    for path in write_cp2k(tmp_path / "cp2k", matrix, "one"):
        written = run.folder / "matrices/one.cp2k" / path.name
        assert written.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_levels_are_the_dense_ones_and_the_overlap_that_of_the_data(own):
    wanted = {
        "levels": {},
        "density_of_states": {"width": 0.5, "points": 5000},
        "bands": {"points": 12},
    }
    run, summary, matrix = predict_structure(own, repeat=(1, 1, 2), **wanted)
    dense = np.zeros((2, matrix.n_orbitals, matrix.n_orbitals))
    places = matrix.find_entry_orbitals()
    for total, values in zip(dense, (matrix.hamiltonian, matrix.overlap), strict=True):
        np.add.at(
            total,
            places,
            values * np.where(np.repeat(matrix.is_on_site, matrix.shapes.prod(axis=1)), 0.5, 1),
        )
    H, S = dense + dense.transpose(0, 2, 1)
    expected = scipy.linalg.eigh(H, S, eigvals_only=True)
    with h5py.File(run.inference) as file:
        actual = {name: file[f"one/levels/{name}"][:] for name in ("predicted", "reference")}
        assert file["one/bands/predicted"].shape == (12, matrix.n_orbitals)
        energy, density = (file[f"one/density/{name}"][:] for name in ("energy", "predicted"))
        plan = json.loads(file["one"].attrs["memory"])
    np.testing.assert_allclose(actual["predicted"], expected, atol=1e-8)
    assert np.trapezoid(density, energy) == pytest.approx(matrix.n_orbitals, rel=1e-5)
    assert plan[0]["atoms"] == 24
    # The zero of energies moves all levels alike, so that their distances are those of the data.
    data = reference.read_shipped("tetragonal-2000K")
    folded = np.sort(compute_levels(data, [[0, 0, 0], [0, 0, 0.5]]).ravel())
    np.testing.assert_allclose(np.diff(actual["reference"]), np.diff(folded), atol=1e-8)
    assert summary["levels_mae_eV"] == pytest.approx(
        np.abs(actual["predicted"] - actual["reference"]).mean()
    )


@pytest.mark.slow
def test_levels_near_an_energy_are_among_all(own):
    run, _, matrix = predict_structure(own, levels={"energy": 0.123, "count": 4})
    every = compute_levels(matrix)
    nearest = np.sort(every[np.argsort(np.abs(every - 0.123))[:4]])
    with h5py.File(run.inference) as file:
        np.testing.assert_allclose(file["one/levels/predicted"][:], nearest, atol=1e-7)


@pytest.mark.slow
def test_a_structure_of_a_file_has_no_overlap(own, tmp_path):
    """Its Hamiltonian is that of the sample that was written to the file, with eight decimals."""
    _, _, expected = predict_structure(own)
    one = expected.structure
    path = tmp_path / "cell.extxyz"
    ase.io.write(path, Atoms(one.atomic_numbers, one.positions, cell=one.cell, pbc=True))
    _, _, matrix = predict_structure(own, start=str(path))
    assert matrix.overlap is None
    theirs, n_beyond = name_blocks(expected, "hamiltonian"), 0
    ours = name_blocks(matrix, "hamiltonian")
    for name, block in theirs.items():
        n_beyond += name not in ours
        np.testing.assert_allclose(ours.get(name, np.zeros_like(block)), block, atol=1e-4)
    assert n_beyond > 0  # pairs that only the overlap of the data has


@pytest.mark.slow
def test_atoms_are_shared_by_the_link_of_the_partition_section(own, monkeypatch):
    messages = []

    def choose(*arguments):
        messages.append(arguments[4])
        return choose_owners(*arguments)

    monkeypatch.setattr("pipeline_egnn_esp.inference.infer.choose_owners", choose)
    run = trained.open_run(own, {"structures": [{"name": "one"}]})
    section = {"link": {"latency": 5e-5, "bandwidth": 1e9}}
    section = PartitionOptions.model_validate(section)
    infer_run(replace(run, sections={**run.sections, "partition": section}))
    # Features of degrees 0 to 4 on three channels, in double precision.
    assert messages == [pytest.approx(5e-5 * 1e9 / (8 * 25 * 3))]


def test_another_cutoff_than_that_of_the_model_is_refused(own):
    run = trained.open_run(own, {"structures": [{"name": "one"}]})
    graph = GraphOptions.model_validate({"cutoff": 5.0})
    with pytest.raises(ValueError, match="model"):
        infer_run(replace(run, sections={**run.sections, "graph": graph}))


OXYGEN = {"start": "oxygen.xyz"}


@pytest.mark.parametrize(("structure", "options", "message"), [
    ({"start": "test:7"}, {}, "one: start 'test:7': .* has 1 samples in the split 'test'"),
    ({"start": "no.xyz"}, {}, "neither split:number nor a file"),
    ({"start": "zirconia.extxyz"}, {},
     "one: the basis has no orbitals for Zr, only for O, Hf"),
    ({**OXYGEN, "repeat": (1, 2, 1)}, {}, "not periodic along cell vector 2"),
    ({"levels": {}}, {"dense_orbitals": 10}, "infer.dense_orbitals allows 10; set levels"),
    ({"levels": {"energy": 0, "count": 99}}, {}, "99 levels near an energy of 72 orbitals"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_starts(
    own, tmp_path, monkeypatch, structure, options, message
):
    monkeypatch.chdir(tmp_path)
    ase.io.write("zirconia.extxyz", Atoms("ZrO2", np.eye(3), cell=5 * np.eye(3), pbc=True))
    ase.io.write("oxygen.xyz", Atoms("O2", [[0, 0, 0], [0, 0, 1.2]]))
    run = trained.open_run(own, {"structures": [{"name": "one", **structure}], **options})
    with pytest.raises(ValueError, match=message):
        infer_run(run)
    assert not run.inference.exists()
    assert not (run.folder / "matrices").exists()


def test_what_does_not_fit_into_memory_is_refused_before_anything_starts(own, monkeypatch):
    monkeypatch.setattr(memory, "find_free_bytes", lambda device: 1000)
    run = trained.open_run(own, {"structures": [{"name": "one"}]})
    with pytest.raises(ValueError, match=r"rank 0 would need .* 1 kB are free; .*infer.work"):
        infer_run(run)
    assert not run.inference.exists()
    assert not (run.folder / "matrices").exists()


def test_matrices_that_are_read_back_have_to_fit_too():
    """Counted by hand: 23 bytes an element to read, 35 to write for DeepH, 38 a pair of rows."""
    n_entries, n_rows = 10**9, 3000
    wanted = {"name": "one", "outputs": ["deeph"]}
    taken = count_matrix_bytes(n_entries, n_rows, PredictedStructure.model_validate(wanted))
    assert taken == pytest.approx(58e9, rel=1e-3)
    levels = PredictedStructure.model_validate({**wanted, "levels": {}})
    assert count_matrix_bytes(0, n_rows, levels) == pytest.approx(38 * n_rows**2, rel=0.1)
    assert count_matrix_bytes(n_entries, n_rows, PredictedStructure(name="one")) == 0


@pytest.mark.slow
def test_want_of_memory_is_named_with_the_cure(own, monkeypatch):
    def run_out(self, *arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(forward._Forward, "update_atoms", run_out)
    run = trained.open_run(own, {"structures": [{"name": "one"}], "work_bytes": 2**21})
    message = r"memory in infer\.structures: one on rank 0; .* infer\.work_bytes \(now 2097152\)"
    with pytest.raises(ValueError, match=message):
        infer_run(run)
    assert not run.inference.exists()


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"start": "cell.cif", "levels": {}}, "need the overlap, which 'cell.cif' lacks"),
        ({"start": "cell.cif", "outputs": ["deeph"]}, "need the overlap"),
    ],
)
def test_contradicting_options_are_refused(structure, message):
    with pytest.raises(ValueError, match=message):
        PredictedStructure.model_validate({"name": "one", **structure})
    with pytest.raises(ValueError, match="have to differ"):
        ESPInferOptions.model_validate({"structures": [{"name": "one"}, {"name": "one"}]})


def infer_on_one_and_two(folder, options):
    """Run the stage on one process, then on two; returns the files."""
    run = trained.open_run(folder, options)
    infer_run(run)
    matrices = run.folder / "matrices"
    (matrices / "one.h5").rename(matrices / "one_alone.h5")
    words = [folder, json.dumps(options)]
    done = run_on_ranks("plugins.egnn_esp.inference.test_inference", words, 2)
    assert done.returncode == 0, done.stderr
    return matrices / "one_alone.h5", matrices / "one.h5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repeat", "n_atoms", "work"),
    [([2, 1, 1], 24, 2**24), pytest.param([6, 2, 2], 288, 2**24, marks=exhaustive)],
)
def test_two_ranks_write_what_one_writes(own, repeat, n_atoms, work):
    """The second cell is 30 Å long: room for atoms out of the reach of the other rank."""
    options = {"structures": [{"name": "one", "repeat": repeat}], "work_bytes": work}
    files = infer_on_one_and_two(own, options)
    with h5py.File(trained.open_run(own).inference) as about:
        plans = json.loads(about["one"].attrs["memory"])
    assert len(plans) == 2
    assert sum(rank["atoms"] for rank in plans) == n_atoms
    assert min(rank["atoms"] for rank in plans) > 0
    all_near = n_atoms == 24
    assert all((rank["atoms"] + rank["halo"] == n_atoms) == all_near for rank in plans)
    with h5py.File(files[0]) as alone, h5py.File(files[1]) as both:
        one, two = ({k: data[()] for k, data in file["one"].items()} for file in (alone, both))
    assert one.keys() == two.keys()
    for name in one.keys() - {"H"}:
        np.testing.assert_array_equal(two[name], one[name])
    scale = np.abs(one["H"]).max()
    np.testing.assert_allclose(two["H"], one["H"], rtol=0, atol=1e-12 * scale)


if __name__ == "__main__":
    infer_run(trained.open_run(Path(sys.argv[1]), json.loads(sys.argv[2])))
