"""Parts of a rank in the structures of a split, for training with domain decomposition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domain import Domain
from pipeline_atoms.domains.construction import DomainSamples, build_domain
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.regions import build_region, collate_region
from pipeline_atoms.domains.transports import choose_transport
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.batch import Batch
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.fields import FIELDS, Kind
from pipeline_core.project.run import Run
from pipeline_core.task import Samples, Task
from pipeline_core.training.micro_batches import DomainMicroBatch, LoadPart, require_divisible
from pipeline_kernels.halo import Transport

Ints = NDArray[np.int64]


@runtime_checkable
class StructureSamples(Samples, Protocol):
    """Samples that can be read without their graph, by a rank that builds only a part of it."""

    def read_structures(self, indices: Sequence[int]) -> Batch:
        """Return atoms, cells and labels of the samples with these numbers, as `batch` does."""
        ...


@dataclass(frozen=True, eq=False)
class _Owned:
    """A structure with the owner rank of each atom, (n_atoms,)."""

    structure: Structure
    owners: Ints


class DividedSplits:
    """Samples of a task, each divided between all ranks.

    Args:
        run: Its options determine the partitioning and the cutoff.
        task: Task with a model that supports domains, or that states its receptive field.
        ranks: Ranks that share the samples; all create this, and call `divide`, together.

    Raises:
        ValueError: The model cannot work on parts.
    """

    def __init__(self, run: Run, task: Task, ranks: Ranks) -> None:
        section = run.get_section("partition", PartitionOptions)
        graph = run.get_section("graph", GraphOptions)
        self._experiment, self._task, self._ranks = run.experiment, task, ranks
        self._cutoff, self._section, self._angles = graph.cutoff, section, graph.angle_cutoff
        self._message = section.link.count_rows(task.bytes_per_atom)
        self._transport = choose_transport(ranks)

    def divide(self, split: str, samples: Samples, numbers: Ints | None = None) -> LoadPart:
        """Choose owners of samples of a split, and return a function that makes this rank's parts.

        Args:
            split: Name of the split.
            samples: Its samples.
            numbers: Numbers of the samples to divide; all if None.

        Returns:
            Function from the number of a sample to this rank's part; the decomposition is kept.

        Raises:
            ValueError: A structure has fewer atoms than there are ranks, or the model cannot work
                on parts.
        """
        divided = range(len(samples)) if numbers is None else numbers.tolist()
        self._require_atoms(split, samples.sizes()["atom"][divided])
        structures = {n: _find_structure(samples, n) for n in divided}
        owned = {n: _Owned(one, self._choose_owners(one)) for n, one in structures.items()}
        return self._make_parts(samples, owned, self._transport)

    def divide_alone(
        self, samples: Samples, number: int, n_parts: int
    ) -> Callable[[Transport], DomainMicroBatch]:
        """Choose owners of one sample, without the other ranks.

        Args:
            samples: Samples of a split.
            number: Number of the sample.
            n_parts: Number of ranks that would divide it.

        Returns:
            Function from the transport of a rank to its part. With a transport without real
            messages outputs are meaningless, but the work is the same.

        Raises:
            ValueError: The sample has fewer atoms, or the model cannot work on parts.
        """
        structure = _find_structure(samples, number)
        owned = {number: _Owned(structure, self._choose_owners(structure, n_parts))}
        return lambda transport: self._make_parts(samples, owned, transport)(number)

    def _make_parts(
        self, samples: Samples, owned: Mapping[int, _Owned], transport: Transport
    ) -> LoadPart:
        """Return a function that makes the parts of one rank."""
        module = self._task.module
        if isinstance(samples, DomainSamples) or (
            isinstance(module, Potential) and module.takes_domains
        ):
            return self._divide_into_domains(samples, owned, transport)
        return self._divide_into_regions(samples, owned, transport)

    def _divide_into_domains(
        self, samples: Samples, owned: Mapping[int, _Owned], transport: Transport
    ) -> LoadPart:
        kinds = self._list_kinds()
        if not isinstance(samples, DomainSamples):
            require_divisible(kinds)
        domains = {
            number: build_domain(one.structure, self._cutoff, one.owners, transport, self._angles)
            for number, one in owned.items()
        }
        placed = {number: domain.to(self._ranks.device) for number, domain in domains.items()}

        def load(number: int) -> DomainMicroBatch:
            domain = domains[number]
            own = domain.rows[: domain.n_own]
            if isinstance(samples, DomainSamples):
                labels = inputs = samples.read_domain(number, domain)
            else:
                whole, structure = _read_plain(samples, number), domain.structure
                labels = _take_labels(whole, own, kinds, transport.rank)
                places = structure.positions[domain.rows]
                inputs = domain.make_batch(places, whole["positions"].dtype)
            return DomainMicroBatch(labels, inputs, own, kinds, self._ranks, placed[number])

        return load

    def _divide_into_regions(
        self, samples: Samples, owned: Mapping[int, _Owned], transport: Transport
    ) -> LoadPart:
        n_layers = self._task.receptive_field
        if n_layers is None or self._angles is not None:
            problem = (
                "the model does not state how far atoms influence each other (receptive_field)"
                if n_layers is None
                else "angles (graph.angle_cutoff) end at the boundary of a part"
            )
            raise ValueError(
                f"{self._experiment}: partition.parts: graph: {problem}; set partition.parts to "
                "samples"
            )
        kinds = self._list_kinds()
        require_divisible(kinds)
        regions = {}
        for number, one in owned.items():
            own = np.flatnonzero(one.owners == transport.rank)
            regions[number] = build_region(one.structure, self._cutoff, own, 2 * n_layers)

        def load(number: int) -> DomainMicroBatch:
            whole, region = _read_plain(samples, number), regions[number]
            own = region.rows[: region.n_own]
            labels = _take_labels(whole, own, kinds, transport.rank)
            inputs = collate_region(region, whole["positions"].dtype)
            return DomainMicroBatch(labels, inputs, own, kinds, self._ranks)

        return load

    def _list_kinds(self) -> dict[str, Kind]:
        return {quantity.name: quantity.field.kind for quantity in self._task.quantities}

    def build_domain(self, structure: Structure) -> Domain:
        """Choose owners of the atoms of a structure; return the domain of this rank.

        All ranks call it.

        Raises:
            ValueError: There are more ranks than atoms.
        """
        owners = self._choose_owners(structure)
        return build_domain(structure, self._cutoff, owners, self._transport, self._angles)

    def _choose_owners(self, structure: Structure, n_parts: int | None = None) -> Ints:
        how = self._section.method, self._message, n_parts
        return choose_owners(structure, self._cutoff, self._ranks, *how)

    def _require_atoms(self, split: str, n_atoms: Ints) -> None:
        n_ranks = self._ranks.size
        fewest = int(n_atoms.min(initial=n_ranks))
        if fewest < n_ranks:
            raise ValueError(
                f"{self._experiment}: split {split}: a structure has {fewest} atoms, which cannot "
                f"be divided between {n_ranks} ranks; start at most {fewest}, or set "
                "partition.parts to samples"
            )


def _read_plain(samples: Samples, number: int) -> Batch:
    """Return a sample without its graph, which is not read if the samples allow it."""
    if isinstance(samples, StructureSamples):
        return samples.read_structures([number])
    return samples.batch([number])


def _find_structure(samples: Samples, number: int) -> Structure:
    """Return the atoms of a sample."""
    if isinstance(samples, DomainSamples):
        return samples.read_structure(number)
    return _read_structure(_read_plain(samples, number))


def _read_structure(batch: Batch) -> Structure:
    arrays = {name: batch[name].numpy() for name in INPUTS}
    return Structure.of_fields(arrays | {name: arrays[name][0] for name in ("cell", "pbc")})


def _take_labels(whole: Batch, atoms: Ints, kinds: Mapping[str, str], rank: int) -> Batch:
    """Return labels of own atoms, on rank 0 also labels of the sample, and the number of all atoms.

    On other ranks labels of the sample are missing, so that each counts once.
    """
    own = torch.from_numpy(atoms)
    labels = {"atom_offsets": whole["atom_offsets"], "atom_sample": torch.zeros_like(own)}
    for name in ("atomic_numbers", *kinds):
        kind = kinds[name] if name in kinds else FIELDS[name].kind
        if name in whole:
            labels[name] = whole[name][own] if kind == "atom" else whole[name]
            if kind == "sample" and rank:
                labels[name] = torch.full_like(labels[name], torch.nan)
    return labels
