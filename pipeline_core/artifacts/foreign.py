"""Formats of other programs for models of a plugin: reading, writing, published files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A model that its authors have published.

    Attributes:
        name: Its name behind `published:`.
        address: URL of the file; it is not downloaded from here.
        data: Training data and level of theory.
        licence: Its licence, as its authors state it.
        git_blob: Git's hash of the file's content (`hash_as_git`), if its authors keep it in a
            repository; empty if no hash is published.
    """

    name: str
    address: str
    data: str
    licence: str
    git_blob: str = ""


@dataclass(frozen=True)
class ForeignModel:
    """A model that was read from the file of another program.

    Attributes:
        module: With its weights, on the CPU.
        metadata: Data to rebuild it, as `Task.metadata`: for a potential its options, graph,
            elements and whatever else the plugin keeps there.
    """

    module: nn.Module
    metadata: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ForeignFormat:
    """A file format of another program. Its functions import what they need when called.

    Attributes:
        name: The other program.
        ending: Suffix of such files, such as ".model".
        read: From a file and the names of the heads to take (the first one predicts; none for the
            only head of the file) to the model; raises a ValueError that names what it cannot
            convert. It executes no code of the file.
        write: From a module of the plugin and a path to a file that the other program loads.
        published: Models that its authors have published in this format.
    """

    name: str
    ending: str
    read: Callable[[Path, Sequence[str]], ForeignModel]
    write: Callable[[nn.Module, Path], None]
    published: tuple[PublishedFile, ...] = ()

    def identify(self, path: Path) -> PublishedFile | None:
        """Return the published model that a file holds, by its hash; None if no hash matches."""
        by_hash = {one.git_blob: one for one in self.published if one.git_blob}
        return by_hash.get(hash_as_git(path)) if by_hash else None


def hash_as_git(path: Path) -> str:
    """Return Git's hash of the content of a file, as `git hash-object` does."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
