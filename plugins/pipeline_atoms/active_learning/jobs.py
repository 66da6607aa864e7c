"""Inputs and parameters of the jobs of a round, for `workflows/rules/learn.smk`."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pipeline_atoms.active_learning.round import require_round
from pipeline_atoms.structure import parse_start
from pipeline_core.project.run import ExperimentRun, Run


def pick_inputs(experiment: ExperimentRun, run: Run) -> list[str]:
    """Return the inputs of a pick: models and data of the round before, starts of dynamics."""
    one = require_round(run)
    models = [experiment.run(name).model for name in one.explorers]
    starts = [md.start for md in one.options.md if parse_start(md.start) is None]
    return [*map(str, models), str(experiment.run(one.before).data), *starts]


def pick_params(experiment: ExperimentRun, run: Run) -> dict[str, Any]:
    """Return the further parameters of a pick."""
    # More rounds, or another labeller, do not change the picks.
    options = require_round(run).options.model_dump(
        mode="json", exclude={"rounds", "label_with", "random", "train", "threads"}
    )
    return {"options": options, "seed": run.seed}


def label_inputs(experiment: ExperimentRun, run: Run) -> list[str]:
    """Return the inputs of labelling: the picks of a round, and the input of the code."""
    one = require_round(run)
    cp2k = one.options.label_with.cp2k
    return [str(one.picks), *([cp2k] if cp2k is not None else [])]


def label_params(experiment: ExperimentRun, run: Run) -> dict[str, Any]:
    """Return the options of the code that labels."""
    return require_round(run).options.label_with.model_dump(mode="json")


def label_threads(experiment: ExperimentRun, run: Run) -> int:
    """Return the cores of one labelling job."""
    return require_round(run).options.threads


FUNCTIONS: Final[Sequence[Callable[[ExperimentRun, Run], Any]]] = (
    pick_inputs,
    pick_params,
    label_inputs,
    label_params,
    label_threads,
)
