"""CP2K: single points, dynamics and optimisations, from the output and the files beside it.

The energy is taken from the line `ENERGY| Total FORCE_EVAL`, the free energy if the occupation is
smeared; forces and stress are read if they are printed (`&FORCE_EVAL &PRINT &FORCES ON` and
`&STRESS_TENSOR ON`). CP2K prints the stress with a positive trace if the cell tends to expand.

Positions come, for each evaluation, from the first of: the snapshot of the same energy in
PROJECT-pos-1.xyz, the table printed before the energy, and, for the first evaluation, the input.
Cells come from PROJECT-1.cell, the input if its cell is the printed one (or none is printed and the
cell is fixed), or the output, which rounds to 3 decimals. The input lies beside the output under
the same name or the one that the output states, or in a tree `inputs` that mirrors a tree
`outputs`.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_atoms.readers.cp2k_input import parse_symbol, read_structure
from pipeline_atoms.readers.cp2k_output import Evaluation, Output
from pipeline_atoms.readers.extxyz import Block, split_blocks
from pipeline_atoms.readers.frame_checks import find_atomic_numbers
from pipeline_atoms.structure import Structure
from pipeline_core.data.files import find_compressed, open_text, strip_compression

_SNAPSHOT: Final = re.compile(r"i = *(\d+),.*E = *(-?\d+\.\d+)")
_SAME_CELL: Final = 1e-3  # Å; outputs print three decimals
_SAME_VOLUME: Final = 1e-3  # Å³
_NOT_PRINTED: Final = "print it for every step with &MOTION &PRINT"


class _Snapshot(NamedTuple):
    """A frame of PROJECT-pos-1.xyz; the energy as text, with ten decimals."""

    step: int
    energy: str
    symbols: tuple[str, ...]
    positions: Floats


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read an output.

    Args:
        path: Output file of CP2K, plain or compressed.
        keys: Must be empty; the names of the labels are fixed.

    Yields:
        Each evaluation of the energy. It is bad without convergence or without positions, and so
        is the last one of a truncated output.
    """
    assert not keys
    index = -1
    with open_text(path) as lines:
        run = _Run(path, Output(lines))
        for index, evaluation in enumerate(run.output.read_evaluations()):
            yield run.attempt(evaluation, index)
    if index < 0:
        yield BadFrame(0, "holds no energy: the run has failed, or this is not an output of CP2K")


class _Run:
    """An output with the files beside it."""

    def __init__(self, path: Path, output: Output) -> None:
        self._path = path
        self.output = output
        self._fixed_cell: Floats | None = None

    def attempt(self, evaluation: Evaluation, index: int) -> Frame | BadFrame:
        if evaluation.problem:
            return BadFrame(index, evaluation.problem)
        if not evaluation.converged:
            return BadFrame(index, "the self-consistency loop did not converge")
        if not evaluation.complete:
            return BadFrame(index, "truncated: the output ends before the program did")
        try:
            return self._make_frame(evaluation, index)
        except ValueError as error:
            return BadFrame(index, str(error))

    def _make_frame(self, evaluation: Evaluation, index: int) -> Frame:
        snapshot = self._find_snapshot(evaluation.energy)
        numbers, positions = self._find_atoms(evaluation, snapshot, is_first=index == 0)
        if evaluation.elements and not np.array_equal(
            find_atomic_numbers(evaluation.elements), numbers
        ):
            raise ValueError(
                "the table of forces names other elements than the input: is it of another run?"
            )
        cell = self._find_cell(evaluation, snapshot, is_first=index == 0)
        labels = {
            "energy": np.array(evaluation.energy),
            "forces": evaluation.forces,
            "stress": evaluation.stress,
        }
        header = self.output.header
        info = {name: header.get(name, "") for name in ("project", "run_type")}
        return Frame(
            atomic_numbers=numbers,
            positions=positions,
            cell=cell,
            pbc=self._find_pbc(),
            labels={name: value for name, value in labels.items() if value is not None},
            info={"folder": self._path.resolve().parent.name, **info},
            index=index,
        )

    def _find_atoms(
        self, evaluation: Evaluation, snapshot: _Snapshot | None, *, is_first: bool
    ) -> tuple[NDArray[np.int32], Floats]:
        """Find Z and positions (Å) at which the energy was evaluated."""
        if snapshot:
            return find_atomic_numbers(
                [parse_symbol(s) for s in snapshot.symbols]
            ), snapshot.positions
        if self.output.header.get("ensemble") != "REFTRAJ":  # its first snapshot is not the input
            if evaluation.positions is not None and evaluation.atomic_numbers is not None:
                return evaluation.atomic_numbers, evaluation.positions
            if is_first and isinstance(self._input, Structure):
                return self._input.atomic_numbers, self._input.positions
        why = f"; {self._input}" if isinstance(self._input, str) else ""
        raise ValueError(f"positions are unknown: {_NOT_PRINTED} &TRAJECTORY{why}")

    def _find_cell(
        self, evaluation: Evaluation, snapshot: _Snapshot | None, *, is_first: bool
    ) -> Floats:
        """Find the cell (Å), with as many digits as available."""
        header = self.output.header
        varies = header.get("run_type") == "CELL_OPT" or header.get("ensemble", "").startswith("NP")
        printed = np.array([evaluation.cell[name] for name in "abc"]) if evaluation.cell else None
        if not varies:
            printed = self._fixed_cell = self._fixed_cell if printed is None else printed
        precise = self._cells.get(snapshot.step) if snapshot else None
        if precise is None and isinstance(self._input, Structure) and (is_first or not varies):
            precise = self._input.cell
        if precise is not None and (
            printed is None or np.allclose(precise, printed, 0, _SAME_CELL)
        ):
            return precise
        if printed is None:
            raise ValueError(f"the cell is unknown: {_NOT_PRINTED} &CELL")
        return printed

    def _find_pbc(self) -> NDArray[np.bool_]:
        if isinstance(self._input, Structure):
            return self._input.pbc
        periodic = self.output.periodic or "XYZ"
        return np.array([axis in periodic and periodic != "NONE" for axis in "XYZ"])

    @functools.cached_property
    def _input(self) -> Structure | str:
        """Structure of the input, or the reason why there is none."""
        names = [Path(strip_compression(self._path)).with_suffix(".inp").name]
        names += [Path(name).name for name in [self.output.header.get("input_name", "")] if name]
        folder = self._path.resolve().parent
        mirrored = Path(*("inputs" if part == "outputs" else part for part in folder.parts))
        candidates = [find_compressed(f / name) for f in (folder, mirrored) for name in names]
        input_path = next((candidate for candidate in candidates if candidate), None)
        if input_path is None:
            return f"no input {' or '.join(names)} lies beside the output"
        try:
            return read_structure(input_path)
        except (ValueError, LookupError) as error:
            return f"{input_path.name}: {error}"

    def _find_snapshot(self, energy: float) -> _Snapshot | None:
        """Find the snapshot with this energy; a file may begin with snapshots of an earlier run."""
        text = f"{energy:.10f}"
        if text not in self._snapshot_energies:
            return None
        return next((snapshot for snapshot in self._snapshots if snapshot.energy == text), None)

    @functools.cached_property
    def _snapshot_energies(self) -> set[str]:
        return {snapshot.energy for snapshot in self._read_snapshots()}

    @functools.cached_property
    def _snapshots(self) -> Iterator[_Snapshot]:
        return self._read_snapshots()

    def _read_snapshots(self) -> Iterator[_Snapshot]:
        path = self._find_file("pos-1.xyz")
        for block in split_blocks(path) if path else ():
            match = _SNAPSHOT.fullmatch(block.comment.strip()) if isinstance(block, Block) else None
            if isinstance(block, Block) and match and len(block.columns) == 4:
                positions = np.array(block.columns[1:], dtype=np.float64).T
                yield _Snapshot(int(match[1]), match[2], block.columns[0], positions)

    @functools.cached_property
    def _cells(self) -> dict[int, Floats]:
        """Cells by step, from PROJECT-1.cell: step, time, nine components, volume."""
        path = self._find_file("1.cell")
        if path is None:
            return {}
        with open_text(path) as lines:
            rows = [line for line in lines if not line.startswith("#") and not line.isspace()]
        return dict(_parse_cell(path, row) for row in rows)

    def _find_file(self, ending: str) -> Path | None:
        project = self.output.header.get("project", "PROJECT")
        return find_compressed(self._path.with_name(f"{project}-{ending}"))


def _parse_cell(path: Path, row: str) -> tuple[int, Floats]:
    """Parse step and cell of a line of PROJECT-1.cell, and check the volume of the cell."""
    try:
        step, *numbers = row.split()
        cell = np.array(numbers[1:10], dtype=np.float64).reshape(3, 3)
        if (
            len(numbers) == 11
            and np.isfinite(cell).all()
            and abs(np.linalg.det(cell) - float(numbers[10])) < _SAME_VOLUME
        ):
            return int(step), cell
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"{path.name}: {row.strip()[:60]!r} is not step, time, cell and volume; correct or "
        "remove the line"
    )


READER: Final = Reader(
    name="cp2k",
    summary="Output of CP2K; positions and cells it does not print from the files beside it.",
    suffixes=(".log", ".out", ".log.gz", ".out.gz"),
    units=Units(energy="hartree", force="hartree/bohr", stress="GPa", stress_sign="pressure"),
    read=read,
)
