"""Upgrades of files of earlier versions: one function per version, to the next one.

When a kind of file changes, a function is added under the number of its previous version: here for
files of the engine, in `ModelInfo.upgrades` for weights and options of a plugin. No file of a user
is rewritten: files are upgraded while they are read.

Before a change, keep files of the previous version: see `tests/plugins/older/make.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import h5py

Content = dict[str, Any]
Item = TypeVar("Item")
StoreUpgrade = Callable[[h5py.File, h5py.File], None]
"""Changes an artifact, whose datasets are links, given the file that they point to."""


def count_version(upgrades: Mapping[int, Any]) -> int:
    """Return the current version: one more than the last that has an upgrade."""
    return 1 + max(upgrades, default=0)


def upgrade(
    content: Item, version: int, upgrades: Mapping[int, Callable[[Item], Item]], place: str
) -> Item:
    """Upgrade content of a version to the current one.

    Args:
        content: Content of a file.
        version: Its version.
        upgrades: From each version to the function that converts it to the next one.
        place: File and part, for messages.

    Raises:
        ValueError: The version is newer than the current one, or invalid.
    """
    for number in _list_steps(version, upgrades, place):
        content = upgrades[number](content)
    return content


@contextmanager
def open_upgraded(
    file: h5py.File, upgrades: Mapping[int, StoreUpgrade], path: Path
) -> Iterator[h5py.File]:
    """Yield an artifact upgraded to the current version.

    Datasets are links into the file as it is, so that nothing large is copied.

    Args:
        file: The artifact, open for reading.
        upgrades: Upgrades of its schema.
        path: Its name.

    Raises:
        ValueError: The version is newer than the current one, or invalid.
    """
    steps = _list_steps(int(file.attrs.get("schema_version", 0)), upgrades, str(path))
    if not steps:
        yield file
        return
    with TemporaryDirectory() as folder:
        view = Path(folder) / "upgraded.h5"
        with h5py.File(view, "w", libver="v110") as new:
            _link_members(file, new, str(path.resolve()))
            for number in steps:
                upgrades[number](new, file)
            new.attrs["schema_version"] = count_version(upgrades)
        with h5py.File(view, "r") as new:
            yield new


def _list_steps(version: int, upgrades: Mapping[int, Any], place: str) -> range:
    """Return the versions to be upgraded, in order."""
    ours = count_version(upgrades)
    if version > ours:
        raise ValueError(
            f"{place}: of version {version}, this package reads up to {ours}; install the version "
            "of the package that wrote the file, or remove it and run its stage again"
        )
    numbers = range(version, ours)
    if any(number not in upgrades for number in numbers):
        raise ValueError(
            f"{place}: of version {version}, which no version of this package can have written; "
            "remove the file and run its stage again"
        )
    return numbers


def _link_members(old: h5py.Group, new: h5py.Group, path: str) -> None:
    """Mirror groups and attributes; make each dataset a link into the file `path`."""
    for name, value in old.attrs.items():
        new.attrs[name] = value
    for name, item in old.items():
        if isinstance(item, h5py.Group):
            _link_members(item, new.create_group(name), path)
        else:
            new[name] = h5py.ExternalLink(path, item.name)


def _name_mace_bins(new: h5py.File, old: h5py.File) -> None:
    """The strategy of MACE's paper was called "paper" before."""
    if old.attrs.get("strategy") == "paper":
        new.attrs["strategy"] = "mace_bins"
    forecast = json.loads(old.attrs.get("balance", "[]"))
    renamed = [{{"paper": "mace_bins"}.get(k, k): v for k, v in e.items()} for e in forecast]
    new.attrs["balance"] = json.dumps(renamed)


def _add_plugin_version(model: Content) -> Content:
    """The plugin's part had no version of its own."""
    return {**model, "plugin_version": 1}


def _name_learner(state: Content) -> Content:
    """HT-FBR used the name "descent" for the option that others call "learner".

    A change of the plugin's source since then is not a reason to start again.
    """
    facts = dict(state["facts"])
    facts.pop("plugin source", None)
    if "partition.strategy" in facts:
        strategy = facts["partition.strategy"]
        facts["partition.strategy"] = strategy.replace("paper for", "mace_bins for")
    learner = state.get("learner", state.get("descent"))
    kept = {name: value for name, value in state.items() if name != "descent"}
    return {**kept, "facts": facts, "learner": learner, "plugin_version": 1}


STORES: Final[dict[str, dict[int, StoreUpgrade]]] = {
    "data": {},
    "graph": {},
    "partition": {1: _name_mace_bins},
    "predictions": {},
    "inference": {},
    "frames": {},
    "restart": {},
}
"""By schema; a plugin's own schemas have none."""

MODEL: Final[dict[int, Callable[[Content], Content]]] = {1: _add_plugin_version}
"""Upgrades of the engine's part of `model.pt`."""

STATE: Final[dict[int, Callable[[Content], Content]]] = {0: _name_learner}
"""Upgrades of the engine's part of `state/last.pt`, whose first version had no number."""
