"""Tables 2, 3 and 4 of the paper, with our rows below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline_core.figures import Drawn, Rows, results, tables
from pipeline_core.figures.expected import Entry, read_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures import text
from pipeline_htfbr.figures.fits import Fit, drop_shared, group_by_shares, read_fits

DEVICES: Final = {
    "cpu1": "1 CPU",
    "gpu1": "1 GPU",
    "gpu2": "2 GPU",
    "gpu4": "4 GPU",
    "gpu8": "8 GPU",
}
"""Devices of the paper, as the ids of `expected.yaml` name them."""
FRAMEWORKS: Final = ("nuwa", "benchmark")
SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}


def read_comparable(experiment: ExperimentRun, exact: str) -> list[Fit]:
    """Return the variants comparable to the paper's, which fit the named exact surface.

    There are none at the scale smoke, whose points and trees are smaller than the paper's.
    """
    if experiment.file.scale == "smoke":
        return []
    return [fit for fit in read_fits(experiment) if fit.surface["exact"] == exact]


def draw_table2(experiment: ExperimentRun) -> Drawn:
    """Draw Table 2: fits of HONO."""
    published = read_paper(experiment)
    ours = read_comparable(experiment, "hono")
    if not ours or "hono_gpu1_nuwa_train" not in published:
        return None
    places = ["train", "test", "grid"]
    header = ["fit", "device", "points", "epochs", "train loss", "test loss", "grid loss", "time"]
    cells, table = _list_paper(published, "hono", places, len(header))
    for fit in drop_shared(ours):
        _append(cells, table, fit, places)
    widths = [0.24, 0.2, 0.08, 0.09, 0.1, 0.1, 0.1, 0.09]
    return tables.draw(header, cells, widths), table


def draw_table4(experiment: ExperimentRun) -> Drawn:
    """Draw Table 4: fits of ethene."""
    published = read_paper(experiment)
    ours = read_comparable(experiment, "ethene_xtb")
    if not ours or "ethene_gpu1_nuwa_train" not in published:
        return None
    places = ["train", "test"]
    header = ["fit", "device", "points", "epochs", "train loss", "test loss", "time"]
    cells, table = _list_paper(published, "ethene", places, len(header))
    for fit in drop_shared(ours):
        _append(cells, table, fit, places)
    return tables.draw(header, cells, [0.26, 0.24, 0.1, 0.1, 0.1, 0.1, 0.1]), table


def _list_paper(
    published: Mapping[str, Entry], surface: str, places: Sequence[str], n_columns: int
) -> tuple[list[list[str]], Rows]:
    """Return the paper's rows, as cells for readers and as a table with its header."""
    table: Rows = [["whose", "fit", "device", "points", "epochs", *places, "seconds"]]
    cells = []
    for device, name in DEVICES.items():
        for framework in FRAMEWORKS:
            entries = {
                key: published.get(f"{surface}_{device}_{framework}_{key}")
                for key in (*places, "epochs", "time")
            }
            if entries["train"] is None:
                continue
            losses = [entry.value if (entry := entries[place]) else None for place in places]
            points = _get_value(published.get(f"{surface}_points"))
            epochs = _get_value(entries["epochs"] or published.get("epochs"))
            seconds = _get_seconds(entries["time"])
            row: list[object] = [f"paper: {framework}", name, points, epochs, *losses, seconds]
            table.append(["paper", framework, *row[1:]])
            cells.append(_format_row(row, len(places)))
    assert all(len(row) == n_columns for row in cells), n_columns
    return cells, table


def _append(cells: list[list[str]], table: Rows, fit: Fit, places: Sequence[str]) -> None:
    """Append one of our rows."""
    facts = fit.surface
    losses = [fit.find_error(place) for place in places]
    counts = [facts["n_train"], facts["epochs"]]
    row: list[object] = [f"ours: {fit.title}", fit.hardware, *counts, *losses, facts["seconds"]]
    table.append(["ours", fit.title, *row[1:]])
    cells.append(_format_row(row, len(places)))


def _format_row(row: Sequence[Any], n_losses: int) -> list[str]:
    name, device, *counts = row[:4]
    numbers = [f"{int(n):,}" if n is not None else "–" for n in counts]
    losses = [_format_loss(value) for value in row[4 : 4 + n_losses]]
    return [name, device or "–", *numbers, *losses, text.format_time(row[-1])]


def draw_table3(experiment: ExperimentRun) -> Drawn:
    """Draw Table 3: gap between training and test by the number of shares of the batch."""
    published = read_paper(experiment)
    compared = [fit for fit in read_comparable(experiment, "hono") if fit.surface["gap"]]
    shared, rival = (group_by_shares(compared, method) for method in ("resident", "dataloader"))
    if len(shared) < 2 or "gap_1_nuwa" not in published:
        return None
    losses = {n: _read_training_losses(fit) for n, fit in shared.items()}
    whole = losses[min(losses)]
    table: Rows = [["shares", *(f"paper_{f}" for f in FRAMEWORKS), "ours", "difference_of_losses"]]
    table[0].append("ours_dataloader")
    for n in sorted({1, 2, 4, 8} | shared.keys() | rival.keys()):
        theirs = [_get_value(published.get(f"gap_{n}_{framework}")) for framework in FRAMEWORKS]
        fit = shared.get(n)
        deviation = _compute_deviation(losses[n], whole) if fit else None
        table.append([n, *theirs, _get_gap(fit), deviation, _get_gap(rival.get(n))])
    cells = [_format_gaps(row) for row in table[1:]]
    header = [
        "GPUs of the paper, shares of ours",
        "paper: nuwa",
        "paper: benchmark",
        "ours",
        "training loss against one share",
        "ours: dataloader",
    ]
    return tables.draw(header, cells, [0.22, 0.12, 0.15, 0.13, 0.23, 0.15]), table


def _get_gap(fit: Fit | None) -> float | None:
    gap: float | None = fit.surface["gap"]["hartree"] if fit else None
    return gap


def _format_gaps(row: Sequence[Any]) -> list[str]:
    n, nuwa, rival, gap, deviation, other = row
    return [
        str(n),
        _format_loss(nuwa),
        _format_loss(rival),
        _format_loss(gap, 6),
        _format_loss(deviation, 1),
        _format_loss(other),
    ]


def _read_training_losses(fit: Fit) -> list[float]:
    return [record["train"]["loss"] for record in results.read_history(fit.run)]


def _compute_deviation(losses: Sequence[float], whole: Sequence[float]) -> float | None:
    """Return the largest relative difference over the epochs."""
    pairs = list(zip(losses, whole, strict=False))
    return max((abs(one - other) / other for one, other in pairs), default=None)


def _get_value(entry: Entry | None) -> float | None:
    return None if entry is None else entry.value


def _get_seconds(entry: Entry | None) -> float | None:
    return None if entry is None else entry.value * SECONDS[entry.unit]


def _format_loss(value: float | None, decimals: int = 2) -> str:
    """Return an error in hartree in the paper's format, 3.7e−4, without padding zeros.

    Args:
        value: The error.
        decimals: Largest number of digits after the decimal point.
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    if decimals > 1 and float(f"{value:.1e}") == value:
        mantissa = mantissa[:3]
    return f"{mantissa}e{int(exponent)}".replace("-", "−")
