"""Tables 2, 3 and 4 of the paper, with our rows below."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pipeline_core.figures import Drawn, results, tabulate
from pipeline_core.figures.expected import Entry, read_paper
from pipeline_core.project.run import ExperimentRun
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


def draw_fits(experiment: ExperimentRun, surface: str, exact: str, *places: str) -> Drawn:
    """Tabulate the errors at these places of fits of an exact surface, Tables 2 and 4."""
    published, ours = read_paper(experiment), read_comparable(experiment, exact)
    if not ours or f"{surface}_gpu1_nuwa_train" not in published:
        return None
    fits = [_describe_fit(fit, places) for fit in drop_shared(ours)]
    return None, tabulate([*_list_paper(published, surface, places), *fits])


def _list_paper(
    published: Mapping[str, Entry], surface: str, places: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield the rows of the paper."""
    for device, name in DEVICES.items():
        for framework in FRAMEWORKS:
            prefix = f"{surface}_{device}_{framework}"
            if f"{prefix}_train" in published:
                epochs = published.get(f"{prefix}_epochs") or published.get("epochs")
                time = published.get(f"{prefix}_time")
                yield {
                    "whose": "paper",
                    "fit": framework,
                    "device": name,
                    "points": _get_value(published.get(f"{surface}_points")),
                    "epochs": _get_value(epochs),
                    **{p: _get_value(published.get(f"{prefix}_{p}")) for p in places},
                    "seconds": time.value * SECONDS[time.unit] if time else None,
                }


def _describe_fit(fit: Fit, places: Sequence[str]) -> dict[str, object]:
    """Return one of our rows."""
    return {
        "whose": "ours",
        "fit": fit.title,
        "device": fit.hardware,
        "points": fit.surface["n_train"],
        "epochs": fit.surface["epochs"],
        **{place: fit.find_error(place) for place in places},
        "seconds": fit.surface["seconds"],
    }


def draw_table3(experiment: ExperimentRun) -> Drawn:
    """Tabulate the gap between training and test by the shares of the batch, Table 3."""
    published = read_paper(experiment)
    compared = [fit for fit in read_comparable(experiment, "hono") if fit.surface["gap"]]
    shared, rival = (group_by_shares(compared, method) for method in ("resident", "dataloader"))
    if len(shared) < 2 or "gap_1_nuwa" not in published:
        return None
    losses = {
        n: [record["train"]["loss"] for record in results.read_history(fit.run)]
        for n, fit in shared.items()
    }
    whole = losses[min(losses)]
    return None, tabulate(
        {
            "shares": n,
            **{f"paper_{f}": _get_value(published.get(f"gap_{n}_{f}")) for f in FRAMEWORKS},
            "ours": _get_gap(shared.get(n)),
            "difference_of_losses": _compute_deviation(losses[n], whole) if n in shared else None,
            "ours_dataloader": _get_gap(rival.get(n)),
        }
        for n in sorted({1, 2, 4, 8} | shared.keys() | rival.keys())
    )


def _get_gap(fit: Fit | None) -> float | None:
    gap: float | None = fit.surface["gap"]["hartree"] if fit else None
    return gap


def _compute_deviation(losses: Sequence[float], whole: Sequence[float]) -> float | None:
    """Return the largest relative difference over the epochs."""
    pairs = list(zip(losses, whole, strict=False))
    return max((abs(one - other) / other for one, other in pairs), default=None)


def _get_value(entry: Entry | None) -> float | None:
    return None if entry is None else entry.value
