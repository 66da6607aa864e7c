"""The sections of an experiment with HT-FBR."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from pipeline_core.config.limits import limit_power
from pipeline_core.config.sections import (
    Count,
    EvaluateOptions,
    NotNegative,
    Positive,
    Section,
    TrainOptions,
)

REMOVED: Final[dict[str, Any]] = {
    "train.solver.dense_parameters": 5000,
    "train.solver.max_seconds": None,
    "evaluate.energy_windows": [5000.0, 10_000.0, 20_000.0, 40_000.0],
}
"""Options of earlier versions that are gone, see `ModelInfo.removed`."""

Degree = Annotated[Count, limit_power(2, 8, "tables of {} functions at as many points")]
Rank = Annotated[Count, limit_power(3, 8, "weights of a node of rank {}")]
LeafRank = Annotated[Count, limit_power(2, 8, "weights of a node over leaves of rank {}")]
Basis = Literal["chebyshev", "legendre", "cosine", "fourier"]


class HTOptions(Section):
    """Ranks of the tree, and distribution of its random weights."""

    rank: Rank | list[Rank] | Literal["adaptive"] = 10
    """Functions that each interior node but the root passes on.

    One number for all, one per node (children before parents), or chosen by the solver on the
    validation split.
    """
    leaf_rank: LeafRank | list[LeafRank] | None = None
    """Functions that each leaf passes on: trained combinations of its basis; null for the basis
    itself, as good as a rank equal to its number of functions."""
    init: Literal["graded", "random"] = "graded"
    """Random weights: near the products of lowest degree, or Gaussian of unit output variance."""


class HTGraphOptions(Section):
    """The dimension tree, and the functions at its leaves."""

    tree: list[Any] | None = None
    """Nested pairs of coordinate numbers, such as [[[0, 1], 2], [3, 4]]; null for the balanced
    tree, larger halves to the left."""
    basis: Basis | list[Basis] | Literal["auto"] = "auto"
    """Family for all coordinates or one each; auto: fourier where there is a period, else
    chebyshev."""
    degree: Degree | list[Degree] = 9
    """Largest degree for all coordinates or one each; the solver may choose lower ones."""
    margin: NotNegative = 0.0
    """Fraction of its range by which the domain of an undeclared coordinate exceeds its points."""


class SolverOptions(Section):
    """Ridge start, hierarchical SVD and Gauss-Newton polish, tuned on the validation points."""

    max_terms: Count = 6000
    """Largest number of polynomial terms of the ridge start."""
    max_rank: Rank = 24
    """Adaptive ranks: largest rank of a node."""
    iterations: Annotated[int, Field(ge=0)] = 12
    """Most Gauss-Newton iterations of the polish."""


class HTTrainOptions(TrainOptions):
    """Method and hyperparameters of the fit.

    | method     | what                                                                         |
    |------------|------------------------------------------------------------------------------|
    | solver     | ridge start, hierarchical SVD, Gauss-Newton; on processors, in float64       |
    | resident   | gradient steps over data that stay in memory, fused analytic gradient        |
    | trainer    | the engine's shared trainer, with the loss terms of `loss`                   |
    """

    method: Literal["solver", "resident", "trainer"] = "solver"
    batch_size: Count | Literal["all"] = "all"
    solver: SolverOptions = SolverOptions()
    gradient_weight: NotNegative = 0.0
    """Solver and resident: weight of the squared error of gradients against energies, both means
    over the points: the solver sums over coordinates, resident takes their mean.

    Energies are in units of their spread, gradients in units of the spread over half the domain
    of a coordinate. Requires points with gradients."""
    record_every: Count = 100
    """Resident: epochs between two validations, records and checkpoints, at which `patience` is
    checked too."""

    @property
    def uses_shared_trainer(self) -> bool:
        """As `TrainOptions.uses_shared_trainer`."""
        return self.method == "trainer"


class HTEvaluateOptions(EvaluateOptions):
    """Comparison of the fitted surface with its points and with an exact surface."""

    splits: list[Literal["train", "val", "test"]] = ["train", "val", "test"]
    grid: bool = True
    """Compare with an exact surface on its whole grid."""
    off_grid_points: Annotated[int, Field(ge=0)] = 20_000
    """Number of uniform random points at which an exact surface is compared."""


class HTInferOptions(Section):
    """Use of the fitted surface."""

    cuts: list[list[str]] = []
    """Coordinates along which the surface is cut through its minimum: one name or a pair per cut;
    empty for every single coordinate."""
    cut_points: Annotated[int, Field(ge=2)] = 61
    """Points along each coordinate of a cut."""
    stationary_points: bool = True
    """Search minima and saddle points, and compare them with those of an exact surface."""
    export: bool = True
    """Export the surface as a sum of products."""
    export_tolerance: Positive = 1e-8
    """Bound on the total error of the dropped products, hartree."""
    max_terms: Count = 2_000_000
    """Most products that are exported; if the tolerance needs more, only
    the hierarchical form is."""
