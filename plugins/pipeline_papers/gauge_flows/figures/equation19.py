"""Eq. 19 of the paper: the cost of a derivative, with the paper's numbers beside ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from pipeline_core.figures import Drawn, tabulate
from pipeline_core.figures.expected import Entry, read_paper
from pipeline_core.figures.provenance import read_stage_records
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.evaluation.cost import read_training_seconds
from pipeline_gauge_flows.figures.derivatives import Derivatives, read_derivatives

_COLUMNS: Final = 3
"""Number of runs that fit on a page."""


@dataclass(frozen=True)
class Terms:
    """Terms of Eq. 19 by configuration, in any unit; None where unknown.

    Attributes:
        generation: Cost of generating a configuration.
        measurement: Cost of one measurement on a configuration.
        flow: Cost of evaluating the flow.
        reweighting: Cost of the weight.
        training: Cost of training the flow.
        epsilon_ratio: Variance of epsilon-reweighting over the variance of the flow.
        independent_ratio: Variance of two independent ensembles over the variance of the flow.
    """

    generation: float | None
    measurement: float
    flow: float
    reweighting: float
    training: float | None
    epsilon_ratio: float | None
    independent_ratio: float | None

    @property
    def sampled(self) -> float | None:
        """Cost of a configuration by epsilon-reweighting."""
        return None if self.generation is None else self.generation + self.measurement

    @property
    def flows(self) -> float | None:
        """Cost of a configuration with the flow, without its training."""
        if self.generation is None:
            return None
        return self.generation + self.flow + 2 * self.measurement + self.reweighting

    @property
    def independent(self) -> float | None:
        """Cost of a configuration at each end of the step."""
        return None if self.sampled is None else 2 * self.sampled

    @property
    def pays_beside_epsilon(self) -> float | None:
        """Configurations after which the flow has a smaller error than others at equal cost."""
        return self._find_break_even(self.epsilon_ratio, self.sampled)

    @property
    def pays_beside_independent(self) -> float | None:
        """The same beside independent ensembles."""
        return self._find_break_even(self.independent_ratio, self.independent)

    def _find_break_even(self, ratio: float | None, rival: float | None) -> float | None:
        if ratio is None or rival is None or self.flows is None or self.training is None:
            return None
        saved = ratio * rival - self.flows
        return self.training / saved if saved > 0 else inf


_TIMES: Final = ("generation", "measurement", "flow", "reweighting")
_TERMS: Final = (
    *_TIMES,
    "sampled",
    "flows",
    "independent",
    "training",
    "epsilon_ratio",
    "independent_ratio",
    "pays_beside_epsilon",
    "pays_beside_independent",
)
"""Attributes of `Terms` in the table."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Tabulate Eq. 19, with the paper's numbers beside ours."""
    differentiated = read_derivatives(experiment)[:_COLUMNS]
    if not differentiated:
        return None
    columns = {one.run.label: _compute_terms(one) for one in differentiated}
    theirs = _read_paper_terms(read_paper(experiment))
    return None, tabulate(
        {
            "term": key,
            "paper_times_in_gpu_hours": getattr(theirs, key, None),
            **{f"{name}_times_in_s": getattr(terms, key) for name, terms in columns.items()},
        }
        for key in _TERMS
    )


def _read_paper_terms(published: Mapping[str, Entry]) -> Terms | None:
    """Return the paper's terms in GPU hours, the variance ratio at the lower end of its range."""
    ids = {name: f"cost_{name}" for name in (*_TIMES, "training")}
    ids["epsilon_ratio"] = "configurations_ratio_low"
    if not published.keys() >= set(ids.values()):
        return None
    values = {name: published[key].value for name, key in ids.items()}
    return Terms(**values, independent_ratio=None)


def _compute_terms(one: Derivatives) -> Terms:
    seconds, ratios = one.report["seconds"], one.observables[one.headline]["error_ratio"]
    squares = {k: None if x is None else x**2 for k, x in ratios.items()}
    training = read_training_seconds(one.run)
    for record in read_stage_records(one.run):
        if training is not None and record["stage"] == "train":
            training *= record.get("ranks", 1)  # as the other terms: wall time of all ranks
    return Terms(
        **{name: seconds[name] for name in _TIMES},
        training=training,
        epsilon_ratio=squares["best"],
        independent_ratio=squares.get("independent"),
    )
