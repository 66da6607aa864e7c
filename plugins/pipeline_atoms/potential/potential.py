"""Base class of interatomic potentials: forces and stress by differentiation of the energy."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Self

import torch
from ase.data import chemical_symbols
from torch import Tensor, nn

from pipeline_atoms.domain import Domain
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs

logger = logging.getLogger(__name__)

MAX_Z: Final = 118
_FAR: Final = 1.0
"""Largest difference of reference energies of an element without a warning, eV."""


class Potential(nn.Module):
    """Interatomic potential: the energy depends on the atoms through the vectors of the edges.

    A subclass implements `energies`. With g_e = dE/dr_e for the vector r_e of edge e from receiver
    i to sender j, the force on an atom is the sum of g over the edges that it receives minus the
    sum over the edges that it sends, and the stress is sym(sum_e r_e g_e^T) / V: one
    differentiation gives both, exactly.

    Forces and stress named in `direct` are returned by `energies` and not differentiated: inference
    records no graph for them, and training no second-order graph. Direct forces are not the
    gradient of the energy.

    Args:
        predicts: Names of the predicted fields: energy, forces, stress and further outputs of
            `energies`.
        head_names: Names of the energy heads, such as levels of theory, if there are several. Each
            has its own energies of free atoms; `find_heads` returns the head of each atom.
    """

    atom_energies: Tensor
    further_energies: Tensor
    """Energies of free atoms of all heads but the first, (n_heads - 1, MAX_Z + 1) eV."""
    exact: ClassVar[tuple[str, ...]] = ("atom_energies", "further_energies")
    """Buffers that stay in double precision, if the module has them, whatever the parameters are.
    Energies of free atoms are thousands of eV, and meV matter."""
    exact_vectors: ClassVar[bool] = False
    """True if `energies` takes the vectors in double precision, whatever the parameters are."""
    receptive_field: int | None = None
    """Distance in edges up to which atoms influence the energy that `energies` counts for an atom
    or an edge it receives: message-passing layers. With it, ranks can divide single structures.
    Direct forces may then depend on atoms at most twice as far away, and a direct stress must be a
    sum over atoms or over edges, counted for their sample; otherwise leave it None."""
    takes_domains: ClassVar[bool] = False
    """True if `energies` takes a domain as third argument, and exchanges features itself: then
    single structures are divided by domain decomposition, each rank with its own atoms alone."""
    head_names: tuple[str, ...] = ()
    """Names of the energy heads, such as levels of theory; empty for a model with one. The field
    `head` of a batch, (n_samples,), has the head of each sample."""
    head: int = 0
    """Head of samples without the field `head`."""
    direct: frozenset[str] = frozenset()
    """Outputs among forces and stress that `energies` returns itself."""
    heads: nn.Module | None
    """Module of the direct outputs, if a training may start from a model with other ones."""
    replaceable: ClassVar[Mapping[str, tuple[str, ...]]] = {"heads": ("forces", "stress")}
    """Modules that may differ from the model that a training starts from, with their outputs:
    their weights are then not loaded."""

    def __init__(
        self,
        predicts: tuple[str, ...] = ("energy", "forces", "stress"),
        head_names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.predicts = predicts
        self.heads = None
        self.register_buffer("atom_energies", torch.zeros(MAX_Z + 1, dtype=torch.float64))
        if len(head_names) > 1:
            self.head_names = tuple(head_names)
            further = torch.zeros(len(head_names) - 1, MAX_Z + 1, dtype=torch.float64)
            self.register_buffer("further_energies", further)

    def list_references(self) -> list[Tensor]:
        """Return the energies of free atoms of each head, (MAX_Z + 1,) eV; they are writable."""
        return [self.atom_energies, *(self.further_energies if self.head_names else ())]

    def choose_references(self, of_dataset: Sequence[Tensor], *, always: bool) -> None:
        """Take the energies of free atoms of a dataset if loaded weights have none, or always.

        Args:
            of_dataset: Result of `list_references` before weights were loaded, zero for elements
                that the dataset lacks.
            always: True to take all energies that the dataset has.
        """
        for own, kept in zip(of_dataset, self.list_references(), strict=True):
            given = own != 0
            taken = given & ((kept == 0) | always)
            far = (own - kept).abs().where(given & ~taken, 0.0)
            if float(far.max()) > _FAR:
                logger.warning(
                    "the reference energies of the dataset differ from those of the model by up to "
                    "%.1f eV (%s); if the data are of another level of theory, set "
                    "train.reference_energies: dataset",
                    float(far.max()),
                    chemical_symbols[int(far.argmax())],
                )
            kept[taken] = own[taken]

    def find_heads(self, batch: Batch) -> Tensor | None:
        """Return the head of each own atom, (n_atoms,); None for a model with one head."""
        if not self.head_names:
            return None
        sample = batch["atom_sample"]
        if "head" not in batch:
            return torch.full_like(sample, self.head)
        return batch["head"].long()[sample]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `module.to(dtype)` comes through here.
        exact = {name: getattr(self, name) for name in self.exact if hasattr(self, name)}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in exact.items():
            setattr(self, name, tensor.to(getattr(self, name).device))
        return self

    @abstractmethod
    def energies(self, batch: Batch, vectors: Tensor) -> Outputs:
        """Compute the outputs that need no differentiation.

        With `takes_domains`, a third argument `domain: Domain | None = None` is the part of a
        structure that this rank owns. Rows of atoms are then own atoms followed by ghost atoms, but
        `atom_sample` has own atoms alone. Results belong to own atoms: energies are summed over
        them, and other ranks have the rest. `domain.exchange` appends the features of ghost atoms
        to those of own atoms.

        Args:
            batch: Samples with their graph; positions must not be used.
            vectors: (n_edges, 3) from receiver to sender, Å, of the type of the parameters unless
                `exact_vectors`.

        Returns:
            `energy` (n_samples,) in eV without the energies of the free atoms, the outputs named in
            `direct`, and any further field.
        """

    def compile_inference(self) -> Potential:
        """Return a faster potential for inference, with the same predictions (`infer.compile`).

        Raises:
            ValueError: Models of this class cannot be compiled.
        """
        raise ValueError(
            f"models of {type(self).__name__} are not compiled; use it without infer.compile"
        )

    def forward(self, batch: Batch, domain: Domain | None = None) -> Outputs:
        """Predict all of `predicts`.

        Args:
            batch: Samples with their graph.
            domain: The part of a structure that this rank owns, if `takes_domains`. Ranks call this
                together; energy and stress are then contributions of this rank, to be summed over
                ranks, and rows of atoms are own atoms.

        Returns:
            energy (n_samples,) eV, forces (n_atoms, 3) eV/Å, stress (n_samples, 3, 3) eV/Å³ (zero
            without a three-dimensional cell), and further fields of the subclass.
        """
        training = torch.is_grad_enabled()
        vectors = compute_edge_vectors(batch).detach()
        if not self.exact_vectors:
            vectors = vectors.to(next(self.parameters()).dtype)
        derived = {"forces", "stress"}.intersection(self.predicts) - self.direct
        with torch.set_grad_enabled(training or bool(derived)):
            vectors.requires_grad_(bool(derived))
            outputs = self._call_energies(batch, vectors, domain)
            if derived:
                (gradient,) = torch.autograd.grad(
                    outputs["energy"].sum(), vectors, create_graph=training, materialize_grads=True
                )
                if "forces" in derived:
                    outputs["forces"] = compute_forces(batch, gradient)
                if "stress" in derived:
                    outputs["stress"] = compute_stress(batch, vectors.detach(), gradient)
            if domain is not None and "forces" in outputs:
                outputs["forces"] = domain.collect(outputs["forces"])
        outputs["energy"] = outputs["energy"].double() + self._sum_references(batch)
        return {
            name: outputs[name] if training else outputs[name].detach() for name in self.predicts
        }

    def _call_energies(self, batch: Batch, vectors: Tensor, domain: Domain | None) -> Outputs:
        if domain is None:
            return self.energies(batch, vectors)
        assert self.takes_domains, f"{type(self).__name__}.energies takes no domain"
        energies: Callable[..., Outputs] = self.energies
        return energies(batch, vectors, domain)

    def _sum_references(self, batch: Batch) -> Tensor:
        """Sum the energies of the free atoms of each sample, (n_samples,) eV."""
        sample, head = batch["atom_sample"], self.find_heads(batch)
        numbers = batch["atomic_numbers"][: len(sample)]
        references = (
            self.atom_energies[numbers]
            if head is None
            else torch.stack(self.list_references())[head, numbers]
        )
        base = references.new_zeros(count_samples(batch))
        return base.index_add(0, sample, references)


def compute_edge_vectors(batch: Batch) -> Tensor:
    """Compute the vectors from receivers to senders, (n_edges, 3), Å."""
    receiver, sender = batch["edge_index"].unbind(1)
    positions, cells = batch["positions"], batch["cell"]
    shift = batch["edge_shift"].to(cells.dtype)
    if len(cells) == 1:  # the cell need not be repeated for each edge
        shift = shift @ cells[0]
    else:
        shift = torch.einsum("es,esx->ex", shift, cells[batch["edge_sample"]])
    return positions.index_select(0, sender) - positions.index_select(0, receiver) + shift


def compute_volumes(batch: Batch) -> Tensor:
    """Compute the volume of each cell, (n_samples,), Å³; zero without a three-dimensional cell."""
    volume: Tensor = torch.linalg.det(batch["cell"]).abs() * batch["pbc"].all(1)
    return volume


def compute_forces(batch: Batch, edge_gradients: Tensor) -> Tensor:
    """Sum edge gradients dE/dr into atomic forces; the sum over all atoms is zero.

    Args:
        batch: Samples with their graph.
        edge_gradients: (n_edges, 3) eV/Å, derivatives dE/dr of the energy by the vectors of edges.

    Returns:
        (n_atoms, 3) eV/Å.
    """
    receiver, sender = batch["edge_index"].unbind(1)
    n_atoms = len(batch["atomic_numbers"])
    return _sum_rows(edge_gradients, receiver, n_atoms) - _sum_rows(edge_gradients, sender, n_atoms)


def _sum_rows(rows: Tensor, index: Tensor, n: int) -> Tensor:
    """Sum rows by index, like `index_add` to zeros, but four times as fast for such short rows."""
    return rows.new_zeros(n, rows.shape[1]).scatter_add(0, index[:, None].expand_as(rows), rows)


def compute_stress(batch: Batch, vectors: Tensor, edge_gradients: Tensor) -> Tensor:
    """Compute the stress: the symmetric virial of edge gradients over the volume.

    Args:
        batch: Samples with their graph.
        vectors: (n_edges, 3) from receiver to sender, Å.
        edge_gradients: (n_edges, 3) eV/Å, as for `compute_forces`.

    Returns:
        (n_samples, 3, 3) eV/Å³, tension positive; zero without a three-dimensional cell.
    """
    if (n_samples := count_samples(batch)) == 1:
        virial = (vectors.mT @ edge_gradients.to(vectors.dtype))[None]
    else:
        dyads = (vectors[:, :, None] * edge_gradients[:, None, :]).flatten(1)  # (n_edges, 9)
        virial = _sum_rows(dyads, batch["edge_sample"], n_samples).unflatten(1, (3, 3))
    volume = compute_volumes(batch)
    inverse = torch.where(volume > 0, 1 / volume.where(volume > 0, torch.ones_like(volume)), 0)
    return 0.5 * (virial + virial.transpose(1, 2)) * inverse.to(virial.dtype)[:, None, None]


def select_head(energies: Tensor, head: Tensor | None) -> Tensor:
    """Select the energy of each atom by its head.

    Args:
        energies: Energies of each atom for all heads, (n_atoms, n_heads) eV.
        head: Head of each atom, from `Potential.find_heads`.

    Returns:
        (n_atoms,) eV.
    """
    return energies[:, 0] if head is None else energies.gather(1, head[:, None])[:, 0]


def extend_heads(
    weights: Mapping[str, Tensor], before: Sequence[str], names: Sequence[str]
) -> tuple[dict[str, Tensor], list[int]]:
    """Add energies of free atoms of further heads to the weights of a potential.

    They are zero, so that energies of the dataset replace them.

    Args:
        weights: Weights of the potential.
        before: Names of its heads. A single head becomes the first, whatever its name.
        names: Names of all heads, existing heads first.

    Returns:
        The weights, and for each head the index of the head that it is initialized from: its own,
        or the first.

    Raises:
        ValueError: A head is missing, or in another position.
    """
    n_before, n_heads = max(1, len(before)), max(1, len(names))
    if n_before > 1 and list(names[:n_before]) != list(before):
        raise ValueError(
            f"the model has the heads {', '.join(before)}, and the experiment "
            f"{', '.join(names) or 'none'}; name the heads of the model first, in their order"
        )
    result, n_further = dict(weights), n_heads - n_before
    if n_further:
        first = weights["atom_energies"]
        rows = weights.get("further_energies", first.new_zeros(0, len(first)))
        result["further_energies"] = torch.cat([rows, rows.new_zeros(n_further, len(first))])
    return result, [*range(n_before), *[0] * n_further]
