"""Domains: one structure over several ranks.

A rank owns atoms, and all edges whose receiver it owns. Its local rows of atoms are own ones, then
the halo: senders that other ranks own. Each edge has its reverse in the graph, so that the edges of
own atoms say all: which senders belong to other ranks, which own atoms other ranks need, and which
edges have their reverse there. No rank needs more of the graph than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.domain import Domain, DomainBonds
from pipeline_atoms.graphs import find_reverse_edges, list_angles
from pipeline_atoms.neighbours import compute_lengths, find_edges
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch
from pipeline_core.task import Samples
from pipeline_kernels.halo import HaloPlan, Transport
from pipeline_kernels.message import Segments

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@runtime_checkable
class DomainSamples(Samples, Protocol):
    """Samples of a model that takes a domain: `module(batch, domain)`."""

    def read_structure(self, index: int) -> Structure:
        """Return the atoms of a sample."""
        ...

    def read_domain(self, index: int, domain: Domain) -> Batch:
        """Return what a rank needs of a sample: `domain.make_inputs()`, and labels of its own rows.

        Called ahead of time on another thread, without communication.
        """
        ...


def build_domain(
    structure: Structure,
    cutoff: float,
    owners: Ints,
    transport: Transport,
    angle_cutoff: float | None = None,
) -> Domain:
    """Build the domain of one rank, without communication.

    Ranks that call this with the same structure and owners get domains that fit each other.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        owners: The rank that owns each atom, (n_atoms,), as from `choose_owners`.
        transport: Says which rank this is, and carries its messages.
        angle_cutoff: Longest edge that takes part in angles, Å; None for neither bonds nor angles.
    """
    rank, own = transport.rank, np.flatnonzero(owners == transport.rank)
    index, shift = find_edges(structure, cutoff, own)
    boundary = np.flatnonzero(owners[index[:, 1]] != rank)
    plan_edges = np.concatenate([index, index[boundary][:, ::-1]])  # others own the reverse ones
    atoms = HaloPlan.of(
        torch.from_numpy(owners), torch.from_numpy(plan_edges), rank, transport.size
    )
    atoms = replace(atoms, edges=atoms.edges[:0], edge_ids=atoms.edge_ids[:0], n_interior=0)
    reverse_edge, edges = _plan_reverse_edges(index, shift, boundary, owners, transport)
    local = np.full(len(owners), -1, dtype=np.int64)
    rows = torch.cat([atoms.own, atoms.halo]).numpy()
    local[rows] = np.arange(len(rows))
    domain = Domain(
        structure=structure,
        atoms=atoms,
        edge_index=torch.from_numpy(local[index]),
        edge_shift=torch.from_numpy(shift),
        edges=edges,
        reverse_edge=torch.from_numpy(reverse_edge),
        transport=transport,
    )
    return domain if angle_cutoff is None else add_bonds(domain, angle_cutoff)


def build_domains(
    structures: Sequence[Structure], cutoff: float, owners: Sequence[Ints], transport: Transport
) -> list[Domain]:
    """Build the domain of one rank in each structure; see `build_domain`."""
    pairs = zip(structures, owners, strict=True)
    return [build_domain(structure, cutoff, own, transport) for structure, own in pairs]


def add_bonds(domain: Domain, angle_cutoff: float, positions: Floats | None = None) -> Domain:
    """Return a domain with the bonds and angles of its edges, without communication.

    Args:
        domain: Without them.
        angle_cutoff: Longest edge that takes part in angles, Å.
        positions: Of all local rows, Å, (n_own + n_halo, 3); those of the structure if None.
    """
    index, n_edges = domain.edge_index.numpy(), domain.n_edges
    places = domain.structure.positions[domain.rows] if positions is None else positions
    lengths = compute_lengths(places, domain.structure.cell, index, domain.edge_shift.numpy())
    is_short = lengths < angle_cutoff
    reverse_edge = domain.reverse_edge.numpy()
    # The reverse of an edge to another rank has a number above all of this one.
    bond_edge, edge_bond = np.unique(
        np.minimum(np.arange(n_edges), reverse_edge), return_inverse=True
    )
    short = np.flatnonzero(is_short[bond_edge])
    row = np.full(len(bond_edge), -1)
    row[short] = np.arange(len(short))
    _, received = _list_boundary_edges(domain)
    plan = _plan_rows_of_edges(len(short), row[edge_bond], is_short, domain)
    bonds = DomainBonds(
        edge_bond=torch.from_numpy(edge_bond),
        bond_edge=torch.from_numpy(bond_edge),
        angle_edges=torch.from_numpy(list_angles(index[:, 0], is_short)),
        short=torch.from_numpy(short),
        plan=plan,
        twice=torch.from_numpy(row[edge_bond[received[is_short[received]]]]),
        transport=domain.transport,
    )
    return replace(domain, bonds=bonds)


def _list_boundary_edges(domain: Domain) -> tuple[Ints, Ints]:
    """Return boundary edges in the order in which ranks exchange them.

    Returns:
        Own edges in the order in which they are sent, and in that of what arrives for them,
        (n_boundary,) each; both are grouped by the rank at the other end, ascending.
    """
    boundary = domain.boundary.numpy()
    arrival = domain.reverse_edge.numpy()[boundary] - domain.n_edges
    received = np.empty_like(boundary)
    received[arrival] = boundary
    return domain.edges.halo.numpy(), received


def _plan_rows_of_edges(
    n_rows: int, row: Ints, is_kept: NDArray[np.bool_], domain: Domain
) -> HaloPlan:
    """Plan the exchange of rows that belong to edges between ranks.

    Args:
        n_rows: Number of rows.
        row: Of each own edge, (n_edges,).
        is_kept: Whether an edge has a row, alike on both ranks, (n_edges,).
        domain: The domain of the edges.

    Returns:
        The plan, whose `exchange` appends a row for each kept edge of those that
        `_list_boundary_edges` returns last.
    """
    sent, _ = _list_boundary_edges(domain)
    counts = domain.edges.sends  # as many come as go
    peers = np.repeat([*counts.keys()], [*counts.values()]).astype(np.int64)
    is_sent = is_kept[sent]
    return _plan_rows(n_rows, row[sent[is_sent]], peers[is_sent], domain.transport)


def select_edges(domain: Domain, is_kept: NDArray[np.bool_]) -> Domain:
    """Return a domain with some of its edges, and the same atoms.

    Args:
        domain: Without bonds.
        is_kept: Which edges stay, alike for an edge and its reverse, (n_edges,).
    """
    number = np.cumsum(is_kept) - 1
    _, received = _list_boundary_edges(domain)
    n_edges, reverse = int(number[-1]) + 1 if len(number) else 0, domain.reverse_edge.numpy()
    arrival = np.cumsum(is_kept[received]) - 1
    there = reverse >= domain.n_edges
    new = np.empty_like(reverse)
    new[~there] = number[reverse[~there]]
    new[there] = n_edges + arrival[reverse[there] - domain.n_edges]
    kept = torch.from_numpy(is_kept)
    return replace(
        domain,
        edge_index=domain.edge_index[kept],
        edge_shift=domain.edge_shift[kept],
        edges=_plan_rows_of_edges(n_edges, number, is_kept, domain),
        reverse_edge=torch.from_numpy(new[is_kept]),
    )


def _plan_reverse_edges(
    index: Ints, shift: Ints, boundary: Ints, owners: Ints, transport: Transport
) -> tuple[Ints, HaloPlan]:
    """Find the reverse of each edge, and plan the exchange of those that other ranks own.

    A rank sends to each other one the edges whose sender that one owns, in its own order.

    Returns:
        The field `reverse_edge` of a domain, and its plan `edges`.
    """
    n_edges, reverse_edge = len(index), np.empty(len(index), dtype=np.int64)
    interior = np.setdiff1d(np.arange(n_edges), boundary, assume_unique=True)
    reverse_edge[interior] = interior[find_reverse_edges(index[interior], shift[interior])]
    (i, j), back = index[boundary].T, -shift[boundary]
    peers = owners[j]
    arrival = np.lexsort([back[:, 2], back[:, 1], back[:, 0], i, j, peers])
    reverse_edge[boundary[arrival]] = n_edges + np.arange(len(boundary))
    sent = boundary[np.argsort(peers, kind="stable")]
    return reverse_edge, _plan_rows(n_edges, sent, np.sort(peers), transport)


def _plan_rows(n_rows: int, sent: Ints, peers: Ints, transport: Transport) -> HaloPlan:
    """Return the plan of an exchange of some rows, of which as many come from a rank as go there.

    Args:
        n_rows: Own rows.
        sent: Rows that are sent, (n_sent,).
        peers: The rank that each goes to, rising, (n_sent,).
        transport: What carries the messages.
    """
    ranks, counts = np.unique(peers, return_counts=True)
    messages = dict(zip(ranks.tolist(), counts.tolist(), strict=True))
    own, going = torch.arange(n_rows), torch.from_numpy(sent)
    return HaloPlan(
        rank=transport.rank,
        n_parts=transport.size,
        own=own,
        halo=going,
        send=Segments.of(going, n_rows),
        sends=messages,
        receives=messages,
        edges=own.new_zeros(0, 2),
        edge_ids=own[:0],
        n_interior=0,
    )
