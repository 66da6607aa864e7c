"""A table of all fits."""

from __future__ import annotations

from pipeline_core.figures import Drawn, Rows, tables
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures import text
from pipeline_htfbr.figures.fits import Fit, read_fits


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the table of all variants, errors in cm⁻¹."""
    fits = read_fits(experiment)
    if not fits:
        return None
    places = [p for p in ("train", "test", "grid", "off_grid") if any(_has(f, p) for f in fits)]
    names = {"train": "train", "test": "test", "grid": "grid", "off_grid": "off grid"}
    header = ["fit", "param.", "ranks", "degrees", *(names[p] for p in places), "largest", "time"]
    table: Rows = [
        [
            "variant",
            "method",
            "parameters",
            "ranks",
            "degrees",
            *(f"{place}_rmse_cm-1" for place in places),
            "largest_error_cm-1",
            "largest_error_on",
            "seconds",
        ]
    ]
    cells = []
    for fit in fits:
        errors = [fit.find_error(place, "cm^-1") for place in places]
        worst = fit.find_error(places[-1], "cm^-1", "max_error") if places else None
        ranks, degrees, seconds = (
            text.format_ranks(fit),
            text.format_degrees(fit),
            fit.surface["seconds"],
        )
        about = [fit.run.variant, fit.method, fit.n_parameters, ranks, degrees]
        table.append([*about, *errors, worst, places[-1] if places else None, seconds])
        numbers = [*map(format_number, errors), format_number(worst)]
        facts = [fit.title, f"{fit.n_parameters:,}", ranks, degrees]
        cells.append([*facts, *numbers, text.format_time(seconds)])
    width = 0.49 / (len(places) + 2)
    widths = [0.16, 0.08, 0.12, 0.15, *[width] * (len(places) + 2)]
    return tables.draw(header, cells, widths), table


def _has(fit: Fit, place: str) -> bool:
    return place in fit.surface["errors"]
