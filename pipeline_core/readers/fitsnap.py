"""FitSNAP's JSON: one structure, or a few, in each of many small files, usually in one archive.

Layout as in the examples of https://github.com/FitSNAP/FitSNAP: a comment line with '#', then
`{"Dataset": {"Data": [...], "EnergyStyle": "electronvolt", ...}}`; the folder of a file names its
group. Rows of `Lattice` are the lattice vectors. `Stress` is positive if the cell wants to expand.
`Spins` holds the magnitude and the direction of each moment; the label is the magnitude, since
directions are free in such sets.

The files state their units as styles, and one archive may differ from the next in that of the
stress, so each frame is brought to this reader's units, or is bad if its style is unknown. The
statement can be wrong: the W-Be set of Wood et al. (Phys. Rev. B 99, 184305) says bar for numbers
that agree with its energies only as kbar; a dataset file corrects that by declaring the unit of the
stress.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from pipeline_core.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_core.readers.checks import find_atomic_numbers
from pipeline_core.readers.files import open_bytes, strip_compression
from pipeline_core.units import find_factor

_UNITS: Final = Units(stress="bar", stress_sign="pressure")
_LENGTHS: Final = {"angstrom": "angstrom", "bohr": "bohr"}
_ENERGIES: Final = {"electronvolt": "eV", "hartree": "hartree"}
_FORCES: Final = {"electronvoltperangstrom": "eV/angstrom", "hartreeperbohr": "hartree/bohr"}
_STRESSES: Final = {"bar": "bar", "kB": "kbar", "kbar": "kbar", "GPa": "GPa"}
_STYLES: Final = {  # key: dimension, unit of this reader, styles as they are spelled
    "Lattice": ("length", _UNITS.length, _LENGTHS),
    "Positions": ("length", _UNITS.length, _LENGTHS),
    "Energy": ("energy", _UNITS.energy, _ENERGIES),
    "Forces": ("force", _UNITS.force, _FORCES),
    "Stress": ("stress", _UNITS.stress, _STRESSES),
}

Json = dict[str, Any]


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read an archive, plain or compressed, or a single JSON file.

    Args:
        path: A .tar, .tar.gz, ... or .json file.
        keys: Must be empty; the names of the labels are fixed.

    Yields:
        Every frame, in the order of the archive.
    """
    assert not keys
    index = 0
    for name, content in _iterate_members(path):
        for frame in _iterate_frames(name, content, index):
            yield frame
            index += 1


def _iterate_members(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield name and content of each JSON file; an archive is streamed, never unpacked."""
    if strip_compression(path).endswith(".json"):
        with open_bytes(path) as file:
            yield PurePosixPath(path.parent.name, path.name), file.read()
        return
    with _open_archive(path) as archive:
        try:
            for member in archive:
                name = PurePosixPath(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content and name.suffix == ".json" and not name.name.startswith("._"):
                    yield name, content.read()
        except tarfile.ReadError as error:
            raise EOFError from error


def _open_archive(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path, mode="r|*")
    except tarfile.ReadError as error:
        raise ValueError(f"is neither a .json file nor a tar archive ({error})") from error


def _iterate_frames(name: PurePosixPath, content: bytes, index: int) -> Iterator[Frame | BadFrame]:
    info = {"group": name.parent.name, "file": name.name}
    try:
        text = content.decode()
        dataset = json.loads(text.partition("\n")[2] if text.startswith("#") else text)["Dataset"]
        structures = list(dataset["Data"])
    except (ValueError, LookupError, TypeError) as error:
        yield BadFrame(index, f"{name}: {_explain(error)}")
        return
    for offset, structure in enumerate(structures):
        try:
            yield _make_frame(structure, dataset, info, index + offset)
        except (ValueError, LookupError, TypeError) as error:
            yield BadFrame(index + offset, f"{name}: {_explain(error)}")


def _explain(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not the layout of FitSNAP ({error!r})"


def _make_frame(structure: Json, dataset: Json, info: Mapping[str, str], index: int) -> Frame:
    def read_array(key: str) -> Floats:
        return np.array(structure[key], dtype=np.float64) * _find_factor(key, dataset)

    names = {"energy": "Energy", "forces": "Forces", "stress": "Stress"}
    labels = {name: read_array(key) for name, key in names.items() if key in structure}
    if "Spins" in structure:
        labels["magmoms"] = np.array(structure["Spins"], dtype=np.float64)[:, 0]
    return Frame(
        atomic_numbers=find_atomic_numbers(structure["AtomTypes"]),
        positions=read_array("Positions"),
        cell=read_array("Lattice"),
        pbc=np.ones(3, dtype=bool),
        labels=labels,
        info=info,
        index=index,
    )


def _find_factor(key: str, dataset: Json) -> float:
    """Return the number that brings the values under `key` to this reader's unit."""
    dimension, unit, spellings = _STYLES[key]
    style = dataset.get(f"{key}Style")
    if style not in spellings:
        raise ValueError(f"{key}Style is {style!r}, known are {', '.join(spellings)}")
    return find_factor(dimension, spellings[style]) / find_factor(dimension, unit)


READER: Final = Reader(
    name="fitsnap",
    summary="FitSNAP's JSON files, single or in a (compressed) tar archive.",
    suffixes=(".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".tgz"),
    units=_UNITS,
    read=read,
)
