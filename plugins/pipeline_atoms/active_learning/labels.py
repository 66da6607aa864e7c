"""Labels of picked structures, one file each: written atomically, and kept while they are valid.

If a calculation ends without a result, for example without self-consistency, the structure is
written with the energy NaN: the import reports it and skips it. If the program fails otherwise, no
label is written, and the error shows the end of the program's output.
"""

import hashlib
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.extxyz import read_xyz, write_xyz
from ase.stress import full_3x3_to_voigt_6_stress
from numpy.typing import NDArray

from pipeline_atoms.active_learning.cp2k import count_cores, fill_input
from pipeline_atoms.active_learning.picking import measure_distance
from pipeline_atoms.active_learning.round import require_round
from pipeline_atoms.config.learning import LabelWith
from pipeline_atoms.importing.frames import make_sample
from pipeline_atoms.importing.sources import compute_factors
from pipeline_atoms.readers import BadFrame, Reader, cp2k, extxyz
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.structure import Structure
from pipeline_core.artifacts.store import write_atomic
from pipeline_core.project.run import Run
from pipeline_core.system.locks import hold, locate_lock

Labels = Mapping[str, NDArray[np.float64]]

_SAME: Final = 1e-4
"""Largest rounding of positions by a program, Å."""
_TAIL: Final = 1000
"""Characters of a program's output that an error shows."""
_NOT_CONVERGED: Final = "did not converge"


def label_pick(run: Run, number: int, threads: int = 1) -> dict[str, Any]:
    """Label a pick of a round.

    Raises:
        ValueError: There is no such pick, or `label_structure` fails.
    """
    one = require_round(run)
    if not 0 <= number < one.options.per_round:
        raise ValueError(f"--number: no pick {number}, only 0 to {one.options.per_round - 1}")
    path = one.labels[number]
    with hold(locate_lock(path.parent, str(number)), f"the label {number}"):
        atoms = ase.io.read(one.picks, index=number)
        return {path.name: label_structure(atoms, one.options.label_with, path, threads)}


def label_structure(atoms: Atoms, options: LabelWith, path: Path, threads: int = 1) -> str:
    """Compute the labels of a structure, unless the file contains them already.

    Args:
        atoms: The structure.
        options: Program or calculator that labels.
        path: The file to write.
        threads: Cores of the program.

    Returns:
        The outcome: "kept", "labelled", or "not converged".

    Raises:
        ValueError: The program fails, or returns labels of another structure.
    """
    settings = identify_settings(options)
    if _is_label_of(path, atoms, settings):
        path.touch()  # for Snakemake, which requires files newer than the picks
        return "kept"
    begin = time.perf_counter()
    labels = _compute(atoms, options, path.parent, threads)
    seconds = round(time.perf_counter() - begin, 3)
    info = {"settings": settings, "seconds": seconds}
    _write(path, atoms, labels or {"energy": np.array(np.nan)}, info)
    return "labelled" if labels else "not converged"


def identify_settings(options: LabelWith) -> str:
    """Return a hash of the labelling options and of the content of the input.

    Raises:
        ValueError: The input cannot be read.
    """
    facts = options.model_dump(mode="json")
    if options.cp2k is not None:
        facts["input"] = _read_input(options.cp2k)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _read_input(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"learn.label_with.cp2k: {path}: cannot be read ({error.strerror}); give the path of "
            "an input"
        ) from error


def _is_label_of(path: Path, atoms: Atoms, settings: str) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8") as file:
        stored = next(read_xyz(file))
    return stored.info.get("settings") == settings and measure_distance(stored, atoms) < _SAME


def _compute(atoms: Atoms, options: LabelWith, folder: Path, threads: int) -> Labels | None:
    """Return energy, forces and stress, if available; None without self-consistency."""
    if options.calculator is not None:
        return _label_with_calculator(atoms, options)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".label-") as work:
        if options.cp2k is not None:
            return _label_with_cp2k(atoms, options, Path(work), threads)
        return _label_with_command(atoms, str(options.command), Path(work), threads)


def _label_with_calculator(atoms: Atoms, options: LabelWith) -> Labels:
    from ase.calculators.calculator import get_calculator_class

    try:
        kind = get_calculator_class(options.calculator)
    except (ImportError, AttributeError) as error:
        names = ", ".join(import_module("ase.calculators.names").names[:8])
        raise ValueError(
            f"learn.label_with.calculator: ASE has no {options.calculator!r}; it has {names}, ..."
        ) from error
    copy = atoms.copy()
    copy.calc = kind(**options.parameters)
    labels = {"energy": np.array(copy.get_potential_energy()), "forces": copy.get_forces()}
    if copy.pbc.all() and "stress" in copy.calc.implemented_properties:
        labels["stress"] = copy.get_stress(voigt=False)
    return labels


def _label_with_cp2k(atoms: Atoms, options: LabelWith, work: Path, threads: int) -> Labels | None:
    text = fill_input(_read_input(str(options.cp2k)), atoms)
    (work / "job.inp").write_text(text, encoding="utf-8")
    start = f"{options.program} -i job.inp -o job.out"
    words, status, printed = _run(start, {}, threads, work)
    log = work / "job.out"
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else printed
    _require_cores(words, output, threads)
    if "SCF run NOT converged" in output:
        return None
    if status:
        _refuse(words, status, output)
    return _read_labels(log, cp2k.READER, atoms)


def _require_cores(words: list[str], output: str, threads: int) -> None:
    """Refuse an output that several copies of CP2K may have written, each with the whole label."""
    n_cores = count_cores(output)
    if n_cores is not None and n_cores < threads:
        raise ValueError(
            f"learn.label_with: {shlex.join(words)} was to use {threads} cores, and each CP2K used "
            f"{n_cores}; start it by the mpiexec of the MPI that it was built with (Debian: "
            "/usr/bin/mpiexec), or without mpiexec"
        )


def _label_with_command(atoms: Atoms, command: str, work: Path, threads: int) -> Labels | None:
    structure, label = (work / "structure.extxyz").resolve(), (work / "label.extxyz").resolve()
    _write(structure, atoms, {}, {})
    words, status, printed = _run(command, {"structure": structure, "label": label}, threads)
    if status or not label.is_file():
        _refuse(words, status, printed)
    return _read_labels(label, extxyz.READER, atoms)


def _fill(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _run(
    command: str, files: Mapping[str, Path], threads: int, folder: Path | None = None
) -> tuple[list[str], int, str]:
    """Run a program.

    Args:
        command: The command line, with placeholders in braces.
        files: Placeholder to path.
        threads: Number of cores, passed on by the placeholder {threads}, or by OMP_NUM_THREADS.
        folder: Working directory; None for the current one.

    Returns:
        The words of the command line, the exit status, and the output.
    """
    values = {**{name: str(path) for name, path in files.items()}, "threads": str(threads)}
    words = [_fill(word, values) for word in shlex.split(command)]
    openmp = 1 if "{threads}" in command else threads
    environment = os.environ | {"OMP_NUM_THREADS": str(openmp)}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ValueError(
            f"learn.label_with: {words[0]}: cannot be started ({error.strerror}); install it, or "
            "give its path"
        ) from error
    return words, done.returncode, done.stdout + done.stderr


def _refuse(words: list[str], status: int, printed: str) -> None:
    raise ValueError(
        f"learn.label_with: {shlex.join(words)} ended with status {status} and no label; the end "
        f"of its output:\n{printed[-_TAIL:]}"
    )


def _read_labels(path: Path, reader: Reader, atoms: Atoms) -> Labels | None:
    frame = next(iter(open_frames(path, reader, {})))
    if isinstance(frame, BadFrame):
        if _NOT_CONVERGED in frame.reason or frame.reason == "NaN in energy":
            return None
        raise ValueError(f"learn.label_with: the label cannot be read: {frame.reason}")
    factors = compute_factors(reader.units, f"reader {reader.name}")
    sample: dict[str, Any] = make_sample(frame, list(frame.labels), factors)
    labelled = Atoms(frame.atomic_numbers, sample["positions"], cell=sample["cell"], pbc=atoms.pbc)
    if measure_distance(labelled, atoms) > _SAME:
        raise ValueError(
            "learn.label_with: the label is of another structure: its atoms must keep their "
            "order and their positions"
        )
    return {name: sample[name] for name in frame.labels}


def _write(path: Path, atoms: Atoms, labels: Labels, info: Mapping[str, Any]) -> None:
    shown = Structure.of(atoms).make_atoms()
    shown.info.update(info)
    results: dict[str, Any] = dict(labels)
    if "energy" in results:
        results["energy"] = float(results["energy"])
    if "stress" in results:
        results["stress"] = full_3x3_to_voigt_6_stress(results["stress"])
    if results:
        shown.calc = SinglePointCalculator(shown, **results)
    with write_atomic(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        write_xyz(file, shown)
