"""The numbers of a paper, `workflows/experiments/<plugin>/expected.yaml`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from pipeline_core.config.sections import Section
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.project.run import ExperimentRun

ARTIFACTS: Final = {
    "metrics": "evaluate",
    "history": "train",
    "epoch": "train",
    "inference": "infer",
    "profile": "profile",
    "balance": "partition",
    "records": "",
}
"""Artifacts that a pointer may lead into, and the stage of each; records are of all."""

Pointer = Annotated[str, Field(pattern=rf"^[^/]+/({'|'.join(ARTIFACTS)})(/[^/]+)*$")]


class Measure(Section):
    """Location of our counterpart of a number."""

    experiment: str
    """The experiment with the number, such as chgnet/hfo2."""
    of: Pointer
    """Variant, artifact, and the keys that lead to the number, such as base/history/-1/seconds.

    base/epoch/seconds is the median time of an epoch after the first; a projection of the profile
    is found by its mode, strategy and ranks: base/profile/projection/strong/balanced/64/seconds.
    base/inference leads into the attributes of groups in the file of the stage infer, in any
    layout, such as base/inference/derivatives/report/start.
    """
    over: Pointer | None = None
    """Divisor, for ratios such as a speed-up."""
    factor: float = 1.0
    """Factor that converts it into the unit of the paper."""
    status: Literal["measured", "projected", "input"] = "measured"
    """Measured, projected by a cost model, or an input that projections take from the paper."""
    stage: Literal["graph", "partition", "train", "evaluate", "infer", "profile"] | None = None
    """The stage whose machine is reported, such as train for a time that evaluation reports; null
    for the stage that wrote the artifact."""


class Entry(Section):
    """One number of the paper."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    where: str
    """Table, figure or section, with the page."""
    quantity: str
    value: float
    unit: str
    scale: str = ""
    """Scale of this number, where it differs from the scale of the paper."""
    source: str = "the paper"
    """Source of the number, where it is not the paper itself."""
    measure: Measure | None = None
    """Our counterpart; null if there is none: not attempted."""
    differs: str
    """Differences between the paper's number and ours, or the reason why we have none."""


class Expected(Section):
    """The numbers of a paper."""

    paper: str
    citation: str
    scale: str
    hardware: str
    also_of: tuple[str, ...] = ()
    """Experiments with figures of the paper, but without comparisons of its numbers."""
    entries: list[Entry]

    @model_validator(mode="after")
    def _check_ids(self) -> Expected:
        seen: set[str] = set()
        for entry in self.entries:
            if entry.id in seen:
                raise ValueError(f"two entries have the id {entry.id!r}")
            seen.add(entry.id)
        return self


def is_of_paper(experiment: ExperimentRun, plugin: str | None) -> bool:
    """Return True if an experiment reproduces the paper of a plugin.

    The file of the paper's numbers is then beside it, in the folder of the plugin, and names it.

    Raises:
        ValueError: The file is wrong; the message names keys and lines.
    """
    folder = experiment.path.parent
    expected = read_expected(folder / "expected.yaml")
    if expected is None or plugin not in (None, folder.name):
        return False
    measured = [entry.measure.experiment for entry in expected.entries if entry.measure]
    return experiment.experiment in [*measured, *expected.also_of]


def read_paper(experiment: ExperimentRun) -> dict[str, Entry]:
    """Return the numbers of the paper of an experiment by their ids; empty without a file.

    Raises:
        ValueError: The file is wrong; the message names keys and lines.
    """
    expected = read_expected(experiment.path.parent / "expected.yaml")
    return {entry.id: entry for entry in expected.entries} if expected else {}


def read_expected(path: Path) -> Expected | None:
    """Read the numbers of a paper; None if there is no such file.

    Raises:
        ValueError: The file is wrong; the message names keys and lines.
    """
    if not path.exists():
        return None
    about = path.stat()
    return _read_once(path, about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=8)
def _read_once(path: Path, *version: int) -> Expected:
    """Read the file, once for all figures of an experiment, and again when it has changed."""
    return validate_content(Expected, read_yaml(path), path)
