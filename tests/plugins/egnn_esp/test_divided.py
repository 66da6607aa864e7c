"""Ranks that divide every structure train, evaluate and infer as one rank does.

Oracle: the engine's trainer on one rank and whole samples, to whose gradients the parts add up.
"""

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline_core import samples as core_samples
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed import division, domains, owners, regions
from pipeline_core.distributed.pieces import DomainPiece, Piece
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.world import World
from pipeline_core.neighbours import find_edges
from pipeline_core.samples import SampleFile, SampleWriter
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.division import BySamples
from pipeline_core.training.trainer import Trainer, train_run
from pipeline_egnn_esp import block_reader, own_blocks, samples
from pipeline_egnn_esp.inference.collect import Blocks
from pipeline_egnn_esp.matrices import BlockMatrix
from pipeline_egnn_esp.options import ESPEvaluateOptions
from pipeline_kernels.partition import Link
from plugins.egnn_esp import trained
from processes import finish, fork

TRAIN = {"epochs": 2, "batch_size": 2, "optimizer": {"lr": 0.01}, "ema_decay": 0.5}
LINK = {"latency": 5e-5, "bandwidth": 1e9}
INFER = {"structures": [{"name": "one"}], "work_bytes": 2**20}


WHOLE = PartitionOptions(parts="samples")
STAGES = ("train", "evaluate", "infer")
N_PORTS = 1 + len(STAGES)
N_ATOMS = 12


def prepare(folder):
    """Write a project with two frames for training, and all before the training."""
    evaluate = {"splits": ["test"], "k_points": [1, 1, 2]}
    partition = {"parts": "graph", "link": LINK}
    trained.write_project(folder, train=TRAIN, partition=partition, evaluate=evaluate)
    run = trained.open_run(folder)
    for stage in ("data", "graph", "partition"):
        trained.call(run, stage)
    return run


def open_run(folder, results, **sections):
    """Return the run with results of its own, beside those of the stages before."""
    target = folder / results / "egnn_esp/small/base"
    if not target.exists():
        target.mkdir(parents=True)
        (folder / results / "datasets").symlink_to(folder / "results/datasets")
        for path in (folder / "results/egnn_esp/small/base").glob("*.h5"):
            (target / path.name).symlink_to(path)
    run = trained.open_run(folder, INFER, results)
    return replace(run, sections={**run.sections, **sections})


def cut_small(patch):
    """Read and writes few edges and blocks at a time: those of the small frames count as many.

    Everywhere alike, since what tables say where data are few follows from how sums were rounded.
    """
    patch.setattr(block_reader, "_BLOCKS", 32)
    patch.setattr(own_blocks, "_BLOCKS", 32)
    patch.setattr(samples, "_PIECE_EDGES", 100)
    patch.setattr(core_samples, "_FLUSH_BYTES", 20_000)


class Sizes(TorchDispatchMode):
    """Notes the largest arrays of this process that grow with the edges or blocks of a structure.

    Rows of tensors of features and of padded blocks are those of any tensor that an operation of
    torch returns; arrays are noted where they are read, made, collected and written.
    """

    def __init__(self, patch, shapes):
        super().__init__()
        self.largest, self._shapes = {}, shapes
        for module in (domains, owners, regions):
            patch.setattr(module, "find_edges", self._note_edges)
        for kind in (BlockMatrix, Blocks, SampleWriter, SampleFile):
            patch.setattr(kind, *getattr(self, f"_watch_{kind.__name__}")(kind))
        patch.setattr(division, "DomainPiece", self._note_piece)

    def note(self, name, n_rows):
        self.largest[name] = max(self.largest.get(name, 0), n_rows)

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        outputs = function(*arguments, **(named or {}))
        for tensor in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if isinstance(tensor, torch.Tensor) and tensor.ndim == 3:
                for name, shape in self._shapes.items():
                    if tuple(tensor.shape[1:]) == shape:
                        self.note(name, len(tensor))
        return outputs

    def _note_edges(self, structure, cutoff, receivers):
        edges = find_edges(structure, cutoff, receivers)
        self.note("edges", len(edges[0]))
        return edges

    def _note_piece(self, batch, domain):
        self.note("edge labels", len(batch["edge_blocks"]))
        self.note("edges", len(batch["edge_index"]))
        return DomainPiece(batch, domain)

    def _watch_BlockMatrix(self, kind):
        original = kind.__init__

        def init(matrix, *arguments, **named):
            original(matrix, *arguments, **named)
            self.note("blocks", len(matrix.block_atoms))

        return "__init__", init

    def _watch_Blocks(self, kind):
        original = kind.__init__

        def init(blocks, *arguments, **named):
            original(blocks, *arguments, **named)
            self.note("collected", len(blocks.names))

        return "__init__", init

    def _watch_SampleWriter(self, kind):
        original = kind._append

        def append(writer, part):
            self.note("written", len(part["block_atoms"]))
            buffered = writer._buffer["block_atoms"]
            self.note("written", len(part["block_atoms"]) + sum(map(len, buffered)))
            original(writer, part)

        return "_append", append

    def _watch_SampleFile(self, kind):
        original = kind.read_rows

        def read_rows(file, name, index, rows):
            result = original(file, name, index, rows)
            kind_of_rows = file.fields[name].kind
            if kind_of_rows in ("edge", "block", "entry"):
                self.note(f"read {kind_of_rows}", len(result))
            return result

        return "read_rows", read_rows


def compute_gradients(run, ranks, divided):
    """Return the gradient of the loss of the training structures, of each parameter."""
    task = build_task(run)
    task.module.double()
    own, ways = task.samples("train"), task.objective.weights
    if divided:
        load = division.DividedSplits(run, task, ranks).divide("train", own)
        pieces = [load(number) for number in range(len(own))]
    else:
        pieces = [Piece(own.batch([number])) for number in range(len(own))]
    counts = {name: sum(task.objective.counts(p.batch)[name] for p in pieces) for name in ways}
    counts = {name: ranks.all_reduce_sum(count.double()) for name, count in counts.items()}
    for piece in pieces:
        sums = task.objective.sums(piece.predict(task.module), piece.batch)
        sum(ways[name] * sums[name] / counts[name] for name in ways).backward()
    return {
        name: ranks.all_reduce_sum(weight.grad.clone())
        for name, weight in task.module.named_parameters()
    }


def run_rank(rank, folder, n_ranks, ports):
    """Compute gradients, then does all stages; four ranks note sizes, and solve no levels."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MASTER_PORT": ports[0]}
    run, patch, largest = open_run(folder, str(n_ranks)), pytest.MonkeyPatch(), {}
    cut_small(patch)
    with connect_ranks("cpu", folder) as ranks:
        gradients = compute_gradients(run, ranks, divided=True)
    for stage, port in zip(STAGES, ports[1:], strict=True):
        os.environ["MASTER_PORT"] = port
        with pytest.MonkeyPatch.context() as watching:
            if n_ranks == 4:
                section = run.get_section("evaluate", ESPEvaluateOptions)
                section = section.model_copy(update={"dense_orbitals": 1})
                n = build_task(run).module.network.basis.n_common
                shapes = {"features": (25, trained.MODEL["channels"]), "padded blocks": (n, n)}
                with Sizes(watching, shapes) as sizes:
                    trained.call(open_run(folder, "4", evaluate=section), stage)
                largest[stage] = sizes.largest
            else:
                trained.call(run, stage)
    torch.save((gradients, largest), folder / f"{n_ranks}-{rank}.pt")


def train_whole(run):
    """Train by whole samples, whatever the section says."""
    options = run.get_section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = build_task(run)
        by_samples = BySamples(run, task, options, ranks)
        Trainer(run, task, options, ranks, by_samples).fit()


def find_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of whole samples, and of parts on one, two and four ranks."""
    path = tmp_path_factory.mktemp("parts")
    prepare(path)
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        train_whole(open_run(path, "serial"))
        trained.call(open_run(path, "serial", partition=WHOLE), "evaluate")
        for stage in STAGES:
            trained.call(open_run(path, "1"), stage)
    for n_ranks in (2, 4):
        open_run(path, str(n_ranks))
    finish([__file__, path, *(find_free_port() for _ in range(2 * N_PORTS))])
    return path


def read_outcome(folder, results):
    run = open_run(folder, results)
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    return load_model(run.model)["weights"], lines


@pytest.mark.parametrize("results", ["1", "2", "4"])
def test_parts_follow_the_trajectory_of_the_whole(folder, results):
    (weights, lines), (expected, reference_lines) = (
        read_outcome(folder, name) for name in (results, "serial")
    )
    assert len(lines) == TRAIN["epochs"]
    assert weights.keys() == expected.keys()
    for line, other in zip(lines, reference_lines, strict=True):
        for split in ("train", "val"):
            for name, value in other[split].items():
                assert line[split][name] == pytest.approx(value, rel=1e-8)
        assert line["mae"] == pytest.approx(other["mae"], rel=1e-8)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_gradients_of_parts_are_those_of_the_whole(folder, n_ranks, monkeypatch):
    cut_small(monkeypatch)
    run = open_run(folder, "1")
    with connect_ranks("cpu", folder) as ranks:
        expected = compute_gradients(run, ranks, divided=False)
        if n_ranks == 1:
            gradients = compute_gradients(run, ranks, divided=True)
        else:
            gradients, _ = torch.load(folder / f"{n_ranks}-0.pt")
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 1e-3
    for name, gradient in expected.items():
        assert float((gradients[name] - gradient).abs().max()) < 1e-10 * max(1, largest), name


KINDS = {
    "train": {"edges", "read entry", "blocks", "edge labels", "features", "padded blocks"},
    "evaluate": {"edges", "read entry", "blocks", "features", "padded blocks"},
    "infer": {"edges", "read entry", "blocks", "features", "padded blocks", "collected"},
}


def test_no_rank_of_four_holds_a_structure(folder):
    """Neither its graph nor its labels or features, in any stage: the largest array of each kind.

    The frames are smaller than twice the cutoff, so that a domain has nearly all its edges again as
    those which other ranks own, and every other atom in its halo: half of a structure is the most
    that a rank may hold of edges and blocks.
    """
    with SampleFile(open_run(folder, "4").data, "data") as data:
        whole = {kind: int(data.count_rows(kind).min()) for kind in ("block", "entry")}
    with SampleFile(open_run(folder, "4").graph, "graph") as graph:
        n_edges = int(graph.count_rows("edge").min())
    totals = {"read entry": whole["entry"], "read block": whole["block"], "blocks": whole["block"]}
    totals |= {"collected": whole["block"], "written": whole["block"]}
    for rank in range(4):
        _, largest = torch.load(folder / f"4-{rank}.pt")
        for stage, sizes in largest.items():
            expected = KINDS[stage] | ({"written"} if (stage, rank) == ("evaluate", 0) else set())
            assert expected <= sizes.keys(), (stage, rank)
            shares = {kind: size / totals.get(kind, n_edges) for kind, size in sizes.items()}
            assert max(shares.values()) < 0.6, (stage, rank, shares)
            assert shares["padded blocks"] > 0.1  # it is no other shape that was looked for


def test_an_interrupted_training_goes_on_to_the_same_bits(folder, monkeypatch):
    cut_small(monkeypatch)
    run = open_run(folder, "resumed")
    train = run.get_section("train", TrainOptions).model_copy(update={"epochs": 1})
    for part in (replace(run, sections={**run.sections, "train": train}), run):
        train_run(part)
    (weights, _), (expected, _) = (read_outcome(folder, name) for name in ("resumed", "1"))
    for name, weight in expected.items():
        np.testing.assert_array_equal(weights[name], weight)


def test_structures_are_divided_by_the_link_of_the_section(folder, monkeypatch):
    links = []

    def choose(*arguments):
        links.append(arguments[-1])
        return owners.choose_owners(*arguments)

    monkeypatch.setattr(division, "choose_owners", choose)
    run = open_run(folder, "linked")
    train = run.get_section("train", TrainOptions).model_copy(update={"epochs": 1})
    train_run(replace(run, sections={**run.sections, "train": train}))
    # Of each structure once: features of degrees 0 to 4 on three channels, in double precision.
    assert links == 3 * [Link(**LINK, bytes_per_node=8 * 25 * 3)]


@pytest.mark.parametrize("n_ranks", ["1", "2", "4"])
def test_parts_are_evaluated_as_the_whole(folder, n_ranks):
    """Levels, errors by distance and by group, and each predicted element in its place."""
    (metrics, columns), (expected, elements) = (
        read_evaluation(open_run(folder, results)) for results in (n_ranks, "serial")
    )
    assert len(elements["hamiltonian_predicted"]) > 10_000
    assert columns.keys() == elements.keys()
    for name, values in elements.items():
        if values.dtype.kind in "if":
            np.testing.assert_allclose(columns[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    for split in metrics["matrices"]["splits"].values():
        if n_ranks == "4":  # four ranks solve no levels, see `run_rank`
            assert split["without_levels"] == 1
            split["without_levels"] = 0
        else:
            assert split["levels"]["model"]["all"]["mae"] > 0
    expected = flatten_tree(expected)
    if n_ranks == "4":
        expected = {path: value for path, value in expected.items() if "/levels/" not in path}
    assert flatten_tree(metrics) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("n_ranks", ["2", "4"])
def test_matrices_do_not_depend_on_the_number_of_ranks(folder, n_ranks):
    paths = [open_run(folder, n).folder / "matrices/one.h5" for n in (n_ranks, "1")]
    with h5py.File(paths[0]) as ours, h5py.File(paths[1]) as expected:
        np.testing.assert_array_equal(ours["one/atom_pairs"], expected["one/atom_pairs"])
        assert len(expected["one/H"]) > 10_000
        np.testing.assert_allclose(ours["one/H"], expected["one/H"], rtol=0, atol=1e-7)


def read_evaluation(run):
    """Return the metrics, and all that stands beside the predicted elements."""
    content = json.loads(run.metrics.read_text())
    with SampleFile(run.predictions, "predictions") as file:
        columns = {name: file.read_column(name) for name in file.fields}
    return {key: content[key] for key in ("splits", "matrices")}, columns


def flatten_tree(content, path=""):
    """Return the numbers of a tree by their paths."""
    result = {}
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(value, (dict, list)):
            result |= flatten_tree(value, f"{path}/{key}")
        elif isinstance(value, int | float):
            result[f"{path}/{key}"] = value
    return result


def test_models_are_checked_by_few_atoms(folder):
    one = load_model(open_run(folder, "1").model)["probe"]
    assert set(one) == {"batch", "outputs"}
    assert not one["batch"]["pbc"].any()
    assert not one["batch"]["edge_shift"].any()
    assert len(one["batch"]["positions"]) == 12


def test_more_ranks_than_atoms_are_refused(folder):
    run = open_run(folder, "1")
    ranks = Ranks(World("torchrun", 0, 1), torch.device("cpu"))
    task = build_task(run)
    divided = division.DividedSplits(run, task, ranks)
    divided._ranks = Ranks(World("torchrun", 0, 13), torch.device("cpu"))
    with pytest.raises(ValueError, match=r"split train: .* has 12 atoms.* 13 ranks; start"):
        divided.divide("train", task.samples("train"))


def test_times_of_ranks_are_refused(folder):
    run = open_run(folder, "refused")
    train = run.get_section("train", TrainOptions).model_copy(update={"profile": True})
    with pytest.raises(ValueError, match=r"set train\.profile to false"):
        train_run(replace(run, sections={**run.sections, "train": train}))


if __name__ == "__main__":
    place, *free = sys.argv[1:]
    for n, own_ports in ((2, free[:N_PORTS]), (4, free[N_PORTS:])):
        if fork(lambda rank, n=n, p=own_ports: run_rank(rank, Path(place), n, p), n):
            sys.exit(1)
