"""Small sound files of every reader, and how each is read: what `fuzz.py` damages."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ase.io
import h5py
import numpy as np
from _data import locate
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from pipeline_core.fields import FIELDS
from pipeline_core.readers import BadFrame, cp2k, extxyz, fitsnap, mptrj, vasp
from pipeline_core.readers import ase as ase_reader
from pipeline_core.readers.catalogue import open_frames
from pipeline_core.samples import SampleFile, SampleWriter
from pipeline_egnn_esp.datasets import PackedSource
from pipeline_egnn_esp.sources.csr import read_csr, write_csr
from pipeline_egnn_esp.sources.packed import read_packed
from pipeline_gauge_flows.formats import (
    Configuration,
    read_ildg,
    read_nersc,
    write_ildg,
    write_nersc,
)
from pipeline_gauge_flows.lattice import Lattice
from pipeline_htfbr.sources.table_files import read_table

ROOT = Path(__file__).parents[2]
Content = dict[str, np.ndarray]


@dataclass
class Subject:
    """A file, and the function that reads it into frames; None stands for a refused one."""

    name: str
    path: Path
    read: Callable[[Path], list[Content | None]]
    counted: bool = True  # whether the file says how many rows it has


def make_subjects(folder: Path) -> list[Subject]:
    """Write all files; those of VASP only where its real run lies beside the clone."""
    return [*_make_atomistic(folder), *_make_vasp(folder), *_make_others(folder)]


def _read_frames(reader):
    def read(path: Path) -> list[Content | None]:
        frames = []
        for frame in open_frames(path, reader, {}):
            if isinstance(frame, BadFrame):
                frames.append(None)
            else:
                structure = {"species": frame.atomic_numbers, "positions": frame.positions}
                frames.append({**structure, "cell": frame.cell, "pbc": frame.pbc, **frame.labels})
        return frames

    return read


def _make_images() -> list[Atoms]:
    rng = np.random.default_rng(1)
    images = []
    for number in range(4):
        n = 3 + number
        atoms = Atoms(rng.choice(["H", "O", "Fe"], n), rng.uniform(0, 5, (n, 3)), pbc=True)
        atoms.set_cell(np.diag([5.0, 6.0, 7.0 + number]))
        energy, forces = float(-10 - number - rng.random()), rng.normal(size=(n, 3))
        atoms.calc = SinglePointCalculator(
            atoms, energy=energy, forces=forces, stress=rng.random(6)
        )
        images.append(atoms)
    return images


def _make_atomistic(folder: Path) -> Iterator[Subject]:
    images = _make_images()
    for name in ("extxyz", "traj", "db", "json", "cif"):
        path = folder / f"{name}.{name}"
        ase.io.write(path, images[:1] if name == "cif" else images)
        reader = extxyz.READER if name == "extxyz" else ase_reader.READER
        yield Subject(f"ase_{name}" if name != "extxyz" else name, path, _read_frames(reader))
    run = folder / "cp2k"
    run.mkdir()
    for path in (ROOT / "tests/core/readers/cp2k_runs").glob("npt*"):
        shutil.copy(path, run)
    text = ase.io.formats.open_with_compression(str(run / "npt.out.gz"), "rt").read()
    (run / "npt.out").write_text(text[: text.index(" -  ")] if " -  " not in text else text)
    yield Subject("cp2k", run / "npt.out", _read_frames(cp2k.READER))
    for name in ("npt-pos-1.xyz", "npt-1.cell", "npt.inp"):
        yield Subject(f"cp2k_{name}", run / name, _read_beside(run / "npt.out"))
    yield from _make_json(folder, images)


def _read_beside(output: Path):
    def read(path: Path) -> list[Content | None]:
        return _read_frames(cp2k.READER)(path.with_name(output.name))

    return read


def _make_json(folder: Path, images: list[Atoms]) -> Iterator[Subject]:
    records, members = {}, []
    for number, atoms in enumerate(images):
        energy, forces = atoms.get_potential_energy(), atoms.get_forces().tolist()
        sites = [
            {"species": [{"element": s, "occu": 1}], "abc": abc.tolist()}
            for s, abc in zip(atoms.symbols, atoms.get_scaled_positions(), strict=True)
        ]
        structure = {"lattice": {"matrix": atoms.cell.tolist()}, "sites": sites}
        record = {"structure": structure, "corrected_total_energy": energy, "force": forces}
        records[f"mp-{number}"] = {f"mp-{number}-0-0": record}
        data = {"Positions": atoms.positions.tolist(), "Energy": energy, "Forces": forces,
                "AtomTypes": list(atoms.symbols), "Lattice": atoms.cell.tolist(),
                "NumAtoms": len(atoms)}  # fmt: skip
        styles = {
            "PositionsStyle": "angstrom",
            "LatticeStyle": "angstrom",
            "EnergyStyle": "electronvolt",
            "ForcesStyle": "electronvoltperangstrom",
        }
        members.append(("# x\n" + json.dumps({"Dataset": {"Data": [data], **styles}})).encode())
    path = folder / "MPtrj_2022.9_full.json"
    path.write_text(json.dumps(records))
    yield Subject("mptrj", path, _read_frames(mptrj.READER))
    single = folder / "fitsnap.json"
    single.write_bytes(members[0])
    yield Subject("fitsnap_json", single, _read_frames(fitsnap.READER))
    archive = folder / "fitsnap.tar"
    with tarfile.open(archive, "w") as tar:
        for number, content in enumerate(members):
            member = tarfile.TarInfo(f"JSON/A/{number}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    yield Subject("fitsnap_tar", archive, _read_frames(fitsnap.READER))


def _make_vasp(folder: Path) -> Iterator[Subject]:
    try:
        source = locate("vasp_licl/OUTCAR")
    except FileNotFoundError:
        return
    text = source.read_text()
    begin = text.index("POSCAR")
    start = text.index("--------------------------------------- Iteration      1(   1)")
    end = text.index("--------------------------------------- Iteration      1(   2)")
    last = text.index("aborting loop because EDIFF is reached")
    (folder / "OUTCAR").write_text(text[:begin] + text[begin:start] + text[start:end] + text[last:])
    yield Subject("vasp_outcar", folder / "OUTCAR", _read_frames(vasp.READER))
    packed = source.with_name("vasprun.xml.gz")
    text = ase.io.formats.open_with_compression(str(packed), "rb").read().decode("latin-1")
    begin, end = text.index("<eigenvalues>"), text.rindex("</calculation>")
    alone = folder / "xml"
    alone.mkdir()
    (alone / "vasprun.xml").write_text(text[:begin] + text[end:], encoding="latin-1")
    yield Subject("vasp_xml", alone / "vasprun.xml", _read_frames(vasp.READER))


def _make_others(folder: Path) -> Iterator[Subject]:
    rng = np.random.default_rng(2)
    columns = {"r": rng.random(30), "E": rng.random(30)}
    np.savetxt(folder / "a.csv", np.stack([*columns.values()], 1), delimiter=",", header="r,E",
               comments="")  # fmt: skip
    np.savez(folder / "a.npz", **columns)
    with h5py.File(folder / "a.h5", "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, fletcher32=True)

    def read_columns(path: Path) -> list[Content | None]:
        table = read_table(str(path), path)
        return [{name: table.read_numbers(name, "key") for name in columns}]

    for ending in ("csv", "npz", "h5"):
        yield Subject(f"table_{ending}", folder / f"a.{ending}", read_columns, ending != "csv")
    shutil.copy(ROOT / "workflows/datasets/hfo2/matrices/cubic-0600K.h5", folder / "packed.h5")
    basis = PackedSource(reader="packed", path="x", basis={"Hf": [0, 0, 1, 2], "O": [0, 1]})

    def read_matrices(path: Path) -> list[Content | None]:
        return [
            {"species": m.structure.atomic_numbers, "H": m.hamiltonian, "S": m.overlap}
            for _, m in read_packed(path, basis)
        ]

    yield Subject("packed", folder / "packed.h5", read_matrices)
    row, column = np.divmod(np.arange(64), 8)
    write_csr(folder / "a.csr", row, column, rng.normal(size=64))
    names = ("row", "column", "value")

    def read_sparse(path: Path) -> list[Content | None]:
        return [dict(zip(names, read_csr(path, 8), strict=True))]

    yield Subject("csr", folder / "a.csr", read_sparse, counted=False)
    yield from _make_links(folder)
    yield _make_store(folder)


def _make_links(folder: Path) -> Iterator[Subject]:
    links = np.tile(np.eye(3, dtype=complex), (4, 16, 1, 1))
    configuration = Configuration(Lattice((2, 2, 2, 2), 3), links)
    for write, read in ((write_nersc, read_nersc), (write_ildg, read_ildg)):
        name = write.__name__.removeprefix("write_")
        write(folder / name, configuration)
        yield Subject(name, folder / name, lambda path, read=read: [{"links": read(path).links}])


def _make_store(folder: Path) -> Subject:
    fields = [FIELDS[name] for name in ("atomic_numbers", "positions", "energy", "cell")]
    with SampleWriter(folder / "data.h5", "data", {}, fields) as writer:
        for atoms in _make_images():
            writer.add({"atomic_numbers": atoms.numbers.astype(np.int32), "cell": atoms.cell.array,
                        "positions": atoms.positions,
                        "energy": np.array(atoms.get_potential_energy())})  # fmt: skip

    def read(path: Path) -> list[Content | None]:
        with SampleFile(path, "data") as data:
            samples = [data.read(i) for i in range(len(data))]
        return [
            {"species" if k == "atomic_numbers" else k: v for k, v in s.items()} for s in samples
        ]

    return Subject("store", folder / "data.h5", read)
