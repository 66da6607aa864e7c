"""The section `evaluate`: samples of a trained flow, and what they are compared with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_core.config.sections import Count, Positive, Section
from pipeline_gauge_flows.datasets import Extent, NotNegativeInt

Extents = Annotated[list[Extent], Field(min_length=2, max_length=4)]
Sides = tuple[Count, Count]
SplitName = Literal["train", "val", "test"]


class SmoothOptions(Section):
    """The gradient flow of the Wilson action, by which links are smoothed."""

    time: Positive = 1.0
    """Flow time in squared lattice spacings."""
    steps: Count = 50
    """Of the integration; from random links a step of 0.02 is off by 1e-4."""


class ObservableOptions(Section):
    """What is measured of a configuration beside its plaquettes."""

    wilson_loops: list[Sides] = [(2, 2)]
    """Sides of rectangular loops, averaged over all planes and both orientations."""
    polyakov: bool = True
    """Whether Polyakov loops in the direction of time are measured."""
    smooth: SmoothOptions | None = None
    """How links are smoothed before their energy density and, in four dimensions, their
    topological charge are measured; null to measure neither."""


class CostOptions(Section):
    """Markov chains of the same action that are timed beside the flow, on this machine."""

    updates: Annotated[int, Field(ge=32)] = 400
    """Heat bath: timed updates of one chain. HMC: timed trajectories of all chains together, at
    least 32 each."""
    thermalisation: NotNegativeInt = 30
    """Updates of each chain before."""
    overrelaxation: NotNegativeInt = 1
    """Sweeps after each one of the heat bath, which is there for the Wilson action only."""
    hmc_steps: Count = 10
    """Steps of a trajectory of length 1."""
    hmc_chains: Count = 8
    """Chains that HMC moves in one batch."""


class GaugeEvaluateOptions(Section):
    """What a trained flow is asked."""

    samples: Annotated[int, Field(ge=2)] = 4096
    """Configurations that are drawn on each lattice; errors of effective sample sizes below a third
    need tens of thousands. A flow that starts from an ensemble has those of `splits` instead."""
    batch_size: Count = 256
    """Configurations that a rank maps at a time."""
    lattices: list[Extents] = []
    """Further lattices on which the same flow is evaluated, for ESS(V) = ESS(V0)^(V/V0)."""
    ensembles: list[str] = []
    """Further datasets whose configurations a flow that starts from an ensemble maps, all of them
    and without training: of the action that it starts from, on any lattice that its masks close on.
    They stand beside ESS(V) = ESS(V0)^(V/V0)."""
    splits: list[SplitName] | None = None
    """Configurations of the dataset that are mapped; null for all that the training has not
    seen."""
    observables: ObservableOptions = ObservableOptions()
    resamples: Annotated[int, Field(ge=50)] = 500
    """Of the bootstrap that errors are from."""
    shots: Count = 8
    """Noise shots of each configuration, if the flow has `model.pseudofermions`."""
    cost: CostOptions | None = CostOptions()
    """What an independent configuration costs beside heat bath and HMC; null to time nothing."""

    @property
    def datasets(self) -> list[str]:
        """Datasets that the stage reads beside that of the experiment."""
        return self.ensembles
