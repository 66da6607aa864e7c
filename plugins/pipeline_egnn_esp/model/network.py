"""eGNN-ESP network, from atoms and edges to the blocks of a matrix between their orbitals."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_atoms.domain import Domain
from pipeline_atoms.potential.elements import find_elements, number_elements
from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_core.batch import Batch
from pipeline_core.task import Outputs
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.heads import Heads
from pipeline_egnn_esp.model.irreps import make_edge_stage, make_node_stage
from pipeline_egnn_esp.model.layers import EdgeBlock, NodeBlock
from pipeline_egnn_esp.model.messages import Edges
from pipeline_egnn_esp.model.surroundings import Surroundings
from pipeline_egnn_esp.options import ESPOptions, require_bonds_within
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.halo import start
from pipeline_kernels.message import Segments


class Gaussians(nn.Module):
    """Gaussians of a distance, their centres evenly from 0 to the cutoff.

    exp(-(d - c)²/(2 w²)) with a width w of twice the distance between centres.

    Args:
        n_functions: Number of Gaussians.
        cutoff: Å.
    """

    centres: Tensor

    def __init__(self, n_functions: int, cutoff: float) -> None:
        super().__init__()
        centres = torch.linspace(0, cutoff, n_functions, dtype=torch.float64)
        self.register_buffer("centres", centres, persistent=False)
        self.factor = -0.5 / (2 * cutoff / max(1, n_functions - 1)) ** 2

    def forward(self, distances: Tensor) -> Tensor:
        """Map distances, (n,) Å, to Gaussians, (n, n_functions)."""
        return torch.exp(self.factor * (distances[:, None] - self.centres).square())


class Network(nn.Module):
    """Blocks of a matrix between orbitals, by attention over long edges.

    The network of Kaniselvan et al., "Distributed Equivariant Graph Neural Networks for Large-Scale
    Electronic Structure Prediction" (2025), section 3, but for the first features of edges: a
    learned linear map of Gaussians of their length in place of the Gaussians themselves and, if
    `bond_cutoff` is given, the output of `Surroundings` for the atoms around their middle.

    Atoms start from their element, in degree 0. Each layer updates the atoms by attention over
    their edges, then the edges by the atoms that they join. Linear maps take the last features to
    irreps of blocks.

    Rotations of the frames of edges and densities around their middle are constants: derivatives
    with respect to positions go through distances only.

    Args:
        options: Sizes of the network.
        basis: Shells of each element.
        cutoff: Cutoff of the graph, Å.

    Raises:
        ValueError: `options.lmax` is too low for the basis, or `options.bond_cutoff` too large.
    """

    element_index: Tensor

    def __init__(self, options: ESPOptions, basis: Basis, cutoff: float) -> None:
        super().__init__()
        require_bonds_within(options, cutoff)
        self.options, self.basis, self.cutoff = options, basis, cutoff
        element_index = number_elements(basis.elements)
        self.register_buffer("element_index", element_index, persistent=False)
        n_elements, natural = len(basis.elements), options.split(options.channels).natural
        self.gaussians = Gaussians(options.radial_functions, cutoff)
        self.atom_embedding = nn.Embedding(n_elements, natural)
        self.length_embedding = nn.Linear(options.radial_functions, natural, bias=False)
        nodes, edges = (
            [make(options, layer) for layer in range(options.layers)]
            for make in (make_node_stage, make_edge_stage)
        )
        self.node_blocks = nn.ModuleList(NodeBlock(options, n_elements, stage) for stage in nodes)
        self.edge_blocks = nn.ModuleList(EdgeBlock(options, n_elements, stage) for stage in edges)
        ends = nodes[-1].outputs, edges[-1].outputs
        self.heads = Heads(options.lmax, *ends, basis, parity=options.parity)
        if options.bond_cutoff is not None:
            self.surroundings = Surroundings(options, n_elements)

    def forward(self, batch: Batch, domain: Domain | None = None) -> Outputs:
        """Predict the blocks of all atoms and edges.

        With domain decomposition, ranks exchange ghost atoms once a layer (halo exchange), while
        they update interior edges, and at the end blocks of edges whose reverse other ranks own.

        Args:
            batch: Structures with their graph, with `reverse_edge`, the number of the edge (j, i,
                -R) of each edge (i, j, R), (n_edges,); or the inputs of a domain. `frames` from
                `compute_edge_frames`, if given in the type of the parameters, are not calculated.
            domain: The part of a structure that this rank owns; None for whole structures.

        Returns:
            node_blocks (n_own, n_common, n_common), blocks of atoms, and edge_blocks (n_edges,
            n_common, n_common), rows being orbitals of the receiver; in the unit of the labels.

        Raises:
            ValueError: The basis lacks an element.
        """
        atomic_numbers = batch["atomic_numbers"]
        elements = find_elements(atomic_numbers, self.element_index)
        n_own = len(elements) if domain is None else domain.n_own
        edges = self.make_edges(batch, elements, n_own)
        x, e = self.embed(self.atom_embedding(elements)), self.embed_edges(batch, edges)
        update = _EdgeUpdate(edges, domain)
        for node_block, edge_block in zip(self.node_blocks, self.edge_blocks, strict=True):
            x, e = update(edge_block, node_block(x, e, edges), e)

        blocks = self.heads.project_one_way(e)
        request = None if domain is None else start(blocks, domain.edges, domain.transport)
        node_blocks = self.heads.predict_node_blocks(x[:n_own], atomic_numbers[:n_own])
        if domain is None or request is None:
            reverse = blocks[batch["reverse_edge"]]
        else:
            reverse = request.wait()[domain.reverse_edge]
        receivers, senders = atomic_numbers[batch["edge_index"]].unbind(1)
        edge_blocks = self.heads.predict_edge_blocks(blocks, reverse, receivers, senders)
        return {"node_blocks": node_blocks, "edge_blocks": edge_blocks}

    def embed(self, scalars: Tensor) -> Tensor:
        """Return features with the given true scalars, and all others zero.

        The first features of atoms come from `atom_embedding`, by element.

        Args:
            scalars: (n, natural channels)

        Returns:
            (n, (lmax + 1)², channels), in the type of the parameters.
        """
        scalars = scalars.to(self.length_embedding.weight.dtype)
        n_components, n_channels = (self.options.lmax + 1) ** 2, self.options.channels
        beyond = (0, n_channels - scalars.shape[1], 0, n_components - 1)
        return functional.pad(scalars[:, None], beyond)

    def embed_edges(self, batch: Batch, edges: Edges) -> Tensor:
        """Return the first features of edges: of their lengths, and of atoms around their middle.

        Args:
            batch: Structures with their graph.
            edges: All edges that some atoms receive.

        Returns:
            (n_edges, (lmax + 1)², channels), in the type of the parameters.
        """
        of_length = self.length_embedding(edges.gaussians)
        if self.options.bond_cutoff is None:
            return self.embed(of_length)
        e: Tensor = self.surroundings(compute_edge_vectors(batch), edges)
        if e.shape[2] < self.options.channels:
            e = functional.pad(e, (0, self.options.channels - e.shape[2]))
        e[:, 0, : of_length.shape[1]] += of_length
        return e

    def make_edges(self, batch: Batch, elements: Tensor, n_own: int) -> Edges:
        """Make the edges that the layers take as input.

        Args:
            batch: Structures with their graph.
            elements: Place of each atom's element in the basis, (n_atoms,).
            n_own: Number of atoms that receive, the first ones.
        """
        vectors, dtype = compute_edge_vectors(batch), self.length_embedding.weight.dtype
        receiver, sender = batch["edge_index"].unbind(1)
        lengths, frames = torch.linalg.vector_norm(vectors, dim=1), batch.get("frames")
        if frames is None:
            frames = compute_edge_frames(vectors, self.options.lmax, dtype)
        edges = Edges(
            receivers=Segments.of(receiver.contiguous(), n_own),
            senders=Segments.of(sender.contiguous(), len(elements)),
            frames=frames,
            gaussians=self.gaussians(lengths).to(dtype),
            elements=elements[batch["edge_index"]],
        )
        reach = self.options.attention_cutoff
        if reach is None:
            return edges
        places = (lengths < reach).nonzero().flatten()
        # Weights fall to zero at the end, so that matrices are smooth functions of positions.
        fading = 2 * torch.log1p(-(lengths[places] / reach).square())
        attended = replace(edges.select(places, len(elements)), fading=fading.to(dtype))
        return replace(edges, attended=(places, attended))


class _EdgeUpdate:
    """Update of the edges of a rank, interior ones during the halo exchange.

    Args:
        edges: All edges.
        domain: Domain of this rank; None for whole structures.
    """

    def __init__(self, edges: Edges, domain: Domain | None) -> None:
        self._edges, self._domain = edges, domain
        if domain is not None:
            self._interior = edges.select(domain.interior, domain.n_own)
            self._boundary = edges.select(domain.boundary, edges.senders.n_segments)

    def __call__(self, block: nn.Module, own: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return own and ghost atoms, and updated edges."""
        domain = self._domain
        if domain is None:
            return own, block(own, e, self._edges)
        request = start(own, domain.atoms, domain.transport)
        inside = block(own, e[domain.interior], self._interior)
        x = request.wait()
        outside = block(x, e[domain.boundary], self._boundary)
        return x, torch.cat([inside, outside])[domain.order]
