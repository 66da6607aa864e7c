"""A plugin as a stranger writes it: message passing in two layers, not a word of ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.potential import Potential, compute_forces, compute_stress
from pipeline_atoms.potential.task import build_potential_task
from pipeline_core import hookimpl
from pipeline_core.batch import Batch
from pipeline_core.config.sections import Section
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.run import Run
from pipeline_core.task import Outputs, Task


class Options(Section):
    width: int = 6
    layers: int = 2
    direct: bool = False
    """Whether forces and stress come from features of pairs."""


class MessagePassing(Potential):
    """Atoms add up what they get along their edges; their energy is a map of the sum."""

    def __init__(self, options: Options, cutoff: float) -> None:
        super().__init__()
        self.receptive_field, self.cutoff = options.layers, cutoff
        self.elements = nn.Embedding(119, options.width)
        self.radial = nn.ModuleList(nn.Linear(4, options.width) for _ in range(options.layers))
        self.update = nn.ModuleList(
            nn.Linear(options.width, options.width) for _ in range(options.layers)
        )
        self.energy = nn.Linear(options.width, 1)
        if options.direct:
            self.direct = frozenset({"forces", "stress"})
            self.heads = nn.Linear(options.width, 1)

    def energies(self, batch: Batch, vectors: Tensor) -> Outputs:
        receiver, sender = batch["edge_index"].unbind(1)
        lengths = vectors.norm(dim=1, keepdim=True) / self.cutoff
        powers = (1 - lengths).clamp(min=0) ** 2 * lengths ** torch.arange(4)
        x = self.elements(batch["atomic_numbers"])
        for radial, update in zip(self.radial, self.update, strict=True):
            messages = radial(powers) * powers[:, :1] * x[sender]
            x = x + torch.tanh(update(torch.zeros_like(x).index_add(0, receiver, messages)))
        energy = x.new_zeros(len(batch["cell"]))
        outputs = {"energy": energy.index_add(0, batch["atom_sample"], self.energy(x)[:, 0])}
        if self.heads is not None:
            edge_gradients = self.heads(x[receiver] * x[sender] * powers[:, :1]) * vectors
            outputs["forces"] = compute_forces(batch, edge_gradients)
            outputs["stress"] = compute_stress(batch, vectors, edge_gradients)
        return outputs


@hookimpl
def model() -> ModelInfo:
    return ModelInfo(name="third", summary="Messages.", citation="none", options=Options)


@hookimpl
def task(run: Run) -> Task:
    options: Any = run.options
    return build_potential_task(
        run, MessagePassing(options, run.get_section("graph", GraphOptions).cutoff)
    )
