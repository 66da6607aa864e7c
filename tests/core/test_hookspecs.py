"""The contract of plugins. The oracle is what it was when its version was last raised."""

import inspect
import re

from pipeline_core.hookspecs import HOOKS_VERSION, PipelineSpecs

VERSION = "1.2"
CONTRACT = {
    "model": (),
    "task": ("run",),
    "data": ("run",),
    "graph": ("run",),
    "partition": ("run",),
    "train": ("run",),
    "evaluate": ("run",),
    "infer": ("run",),
    "profile": ("run",),
    "draw": ("run",),
    "readers": (),
    "figures": ("model",),
    "commands": (),
    "findings": ("experiment",),
    "calculator": ("run", "device"),
    "check": ("run",),
    "dataset_model": ("content",),
    "check_data": ("run",),
    "dependencies": ("run",),
    "measure": ("run", "task", "samples"),
    "calibrate": ("run",),
    "compare_committee": ("run",),
    "describe_training": ("run",),
    "divider": ("run", "task", "ranks"),
    "variants": ("file", "path"),
    "variant_dataset": ("run", "base"),
    "rules": (),
    "example": ("info",),
    "sections": ("info",),
    "epoch": ("run", "record"),
    "progress": ("run", "position"),
}
"""Hooks and their arguments. What comes raises the minor version, what goes the major one."""


def test_hooks_change_with_their_version_alone():
    hooks = {n: f for n, f in vars(PipelineSpecs).items() if not n.startswith("_")}
    ours = {name: tuple(inspect.signature(hook).parameters)[1:] for name, hook in hooks.items()}
    assert (HOOKS_VERSION, ours) == (VERSION, CONTRACT)
    assert re.fullmatch(r"\d+\.\d+", HOOKS_VERSION)  # which plugins can name
