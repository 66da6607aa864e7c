"""Prediction of all structures of an experiment, one after the other."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.domains import build_domain, choose_owners, choose_transport
from pipeline_core.artifacts import store
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.profiling.memory import measure_peak
from pipeline_core.project.run import Run
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_egnn_esp.data.deeph import write_deeph
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.data.samples import compute_energy_zero, subtract_zero
from pipeline_egnn_esp.data.writers import write_cp2k
from pipeline_egnn_esp.inference import SCHEMA
from pipeline_egnn_esp.inference.collect import (
    SLAB_BYTES,
    Source,
    read_matrices,
    split_atoms,
    write_matrices,
)
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.memory import (
    MemoryPlan,
    count_matrix_bytes,
    plan_memory,
    require_memory,
)
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.inference.picture import write_picture
from pipeline_egnn_esp.inference.slots import BlockSlots, assign_slots
from pipeline_egnn_esp.inference.spectra import is_dense, write_spectra
from pipeline_egnn_esp.inference.structures import StoredCell, Subject, make_subject
from pipeline_egnn_esp.model.scaling import ScaledNetwork
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.task import count_bytes_per_atom

Ints = NDArray[np.int64]


def infer_run(run: Run) -> dict[str, Any]:
    """Predict the matrices of all structures of `infer.structures` and the requested outputs.

    Writes `run.inference` and the files of the matrices. All ranks call it and return the same but
    for errors of levels, which only rank 0 has.

    Raises:
        ValueError: `run.model` is missing or not of this run, a structure cannot be read or holds
            an element without a basis, something is too large, or memory does not suffice.
    """
    with connect_ranks(run.device, run.state) as ranks:
        return _infer_structures(run, ranks)


def _infer_structures(run: Run, ranks: Ranks) -> dict[str, Any]:
    options, target = (
        run.get_section("infer", ESPInferOptions),
        run.get_section("model", ESPOptions).target,
    )
    if options.structures and target != "hamiltonian":
        raise ValueError(
            f"{run.experiment}: infer.structures: the model has learned the {target}, not a "
            "Hamiltonian; train it with model.target: hamiltonian, or remove the structures"
        )
    module = load_trained_task(run, ranks.device).module
    assert isinstance(module, ScaledNetwork)
    basis = module.network.basis
    subjects = [make_subject(run, one, basis) for one in options.structures]
    for subject in subjects:
        _require_feasible(
            subject, basis.count_orbitals_per_atom(subject.structure.atomic_numbers), options
        )
    summary: dict[str, Any] = {}
    file = store.create(run.inference, SCHEMA, run.make_provenance("infer"))
    with file if ranks.is_rank_zero else nullcontext() as content:
        for subject in subjects:
            name = subject.options.name
            group = content.create_group(name) if content is not None else None
            with report_out_of_memory(partial(_describe, name, options, ranks)):
                summary[name] = _Inference(run, module, subject, options, ranks).run(group)
        ranks.barrier()
    return summary


def _describe(name: str, options: ESPInferOptions, ranks: Ranks) -> str:
    return (
        f"in infer.structures: {name} on rank {ranks.rank}; start more ranks, lower "
        f"infer.work_bytes (now {options.work_bytes}), take fewer copies of the cell, or request "
        "fewer outputs and levels"
    )


class _Inference:
    """Prediction of one structure on one of the ranks."""

    def __init__(
        self,
        run: Run,
        module: ScaledNetwork,
        subject: Subject,
        options: ESPInferOptions,
        ranks: Ranks,
    ) -> None:
        self._run, self._module, self._subject = run, module, subject
        self._options, self._ranks = options, ranks
        self._network = module.network
        self._path = run.folder / "matrices" / f"{subject.options.name}.h5"

    def run(self, group: h5py.Group | None) -> dict[str, Any]:
        """Divide, plan, predict, write; rank 0 passes the `group` of the artifact."""
        subject, ranks, network = self._subject, self._ranks, self._network
        structure, cutoff = subject.structure, network.cutoff
        section = self._run.get_section("partition", PartitionOptions)
        size = network.length_embedding.weight.element_size()
        message = section.link.count_rows(count_bytes_per_atom(network.options, size))
        owners = choose_owners(structure, cutoff, ranks, section.method, message)
        domain = build_domain(structure, cutoff, owners, choose_transport(ranks))
        slots = assign_slots(domain)
        plan = self._make_plan(slots)
        plans = require_memory(subject.options.name, plan, ranks)
        summary: dict[str, Any] = {
            "atoms": len(structure.positions),
            "edges": sum(one["edges"] for one in plans),
            "rows": int(network.basis.count_orbitals_per_atom(structure.atomic_numbers).sum()),
            "ranks": ranks.size,
        }
        levels: dict[str, Any] = {}
        measured = measure_peak(
            lambda: levels.update(self._predict(slots, plan, group)), ranks.device
        )
        peaks = ranks.gather(measured)
        if group is not None:
            for number, own in enumerate(plans):
                own["measured"] = peaks[number]
            group.attrs["memory"] = json.dumps(plans)
            group.attrs["structure"] = json.dumps(subject.options.model_dump(mode="json"))
            group.attrs["matrices"] = str(self._path.relative_to(self._run.folder))
            for name, number in summary.items():
                group.attrs[name] = number
            group.create_dataset("atomic_numbers", data=structure.atomic_numbers)
        summary["planned_MiB"] = [round(one["peak"] / 2**20) for one in plans]
        summary["measured_MiB"] = [None if p is None else round(p / 2**20) for p in peaks]
        return summary | levels

    def _make_plan(self, slots: BlockSlots) -> MemoryPlan:
        counts = self._network.basis.count_orbitals_per_atom(self._subject.structure.atomic_numbers)
        domain, cell = slots.domain, self._subject.cell
        ends = domain.rows[domain.edge_index.numpy()[slots.first]].T
        own = counts[domain.rows[: domain.n_own]]
        n_entries = int((counts[ends[0]] * counts[ends[1]]).sum() + (own**2).sum())
        predicted = self._ranks.gather((n_entries, slots.n_first + domain.n_own))
        n_entries, n_blocks = np.sum(predicted, axis=0).tolist()
        if cell is not None:  # blocks of the data beyond the network's cutoff are kept, too
            n_entries = max(n_entries, cell.n_copies * cell.n_entries)
            n_blocks = max(n_blocks, cell.n_copies * cell.n_blocks)
        matrices = count_matrix_bytes(n_entries, int(counts.sum()), self._subject.options)
        read = matrices if self._ranks.is_rank_zero else 0
        return plan_memory(self._network, slots, self._options.work_bytes, n_blocks, read)

    def _predict(
        self, slots: BlockSlots, plan: MemoryPlan, group: h5py.Group | None
    ) -> dict[str, Any]:
        """Predict and write; return the errors of levels on rank 0."""
        subject, ranks = self._subject, self._ranks
        self._write(slots, plan)
        errors: dict[str, Any] = {}
        wanted = subject.options
        if group is not None and wanted.picture is not None:
            write_picture(group, self._path, wanted.name, self._network.basis, wanted.picture)
        if group is not None and (wanted.outputs or wanted.wants_levels):
            matrix = read_matrices(self._path, wanted.name, self._network.basis)
            self._write_outputs(matrix)
            matrices = {"predicted": matrix}
            if subject.cell is not None and wanted.wants_levels:
                matrices["reference"] = self._read_reference(subject.cell)
            errors = write_spectra(group, wanted, matrices)
        ranks.barrier()
        return errors

    def _write(self, slots: BlockSlots, plan: MemoryPlan) -> None:
        """Predict the blocks of this rank and write the blocks of all ranks."""
        subject, ranks, basis = self._subject, self._ranks, self._network.basis
        blocks = predict_blocks(self._module, slots, plan.chunk)
        own, cell = slots.domain.rows[: slots.domain.n_own], subject.cell
        tiling = cell.read_tiling(own) if cell is not None else None
        source = Source(slots, blocks, basis, tiling)
        block, work = SLAB_BYTES * basis.n_common**2, self._options.work_bytes
        bounds = split_atoms(slots, tiling, block, work, ranks)
        record, name = self._run.make_provenance("infer"), subject.options.name
        write_matrices(self._path, record, name, subject.structure, source, bounds, ranks)

    def _write_outputs(self, matrix: BlockMatrix) -> None:
        if "deeph" in self._subject.options.outputs:
            with _replace_folder(self._path.with_suffix(".deeph")) as folder:
                write_deeph(folder, matrix)
        if "cp2k_csr" in self._subject.options.outputs:
            with _replace_folder(self._path.with_suffix(".cp2k")) as folder:
                write_cp2k(folder, matrix, self._subject.options.name)

    def _read_reference(self, cell: StoredCell) -> BlockMatrix:
        """Return the matrices of the data, with the zero of energies of the labels."""
        tiling = cell.read_tiling(np.arange(len(cell.moved)))
        matrix = tiling.build_matrix()
        if self._run.get_section("model", ESPOptions).zero == "data":
            return matrix
        return subtract_zero(matrix, compute_energy_zero(tiling.cell))


def _require_feasible(subject: Subject, counts: Ints, options: ESPInferOptions) -> None:
    wanted, n_orbitals = subject.options, int(counts.sum())
    if is_dense(wanted) and n_orbitals > options.dense_orbitals:
        raise ValueError(
            f"infer.structures: {wanted.name}: all levels of {n_orbitals} orbitals are requested, "
            f"but infer.dense_orbitals allows {options.dense_orbitals}; set levels.energy for "
            "those near an energy, remove density_of_states and bands, or raise the limit"
        )
    if wanted.bands is not None and not subject.structure.pbc.any():
        raise ValueError(
            f"infer.structures: {wanted.name}: bands of a structure that is not periodic; "
            "request levels"
        )
    near = wanted.levels if wanted.levels and wanted.levels.energy is not None else None
    if near is not None and near.count >= n_orbitals:
        raise ValueError(
            f"infer.structures: {wanted.name}: {near.count} levels near an energy of {n_orbitals} "
            "orbitals; set levels.energy to null for all"
        )


@contextmanager
def _replace_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that replaces `path` once it is complete."""
    temporary = store.name_part(path)
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
