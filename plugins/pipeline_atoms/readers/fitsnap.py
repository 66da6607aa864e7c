"""FitSNAP's JSON: one structure, or a few, in each of many small files, usually in one archive.

Layout as in the examples of https://github.com/FitSNAP/FitSNAP: a comment line with '#', then
`{"Dataset": {"Data": [...], "EnergyStyle": "electronvolt", ...}}`; the folder of a file names its
group. Rows of `Lattice` are the lattice vectors. `Stress` is positive if the cell tends to expand.
`Spins` holds the magnitude and the direction of each moment; the label is the magnitude, since
directions are free in these sets.

The files state their units as styles, and archives may differ in the style of the stress, so each
frame is converted to this reader's units, or is bad if its style is unknown. The stated style can
be wrong: the W-Be set of Wood et al. (Phys. Rev. B 99, 184305) states bar for numbers that agree
with its energies only as kbar; a dataset file corrects this by declaring the unit of the stress.
"""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Self

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_atoms.readers.frame_checks import find_atomic_numbers, make_object, require_numbers
from pipeline_core.data.files import open_bytes, strip_compression
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

_BLOCK: Final = 1 << 20
_BEGINNING: Final = re.compile(rb'(?:#[^\n]*\n)?\s*\{\s*"Dataset"')

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
    try:
        for name, content in _iterate_members(path):
            for frame in _iterate_frames(name, content, index):
                yield frame
                index += 1
    except tarfile.TarError as error:
        yield BadFrame(index, f"the archive is damaged ({error}); what follows is lost")


def _iterate_members(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield name and content of each JSON file; an archive is streamed, never unpacked."""
    with open_bytes(path) as stream:
        if strip_compression(path).endswith(".json"):
            yield PurePosixPath(path.parent.name, path.name), stream.read()
            return
        with _open_archive(stream) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if not member.isfile():
                    continue
                if member.issparse():
                    raise tarfile.ReadError(f"{name} has holes, which no text has")
                file = archive.extractfile(member)
                if file is None or name.name.startswith("._"):
                    continue
                content = file.read()
                # The checksum of a header does not detect every change of a name.
                if name.suffix == ".json" or _BEGINNING.match(content):
                    yield name, content
            _require_end(archive)


class _Header(tarfile.TarInfo):
    """Header of an archive; a damaged one is an error, and not the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # zeros: the end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def _open_archive(file: BinaryIO) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=file, mode="r|", tarinfo=_Header)
    except tarfile.ReadError as error:
        raise ValueError(f"is neither a .json file nor a tar archive ({error})") from error


def _require_end(archive: tarfile.TarFile) -> None:
    """Check that nothing follows the end of an archive, such as another one."""
    rest = archive.fileobj
    assert rest is not None
    while block := rest.read(_BLOCK):
        if any(block):
            raise tarfile.ReadError("something follows its end")


def _iterate_frames(name: PurePosixPath, content: bytes, index: int) -> Iterator[Frame | BadFrame]:
    info = {"group": name.parent.name, "file": name.name}
    try:
        text = content.decode()
        body = text.partition("\n")[2] if text.startswith("#") else text
        dataset = json.loads(body, object_pairs_hook=make_object)["Dataset"]
        structures = dataset["Data"]
        if not isinstance(structures, list):
            raise TypeError("Data is not a list")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        yield BadFrame(index, f"{name}: {_explain(error)}")
        return
    for offset, structure in enumerate(structures):
        try:
            yield _make_frame(structure, dataset, info, index + offset)
        except (ValueError, LookupError, TypeError) as error:
            place = f"{name}: " if len(structures) == 1 else f"{name}: structure {offset}: "
            yield BadFrame(index + offset, f"{place}{_explain(error)}")


def _explain(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not the layout of FitSNAP ({error!r})"


def _make_frame(structure: Json, dataset: Json, info: Mapping[str, str], index: int) -> Frame:
    def read_array(key: str) -> Floats:
        return require_numbers(key, structure[key]) * _find_factor(key, dataset)

    names = {"energy": "Energy", "forces": "Forces", "stress": "Stress"}
    labels = {name: read_array(key) for name, key in names.items() if key in structure}
    symbols = structure["AtomTypes"]
    if not isinstance(symbols, list) or structure.get("NumAtoms", len(symbols)) != len(symbols):
        raise ValueError("AtomTypes is not a list of NumAtoms elements")
    if "Spins" in structure:
        labels["magmoms"] = require_numbers("Spins", structure["Spins"])[:, 0]
    return Frame(
        atomic_numbers=find_atomic_numbers(symbols),
        positions=read_array("Positions"),
        cell=read_array("Lattice"),
        pbc=np.ones(3, dtype=bool),
        labels=labels,
        info=info,
        index=index,
    )


def _find_factor(key: str, dataset: Json) -> float:
    """Return the conversion factor of values under `key` to this reader's unit."""
    dimension, unit, spellings = _STYLES[key]
    style = dataset.get(f"{key}Style")
    if not isinstance(style, str) or style not in spellings:
        raise ValueError(f"{key}Style is {style!r}, supported are {', '.join(spellings)}")
    return find_factor(dimension, spellings[style]) / find_factor(dimension, unit)


READER: Final = Reader(
    name="fitsnap",
    summary="FitSNAP's JSON files, single or in a (compressed) tar archive.",
    suffixes=(".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".tgz"),
    units=_UNITS,
    read=read,
)
