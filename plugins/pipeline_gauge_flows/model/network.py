"""Flow as a trainable module: maps batches of configurations."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from pipeline_core.batch import Batch
from pipeline_core.task import Outputs
from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.layout import FlowLayout
from pipeline_gauge_flows.model.flow import Flow, Memory
from pipeline_gauge_flows.model.layer import Layer
from pipeline_gauge_flows.model.pseudofermion_flow import PseudofermionFlow
from pipeline_gauge_flows.model.pseudofermion_shots import (
    make_operators,
    weigh_by_path,
    weigh_shots,
)
from pipeline_gauge_flows.model.residual import ResidualLayer
from pipeline_gauge_flows.model.spectral import SpectralLayer
from pipeline_gauge_flows.options import ResidualOptions, SpectralOptions

_KINDS: Final[dict[str, Callable[..., Layer]]] = {
    "spectral": SpectralLayer,
    "residual": ResidualLayer,
}


def build_flow(
    options: SpectralOptions | ResidualOptions, structure: FlowLayout, memory: Memory = "recompute"
) -> Flow:
    """Return an untrained flow, with weights from torch's global generator.

    Args:
        options: Options of its layers.
        structure: Lattice and updates.
        memory: Activation memory of the backward pass, see `flow`.
    """
    lattice, kind = structure.lattice, _KINDS[options.kind]
    layers = [
        kind(update, options, lattice.dimension, lattice.n_colours) for update in structure.updates
    ]
    return Flow(layers, lattice, memory)


class GaugeModule(nn.Module):
    """Flow that takes the lattice from its batch.

    | batch          |                                                                           |
    |----------------|---------------------------------------------------------------------------|
    | `base_links`   | links (batch, D, V, N, N) to be mapped                                    |
    | `extents`      | of their lattice, (batch, D), all rows equal                              |

    | output    |                                                                                |
    |-----------|--------------------------------------------------------------------------------|
    | `links`   | mapped links                                                                   |
    | `log_det` | log-determinant of the applied map, (batch,) float64                           |

    Args:
        flow: The flow.
        base: Action of the distribution that it starts from; None for the Haar measure.
        by_path: Give `log_det` derivatives such that `-log_det` estimates the gradient of the
            flow's log-density by path gradients: through the links alone, not through the
            weights (Vaitl et al., arXiv:2207.08219). Its value is the same.
    """

    replaceable: ClassVar[Mapping[str, tuple[str, ...]]] = {"pseudofermions": ()}
    """A flow of gluons may be continued as one with quarks; see `Potential.replaceable`."""

    def __init__(
        self, flow: Flow, base: EffectiveAction | None = None, by_path: bool = False
    ) -> None:
        super().__init__()
        self.flow = flow
        self._base, self._by_path = base, by_path

    def forward(self, batch: Batch) -> Outputs:
        """Map a batch."""
        flow = self.flow.move_to(Lattice(tuple(batch["extents"][0].tolist()), self._n_colours))
        if "target_links" in batch:  # the probe of a flow that learned from an ensemble, formerly
            links, log_det = flow.inverse(batch["target_links"])
        elif self._by_path and torch.is_grad_enabled():
            links, log_det = self._map_by_path(flow, batch["base_links"])
        else:
            links, log_det = flow(batch["base_links"])
        return {"links": links, "log_det": log_det}

    @property
    def _n_colours(self) -> int:
        return self.flow.lattice.n_colours

    def _map_by_path(self, flow: Flow, base: Tensor) -> tuple[Tensor, Tensor]:
        links, log_det, score = flow.map_with_score(base, self._compute_score(base))
        along = (score.conj() * links).real.sum((1, 2, 3, 4), dtype=torch.float64)
        return links, log_det - (along - along.detach())

    def _compute_score(self, base: Tensor) -> Tensor | None:
        if self._base is None:
            return None
        leaf = base.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(-self._base(leaf).sum(), leaf)
        return gradient


class ConditionalModule(GaugeModule):
    """Flow of links, and flow of pseudofermions conditional on the links before and after.

    A batch with `noise`, chi of shape (batch, shots, V / 2, S, N), has a further output:
    `log_weight`, (batch, shots), the logarithm of each shot's estimate of the ratio of
    determinants. Its derivatives are path gradients by the weights of the flow of pseudofermions.

    Args:
        flow: Flow of links.
        pseudofermions: Flow of pseudofermions.
        quarks: Quarks of the actions before and after the flow.
        base: Action of the distribution that the flow of links starts from.
        by_path: See `GaugeModule`.
    """

    def __init__(
        self,
        flow: Flow,
        pseudofermions: PseudofermionFlow,
        quarks: tuple[FermionOptions, FermionOptions],
        base: EffectiveAction | None,
        by_path: bool,
    ) -> None:
        super().__init__(flow, base, by_path)
        self.pseudofermions, self.quarks = pseudofermions, quarks

    def forward(self, batch: Batch) -> Outputs:
        """Map a batch."""
        if "noise" not in batch:
            return super().forward(batch)
        with torch.no_grad():
            outputs = super().forward(batch)
        lattice = Lattice(tuple(batch["extents"][0].tolist()), self._n_colours)
        operators = make_operators(batch["base_links"], outputs["links"], lattice, self.quarks)
        weigh = weigh_by_path if torch.is_grad_enabled() else weigh_shots
        log_weight = weigh(self.pseudofermions, batch["noise"], operators, lattice)
        return {**outputs, "log_weight": log_weight}
