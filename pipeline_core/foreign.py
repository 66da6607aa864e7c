"""Files of other programs that hold a model of a plugin: what reads and writes them."""

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
        name: What `published:NAME` calls it.
        address: Where it can be had; nothing here fetches it.
        data: What it was trained on, and on which level of theory.
        licence: Its licence, as its authors give it.
        git_blob: What Git calls the content of the file, a hash of it (`hash_as_git`), where its
            authors keep it in a repository; empty if no hash is published.
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
        metadata: What rebuilds it, as `Task.metadata`: for a potential options, graph, elements and
            what else its plugin keeps there.
    """

    module: nn.Module
    metadata: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ForeignFormat:
    """A kind of file of another program. Its functions import what they need when they are called.

    Attributes:
        name: The other program.
        ending: How such files end, such as ".model".
        read: From a file and the heads to take of it, the first of which is what the model
            predicts, none for the only one, to the model; raises a ValueError for what it cannot
            convert, which it names. It runs nothing of the file.
        write: From a module of the plugin and a path to a file that the other program loads.
        published: Models that its authors have published in this format.
    """

    name: str
    ending: str
    read: Callable[[Path, Sequence[str]], ForeignModel]
    write: Callable[[nn.Module, Path], None]
    published: tuple[PublishedFile, ...] = ()

    def identify(self, path: Path) -> PublishedFile | None:
        """Return which published model a file is, by its hash; None if no known hash is its."""
        known = {one.git_blob: one for one in self.published if one.git_blob}
        return known.get(hash_as_git(path)) if known else None


def hash_as_git(path: Path) -> str:
    """Return the name that Git gives to the content of a file, as `git hash-object` does."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
