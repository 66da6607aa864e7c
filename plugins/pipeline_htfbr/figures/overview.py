"""A table of all fits."""

from collections.abc import Sequence
from typing import Final

from pipeline_core.figures import Drawn, tabulate
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures.fits import Fit, read_fits

_PLACES: Final = ("train", "test", "grid", "off_grid")


def draw(experiment: ExperimentRun) -> Drawn:
    """Tabulate all variants, errors in cm⁻¹."""
    fits = read_fits(experiment)
    places = [p for p in _PLACES if any(p in fit.surface["errors"] for fit in fits)]
    table = tabulate(_describe(fit, places) for fit in fits)
    return (None, table) if table else None


def _describe(fit: Fit, places: Sequence[str]) -> dict[str, object]:
    last = places[-1] if places else None
    return {
        "variant": fit.run.variant,
        "method": fit.method,
        "parameters": fit.n_parameters,
        "ranks": _shorten(fit.surface["ranks"][:-1]),  # of the nodes below the root
        "degrees": _shorten(fit.surface["degrees"]),
        **{f"{place}_rmse_cm-1": fit.find_error(place, "cm^-1") for place in places},
        "largest_error_cm-1": fit.find_error(last, "cm^-1", "max_error") if last else None,
        "largest_error_on": last,
        "seconds": fit.surface["seconds"],
    }


def _shorten(numbers: Sequence[int]) -> str:
    """Format numbers, equal ones as a single one."""
    return ", ".join(map(str, dict.fromkeys(numbers) if len(set(numbers)) < 2 else numbers))
