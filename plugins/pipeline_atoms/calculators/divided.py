"""A trained potential as an ASE calculator, with domain decomposition of structures over ranks."""

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
from pipeline_core.system.memory import NoRoomError
from pipeline_core.task import Outputs
from pipeline_core.training.out_of_memory import report_out_of_memory

Ints = NDArray[np.int64]

_SUMS: Final = ("energy", "stress")
"""Predictions that are sums over the parts of a structure."""


class DividedCalculator(PotentialCalculator):
    """Energy, forces, stress and magnetic moments, calculated by all ranks together.

    Rank 0 has the atoms and the part of ASE that moves them; it calls the calculator within `lead`.
    All other ranks call `follow` and calculate the requested structures, each for its own atoms.

    Args:
        calculator: The calculator for one rank, of a potential that supports domains or regions.
        ranks: Participating ranks; all of them create this object together.
        method: Partitioning method of the atoms.

    Attributes:
        part: Neighbour list of the atoms that this rank owns, as the structure moves.
    """

    def __init__(
        self,
        calculator: PotentialCalculator,
        ranks: Ranks,
        method: PartitionMethod = "auto",
    ) -> None:
        graph, module = calculator.graph, calculator.module
        device, dtype = str(ranks.device), calculator.dtype
        super().__init__(module, graph, calculator.elements, device, dtype, calculator.head)
        self._ranks, options = ranks, (graph, ranks, calculator.dtype, method)
        self.part: PartBuilder
        if module.takes_domains:
            self.part = DomainBuilder(*options)
        else:
            assert module.receptive_field, "the potential has neither domains nor a finite range"
            self.part = RegionBuilder(*options, n_hops=2 * module.receptive_field)
        self.neighbours = VerletList(self.part)
        self._numbers: Ints = np.zeros(0, dtype=np.int64)
        self._is_calculating = False

    @property
    def n_ranks(self) -> int:
        """Number of participating ranks."""
        return self._ranks.size

    @contextmanager
    def lead(self) -> Iterator[Self]:
        """Serve as rank 0: other ranks wait for requests of this rank, until the context ends."""
        assert self._ranks.is_rank_zero
        try:
            yield self
        finally:
            if not self._is_calculating:  # else others wait in a calculation and end with this rank
                self._ranks.broadcast(None)

    def follow(self) -> None:
        """Calculate parts until rank 0 has finished; on all other ranks."""
        assert not self._ranks.is_rank_zero
        nothing: _Request | None = None
        while (request := self._ranks.broadcast(nothing)) is not None:
            structure = self._receive(request, None)
            # A failure on this rank alone ends all ranks: the others would wait for ever.
            try:
                inputs = self._prepare(structure)
            except NoRoomError:
                raise
            except ValueError:  # rank 0 raises it, too
                continue
            self._calculate(structure, *inputs)

    def forget(self) -> None:
        """Discard the neighbour lists of all ranks, with the next structure."""
        self._numbers = np.zeros(0, dtype=np.int64)

    def _predict(self, atoms: Atoms) -> dict[str, NDArray[np.float64]]:
        if not np.array_equal(atoms.numbers, self._numbers):
            require_known(atoms.numbers, self.elements)
            request = _Request(atoms.numbers.astype(np.int64), np.array(atoms.cell), atoms.pbc)
        else:
            request = _Request(None, np.array(atoms.cell), atoms.pbc)
        if self._is_calculating:
            raise ValueError(
                "a calculation has failed on this rank alone, so that the others wait in it; start "
                "the ranks again, with more of them or a smaller structure"
            )
        structure = self._receive(self._ranks.broadcast(request), atoms.positions)
        self._is_calculating = True
        try:
            inputs = self._prepare(structure)
        except ValueError as error:
            self._is_calculating = isinstance(error, NoRoomError)  # all ranks raise the others
            raise
        results = self._calculate(structure, *inputs)
        self._is_calculating = False
        return results

    def _receive(self, request: _Request, positions: NDArray[np.float64] | None) -> Structure:
        """Return the structure of rank 0, on all ranks."""
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
            ValueError: On all ranks: the structure is not valid.
        """
        positions, (batch, domain) = self.neighbours.update(structure)
        batch = batch | {"positions": torch.from_numpy(positions).to(batch["positions"])}
        self._require_edges(batch)
        return batch, domain

    def _calculate(
        self, structure: Structure, batch: Batch, domain: Domain | None
    ) -> dict[str, NDArray[np.float64]]:
        """Return the predictions for all atoms on rank 0, nothing on other ranks.

        Raises:
            ValueError: Memory does not suffice.
        """
        own = self.part.own
        with torch.no_grad(), report_out_of_memory(partial(_describe_part, len(own), batch)):
            outputs: Outputs = self.module(*([batch] if domain is None else [batch, domain]))
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

    def _require_edges(self, batch: Batch) -> None:
        """Check the edges of all ranks, as `graphs.assemble_graph` does for one."""
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
    """A structure of rank 0 to be calculated.

    Attributes:
        numbers: Atomic numbers, (n_atoms,); None if they are the same as before.
        cell: Å, (3, 3).
        pbc: (3,)
    """

    numbers: Ints | None
    cell: NDArray[np.float64]
    pbc: NDArray[np.bool_]


def can_be_divided(calculator: object) -> bool:
    """Return True if structures of a calculator can be divided between ranks."""
    if not isinstance(calculator, PotentialCalculator):
        return False
    module, has_angles = calculator.module, calculator.graph.angle_cutoff is not None
    return module.takes_domains or (module.receptive_field is not None and not has_angles)


def _join(parts: list[tuple[Ints, dict[str, Any]]], n_atoms: int) -> dict[str, NDArray[np.float64]]:
    """Join the rows of own atoms of each rank to rows of all atoms."""
    joined: dict[str, NDArray[np.float64]] = {}
    for own, rows in parts:
        for name, values in rows.items():
            whole = joined.setdefault(name, np.empty((n_atoms, *values.shape[1:])))
            whole[own] = values
    return joined


def _describe_part(n_own: int, batch: Batch) -> str:
    edges = len(batch["edge_index"])
    return f"on a part of {n_own} atoms and {edges} edges; use more ranks, or a smaller structure"
