"""Learning curve of active learning: errors against the number of labels."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_atoms.active_learning.round import Arm, find_round
from pipeline_core.config.experiments import BASE
from pipeline_core.figures import Drawn, Figure, Rows, results, style
from pipeline_core.figures.quantities import add_unit, find_quantity
from pipeline_core.figures.results import Metrics
from pipeline_core.project.run import ExperimentRun, Run

_SHOWN: Final = ("energy_per_atom", "forces")
_ARMS: Final[dict[Arm, str]] = {"round": "where the committee differs", "random": "at random"}

_MARKERS: Final = "os"


@dataclass(frozen=True)
class Step:
    """An evaluated round of active learning, or the base that all rounds begin with.

    Attributes:
        variant: Its name.
        n_train: Number of training structures.
        split: Held-out split of the errors.
        errors: Quantity -> mean absolute error of each model, in the engine's unit.
        spread: Largest spread during the exploration, by models of the round before, eV/Å; None
            without a committee.
    """

    variant: str
    n_train: int
    split: str
    errors: dict[str, list[float]]
    spread: float | None


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw errors against the number of training structures, for picked and for random ones."""
    if experiment.file.learn is None:
        return None
    arms = {arm: read_steps(experiment, arm) for arm in _ARMS}
    arms = {arm: steps for arm, steps in arms.items() if len(steps) > 1}
    if not arms:
        return None
    names = [n for n in _SHOWN if all(n in one.errors for steps in arms.values() for one in steps)]
    figure, (panels,) = style.make_canvas(1, len(names) + 1, width=style.PAGE, height=2.3)
    for axes, name in zip(panels, names, strict=False):
        _draw_errors(axes, arms, name)
    _draw_spread(panels[-1], arms)
    for axes in panels:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    style.add_legend_above(figure, panels[0])
    return figure, _make_table(arms, names)


def read_steps(experiment: ExperimentRun, arm: Arm) -> list[Step]:
    """Return the evaluated rounds of an arm, the base first."""
    runs = experiment.runs.values()
    rounds = [run for run in runs if (one := find_round(run)) and one.arm == arm]
    steps = [_read_step(run) for run in (experiment.runs[BASE], *rounds)] if rounds else []
    return [one for one in steps if one is not None]


def _read_step(run: Run) -> Step | None:
    report = results.read_json(run.dataset.report) if run.dataset else None
    metrics = results.read_metrics(run)
    if report is None or metrics is None or metrics.held_out is None:
        return None
    members = [m for m in map(results.read_metrics, run.members) if m is not None]
    one = find_round(run)
    picked = results.read_json(one.report) if one else None
    return Step(
        variant=run.variant,
        n_train=report["splits"]["train"],
        split=metrics.held_out,
        errors=_list_errors([metrics, *members], metrics.held_out),
        spread=picked["largest_spread"] if picked and run.members else None,
    )


def _list_errors(models: list[Metrics], split: str) -> dict[str, list[float]]:
    """Return the mean absolute error of each model by quantity."""
    tables = [one.splits[split].quantities for one in models if split in one.splits]
    found = {n: [t[n].mae for t in tables if n in t] for n in _SHOWN}
    return {
        n: [one for one in errors if one is not None] for n, errors in found.items() if any(errors)
    }


def _draw_errors(axes: Axes, arms: dict[Arm, list[Step]], name: str) -> None:
    kind = find_quantity(name)
    for number, (arm, steps) in enumerate(arms.items()):
        colour, n_train = style.choose_colour(number), [one.n_train for one in steps]
        means = [np.mean(one.errors[name]) * kind.error_factor for one in steps]
        axes.plot(n_train, means, _MARKERS[number] + "-", color=colour, label=_ARMS[arm])
        for one in steps:
            single = np.array(one.errors[name]) * kind.error_factor
            axes.plot([one.n_train] * len(single), single, "_", color=colour, markersize=5)
    split = next(steps[0].split for steps in arms.values())
    axes.set(xlabel="structures trained on", yscale="log", title=f"{split} split")
    axes.set_ylabel(add_unit(f"{kind.title} MAE", kind.error_unit))
    style.set_log_ticks(axes.yaxis)


def _draw_spread(axes: Axes, arms: dict[Arm, list[Step]]) -> None:
    """Draw the largest spread of the committee against the number of training structures."""
    steps = arms.get("round", [])
    pairs = [
        (before.n_train, one.spread) for before, one in pairwise(steps) if one.spread is not None
    ]
    axes.plot([n for n, _ in pairs], [spread for _, spread in pairs], "o-", color=style.COLOURS[0])
    axes.set(xlabel="structures trained on", ylabel="largest spread met (eV/Å)")
    axes.set_ylim(0, None)


def _make_table(arms: dict[Arm, list[Step]], names: list[str]) -> Rows:
    head: list[object] = ["picks", "variant", "train_structures", "split"]
    units = {n: find_quantity(n).error_unit.replace("/", "_per_").replace("Å", "A") for n in names}
    table: Rows = [[*head, *(f"{n}_mae_{units[n]}" for n in names), "largest_spread_eV_per_A"]]
    for arm, steps in arms.items():
        for one in steps:
            row: list[Any] = [_ARMS[arm], one.variant, one.n_train, one.split]
            row += [np.mean(one.errors[n]) * find_quantity(n).error_factor for n in names]
            table.append([*row, one.spread])
    return table


FIGURE: Final = Figure(
    name="rounds",
    title="What labels are worth",
    caption="Errors of models on the same held-out samples against the structures that they were "
    "trained on, where a committee has picked those to be labelled and where they were picked at "
    "random. Lines join means over the members of a committee; dashes are single models. Right: by "
    "how much the members differ on the force of an atom, where they differ most in all that their "
    "dynamics met.",
    category="Training",
    draw=draw,
)
