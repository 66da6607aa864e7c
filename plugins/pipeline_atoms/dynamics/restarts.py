"""Restart files of molecular dynamics: an interrupted run resumes bit for bit.

The frames between two restarts are a *segment*, two files that never change once they are closed.
`restart.h5` contains the number of segments and the full state. It is written last, so that
incomplete files of a killed job are not counted, and are overwritten.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.frames import UNCHANGING
from pipeline_core.artifacts import store

Arrays = dict[str, NDArray[Any]]

_RESTART: Final = "restart.h5"


@dataclass(frozen=True)
class Restart:
    """State from which a run resumes.

    Attributes:
        step: Number of completed steps.
        generator: State of the random-number generator, as JSON.
        arrays: State of integrator and atoms, by name.
    """

    step: int
    generator: str
    arrays: Arrays


def identify(atoms: Atoms, options: MolecularDynamics, seed: int, model: str) -> str:
    """Return a hash that two runs share only if they have the same steps.

    Args:
        atoms: Start structure.
        options: Options of the run.
        seed: Seed of the random numbers.
        model: SHA-256 of the model, or another identifier.
    """
    content = hashlib.sha256()
    described = {"options": options.model_dump(mode="json"), "seed": seed, "model": model}
    content.update(json.dumps(described, sort_keys=True).encode())
    for array in (atoms.numbers, atoms.positions, atoms.cell[:], atoms.pbc, atoms.get_masses()):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


class Restarts:
    """The segments of a run, and the state after the last of them.

    Args:
        folder: Folder of the files; files of another run in it are removed.
        identity: Hash of the run, see `identify`.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder, self._identity = folder, identity
        self._n_segments, self.last = self._load()

    def _load(self) -> tuple[int, Restart | None]:
        path = self._folder / _RESTART
        try:
            with store.open_artifact(path, "restart") as file:
                if file.attrs["identity"] == self._identity:
                    arrays = {name: data[()] for name, data in file["moving"].items()}
                    restart = Restart(int(file.attrs["step"]), str(file.attrs["generator"]), arrays)
                    return int(file.attrs["segments"]), restart
        except (FileNotFoundError, ValueError):
            pass  # no usable restart: the run starts from the beginning
        shutil.rmtree(self._folder, ignore_errors=True)
        return 0, None

    @contextmanager
    def write_segment(self) -> Iterator[tuple[h5py.Group, Path]]:
        """Yield an empty group for the next frames, and the path of a text file beside it."""
        arrays, text = self._name_segment(self._n_segments)
        with store.write_atomic(text) as temporary, store.create(arrays, "frames", {}) as file:
            temporary.touch()
            yield file, temporary
        self._n_segments += 1

    def save(self, restart: Restart) -> None:
        """Save the state after the segments written so far."""
        with store.create(self._folder / _RESTART, "restart", {}) as file:
            file.attrs["identity"], file.attrs["step"] = self._identity, restart.step
            file.attrs["generator"], file.attrs["segments"] = restart.generator, self._n_segments
            for name, array in restart.arrays.items():
                file.create_dataset(f"moving/{name}", data=array)

    def join(self, group: h5py.Group, trajectory: Path) -> None:
        """Write the frames of all segments into one group and one text file.

        Args:
            group: Receives the datasets, with a row per frame.
            trajectory: The text file.
        """
        with store.write_atomic(trajectory) as temporary, temporary.open("wb") as whole:
            for number in range(self._n_segments):
                with self._name_segment(number)[1].open("rb") as part:
                    shutil.copyfileobj(part, whole)
        with ExitStack() as stack:
            paths = (self._name_segment(number)[0] for number in range(self._n_segments))
            parts = [stack.enter_context(store.open_artifact(path, "frames")) for path in paths]
            for name in parts[0]:
                _join_rows(group, name, [part[name] for part in parts])

    def _name_segment(self, number: int) -> tuple[Path, Path]:
        return self._folder / f"{number}.h5", self._folder / f"{number}.extxyz"


def _join_rows(group: h5py.Group, name: str, parts: Sequence[h5py.Dataset]) -> None:
    """Write the rows of all segments; data of the whole run are written once."""
    first = parts[0]
    if name in UNCHANGING:
        group.create_dataset(name, data=first[()])
        return
    shape = (sum(map(len, parts)), *first.shape[1:])
    chunks = first.chunks if len(shape) > 1 else True
    whole = group.create_dataset(name, shape, first.dtype, chunks=chunks)
    whole.attrs.update(first.attrs)
    begin = 0
    for part in parts:
        whole[begin : begin + len(part)] = part[()]
        begin += len(part)
