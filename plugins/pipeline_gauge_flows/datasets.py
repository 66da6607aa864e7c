"""Dataset files of lattice gauge theories: a lattice, an action, and where configurations are from.

| in the dataset file         | configurations                                              |
|-----------------------------|-------------------------------------------------------------|
| `generate`                  | a Markov chain makes them                                   |
| `sources`                   | files hold them                                             |
| neither                     | none: the action alone is what a flow is trained on         |
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from pipeline_core.config.datasets import DatasetFile, Split
from pipeline_core.config.sections import Count, Positive, Section

Seed = Annotated[int, Field(ge=0)]
NotNegativeInt = Annotated[int, Field(ge=0)]
Extent = Annotated[int, Field(ge=2)]
"""With one site a link would meet itself in a plaquette."""

RECTANGLES: Final = {"wilson": 0.0, "symanzik": -1 / 12, "iwasaki": -0.331}
"""Coefficient c1 of the 1x2 rectangles; that of the plaquettes is c0 = 1 - 8 c1."""


class LatticeOptions(Section):
    """A periodic lattice of SU(N) links."""

    extents: Annotated[list[Extent], Field(min_length=2, max_length=4)]
    """Sites along each direction, time first."""
    n_colours: Literal[2, 3] = 3
    """N of SU(N)."""


class ActionOptions(Section):
    """S = -(beta/N) (c0 sum of Re tr plaquettes + c1 sum of Re tr rectangles) + anisotropy O.

    c1 is 0 (Wilson), -1/12 (tree-level Symanzik, Luescher and Weisz) or -0.331 (Iwasaki), and
    c0 = 1 - 8 c1. O is the operator of Eq. 16 of arXiv:2502.00263, with which the plaquettes in
    time weigh 1 + anisotropy and the others 1 - anisotropy under the Wilson action.
    """

    name: Literal["wilson", "symanzik", "iwasaki"] = "wilson"
    beta: float
    anisotropy: float = 0.0
    """lambda of Eqs. 14 and 16."""

    @property
    def c1(self) -> float:
        """Coefficient of the rectangles."""
        return RECTANGLES[self.name]

    @property
    def c0(self) -> float:
        """Coefficient of the plaquettes."""
        return 1 - 8 * self.c1


class MarkovChain(Section):
    """What all Markov chains have."""

    n_configurations: Count
    """Configurations that are kept, of all chains together."""
    thermalisation: NotNegativeInt = 100
    """Updates of each chain before the first is kept."""
    separation: Count = 1
    """Updates between two that are kept."""
    chains: Count = 1
    """Independent chains; each is a group of its own."""
    start: Literal["hot", "cold"] = "hot"
    """Links drawn from the Haar measure, or all 1."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_even_chains(self) -> MarkovChain:
        if self.n_configurations % self.chains:
            raise ValueError(
                f"n_configurations {self.n_configurations} cannot be shared evenly by "
                f"{self.chains} chains; make it a multiple"
            )
        return self


class HeatbathOptions(MarkovChain):
    """Heat bath of SU(2) subgroups (Cabibbo and Marinari), with overrelaxation; Wilson action.

    One update is a heat-bath sweep over all links and `overrelaxation` sweeps after it.
    """

    method: Literal["heatbath"]
    overrelaxation: NotNegativeInt = 1
    """Microcanonical sweeps after each heat-bath sweep."""


class HmcOptions(MarkovChain):
    """Hybrid Monte Carlo with the second-order minimum-norm integrator of Omelyan et al.

    One update is one trajectory with its acceptance test.
    """

    method: Literal["hmc"]
    n_steps: Count = 10
    """Integration steps of a trajectory."""
    tau: Positive = 1.0
    """Length of a trajectory."""


Generate = Annotated[HeatbathOptions | HmcOptions, Field(discriminator="method")]


class FileSource(Section):
    """Configurations from files."""

    reader: Literal["ildg", "nersc"]
    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    group: Literal["file", "source"] = "source"
    """What a group is that a split may keep together: each file, or all of this source. Either way
    the files of a source are one Markov chain in the order of their names, lat.90 before lat.100.
    """


class EnsembleDataset(DatasetFile):
    """A lattice gauge theory, and configurations of it if there are any."""

    lattice: LatticeOptions
    action: ActionOptions
    generate: Generate | None = None
    """How configurations are made; null for none, or for those of `sources`."""
    sources: list[FileSource] = []
    """Files of configurations."""
    check_action: bool = True
    """Whether files are refused that contradict the action, by an identity that holds in every
    ensemble of it; switch it off for few or strongly correlated files."""
    split: Split = Split()

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the files."""
        return {f"sources.{i}.path": source.path for i, source in enumerate(self.sources)}

    @model_validator(mode="after")
    def _check_one_origin(self) -> EnsembleDataset:
        if self.generate is not None and self.sources:
            raise ValueError(
                "generate and sources exclude each other: configurations are made or read; "
                "remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_update(self) -> EnsembleDataset:
        if isinstance(self.generate, HeatbathOptions) and self.action.name != "wilson":
            raise ValueError(
                f"generate.method 'heatbath' has the Wilson action only, not "
                f"{self.action.name!r}; choose method: hmc"
            )
        return self

    @model_validator(mode="after")
    def _check_readers(self) -> EnsembleDataset:
        dimension, n = len(self.lattice.extents), self.lattice.n_colours
        if self.sources and dimension != 4:
            raise ValueError(
                f"sources: ILDG and NERSC files hold four dimensions, not {dimension}; use "
                "generate, or correct the lattice"
            )
        if n != 3 and any(source.reader == "ildg" for source in self.sources):
            raise ValueError(
                f"sources: ILDG files hold SU(3), not SU({n}); use NERSC files or generate, or "
                "correct the lattice"
            )
        return self

    @model_validator(mode="after")
    def _check_split(self) -> EnsembleDataset:
        if self.split.method in ("composition", "energy"):
            raise ValueError(
                f"split.method {self.split.method!r}: configurations have neither compositions "
                "nor energies; choose random, group or list"
            )
        return self

    def describe_theory(self) -> dict[str, Any]:
        """Return lattice and action, JSON-able."""
        return {
            "lattice": self.lattice.model_dump(mode="json"),
            "action": self.action.model_dump(mode="json"),
        }
