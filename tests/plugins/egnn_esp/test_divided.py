"""Ranks that divide every structure train, evaluate and infer as one rank does.

Oracle: the engine's trainer on one rank and whole samples, to whose gradients the parts add up.
"""

import json
import os
import socket
import sys
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed import division, domains, owners
from pipeline_core.distributed.pieces import DomainPiece
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.world import World
from pipeline_core.neighbours import find_edges
from pipeline_core.samples import SampleFile
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.division import BySamples
from pipeline_core.training.trainer import Trainer, train_run
from pipeline_egnn_esp import block_reader, samples
from pipeline_kernels.partition import Link
from plugins.egnn_esp import trained
from processes import finish, fork

TRAIN = {"epochs": 4, "batch_size": 2, "optimizer": {"lr": 0.01}, "ema_decay": 0.5}
LINK = {"latency": 5e-5, "bandwidth": 1e9}


def prepared(folder):
    """Writes a project with two frames for training, and all before the training."""
    trained.write_project(folder, train=TRAIN, partition={"parts": "graph", "link": LINK})
    run = trained.opened(folder)
    for stage in ("data", "graph", "partition"):
        trained.call(run, stage)


def opened(folder, results, **sections):
    """Returns the run with results of its own, beside those of the stages before."""
    target = folder / results / "egnn_esp/small/base"
    if not target.exists():
        target.mkdir(parents=True)
        (folder / results / "datasets").symlink_to(folder / "results/datasets")
        for path in (folder / "results/egnn_esp/small/base").glob("*.h5"):
            (target / path.name).symlink_to(path)
    run = trained.opened(folder, {"structures": [{"name": "one"}]}, results)
    return replace(run, sections={**run.sections, **sections})


WHOLE = PartitionOptions(parts="samples")


class Sizes:
    """Notes how large a part of a structure the arrays of this rank are."""

    def __init__(self):
        self.largest = {}

    def note(self, name, n_rows, n_whole):
        self.largest[name] = max(self.largest.get(name, 0), n_rows / n_whole)

    def find_edges(self, structure, cutoff, receivers):
        edges = find_edges(structure, cutoff, receivers)
        n_whole = len(find_edges(structure, cutoff, np.arange(len(structure.positions)))[0])
        self.note("edges", len(edges[0]), n_whole)
        return edges

    def read_rows(self, file, name, index, rows):
        """As `SampleFile.read_rows`."""
        result = READ_ROWS(file, name, index, rows)
        kind = file.fields[name].kind
        if kind != "atom":
            self.note(f"read {name}", len(result), file.counts(kind)[index])
        return result

    def read_blocks(self, reader, number, atoms):
        part = READ_BLOCKS(reader, number, atoms)
        self.note("kept blocks", len(part.matrix.block_atoms), reader._data.counts("block")[number])
        return part

    def piece(self, batch, domain):
        whole = find_edges(domain.structure, trained.CUTOFF, np.arange(12))
        for name in ("edge_index", "edge_blocks"):
            self.note(name, len(batch[name]), len(whole[0]))
        self.note("node_blocks", len(batch["node_blocks"]), 12)
        return DomainPiece(batch, domain)


READ_ROWS, READ_BLOCKS = SampleFile.read_rows, block_reader.BlockReader.read_blocks


def _call(instance, function, *arguments):
    return function(instance, *arguments)


def watch():
    """Notes the sizes of all arrays of this process that grow with edges or blocks.

    The frames are small: a few of their edges and blocks count as many.
    """
    sizes = Sizes()
    block_reader._BLOCKS = 32
    samples._PIECE_EDGES = 100
    for module in (domains, owners):
        module.find_edges = sizes.find_edges
    SampleFile.read_rows = partialmethod(_call, sizes.read_rows)
    block_reader.BlockReader.read_blocks = partialmethod(_call, sizes.read_blocks)
    division.DomainPiece = sizes.piece
    return sizes


def run_rank(rank, folder, n_ranks, ports):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    sizes = watch() if n_ranks == 4 else Sizes()
    for stage, port in zip(("train", "evaluate", "infer"), ports, strict=True):
        os.environ["MASTER_PORT"] = port
        trained.call(opened(Path(folder), str(n_ranks)), stage)
        if stage == "train":
            (folder / f"sizes{n_ranks}-{rank}.json").write_text(json.dumps(sizes.largest))


def train_whole(run):
    """Trains by whole samples, whatever the section says."""
    options = run.section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = build_task(run)
        by_samples = BySamples(run, task, options, ranks)
        Trainer(run, task, options, ranks, by_samples).fit()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of whole samples, and of parts on one, two and four ranks."""
    path = tmp_path_factory.mktemp("parts")
    prepared(path)
    train_whole(opened(path, "serial"))
    for stage in ("train", "evaluate", "infer"):
        trained.call(opened(path, "1"), stage)
    for n_ranks in (2, 4):
        finish([__file__, path, n_ranks, *(free_port() for _ in range(3))])
    return path


def outcome(folder, results):
    run = opened(folder, results)
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    return load_model(run.model)["weights"], lines


@pytest.mark.parametrize("results", ["1", "2", "4"])
def test_parts_follow_the_trajectory_of_the_whole(folder, results):
    (weights, lines), (expected, reference_lines) = (
        outcome(folder, name) for name in (results, "serial")
    )
    assert len(lines) == TRAIN["epochs"]
    assert weights.keys() == expected.keys()
    for line, other in zip(lines, reference_lines, strict=True):
        for split in ("train", "val"):
            for name, value in other[split].items():
                assert line[split][name] == pytest.approx(value, rel=1e-8)
        assert line["mae"] == pytest.approx(other["mae"], rel=1e-8)
    for name, weight in expected.items():
        # Where data are few, what tables say follows from how sums were rounded.
        if results != "4" or not name.startswith(("two_centre", "sizes")):
            np.testing.assert_allclose(weights[name], weight, rtol=1e-8, atol=1e-8, err_msg=name)


def test_no_rank_of_four_holds_a_structure(folder):
    """Neither its graph nor its labels, also not while tables are fitted and owners chosen."""
    for rank in range(4):
        sizes = json.loads((folder / f"sizes4-{rank}.json").read_text())
        assert {"edges", "kept blocks", "read hamiltonian", "edge_blocks"} <= sizes.keys()
        assert max(sizes.values()) < 0.6, sizes
        assert sizes["edge_index"] < 0.3


def test_an_interrupted_training_goes_on_to_the_same_bits(folder):
    run = opened(folder, "resumed")
    train = run.section("train", TrainOptions).model_copy(update={"epochs": 2})
    for part in (replace(run, sections={**run.sections, "train": train}), run):
        train_run(part)
    (weights, _), (expected, _) = (outcome(folder, name) for name in ("resumed", "1"))
    for name, weight in expected.items():
        np.testing.assert_array_equal(weights[name], weight)


def test_structures_are_divided_by_the_link_of_the_section(folder, monkeypatch):
    links = []

    def choose(*arguments):
        links.append(arguments[-1])
        return owners.choose_owners(*arguments)

    monkeypatch.setattr(division, "choose_owners", choose)
    run = opened(folder, "linked")
    train = run.section("train", TrainOptions).model_copy(update={"epochs": 1})
    train_run(replace(run, sections={**run.sections, "train": train}))
    # Of each structure once: features of degrees 0 to 4 on three channels, in double precision.
    assert links == 3 * [Link(**LINK, bytes_per_node=8 * 25 * 3)]


def test_parts_are_evaluated_as_the_whole(folder):
    """Levels, errors by distance and each predicted element, of one model and of others alike."""
    run = opened(folder, "1")
    actual = {n: evaluated(opened(folder, n)) for n in ("1", "2", "4")}
    trained.call(opened(folder, "1", partition=WHOLE), "evaluate")
    expected, elements = evaluated(run)
    assert len(elements) > 10_000
    for metrics, own in actual.values():
        np.testing.assert_allclose(own, elements, rtol=1e-5, atol=1e-6)
        assert flat(metrics) == pytest.approx(flat(expected), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("n_ranks", ["2", "4"])
def test_matrices_do_not_depend_on_the_number_of_ranks(folder, n_ranks):
    paths = [opened(folder, n).folder / "matrices/one.h5" for n in (n_ranks, "1")]
    with h5py.File(paths[0]) as ours, h5py.File(paths[1]) as expected:
        np.testing.assert_array_equal(ours["one/atom_pairs"], expected["one/atom_pairs"])
        assert len(expected["one/H"]) > 10_000
        np.testing.assert_allclose(ours["one/H"], expected["one/H"], rtol=0, atol=1e-7)


def evaluated(run):
    """Returns the metrics of matrices, and all predicted elements."""
    metrics = json.loads(run.metrics.read_text())["matrices"]["splits"]
    with SampleFile(run.predictions, "predictions", ["hamiltonian_predicted"]) as file:
        rows = [file.read(number)["hamiltonian_predicted"] for number in range(len(file))]
    return metrics, np.concatenate(rows)


def flat(content, path=""):
    """Returns the numbers of a tree by their paths."""
    result = {}
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(value, (dict, list)):
            result |= flat(value, f"{path}/{key}")
        elif value is not None:
            result[f"{path}/{key}"] = value
    return result


def test_models_are_checked_by_few_atoms(folder):
    one = load_model(opened(folder, "1").model)["probe"]
    assert set(one) == {"batch", "outputs"}
    assert not one["batch"]["pbc"].any()
    assert not one["batch"]["edge_shift"].any()
    assert len(one["batch"]["positions"]) == 12


def test_more_ranks_than_atoms_are_refused(folder):
    run = opened(folder, "1")
    ranks = Ranks(World("torchrun", 0, 1), torch.device("cpu"))
    task = build_task(run)
    divided = division.DividedSplits(run, task, ranks)
    divided._ranks = Ranks(World("torchrun", 0, 13), torch.device("cpu"))
    with pytest.raises(ValueError, match=r"split train: .* has 12 atoms.* 13 ranks; start"):
        divided.divide("train", task.samples("train"))


def test_times_of_ranks_are_refused(folder):
    run = opened(folder, "refused")
    train = run.section("train", TrainOptions).model_copy(update={"profile": True})
    with pytest.raises(ValueError, match=r"set train\.profile to false"):
        train_run(replace(run, sections={**run.sections, "train": train}))


if __name__ == "__main__":
    place, number, *ports = sys.argv[1:]
    sys.exit(fork(lambda rank: run_rank(rank, Path(place), int(number), ports), int(number)))
