"""Small sound files of the readers that plugins bring: what `mutation.py` damages."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np

from archives import unpack
from core.fuzz.subjects import ROOT, Content, Subject, make_folder
from pipeline_egnn_esp.data.cp2k_matrices import read_run
from pipeline_egnn_esp.data.csr import read_csr, write_csr
from pipeline_egnn_esp.data.datasets import AnySource, CP2KSource, DeepHSource, PackedSource
from pipeline_egnn_esp.data.deeph import write_deeph
from pipeline_egnn_esp.data.matrix_checks import require_sound
from pipeline_egnn_esp.data.stage import read_structures
from pipeline_gauge_flows.data.formats import (
    Configuration,
    read_ildg,
    read_nersc,
    write_ildg,
    write_nersc,
)
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_htfbr.data.table_files import read_table

_N_IMAGES = 3
_CUTOFF = 2.0  # Å: the water molecule of a chain of them


def _make_tables(folder: Path) -> Iterator[Subject]:
    rng = np.random.default_rng(2)
    columns = {"r": rng.random(30), "E": rng.random(30)}

    def read_columns(path: Path) -> list[Content | None]:
        table = read_table(str(path), path)
        return [{name: table.read_numbers(name, "key") for name in columns}]

    for ending in ("csv", "npz", "h5"):
        path = make_folder(folder, f"table_{ending}") / f"a.{ending}"
        if ending == "csv":
            np.savetxt(path, np.stack([*columns.values()], 1), delimiter=",", header="r,E",
                       comments="")  # fmt: skip
        elif ending == "npz":
            np.savez(path, **columns)
        else:
            with h5py.File(path, "w") as file:
                for name, values in columns.items():
                    file.create_dataset(name, data=values, fletcher32=True)
        yield Subject(f"table_{ending}", path, read_columns, ending != "csv")


def _read_matrices(
    source: AnySource, main: str | None = None
) -> Callable[[Path], list[Content | None]]:
    """Return a function that reads as the data stage does, from the file `main` beside a path."""

    def read(path: Path) -> list[Content | None]:
        frames: list[Content | None] = []
        for _, matrix, _ in read_structures(source, path.with_name(main or path.name)):
            try:
                require_sound(matrix)
            except ValueError as error:  # the data stage names the file
                raise ValueError(f"{path}: {error}") from None
            atoms = matrix.structure
            frames.append({
                "species": atoms.atomic_numbers, "positions": atoms.positions, "cell": atoms.cell,
                "blocks": np.hstack([matrix.block_atoms, matrix.block_shift]),
                "hamiltonian": matrix.hamiltonian, "overlap": matrix.overlap,
            })  # fmt: skip
        return frames

    return read


def _make_matrices(folder: Path) -> Iterator[Subject]:
    """A run of CP2K with its first images alone, and the same in the layout of DeepH."""
    run = make_folder(folder, "matrices")
    unpack(ROOT / "tests/plugins/egnn_esp/cp2k/chain.tar.xz", folder / "chains")
    whole = folder / "chains/chain"
    shutil.copy(whole / "job.inp", run)
    lines = (whole / "out.log").read_text().splitlines(keepends=True)
    heads = [number for number, line in enumerate(lines) if "periodic images" in line]
    for head in reversed(heads):
        n_images = int(lines[head].split()[3])
        del lines[head + 2 + _N_IMAGES : head + 2 + n_images]
        lines[head] = lines[head].replace(str(n_images), str(_N_IMAGES))
    (run / "out.log").write_text("".join(lines))
    for kind in ("ks-KS", "s-S"):
        for number in range(1, _N_IMAGES + 1):
            shutil.copy(whole / f"job-{kind}_SPIN_1_R_{number}-1_0.csr", run)
    source = CP2KSource(reader="cp2k_matrices", path="out.log", cutoff=_CUTOFF)
    for name in (
        "out.log",
        "job.inp",
        "job-ks-KS_SPIN_1_R_1-1_0.csr",
        "job-s-S_SPIN_1_R_1-1_0.csr",
    ):
        yield Subject(f"matrices_{name}", run / name, _read_matrices(source, "out.log"))
    other = make_folder(folder, "deeph")
    write_deeph(other, read_run(run / "out.log", source)[0])
    read = _read_matrices(DeepHSource(reader="deeph", path="hamiltonians.h5"), "hamiltonians.h5")
    for path in sorted(other.iterdir()):
        if path.name not in ("R_list.dat", "rlat.dat"):  # which nobody reads
            yield Subject(f"deeph_{path.name}", path, read)


def _make_packed(folder: Path) -> Iterator[Subject]:
    """One shipped frame, its shortest pairs alone."""
    path = make_folder(folder, "packed") / "a.h5"
    shipped = ROOT / "workflows/datasets/hfo2/matrices/cubic-0600K.h5"
    with h5py.File(shipped) as source, h5py.File(path, "w") as file:
        file.attrs.update(source.attrs)
        arrays = {name: data[()] for name, data in source["000"].items()}
        kept = (arrays["atom_pairs"][:, :3] == 0).all(axis=1)
        entries = np.repeat(kept, arrays["chunk_shapes"].astype(int).prod(axis=1))
        for name, array in arrays.items():
            own = {len(kept): kept, len(entries): entries}.get(len(array), slice(None))
            file.create_dataset(f"000/{name}", data=array[own], compression="gzip", shuffle=True)
    basis = {"Hf": [0, 0, 1, 2], "O": [0, 1]}
    yield Subject(
        "packed", path, _read_matrices(PackedSource(reader="packed", path="x", basis=basis))
    )


def _make_csr(folder: Path) -> Iterator[Subject]:
    row, column = np.divmod(np.arange(64), 8)
    path = make_folder(folder, "csr") / "a.csr"
    write_csr(path, row, column, np.random.default_rng(2).normal(size=64))
    names = ("row", "column", "value")

    def read_sparse(path: Path) -> list[Content | None]:
        return [dict(zip(names, read_csr(path, 8), strict=True))]

    yield Subject("csr", path, read_sparse, counted=False)


def _make_links(folder: Path) -> Iterator[Subject]:
    links = np.tile(np.eye(3, dtype=complex), (4, 16, 1, 1))
    configuration = Configuration(Lattice((2, 2, 2, 2), 3), links)
    for write, read in ((write_nersc, read_nersc), (write_ildg, read_ildg)):
        name = write.__name__.removeprefix("write_")
        path = make_folder(folder, name) / "links"
        write(path, configuration)
        yield Subject(name, path, lambda path, read=read: [{"links": read(path).links}])


MAKERS = (_make_tables, _make_matrices, _make_packed, _make_csr, _make_links)
