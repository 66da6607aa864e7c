"""An experiment in plain words and a few numbers, from its small files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from pipeline_core.config.datasets import Dataset
from pipeline_core.config.experiments import BASE
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.figures import dynamics, results
from pipeline_core.figures.provenance import describe_hardware, format_duration, read_stage_records
from pipeline_core.figures.quantities import find_quantity, format_number
from pipeline_core.figures.results import Errors, Split
from pipeline_core.run import ExperimentRun, Run

_SPLITS: Final = {"train": "training", "val": "validation", "test": "test"}
_METHODS: Final = {
    "random": "frames drawn at random",
    "group": "whole groups held out, drawn at random",
    "composition": "each composition divided alike",
    "list": "held-out groups chosen by name",
    "energy": "the highest energies held out",
}
_GRADES: Final = ((0.1, "small"), (0.3, "moderate"), (1.0, "large"))
"""Error over mean size of the labels, below which an error is called so."""
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
_SHOWN: Final = ("forces", "energy_per_atom", "stress", "magmoms")
_FEW: Final = 200
"""Held-out samples below which their number is a limit worth telling."""


@dataclass(frozen=True)
class Number:
    """A number that a reader should see first.

    Attributes:
        title: What it is.
        value: The number with its unit.
        note: What helps to judge it.
    """

    title: str
    value: str
    note: str = ""


class Headline(BaseModel):
    """What a plugin says of a run where errors say nothing: `headline` in its metrics.

    Attributes:
        verdict: One sentence.
        numbers: Those that a reader should see first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: str
    numbers: list[Number]


def read_held_out(run: Run) -> tuple[str, Split] | None:
    """Return name and errors of the held-out split of a run."""
    report = results.read_metrics(run)
    if report is None or report.held_out is None:
        return None
    return _SPLITS.get(report.held_out, report.held_out), report.splits[report.held_out]


def judge(experiment: ExperimentRun) -> tuple[str, str]:
    """Judge the base variant in one sentence, by its forces or else by what it predicts first.

    A plugin's own verdict goes before.

    Returns:
        The sentence; and "small", "moderate", "large", or "unknown" where there is no force error.

    Raises:
        ValueError: What the plugin says is not as it should be.
    """
    headline = _read_headline(experiment.runs[BASE])
    if headline is not None:
        return headline.verdict, "unknown"
    held_out = read_held_out(experiment.runs[BASE])
    if held_out is None:
        return _NOT_COMPARED, "unknown"
    place = _describe_samples(experiment, held_out)
    ratio = compute_relative_error(held_out[1].quantities.get("forces"))
    if ratio is None:
        first = next(_collect_errors(experiment.runs[BASE]), None)
        if first is None:
            return _NOT_COMPARED, "unknown"
        return f"{first.title} on {place}: {first.value} ({first.note}).", "unknown"
    word = next((word for limit, word in _GRADES if ratio < limit), None)
    judged = word or "no better than predicting no force at all"
    size = f"{_format_percent(ratio)} of the mean absolute force"
    return f"The force error on {place} is {size}: {judged}.", word or "large"


def compute_relative_error(errors: Errors | None) -> float | None:
    """Return the mean absolute error over the mean size of the labels."""
    if errors is None or errors.mae is None or not errors.label_mean_absolute:
        return None
    return errors.mae / errors.label_mean_absolute


def _format_percent(ratio: float) -> str:
    return f"{100 * ratio:.{0 if ratio >= 0.1 else 1}f} %"


def _describe_samples(experiment: ExperimentRun, held_out: tuple[str, Split]) -> str:
    name, split = held_out
    return f"{split.n_samples:,} {name} {results.name_samples(experiment)}"


def collect_numbers(experiment: ExperimentRun) -> list[Number]:
    """Return the key numbers of the base variant."""
    run = experiment.runs[BASE]
    return [
        *_collect_data(experiment),
        *_collect_training(run),
        *_collect_errors(run),
        *_collect_dynamics(run),
        *_collect_time(experiment),
    ]


def _collect_data(experiment: ExperimentRun) -> Iterator[Number]:
    report, dataset = results.read_import_report(experiment), experiment.runs[BASE].dataset
    if dataset is not None and report.splits:
        parts = ", ".join(f"{n:,} {_SPLITS.get(s, s)}" for s, n in report.splits.items())
        if isinstance(dataset.options, Dataset):
            parts = f"{parts}; {_METHODS[dataset.options.split.method]}"
        samples = results.name_samples(experiment)
        yield Number("Data", f"{sum(report.splits.values()):,} {samples}", parts)


def _collect_training(run: Run) -> Iterator[Number]:
    records = results.read_history(run)
    content = results.read_json(run.metrics) or {}
    if "n_parameters" in content:
        yield Number("Model", run.model_info.name, f"{content['n_parameters']:,} parameters")
    if records:
        seconds = sum(record.get("seconds") or 0 for record in records)
        place = [describe_hardware(r) for r in read_stage_records(run) if r["stage"] == "train"]
        note = " on ".join([format_duration(seconds), *place])
        yield Number("Training", f"{records[-1]['epoch']:,} {_name_steps(records)}", note)


def _name_steps(records: list[dict[str, Any]]) -> str:
    """Return what the lines of a history are called; a plugin that trains by itself names each."""
    words = {record.get("step", "epoch") for record in records}
    return f"{words.pop()}s" if len(words) == 1 else "steps"


def _read_headline(run: Run) -> Headline | None:
    """Return what the plugin says of a run; None if it leaves that to the engine."""
    content = results.read_json(run.metrics)
    if not isinstance(content, dict) or "headline" not in content:
        return None
    return validate_content(Headline, content["headline"], run.metrics, ["headline"])


def _collect_errors(run: Run) -> Iterator[Number]:
    headline = _read_headline(run)
    if headline is not None:
        yield from headline.numbers
        return
    held_out = read_held_out(run)
    reported = held_out[1].quantities if held_out else {}
    known = [name for name in _SHOWN if name in reported]
    for name in known or reported:
        errors = reported[name]
        if errors.mae is not None:
            kind = find_quantity(name, errors.unit)
            ratio = compute_relative_error(errors) if name == "forces" else None
            notes = [f"{_format_percent(ratio)} of the mean absolute component"] if ratio else []
            notes += [f"R² {errors.r2:.3f}"] if errors.r2 is not None else []
            yield Number(
                f"{kind.title.capitalize()} error",
                f"{format_number(errors.mae * kind.error_factor)} {kind.error_unit}",
                ", ".join(notes),
            )
    if held_out and "curl" in held_out[1].conservation:
        curl = held_out[1].conservation["curl"]
        yield Number("Curl of the forces", format_number(curl, 2), "0 if they conserve an energy")


def _collect_dynamics(run: Run) -> Iterator[Number]:
    for trajectory in dynamics.read_run(run):
        facts = trajectory.summary
        drift = facts.get("drift_meV_per_atom_per_ps")
        yield Number(
            f"Dynamics, {dynamics.name_ensemble(trajectory)}",
            f"{facts['steps']:,} steps",
            f"{facts['n_atoms']:,} atoms, {facts['timestep_fs']:g} fs a step; "
            f"energy drifts by {format_number(drift, 2)} meV/atom/ps",
        )


def _collect_time(experiment: ExperimentRun) -> Iterator[Number]:
    records = [record for run in experiment.runs.values() for record in read_stage_records(run)]
    if records:
        total = sum(record["seconds"] for record in records)
        several = f" of {len(experiment.runs)} variants" if len(experiment.runs) > 1 else ""
        yield Number("Wall time", format_duration(total), f"all stages{several}")


def write_sentences(experiment: ExperimentRun) -> list[str]:
    """Tell what was run, on what, and how good it is, in the order in which it happened."""
    by_title = {number.title: number for number in collect_numbers(experiment)}
    run = experiment.runs[BASE]
    lines = [f"{experiment.file.description.rstrip('.')}."]
    if run.dataset is not None and "Data" in by_title:
        data = by_title["Data"]
        lines.append(
            f"Data: {run.dataset.options.description.rstrip('.')}; {data.value}: {data.note}."
        )
    if "Training" in by_title:
        training = by_title["Training"]
        lines.append(
            f"The model {run.model_info.name} was trained for {training.value} in {training.note}."
        )
    if len(experiment.models) > 1:
        others = [
            f"{info.name} (variant {', '.join(experiment.select_plugin(info.name).runs)})"
            for info in experiment.models[1:]
        ]
        lines.append(f"Beside it: {'; '.join(others)}.")
    lines.append(judge(experiment)[0])
    return lines


def tabulate_variants(experiment: ExperimentRun) -> list[list[str]]:
    """Return the errors of all variants with a header; empty if there is only one.

    Models and seeds have columns where they differ.
    """
    rows = []
    for run in experiment.runs.values():
        numbers = {
            number.title: number for number in [*_collect_training(run), *_collect_errors(run)]
        }
        size = numbers.pop("Model", None)
        rows.append(
            {
                "Variant": run.variant,
                "Model": run.model_info.name + (f", {size.note}" if size else ""),
                "Seed": str(run.seed),
                **{title: number.value for title, number in numbers.items()},
            }
        )
    alike = {"Model": len(experiment.models) == 1, "Seed": len({r["Seed"] for r in rows}) == 1}
    titles = [t for t in dict.fromkeys(t for row in rows for t in row) if not alike.get(t)]
    if len(rows) < 2 or not any(len(row) > 3 for row in rows):
        return []
    return [titles, *([row.get(title, "–") for title in titles] for row in rows)]


def list_commands(experiment: ExperimentRun) -> list[str]:
    """Return the commands that make everything anew, and the one that draws again."""
    name = experiment.experiment
    return [
        f"""snakemake --config experiments='["{name}"]'""",
        f"pipeline-core figures --experiment {name}",
    ]


def list_limits(experiment: ExperimentRun) -> list[str]:
    """Return what a reader should not conclude."""
    limits = [_SCALES[experiment.file.scale]] if experiment.file.scale in _SCALES else []
    run = experiment.runs[BASE]
    compared = read_held_out(run)
    if compared is not None and compared[1].n_samples < _FEW:
        limits.append(f"The errors come from {_describe_samples(experiment, compared)} only.")
    if compared is not None and compared[0] in _SEEN:
        limits.append(_SEEN[compared[0]])
    limits += [_describe_spread(experiment), *_name_other_data(experiment)]
    data = run.dataset.options if run.dataset is not None else None
    if isinstance(data, Dataset) and data.split.method == "random":
        limits.append(
            "The split is random: if frames come from trajectories, neighbours in time lie on both "
            "sides, and the errors are those of interpolation."
        )
    warnings = results.read_import_report(experiment).warnings
    return [*limits, *(f"{warning}." for warning in warnings)]


def _name_other_data(experiment: ExperimentRun) -> Iterator[str]:
    """Say which variants have other data than the base, so that their errors do not compare."""
    own = experiment.runs[BASE].dataset
    for dataset in experiment.datasets:
        if dataset != own:
            names = [v for v, run in experiment.runs.items() if run.dataset == dataset]
            yield (f"Other data, {dataset.name}, and errors on other samples: {', '.join(names)}.")


def _describe_spread(experiment: ExperimentRun) -> str:
    """Say which trainings, if any, show how much errors scatter from seed to seed."""
    alike: dict[str, dict[int, str]] = {}
    for run in experiment.runs.values():
        options = {key: section.model_dump() for key, section in run.sections.items()}
        alike.setdefault(f"{run.model_info.name} {options}", {}).setdefault(run.seed, run.variant)
    repeated = [", ".join(by_seed.values()) for by_seed in alike.values() if len(by_seed) > 1]
    if repeated:
        return f"The spread over seeds is that of {'; '.join(repeated)}."
    seeds = sorted({run.seed for run in experiment.runs.values()})
    word = "seeds" if len(seeds) > 1 else "seed"
    numbers = ", ".join(map(str, seeds))
    return f"One training a variant ({word} {numbers}): the spread over seeds is not known."
