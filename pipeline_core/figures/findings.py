"""Contributions of plugins to the report besides figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from pipeline_core.project.run import ExperimentRun
from pipeline_core.report.chapter import Number, Table


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Content of the report on an experiment besides figures.

    Attributes:
        numbers: Key numbers of the base variant.
        tables: Results of all variants.
        warnings: Sentences on faults, or possible faults.
    """

    numbers: Sequence[Number] = ()
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = ()


def collect_findings(experiment: ExperimentRun) -> Findings:
    """Join the findings of all plugins of an experiment."""
    hook = experiment.registry.select_hook("findings", experiment.model_info.name)
    found: list[Findings] = hook(experiment=experiment)
    return Findings(
        numbers=list(chain.from_iterable(one.numbers for one in found)),
        tables=list(chain.from_iterable(one.tables for one in found)),
        warnings=list(chain.from_iterable(one.warnings for one in found)),
    )
