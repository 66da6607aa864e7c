"""Systems of DeePMD-kit, written from ASE's frames as the description of the format says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT


def make_frames(count=5, *, pbc=True, seed=0) -> list[Atoms]:
    """Strained and rattled cells of two Cu and two Al, labelled by EMT."""
    rng = np.random.default_rng(seed)
    frames = []
    for _ in range(count):
        atoms = bulk("Cu", cubic=True, a=3.75)
        atoms.symbols[[1, 2]] = "Al"
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + rng.uniform(-0.01, 0.01, (3, 3))), True)
        atoms.positions += rng.normal(0, 0.02, (4, 3))
        atoms.pbc = pbc
        atoms.calc = EMT()
        frames.append(atoms)
    return frames


def write_system(
    folder: Path, frames: list[Atoms], *, flat=True, per_set=3, dtype=np.float64
) -> Path:
    """Write frames as the description of the format says; return `type.raw`.

    With ASE's stress, tension positive, the virial is minus volume times stress.
    """
    folder.mkdir(parents=True)
    (folder / "type.raw").write_text("1 0 0 1\n")
    (folder / "type_map.raw").write_text("Al\nCu\n")
    if not frames[0].pbc.any():
        (folder / "nopbc").touch()
    for number, begin in enumerate(range(0, len(frames), per_set)):
        part = frames[begin : begin + per_set]
        arrays = {
            "coord": [a.positions for a in part],
            "energy": [a.get_potential_energy() for a in part],
            "force": [a.get_forces() for a in part],
        }
        if frames[0].pbc.any():
            arrays["box"] = [a.cell.array for a in part]
            arrays["virial"] = [-a.get_volume() * a.get_stress(voigt=False) for a in part]
        place = folder / f"set.{number:03d}"
        place.mkdir()
        for name, values in arrays.items():
            array = np.array(values, dtype=dtype)
            rows = (len(part), -1) if flat and array.ndim > 1 else array.shape
            np.save(place / f"{name}.npy", array.reshape(rows))
    return folder / "type.raw"
