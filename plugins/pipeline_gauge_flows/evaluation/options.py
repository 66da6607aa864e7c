"""Section `evaluate`: samples of a trained flow, and their comparisons."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_core.config.sections import Count, Positive, Section
from pipeline_gauge_flows.data.datasets import Extent, NotNegativeInt

Extents = Annotated[list[Extent], Field(min_length=2, max_length=4)]
Sides = tuple[Count, Count]
SplitName = Literal["train", "val", "test"]


class SmoothOptions(Section):
    """Gradient flow of the Wilson action, which smooths links."""

    time: Positive = 1.0
    """Flow time in squared lattice spacings."""
    steps: Count = 50
    """Integration steps; from random links a step size of 0.02 has an error of 1e-4."""


class ObservableOptions(Section):
    """Observables of a configuration besides its plaquettes."""

    wilson_loops: list[Sides] = [(2, 2)]
    """Sides of rectangular loops, averaged over all planes and both orientations."""
    polyakov: bool = True
    """Measure Polyakov loops in the direction of time."""
    smooth: SmoothOptions | None = None
    """Smoothing of links before their energy density and, in four dimensions, their
    topological charge are measured; null to measure neither."""


class CostOptions(Section):
    """Markov chains of the same action that are timed for comparison, on the same machine."""

    updates: Annotated[int, Field(ge=32)] = 400
    """Heat bath: timed updates of one chain. HMC: timed trajectories of all chains together, at
    least 32 each."""
    thermalisation: NotNegativeInt = 30
    """Updates of each chain before the timing."""
    overrelaxation: NotNegativeInt = 1
    """Sweeps after each heat-bath sweep; heat bath supports the Wilson action only."""
    hmc_steps: Count = 10
    """Integration steps of a trajectory of length 1."""
    hmc_chains: Count = 8
    """Number of HMC chains in one batch."""


class GaugeEvaluateOptions(Section):
    """Evaluation of a trained flow."""

    samples: Annotated[int, Field(ge=2)] = 4096
    """Number of configurations on each lattice; errors of effective sample sizes below a third
    need tens of thousands. A flow that starts from an ensemble maps those of `splits` instead."""
    batch_size: Count = 256
    """Configurations per batch of a rank."""
    lattices: list[Extents] = []
    """Further lattices on which the same flow is evaluated, for ESS(V) = ESS(V0)^(V/V0)."""
    ensembles: list[str] = []
    """Further datasets for a flow that starts from an ensemble; all configurations are mapped,
    without training: with the flow's base action, on any lattice on which its masks close.
    They are compared with ESS(V) = ESS(V0)^(V/V0)."""
    splits: list[SplitName] | None = None
    """Splits of the dataset that are mapped; null for all splits that were not used in the
    training."""
    observables: ObservableOptions = ObservableOptions()
    resamples: Annotated[int, Field(ge=50)] = 500
    """Bootstrap resamples for errors."""
    shots: Count = 8
    """Noise shots per configuration, if the flow has `model.pseudofermions`."""
    cost: CostOptions | None = CostOptions()
    """Cost of an independent configuration compared with heat bath and HMC; null for no timing."""

    @property
    def datasets(self) -> list[str]:
        """Datasets read by the stage besides the experiment's own."""
        return self.ensembles
