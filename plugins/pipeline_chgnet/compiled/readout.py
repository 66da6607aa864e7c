"""Readout: energies of atoms from their features, forward and reverse."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from pipeline_atoms.potential.potential import select_head


class CompiledReadout(nn.Module):
    """Layer normalisation and perceptrons with SiLU, one a head.

    Args:
        norm: Layer normalisation; its gain and shift become part of the first maps.
        readouts: The perceptrons.
    """

    def __init__(self, norm: nn.LayerNorm, readouts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.epsilon = norm.eps
        self.heads = nn.ModuleList(
            _Perceptron(norm, cast("nn.Sequential", readout)) for readout in readouts
        )

    def forward(self, atoms: Tensor, head: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return energies (n_atoms,) from features (n_atoms, atom), and derivatives by these.

        Args:
            atoms: The features.
            head: Head of each atom, or None for the first.
        """
        shape = [atoms.shape[1]]
        normed, mean, scale = torch.native_layer_norm(atoms, shape, None, None, self.epsilon)
        heads = [*self.heads] if head is not None else [self.heads[0]]
        energies, by_normed = zip(*(one(normed) for one in heads), strict=True)
        by_chosen = by_normed[0]
        if head is not None:
            rows = torch.arange(len(head), device=head.device)
            by_chosen = torch.stack(by_normed)[head, rows]
        by_atoms, _, _ = torch.ops.aten.native_layer_norm_backward(
            by_chosen, atoms, shape, mean, scale, None, None, [True, False, False]
        )
        return select_head(torch.stack(energies, 1), head), by_atoms


class _Perceptron(nn.Module):
    """Linear maps with SiLU between them, from normalised features to one number."""

    def __init__(self, norm: nn.LayerNorm, readout: nn.Sequential) -> None:
        super().__init__()
        maps = [module for module in readout if isinstance(module, nn.Linear)]
        weights: list[Tensor] = [one.weight.T for one in maps]
        biases: list[Tensor] = [one.bias for one in maps]
        biases[:1] = [biases[0] + norm.bias @ weights[0]]
        weights[:1] = [norm.weight[:, None] * weights[0]]
        self.weights, self.biases = (
            nn.ParameterList(nn.Parameter(x.detach().contiguous()) for x in each)
            for each in (weights, biases)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers (n,) of features (n, width), and their derivatives by these."""
        weights, biases = [*self.weights], [*self.biases]
        inner = []
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inner.append(torch.addmm(bias, x, weight))
            x = nn.functional.silu(inner[-1])
        numbers = torch.addmm(biases[-1], x, weights[-1])[:, 0]
        g = weights[-1].T.expand(len(x), -1)
        for weight, z in zip(reversed(weights[:-1]), reversed(inner), strict=True):
            g = torch.ops.aten.silu_backward(g, z) @ weight.T
        return numbers, g
