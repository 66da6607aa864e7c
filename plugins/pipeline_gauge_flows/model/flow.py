"""Flows: a sequence of invertible layers, with the log-determinant of the composition.

Activation memory and recomputation in the backward pass:

| memory    | stored for each layer           | recomputed |
|-----------|---------------------------------|------------|
| graph     | everything that autograd needs  | nothing    |
| recompute | the active links before it      | the layer  |

Of the inverse everything is stored, as no training differentiates it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.context import Context
from pipeline_gauge_flows.model.layer import Layer, Moved, project_tangent

Memory = Literal["graph", "recompute"]


class Flow(nn.Module):
    """Gauge-equivariant bijective map of links.

    Args:
        layers: Layers in the order in which they act.
        lattice: Lattice of the flow; `move_to` returns the same flow on another one.
        memory: Storage for the backward pass, see above.
    """

    def __init__(
        self, layers: Iterable[Layer], lattice: Lattice, memory: Memory = "recompute"
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.lattice, self.memory = lattice, memory

    def move_to(self, lattice: Lattice) -> Flow:
        """Return this flow, with the same weights, on another lattice.

        Raises:
            ValueError: The masks do not close there, or dimensions or colours differ.
        """
        if lattice == self.lattice:
            return self
        old, new = self.lattice, lattice
        if (old.dimension, old.n_colours) != (new.dimension, new.n_colours):
            raise ValueError(
                f"a flow of SU({old.n_colours}) in {old.dimension} dimensions cannot act on "
                f"SU({new.n_colours}) in {new.dimension}; train another one"
            )
        layers: list[Layer] = list(self.layers)  # type: ignore[arg-type]
        for update in {layer.update for layer in layers}:
            update.find_active(lattice)
        return Flow(layers, lattice, self.memory).train(self.training)

    def forward(self, links: Tensor) -> Moved:
        """Map links (batch, D, V, N, N).

        Returns:
            Links, and the log-determinant of the map with respect to the Haar measure, (batch,).
        """
        return self._map(links, inverse=False)

    def inverse(self, links: Tensor) -> Moved:
        """Map links by the inverse.

        Returns:
            Links, and the log-determinant of the inverse, (batch,).
        """
        return self._map(links, inverse=True)

    def map_with_score(
        self, links: Tensor, score: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Map links, and compute the score of the density after the map.

        The score is computed layer by layer along the way, so that nothing is stored for it.

        Args:
            links: (batch, D, V, N, N).
            score: Gradient of the log-density of `links`; None for zero, as for the Haar measure.

        Returns:
            Mapped links, differentiable by the weights; the log-determinant, (batch,), and the
            score, of the shape of `links`, both without derivatives.
        """
        score = torch.zeros_like(links) if score is None else score
        if self.memory != "graph" and torch.is_grad_enabled():
            mapped: tuple[Tensor, Tensor, Tensor] = _apply_checkpointed(self, links, score)
            return mapped
        log_det = _make_log_det(links)
        for layer, context in self.list_layers(links.device):
            links, more = layer(links, context)
            log_det = log_det + more.detach()
            score = layer.push_score(score, links, context)
        return links, log_det, project_tangent(score, links.detach())

    def _map(self, links: Tensor, *, inverse: bool) -> Moved:
        if self.memory != "graph" and torch.is_grad_enabled() and not inverse:
            moved, total, _ = _apply_checkpointed(self, links, None)
            return moved, total
        log_det = _make_log_det(links)
        if not torch.is_grad_enabled():
            links = links.clone(memory_format=torch.contiguous_format)
            for layer, context in self.list_layers(links.device, inverse):
                log_det += layer.overwrite(links, context, inverse)
            return links, log_det
        for layer, context in self.list_layers(links.device, inverse):
            links, more = layer(links, context, inverse)
            log_det = log_det + more
        return links, log_det

    def list_layers(
        self, device: torch.device, inverse: bool = False
    ) -> list[tuple[Layer, Context]]:
        """Return the layers in the order in which they act, with their tables on a device."""
        layers: list[Layer] = list(self.layers)  # type: ignore[arg-type]
        pairs = [(layer, layer.make_context(self.lattice, device)) for layer in layers]
        return pairs[::-1] if inverse else pairs


def _make_log_det(links: Tensor) -> Tensor:
    return torch.zeros(len(links), dtype=torch.float64, device=links.device)


def _apply_checkpointed(flow: Flow, links: Tensor, score: Tensor | None) -> Any:
    """Return links, log-determinant, and score if one is given."""
    return _Checkpointed.apply(flow, links, score, *flow.parameters())  # type: ignore[no-untyped-call]


class _Checkpointed(torch.autograd.Function):
    """All layers as one autograd function with activation checkpointing."""

    @staticmethod
    def forward(
        ctx: Any, flow: Flow, links: Tensor, score: Tensor | None, *_: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        kept, log_det = [], _make_log_det(links)
        links = links.clone(memory_format=torch.contiguous_format)
        for layer, context in flow.list_layers(links.device):
            kept.append(links.flatten(1, 2)[:, context.active])
            log_det += layer.overwrite(links, context)
            if score is not None:
                score = layer.push_score(score, links, context)
        if score is not None:
            score = project_tangent(score, links)
        ctx.flow, ctx.scored = flow, score is not None
        ctx.save_for_backward(links, *kept)
        if score is not None:
            ctx.mark_non_differentiable(log_det, score)
        return links, log_det, score

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_links: Tensor, by_log_det: Tensor, _: Tensor | None) -> Any:
        flow: Flow = ctx.flow
        links, *kept = ctx.saved_tensors
        gradients: dict[nn.Parameter, Tensor | None] = {}
        pairs = zip(flow.list_layers(links.device), kept, strict=True)
        for (layer, context), active in reversed(list(pairs)):
            links = links.flatten(1, 2).index_copy(1, context.active, active).view_as(links)
            weights = list(layer.parameters())
            with torch.enable_grad():
                leaf = links.detach().requires_grad_()
                outputs = layer(leaf, context)
            seeds = (by_links, torch.zeros_like(outputs[1]) if ctx.scored else by_log_det)
            by_links, *by_weights = torch.autograd.grad(
                outputs, [leaf, *weights], seeds, allow_unused=True
            )
            gradients.update(zip(weights, by_weights, strict=True))
        in_order = (gradients.get(p) for p in flow.parameters())
        return None, by_links, None, *in_order
