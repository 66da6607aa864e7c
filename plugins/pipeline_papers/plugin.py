"""Hooks of the papers: figures, and studies that only the page of a paper needs.

Studies run if the options that they add to the experiments of a model select them; all other runs
are left to the plugin of the model and the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary

if TYPE_CHECKING:
    from pipeline_core.figures import Figure
    from pipeline_core.model_info import ModelInfo
    from pipeline_core.project.run import Run

PAPERS: Final = ("chgnet", "egnn_esp", "gauge_flows", "htfbr", "mace")
"""Models with a paper, each with a package of its name here."""


@hookimpl
def figures(model: str | None) -> list[Figure]:
    """Return the figures of a model's paper."""
    if model not in PAPERS:
        return []
    drawn: list[Figure] = import_module(f"pipeline_papers.{model}.figures").FIGURES
    return [replace(figure, plugin=model, paper=True) for figure in drawn]


@hookimpl
def sections(info: ModelInfo) -> Mapping[str, type[BaseModel]] | None:
    """Add the options of the studies."""
    if info.name == "egnn_esp":
        from pipeline_papers.egnn_esp.studies.options import ESPStudyOptions

        return {"profile": ESPStudyOptions}
    if info.name == "htfbr":
        from pipeline_papers.htfbr.studies.options import RivalTrainOptions, SharingOptions

        return {"train": RivalTrainOptions, "profile": SharingOptions}
    return None


@hookimpl(tryfirst=True)
def train(run: Run) -> Summary | None:
    """Fit a surface by the baseline of HT-FBR's paper, if a run selects it."""
    if run.model_info.name != "htfbr":
        return None
    from pipeline_papers.htfbr.studies.dataloader import train_with_loader

    return train_with_loader(run)


@hookimpl(tryfirst=True)
def profile(run: Run) -> Summary | None:
    """Do the studies of speed and of partitioning that a run selects."""
    if run.model_info.name == "egnn_esp":
        from pipeline_papers.egnn_esp.studies import profile_run

        return profile_run(run)
    if run.model_info.name == "htfbr":
        from pipeline_papers.htfbr.studies.sharing import profile_sharing

        return profile_sharing(run)
    return None
