"""The command line of the engine, as users call it, on a project that a benchmark writes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.command import ROOT

CELLS = ROOT / "workflows/datasets/hfo2/outputs/cubic-0600K"
"""Shipped frames of 12 atoms of hafnia."""


def write_project(
    folder: Path, dataset: Mapping[str, Any], experiments: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write experiments, and their dataset `cells`, whose files are the shipped frames."""
    contents = {"datasets/cells": {"description": "Hafnia", **dataset}}
    contents |= {
        f"experiments/{name}": {"description": "Hafnia", "dataset": "cells", **content}
        for name, content in experiments.items()
    }
    for name, content in contents.items():
        path = folder / f"workflows/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
    (folder / "workflows/datasets/cells").symlink_to(CELLS)


def list_cells(split: str, frames: str, **options: Any) -> dict[str, Any]:
    """Return a source of frames for a split; with the option `repeat` copies side by side."""
    return {"split": split, "path": f"cells/{frames}.log.gz", **options}


def start_engine(
    project: Path,
    *words: str,
    ranks: int = 1,
    threads: int = 1,
    results: str = "results",
    **streams: Any,
) -> subprocess.Popen[str]:
    """Start a command, in a group of processes of its own.

    Args:
        project: Folder that has the `workflows`.
        *words: Of the command.
        ranks: That it shall start.
        threads: Of each rank.
        results: Folder for them.
        **streams: Where its output goes.
    """
    command = [sys.executable, "-m", "pipeline_core.cli", *words]
    command += ["--ranks", str(ranks)] if ranks > 1 else []
    command += ["--workflows", str(project / "workflows"), "--results", str(project / results)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(
        command, cwd=project, env=environment, start_new_session=True, text=True, **streams
    )


def call_engine(project: Path, *words: str, **kind: Any) -> str:
    """Run a command to its end; return what it prints.

    Raises:
        RuntimeError: It has failed; the message ends with what it said.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_engine(project, *words, **kind, **pipes) as process:
        shown, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {said[-3000:]}")
    return shown
