"""What a benchmark prints last: one JSON object, with the machine and the versions it ran on."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FRAME = ("ours_s", "peer", "peer_s", "ratio")
"""Figures that every report has; null where nothing is compared, or the peer is not there."""


def print_report(
    name: str,
    figures: Mapping[str, Any],
    *,
    threads: int | None,
    versions: Mapping[str, Any],
    device: str = "cpu",
) -> None:
    """Print the report of a benchmark as one line.

    Args:
        name: Of the module.
        figures: What it has measured; the rest is filled in where it is missing.
        threads: That each side could use; None where that is part of the figures.
        versions: Of packages.
        device: On which it has run.
    """
    machine = {"threads": threads, "hardware": name_hardware(device), "versions": versions}
    print(json.dumps({"name": name} | dict.fromkeys(FRAME) | machine | dict(figures)))


def collect_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return a list for each figure, with one entry a case."""
    return {key: [row[key] for row in rows] for key in rows[0]} if rows else {}


def show(row: Mapping[str, Any]) -> None:
    """Print the figures of a case as soon as they are there."""
    print(json.dumps(row), flush=True)


def divide(a: float | None, b: float | None) -> float | None:
    """Return a ratio, None where a figure is missing or the second is not positive."""
    return a / b if a is not None and b is not None and b > 0 else None


def scale_times(
    figures: Mapping[str, Any], factor: float, unit: str, sides: Sequence[str] = ("ours", "peer")
) -> dict[str, float | None]:
    """Return the times of sides in another unit, None for those that are not there."""
    seconds = {side: figures[f"{side}_s"] for side in sides}
    return {f"{n}_{unit}": None if s is None else factor * s for n, s in seconds.items()}


def read_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed."""
    result = {"python": platform.python_version()}
    for name in packages:
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            continue
    return result


def name_hardware(device: str = "cpu") -> str:
    """Return the name of the processor or GPU that did the work."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
