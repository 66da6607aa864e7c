"""A plugin's description of its model, which its hook `model` returns as a `ModelInfo`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from pipeline_core.artifacts.foreign import ForeignFormat
from pipeline_core.config.datasets import DatasetFile
from pipeline_core.config.experiments import ENGINE_SECTIONS, AbsentStage

STAGES: Final = ("data", "graph", "partition", "train", "evaluate", "infer", "profile", "figures")
RUN_STAGES: Final = STAGES[1:]
"""The stages that have a section in an experiment; a dataset file describes the data stage."""
OPTIONAL_STAGES: Final = ("graph", "partition", "infer", "profile")
"""The stages that a model can omit."""
MAKERS: Final = {
    "graph": "graph",
    "partition": "partition",
    "model": "train",
    "metrics": "evaluate",
    "predictions": "evaluate",
    "inference": "infer",
    "profile": "profile",
}
"""Artifacts of a run, and the stage that makes each."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """Converts models of one version of a plugin to the next version.

    Attributes:
        weights: From the names and tensors of a module's state to those of the next version.
            Parameters keep their order, by which optimizers identify them.
        metadata: From `Task.metadata` to that of the next version.
        batch: From the batch of stored predictions to one of the next version.
    """

    weights: Callable[[dict[str, Any]], dict[str, Any]] = dict
    metadata: Callable[[dict[str, Any]], dict[str, Any]] = dict
    batch: Callable[[dict[str, Any]], dict[str, Any]] = dict


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Description of a model, available before anything heavy is imported.

    Attributes:
        name: Name in experiments, a lower-case Python identifier.
        summary: One sentence, shown by `pipeline-core plugins`.
        citation: The paper to cite, with DOI or arXiv number.
        options: Pydantic model of the experiment's `model` section.
        data_kind: Kind of a sample ("structure", "point", "configuration").
        predicts: Names of the fields that the model can predict; only these can have terms in the
            loss. Empty if the model has no such loss.
        check: Function of all sections of an experiment by name, "model" and one a stage; raises a
            ValueError where they do not fit together, whose message begins with the key at fault,
            such as "model.channels is 3". It is called before anything runs, for each variant.
        sections: Pydantic models of the stage sections that differ from the engine's own. Those of
            `evaluate` and `infer` may have a property `datasets`: names of further datasets that
            the stage reads; the model of `infer` a property `files`: paths that it reads besides
            the artifacts; the model of `profile` derives from the engine's `ProfileOptions`.
        without: Stages that the model omits, of `OPTIONAL_STAGES`. The workflow leaves them out,
            nothing is written for them, and their sections in experiments stay empty. Without
            `partition` there are no shares of ranks, which the shared trainer needs: such a plugin
            has a training loop of its own.
        dataset: Pydantic model of the dataset files that name this plugin, derived from
            `pipeline_core.config.datasets.DatasetFile`; None for files of structures.
        parts: Groups of parameters that `train.freeze` can name: parts of the module, each with the
            first components of the names of its parameters.
        foreign: Formats of other programs that `pipeline-core load` reads and `export` writes.
        version: Version of the module's weights and metadata.
        upgrades: For each earlier version that can be read, the conversion to the next.
        removed: Options of earlier versions that are gone, such as "train.shots", each with the
            value that all runs have now: artifacts with this value stay current.
    """

    name: str
    summary: str
    citation: str
    options: type[BaseModel]
    data_kind: str = "structure"
    predicts: tuple[str, ...] = ()
    check: Callable[[Mapping[str, BaseModel]], None] | None = None
    sections: dict[str, type[BaseModel]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    dataset: type[DatasetFile] | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: tuple[ForeignFormat, ...] = ()
    version: int = 1
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    removed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"model name {self.name!r} is not a lower-case identifier such as 'my_model'"
            )
        unknown = set(self.sections) - set(RUN_STAGES)
        if unknown:
            raise ValueError(
                f"model {self.name!r} brings sections for {sorted(unknown)}; "
                f"stages are {RUN_STAGES}"
            )
        unknown = set(self.without) - set(OPTIONAL_STAGES)
        if unknown:
            raise ValueError(
                f"model {self.name!r} omits {sorted(unknown)}; the stages "
                f"that it can omit are {OPTIONAL_STAGES}"
            )

    @property
    def section_models(self) -> dict[str, type[BaseModel]]:
        """Pydantic models of all sections of an experiment: "model" and one a stage."""
        absent = dict.fromkeys(self.without, AbsentStage)
        return {"model": self.options, **ENGINE_SECTIONS, **self.sections, **absent}
