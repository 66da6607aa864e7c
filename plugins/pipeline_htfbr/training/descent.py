"""Data-parallel gradient step over points, the same on any number of ranks.

The gradient of a mean over all points of a step is the sum over ranks of their shares' gradients,
each divided by the number of all points. So the weights are independent of the world size, up to
rounding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.training.gradients import FlatGradients
from pipeline_core.training.optimizers import LearningRate, make_optimizer
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTTrainOptions
from pipeline_htfbr.training.tabulated import (
    Forward,
    Table,
    compute_outputs,
    compute_residuals,
    make_owners,
)


class Descent:
    """Surface with optimizer and learning rate; a step does not synchronize with the device.

    Args:
        module: Surface on the device of `ranks`, with the same weights on all of them.
        forward: Function that computes f from the functions of the leaves.
        options: Options of the training.
        ranks: The ranks of the training.

    Attributes:
        rate: Learning-rate schedule; the caller steps it after each epoch.
        weights: Weight of each term of the loss.
    """

    def __init__(
        self, module: Surface, forward: Forward, options: HTTrainOptions, ranks: Ranks
    ) -> None:
        self._module, self._forward, self._ranks = module, forward, ranks
        self._clip_norm = options.clip_norm
        self._parameters = list(module.parameters())
        self._gradients = FlatGradients(self._parameters, ranks)
        self._optimizer = make_optimizer(options, self._parameters)
        self.rate = LearningRate(self._optimizer, options.schedule, options.epochs)
        self._owners = make_owners(module)
        self._zero = torch.zeros((), dtype=torch.float64, device=self._owners.device)
        self.weights = {"energy": 1.0}
        if options.gradient_weight > 0:
            self.weights["gradient"] = options.gradient_weight

    def step(self, n_points: int, batches: Sequence[Table], *, with_norm: bool = False) -> Tensor:
        """Take one optimizer step.

        Args:
            n_points: Number of points of the step over all ranks.
            batches: Micro-batches of this rank.
            with_norm: Compute the norm of the gradient.

        Returns:
            Norm of the gradient before clipping, a float64 scalar on the device; else zero.
        """
        self._gradients.zero()
        for table in batches:
            self._backward(table, n_points)
        self._gradients.all_reduce_sum()
        norm = self._zero
        if with_norm or self._clip_norm is not None:
            norm = self._gradients.compute_norm()
        if self._clip_norm is not None:
            self._gradients.clip(norm, self._clip_norm)
        self._optimizer.step()
        return norm

    def sum_errors(self, batches: Sequence[Table], unit: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Sum errors over points of all ranks.

        Args:
            batches: Points of this rank.
            unit: Factor of each term's residuals in the absolute errors.

        Returns:
            Sums of squares and sums of absolute errors of each term, (n_terms,) on the CPU.
        """
        totals = torch.zeros(2, len(self.weights), dtype=torch.float64, device=self._owners.device)
        with torch.no_grad():
            for table in batches:
                residuals = compute_residuals(
                    compute_outputs(self._forward, table, self._owners), table
                )
                for column, (residual, factor) in enumerate(zip(residuals, unit, strict=True)):
                    totals[0, column] += residual.double().square().sum()
                    totals[1, column] += (residual * factor).double().abs().sum()
        squares, absolute = self._ranks.all_reduce_sum(totals).cpu()
        return squares, absolute

    def is_finite(self) -> bool:
        """Return True if training can continue from a checkpoint of the current state.

        An overflowing gradient may leave the weights finite: Adam divides it by its own magnitude.
        """
        states = [x for s in self._optimizer.state.values() for x in s.values()]
        tensors = [x for x in (*self._parameters, *states) if isinstance(x, Tensor)]
        return bool(torch.stack([x.isfinite().all().cpu() for x in tensors]).all())

    def state_dict(self) -> dict[str, Any]:
        """Return the state with which `load_state_dict` continues bit-exactly."""
        return {
            "module": self._module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "rate": self.rate.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._module.load_state_dict(saved["module"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self.rate.load_state_dict(saved["rate"])

    def _backward(self, table: Table, n_points: int) -> None:
        """Add the gradient of sum over terms of weight * mean of squares."""
        outputs = compute_outputs(self._forward, table, self._owners)
        # By hand from the residuals: half the launches of autograd for the mean of squares.
        upstream = [
            residual.mul_(2 * weight * len(table) / (residual.numel() * n_points))
            for residual, weight in zip(
                compute_residuals(outputs, table), self.weights.values(), strict=True
            )
        ]
        torch.autograd.backward(outputs, upstream, inputs=self._parameters)
