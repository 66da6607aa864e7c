"""Domain decomposition: construction of the domain of each rank of a structure.

A rank owns atoms, and all edges whose receiver it owns. Its local rows of atoms are its own atoms,
then the halo: ghost atoms, which are senders owned by other ranks. Each edge has its reverse in the
graph, so that the own edges alone determine which senders belong to other ranks, which own atoms
other ranks need, and which edges have their reverse there. No rank needs more of the graph.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.domain import Domain, DomainBonds
from pipeline_atoms.graphs import find_reverse_edges, list_angles, number_bonds
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
    """Samples of a model that supports domains: `module(batch, domain)`."""

    def read_structure(self, index: int) -> Structure:
        """Return the atoms of a sample."""
        ...

    def read_domain(self, index: int, domain: Domain) -> Batch:
        """Return the batch of a rank: `domain.make_inputs()`, and labels of its own rows.

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

    Ranks that call this with the same structure and owners get consistent domains.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        owners: The rank that owns each atom, (n_atoms,), as from `choose_owners`.
        transport: Transport of the messages; it has the number of this rank.
        angle_cutoff: Longest edge that takes part in angles, Å; None for neither bonds nor angles.
    """
    rank, own = transport.rank, np.flatnonzero(owners == transport.rank)
    index, shift = find_edges(structure, cutoff, own)
    boundary = np.flatnonzero(owners[index[:, 1]] != rank)
    plan_edges = np.concatenate([index, index[boundary][:, ::-1]])  # others own the reverse edges
    atoms = HaloPlan.of(
        torch.from_numpy(owners), torch.from_numpy(plan_edges), rank, transport.size
    )
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


def add_bonds(domain: Domain, angle_cutoff: float, positions: Floats | None = None) -> Domain:
    """Return a domain with the bonds and angles of its edges, without communication.

    Args:
        domain: Domain without bonds.
        angle_cutoff: Longest edge that takes part in angles, Å.
        positions: Positions of all local rows, Å, (n_own + n_halo, 3); from the structure if None.
    """
    index = domain.edge_index.numpy()
    places = domain.structure.positions[domain.rows] if positions is None else positions
    lengths = compute_lengths(places, domain.structure.cell, index, domain.edge_shift.numpy())
    is_short = lengths < angle_cutoff
    edge_bond, bond_edge = number_bonds(domain.reverse_edge.numpy())
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
        Own edges in the order in which they are sent, and in the order in which their reverse
        arrives, (n_boundary,) each; both are grouped by the rank at the other end, ascending.
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
        row: Row of each own edge, (n_edges,).
        is_kept: True if an edge has a row, the same on both ranks, (n_edges,).
        domain: The domain of the edges.

    Returns:
        The plan; its `exchange` appends a row for each kept edge, in the order of the second
        result of `_list_boundary_edges`.
    """
    sent, _ = _list_boundary_edges(domain)
    counts = domain.edges.sends  # as many come as go
    peers = np.repeat([*counts.keys()], [*counts.values()]).astype(np.int64)
    is_sent = is_kept[sent]
    return _plan_rows(n_rows, row[sent[is_sent]], peers[is_sent], domain.transport)


def select_edges(domain: Domain, is_kept: NDArray[np.bool_]) -> Domain:
    """Return a domain with some of its edges, and the same atoms.

    Args:
        domain: Domain without bonds.
        is_kept: True for edges to keep, the same for an edge and its reverse, (n_edges,).
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

    A rank sends to each other rank, in its own order, the edges whose sender the other rank owns.

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
    """Plan a symmetric exchange of rows: as many rows come from a rank as are sent to it.

    Args:
        n_rows: Number of own rows.
        sent: Rows to send, (n_sent,).
        peers: Receiving rank of each, ascending, (n_sent,).
        transport: Transport of the messages.
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
    )
