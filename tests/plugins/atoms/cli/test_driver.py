"""`pipeline-core driver` on models of Lennard-Jones pairs; oracles: ASE's server and potential."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ase.io
import pytest
from ase.calculators.socketio import SocketIOCalculator

from fake_packages import install
from pipeline_atoms.potential.potential import Potential
from plugins.atoms.argon import REFERENCES, SCALE, make_run, make_structures
from plugins.atoms.calculators.test_committee import SCALES, make_committee


@pytest.fixture
def argon(folder):
    """A structure, and its file; the plugin of its model is installed."""
    install(folder / "site", "argon", "from plugins.atoms.argon import model, task")
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


@pytest.mark.parametrize("words", [(), ("--double",), ("--compile",)])
def test_a_server_gets_the_energy_of_ase(argon, folder, call, monkeypatch, words):
    asked = []
    monkeypatch.setattr(Potential, "compile_inference", lambda self: asked.append(0) or self)
    result, energy = ask(call, make_run(folder).model.parent, argon, *words)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("calculated 1 structure for unix:pipeline-")
    assert energy == pytest.approx(compute_energy(argon, SCALE), abs=1e-4)
    assert bool(asked) == ("--compile" in words)


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
    assert "remove --double and --compile" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.xyz"], "nothing.xyz: ASE cannot read a structure from it"),
        (["start.traj", "--address", "nowhere"], "address 'nowhere': expected HOST:PORT"),
        (
            ["start.traj", "--head", "pbe"],
            "the model has one head, without a name, and no 'pbe'; leave the head out",
        ),
        (["start.traj", "--compile"], "are not compiled; use it without"),
        (
            ["start.traj", "--address", "unix:nobody", "--wait", "0"],
            "unix:nobody: no server answers",
        ),
    ],
    ids=["file", "address", "head", "compile", "server"],
)
def test_what_cannot_be_is_refused(argon, folder, refuse, words, message):
    refuse(["driver", make_run(folder).model, *words], message)


@pytest.mark.slow
def test_several_ranks_are_refused(argon, folder, refuse, second_rank):
    message = "driver runs on one rank, and there are 2; leave out srun"
    refuse(["driver", make_run(folder).model, "start.traj"], message)
