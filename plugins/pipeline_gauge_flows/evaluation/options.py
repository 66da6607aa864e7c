"""Section `evaluate`: samples of a trained flow, and their comparisons."""

from typing import Annotated

from pydantic import Field

from pipeline_core.config.sections import Count, Section
from pipeline_gauge_flows.data.datasets import Extents

Sides = tuple[Count, Count]


class ObservableOptions(Section):
    """Observables of a configuration besides its plaquettes."""

    wilson_loops: list[Sides] = [(2, 2)]
    """Sides of rectangular loops, averaged over all planes and both orientations."""
    polyakov: bool = True
    """Measure Polyakov loops in the direction of time."""


class CostOptions(Section):
    """Markov chains of the same action that are timed for comparison, on the same machine."""

    updates: Annotated[int, Field(ge=32)] = 400
    """Heat bath: timed updates of one chain. HMC: timed trajectories of all chains together, at
    least 32 each."""


class GaugeEvaluateOptions(Section):
    """Evaluation of a trained flow."""

    samples: Annotated[int, Field(ge=2)] = 4096
    """Number of configurations on each lattice; errors of effective sample sizes below a third
    need tens of thousands. A flow that starts from an ensemble maps the configurations of the
    dataset that were not used in the training instead."""
    batch_size: Count = 256
    """Configurations per batch of a rank."""
    lattices: list[Extents] = []
    """Further lattices on which the same flow is evaluated, for ESS(V) = ESS(V0)^(V/V0)."""
    ensembles: list[str] = []
    """Further datasets for a flow that starts from an ensemble; all configurations are mapped,
    without training: with the flow's base action, on any lattice on which its masks close.
    They are compared with ESS(V) = ESS(V0)^(V/V0)."""
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
