"""Networks from files of mace-torch, and back.

Oracle: what mace-torch 0.3.16 predicts with them, recorded by `foundations.py`. The files are those
of `stand_in.py`; where the environment of the peers exists mace-torch itself writes and reads them.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from forked_ranks import run_on_ranks
from pipeline_atoms.calculators.loading import load_calculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_core.testing.projects import call, write_project
from pipeline_mace.conversion.export import write_peer
from pipeline_mace.conversion.foreign import StartingMACE, describe, read_peer
from pipeline_mace.model.network import MACE, Facts
from plugins.mace.conftest import run_stand_in
from plugins.mace.recorded import read_structures
from tiers import exhaustive, run_first

pytestmark = pytest.mark.slow  # processes write the files

HERE = Path(__file__).parents[1]
PEERS = HERE.parents[2] / ".venv-peers/bin/python"
HEADS = {name: ["Default"] for name in ("off", "mp", "density", "agnesi")}
HEADS["two_heads"] = ["pt_head", "Default"]
CASES = [(name, head) for name, heads in HEADS.items() for head in heads]


def check(module, structures, expected, head, tolerance, number=None):
    """Compare with predictions by their names."""
    dtype = next(module.parameters()).dtype
    batch = build_batch(structures, GraphOptions(cutoff=4.0), dtype)
    if number is not None:
        batch["head"] = torch.tensor([number] * len(structures))
    with torch.no_grad():
        predicted = module(batch)
    for name in ("energy", "forces", "stress"):
        reference = torch.from_numpy(expected[f"{head}/{name}"]).double()
        scale = max(1.0, float(reference.abs().max()))
        error = (predicted[name].double() - reference).abs().max() / scale
        assert error < tolerance, (name, float(error))


def select(recorded, name):
    return {k.removeprefix(f"{name}/"): x for k, x in recorded.items() if k.startswith(f"{name}/")}


@pytest.mark.parametrize(("name", "head"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [
    (torch.float64, 1e-10), pytest.param(torch.float32, 1e-5, marks=exhaustive),
])  # fmt: skip
def test_networks_of_published_kinds(peer_files, recorded, name, head, dtype, tolerance):
    heads = [head] if name == "two_heads" else []
    module = read_peer(peer_files / f"{name}.model", heads)
    assert next(module.parameters()).dtype == torch.float64
    check(module.to(dtype), read_structures(recorded), select(recorded, name), head, tolerance)


def test_heads_keep_the_order_in_which_they_are_named(peer_files, recorded):
    module = read_peer(peer_files / "two_heads.model", ["Default", "pt_head"])
    expected, structures = select(recorded, "two_heads"), read_structures(recorded)
    check(module, structures, expected, "Default", 1e-10)
    check(module, structures, expected, "pt_head", 1e-10, number=1)
    assert [float(one[8]) for one in module.list_references()] == [-4.5, -1.0]


def test_the_only_head_may_have_another_name(peer_files):
    assert read_peer(peer_files / "mp.model", ["pbe"]).options.heads == ["pbe"]


@pytest.mark.parametrize(("heads", "message"), [
    ([], "has the heads pt_head, Default.*--head Default"),
    (["spice"], "has no head 'spice', only pt_head, Default"),
])  # fmt: skip
def test_the_head_must_be_known(peer_files, heads, message):
    with pytest.raises(ValueError, match=rf"two_heads\.model: {message}"):
        read_peer(peer_files / "two_heads.model", heads)


@pytest.mark.parametrize("name", run_first(["two_heads", "mp"]))
def test_what_is_written_has_cutoff_energies_and_weights(peer_files, recorded, name, tmp_path):
    """The state of mace-torch's own network says which weights there are, and of which shapes."""
    module = read_peer(peer_files / f"{name}.model", HEADS[name]).float()
    write_peer(module, tmp_path / "ours.model")
    found = json.loads(run_stand_in("read", tmp_path / "ours.model"))
    arguments, state = found["arguments"], select(recorded, f"{name}/state")
    assert (arguments["r_max"], arguments["atomic_numbers"]) == (4.0, [8, 13, 29])
    energies = np.atleast_2d(state["atomic_energies_fn.atomic_energies"])
    assert arguments["atomic_energies"] == energies.tolist()
    assert arguments["interaction_cls"].endswith("ResidualInteractionBlock")
    assert arguments["hidden_irreps"] == "4x0e+4x1o"
    for key, (dtype, *shape) in found["weights"].items():
        assert dtype == "torch.float32"
        if ".contractions." not in key:  # those are for all couplings
            assert np.prod(shape) == state[key].size, key
    weights = {key for key in state if key.endswith("weight") and ".conv_tp.weight" not in key}
    assert weights <= set(found["weights"])


CHANGES = [
    ({"heads": ["a"], "kind": "MACE"}, "the network is a MACE; take a ScaleShiftMACE"),
    ({"interaction": "RealAgnosticResidualNonLinearInteractionBlock"}, "has interactions of the"),
    ({"average": 14.0}, "avg_num_neighbors"),
    ({"without": "U_matrix"}, "has no couplings"),
    ({"without": "linear_1"}, "has no hidden layer"),
    ({"without": "r_max"}, "r_max: not in the file"),
    ({"without": "conv_tp_weights"}, "conv_tp_weights.layer0.weight: not in the file"),
    ({"gate": True}, "the network needs gate relu, which ours lacks"),
    ({"cut": "node_embedding.linear.weight"}, "not hold a whole network of mace-torch"),
    ({"with": "joint_embedding.project.weight"}, "embeddings of further quantities"),
]  # fmt: skip


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Files of networks with these changes, which one process writes."""
    folder = tmp_path_factory.mktemp("others")
    run_stand_in("change", folder, json.dumps([change for change, _ in CHANGES]))
    return folder


@pytest.mark.parametrize("number", range(len(CHANGES)), ids=[str(one) for one, _ in CHANGES])
def test_what_ours_does_not_do_is_refused_by_name(others, number):
    with pytest.raises(ValueError, match=rf"{number}\.model: .*{CHANGES[number][1]}"):
        read_peer(others / f"{number}.model")


@pytest.mark.parametrize("kind", run_first(["file", "model"]))
def test_a_training_starts_from_a_published_network(peer_files, tmp_path, kind):
    """After no epoch it is the network of the file, with its elements and neighbours."""
    path = peer_files / "alloys.model"
    published = read_peer(path)
    options = {**describe(published)["options"], "heads": ["default"]}
    start = f"published:{path}"
    if kind == "model":
        start = str(tmp_path / "model.pt")
        done = run_on_ranks("pipeline_core.cli", ["load", path, "--output", start], 1)
        assert done.returncode == 0, done.stderr
    train = {"start_from": start, "epochs": 0, "precision": "64-true"}
    sections = {"model": options, "graph": {"cutoff": 4.0}, "train": train}
    run = write_project(tmp_path, "mace", sections).run("mace/conformance")
    for stage in ("data", "graph", "partition", "train"):
        call(run, stage)
    calculator = load_calculator(run.model)
    atoms = Atoms("Al2CuAg", np.diag([0.0, 2.4, 4.9, 7.1])[:, [1, 2, 3]], cell=[9, 9, 9], pbc=True)
    batch = build_batch([atoms], GraphOptions(cutoff=4.0), torch.float64)
    expected = published(batch)["energy"].item()
    assert calculator.get_potential_energy(atoms) == pytest.approx(expected, rel=1e-9)


def test_an_experiment_must_have_the_options_of_the_file(peer_files):
    path = peer_files / "mp.model"
    options = read_peer(path).options.model_copy(update={"lmax": 2})
    graph = GraphOptions(cutoff=5.0)
    module = StartingMACE(options, Facts(("O", "Al", "Cu"), 17.0), graph)
    needs = r"mp\.model: .*needs model\.lmax: 3, graph\.cutoff: 4\.0$"
    with pytest.raises(ValueError, match=needs):
        module.load_published(str(path))


def run_peer(*arguments):
    command = [PEERS, HERE / "foundations.py", *arguments]
    variables = os.environ | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    subprocess.run(list(map(str, command)), check=True, env=variables, capture_output=True)


@pytest.fixture(scope="module")
def made_by_peer(tmp_path_factory):
    """Networks that mace-torch has written in single precision, and what it predicts with them."""
    if not PEERS.exists():
        pytest.skip("no environment of the peers: make peers")
    folder = tmp_path_factory.mktemp("peer")
    run_peer("make", folder)
    run_peer("predict", folder)
    return folder


@pytest.fixture(scope="module")
def written_back(made_by_peer, tmp_path_factory):
    """The same networks read and written here, and what mace-torch predicts with these."""
    folder = tmp_path_factory.mktemp("back")
    for name, heads in HEADS.items():
        module = read_peer(made_by_peer / f"{name}.model", heads if len(heads) > 1 else ())
        write_peer(module, folder / f"{name}.model")
    run_peer("predict", folder)
    return folder


@exhaustive
@pytest.mark.parametrize("name", HEADS)
def test_mace_torch_and_ours_agree_in_both_directions(made_by_peer, written_back, recorded, name):
    with np.load(made_by_peer / f"{name}.npz") as file:
        theirs = dict(file)
    with np.load(written_back / f"{name}.npz") as file:
        back = dict(file)
    module = read_peer(made_by_peer / f"{name}.model", HEADS[name][:1])
    for key, head in enumerate(HEADS[name]):
        if key:
            module = read_peer(made_by_peer / f"{name}.model", [head])
        own = module.options.heads[0]
        expected = {k.replace(head, own, 1): x for k, x in theirs.items()}
        check(module, read_structures(recorded), expected, own, 1e-5)
    assert theirs.keys() == back.keys()
    for key, values in theirs.items():
        scale = max(1.0, np.abs(values).max())
        assert np.abs(values - back[key]).max() / scale < 1e-5, key


def test_a_network_of_ours_is_described_as_a_training_would(peer_files):
    module = read_peer(peer_files / "density.model")
    metadata = describe(module)
    facts = Facts(("O", "Al", "Cu"), metadata["average_neighbours"])
    again = MACE(module.options, facts, GraphOptions(cutoff=4.0))
    again.double().load_state_dict(module.state_dict())
    assert metadata["graph"]["cutoff"] == module.graph.cutoff == 4.0
