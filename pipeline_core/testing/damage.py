"""Bit flips in artifacts of a run: each raises an error that names the file, or has no effect."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import torch

from pipeline_core.artifacts import store
from pipeline_core.model_info import MAKERS
from pipeline_core.project import lineage
from pipeline_core.project.run import Run
from pipeline_core.training.model_file import load_archive

_TEXT: Final = re.compile(rb"[ -~]{8,}")
_NEAR: Final = 256
"""Bytes of the header, and of the end."""


def list_artifacts(run: Run) -> list[Path]:
    """Return the files of a finished run whose numbers are read again."""
    made = [getattr(run, name) for name in MAKERS]
    if run.dataset is not None:
        made += [run.dataset.data, run.dataset.report]
    # Plugins may write more; the training state and the history are not in `MAKERS`.
    more = [path for kind in ("h5", "json") for path in run.folder.rglob(f"*.{kind}")]
    paths = dict.fromkeys([*made, *sorted(more), run.state / "last.pt", run.history])
    return [path for path in paths if path.is_file()]


def find_silent_flips(run: Run, path: Path, seed: int = 0) -> list[str]:
    """Flip ten bits of a file, one after the other; return those without a proper error.

    Args:
        run: The run that the file belongs to.
        path: The file, whose content is restored at the end.
        seed: Seed of the choice of bits: in the header, in text, at the end, and anywhere.

    Returns:
        A line for each such flip: its place and its outcome.
    """
    silent, whole, expected = [], path.read_bytes(), read_content(run, path)
    random = np.random.default_rng(seed)
    with keep_content(path):
        for place in _choose_places(whole, random):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(random.integers(8))
            path.write_bytes(damaged)
            if outcome := _judge(run, path, expected):
                silent.append(f"{path}, byte {place} of {len(whole)}: {outcome}")
    return silent


@contextmanager
def keep_content(path: Path) -> Iterator[None]:
    """Restore the content of a file after the block."""
    whole = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(whole)


def _choose_places(content: bytes, random: np.random.Generator) -> Iterator[int]:
    texts = [match.span() for match in _TEXT.finditer(content)] or [(0, len(content))]
    for low, high in ((0, _NEAR), (len(content) - _NEAR, len(content))):
        yield from random.integers(max(low, 0), min(high, len(content)), 2).tolist()
    for start, end in random.choice(texts, 3):
        yield int(random.integers(start, end))
    yield from random.integers(len(content), size=3).tolist()


def _judge(run: Run, path: Path, expected: Any) -> str:
    """Read a damaged file; return the fault of the outcome, or an empty string."""
    try:
        content = read_content(run, path)
    except ValueError as error:
        return "" if path.name in str(error) else f"its error does not name it: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a message for a user
        return repr(error)
    return (
        ""
        if content == expected
        else "read as if it were whole; write it by pipeline_core.artifacts.store"
    )


def read_content(run: Run, path: Path) -> Any:
    """Check a file of a run as `verify` does; return its content, or a checksum of it.

    Raises:
        ValueError: It is damaged.
    """
    if path == run.history:
        if fault := lineage.find_history_fault(run):
            raise ValueError(str(fault))
        return path.read_bytes()
    store.check(path)
    if path.suffix == ".json":
        return store.read_json(path)
    return digest_archive(load_archive(path, "")) if path.suffix == ".pt" else digest_hdf5(path)


def digest_archive(content: Any) -> str:
    """Return a checksum of the tensors and values in nested mappings and sequences."""
    digest = hashlib.sha256()
    for part in _walk(content):
        digest.update(part)
    return digest.hexdigest()


def _walk(content: Any) -> Iterable[bytes]:
    if isinstance(content, torch.Tensor):
        yield content.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield str(key).encode()
            yield from _walk(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _walk(value)
    else:
        yield repr(content).encode()


def digest_hdf5(path: Path) -> str:
    """Return a checksum of the arrays, names and attributes of an HDF5 file.

    Raises:
        ValueError: It is damaged.
    """
    digest = hashlib.sha256()

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        attributes = {key: str(value) for key, value in sorted(item.attrs.items())}
        digest.update(json.dumps([name, attributes]).encode())
        if isinstance(item, h5py.Dataset):
            values = np.asarray(item[()])
            digest.update(str(values).encode() if values.dtype == object else values.tobytes())

    with store.open_any(path) as file:
        file.visititems(add)
        add("", file)
    return digest.hexdigest()
