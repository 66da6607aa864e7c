"""`pipeline-core driver` on models of Lennard-Jones pairs; oracles: ASE's server and potential."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ase.io
import pytest
from ase.calculators.socketio import SocketIOCalculator

from core.evaluation.argon import REFERENCES, SCALE, make_run, make_structures
from core.inference.test_committee import SCALES, make_committee
from fake_packages import install
from pipeline_core.potential import Potential


@pytest.fixture
def argon(folder):
    """A structure, and its file; the plugin of its model is installed."""
    install(folder / "site", "argon", "from core.evaluation.argon import model, task")
    atoms = make_structures(1)[0]
    ase.io.write("start.traj", atoms)
    return atoms


def compute_energy(atoms, scale):
    return scale * atoms.get_potential_energy() + sum(REFERENCES[s] for s in atoms.symbols)


def ask(call, model, atoms, *words):
    """Return what the command said, and the energy that a server of ASE got from it."""
    name = f"pipeline-{uuid4().hex[:12]}"
    address = ("--address", f"unix:{name}")
    with ThreadPoolExecutor(1) as pool:
        with SocketIOCalculator(unixsocket=name, timeout=60) as server:
            driver = pool.submit(call, "driver", model, "start.traj", *address, *words)
            moved = atoms.copy()
            moved.calc = server
            energy = moved.get_potential_energy()
        return driver.result(), energy


@pytest.mark.parametrize("words", [(), ("--double",)])
def test_a_server_gets_the_energy_of_ase(argon, folder, call, words):
    result, energy = ask(call, make_run(folder).model.parent, argon, *words)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("calculated 1 structure for unix:pipeline-")
    assert energy == pytest.approx(compute_energy(argon, SCALE), abs=1e-4)


def test_a_model_is_compiled_where_that_is_asked(argon, folder, call, monkeypatch):
    asked = []
    monkeypatch.setattr(Potential, "compile_inference", lambda self: asked.append(0) or self)
    result, energy = ask(call, make_run(folder).model.parent, argon, "--compile")
    assert result.exit_code == 0, result.output
    assert asked
    assert energy == pytest.approx(compute_energy(argon, SCALE), abs=1e-4)


@pytest.mark.slow
def test_a_server_gets_the_mean_of_a_committee(argon, folder, call):
    run = make_committee(folder)
    result, energy = ask(call, run.folder, argon)
    assert result.exit_code == 0, result.output
    mean = sum(SCALES) / len(SCALES)
    assert energy == pytest.approx(compute_energy(argon, mean), abs=1e-4)
    said = call("driver", run.folder, "start.traj", "--double", "--address", "unix:nobody").stderr
    assert "a committee is calibrated in the precision of its training" in said
    said = call("driver", run.folder, "start.traj", "--compile", "--address", "unix:nobody").stderr
    assert "leave --double and --compile out" in said


def test_what_cannot_be_is_refused_before_a_server_is_looked_for(argon, folder, call):
    model = make_run(folder).model

    def fail(*words):
        result = call("driver", model, *words)
        assert result.exit_code == 1
        return result.stderr

    assert "nothing.xyz: ASE cannot read a structure from it" in fail("nothing.xyz")
    assert "address 'nowhere': expected HOST:PORT" in fail("start.traj", "--address", "nowhere")
    said = fail("start.traj", "--head", "pbe")
    assert "the model has one head, without a name, and no 'pbe'; leave the head out" in said
    assert "are not compiled; use it without" in fail("start.traj", "--compile")
    words = ("start.traj", "--address", "unix:nobody", "--wait", "0")
    assert "unix:nobody: no server answers" in fail(*words)


def test_several_ranks_are_refused(argon, folder, call, second_rank):
    result = call("driver", make_run(folder).model, "start.traj")
    assert result.exit_code == 1
    assert "one rank answers a server, and there are 2; leave out srun" in result.stderr
