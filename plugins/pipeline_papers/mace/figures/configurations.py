"""The four configurations of the paper, ours, and the runs that differ only by them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from pipeline_atoms.config.graph import GraphOptions
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.figures import results, style
from pipeline_core.figures.provenance import read_stage_records
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_mace.options import MACEOptions


@dataclass(frozen=True)
class Configuration:
    """Kernels and load balancing of a training.

    Attributes:
        name: Name in the paper's text.
        colour: Colour of its curves and bars.
        marker: Marker of its points.
        hatch: Hatch of its bars, for prints without colours.
    """

    name: str
    colour: str
    marker: str
    hatch: str


_BY_OPTIONS: Final = {
    ("reference", "random"): Configuration("baseline", style.COLOURS[6], "o", ""),
    ("reference", "mace_bins"): Configuration("algorithm 1", style.COLOURS[4], "s", "////"),
    ("fused", "random"): Configuration("fused kernels", style.COLOURS[5], "^", "...."),
    ("fused", "mace_bins"): Configuration("both", style.COLOURS[0], "D", ""),
    # Not in the paper: the default load balancing of this project.
    ("fused", "balanced"): Configuration("ours", style.COLOURS[1], "v", "xxxx"),
}
CONFIGURATIONS: Final = tuple(_BY_OPTIONS.values())
BASELINE: Final = CONFIGURATIONS[0]
BOTH: Final = CONFIGURATIONS[3]
OURS: Final = CONFIGURATIONS[4]


@dataclass(frozen=True)
class Trained:
    """A training of one of the configurations.

    Attributes:
        run: Run that was trained.
        configuration: Configuration of the run.
        ranks: Number of ranks.
        settings: All other options, as text.
        seconds: Median time of an epoch, s.
    """

    run: Run
    configuration: Configuration
    ranks: int
    settings: str
    seconds: float


def find_configuration(run: Run, strategy: str) -> Configuration | None:
    """Return the configuration of a run's kernels with a load balancing; None for others."""
    options = run.options
    if not isinstance(options, MACEOptions):
        return None
    return _BY_OPTIONS.get((options.kernels, strategy))


def list_trained(experiment: ExperimentRun) -> list[Trained]:
    """Return the runs that were trained like the first one, except for the configuration."""
    runs = [one for run in experiment.runs.values() if (one := _describe_trained(run)) is not None]
    return [one for one in runs if one.settings == runs[0].settings]


def _describe_trained(run: Run) -> Trained | None:
    strategy = run.get_section("partition", PartitionOptions).strategy
    configuration, seconds = find_configuration(run, strategy), results.compute_epoch_seconds(run)
    if configuration is None or seconds is None:
        return None
    records = {record["stage"]: record for record in read_stage_records(run)}
    ranks = records.get("train", {}).get("ranks", 1)
    return Trained(run, configuration, ranks, _format_settings(run), seconds)


def _format_settings(run: Run) -> str:
    settings = [
        run.options.model_dump(mode="json", exclude={"kernels"}),
        run.get_section("graph", GraphOptions).model_dump(mode="json"),
        run.get_section("partition", PartitionOptions).model_dump(
            mode="json", exclude={"strategy"}
        ),
        run.get_section("train", TrainOptions).model_dump(mode="json", exclude={"profile"}),
    ]
    return json.dumps(settings, sort_keys=True)


def read_profiles(experiment: ExperimentRun) -> dict[str, dict[str, Any]]:
    """Return the measured training steps: variant -> content from `results.read_profile`."""
    profiles = {
        run.variant: results.read_profile(run)
        for run in experiment.runs.values()
        if isinstance(run.options, MACEOptions)
    }
    return {variant: content for variant, content in profiles.items() if content is not None}
