"""Our forces by i-PI's protocol; oracles: i-PI, ASE's server, and ASE's Lennard-Jones potential."""

import socket
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ase.build
import ase.io
import numpy as np
import pytest
from ase.calculators.socketio import SocketIOCalculator

from pipeline_atoms.engines.ipi import answer_server, parse_address
from plugins.atoms.engines.ipi_runs import read_energies, read_pressures, run_ipi
from plugins.atoms.engines.systems import STEPS, TIMESTEP, make_moving_argon, run_with_ase
from plugins.atoms.lennard_jones import make_ase_lennard_jones, make_calculator
from tiers import exhaustive


@pytest.fixture
def name():
    return f"pipeline-{uuid4().hex[:12]}"


def make_standing_argon():
    """Moving argon with a cell as i-PI wants it."""
    atoms = make_moving_argon()
    velocities = atoms.get_velocities()
    cell, Q = atoms.cell.standard_form()
    atoms.set_cell(cell, scale_atoms=True)
    atoms.set_velocities(velocities @ Q.T)
    return atoms


@exhaustive
def test_energies_and_pressures_in_ipi_are_those_of_ase(tmp_path):
    atoms = make_standing_argon()
    expected, end = run_with_ase(atoms, make_ase_lennard_jones())
    with run_ipi(atoms, tmp_path, STEPS, TIMESTEP) as address:
        count = answer_server(address, atoms.copy(), make_calculator())
    assert count == STEPS + 1
    assert np.ptp(expected) > 1e-3  # it moves
    assert np.allclose(read_energies(tmp_path), expected, rtol=0, atol=1e-6)
    pressure = -end.get_stress(include_ideal_gas=True)[:3].mean()
    assert read_pressures(tmp_path)[-1] == pytest.approx(pressure, rel=1e-5)


def serve_with_ase(name, atoms, template, calculator, ask):
    """Let ASE's server ask a driver; return what `ask` returns and how often it asked."""
    with ThreadPoolExecutor(1) as pool:
        with SocketIOCalculator(unixsocket=name, timeout=30) as server:
            count = pool.submit(answer_server, f"unix:{name}", template, calculator)
            atoms.calc = server
            result = ask(atoms)
        return result, count.result()


@pytest.mark.parametrize("kind", ["crystal", "cluster"])
def test_a_server_of_ase_gets_energy_forces_and_stress(kind, name):
    """A cell that the server changes is followed."""
    atoms = make_moving_argon()
    atoms.pbc = kind == "crystal"

    def ask(atoms):
        results = [atoms.get_potential_energy(), atoms.get_forces()]
        atoms.rattle(0.1, seed=1)
        stress = atoms.get_stress() if atoms.pbc.all() else np.zeros(6)
        results += [atoms.get_potential_energy(), stress]
        atoms.set_cell(1.02 * atoms.cell[:], scale_atoms=True)
        return [*results, atoms.get_stress() if atoms.pbc.all() else atoms.get_forces()]

    expected = atoms.copy()
    expected.calc = make_ase_lennard_jones()
    shown, count = serve_with_ase(name, atoms, atoms.copy(), make_calculator(), ask)
    assert count == 3
    for ours, theirs in zip(shown, ask(expected), strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (ase.build.bulk("Ar", "fcc", 5.3), r"the server has 4 atoms and the structure 1 \(Ar\)"),
        (ase.build.bulk("Kr", "fcc", 5.3, cubic=True), "the model was trained on Ar, not on Kr"),
    ],
)
def test_what_does_not_fit_is_refused(template, message, name):
    def ask(atoms):
        with pytest.raises(OSError):  # noqa: PT011  # the driver has left
            atoms.get_forces()

    with pytest.raises(ValueError, match=message):
        serve_with_ase(name, make_moving_argon(), template, make_calculator(), ask)


def test_no_server_and_messages_of_no_protocol_are_named(name):
    with pytest.raises(OSError, match=f"unix:{name}: no server answers .*start i-PI first"):
        answer_server(f"unix:{name}", make_moving_argon(), make_calculator(), wait=0)
    with socket.create_server(("localhost", 0)) as server, ThreadPoolExecutor(1) as pool:
        address = f"localhost:{server.getsockname()[1]}"
        driver = pool.submit(answer_server, address, make_moving_argon(), make_calculator())
        connection, _ = server.accept()
        connection.sendall(b"GET / HTTP/1")
        with pytest.raises(
            ValueError, match="the server sent 'GET / HTTP/1', not a message of i-PI"
        ):
            driver.result()
        connection.close()


def test_addresses():
    assert parse_address("localhost:31415") == (socket.AF_INET, ("localhost", 31415))
    assert parse_address("unix:driver") == (socket.AF_UNIX, "/tmp/ipi_driver")  # noqa: S108
    assert parse_address("unix:/run/me/driver") == (socket.AF_UNIX, "/run/me/driver")
    for wrong in ("localhost", "31415", "unix:", "host:port"):
        with pytest.raises(ValueError, match="expected HOST:PORT, such as"):
            parse_address(wrong)
