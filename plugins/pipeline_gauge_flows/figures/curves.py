"""Training curves of a flow: effective sample size and divergence by optimizer steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.figures import results
from pipeline_core.project.run import Run
from pipeline_gauge_flows.options import GaugeOptions, GaugeTrainOptions
from pipeline_gauge_flows.training.objective import LARGEST_EXPONENT

Floats = NDArray[np.float64]

_TAIL: Final = 4.0
"""Standard deviations of log w within which all samples should lie."""


@dataclass(frozen=True)
class Curve:
    """Training curve of a flow by epoch, from the history.

    Attributes:
        steps: Optimizer steps, or epochs if the number of steps is unknown.
        ess: Effective sample size over the number of samples, NaN where it cannot be estimated.
        loss: KL(q, p) - log Z; None if another divergence was trained.
        split: "val" or "train".
    """

    steps: Floats
    ess: Floats
    loss: Floats | None
    split: str


def read_curve(run: Run) -> Curve | None:
    """Return the curve of a run; None if it was not trained."""
    records = results.read_history(run)
    if not records or "weight" not in (records[0].get("train") or {}):
        return None
    split = "val" if records[0].get("val") else "train"
    terms = [record[split] for record in records]
    steps = np.array([record["epoch"] for record in records], dtype=np.float64)
    loss = np.array([t["reverse_kl"] for t in terms]) if "reverse_kl" in terms[0] else None
    ess = np.array([_compute_ess(one) for one in terms])
    return Curve(steps * (count_steps_per_epoch(run) or 1), ess, loss, split)


def count_steps_per_epoch(run: Run) -> int | None:
    """Return the optimizer steps per epoch; None if the data are missing."""
    options = run.get_section("model", GaugeOptions)
    train = run.get_section("train", GaugeTrainOptions)
    n: int | None = options.draws.train
    if options.prior == "ensemble":
        report = results.read_json(run.dataset.report) if run.dataset is not None else None
        n = report["splits"]["train"] if report else None
    if n is None or train.batch_size == "all":
        return None if n is None else 1
    return -(-n // train.batch_size)


def _compute_ess(terms: Mapping[str, float]) -> float:
    weight, variance = terms["weight"], terms["log_weight_square"] - terms["log_weight"] ** 2
    ess = weight**2 / terms["weight_square"] if terms["weight_square"] > 0 else np.nan
    # Weights beyond the exponent limit of the loss are clipped to the same value.
    reach = abs(terms["log_weight"]) + _TAIL * max(variance, 0.0) ** 0.5
    return float("nan") if reach > LARGEST_EXPONENT else float(ess)
