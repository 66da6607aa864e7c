"""Key numbers of a run, from its small files."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline_core.config.experiments import BASE
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.figures import results
from pipeline_core.figures.findings import Findings, Headline, Number
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.provenance import describe_hardware, format_duration, read_stage_records
from pipeline_core.figures.quantities import find_quantity
from pipeline_core.figures.results import Errors, Split
from pipeline_core.project.run import ExperimentRun, Run

SPLIT_NAMES: Final = {"train": "training", "val": "validation", "test": "test"}
_METHODS: Final = {
    "random": "frames drawn at random",
    "group": "whole groups held out, drawn at random",
    "composition": "each composition divided alike",
    "list": "held-out groups chosen by name",
    "energy": "the highest energies held out",
}
_SHOWN: Final = ("forces", "energy_per_atom", "stress", "magmoms")


def read_held_out(run: Run) -> tuple[str, Split] | None:
    """Return name and errors of the held-out split of a run."""
    report = results.read_metrics(run)
    if report is None or report.held_out is None:
        return None
    return SPLIT_NAMES.get(report.held_out, report.held_out), report.splits[report.held_out]


def read_headline(run: Run) -> Headline | None:
    """Return the headline of the plugin; None if it leaves that to the engine.

    Raises:
        ValueError: Its content is invalid.
    """
    content = results.read_json(run.metrics)
    if not isinstance(content, dict) or "headline" not in content:
        return None
    return validate_content(Headline, content["headline"], run.metrics, ["headline"])


def compute_relative_error(errors: Errors | None) -> float | None:
    """Return the mean absolute error over the mean size of the labels."""
    if errors is None or errors.mae is None or not errors.label_mean_absolute:
        return None
    return errors.mae / errors.label_mean_absolute


def format_percent(ratio: float) -> str:
    """Format a ratio in percent."""
    return f"{100 * ratio:.{0 if ratio >= 0.1 else 1}f} %"


def collect_numbers(experiment: ExperimentRun, findings: Findings) -> list[Number]:
    """Return the key numbers of the base variant, with findings of plugins."""
    run = experiment.runs[BASE]
    return [
        *_collect_data(experiment),
        *collect_training(run),
        *collect_errors(run),
        *findings.numbers,
        *_collect_time(experiment),
    ]


def _collect_data(experiment: ExperimentRun) -> Iterator[Number]:
    report, dataset = results.read_import_report(experiment), experiment.runs[BASE].dataset
    if dataset is not None and report.splits:
        parts = ", ".join(f"{n:,} {SPLIT_NAMES.get(s, s)}" for s, n in report.splits.items())
        if dataset.options.plugin is None and hasattr(dataset.options, "split"):
            parts = f"{parts}; {_METHODS[dataset.options.split.method]}"
        samples = results.name_samples(experiment)
        total = sum(report.splits.values())
        yield Number(title="Data", value=f"{total:,} {samples}", note=parts)


def collect_training(run: Run) -> Iterator[Number]:
    """Yield the size of the model, and its training time."""
    records = results.read_history(run)
    content: dict[str, Any] = results.read_json(run.metrics) or {}
    if "n_parameters" in content:
        size = f"{content['n_parameters']:,} parameters"
        yield Number(title="Model", value=run.model_info.name, note=size)
    if records:
        seconds = compute_training_seconds(run)
        place = [describe_hardware(r) for r in read_stage_records(run) if r["stage"] == "train"]
        note = " on ".join([format_duration(seconds), *place])
        yield Number(title="Training", value=_count_steps(records), note=note)


def _count_steps(records: list[dict[str, Any]]) -> str:
    """Return the number of lines of a history, with the name of its steps or "epochs"."""
    words = {record.get("step", "epoch") for record in records}
    return f"{records[-1]['epoch']:,} {words.pop() + 's' if len(words) == 1 else 'steps'}"


def compute_training_seconds(run: Run) -> float:
    """Return the time of all epochs of a run."""
    return float(sum(record.get("seconds") or 0 for record in results.read_history(run)))


def collect_errors(run: Run) -> Iterator[Number]:
    """Yield the errors on the held-out split, or the numbers of the plugin's headline."""
    headline = read_headline(run)
    if headline is not None:
        yield from headline.numbers
        return
    held_out = read_held_out(run)
    reported = held_out[1].quantities if held_out else {}
    shown = [name for name in _SHOWN if name in reported]
    for name in shown or reported:
        if reported[name].mae is not None:
            heads = held_out[1].heads if held_out else {}
            by_head = {head: table[name] for head, table in heads.items() if name in table}
            yield _make_error(name, reported[name], by_head)
    if held_out and "curl" in held_out[1].conservation:
        curl = held_out[1].conservation["curl"]
        value = format_number(curl, 2)
        yield Number(title="Curl of the forces", value=value, note="0 if they conserve an energy")


def _make_error(name: str, errors: Errors, by_head: Mapping[str, Errors]) -> Number:
    assert errors.mae is not None
    kind = find_quantity(name, errors.unit)
    ratio = compute_relative_error(errors) if name == "forces" else None
    notes = [f"{format_percent(ratio)} of the mean absolute component"] if ratio else []
    notes += [f"R² {errors.r2:.3f}"] if errors.r2 is not None else []
    notes += [
        f"{format_number(kind.error_factor * own.mae)} of the head {head}"
        for head, own in by_head.items()
        if own.mae is not None
    ]
    amount = errors.mae * kind.error_factor
    return Number(
        title=f"{kind.title.capitalize()} error",
        value=f"{format_number(amount)} {kind.error_unit}",
        note=", ".join(notes),
        amount=amount,
        unit=kind.error_unit,
        better="less",
    )


def compute_seconds(run: Run) -> float:
    """Return the wall time of all stages of a run, except stages with shared artifacts."""
    return float(sum(record["seconds"] for record in read_stage_records(run)))


def _collect_time(experiment: ExperimentRun) -> Iterator[Number]:
    total = sum(map(compute_seconds, experiment.runs.values()))
    if total:
        several = f" of {len(experiment.runs)} variants" if len(experiment.runs) > 1 else ""
        yield Number(title="Wall time", value=format_duration(total), note=f"all stages{several}")
