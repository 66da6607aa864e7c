"""A trained potential as an ASE calculator, for structures that ranks divide between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray

from pipeline_atoms.calculators.calculator import PotentialCalculator, require_known
from pipeline_atoms.calculators.part_builders import DomainBuilder, PartBuilder, RegionBuilder
from pipeline_atoms.calculators.verlet_list import VerletList
from pipeline_atoms.domain import Domain
from pipeline_atoms.graphs import ONE_PLACE
from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch
from pipeline_core.config.sections import PartitionMethod
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.memory import NoRoomError
from pipeline_core.training.exhaustion import explain_exhaustion
from pipeline_kernels.partition import Link

Ints = NDArray[np.int64]

_SUMS: Final = ("energy", "stress")
"""What parts of a structure add up to."""


class DividedCalculator(PotentialCalculator):
    """Energy, forces, stress and magnetic moments that all ranks calculate together.

    Rank 0 has the atoms, and whatever of ASE moves them; it calls the calculator within `lead`. All
    others call `follow`, and calculate what it asks for, each the part of its own atoms.

    Args:
        calculator: The same on one rank, of a potential that can be divided.
        ranks: Who takes part; all of them make this together.
        method: How atoms are divided.
        link: What an exchange takes, by which `auto` chooses.

    Attributes:
        part: Atoms that this rank owns, as the structure moves.
    """

    def __init__(
        self,
        calculator: PotentialCalculator,
        ranks: Ranks,
        method: PartitionMethod = "auto",
        link: Link | None = None,
    ) -> None:
        graph, module = calculator.graph, calculator.module
        device, dtype = str(ranks.device), calculator.dtype
        super().__init__(module, graph, calculator.elements, device, dtype, calculator.head)
        self._ranks, options = ranks, (graph, ranks, calculator.dtype, method, link)
        self.part: PartBuilder
        if module.takes_domains:
            self.part = DomainBuilder(*options)
        else:
            assert module.receptive_field, "the potential takes no domains, and sees without end"
            self.part = RegionBuilder(*options, n_hops=2 * module.receptive_field)
        self.neighbours = VerletList(self.part)
        self._numbers: Ints = np.zeros(0, dtype=np.int64)
        self._is_calculating = False

    @property
    def n_ranks(self) -> int:
        """Number of ranks that take part."""
        return self._ranks.size

    @contextmanager
    def lead(self) -> Iterator[Self]:
        """Let others wait for what this rank asks for, and go at the end; on rank 0."""
        assert self._ranks.is_rank_zero
        try:
            yield self
        finally:
            if not self._is_calculating:  # else others wait within it, and end as this rank does
                self._ranks.broadcast(None)

    def follow(self) -> None:
        """Calculate parts until rank 0 has all that it wants; on all other ranks."""
        assert not self._ranks.is_rank_zero
        nothing: _Request | None = None
        while (request := self._ranks.broadcast(nothing)) is not None:
            structure = self._receive(request, None)
            # What fails here alone ends this rank, and so the others, who would wait for ever.
            try:
                inputs = self._prepare(structure)
            except NoRoomError:
                raise
            except ValueError:  # which rank 0 raises, too
                continue
            self._calculate(structure, *inputs)

    def forget(self) -> None:
        """As there, on all ranks: with the next structure."""
        self._numbers = np.zeros(0, dtype=np.int64)

    def _predict(self, atoms: Atoms) -> dict[str, NDArray[np.float64]]:
        if not np.array_equal(atoms.numbers, self._numbers):
            require_known(atoms.numbers, self.elements)
            request = _Request(atoms.numbers.astype(np.int64), np.array(atoms.cell), atoms.pbc)
        else:
            request = _Request(None, np.array(atoms.cell), atoms.pbc)
        if self._is_calculating:
            raise ValueError(
                "a calculation has failed on this rank alone, so that the others wait within it; "
                "start the ranks again, on more of them or with a smaller structure"
            )
        structure = self._receive(self._ranks.broadcast(request), atoms.positions)
        self._is_calculating = True
        try:
            inputs = self._prepare(structure)
        except ValueError as error:
            self._is_calculating = isinstance(error, NoRoomError)  # all else all ranks raise
            raise
        results = self._calculate(structure, *inputs)
        self._is_calculating = False
        return results

    def _receive(self, request: _Request, positions: NDArray[np.float64] | None) -> Structure:
        """Return the structure that rank 0 has, on all ranks."""
        if request.numbers is not None:
            self._numbers = request.numbers
            self.neighbours.forget()
        if positions is None:
            positions = np.empty((len(self._numbers), 3))
        places = torch.from_numpy(np.array(positions, dtype=np.float64))
        self._ranks.broadcast_tensors([places])
        return Structure(
            self._numbers.astype(np.int32), places.numpy(), request.cell, np.array(request.pbc)
        )

    def _prepare(self, structure: Structure) -> tuple[Batch, Domain | None]:
        """Return the inputs of this rank.

        Raises:
            NoRoomError: On this rank.
            ValueError: On all ranks alike: the structure cannot be one.
        """
        positions, (batch, domain) = self.neighbours.update(structure)
        batch = batch | {"positions": torch.from_numpy(positions).to(batch["positions"])}
        self._require_edges(batch)
        return batch, domain

    def _calculate(
        self, structure: Structure, batch: Batch, domain: Domain | None
    ) -> dict[str, NDArray[np.float64]]:
        """Return what is predicted of all atoms on rank 0, nothing on others.

        Raises:
            ValueError: Memory does not suffice.
        """
        own = self.part.own
        with torch.no_grad(), explain_exhaustion(partial(_describe_part, len(own), batch)):
            outputs = self._call(batch, domain)
        names = [name for name in self.module.predicts if name in outputs]
        rows = {n: outputs[n][:1] if n in _SUMS else outputs[n][: len(own)] for n in names}
        sums = {
            n: self._ranks.all_reduce_sum(rows[n].double()).cpu().numpy()
            for n in _SUMS
            if n in rows
        }
        per_atom = {n: v.double().cpu().numpy() for n, v in rows.items() if n not in _SUMS}
        parts = self._ranks.gather_on_zero((own, per_atom))
        return sums | _join(parts, len(structure.positions)) if parts else {}

    def _call(self, batch: Batch, domain: Domain | None) -> dict[str, torch.Tensor]:
        outputs: dict[str, torch.Tensor] = self.module(
            *([batch] if domain is None else [batch, domain])
        )
        return outputs

    def _require_edges(self, batch: Batch) -> None:
        """Check the edges of all ranks as `graphs.assemble_graph` does."""
        vectors = compute_edge_vectors(batch)
        shortest = float(vectors.norm(dim=1).min()) if len(vectors) else np.inf
        facts = torch.tensor([len(vectors), float(shortest < ONE_PLACE)], dtype=torch.float64)
        n_edges, too_short = self._ranks.all_reduce_sum(facts).tolist()
        if n_edges == 0 and self.graph.isolated == "refuse":
            raise ValueError(
                f"no atom has a neighbour within {self.graph.cutoff:g} Å; check the unit of the "
                "positions"
            )
        if too_short:
            raise ValueError("two atoms are in one place; remove one of them, or correct positions")


class _Request(NamedTuple):
    """What rank 0 wants to know of a structure.

    Attributes:
        numbers: Atomic numbers, (n_atoms,); None for those of the structure before.
        cell: Å, (3, 3).
        pbc: (3,)
    """

    numbers: Ints | None
    cell: NDArray[np.float64]
    pbc: NDArray[np.bool_]


def can_be_divided(calculator: object) -> bool:
    """Return whether ranks can divide the structures of a calculator between them."""
    if not isinstance(calculator, PotentialCalculator):
        return False
    module, has_angles = calculator.module, calculator.graph.angle_cutoff is not None
    return module.takes_domains or (module.receptive_field is not None and not has_angles)


def _join(parts: list[tuple[Ints, dict[str, Any]]], n_atoms: int) -> dict[str, NDArray[np.float64]]:
    """Return rows of all atoms from those that each rank has of its own."""
    joined: dict[str, NDArray[np.float64]] = {}
    for own, rows in parts:
        for name, values in rows.items():
            whole = joined.setdefault(name, np.empty((n_atoms, *values.shape[1:])))
            whole[own] = values
    return joined


def _describe_part(n_own: int, batch: Batch) -> str:
    edges = len(batch["edge_index"])
    return f"on a part of {n_own} atoms and {edges} edges; take more ranks, or a smaller structure"
