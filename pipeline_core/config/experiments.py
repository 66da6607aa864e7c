"""Experiment files: dataset, plugin, one section a stage, and variants that override parts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pipeline_core.config.sections import Section

BASE = "base"
"""The variant that every experiment has: nothing overridden."""


class ExperimentFile(Section):
    """An experiment file, `workflows/experiments/<plugin>/<name>.yaml`.

    Sections are validated later, variant by variant.
    """

    description: str
    plugin: str
    dataset: str | None = None
    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    seed: int = Field(default=0, ge=0)
    model: dict[str, Any] = {}
    graph: dict[str, Any] = {}
    partition: dict[str, Any] = {}
    train: dict[str, Any] = {}
    evaluate: dict[str, Any] = {}
    infer: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {}


def merged(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return `base` under `override`: mappings merge, lists and scalars are replaced."""
    result = dict(base)
    for key, value in override.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result
