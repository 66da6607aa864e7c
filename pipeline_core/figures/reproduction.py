"""The paper's numbers beside ours: measured, projected, an input, or not attempted."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline_core.figures import results
from pipeline_core.figures.expected import ARTIFACTS, Entry, Expected, Measure, read_expected
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.provenance import describe_hardware, read_stage_records
from pipeline_core.project.run import ExperimentRun, Run

NOT_ATTEMPTED: Final = "not attempted"
NOT_RUN: Final = "not computed yet"
INPUT: Final = "input"
ELSEWHERE: Final = "of another experiment"
HEADER: Final = ("where", "quantity", "paper", "ours", "status", "what differs")


def format_row(row: Mapping[str, Any]) -> list[str]:
    """Return a row for readers: where, quantity, paper, ours, status, what differs."""
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    ours = f"{format_number(row['ours'])}{unit}" if row["ours"] is not None else "–"
    paper = f"{row['paper']:.10g}{unit}"
    return [row["where"], row["quantity"], paper, ours, row["status"], row["differs"]]


def compare(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Put our numbers beside those of the paper.

    Returns:
        Content of `reproduction.json`: the paper, counts by status, and a row per entry; None if
        the plugin has no `expected.yaml`.

    Raises:
        ValueError: The file is wrong, or points to a number that the results do not have.
    """
    path = experiment.path.parent / "expected.yaml"
    expected = read_expected(path)
    if expected is None:
        return None
    rows = [_make_row(entry, expected, experiment, path) for entry in expected.entries]
    return {
        "experiment": experiment.experiment,
        "scale": experiment.file.scale,
        "paper": expected.paper,
        "citation": expected.citation,
        "counts": dict(Counter(row["status"] for row in rows)),
        "entries": rows,
    }


def _make_row(
    entry: Entry, expected: Expected, experiment: ExperimentRun, path: Path
) -> dict[str, Any]:
    measure, ours = entry.measure, None
    here = measure is not None and measure.experiment == experiment.experiment
    if measure is not None and here:
        try:
            ours = _measure(measure, experiment)
        except ValueError as error:
            raise ValueError(f"{path}: {entry.id}: measure: {error}") from None
    return {
        "id": entry.id,
        "where": entry.where,
        "quantity": entry.quantity,
        "unit": entry.unit,
        "paper": entry.value,
        "ours": ours,
        "ratio": _divide(ours, entry),
        "status": _name_status(measure, ours, here=here),
        "experiment": measure.experiment if measure is not None else None,
        "differs": entry.differs,
        "paper_scale": entry.scale or expected.scale,
        "paper_hardware": expected.hardware,
        "our_scale": experiment.file.scale if ours is not None else None,
        "our_hardware": _find_hardware(measure, experiment)
        if measure and ours is not None
        else None,
        "source": entry.source,
    }


def _divide(ours: float | None, entry: Entry) -> float | None:
    """Return our number over the paper's; None for an input, which is the paper's own."""
    is_result = entry.measure is not None and entry.measure.status != INPUT
    return ours / entry.value if ours is not None and entry.value and is_result else None


def _name_status(measure: Measure | None, ours: float | None, *, here: bool) -> str:
    if measure is None:
        return NOT_ATTEMPTED
    if not here:
        return ELSEWHERE
    return measure.status if ours is not None else NOT_RUN


def _measure(measure: Measure, experiment: ExperimentRun) -> float | None:
    """Return our number in the unit of the paper; None if its stage has not been run."""
    value = _find_number(measure.of, experiment)
    divisor = _find_number(measure.over, experiment) if measure.over is not None else 1.0
    return None if value is None or divisor is None else measure.factor * value / divisor


def _find_number(pointer: str, experiment: ExperimentRun) -> float | None:
    variant, artifact, *keys = pointer.split("/")
    if variant not in experiment.runs:
        raise ValueError(
            f"{pointer}: {experiment.experiment} has no variant {variant!r}, only "
            f"{', '.join(experiment.runs)}"
        )
    value = _ARTIFACTS[artifact](experiment.runs[variant])
    if not value:
        return None
    for key in keys:
        value = _descend(value, key, pointer)
    if value is not None and not isinstance(value, int | float):
        raise ValueError(f"{pointer}: is not a number but {type(value).__name__}")
    return None if value is None else float(value)


def _descend(value: Any, key: str, pointer: str) -> Any:
    if isinstance(value, list):
        value = {str(n): value[n] for n in range(-len(value), len(value))}
    if not isinstance(value, dict) or key not in value:
        present = ", ".join(value) if isinstance(value, dict) else "nothing"
        raise ValueError(f"{pointer}: {key!r} is not there, only {present}")
    return value[key]


def _read_profile(run: Run) -> dict[str, Any]:
    """Return the profile with its projections by mode, strategy and number of ranks."""
    content = dict(results.read_profile(run) or {})
    by_mode: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in content.get("projection", ()):
        by_strategy = by_mode.setdefault(entry["mode"], {})
        by_strategy.setdefault(entry["strategy"], {})[str(entry["ranks"])] = entry
    return {**content, "projection": by_mode} if content else {}


def _read_epoch(run: Run) -> dict[str, float]:
    seconds = results.compute_epoch_seconds(run)
    return {} if seconds is None else {"seconds": seconds}


_ARTIFACTS: Final[dict[str, Callable[[Run], Any]]] = {
    "metrics": lambda run: results.read_json(run.metrics),
    "history": results.read_history,
    "epoch": _read_epoch,
    "inference": results.read_attributes,
    "profile": _read_profile,
    "balance": lambda run: {str(entry["ranks"]): entry for entry in results.read_balance(run)},
    "records": lambda run: {record["stage"]: record for record in read_stage_records(run)},
}


def _find_hardware(measure: Measure, experiment: ExperimentRun) -> str | None:
    """Return the hardware of the stage that computed our number."""
    variant, artifact, *keys = measure.of.split("/")
    wanted = measure.stage or ARTIFACTS[artifact] or keys[0]
    records = {record["stage"]: record for record in read_stage_records(experiment.runs[variant])}
    return describe_hardware(records[wanted]) if wanted in records else None
