"""Ranks that divide every structure train, evaluate and infer as one rank does.

Oracle: the engine's trainer on one rank and whole samples, to whose gradients the parts add up.
"""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from pipeline_atoms.domains import division, owners
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.world import World
from pipeline_core.task import build_task
from pipeline_core.training.model_file import load_model
from pipeline_core.training.trainer import train_run
from pipeline_egnn_esp.evaluation.own_blocks import OwnPredictor
from plugins.egnn_esp import trained
from plugins.egnn_esp.divided import (
    STAGES,
    TRAIN,
    WHOLE,
    compute_gradients,
    cut_small,
    open_run,
    prepare,
    run_ranks,
    train_whole,
)
from tiers import exhaustive, run_first

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of whole samples, and of parts on one rank."""
    path = tmp_path_factory.mktemp("parts")
    prepare(path)
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        train_whole(open_run(path, "serial"))
        trained.call(open_run(path, "serial", partition=WHOLE), "evaluate")
        for stage in STAGES:
            trained.call(open_run(path, "1"), stage)
    return path


@pytest.fixture(params=run_first([1, 2, 4], 1, 2))
def n_ranks(request, folder):
    """A number of ranks, of which there are results."""
    if request.param > 1:
        run_ranks(folder, request.param)
    return request.param


def read_outcome(folder, results):
    run = open_run(folder, results)
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    return load_model(run.model)["weights"], lines


def test_parts_follow_the_trajectory_of_the_whole(folder, n_ranks):
    weights, lines = read_outcome(folder, str(n_ranks))
    expected, reference_lines = read_outcome(folder, "serial")
    assert len(lines) == TRAIN["epochs"]
    assert weights.keys() == expected.keys()
    for line, other in zip(lines, reference_lines, strict=True):
        for split in ("train", "val"):
            for name, value in other[split].items():
                assert line[split][name] == pytest.approx(value, rel=1e-8)
        assert line["mae"] == pytest.approx(other["mae"], rel=1e-8)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=1e-8, atol=1e-8, err_msg=name)


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


@exhaustive
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
    run_ranks(folder, 4)
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
    messages = []

    def choose(*arguments):
        messages.append(arguments[4])
        return owners.choose_owners(*arguments)

    monkeypatch.setattr(division, "choose_owners", choose)
    run = open_run(folder, "linked")
    task = build_task(run)
    ranks = Ranks(World("torchrun", 0, 1), torch.device("cpu"))
    division.DividedSplits(run, task, ranks).divide("train", task.samples("train"))
    # Of each structure once: features of degrees 0 to 4 on three channels, in double precision.
    assert messages == len(task.samples("train")) * [pytest.approx(5e-5 * 1e9 / (8 * 25 * 3))]


def test_parts_are_evaluated_as_the_whole(folder, n_ranks):
    """Levels, errors by distance and by group, and each predicted element in its place."""
    (metrics, columns), (expected, elements) = (
        read_evaluation(open_run(folder, str(name))) for name in (n_ranks, "serial")
    )
    assert len(elements["hamiltonian_predicted"]) > 10_000
    assert columns.keys() == elements.keys()
    for name, values in elements.items():
        if values.dtype.kind in "if":
            np.testing.assert_allclose(columns[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    for split in metrics["matrices"]["splits"].values():
        if n_ranks == 4:  # four ranks solve no levels, see `run_rank`
            assert split["without_levels"] == 1
            split["without_levels"] = 0
        else:
            assert split["levels"]["model"]["all"]["mae"] > 0
    expected = flatten_tree(expected)
    if n_ranks == 4:
        expected = {path: value for path, value in expected.items() if "/levels/" not in path}
    assert flatten_tree(metrics) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_want_of_memory_of_a_part_is_named_with_the_cure(folder, monkeypatch):
    def run_out(self, samples, index):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(OwnPredictor, "predict", run_out)
    with pytest.raises(ValueError, match=r"of the sample 0 .* or lower infer\.work_bytes"):
        trained.call(open_run(folder, "1"), "evaluate")


@pytest.mark.parametrize("n_ranks", run_first([2, 4]), indirect=True)
def test_matrices_do_not_depend_on_the_number_of_ranks(folder, n_ranks):
    paths = [open_run(folder, str(n)).folder / "matrices/one.h5" for n in (n_ranks, 1)]
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
