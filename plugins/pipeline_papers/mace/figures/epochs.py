"""Times of an epoch against the number of ranks: measured, projected, and from the paper."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.mace.figures.configurations import (
    BASELINE,
    BOTH,
    CONFIGURATIONS,
    Configuration,
    find_configuration,
    list_trained,
    read_profiles,
)

Status = Literal["measured", "projected", "paper"]

_PAPER_TIMES: Final = {"baseline": BASELINE, "both": BOTH}


class Point(NamedTuple):
    """Time of an epoch, or a ratio of such times.

    Attributes:
        configuration: Configuration of the training.
        status: Source of the time.
        ranks: Number of ranks.
        value: Time of the epoch, s, or a ratio of such times.
        samples: Number of samples of the epoch; None where all points have the same.
    """

    configuration: Configuration
    status: Status
    ranks: int
    value: float
    samples: int | None = None


def list_measured(experiment: ExperimentRun) -> list[Point]:
    """Return the times of the trainings, medians over seeds."""
    seconds: dict[tuple[Configuration, int], list[float]] = {}
    for one in list_trained(experiment):
        seconds.setdefault((one.configuration, one.ranks), []).append(one.seconds)
    order = sorted(seconds, key=lambda key: (CONFIGURATIONS.index(key[0]), key[1]))
    return [Point(c, "measured", n, float(np.median(seconds[c, n]))) for c, n in order]


def list_projected(experiment: ExperimentRun, mode: str) -> list[Point]:
    """Return the projections of each configuration, of the first variant that has them."""
    points: dict[Configuration, list[Point]] = {}
    for variant, content in read_profiles(experiment).items():
        of_variant: dict[Configuration, list[Point]] = {}
        for entry in content.get("projection", ()):
            configuration = find_configuration(experiment.runs[variant], entry["strategy"])
            if configuration is not None and entry["mode"] == mode:
                point = Point(
                    configuration, "projected", entry["ranks"], entry["seconds"], entry["samples"]
                )
                of_variant.setdefault(configuration, []).append(point)
        points = {**of_variant, **points}
    order = [c for c in CONFIGURATIONS if c in points]
    return [point for c in order for point in sorted(points[c], key=lambda p: p.ranks)]


def list_published(experiment: ExperimentRun) -> list[Point]:
    """Return the times in the text of the paper."""
    points = []
    for identifier, entry in read_paper(experiment).items():
        parts = identifier.split("_")
        if len(parts) == 3 and parts[0] == "strong" and parts[1] in _PAPER_TIMES:
            assert entry.unit == "min", entry.id
            configuration, ranks = _PAPER_TIMES[parts[1]], int(parts[2])
            points.append(Point(configuration, "paper", ranks, 60 * entry.value))
    return sorted(points, key=lambda p: (CONFIGURATIONS.index(p.configuration), p.ranks))


def list_published_efficiencies(experiment: ExperimentRun) -> list[Point]:
    """Return the efficiency of strong scaling in the text of the paper."""
    entry = read_paper(experiment).get("strong_efficiency_740")
    return [] if entry is None else [Point(BOTH, "paper", 740, entry.value / 100)]


def compute_speedups(points: Sequence[Point]) -> list[Point]:
    """Return times of the baseline over times of each configuration on the same number of ranks."""
    baseline = {point.ranks: point.value for point in points if point.configuration == BASELINE}
    return [
        point._replace(value=baseline[point.ranks] / point.value)
        for point in points
        if point.ranks in baseline
    ]


def compute_strong_efficiencies(points: Sequence[Point]) -> list[Point]:
    """Return T₀ p₀ / (T p), where 0 is the fewest ranks of the configuration."""
    first = find_first_points(points)
    return [
        p._replace(value=one.value * one.ranks / (p.value * p.ranks))
        for p in points
        if (one := first[p.configuration])
    ]


def compute_weak_efficiencies(points: Sequence[Point]) -> list[Point]:
    """Return time per sample of a rank at the fewest ranks over the same at each rank count."""
    first = find_first_points(points)

    def compute_time_per_sample(point: Point) -> float:
        assert point.samples is not None, point
        return point.value * point.ranks / point.samples

    return [
        p._replace(
            value=compute_time_per_sample(first[p.configuration]) / compute_time_per_sample(p)
        )
        for p in points
    ]


def find_first_points(points: Sequence[Point]) -> dict[Configuration, Point]:
    """Return the point of each configuration with the fewest ranks."""
    by_configuration: dict[Configuration, Point] = {}
    for point in sorted(points, key=lambda p: p.ranks):
        by_configuration.setdefault(point.configuration, point)
    return by_configuration
