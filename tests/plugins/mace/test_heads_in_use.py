"""A model with two heads, used by the commands and in other programs.

Oracle: its calculator, whose heads `test_heads` compares with exact energies.
"""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ase.io
import numpy as np
import pytest
from ase.calculators.socketio import SocketIOCalculator
from typer.testing import CliRunner

from pipeline_core.calculator import load_calculator
from pipeline_core.cli import app
from pipeline_core.task import build_task
from pipeline_core.testing.projects import prepare
from pipeline_core.training.checkpoint import write_model
from plugins.mace.two_levels import HEADS, LOW, write_levels

TRAIN = {"loss": {"energy": {}, "forces": {}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Random weights, with scale, shift and energies of free atoms of each level."""
    run = write_levels(tmp_path_factory.mktemp("heads"), train=TRAIN).run("levels")
    prepare(run)
    task = build_task(run)
    run.model.parent.mkdir(parents=True, exist_ok=True)
    weights, facts = task.module.state_dict(), run.make_provenance("train")
    write_model(run, task, weights, ("train", np.arange(1)), facts)
    return run


@pytest.fixture
def start(tmp_path):
    """A file with a structure."""
    path = tmp_path / "start.traj"
    ase.io.write(path, LOW[0])
    return path


def call(*words):
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def compute_energy(run, head):
    return load_calculator(run.model, head=head).get_potential_energy(LOW[0])


def test_predict_takes_the_head_that_is_named(run, start, tmp_path):
    for head in HEADS:
        output = tmp_path / f"{head}.xyz"
        result = call("predict", run.model, start, "--head", head, "--output", output)
        assert result.exit_code == 0, result.output
        energy = ase.io.read(output).get_potential_energy()
        assert energy == pytest.approx(compute_energy(run, head), abs=1e-6)
    assert abs(compute_energy(run, "low") - compute_energy(run, "high")) > 1.0


def test_a_server_gets_the_energy_of_the_head_that_is_named(run, start):
    name = f"pipeline-{uuid4().hex[:12]}"
    words = ("driver", run.model, start, "--head", "high", "--address", f"unix:{name}")
    with ThreadPoolExecutor(1) as pool:
        with SocketIOCalculator(unixsocket=name, timeout=60) as server:
            driver = pool.submit(call, *words)
            atoms = LOW[0].copy()
            atoms.calc = server
            energy = atoms.get_potential_energy()
        assert driver.result().exit_code == 0, driver.result().output
    assert energy == pytest.approx(compute_energy(run, "high"), abs=1e-4)


def test_torch_sim_has_the_energy_of_the_head_of_the_calculator(run):
    pytest.importorskip("torch_sim", reason="needs the extra `torch-sim`", exc_type=ImportError)
    from core.engines.torch_sim_runs import make_state
    from pipeline_core.engines.torch_sim import TorchSimModel

    model = TorchSimModel(load_calculator(run.model, head="high"))
    energy = float(model(make_state([LOW[0]]))["energy"])
    assert energy == pytest.approx(compute_energy(run, "high"), abs=1e-4)


@pytest.mark.parametrize("command", ["predict", "driver"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [((), "say which is to be used (--head"), (("--head", "middle"), "and no 'middle'")],
)
def test_a_head_that_is_missing_or_unknown_is_refused(run, start, command, words, problem):
    result = call(command, run.model, start, *words)
    assert result.exit_code == 1
    assert f"the model has the heads low, high, {problem}" in result.stderr


@pytest.mark.parametrize(
    ("infer", "problem"),
    [
        ({}, "heads low, high, say which is to be used"),
        ({"head": "middle"}, "heads low, high, and no 'middle'"),
        ({"head": "high"}, None),
    ],
)
def test_an_experiment_that_uses_the_model_names_a_head(tmp_path, infer, problem):
    infer = {**infer, "md": [{"name": "short", "steps": 5}]}
    project = write_levels(tmp_path, train=TRAIN, infer=infer)
    if problem is None:
        assert project.run("levels").sections["infer"].head == "high"
        return
    with pytest.raises(
        ValueError, match=rf"levels\.yaml:\d+: infer\.head: the model has the {problem}"
    ):
        project.run("levels")
