"""Small sound files of every reader, and how each is read: what `mutation.py` damages."""

import gzip
import io
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from pipeline_atoms.readers import BadFrame, cp2k, deepmd, extxyz, fitsnap, mptrj, vasp
from pipeline_atoms.readers import ase as ase_reader
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS
from plugins.atoms.readers.deepmd_systems import make_frames, write_system
from real_data import locate

ROOT = Path(__file__).parents[3]
Content = dict[str, np.ndarray]


@dataclass
class Subject:
    """A file, and the function that reads it into frames; None stands for a refused one."""

    name: str
    path: Path
    read: Callable[[Path], list[Content | None]]
    counted: bool = True  # whether the file says how many rows it has


def make_folder(folder: Path, name: str) -> Path:
    """Make a folder in another one."""
    own = folder / name
    own.mkdir()
    return own


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


def _make_images(*, periodic: bool = True) -> list[Atoms]:
    rng = np.random.default_rng(1)
    images = []
    for number in range(4):
        n = 3 + number
        atoms = Atoms(rng.choice(["H", "O", "Fe"], n), rng.uniform(0, 5, (n, 3)), pbc=periodic)
        energy, forces = float(-10 - number - rng.random()), rng.normal(size=(n, 3))
        labels = {"energy": energy, "forces": forces}
        if periodic:
            atoms.set_cell(np.diag([5.0, 6.0, 7.0 + number]))
            labels["stress"] = rng.random(6)
        atoms.calc = SinglePointCalculator(atoms, **labels)
        images.append(atoms)
    return images


def _make_ase(folder: Path) -> Iterator[Subject]:
    """Crystals, and structures without a cell."""
    endings = ("extxyz", "traj", "db", "json")
    for ending, periodic in [*product(endings, (True, False)), ("cif", True)]:
        name = f"{'crystals' if periodic else 'molecules'}_{ending}"
        path = make_folder(folder, name) / f"a.{ending}"
        images = _make_images(periodic=periodic)
        ase.io.write(path, images[:1] if ending == "cif" else images)
        reader = extxyz.READER if ending == "extxyz" else ase_reader.READER
        yield Subject(name, path, _read_frames(reader))


def _make_compressed(folder: Path) -> Iterator[Subject]:
    for ending, opener in (("gz", gzip.open), ("xz", lzma.open)):
        path = make_folder(folder, f"extxyz_{ending}") / f"a.extxyz.{ending}"
        with opener(path, "wt") as file:
            ase.io.write(file, _make_images(), format="extxyz")
        yield Subject(f"extxyz_{ending}", path, _read_frames(extxyz.READER))


def _make_cp2k(folder: Path) -> Iterator[Subject]:
    for project, names in (
        ("npt", ("npt.out", "npt-pos-1.xyz", "npt-1.cell")),
        ("md", ("md.inp",)),
    ):
        run = make_folder(folder, f"cp2k_{project}")
        for path in (ROOT / "tests/plugins/atoms/readers/cp2k_runs").glob(f"{project}[.-]*"):
            shutil.copy(path, run)
        packed = run / f"{project}.out.gz"
        text = ase.io.formats.open_with_compression(str(packed), "rt").read()
        packed.unlink()
        output = run / f"{project}.out"
        end = text.rindex("\n", 0, text.index("PROGRAM ENDED AT"))
        output.write_text(text[: text.index(" -  ")] + text[end:])  # without statistics
        for name in names:
            yield Subject(f"cp2k_{name}", run / name, _read_beside(output.name))


def _read_beside(output: str):
    def read(path: Path) -> list[Content | None]:
        return _read_frames(cp2k.READER)(path.with_name(output))

    return read


def _make_mptrj(folder: Path) -> Iterator[Subject]:
    records = {}
    for number, atoms in enumerate(_make_images()):
        sites = [
            {"species": [{"element": s, "occu": 1}], "abc": abc.tolist()}
            for s, abc in zip(atoms.symbols, atoms.get_scaled_positions(), strict=True)
        ]
        structure = {"lattice": {"matrix": atoms.cell.tolist()}, "sites": sites}
        labels = {
            "corrected_total_energy": atoms.get_potential_energy(),
            "force": atoms.get_forces().tolist(),
            "stress": np.eye(3).tolist(),
            "magmom": atoms.positions[:, 0].tolist(),
        }
        records[f"mp-{number}"] = {f"mp-{number}-0-0": {"structure": structure, **labels}}
    path = make_folder(folder, "mptrj") / "MPtrj_2022.9_full.json"
    path.write_text(json.dumps(records))
    yield Subject("mptrj", path, _read_frames(mptrj.READER))


def _make_fitsnap(folder: Path) -> Iterator[Subject]:
    styles = {
        "PositionsStyle": "angstrom",
        "LatticeStyle": "angstrom",
        "EnergyStyle": "electronvolt",
        "ForcesStyle": "electronvoltperangstrom",
    }
    members = []
    for atoms in _make_images():
        data = {"Positions": atoms.positions.tolist(), "Energy": atoms.get_potential_energy(),
                "Forces": atoms.get_forces().tolist(), "AtomTypes": list(atoms.symbols),
                "Lattice": atoms.cell.tolist(), "NumAtoms": len(atoms)}  # fmt: skip
        members.append(("# x\n" + json.dumps({"Dataset": {"Data": [data], **styles}})).encode())
    single = make_folder(folder, "fitsnap_json") / "a.json"
    single.write_bytes(members[0])
    yield Subject("fitsnap_json", single, _read_frames(fitsnap.READER))
    for ending in ("tar", "tar.gz"):
        name = f"fitsnap_{ending}"
        archive = make_folder(folder, name) / f"a.{ending}"
        with tarfile.open(archive, "w:gz" if ending == "tar.gz" else "w") as tar:
            for number, content in enumerate(members):
                member = tarfile.TarInfo(f"JSON/A/{number}.json")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        yield Subject(name, archive, _read_frames(fitsnap.READER))


def _make_deepmd(folder: Path) -> Iterator[Subject]:
    """A subject for each file of a system, all of which are read by its `type.raw`.

    Of molecules, and of a system of mixed types, they are the files that are other ones.
    """
    types = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]], dtype=np.int32)
    for name, only in (
        ("crystals", ("",)),
        ("molecules", ("coord",)),
        ("mixed", ("type", "real_atom_types")),
    ):
        frames = make_frames(3, pbc=name != "molecules")
        system = write_system(folder / f"deepmd_{name}", frames).parent
        if name == "mixed":
            np.save(system / "set.000/real_atom_types.npy", types)
            (system / "type.raw").write_text("0\n" * 4)
        for path in sorted(system.rglob("*.*")):
            if path.is_file() and path.stem.startswith(only):
                read = partial(_read_system, system, path)
                yield Subject(f"deepmd_{name}_{path.stem}", path, read)


def _read_system(system: Path, file: Path, damaged: Path) -> list[Content | None]:
    """Read a copy of a system with one file exchanged for a damaged one."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(shutil.copytree(system, f"{name}/system"))
        shutil.copy(damaged, copy / file.relative_to(system))
        return _read_frames(deepmd.READER)(copy / "type.raw")


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
    path = make_folder(folder, "vasp_outcar") / "OUTCAR"
    path.write_text(text[:begin] + text[begin:start] + text[start:end] + text[last:])
    yield Subject("vasp_outcar", path, _read_frames(vasp.READER))
    packed = source.with_name("vasprun.xml.gz")
    text = ase.io.formats.open_with_compression(str(packed), "rb").read().decode("latin-1")
    begin, end = text.index("<eigenvalues>"), text.rindex("</calculation>")
    path = make_folder(folder, "vasp_xml") / "vasprun.xml"
    path.write_text(text[:begin] + text[end:], encoding="latin-1")
    yield Subject("vasp_xml", path, _read_frames(vasp.READER))


def _make_store(folder: Path) -> Iterator[Subject]:
    fields = [FIELDS[name] for name in ("atomic_numbers", "positions", "energy", "cell")]
    path = make_folder(folder, "store") / "data.h5"
    with SampleWriter(path, "data", {}, fields) as writer:
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

    yield Subject("store", path, read)


MAKERS = (
    _make_ase, _make_compressed, _make_cp2k, _make_mptrj, _make_fitsnap, _make_deepmd, _make_vasp,
    _make_store,
)  # fmt: skip
"""Write the files of the engine; those of VASP only where its real run lies beside the clone."""
