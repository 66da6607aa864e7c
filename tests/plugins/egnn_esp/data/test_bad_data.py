"""Bad input: each error names the file, what is wrong with it, and what to do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_core.project.run import DatasetRun
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.csr import read_csr, write_csr
from pipeline_egnn_esp.data.datasets import CP2KSource
from pipeline_egnn_esp.data.deeph import write_deeph
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.data.matrix_checks import require_sound
from pipeline_egnn_esp.data.stage import make_data
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
Change = Callable[[Path], Any]


def make_cp2k_dataset(folder: Path, **options: Any) -> DatasetRun:
    source = {"reader": "cp2k_matrices", "path": f"{folder}/out.log", **options}
    return write_dataset(folder.parent, source, split={"val": 0, "test": 0})


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Change:
    """Return what changes the content of a file of a run."""

    def work(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return work


def exchange(name: str, old: str, new: str) -> Change:
    """Return what replaces a text in a file of a run."""
    return lambda folder: change_file(folder / name, lambda text: text.replace(old, new))


def keep_lines(name: str, count: int) -> Change:
    return rewrite(name, lambda content: b"".join(content.splitlines(keepends=True)[:count]))


def cut_within_a_line(content: bytes) -> bytes:
    lines = content.splitlines()
    return b"\n".join([*lines[:-1], lines[-1][:14], b""])


def swap_atoms(folder: Path) -> None:
    first, second = "O 4.2 4.6 2.6", "H 4.9 5.0 2.1"
    change_file(
        folder / "job.inp",
        lambda text: text.replace(first, "*").replace(second, first).replace("*", second),
    )


def copy_file(name: str, *change: str) -> Change:
    return lambda folder: shutil.copy(folder / name, folder / name.replace(*change))


def leave(folder: Path) -> None:
    """Change nothing."""


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


FIRST = re.escape(KS.format(1))
TRIPLE = {"O": [0, 1, 1], "H": [0]}
WORDS = "5 shells and 9 orbitals, the output has 4 and 6"


@pytest.mark.parametrize(("change", "basis", "words"), [
    # Text files that end within a number, within a line and between lines.
    (rewrite(KS.format(1), lambda c: c[:-5]), {}, [FIRST, "truncated.*last line", "write it"]),
    (rewrite(KS.format(1), cut_within_a_line), {}, [FIRST, "is not a matrix of CP2K", "write it"]),
    (keep_lines(KS.format(1), 15), {}, [
        "out.log", "hamiltonian is not hermitian: .* differ by up to .* eV; a part of it may"]),
    (keep_lines(S.format(1), 15), {}, ["out.log", "overlaps with itself by 0, .* not complete"]),
    (leave, TRIPLE, ["out.log", WORDS, "correct"]),
    (leave, {"O": [0, 1]}, ["out.log", "shells of H are unknown", "such as H: "]),
    (leave, {"O": [0, 0, 0, 0], "H": [0]}, ["out.log", "6 shells and 6 orbitals"]),
    (leave, {"O": [1, 0], "H": [0]}, ["out.log", "not symmetric about the line", "correct"]),
    # The output knows the order of its atoms.
    (swap_atoms, {}, ["out.log", "atom 0 is H in the structure and O in the output"]),
    (lambda f: (f / S.format(7)).unlink(), {}, [
        "out.log", "no file job-.*S_SPIN_1_R_7", "S_CSR_WRITE"]),
    (copy_file(KS.format(1), "SPIN_1", "SPIN_2"), {}, ["SPIN_2", "spin-polarised", "without UKS"]),
    (copy_file(KS.format(1), "-1_0", "-1_1"), {}, [
        "second file of the same matrix", "file of the last step"]),
    (exchange("out.log", "PROGRAM ENDED AT", ""), {}, [
        "out.log", "not a complete output", "let the run end"]),
    (exchange("out.log", "SCF run converged", "SCF run NOT converged"), {}, [
        "out.log", "did not converge", "MAX_SCF"]),
    (exchange("out.log", "        53      ", "        fifty-three"), {}, ["is not complete"]),
    (exchange("out.log", "- Shells: ", "- Shelves: "), {}, ["not an output of CP2K's Quick"]),
    (lambda f: (f / "job.inp").unlink(), {}, [
        "out.log", "the input job.inp.* is not beside it", "`structure`"]),
    # The input of another run, and such as the output does not print.
    (exchange("job.inp", "      H 4.0 5.2 3.3\n", ""), {}, [
        "structure has 2 atoms, the output 3", "of this run"]),
    (exchange("job.inp", "A 9.0 0.0 0.0", "A 9.1 0.0 0.0"), {}, [
        "cell of the input and of the output differ by .* 0.1 Å"]),
    (exchange("job.inp", "H 4.0 5.2 3.3", "H 4.0 5.3 3.3"), {}, [
        "positions of the input", "restart file"]),
    (exchange("job.inp", "H 4.0 5.2 3.3", "H 4_0 5.2 3.3"), {}, ["underscore"]),
    (exchange("job.inp", "O 4.2", "Qq 4.2"), {}, ["job.inp", "Q"]),
])  # fmt: skip
def test_a_bad_run_is_refused(chain, change, basis, words):
    change(chain)
    refuse(make_cp2k_dataset(chain, basis=basis), *words)


@pytest.mark.parametrize(("change", "options", "words"), [
    (rewrite(S.format(1), lambda c: c[: 24 * 3]), {"basis": WATER}, [
        "orbital . overlaps with itself by 0", "not complete"]),
    (rewrite(KS.format(3), lambda c: c[:-7]), {"basis": WATER}, [
        re.escape(KS.format(3)), "truncated: .* records of 24"]),
    (rewrite(KS.format(3), lambda c: c[:48] + b"\0" * 4 + c[48:-4]), {"basis": WATER}, [
        re.escape(KS.format(3)), "damaged: a record has no mark"]),
    (leave, {}, ["out.log", "shells of O are unknown", "PRINT_LEVEL MEDIUM.*basis"]),
    (swap_atoms, {"basis": WATER}, [
        "not symmetric about the line|shells of degree", "order of the matri"]),
])  # fmt: skip
def test_a_bad_run_with_binary_triangles_is_refused(water_runs, tmp_path, change, options, words):
    folder = Path(shutil.copytree(water_runs / "chain_upper", tmp_path / "run"))
    change(folder)
    refuse(make_cp2k_dataset(folder, **options), *words)


@pytest.mark.parametrize(("options", "words"), [
    ({}, ["out.log", "cell that is 3.1 Å across, with a cutoff of 12 Å: they are folded",
          "REAL_SPACE .TRUE.", "at least 24 Å"]),
    # Oracle: CP2K's folded overlap of an orbital with itself and its images.
    ({"cutoff": 1.5}, ["orbital . overlaps with itself by", "they are folded"]),
])  # fmt: skip
def test_folded_matrices_of_the_gamma_point(water_runs, tmp_path, options, words):
    folder = Path(shutil.copytree(water_runs / "chain_gamma", tmp_path / "run"))
    refuse(make_cp2k_dataset(folder, basis=WATER, **options), *words)


def test_images_of_a_run_beside_the_gamma_point_of_another(chain, water_runs):
    gamma = "job-s-S_SPIN_1-1_0.csr"
    shutil.copy(water_runs / "chain_gamma" / gamma, chain)
    row, column, value = read_csr(chain / gamma, 6)
    write_csr(chain / gamma, row, column, value + 1e-3)
    refuse(make_cp2k_dataset(chain), "out.log", re.escape(gamma), "differs from", "separate them")


@pytest.mark.slow
def test_two_basis_sets_for_one_element(chain, tmp_path):
    """As two sources give them, each sound by itself."""
    folder = tmp_path / "deeph"
    matrix = read_matrices_of(chain)
    first, basis = matrix.offsets[:-1], Basis({"O": (0,), "H": (0,)})
    kept = {name: getattr(matrix, name)[first] for name in ("hamiltonian", "overlap")}
    write_deeph(folder, replace(matrix, basis=basis, **kept))
    sources = [
        {"reader": "cp2k_matrices", "path": f"{chain}/out.log"},
        {"reader": "deeph", "path": f"{folder}/hamiltonians.h5"},
    ]
    run = write_dataset(tmp_path, *sources, split={"val": 0, "test": 0})
    refuse(run, "hamiltonians.h5", r"shells \[0\] for O, but \[0, 1\]", "one basis set")


def test_a_structure_file_may_be_named(chain):
    (chain / "job.inp").rename(chain / "other.inp")
    assert make_data(make_cp2k_dataset(chain, structure="other.inp"))["samples"] == 1
    assert CP2KSource(reader="cp2k_matrices", path="x").cutoff == 12
