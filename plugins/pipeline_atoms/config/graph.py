"""The section `graph`: neighbours of atoms."""

from typing import Literal, Self

from pydantic import model_validator

from pipeline_core.config.sections import Positive, Section


class GraphOptions(Section):
    """Neighbour graph and bond graph."""

    fixed = ("cutoff", "angle_cutoff")

    cutoff: Positive = 6.0
    """Cutoff: largest distance of neighbours, Å."""
    angle_cutoff: Positive | None = None
    """Edges shorter than this (Å) form angles; null for a model without angles."""
    isolated: Literal["refuse", "keep"] = "refuse"
    """Treatment of a structure in which no atom has a neighbour: it stops the stage, or is kept.

    Usually it indicates a wrong unit; keep it if cells are expanded so far on purpose.
    """

    @model_validator(mode="after")
    def _check_angles(self) -> Self:
        if self.angle_cutoff is not None and self.angle_cutoff > self.cutoff:
            raise ValueError(
                f"graph.angle_cutoff {self.angle_cutoff:g} is larger than graph.cutoff "
                f"{self.cutoff:g}; angles are made of edges: lower it"
            )
        return self
