"""Errors and times of all variants of a surface: the data of the HT-FBR figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_core.config.experiments import BASE
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.figures import results
from pipeline_core.figures.provenance import describe_hardware, read_stage_records
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_htfbr.options import HTTrainOptions


@dataclass(frozen=True)
class Fit:
    """Fit of one variant.

    Attributes:
        run: The run of the variant.
        n_parameters: Number of fitted parameters.
        surface: Key `surface` of the metrics, see `pipeline_htfbr.evaluation.evaluate`.
    """

    run: Run
    n_parameters: int
    surface: dict[str, Any]

    @property
    def method(self) -> str:
        """Method of the fit."""
        return str(self.surface["method"])

    @property
    def title(self) -> str:
        """Variant and method as displayed; for the base variant the method alone."""
        variant = self.run.variant
        if variant in (BASE, self.method):
            return self.method
        return f"{variant} ({self.method})"

    @property
    def shares(self) -> int:
        """Number of equal micro-batches of a full batch."""
        capacity = self.run.get_section("partition", PartitionOptions).capacity
        return -int(-self.surface["n_train"] // capacity) if capacity else 1

    @property
    def hardware(self) -> str:
        """Hardware of the training, "" if it was not recorded."""
        records = [record for record in read_stage_records(self.run) if record["stage"] == "train"]
        return describe_hardware(records[0]) if records else ""

    def find_error(self, place: str, unit: str = "hartree", kind: str = "rmse") -> float | None:
        """Return an error at a place (train, val, test, grid, off_grid); None if not compared."""
        units = self.surface["errors"].get(place)
        return None if units is None else units[unit][kind]

    def list_windows(self, place: str) -> list[dict[str, Any]]:
        """Return the errors in each window of energy at a place; empty if not compared."""
        windows: list[dict[str, Any]] = self.surface["errors"].get(place, {}).get("windows", [])
        return windows


def read_fits(experiment: ExperimentRun) -> list[Fit]:
    """Return the variants that have been evaluated."""
    fits = []
    for run in experiment.runs.values():
        content = results.read_json(run.metrics)
        if isinstance(content, dict) and "surface" in content:
            fits.append(Fit(run, content["n_parameters"], content["surface"]))
    return fits


def group_by_shares(fits: Sequence[Fit], method: str = "resident") -> dict[int, Fit]:
    """Return fits that differ only in their number of micro-batches, by this number.

    They are those that are trained like the first fit by a method whose experiment limits the
    capacity.
    """
    full = [f for f in fits if f.run.get_section("train", HTTrainOptions).batch_size == "all"]
    full = [f for f in full if f.method == method]
    limited = [f for f in full if f.run.get_section("partition", PartitionOptions).capacity]
    if not limited:
        return {}
    settings = limited[0].run.select_params("train")
    return {f.shares: f for f in full if f.run.select_params("train") == settings}


def drop_shared(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits without those that differ from others in their number of shares alone."""
    shared = {fit.run.variant for fit in group_by_shares(fits).values()}
    return [fit for fit in fits if fit.run.variant not in shared]
