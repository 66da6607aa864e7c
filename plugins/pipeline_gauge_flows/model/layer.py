"""Layer of a flow: a map of active links, conditional on frozen links."""

import torch
from torch import Tensor, nn

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_gauge_flows.graph.context import Context, make_context
from pipeline_gauge_flows.graph.masks import Update

Moved = tuple[Tensor, Tensor]
"""Links, and the logarithm of the determinant of the map, float64."""


class Layer(nn.Module):
    """Gauge-equivariant, invertible map of links that leaves frozen links unchanged.

    Each active link moves independently, given the frozen links, so that the Jacobian is block
    triangular: unity on the frozen links, one block of the size of the algebra per active link.

    Weights depend on directions and colours, not on extents: a layer works on any lattice on which
    its pattern closes.

    Args:
        update: Update with the active links.
        rectangles: Rectangle paths are used besides plaquette paths.
    """

    def __init__(self, update: Update, *, rectangles: bool = False) -> None:
        super().__init__()
        self.update, self._rectangles = update, rectangles

    def make_context(self, lattice: Lattice, device: torch.device | None = None) -> Context:
        """Return the tables of the layer on a lattice and a device, by default the CPU."""
        return make_context(self.update, lattice, device, rectangles=self._rectangles)

    def forward(self, links: Tensor, context: Context, inverse: bool = False) -> Moved:
        """Map links, or map them by the inverse.

        Args:
            links: (batch, D, V, N, N).
            context: Tables of the layer, from `make_context`.
            inverse: Apply the inverse map.

        Returns:
            Links (batch, D, V, N, N) and log-determinant (batch,) of the applied map, with
            respect to the Haar measure.
        """
        flat = links.flatten(1, 2)
        moved, log_det = self.move(flat[:, context.active], links, context, inverse)
        return flat.index_copy(1, context.active, moved).view_as(links), log_det.sum(1)

    def overwrite(self, links: Tensor, context: Context, inverse: bool = False) -> Tensor:
        """Map links as `forward`, in place; return the log-determinant, (batch,).

        Args:
            links: (batch, D, V, N, N), contiguous; without gradients.
            context: Tables of the layer.
            inverse: Apply the inverse map.
        """
        flat = links.view(len(links), -1, *links.shape[-2:])
        with torch.no_grad():
            moved, log_det = self.move(flat[:, context.active], links, context, inverse)
            flat.index_copy_(1, context.active, moved)
        return log_det.sum(1)

    def move(self, active: Tensor, links: Tensor, context: Context, inverse: bool) -> Moved:
        """Map the active links.

        Args:
            active: (batch, n_active, N, N).
            links: All links, (batch, D, V, N, N); only the frozen ones may be used.
            context: Tables of the layer.
            inverse: Apply the inverse map.

        Returns:
            Links (batch, n_active, N, N), log-determinants (batch, n_active).
        """
        raise NotImplementedError

    def push_score(self, score: Tensor, moved: Tensor, context: Context) -> Tensor:
        """Return the score of the density after this layer from the score before it.

        The score is the gradient of the log-density by the links, in PyTorch's convention, up to
        its component normal to the group: see `project_tangent`. After x' = f(x) the density is
        log q(f^-1(x')) plus the log-determinant of f^-1; weights are constants.

        Args:
            score: Score before the layer, (batch, D, V, N, N).
            moved: Links after the layer.
            context: Tables of the layer.
        """
        weights = {name: p.detach() for name, p in self.named_parameters()}
        with torch.enable_grad():
            leaf = moved.detach().requires_grad_()
            before, log_det = torch.func.functional_call(
                self, weights, (leaf, context), {"inverse": True}
            )
            outputs, seeds = (before, log_det), (score, torch.ones_like(log_det))
            (gradient,) = torch.autograd.grad(outputs, leaf, seeds)
        return gradient


def project_tangent(gradient: Tensor, links: Tensor) -> Tensor:
    """Return the component of a gradient tangent to the group, at links of shape (..., N, N)."""
    return project_to_algebra(gradient @ links.mH) @ links
