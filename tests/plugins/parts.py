"""Predictions of a potential for a structure, as a whole and by domain decomposition.

The parts are the same as in training and dynamics with domains. A linear function of all outputs,
with a different weight for each number, replaces the loss: if forces are derivatives, its gradient
by the parameters needs second derivatives across ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.domains.regions import build_region, collate_region
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.structure import Structure
from pipeline_atoms.testing.potentials import build_batch
from pipeline_atoms.testing.rank_threads import run_on_threads
from pipeline_core.task import Outputs
from pipeline_kernels.halo import Transport

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Prediction:
    """Prediction for one structure.

    Attributes:
        outputs: Outputs by name, rows of atoms in their order.
        gradients: Gradients of the linear function of the outputs, by parameter; empty for a
            compiled model, which has only constants.
    """

    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]


Part = tuple[Ints, Prediction]
"""Indices of own atoms, (n_own,), and the prediction for them."""


def predict_whole(module: Potential, atoms: Atoms, graph: GraphOptions) -> Prediction:
    """Predict a structure as a whole, in double precision."""
    outputs = module(build_batch([atoms], graph, torch.float64))
    return _differentiate(module, outputs, np.arange(len(atoms)))


def predict_by_parts(
    module: Potential, atoms: Atoms, graph: GraphOptions, owners: Ints
) -> Prediction:
    """Predict a structure by domain decomposition over ranks, in double precision.

    The ranks are threads of this process, each with a copy of the model.

    Args:
        module: Potential that supports domains, or that states its receptive field.
        atoms: The structure.
        graph: Cutoffs.
        owners: Owner rank of each atom, (n_atoms,), counted from 0.
    """
    copies = [deepcopy(module) for _ in range(int(owners.max()) + 1)]

    def work(transport: Transport) -> Part:
        return predict_part(copies[transport.rank], atoms, graph, owners, transport)

    return join_parts(run_on_threads(len(copies), work), len(atoms))


def predict_part(
    module: Potential, atoms: Atoms, graph: GraphOptions, owners: Ints, transport: Transport
) -> Part:
    """Predict the part of own atoms, in double precision; all ranks call this together.

    Args:
        module: As for `predict_by_parts`; the copy of this rank.
        atoms: All atoms.
        graph: Cutoffs.
        owners: Owner rank of each atom, (n_atoms,).
        transport: Transport of the messages; it has the number of this rank.

    Returns:
        Indices of own atoms, (n_own,), and the prediction: outputs of the whole structure and
        gradients are contributions, to be summed over ranks.
    """
    own = np.flatnonzero(owners == transport.rank)
    structure = Structure.of(atoms)
    if module.takes_domains:
        outputs = _call_domain(module, structure, graph, owners, transport)
    else:
        outputs = _call_region(module, structure, graph, own)
    return own, _differentiate(module, outputs, own)


def _call_domain(
    module: Potential, structure: Structure, graph: GraphOptions, owners: Ints, transport: Transport
) -> Outputs:
    domain = build_domain(structure, graph.cutoff, owners, transport, graph.angle_cutoff)
    batch = domain.make_batch(structure.positions[domain.rows], torch.float64)
    outputs: Outputs = module(batch, domain)
    return outputs


def _call_region(
    module: Potential, structure: Structure, graph: GraphOptions, own: Ints
) -> Outputs:
    assert module.receptive_field is not None
    region = build_region(structure, graph.cutoff, own, 2 * module.receptive_field)
    outputs = module(collate_region(region, torch.float64))
    sums = ("energy", "stress")
    return {n: rows[:1] if n in sums else rows[: len(own)] for n, rows in outputs.items()}


def _differentiate(module: Potential, outputs: Outputs, atoms: Ints) -> Prediction:
    total = torch.zeros((), dtype=torch.float64)
    for place, (name, rows) in enumerate(sorted(outputs.items())):
        numbers = np.zeros(1) if name in ("energy", "stress") else atoms
        first = torch.from_numpy(np.asarray(numbers, dtype=np.float64))[:, None]
        flat = rows.reshape(len(first), -1)
        weights = torch.cos(place + 3.0 * first + torch.arange(flat.shape[1]))
        total = total + (weights * flat).sum()
    detached = {name: rows.detach() for name, rows in outputs.items()}
    if not total.requires_grad:
        return Prediction(detached, {})
    names, weights_of = zip(*module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(total, weights_of, materialize_grads=True)
    return Prediction(detached, dict(zip(names, gradients, strict=True)))


def join_parts(parts: Sequence[Part], n_atoms: int) -> Prediction:
    """Join the parts of all ranks to a prediction."""
    outputs: dict[str, Tensor] = {}
    for own, part in parts:
        for name, rows in part.outputs.items():
            if name in ("energy", "stress"):
                outputs[name] = outputs.get(name, torch.zeros_like(rows)) + rows
            else:
                whole = outputs.setdefault(name, rows.new_empty(n_atoms, *rows.shape[1:]))
                whole[torch.from_numpy(own)] = rows
    gradients = {
        name: sum((part.gradients[name] for _, part in parts[1:]), parts[0][1].gradients[name])
        for name in parts[0][1].gradients
    }
    return Prediction(outputs, gradients)
