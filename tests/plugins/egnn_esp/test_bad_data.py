"""Bad input: each error names the file, what is wrong with it, and what to do."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_core.run import DatasetRun
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.checks import require_sound
from pipeline_egnn_esp.datasets import CP2KSource
from pipeline_egnn_esp.matrices import BlockMatrix
from pipeline_egnn_esp.sources import make_data
from pipeline_egnn_esp.sources.csr import read_csr, write_csr
from pipeline_egnn_esp.sources.deeph import write_deeph
from plugins.egnn_esp.reference import (
    WATER,
    change_file,
    read_matrices_of,
    read_shipped,
    refuse,
    write_dataset,
)

KS = "job-ks-KS_SPIN_1_R_{}-1_0.csr"
S = "job-s-S_SPIN_1_R_{}-1_0.csr"


def make_cp2k_dataset(folder: Path, **options: Any) -> DatasetRun:
    source = {"reader": "cp2k_matrices", "path": f"{folder}/out.log", **options}
    return write_dataset(folder.parent, source, split={"val": 0, "test": 0})


def test_a_single_atom_is_sound():
    matrix = read_shipped("cubic-0600K")
    atoms = matrix.structure
    alone = BlockMatrix(
        replace(atoms, atomic_numbers=atoms.atomic_numbers[:1], positions=atoms.positions[:1]),
        matrix.basis,
        np.zeros((1, 2), dtype=int),
        np.zeros((1, 3), dtype=int),
        np.zeros(100),
        np.eye(10).ravel(),
    )
    require_sound(alone)
    with pytest.raises(ValueError, match="overlaps with itself by 2"):
        require_sound(replace(alone, overlap=2 * alone.overlap))


def test_what_is_changed_below_is_sound(chain):
    assert make_data(make_cp2k_dataset(chain))["samples"] == 1


def test_a_text_file_that_ends_within_a_number(chain):
    path = chain / KS.format(1)
    path.write_bytes(path.read_bytes()[:-5])
    refuse(make_cp2k_dataset(chain), re.escape(path.name), "truncated.*last line", "write it again")


def test_a_text_file_that_ends_within_a_line(chain):
    path = chain / KS.format(1)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:14], ""]))
    refuse(make_cp2k_dataset(chain), re.escape(path.name), "is no matrix of CP2K", "write it again")


@pytest.mark.parametrize(("name", "message"), [
    (KS, "hamiltonian is not hermitian: .* differ by up to .* eV; a part of it may be missing"),
    (S, "overlaps with itself by 0, .* not complete"),
])  # fmt: skip
def test_a_text_file_that_ends_between_lines(chain, name, message):
    change_file(chain / name.format(1), lambda text: "".join(text.splitlines(keepends=True)[:15]))
    refuse(make_cp2k_dataset(chain), "out.log", message)


def test_an_upper_triangle_that_ends_between_records(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    path = folder / S.format(1)
    path.write_bytes(path.read_bytes()[: 24 * 3])
    refuse(
        make_cp2k_dataset(folder, basis=WATER),
        "orbital . overlaps with itself by 0",
        "not complete",
    )


def test_a_binary_file_that_ends_within_a_record(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    path = folder / KS.format(3)
    path.write_bytes(path.read_bytes()[:-7])
    refuse(
        make_cp2k_dataset(folder, basis=WATER), re.escape(path.name), "truncated: .* records of 24"
    )


def test_a_binary_file_with_bytes_in_excess(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    path = folder / KS.format(3)
    content = path.read_bytes()
    path.write_bytes(content[:48] + b"\0" * 4 + content[48:-4])
    refuse(
        make_cp2k_dataset(folder, basis=WATER),
        re.escape(path.name),
        "damaged: a record has no mark",
    )


@pytest.mark.parametrize(("basis", "words"), [
    ({"O": [0, 1, 1], "H": [0]}, ["5 shells and 9 orbitals, the output says 4 and 6", "correct"]),
    ({"O": [0, 1]}, ["no shells are known of H", "such as H: "]),
    ({"O": [0, 0, 0, 0], "H": [0]}, ["6 shells and 6 orbitals"]),
    ({"O": [1, 0], "H": [0]}, ["not symmetric about the line", "correct"]),
])  # fmt: skip
def test_a_wrong_basis(chain, basis, words):
    refuse(make_cp2k_dataset(chain, basis=basis), "out.log", *words)


def test_an_output_without_basis(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    refuse(
        make_cp2k_dataset(folder),
        "out.log",
        "no shells are known of O",
        "PRINT_LEVEL MEDIUM.*basis",
    )


def test_the_output_knows_the_order_of_its_atoms(chain):
    change_file(chain / "job.inp", lambda text: _swap(text, "O 4.2 4.6 2.6", "H 4.9 5.0 2.1"))
    refuse(make_cp2k_dataset(chain), "out.log", "atom 0 is H in the structure and O in the output")


def test_exchanged_atoms_of_different_elements(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    change_file(folder / "job.inp", lambda text: _swap(text, "O 4.2 4.6 2.6", "H 4.9 5.0 2.1"))
    refuse(
        make_cp2k_dataset(folder, basis=WATER),
        "not symmetric about the line|shells of degree",
        "order of the matri",
    )


def test_folded_matrices_of_the_gamma_point(water_runs, tmp_path):
    folder = Path(shutil.copytree(water_runs / "chain_gamma", tmp_path / "run"))
    words = "cell that is 3.1 Å across, with a cutoff of 12 Å: they are folded"
    refuse(
        make_cp2k_dataset(folder, basis=WATER),
        "out.log",
        words,
        "REAL_SPACE .TRUE.",
        "at least 24 Å",
    )


def test_a_cutoff_that_hides_the_folding(water_runs, tmp_path):
    """Oracle: CP2K's folded overlap of an orbital with itself and its images."""
    folder = Path(shutil.copytree(water_runs / "chain_gamma", tmp_path / "run"))
    run = make_cp2k_dataset(folder, basis=WATER, cutoff=1.5)
    refuse(run, "orbital . overlaps with itself by", "they are folded")


def test_images_of_a_run_beside_the_gamma_point_of_another(chain, water_runs):
    gamma = "job-s-S_SPIN_1-1_0.csr"
    shutil.copy(water_runs / "chain_gamma" / gamma, chain)
    row, column, value = read_csr(chain / gamma, 6)
    write_csr(chain / gamma, row, column, value + 1e-3)
    refuse(make_cp2k_dataset(chain), "out.log", re.escape(gamma), "differs from", "separate them")


def test_a_missing_image(chain):
    (chain / S.format(7)).unlink()
    refuse(make_cp2k_dataset(chain), "out.log", "no file job-.*S_SPIN_1_R_7", "S_CSR_WRITE")


def test_a_spin_polarised_run(chain):
    shutil.copy(chain / KS.format(1), chain / KS.format(1).replace("SPIN_1", "SPIN_2"))
    refuse(make_cp2k_dataset(chain), "SPIN_2", "spin-polarised", "without UKS")


def test_two_steps_of_a_run(chain):
    shutil.copy(chain / KS.format(1), chain / KS.format(1).replace("-1_0", "-1_1"))
    refuse(make_cp2k_dataset(chain), "second file of the same matrix", "last step alone")


@pytest.mark.parametrize(("old", "new", "words"), [
    ("PROGRAM ENDED AT", "", ["no complete output", "let the run end"]),
    ("SCF run converged", "SCF run NOT converged", ["did not converge", "MAX_SCF"]),
    ("        53      ", "        fifty-three", ["is not complete"]),
    ("- Shells: ", "- Shelves: ", ["no output of CP2K's Quickstep"]),
])  # fmt: skip
def test_a_bad_output(chain, old, new, words):
    change_file(chain / "out.log", lambda text: text.replace(old, new))
    refuse(make_cp2k_dataset(chain), "out.log", *words)


def test_a_missing_input(chain):
    (chain / "job.inp").unlink()
    refuse(make_cp2k_dataset(chain), "out.log", "job.inp does not lie beside it", "`structure`")


def test_the_input_of_another_run(chain):
    change_file(chain / "job.inp", lambda text: text.replace("      H 4.0 5.2 3.3\n", ""))
    refuse(make_cp2k_dataset(chain), "structure has 2 atoms, the output 3", "of this run")


@pytest.mark.parametrize(("old", "new", "words"), [
    ("A 9.0 0.0 0.0", "A 9.1 0.0 0.0", ["cell of the input and of the output differ by .* 0.1 Å"]),
    ("H 4.0 5.2 3.3", "H 4.0 5.3 3.3", ["positions of the input", "restart file"]),
    ("H 4.0 5.2 3.3", "H 4_0 5.2 3.3", ["underscore"]),
])  # fmt: skip
def test_an_input_that_is_not_what_the_output_prints(chain, old, new, words):
    change_file(chain / "job.inp", lambda text: text.replace(old, new))
    refuse(make_cp2k_dataset(chain), *words)


def test_an_element_that_does_not_exist(chain):
    change_file(chain / "job.inp", lambda text: text.replace("O 4.2", "Qq 4.2"))
    refuse(make_cp2k_dataset(chain), "job.inp", "Q")


def test_two_basis_sets_for_one_element(chain, tmp_path):
    """As two sources give them, each sound by itself."""
    folder = tmp_path / "deeph"
    write_deeph(folder, _drop_p(read_matrices_of(chain)))
    sources = [
        {"reader": "cp2k_matrices", "path": f"{chain}/out.log"},
        {"reader": "deeph", "path": f"{folder}/hamiltonians.h5"},
    ]
    run = write_dataset(tmp_path, *sources, split={"val": 0, "test": 0})
    refuse(run, "hamiltonians.h5", r"shells \[0\] for O, but \[0, 1\]", "one basis set")


def _drop_p(matrix: BlockMatrix) -> BlockMatrix:
    """Return the matrices of the s orbitals alone."""
    first = matrix.offsets[:-1]
    basis = Basis({"O": (0,), "H": (0,)})
    return replace(
        matrix,
        basis=basis,
        hamiltonian=matrix.hamiltonian[first],
        overlap=matrix.overlap[first],
    )


def _swap(text: str, first: str, second: str) -> str:
    return text.replace(first, "*").replace(second, first).replace("*", second)


def test_a_structure_file_may_be_named(chain):
    (chain / "job.inp").rename(chain / "other.inp")
    assert make_data(make_cp2k_dataset(chain, structure="other.inp"))["samples"] == 1
    assert CP2KSource(reader="cp2k_matrices", path="x").cutoff == 12
