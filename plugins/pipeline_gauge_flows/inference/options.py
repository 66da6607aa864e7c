"""Section `infer`: configurations to be written, derivatives by correlated ensembles."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline_core.config.sections import Count, Section
from pipeline_gauge_flows.data.datasets import FermionOptions, NotNegativeInt


class SampleOptions(Section):
    """A Markov chain of the action with proposals of a flow that starts from the Haar measure.

    Some configurations repeat.
    """

    n_configurations: Count
    thermalisation: NotNegativeInt = 100
    """Proposals before the first stored configuration."""
    formats: Annotated[list[Literal["hdf5", "ildg", "nersc"]], Field(min_length=1)] = ["hdf5"]
    """hdf5: one file for all, with the layout of `data.h5`. ildg, nersc: one file each, which the
    sources of a dataset can name; four dimensions only, ILDG for SU(3) only."""
    batch_size: Count = 64
    """Configurations per batch of a rank."""


class PionOptions(Section):
    """The charged pion: its mass by fits of its correlator, and their derivatives."""

    quarks: FermionOptions | None = None
    """Quarks of the pion; null for the quarks of the action."""
    n_sources: Count = 16
    """Random time slices per configuration, each with noise of Z(4) as its source."""


class DerivativeOptions(Section):
    """Derivatives by the parameter in which the flow's two actions differ (Eqs. 12 and 13).

    The flow must start from an ensemble. A second ensemble is generated like the dataset at the
    other end of the step, if a Markov chain has generated the dataset.
    """

    ensemble: str | None = None
    """Dataset whose configurations are mapped, without training; null for the experiment's own. It
    has the base action of the flow, on any lattice on which its masks close. All its configurations
    are mapped, of the experiment's own those of the splits val and test."""
    pion: PionOptions | None = None
    """Derivatives of the pion; null for none."""
    resamples: Annotated[int, Field(ge=50)] = 500
    """Bootstrap resamples for all errors, drawn jointly."""
    batch_size: Count = 64
    """Configurations per batch of a rank, mapped, or measured in the second ensemble."""


class GaugeInferOptions(Section):
    """Use of the trained flow."""

    samples: SampleOptions | None = None
    """Configurations to be written; null for none."""
    derivatives: DerivativeOptions | None = None
    """Derivatives of observables; null for none."""

    @property
    def datasets(self) -> list[str]:
        """Datasets read by the stage besides the experiment's own."""
        named = None if self.derivatives is None else self.derivatives.ensemble
        return [] if named is None else [named]
