"""Settings of each variant's training: the main hyperparameters first, then the rest."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from pipeline_core.config.sections import LossTerm, TrainOptions
from pipeline_core.figures.findings import Table
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.report.variants import Group, group_by_seed

_SECTIONS: Final = ("graph", "partition", "model", "train")
_MAIN: Final = {
    "Cutoff": ("graph.cutoff", "Å"),
    "Angle cutoff": ("graph.angle_cutoff", "Å"),
    "Epochs": ("train.epochs", ""),
    "Time": ("train.minutes", "min"),
    "Batch size": ("train.batch_size", ""),
    "Optimizer": ("train.optimizer.name", ""),
    "Learning rate": ("train.learning_rate", ""),
    "Schedule": ("train.schedule.name", ""),
    "Precision": ("train.precision", ""),
}
"""Title -> option and its unit."""
_COVERED: Final = {
    *(name for name, _ in _MAIN.values()),
    *("train.optimizer.lr", "train.optimizer.lr_batch_size", "train.loss"),
}
"""Options that need no line of their own."""

Value = tuple[Any, bool]
"""Value of an option, and whether it is the default."""


def tabulate_settings(experiment: ExperimentRun) -> list[Table]:
    """Return tables of the settings common to all variants, and of those that differ."""
    groups = group_by_seed(experiment)
    settings = [list_settings(group) for group in groups]
    names = list(dict.fromkeys(name for given in settings for name in given))
    # A default is listed where another variant has another value.
    complete = [
        {name: _format(value) for name, (value, _) in _collect_options(group.runs[0]).items()}
        for group in groups
    ]
    filled = [all_options | given for all_options, given in zip(complete, settings, strict=True)]
    cells = {name: [given.get(name, "–") for given in filled] for name in names}
    common = [[name, row[0]] for name, row in cells.items() if len(set(row)) == 1]
    differing = [[name, *row] for name, row in cells.items() if len(set(row)) > 1]
    tables = [Table(title="Settings", header=["setting", "value"], rows=common)]
    if differing:
        header = ["setting", *(group.name for group in groups)]
        tables.append(Table(title="What differs", header=header, rows=differing))
    return [table for table in tables if table.rows]


def list_settings(group: Group) -> dict[str, str]:
    """Return the settings of trainings: the main ones, the model, and all other non-defaults.

    Defaults are left out for trainings outside the engine, where they may have no meaning.
    """
    run = group.runs[0]
    options = _collect_options(run)
    listed = {"Model": run.model_info.name}
    listed |= {"Dataset": run.dataset.name} if run.dataset else {}
    listed |= _list_main(run, options)
    if loss := getattr(run.sections["train"], "loss", None):
        listed["Loss"] = _format_loss(loss)
    listed["Seed"] = group.seeds
    return listed | {
        name: _format(value)
        for name, (value, is_default) in options.items()
        if name not in _COVERED and (not is_default or name.startswith("model."))
    }


def _list_main(run: Run, options: Mapping[str, Value]) -> dict[str, str]:
    """Return the main hyperparameters that apply to a run."""
    train = run.sections["train"]
    is_shared = isinstance(train, TrainOptions) and train.uses_shared_trainer
    listed = {}
    for title, (name, unit) in _MAIN.items():
        value, is_default = options.get(name, (None, True))
        if value is not None and (is_shared or not is_default or not name.startswith("train.")):
            listed[title] = f"{_format(value)} {unit}".rstrip()
    return listed


def _collect_options(run: Run) -> dict[str, Value]:
    """Return all options by their places in the experiment, such as train.batch_size."""
    return {name: value for stage in _SECTIONS for name, value in _list_options(run, stage)}


def _list_options(run: Run, stage: str) -> Iterator[tuple[str, Value]]:
    section = run.sections[stage]
    options = dict(_walk(section, f"{stage}."))
    if isinstance(section, TrainOptions) and section.planned_epochs is None:
        del options["train.epochs"]
    yield from options.items()
    if isinstance(section, TrainOptions):
        is_default = section.optimizer == type(section.optimizer)()
        yield "train.learning_rate", (section.learning_rate, is_default)


def _walk(section: BaseModel, prefix: str) -> Iterator[tuple[str, Value]]:
    """Yield all options of a section and of those in it, by their places in the experiment."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{prefix}{key}.")
        else:
            yield prefix + key, (value, value == field.get_default(call_default_factory=True))


def _format_loss(terms: Mapping[str, LossTerm]) -> str:
    """Return the terms with a weight, in words."""
    return "; ".join(
        f"{name}: {term.kind}, weight {term.weight:g}"
        + (f", δ {term.delta:g}" if term.kind == "huber" else "")
        + (f" {term.unit}" if term.unit else "")
        for name, term in terms.items()
        if term.weight
    )


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return "none"
    return value if isinstance(value, str) else _dump(value)


def _dump(value: Any) -> str:
    def dump_model(part: Any) -> Any:
        return part.model_dump(mode="json") if isinstance(part, BaseModel) else str(part)

    return json.dumps(value, default=dump_model, ensure_ascii=False)
