"""VASP: vasprun.xml with the moments of the OUTCAR beside it, or an OUTCAR alone.

The energy is `e_fr_energy`, the free energy of the electrons, unless the dataset file names
another: VASP's forces are its gradient (https://www.vasp.at/forum/viewtopic.php?t=18795), and a
model that derives forces from energies can fit no other pair exactly. The Materials Project
tabulates `e_0_energy`, extrapolated to zero smearing; without partial occupation the two agree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units, outcar, vasprun
from pipeline_core.data.files import find_compressed, open_bytes, open_text, strip_compression

_NAMES: Final = {
    "energy": "e_fr_energy",
    "forces": "forces",
    "stress": "stress",
    "magmoms": "magmoms",
}
_SAME_ENERGY: Final = 1e-4  # eV; both files print eight decimals


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read the steps of a run.

    Args:
        path: A vasprun.xml or OUTCAR, plain or compressed.
        keys: {"energy": one of e_fr_energy, e_0_energy, e_wo_entrp}, or empty.

    Yields:
        Each ionic step.

    Raises:
        ValueError: The OUTCAR beside a vasprun.xml belongs to another run.
    """
    names = {**_NAMES, **keys}
    for frame in _iterate_frames(path):
        if isinstance(frame, BadFrame):
            yield frame
        else:
            labels = {name: frame.labels[key] for name, key in names.items() if key in frame.labels}
            yield replace(frame, labels=labels, info={"folder": path.resolve().parent.name})


def iterate_values(path: Path) -> Iterator[Mapping[str, Floats]]:
    """Yield the labels of each good step under VASP's names."""
    for frame in _iterate_frames(path):
        if isinstance(frame, Frame):
            yield frame.labels


def _iterate_frames(path: Path) -> Iterator[Frame | BadFrame]:
    name = strip_compression(path)
    if ".xml" not in name:
        with open_text(path) as text:
            yield from outcar.iterate_frames(text)
        return
    beside = find_compressed(path.with_name(name.replace("vasprun.xml", "OUTCAR")))
    with open_bytes(path) as file:
        if beside is None or beside == path:
            yield from vasprun.iterate_frames(file)
            return
        with open_text(beside) as text:
            for step, other in zip_longest(
                vasprun.iterate_frames(file), outcar.iterate_frames(text)
            ):
                if step is not None:
                    yield _add_magmoms(step, other, beside)


def _add_magmoms(
    step: Frame | BadFrame, other: Frame | BadFrame | None, beside: Path
) -> Frame | BadFrame:
    """Add the moments of the same step in the OUTCAR."""
    if not (isinstance(step, Frame) and isinstance(other, Frame)):
        return step
    if abs(step.labels["e_fr_energy"] - other.labels["e_fr_energy"]) > _SAME_ENERGY:
        raise ValueError(
            f"step {step.index} has another energy in {beside}, which belongs to another run; "
            "move one of the two files elsewhere"
        )
    magmoms = {n: value for n, value in other.labels.items() if n == "magmoms"}
    return replace(step, labels={**step.labels, **magmoms})


READER: Final = Reader(
    name="vasp",
    summary="vasprun.xml with the moments of the OUTCAR beside it, or an OUTCAR alone.",
    suffixes=("vasprun.xml", "vasprun.xml.gz", "OUTCAR", "OUTCAR.gz"),
    units=Units(stress="kbar", stress_sign="pressure"),
    read=read,
    keys=True,
    values=iterate_values,
)
