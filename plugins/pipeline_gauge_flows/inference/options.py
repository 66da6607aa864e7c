"""The section `infer`: configurations to be written, derivatives by correlated ensembles."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline_core.config.sections import Count, Section
from pipeline_gauge_flows.datasets import FermionOptions, NotNegativeInt
from pipeline_gauge_flows.evaluation.options import Extents, ObservableOptions, SplitName

Fraction = Annotated[float, Field(gt=0, le=1)]


class SampleOptions(Section):
    """Configurations from a flow that starts from the Haar measure."""

    n_configurations: Count
    method: Literal["metropolis", "proposals"] = "metropolis"
    """metropolis: a Markov chain of the action, whose proposals the flow draws, so that some
    configurations repeat. proposals: what the flow draws, each with a weight."""
    thermalisation: NotNegativeInt = 100
    """Metropolis: proposals before the first configuration is kept."""
    separation: Count = 1
    """Metropolis: proposals between two configurations that are kept."""
    formats: Annotated[list[Literal["hdf5", "ildg", "nersc"]], Field(min_length=1)] = ["hdf5"]
    """hdf5: one file of all, with the layout of `data.h5`. ildg, nersc: a file each, which the
    sources of a dataset can name; four dimensions only, ILDG for SU(3) only."""
    extents: Extents | None = None
    """Their lattice; null for that of the training."""
    batch_size: Count = 64
    """Configurations that a rank draws at a time."""

    @model_validator(mode="after")
    def _check_chain(self) -> Self:
        chain = {"thermalisation", "separation"} & self.model_fields_set
        if self.method == "proposals" and chain:
            raise ValueError(
                f"{' and '.join(sorted(chain))}: of a Markov chain, but method is 'proposals'; "
                "remove what does not apply, or choose the method 'metropolis'"
            )
        return self


class PionOptions(Section):
    """The charged pion: its mass by fits of its correlator, and their derivatives."""

    quarks: FermionOptions | None = None
    """Of which the pion is made; null for those of the action."""
    source: Literal["point", "z2", "z4"] = "z4"
    """point: all spins and colours at random sites. z2, z4: such noise on random slices of time."""
    n_sources: Count = 16
    """Points or slices of each configuration; a point takes as many inversions as spins and colours
    together, a slice takes one."""
    t_min: Count | None = None
    """Start of the fit range [t_min, T/2] of which the table of costs tells; null for T/4. All
    ranges are fitted."""


class DerivativeOptions(Section):
    """Derivatives by the parameter in which the flow's two actions differ (Eqs. 12 and 13).

    The flow starts from an ensemble.
    """

    ensemble: str | None = None
    """Dataset whose configurations are mapped, without training; null for that of the experiment.
    It is of the action that the flow starts from, on any lattice that its masks close on."""
    splits: list[SplitName] = ["val", "test"]
    """Configurations of the dataset that count; of another one than that of the experiment all."""
    observables: ObservableOptions = ObservableOptions()
    pion: PionOptions | None = None
    """The pion beside them; null for none."""
    fractions: list[Fraction] = [1.0, 0.5, 0.25, 0.125, 0.0625]
    """Parts of the flow's step of the parameter at which epsilon-reweighting is tried; its limit
    of no step at all is always there."""
    independent: bool = True
    """Whether a second ensemble is made as the dataset was, at the other end of the step, if the
    dataset was made by a Markov chain."""
    resamples: Annotated[int, Field(ge=50)] = 500
    """Of the bootstrap that all errors are from, all of the same configurations."""
    batch_size: Count = 64
    """Configurations that a rank maps, or measures of a second ensemble, at a time."""

    @model_validator(mode="after")
    def _check_splits(self) -> Self:
        if self.ensemble is not None and "splits" in self.model_fields_set:
            raise ValueError(
                "splits: of the dataset of the experiment, but `ensemble` names another one, whose "
                "configurations all count; remove one of the two"
            )
        return self


class GaugeInferOptions(Section):
    """Use of the trained flow."""

    samples: SampleOptions | None = None
    """Configurations to be written; null for none."""
    derivatives: DerivativeOptions | None = None
    """Derivatives of observables; null for none."""

    @property
    def datasets(self) -> list[str]:
        """Datasets that the stage reads beside that of the experiment."""
        named = None if self.derivatives is None else self.derivatives.ensemble
        return [] if named is None else [named]
