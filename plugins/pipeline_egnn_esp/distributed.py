"""One structure over several ranks: the part of its graph that each works on, and what they share.

A rank owns atoms, and all edges whose receiver it owns. Its rows of atoms are its own ones, then
its halo: senders that other ranks own. Its edges are first the interior ones, whose sender it owns,
then the boundary ones. The twin of an interior edge is interior; that of a boundary edge belongs to
the owner of the sender.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import torch
from torch import Tensor

from pipeline_core.batch import Batch, n_samples
from pipeline_core.fields import FIELDS
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.partition_options import LinkOptions
from pipeline_kernels.halo import HaloPlan, Transport
from pipeline_kernels.partition import Link

WITH_HALO: Final = ("atomic_numbers", "positions")
"""Fields of atoms that are known of the halo, too."""


def link_of(options: LinkOptions, model: ESPOptions, size: int) -> Link:
    """Return what an exchange of the features of atoms takes.

    Args:
        options: Of the messages.
        model: Sizes of the network.
        size: Bytes of a number.
    """
    return Link(options.latency, options.bandwidth, size * (model.lmax + 1) ** 2 * model.channels)


def twins(edge_index: Tensor, edge_shift: Tensor) -> Tensor:
    """Find the edge (j, i, -R) of each edge (i, j, R).

    Args:
        edge_index: (receiver, sender), (n_edges, 2), of any number of structures.
        edge_shift: (n_edges, 3)

    Returns:
        (n_edges,), the field `twin` of a batch.

    Raises:
        ValueError: An edge has none.
    """
    if not len(edge_index):
        return edge_index.new_zeros(0)
    reach, n_atoms = int(edge_shift.abs().max()), int(edge_index.max()) + 1

    def keys(index: Tensor, shift: Tensor) -> Tensor:
        key = index[:, 0] * n_atoms + index[:, 1]
        for axis in range(3):
            key = key * (2 * reach + 1) + shift[:, axis] + reach
        return key

    rising, order = keys(edge_index, edge_shift).sort()
    reverse = keys(edge_index.flip(1), -edge_shift)
    places = torch.searchsorted(rising, reverse).clamp(max=len(rising) - 1)
    lonely = (rising[places] != reverse).nonzero().flatten().tolist()
    if lonely:
        i, j = edge_index[lonely[0]].tolist()
        raise ValueError(
            f"{len(lonely)} edges lack the opposite edge, such as that of atoms {i} and {j} with "
            f"shift {edge_shift[lonely[0]].tolist()}; give the graph both directions of each pair"
        )
    return order[places]


@dataclass(frozen=True, eq=False)
class Halo:
    """What a rank needs to work on its part of a structure together with the others.

    Attributes:
        nodes: Plan of the atoms.
        twins: Plan of the edges, each of which needs its twin; local rows are edges in the order of
            `nodes.edge_ids`, and `twins.edges[:, 1]` is the row of each edge's twin.
        transport: What carries the messages.
    """

    nodes: HaloPlan
    twins: HaloPlan
    transport: Transport

    def to(self, device: torch.device | str) -> Self:
        """Return the same plans on another device."""
        return replace(self, nodes=self.nodes.to(device), twins=self.twins.to(device))


def split_batch(
    batch: Batch, labels: Tensor, rank: int, n_ranks: int
) -> tuple[Batch, HaloPlan, HaloPlan]:
    """Cut the part of one rank out of a structure, without communication.

    Ranks that call this with the same structure get parts that fit each other.

    Args:
        batch: One structure with its graph and the twin of each edge. Further fields of atoms and
            edges, such as labels, have names that begin with `node_` and `edge_`.
        labels: The rank that owns each atom, (n_atoms,), as from `pipeline_kernels.partition`.
        rank: The rank whose part to cut.
        n_ranks: Number of ranks.

    Returns:
        The batch of the rank, and the plans `nodes` and `twins` of its `Halo`. Positions and atomic
        numbers have rows of own atoms and halo, labels those of own atoms alone. The gradient by
        positions is the rank's part of a sum. There is no field `twin`: the plan replaces it.

    Raises:
        ValueError: The batch holds several structures, or it is unknown what a field's rows are.
    """
    if n_samples(batch) != 1:
        raise ValueError(
            f"expected a batch of one structure to split over ranks, got {n_samples(batch)}; "
            "small structures are shared whole"
        )
    nodes = HaloPlan.of(labels, batch["edge_index"], rank, n_ranks)
    rows = {"halo": torch.cat([nodes.own, nodes.halo]), "atom": nodes.own, "edge": nodes.edge_ids}
    part: Batch = {"edge_index": nodes.edges}
    for kind, n in (("atom", len(rows["halo"])), ("edge", len(nodes.edge_ids))):
        part[f"{kind}_offsets"] = labels.new_tensor([0, n], dtype=torch.int64)
        part[f"{kind}_sample"] = labels.new_zeros(n, dtype=torch.int64)
    for name, tensor in batch.items():
        if name not in part and name != "twin":
            kind = "halo" if name in WITH_HALO else _kind(name)
            part[name] = tensor[rows[kind]] if kind in rows else tensor
    return part, nodes, _twin_plan(nodes, labels, batch["edge_index"], batch["twin"])


def _kind(name: str) -> str:
    """Return what the rows of a field are."""
    if name in FIELDS:
        return FIELDS[name].kind
    if name.startswith("node_"):
        return "atom"
    if name.startswith("edge_") or name == "frames":
        return "edge"
    raise ValueError(
        f"split_batch: is a row of {name!r} an atom or an edge? expected a field of the engine or "
        "a name that begins with node_ or edge_; rename it or leave it out"
    )


def _twin_plan(nodes: HaloPlan, labels: Tensor, edge_index: Tensor, twin: Tensor) -> HaloPlan:
    """Make the plan of edges that need their twins.

    Edges are numbered with the interior ones of all ranks first, so that each rank's rising numbers
    are the order in which it has its edges.
    """
    receiver, sender = labels.long()[edge_index].unbind(1)  # their ranks
    order = torch.argsort((receiver != sender).to(torch.uint8), stable=True)
    numbers = torch.empty_like(order)
    numbers[order] = torch.arange(len(order), device=order.device)
    pairs = torch.stack([numbers, numbers[twin]], dim=1)[order]
    plan = HaloPlan.of(receiver[order], pairs, nodes.rank, nodes.n_parts)
    assert torch.equal(plan.own, numbers[nodes.edge_ids]), "twins that are not opposite edges"
    return plan
