"""A small project on a few shipped frames of hafnia, each split from a run of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

from pipeline_core.run import Run
from pipeline_core.testing.projects import EXPERIMENT, call, write_project
from plugins.egnn_esp.reference import HAFNIA, ROOT

FRAMES = {"train": ("cubic-0600K", 3), "val": ("cubic-2000K", 1), "test": ("tetragonal-0600K", 1)}
SMALL = {
    "channels": 4, "layers": 1, "heads": 1, "attention_channels": 4, "value_channels": 4,
    "hidden_channels": 4, "feed_forward_channels": 4, "radial_functions": 6, "cutoff": 4.5,
}  # fmt: skip


def prepare_run(folder: Path, model: Mapping[str, Any] | None = None, **sections: Any) -> Run:
    """Return a run whose data, graph and partition are there."""
    options = {**SMALL, **(model or {})}
    raw = folder / "raw"
    raw.mkdir(parents=True)
    sources = []
    for split, (name, count) in FRAMES.items():
        _copy_frames(ROOT / f"workflows/datasets/hfo2/matrices/{name}.h5", raw / split, count)
        source = {"reader": "packed", "path": str(raw / split), "basis": HAFNIA, "split": split}
        sources.append(source)
    dataset = {"description": "Hafnia.", "plugin": "egnn_esp", "sources": sources}
    content = {
        "model": options,
        "graph": {"cutoff": options["cutoff"]},
        "train": {"epochs": 1, **sections.pop("train", {})},
        **sections,
    }
    project = write_project(folder, "egnn_esp", content, dataset)
    run = replace(project.run(f"egnn_esp/{EXPERIMENT}"), device="cpu")
    for stage in ("data", "graph", "partition"):
        call(run, stage)
    return run


def _copy_frames(path: Path, target: Path, count: int) -> None:
    with h5py.File(path) as source, h5py.File(target, "w") as file:
        file.attrs.update(source.attrs)
        for name in sorted(source)[:count]:
            source.copy(name, file)
