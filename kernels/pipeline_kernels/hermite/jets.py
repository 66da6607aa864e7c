"""Functions with their derivatives at the knots, the source of tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor


class Jet(NamedTuple):
    """Functions of one number, their first and their second derivatives, `(n, functions)` each."""

    values: Tensor
    slopes: Tensor
    curvatures: Tensor

    def apply(self, weight: Tensor) -> Jet:
        """Return the jet of the functions times `weight` (functions, others)."""
        return Jet(*(x @ weight for x in self))

    def tabulate(self, unit: float) -> Tensor:
        """Return the table of knots `unit` apart, `(3 n, functions)`."""
        return torch.stack([unit**order * x for order, x in enumerate(self)], 1).flatten(0, 1)


def expand_jet(function: Callable[[Tensor], Tensor], x: Tensor) -> Jet:
    """Return functions and two derivatives, by autograd.

    Args:
        function: takes numbers `(n,)` and returns `(n, functions)`, each row of its number alone.
        x: `(n,)`.
    """
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        values = function(x)
        slopes = _differentiate(values, x)
        curvatures = _differentiate(slopes, x)
    return Jet(values.detach(), slopes.detach(), curvatures.detach())


def _differentiate(columns: Tensor, x: Tensor) -> Tensor:
    """Return the derivatives of all columns at once.

    How a sum of them changes is linear in its factors, by which autograd differentiates it again.
    """
    factors = torch.zeros_like(columns, requires_grad=True)
    differentiate = partial(torch.autograd.grad, create_graph=True, materialize_grads=True)
    (change,) = differentiate(columns, x, factors)
    slopes: Tensor = differentiate(change.sum(), factors)[0]
    return slopes
