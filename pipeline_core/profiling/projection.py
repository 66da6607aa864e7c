"""Projection of epochs to more ranks than there are, simulated step by step.

The time of a rank follows from the fitted cost model and from the samples that the trainer's own
sampler gives it; a step ends when the slowest rank is done and the gradients have been all-reduced.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_core.config.profile import Projection, SizeClass
from pipeline_core.config.sections import PartitionOptions, Strategy
from pipeline_core.task import Sizes, Task
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_core.training.balance.sampler import Sampler
from pipeline_kernels.packing import Plan

_COUNT_BYTES: Final = 8
_DRAW: Final = 3_072
"""Stream of the generator of sizes; the generator of the order of samples has the same seed."""


@dataclass(frozen=True)
class Epoch:
    """A projected epoch; all times in s.

    Attributes:
        steps: Optimizer steps.
        seconds: Whole epoch, the sum of the three others.
        compute: Mean over ranks.
        communication: Adding gradients.
        idle: Waiting for the slowest rank of each step, mean over ranks.
    """

    steps: int
    seconds: float
    compute: float
    communication: float
    idle: float


def project_epochs(
    task: Task,
    sizes: Sizes,
    options: Projection,
    partition: PartitionOptions,
    batch_by: Literal["count", "cost"],
    model: CostModel,
    predict_adding: Callable[[int], float],
    seed: int,
) -> list[dict[str, Any]]:
    """Simulate an epoch for each number of ranks and each strategy.

    Steps have `atoms_per_rank` atoms per rank on average, or in the mode strong `batch_size`
    samples, and each rank computes its share as one batch. Algorithm 1 of MACE's paper (mace_bins)
    shares samples by their atoms, as there; the other strategies by costs.

    Args:
        task: Gives the costs that strategies share.
        sizes: Sizes of the training samples.
        options: Samples, ranks, strategies.
        partition: Gives the kind of costs, given or fitted, and the capacity.
        batch_by: As `train.batch_by`.
        model: Cost model of a rank's computing.
        predict_adding: Returns the time of the all-reduces of a step on a number of ranks, s.
        seed: Seed of drawn sizes and of the order of samples.

    Returns:
        Records with mode, strategy, ranks, samples, the attributes of `Epoch`, and the entries of
        `_describe_plan`.

    Raises:
        ValueError: A strategy lacks its capacity.
    """
    if "capped" in options.strategies and partition.capacity is None:
        raise ValueError(
            "profile.projection.strategies: 'capped' needs partition.capacity; set it, or "
            "leave the strategy out"
        )
    drawn = draw_sizes(sizes, options.sizes, options.samples, seed)
    epochs = [("strong", ranks, drawn) for ranks in options.strong]
    for ranks, n_samples in options.weak:
        epochs.append(("weak", ranks, draw_sizes(sizes, options.sizes, n_samples, seed)))
    records = []
    for mode, ranks, samples in epochs:
        fitted = partition.cost == "fitted"
        costs = model.predict_seconds(samples) if fitted else task.cost(samples)
        batch_size = options.batch_size if mode == "strong" else None
        batch_size = batch_size or choose_batch_size(samples, options.atoms_per_rank, ranks)
        for strategy in options.strategies:
            sampler = Sampler(
                costs=_choose_costs(strategy, costs, samples),
                batch_size=batch_size,
                batch_by=batch_by,
                capacity=np.inf if partition.capacity is None else partition.capacity,
                seed=seed,
                strategy=strategy,
            )
            begin = time.perf_counter()
            plan = sampler.plan_epoch(0, ranks)
            shared = time.perf_counter() - begin
            facts = {"mode": mode, "strategy": strategy, "ranks": ranks, "plan_seconds": shared}
            facts |= {"samples": len(samples["atom"]), **_describe_plan(plan, samples)}
            epoch = simulate(predict_busy(plan, samples, model), predict_adding(ranks))
            records.append({**facts, **asdict(epoch)})
    return records


def _choose_costs(strategy: Strategy, costs: ArrayLike, sizes: Sizes) -> NDArray[np.float64]:
    """Return the costs for a strategy: the bins of MACE's paper count atoms."""
    return np.asarray(sizes["atom"] if strategy == "mace_bins" else costs, dtype=np.float64)


def _describe_plan(plan: Plan, sizes: Sizes) -> dict[str, float]:
    """Return the fewest and the most samples of a share, and the most atoms.

    The last step, which may hold what is left, counts only if it is the only one.
    """
    n_steps = max(1, len(plan) - 1)
    counts = np.diff(plan.starts)[: n_steps * plan.n_ranks]
    return {
        "least_samples": int(counts.min()),
        "most_samples": int(counts.max()),
        "most_atoms": float(plan.sum_loads(sizes["atom"])[:n_steps].max()),
    }


def predict_busy(plan: Plan, sizes: Sizes, model: CostModel) -> NDArray[np.float64]:
    """Return the computing time of each rank in each step, s, (n_steps, n_ranks).

    Args:
        plan: Samples of each rank and step.
        sizes: Sizes of all samples.
        model: Cost model of a rank's computing.
    """
    return np.asarray(model.constant + plan.sum_loads(model.predict_seconds(sizes)))


def simulate(
    busy: NDArray[np.float64], adding: float = 0.0, nodes: int = 1, at_once: int | None = None
) -> Epoch:
    """Return the times that ranks compute, communicate and wait.

    Args:
        busy: Computing time of each rank in each step, s, (n_steps, n_ranks).
        adding: Time of the all-reduces of a step, s.
        nodes: Number of machines, with equal numbers of ranks.
        at_once: Ranks of a machine that compute at the same time; None for all.
    """
    slowest, n_steps = busy.max(1), len(busy)
    if at_once is not None:
        # A rank that waits leaves its cores to others: no machine is idle while one has work.
        machines = np.array_split(busy, nodes, axis=1)
        work = np.stack([ranks.sum(1) for ranks in machines], axis=1)  # (n_steps, n_nodes)
        slowest = np.maximum(slowest, work.max(1) / at_once)
    return Epoch(
        steps=n_steps,
        seconds=float(slowest.sum()) + n_steps * adding,
        compute=float(busy.mean(1).sum()),
        communication=n_steps * adding,
        idle=float((slowest - busy.mean(1)).sum()),
    )


def count_gradient_bytes(task: Task) -> int:
    """Return the size of the gradients that ranks all-reduce after each backward pass."""
    trained = [p for p in task.module.parameters() if p.requires_grad]
    return sum(p.numel() * p.element_size() for p in trained)


def list_reduced_bytes(task: Task) -> list[int]:
    """Return the sizes of the all-reduces of a step: gradients, counts of terms of the loss."""
    return [count_gradient_bytes(task), _COUNT_BYTES * len(task.objective.weights)]


def choose_batch_size(sizes: Sizes, atoms_per_rank: float, n_ranks: int) -> int:
    """Return the number of samples whose atoms give each rank `atoms_per_rank` on average."""
    return max(1, round(atoms_per_rank * n_ranks / float(sizes["atom"].mean())))


def draw_sizes(
    stored: Sizes, classes: Sequence[SizeClass], n_samples: int | None, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Return the sizes of the samples of an epoch.

    If a class gives the edges per atom, its rows of further kinds per atom are those of the
    training samples on average.

    Args:
        stored: Sizes of the training samples.
        classes: Classes of samples; if empty, the training samples, each once.
        n_samples: Number of samples to draw, each at most once if there are enough; None for all.
        seed: Seed of the draws.

    Returns:
        kind -> (n_samples,).
    """
    generator = np.random.default_rng([seed, _DRAW])
    parts = [_draw_class(stored, one, generator) for one in classes] or [stored]
    sizes = {kind: np.concatenate([np.asarray(p[kind]) for p in parts]) for kind in stored}
    if n_samples is None:
        return sizes
    total = len(sizes["atom"])
    chosen = generator.choice(total, n_samples, replace=n_samples > total)
    return {kind: rows[chosen] for kind, rows in sizes.items()}


def describe_set(
    stored: Sizes, classes: Sequence[SizeClass], seed: int
) -> dict[str, dict[str, float]]:
    """Return the composition of the drawn samples.

    Args:
        stored: As in `draw_sizes`.
        classes: As in `draw_sizes`; classes of one name are taken together.
        seed: As in `draw_sizes`.

    Returns:
        Name -> samples; share, the fraction of all; least and most, numbers of atoms.
    """
    generator = np.random.default_rng([seed, _DRAW])
    by_name: dict[str, list[NDArray[np.int64]]] = {}
    for one in classes:
        by_name.setdefault(one.name, []).append(_draw_class(stored, one, generator)["atom"])
    atoms = {name: np.concatenate(parts) for name, parts in by_name.items()}
    total = sum(map(len, atoms.values()))
    return {
        name: {
            "samples": len(some),
            "share": len(some) / total,
            "least": int(some.min()),
            "most": int(some.max()),
        }
        for name, some in atoms.items()
    }


def _draw_class(stored: Sizes, one: SizeClass, generator: np.random.Generator) -> Sizes:
    if one.edges_per_atom is None:
        chosen = generator.integers(len(stored["atom"]), size=one.samples)
        return {kind: rows[chosen] for kind, rows in stored.items()}
    atoms = generator.integers(one.atoms[0], one.atoms[1], size=one.samples, endpoint=True)
    per_atom = {kind: rows.sum() / stored["atom"].sum() for kind, rows in stored.items()}
    per_atom |= {"atom": 1.0, "edge": one.edges_per_atom}
    drawn = {kind: np.rint(per_atom[kind] * atoms).astype(np.int64) for kind in stored}
    return drawn | ({"sample": np.ones(one.samples, np.int64)} if "sample" in stored else {})
