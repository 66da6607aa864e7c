"""Dataset files of lattice gauge theories: lattice, action, and source of configurations.

| in the dataset file         | configurations                                              |
|-----------------------------|-------------------------------------------------------------|
| `generate`                  | from Markov chains                                          |
| `sources`                   | from files                                                  |
| neither                     | none: a flow is trained on the action alone                 |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from pipeline_core.config.datasets import DatasetFile, Split
from pipeline_core.config.limits import require_memory
from pipeline_core.config.sections import Count, Positive, Section

NotNegativeInt = Annotated[int, Field(ge=0)]
Extent = Annotated[int, Field(ge=2)]
"""With one site a link would occur twice in a plaquette."""
Extents = Annotated[list[Extent], Field(min_length=2, max_length=4)]

RECTANGLES: Final = {"wilson": 0.0, "symanzik": -1 / 12, "iwasaki": -0.331}
"""Coefficient c1 of the 1x2 rectangles; plaquettes have c0 = 1 - 8 c1."""


def require_fermions(extents: Sequence[int], key: str = "action.fermions") -> None:
    """Check that a lattice supports quarks.

    Args:
        extents: Extents of the lattice.
        key: Option that requires quarks, for the message.

    Raises:
        ValueError: It has neither two nor four directions, or an odd extent.
    """
    if len(extents) not in (2, 4) or any(extent % 2 for extent in extents):
        raise ValueError(
            f"{key}: Wilson's operator is even-odd preconditioned in two and four "
            f"dimensions, but the lattice has extents {list(extents)}; make them even"
        )


class LatticeOptions(Section):
    """A periodic lattice of SU(N) links."""

    extents: Extents
    """Sites along each direction, time first."""
    n_colours: Literal[2, 3] = 3
    """N of SU(N)."""

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        n_links = len(self.extents) * math.prod(self.extents)
        require_memory(
            8.0 * n_links * self.n_colours**2, f"extents: {n_links:.3g} links", "lower them"
        )
        return self


class FermionOptions(Section):
    """A doublet of Wilson quarks, N_f = 2, with a twisted mass: -2 log |det M| of the action.

    M = 1 - kappa H + i two_kappa_mu gamma5 (`pipeline_kernels.dirac`), antiperiodic in time.
    """

    kappa: Positive
    """Hopping parameter."""
    two_kappa_mu: float = 0.0
    """Twisted mass, 2 kappa mu."""


class ActionOptions(Section):
    """S = -(beta/N) (c0 sum of Re tr plaquettes + c1 sum of Re tr rectangles) + anisotropy O.

    c1 is 0 (Wilson), -1/12 (tree-level Symanzik, Luescher and Weisz) or -0.331 (Iwasaki), and
    c0 = 1 - 8 c1. O is the operator of Eq. 16 of arXiv:2502.00263: in the Wilson action, plaquettes
    in time get the weight 1 + anisotropy and the others 1 - anisotropy. Quarks add
    their determinant.
    """

    name: Literal["wilson", "symanzik", "iwasaki"] = "wilson"
    beta: float
    anisotropy: float = 0.0
    """lambda of Eqs. 14 and 16."""
    fermions: FermionOptions | None = None
    """Dynamical quarks; null for none."""

    @property
    def c1(self) -> float:
        """Coefficient of the rectangles."""
        return RECTANGLES[self.name]

    @property
    def c0(self) -> float:
        """Coefficient of the plaquettes."""
        return 1 - 8 * self.c1


class MarkovChain(Section):
    """Options common to all Markov chains."""

    n_configurations: Count
    """Number of stored configurations of all chains together."""
    thermalisation: NotNegativeInt = 100
    """Updates of each chain before the first stored configuration."""
    separation: Count = 1
    """Updates between two stored configurations."""
    chains: Count = 1
    """Number of independent chains; each is a group."""
    start: Literal["hot", "cold"] = "hot"
    """Initial links: drawn from the Haar measure (hot), or all 1 (cold)."""
    seed: NotNegativeInt = 0

    @model_validator(mode="after")
    def _check_even_chains(self) -> MarkovChain:
        if self.n_configurations % self.chains:
            raise ValueError(
                f"n_configurations {self.n_configurations} cannot be divided evenly among "
                f"{self.chains} chains; make it a multiple"
            )
        return self


class HeatbathOptions(MarkovChain):
    """Heat bath of SU(2) subgroups (Cabibbo and Marinari), with overrelaxation; Wilson action.

    One update is a heat-bath sweep over all links, followed by `overrelaxation` sweeps.
    """

    method: Literal["heatbath"]
    overrelaxation: NotNegativeInt = 1
    """Microcanonical sweeps after each heat-bath sweep."""


class HmcOptions(MarkovChain):
    """Hybrid Monte Carlo with the second-order minimum-norm integrator of Omelyan et al.

    One update is one trajectory with its acceptance test. Quarks are pseudofermions: one for the
    determinant, or with `masses` one for the heaviest doublet's and one for each ratio of two
    neighbours down to the quarks of the action (Hasenbusch, Phys. Lett. B 519, 177 (2001)).
    """

    method: Literal["hmc"]
    n_steps: Count | list[Count] = 10
    """Integration steps of a trajectory; or one number for the gauge action and for each
    pseudofermion, the heaviest first, each with its own time scale: the steps of one in a half step
    of the next."""
    tau: Positive = 1.0
    """Length of a trajectory."""
    masses: list[Positive] = []
    """Twisted masses 2 kappa mu of the preconditioning doublets, the heaviest first."""

    def check_terms(self, action: ActionOptions) -> None:
        """Check that masses and time scales match an action.

        Raises:
            ValueError: They do not match.
        """
        if self.masses and action.fermions is None:
            raise ValueError(
                "generate.masses: the action has no quarks to be preconditioned; remove the key, "
                "or set action.fermions"
            )
        if action.fermions is not None:
            falling = [*self.masses, abs(action.fermions.two_kappa_mu)]
            if any(heavy <= light for heavy, light in pairwise(falling)):
                raise ValueError(
                    f"generate.masses {self.masses}: each has to be above the next, and the last "
                    f"above two_kappa_mu {falling[-1]:g} of the quarks; sort them"
                )
        n_terms = 1 if action.fermions is None else 2 + len(self.masses)
        if isinstance(self.n_steps, list) and len(self.n_steps) != n_terms:
            raise ValueError(
                f"generate.n_steps {self.n_steps}: this action has {n_terms} terms, of the gauge "
                "field and of pseudofermions; give a number for each, or one for all"
            )


Generate = Annotated[HeatbathOptions | HmcOptions, Field(discriminator="method")]


class FileSource(Section):
    """Configurations from files."""

    reader: Literal["ildg", "nersc"]
    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    group: Literal["file", "source"] = "source"
    """Group that a split may keep together: each file, or the whole source. In both cases the files
    of a source are one Markov chain in natural order of their names, lat.90 before lat.100.
    """


class EnsembleDataset(DatasetFile):
    """Lattice gauge theory, with its configurations if there are any."""

    lattice: LatticeOptions
    action: ActionOptions
    generate: Generate | None = None
    """Generation of configurations; null for none, or for `sources`."""
    sources: list[FileSource] = []
    """Files of configurations."""
    check_action: bool = True
    """Refuse files that contradict the action, by an identity that holds in every
    ensemble of it; switch it off for few or strongly correlated files."""
    split: Split = Split()

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the files."""
        return {f"sources.{i}.path": source.path for i, source in enumerate(self.sources)}

    @model_validator(mode="after")
    def _check_action(self) -> EnsembleDataset:
        if isinstance(self.generate, HeatbathOptions):
            if self.action.name != "wilson":
                raise ValueError(
                    f"generate.method 'heatbath' supports the Wilson action only, not "
                    f"{self.action.name!r}; choose method: hmc"
                )
            if self.action.fermions is not None:
                raise ValueError(
                    "generate.method 'heatbath' does not support quarks; choose method: hmc, or "
                    "remove action.fermions"
                )
        if isinstance(self.generate, HmcOptions):
            self.generate.check_terms(self.action)
        if self.action.fermions is not None:
            require_fermions(self.lattice.extents)
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> EnsembleDataset:
        if self.generate is not None and self.sources:
            raise ValueError(
                "generate and sources exclude each other: configurations are generated or read; "
                "remove one of them"
            )
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
