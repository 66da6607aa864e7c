"""Summary of an experiment in sentences: verdict, warnings and limits, from its small files."""

from collections.abc import Iterator
from typing import Final, Literal

from pipeline_core.artifacts import store
from pipeline_core.config.experiments import BASE
from pipeline_core.figures import results
from pipeline_core.figures.findings import Findings, Number
from pipeline_core.figures.results import Split
from pipeline_core.project.run import ExperimentRun
from pipeline_core.report.numbers import (
    collect_errors,
    compute_relative_error,
    format_percent,
    read_headline,
    read_held_out,
)
from pipeline_core.report.variants import (
    find_main_result,
    group_by_seed,
    name_best,
    rank_groups,
)

Grade = Literal["small", "moderate", "large", "unknown"]

_GRADES: Final[tuple[tuple[float, Grade], ...]] = (
    (0.1, "small"),
    (0.3, "moderate"),
    (1.0, "large"),
)
"""Upper limit of the error over the mean size of labels, for each grade."""
GRADES_EXPLAINED: Final = (
    "Errors are mean absolute errors, those of forces component by component. Small: below 10 %; "
    "moderate: below 30 %; 100 % is the error of predicting no force at all."
)
_SCALES: Final = {
    "smoke": "The scale is smoke: seconds of training that show that every stage works, no more.",
    "laptop": "The scale is laptop: far less data and training than published models have.",
}
_SEEN: Final = {
    "training": "The errors are those of samples that the model was trained on.",
    "validation": "The samples of the errors are those that the best epoch was chosen by.",
}
_NOT_COMPARED: Final = "No predictions have been compared with labels."
_DIVERGED: Final = "diverged.json"
"""Name of the note of a diverged training; its module would load torch."""
_FEW: Final = 200
"""Number of held-out samples below which it is listed as a limit."""


def judge(experiment: ExperimentRun) -> tuple[str, Grade]:
    """Grade the base variant by its forces, or else its first quantity, and name the best variant.

    A plugin's own verdict takes precedence.

    Returns:
        One sentence, or two if variants can be compared; and "small", "moderate", "large", or
        "unknown" without a force error.

    Raises:
        ValueError: The plugin's headline is invalid.
    """
    text, grade = _judge_base(experiment)
    return f"{text} {name_best(experiment)}".rstrip(), grade


def _judge_base(experiment: ExperimentRun) -> tuple[str, Grade]:
    headline = read_headline(experiment.runs[BASE])
    if headline is not None:
        return headline.verdict, "unknown"
    held_out = read_held_out(experiment.runs[BASE])
    if held_out is None:
        return _NOT_COMPARED, "unknown"
    place = _describe_samples(experiment, held_out)
    ratio = compute_relative_error(held_out[1].quantities.get("forces"))
    if ratio is None:
        first = next(collect_errors(experiment.runs[BASE]), None)
        if first is None:
            return _NOT_COMPARED, "unknown"
        return f"{first.title} on {place}: {first.value} ({first.note}).", "unknown"
    word = next((word for limit, word in _GRADES if ratio < limit), None)
    judged = word or "no better than predicting no force at all"
    size = f"{format_percent(ratio)} of the mean absolute force"
    return f"The force error on {place} is {size}: {judged}.", word or "large"


def _describe_samples(experiment: ExperimentRun, held_out: tuple[str, Split]) -> str:
    name, split = held_out
    return f"{split.n_samples:,} {name} {results.name_samples(experiment)}"


def choose_headline(experiment: ExperimentRun) -> Number | None:
    """Return the headline number: the main result of the base variant, and of the best one."""
    base = group_by_seed(experiment)[0]
    result = find_main_result(base)
    if result is None:
        return next(collect_errors(experiment.runs[BASE]), None)
    ranked = rank_groups(experiment)
    notes = [result.number.note] if result.number.note else []
    if len(ranked) > 1 and ranked[0].group != base:
        notes.insert(0, f"{ranked[0].value} with {ranked[0].group.name}")
    return result.number.model_copy(update={"value": result.value, "note": "; ".join(notes)})


def list_warnings(experiment: ExperimentRun, findings: Findings) -> list[str]:
    """Return warnings: unfinished trainings, findings of plugins, and faults of the import."""
    lines = []
    for run in experiment.runs.values():
        if (run.state / _DIVERGED).exists():
            lines.append(f"The training of {run.variant} has diverged.")
        elif end := store.read_provenance(run.model).get("unfinished"):
            lines.append(f"The training of {run.variant} is unfinished: {end}.")
    warnings = results.read_import_report(experiment).warnings
    return [*lines, *findings.warnings, *(f"{warning}." for warning in warnings)]


def list_limits(experiment: ExperimentRun) -> list[str]:
    """Return the limits of the conclusions."""
    limits = [_SCALES[experiment.file.scale]] if experiment.file.scale in _SCALES else []
    run = experiment.runs[BASE]
    compared = read_held_out(run)
    if compared is not None and compared[1].n_samples < _FEW:
        limits.append(f"The errors come from {_describe_samples(experiment, compared)} only.")
    if compared is not None and compared[0] in _SEEN:
        limits.append(_SEEN[compared[0]])
    limits += [_describe_spread(experiment), *_name_other_data(experiment)]
    data = run.dataset.options if run.dataset is not None else None
    split = getattr(data, "split", None) if data is not None and data.plugin is None else None
    if split is not None and split.method == "random":
        limits.append(
            "The split is random: if frames come from trajectories, neighbours in time lie on both "
            "sides, and the errors are those of interpolation."
        )
    return limits


def _name_other_data(experiment: ExperimentRun) -> Iterator[str]:
    """Yield variants with other data than the base, whose errors are not comparable."""
    own = experiment.runs[BASE].dataset
    for dataset in experiment.datasets:
        if dataset != own and not dataset.grows:  # growing ones keep validation and test
            names = [v for v, run in experiment.runs.items() if run.dataset == dataset]
            yield (f"Other data, {dataset.name}, and errors on other samples: {', '.join(names)}.")


def _describe_spread(experiment: ExperimentRun) -> str:
    """Describe the trainings, if any, that show the spread of errors over seeds."""
    groups = [group for group in group_by_seed(experiment) if len(group.runs) > 1]
    if groups:
        repeated = [", ".join(run.variant for run in group.runs) for group in groups]
        return f"The spread over seeds is that of {'; '.join(repeated)}."
    seeds = sorted({run.seed for run in experiment.runs.values()})
    word = "seeds" if len(seeds) > 1 else "seed"
    numbers = ", ".join(map(str, seeds))
    return f"One training a variant ({word} {numbers}): the spread over seeds is not known."
