"""Artifacts with other contents than their stages wrote, which vouch for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from pipeline_core.artifacts import store


@contextmanager
def edit_sealed(path: Path) -> Iterator[h5py.File]:
    """Open an artifact for changes, and seal it anew."""
    facts = store.read_provenance(path)
    with h5py.File(path, "r+") as file:
        yield file
    content = path.read_bytes()
    with store.write_sealed(path, facts) as sealed:
        sealed.write(content)
