"""Experiment files: dataset, plugin, one section a stage, and variants that override parts."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from pipeline_core.config.limits import Ranks
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import (
    Count,
    EvaluateOptions,
    FiguresOptions,
    PartitionOptions,
    Section,
    TrainOptions,
)

BASE = "base"
"""The variant that every experiment has, without overrides."""

Seed = Annotated[int, Field(ge=0)]


class Sections(Section):
    """The sections of an experiment or a variant.

    They are validated later, variant by variant, by the models of the variant's plugin.
    """

    model: dict[str, Any] = {}
    """Options of the plugin's model; options of the stages below, each under its name."""
    graph: dict[str, Any] = {}
    partition: dict[str, Any] = {}
    train: dict[str, Any] = {}
    evaluate: dict[str, Any] = {}
    infer: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    figures: dict[str, Any] = {}


class Variant(Sections):
    """Overrides of a variant. Its sections are merged over the sections of the experiment."""

    plugin: str | None = None
    """Another model; since its options differ too, the section `model` then starts empty."""
    dataset: str | None = None
    """Other data, as for a model that starts from another variant; its errors are then on other
    samples, which the report states."""
    seed: Seed | None = None
    ranks: Ranks | None = None
    members: Count | None = None


_WORDS: Final = ("plugin", "dataset", "seed", "ranks", "members")
"""Keys that a variant may override besides sections."""


class ExperimentFile(Sections):
    """An experiment file, `workflows/experiments/<plugin>/<name>.yaml`."""

    description: str
    """One sentence, shown in the report."""
    plugin: str
    """Name of a model, see `pipeline-core plugins`."""
    dataset: str | None = None
    """Name of a dataset file; null for a plugin without data."""
    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """Expected effort: minutes, up to an hour, or a cluster."""
    seed: Seed = 0
    """Seed of the initial weights and the order of samples."""
    ranks: Ranks = 1
    """Processes that the workflow trains on, unless its profile sets another number."""
    members: Count = 1
    """Trainings of each variant that differ only by their seeds: together an ensemble (committee),
    whose spread estimates the uncertainty of predictions. The first is the variant itself, the
    second of the base is the run `base.2` with the next seed, and so on."""
    threads: Count | None = None
    """Cores of each job of the workflow; null for as many as its stage gains from.

    One for trainings whose times are compared: small steps gain little from more, and two trainings
    side by side have equal shares of the machine.
    """
    learn: dict[str, Any] | None = None
    """Rounds of active learning, in which the committee picks structures to label; each becomes a
    variant. Validated by the plugin that does them (hook `variants`)."""
    variants: dict[str, Variant] = {}
    """Overrides by name of the variant: sections, `plugin`, `dataset`, `seed`, `ranks`,
    `members`."""

    @field_validator("variants")
    @classmethod
    def _check_variants(cls, variants: dict[str, Variant]) -> dict[str, Variant]:
        if BASE in variants:
            raise ValueError(
                f"{BASE!r} is the experiment as it stands, with nothing overridden; give the "
                "variant another name"
            )
        return variants

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        for variant in (BASE, *self.variants):
            for number in range(2, self.make_variant(variant).members + 1):
                if (name := name_member(variant, number)) in self.variants:
                    raise ValueError(
                        f"variants.{name}: is the name of a member of the committee of "
                        f"{variant!r}; give the variant another name"
                    )
        return self

    def make_variant(self, variant: str) -> ExperimentFile:
        """Return the experiment of a variant, with its overrides and without variants."""
        if variant == BASE:
            return self.model_copy(update={"variants": {}})
        chosen = self.variants[variant]
        words = {key: value for key in _WORDS if (value := getattr(chosen, key)) is not None}
        sections = {
            key: merge_sections(getattr(self, key), getattr(chosen, key))
            for key in Sections.model_fields
        }
        if words.get("plugin", self.plugin) != self.plugin:
            sections["model"] = chosen.model
        return self.model_copy(update={**words, **sections, "variants": {}})

    def make_member(self, variant: str, number: int) -> ExperimentFile:
        """Return the experiment of a member of a committee.

        Stages that use the committee are done once, with its first member.

        Args:
            variant: The variant of the committee.
            number: Number of the member, from 1, which is the variant itself.
        """
        chosen = self.make_variant(variant)
        if number == 1:
            return chosen
        update = {"seed": chosen.seed + number - 1, "infer": {}, "profile": {}}
        return chosen.model_copy(update=update)

    def list_members(self) -> dict[str, tuple[str, int]]:
        """Return the names of all runs, each with its variant and its number in the committee."""
        names: dict[str, tuple[str, int]] = {}
        for variant in (BASE, *self.variants):
            for number in range(1, self.make_variant(variant).members + 1):
                names[name_member(variant, number)] = (variant, number)
        return names


def name_member(variant: str, number: int) -> str:
    """Return the name of a member of a committee, counted from 1, the variant itself."""
    return variant if number == 1 else f"{variant}.{number}"


def merge_sections(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `override`: mappings merge, lists and scalars are replaced."""
    result = dict(base)
    for key, value in override.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            result[key] = merge_sections(below, value)
        else:
            result[key] = value
    return result


class AbsentStage(Section):
    """Stays empty: the model has no such stage."""

    @model_validator(mode="before")
    @classmethod
    def _check_empty(cls, content: Any) -> Any:
        if content:
            raise ValueError("the model has no such stage; remove the section")
        return content


class IdleStage(Section):
    """Stays empty: no plugin does the stage for this kind of data."""

    @property
    def has_work(self) -> bool:
        """True if there is anything to do."""
        return False


ENGINE_SECTIONS: dict[str, type[BaseModel]] = {
    "graph": Section,
    "partition": PartitionOptions,
    "train": TrainOptions,
    "evaluate": EvaluateOptions,
    "infer": IdleStage,
    "profile": ProfileOptions,
    "figures": FiguresOptions,
}
