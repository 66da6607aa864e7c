"""Comparison of variants: results, their scatter over seeds, and the best variant."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, hypot, log10
from statistics import fmean, stdev
from typing import Final

from pipeline_core.config.experiments import BASE
from pipeline_core.figures.findings import Number, Table
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.provenance import format_duration
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.report import numbers

_NO_INFLUENCE: Final = ("infer", "profile", "figures")
"""Sections of an experiment without influence on a training and its errors."""
_MOST_NAMES: Final = 3
"""Variants that are named one by one where seeds are averaged."""


@dataclass(frozen=True)
class Group:
    """Variants that differ by their seeds alone.

    Attributes:
        runs: At least one, in their order.
    """

    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """Name for readers, as in the figures."""
        names = [run.label for run in self.runs]
        if len(names) <= _MOST_NAMES:
            return ", ".join(names)
        return f"{names[0]} and {len(names) - 1} other seeds"

    @property
    def seeds(self) -> str:
        """All seeds."""
        return ", ".join(str(run.seed) for run in self.runs)

    @property
    def seconds(self) -> float:
        """Mean wall time of a run."""
        return fmean(map(numbers.compute_seconds, self.runs))


@dataclass(frozen=True)
class Result:
    """The main number of a group.

    Attributes:
        group: The group.
        number: The number of the first run, with title and unit.
        mean: Mean over seeds, in the number's unit.
        deviation: Standard deviation over seeds; None with the result of one seed only.
    """

    group: Group
    number: Number
    mean: float
    deviation: float | None

    @property
    def value(self) -> str:
        """The number for readers."""
        if self.deviation is None:
            return self.number.value
        return f"{format_with_deviation(self.mean, self.deviation)} {self.number.unit}".rstrip()


def group_by_seed(experiment: ExperimentRun) -> list[Group]:
    """Group the variants that differ by the seed alone."""
    groups: dict[str, list[list[Run]]] = {}
    for run in experiment.runs.values():
        sections = {k: s.model_dump() for k, s in run.sections.items() if k not in _NO_INFLUENCE}
        dataset = run.dataset.name if run.dataset else None
        alike = groups.setdefault(f"{run.model_info.name} {dataset} {run.ranks} {sections}", [])
        # Two of the same seed differ only in sections without influence: the second starts a group.
        fitting = (members for members in alike if run.seed not in {m.seed for m in members})
        members = next(fitting, None)
        if members is None:
            alike.append([run])
        else:
            members.append(run)
    found = [Group(tuple(members)) for alike in groups.values() for members in alike]
    order = list(experiment.runs)
    return sorted(found, key=lambda group: order.index(group.runs[0].variant))


def find_main_result(group: Group) -> Result | None:
    """Return the first number of a group that can be compared; None if there is none."""
    found = [_find_main_number(run) for run in group.runs]
    main = [number for number in found if number is not None]
    amounts = [n.amount for n in main if n.amount is not None and n.title == main[0].title]
    if not amounts:
        return None
    return Result(group, main[0], fmean(amounts), stdev(amounts) if len(amounts) > 1 else None)


def _find_main_number(run: Run) -> Number | None:
    given = numbers.collect_errors(run)
    return next((n for n in given if n.amount is not None and n.better is not None), None)


def rank_groups(experiment: ExperimentRun) -> list[Result]:
    """Return the main results of all variants comparable with the base, the best first.

    Variants are comparable if they have the same data, and the same number on the same split.
    """
    found = [r for g in group_by_seed(experiment) if (r := find_main_result(g)) is not None]
    base = next((r for r in found if _is_base(r.group)), None)
    if base is None:
        return []
    alike = [r for r in found if _list_facts(r) == _list_facts(base)]
    return sorted(alike, key=lambda r: r.mean if r.number.better == "less" else -r.mean)


def _is_base(group: Group) -> bool:
    return any(run.variant == BASE for run in group.runs)


def _list_facts(result: Result) -> tuple[object, ...]:
    """Return the facts that have to agree for numbers to be compared."""
    run, number = result.group.runs[0], result.number
    held_out = numbers.read_held_out(run)
    samples = (held_out[0], held_out[1].n_samples) if held_out else None
    facts = (number.title, number.unit, number.better, number.problem)
    return run.dataset and run.dataset.name, *facts, samples


def name_best(experiment: ExperimentRun) -> str:
    """Describe the best variant and its advantage; empty if there is nothing to compare."""
    ranked = rank_groups(experiment)
    if len(ranked) < 2:
        return ""
    best, other = ranked[0], next((r for r in ranked[1:] if _is_base(r.group)), ranked[1])
    title = best.number.title[0].lower() + best.number.title[1:]
    text = (
        f"Best of {len(ranked)} variants by {title}: {best.group.name} with {best.value}, "
        f"{'next ' if _is_base(best.group) else ''}{other.group.name} with {other.value}"
    )
    scatter = hypot(best.deviation or 0.0, other.deviation or 0.0)
    within = scatter and abs(best.mean - other.mean) <= scatter
    return f"{text}; seeds scatter by as much." if within else f"{text}."


def tabulate_variants(experiment: ExperimentRun) -> Table | None:
    """Return times and errors of all variants; None for a single one, or without results.

    Variants that differ by the seed alone share a row. Models and seeds have columns where they
    differ.
    """
    groups = group_by_seed(experiment)
    rows = [_make_row(group) for group in groups]
    if len(experiment.runs) < 2 or not any(len(row) > len(_HEAD) for row in rows):
        return None
    seeds = {run.seed for run in experiment.runs.values()}
    alike = {"Model": len(experiment.models) == 1, "Seed": len(seeds) == 1}
    titles = [t for t in dict.fromkeys(t for row in rows for t in row) if not alike.get(t)]
    best = ranked[0].group if len(ranked := rank_groups(experiment)) > 1 else None
    averaged = any(len(group.runs) > 1 for group in groups)
    return Table(
        title="Variants",
        header=titles,
        rows=[[row.get(title, "–") for title in titles] for row in rows],
        note="Means ± standard deviations over seeds." if averaged else "",
        marked=groups.index(best) if best in groups else None,
    )


_HEAD: Final = ("Variant", "Model", "Seed", "Time of all stages")
"""Columns of any run."""


def _make_row(group: Group) -> dict[str, str]:
    by_run = [
        {n.title: n for n in [*numbers.collect_training(run), *numbers.collect_errors(run)]}
        for run in group.runs
    ]
    size, epochs = by_run[0].get("Model"), by_run[0].get("Training")
    training = fmean(map(numbers.compute_training_seconds, group.runs))
    errors = [title for title in by_run[0] if title not in ("Model", "Training")]
    return {
        "Variant": group.name,
        "Model": group.runs[0].model_info.name + (f", {size.note}" if size else ""),
        "Seed": group.seeds,
        "Time of all stages": format_duration(group.seconds) if group.seconds else "–",
        **({"Training": f"{epochs.value} in {format_duration(training)}"} if epochs else {}),
        **{title: _average([row[title] for row in by_run if title in row]) for title in errors},
    }


def _average(given: Sequence[Number]) -> str:
    """Format the mean of numbers, with their standard deviation."""
    amounts = [number.amount for number in given if number.amount is not None]
    if len(given) == 1 or len(amounts) < len(given):
        return "; ".join(dict.fromkeys(number.value for number in given))
    text = format_with_deviation(fmean(amounts), stdev(amounts))
    return f"{text} {given[0].unit}".rstrip()


def format_with_deviation(mean: float, deviation: float) -> str:
    """Format a mean with its standard deviation, the latter with two digits."""
    if not deviation:
        return f"{format_number(mean)} ± 0"
    size = max(abs(mean), deviation)
    power = 0 if 1e-3 <= size < 1e5 else floor(log10(size))
    decimals = max(0, 1 - floor(log10(deviation)) + power)
    text = f"{mean / 10**power:.{decimals}f} ± {deviation / 10**power:.{decimals}f}"
    return (f"({text})e{power}" if power else text).replace("-", "−")
