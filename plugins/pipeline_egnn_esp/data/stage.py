"""Stage `data`: matrices read from other programs, as samples of `data.h5`.

A sample holds one of each hermitian pair of blocks. Beside the shared fields of a structure it has

    block_atoms (n_blocks, 2), block_shift (n_blocks, 3)   block (i, j, R)
    hamiltonian (n_entries,), overlap (n_entries,)         the blocks one after the other, by rows

where the atoms and the attribute `basis` of the file determine the rows and columns of a block.
"""

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from pipeline_atoms.importing.columns import Columns, count_elements
from pipeline_atoms.structure import Structure
from pipeline_core.artifacts.samples import Sample, SampleFile, SampleWriter
from pipeline_core.artifacts.store import write_json
from pipeline_core.config.raw_files import match_files
from pipeline_core.data.duplicates import Duplicates, hash_content
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import DatasetRun
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.datasets import (
    AnySource,
    CP2KSource,
    DeepHSource,
    MatrixDataset,
    PackedSource,
)
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.data.matrix_checks import merge_bases, require_sound
from pipeline_egnn_esp.data.report import Report

_OWN: Final = (
    Field("block_atoms", (2,), "1", "block", "i4", "Atoms of rows and columns.", "atom"),
    Field("block_shift", (3,), "1", "block", "i2", "Cell image of the second, in lattice vectors."),
    Field("hamiltonian", (), "eV", "entry", "f8", "Blocks of the Hamiltonian.", label=True),
    Field("overlap", (), "1", "entry", "f8", "Blocks of the overlap.", label=True),
)
_SHARED: Final = ("cell", "pbc", "group", "source", "atomic_numbers", "positions")
MATRIX_FIELDS: Final = {f.name: f for f in (*(FIELDS[name] for name in _SHARED), *_OWN)}
"""Fields of a sample, less the split."""


def make_data(run: DatasetRun) -> Summary:
    """Read all sources, check and divide them, write `run.data` and `run.report`.

    Args:
        run: A dataset with `plugin: egnn_esp`.

    Returns:
        Figures for the screen.

    Raises:
        ValueError: The dataset file, a raw file, or the content of one is wrong; nothing is
            written.
    """
    options = run.options
    assert isinstance(options, MatrixDataset)
    # Outside of the block below, since this error names the line of the dataset file.
    files = [match_files(run.path, *item) for item in options.raw_patterns.items()]
    record = run.make_provenance()
    columns, report, basis = Columns(), Report(run.name, options.split), Basis({})
    duplicates = Duplicates()
    with SampleWriter(run.data, "data", record, list(MATRIX_FIELDS.values())) as writer:
        for source, own in zip(options.sources, files, strict=True):
            for name, path in own.items():
                for place, matrix, facts in read_structures(source, path):
                    basis = _check_matrix(place, matrix, basis)
                    group = _name_group(source, name, path)
                    writer.add(
                        _make_sample(matrix, group, f"{name}{place.removeprefix(str(path))}")
                    )
                    _note(columns, matrix, group, source)
                    report.add(matrix, facts)
                    atoms = matrix.structure
                    structure = (atoms.atomic_numbers, atoms.pbc, atoms.cell, atoms.positions)
                    matrices = (matrix.hamiltonian, matrix.overlap)
                    duplicates.add(name, hash_content(structure, matrices))
        codes = _divide(run, columns, options, duplicates)
        writer.add_column("split", codes)
        _write_attributes(writer, basis)
        content = report.make_content(basis, columns, codes, duplicates.report())
        write_json(run.report, content, run.make_provenance())
    return report.summarize(content)


def read_basis(data: SampleFile) -> Basis:
    """Return the basis of a `data.h5` with matrices.

    Raises:
        ValueError: It holds no matrices.
    """
    if "basis" not in data.attributes:
        raise ValueError(
            f"{data.path}: holds no matrices; give the experiment a dataset with `plugin: egnn_esp`"
        )
    return Basis.from_json(str(data.attributes["basis"]))


def read_matrix(sample: Sample, basis: Basis) -> BlockMatrix:
    """Return the matrices of a sample."""
    return BlockMatrix(
        Structure.of_fields(sample),
        basis,
        sample["block_atoms"].astype(np.int64),
        sample["block_shift"].astype(np.int64),
        sample["hamiltonian"],
        sample["overlap"],
    )


def read_structures(
    source: AnySource, path: Path
) -> Iterator[tuple[str, BlockMatrix, dict[str, Any]]]:
    """Yield place in words, matrices, and facts of each structure of a file.

    Raises:
        ValueError: The file, or one beside it, is missing, damaged or of something else.
    """
    match source:
        case PackedSource():
            from pipeline_egnn_esp.data.packed import read_packed

            for name, matrix in read_packed(path, source):
                yield f"{path}:{name}", matrix, {}
        case CP2KSource():
            from pipeline_egnn_esp.data.cp2k_matrices import read_run

            try:
                matrix, facts = read_run(path, source)
            except ValueError as error:
                text = str(error)
                raise ValueError(text if str(path.parent) in text else f"{path}: {text}") from None
            yield str(path), matrix, facts
        case DeepHSource():
            from pipeline_egnn_esp.data.deeph import read_deeph

            yield str(path), read_deeph(path, source), {}


def _check_matrix(place: str, matrix: BlockMatrix, basis: Basis) -> Basis:
    try:
        require_sound(matrix)
        return merge_bases(basis, matrix.basis)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _name_group(source: AnySource, name: str, path: Path) -> str:
    """Name the group of a file, without the folders that all files of the source share."""
    if source.group is None:
        return source.reader
    parts = PurePosixPath(source.path).parts
    fixed = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
    own = PurePosixPath(*PurePosixPath(name).parts[fixed:])
    if source.group == "file":
        return str(own.with_suffix(""))
    return str(own.parent) if own.parent.parts else path.resolve().parent.name


def _make_sample(matrix: BlockMatrix, group: str, place: str) -> Sample:
    return {
        **vars(matrix.structure),
        "group": np.asarray(group),
        "source": np.asarray(place),
        "block_atoms": matrix.block_atoms,
        "block_shift": matrix.block_shift,
        "hamiltonian": matrix.hamiltonian,
        "overlap": matrix.overlap,
    }


def _note(columns: Columns, matrix: BlockMatrix, group: str, source: AnySource) -> None:
    numbers = matrix.structure.atomic_numbers
    code = -1 if source.split is None else SPLITS.index(source.split)
    composition = columns.compositions.number(count_elements(numbers))
    columns.add(composition, group, len(numbers), np.nan, code)


def _divide(
    run: DatasetRun, columns: Columns, options: MatrixDataset, duplicates: Duplicates
) -> Any:
    if not len(columns):
        raise ValueError(f"{run.path}: the sources hold no structures; check the raw files")
    try:
        return columns.divide(options.split, duplicates.find_first())
    except ValueError as error:
        raise ValueError(f"{run.path}: {error}") from None


def _write_attributes(writer: SampleWriter, basis: Basis) -> None:
    writer.attributes["basis"] = basis.to_json()
    writer.attributes["labels"] = json.dumps(["hamiltonian", "overlap"])
    writer.attributes["elements"] = json.dumps(list(basis.elements))
    units = {name: field.unit for name, field in MATRIX_FIELDS.items()}
    writer.attributes["units"] = json.dumps(units)
