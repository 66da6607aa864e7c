"""Fitted surface as a torch module, and the task that trains and evaluates it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_core.batch import Batch
from pipeline_core.project.run import Run
from pipeline_core.task import Outputs, Quantity, Sizes, Task
from pipeline_core.training.objective import LabelObjective
from pipeline_htfbr.data.points import Points, make_gradient_field, read_points
from pipeline_htfbr.graph.basis import Leaf, compute_features
from pipeline_htfbr.graph.build import TreeStructure, read_structure
from pipeline_htfbr.graph.dimension_tree import list_interior, make_nodes
from pipeline_htfbr.options import HTOptions, HTTrainOptions
from pipeline_kernels.tree import TreeShape, contract


class Surface(nn.Module):
    """Energy in hierarchical Tucker form, V(x) = shift + scale f(x).

    Args:
        leaves: Functions of each coordinate.
        shape: The tree; its leaf ranks are the numbers of functions, or the ranks of `maps`.
        gradients: `forward` also returns the gradient.

    Attributes:
        transfers: Transfer tensors of all nodes, (n_transfers,).
        maps: For each leaf the combinations of its functions that it passes on, (count, rank);
            empty if it passes on the functions themselves.
        shift: Energy that is subtracted before the fit, eV.
        scale: Unit of f, eV.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, leaves: Sequence[Leaf], shape: TreeShape, *, gradients: bool) -> None:
        super().__init__()
        self.leaves, self.shape, self.gradients = tuple(leaves), shape, gradients
        self.transfers = nn.Parameter(torch.zeros(shape.n_transfers))
        counts = tuple(leaf.count for leaf in leaves)
        maps = [] if counts == shape.leaf_ranks else zip(counts, shape.leaf_ranks, strict=True)
        self.maps = nn.ParameterList(torch.eye(count, rank) for count, rank in maps)
        self.register_buffer("shift", torch.zeros((), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Total energies are thousands of eV and meV matter: these stay in float64.
        exact = self.shift, self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.shift, self.scale = (one.to(self.shift.device) for one in exact)
        return self

    def forward(self, batch: Batch) -> Outputs:
        """Predict the energy of each point, (n,) eV, and its gradient, (n, d), if required."""
        if not self.gradients:
            return {"energy": self.energies(batch["x"])}
        recording = torch.is_grad_enabled()
        with torch.enable_grad():
            x = batch["x"].detach().requires_grad_()
            energy = self.energies(x)
            (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=recording)
        return {"energy": energy if recording else energy.detach(), "gradient": gradient}

    def energies(self, x: Tensor) -> Tensor:
        """Return the energy at points (n, d), (n,) eV in float64; differentiable by x."""
        return (
            self.shift + self.scale * self.evaluate_table(compute_features(self.leaves, x)).double()
        )

    def evaluate_table(self, table: Tensor) -> Tensor:
        """Return f for tabulated functions (n_functions, n), (n,) in the dtype of the weights."""
        rows = table.to(self.transfers.dtype)
        if len(self.maps):
            parts = rows.split([leaf.count for leaf in self.leaves])
            rows = torch.cat([m.T @ part for m, part in zip(self.maps, parts, strict=True)])
        return contract(rows, self.transfers, self.shape)


class PointSamples:
    """The points of one split."""

    def __init__(self, points: Points, split: str, *, gradients: bool) -> None:
        rows = points.find_rows(split)
        self._columns = {"x": points.x[rows], "energy": points.energy[rows]}
        if gradients and points.gradient is not None:
            self._columns["gradient"] = points.gradient[rows]

    def __len__(self) -> int:
        return len(self._columns["x"])

    def sizes(self) -> Sizes:
        """Count every point as one."""
        return {"sample": np.ones(len(self), dtype=np.int64)}

    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate points into one batch."""
        rows = np.asarray(indices, dtype=np.int64)
        return {name: torch.from_numpy(column[rows]) for name, column in self._columns.items()}


def make_task(run: Run) -> Task:
    """Build the surface of a run, with random weights.

    Raises:
        ValueError: Ranks do not fit the tree, or there are no gradients to fit.
    """
    options, train = run.get_section("model", HTOptions), run.get_section("train", HTTrainOptions)
    points = read_points(run.data) if run.dataset else None
    if run.metadata is None:
        gradients = is_trained_on_gradients(train)
        if gradients and points is not None and points.gradient is None:
            raise ValueError(
                f"{run.experiment}: gradients are to be fitted, but {run.data} has none; import "
                "them, or remove train.gradient_weight and train.loss.gradient"
            )
        structure = read_structure(run)
        shape = make_shape(structure, options)
    else:
        gradients = run.metadata["gradients"]
        structure = TreeStructure.from_dict(run.metadata["structure"])
        ranks, leaf_ranks = run.metadata["ranks"], run.metadata["leaf_ranks"]
        shape = TreeShape(tuple(leaf_ranks), make_nodes(structure.nesting, ranks))
    module = Surface(structure.leaves, shape, gradients=gradients)
    d = len(structure.leaves)
    quantities = [Quantity("energy")]
    if gradients:
        quantities.append(Quantity("gradient", own_field=make_gradient_field(d)))
    if points is not None and run.metadata is None:
        energies = torch.from_numpy(points.energy[points.find_rows("train")])
        draw_weights(module, options.init)
        standardize(module, energies)
    return Task(
        module=module,
        objective=LabelObjective(train.loss, quantities),
        samples=_make_sampler(points, gradients=gradients),
        quantities=tuple(quantities),
        metadata=run.metadata or make_metadata(run, structure, module, points),
    )


def is_trained_on_gradients(options: HTTrainOptions) -> bool:
    """Return True if gradients take part in the training."""
    if options.method == "trainer":
        return "gradient" in options.loss
    return options.gradient_weight > 0


def make_metadata(
    run: Run, structure: TreeStructure, module: Surface, points: Points | None
) -> dict[str, Any]:
    """Return the metadata from which a surface is rebuilt without its data."""
    molecule = points.molecule.to_dict() if points and points.molecule else None
    return {
        "options": run.options.model_dump(mode="json"),
        "graph": run.sections["graph"].model_dump(mode="json"),
        "structure": structure.to_dict(),
        "ranks": [node.rank for node in module.shape.nodes],
        "leaf_ranks": list(module.shape.leaf_ranks),
        "gradients": module.gradients,
        "molecule": molecule,
        "surface": points.surface if points else "",
    }


def replace_shape(
    content: Mapping[str, Any], structure: TreeStructure, shape: TreeShape
) -> dict[str, Any]:
    """Return metadata with the leaves and ranks chosen by a solver."""
    ranks = [node.rank for node in shape.nodes]
    chosen = {"structure": structure.to_dict(), "ranks": ranks}
    return {**content, **chosen, "leaf_ranks": list(shape.leaf_ranks)}


def make_shape(structure: TreeStructure, options: HTOptions) -> TreeShape:
    """Return the tree with the ranks of the experiment; adaptive ranks begin with 1.

    Raises:
        ValueError: A list of ranks has the wrong length, or a leaf's rank exceeds its functions.
    """
    n_interior = len(list_interior(structure.nesting))
    counts = [leaf.count for leaf in structure.leaves]
    rank = 1 if options.rank == "adaptive" else options.rank
    ranks = rank if isinstance(rank, list) else [rank] * (n_interior - 1)
    if len(ranks) != n_interior - 1:
        raise ValueError(
            f"model.rank: {len(ranks)} values for {n_interior - 1} interior nodes below the root; "
            "give one for each, or one for all"
        )
    wanted = options.leaf_rank
    leaf_ranks = wanted if isinstance(wanted, list) else [wanted or n for n in counts]
    if len(leaf_ranks) != len(counts) or any(
        r > n for r, n in zip(leaf_ranks, counts, strict=False)
    ):
        raise ValueError(
            f"model.leaf_rank: {leaf_ranks} for leaves of {counts} functions; give one rank per "
            "coordinate, none above its number of functions"
        )
    return TreeShape(tuple(leaf_ranks), make_nodes(structure.nesting, [*ranks, 1]))


def draw_weights(module: Surface, init: str) -> None:
    """Draw the transfer tensors from torch's global generator.

    Graded: function k of a node is the product of its children's functions that is k-th in order of
    the sum of their indices, plus noise of 0.1; so a random tree already spans the polynomials of
    lowest degree. Random: Gaussian, such that a node's functions have the variance of its
    children's products.
    """
    with torch.no_grad():
        for B in module.shape.split_transfers(module.transfers):
            left, right, rank = B.shape
            B.normal_(std=(left * right) ** -0.5 * (0.1 if init == "graded" else 1.0))
            if init == "graded":
                order = (
                    (torch.arange(left)[:, None] + torch.arange(right))
                    .flatten()
                    .argsort(stable=True)
                )
                for k in range(min(rank, left * right)):
                    i, j = divmod(int(order[k]), right)
                    B[i, j, k] += 1.0


def standardize(module: Surface, energies: Tensor) -> None:
    """Set shift and scale such that f has mean 0 and spread 1 over the training points."""
    module.shift.copy_(energies.mean())
    module.scale.copy_(energies.std().clamp(min=1e-12))


def _make_sampler(points: Points | None, *, gradients: bool) -> Any:
    def make_samples(split: str) -> PointSamples:
        if points is None:
            raise ValueError("the surface was loaded without its data, so it has no samples")
        return PointSamples(points, split, gradients=gradients)

    return make_samples
