"""CHGNet and MACE in other programs; the oracle is ASE's dynamics with the calculator of each.

i-PI is tested everywhere, LAMMPS and torch-sim where they are installed.
"""

import ase.build
import ase.io
import numpy as np
import pytest
import torch
from ase import units
from typer.testing import CliRunner

from core.engines.ipi_runs import read_energies, run_ipi
from core.engines.systems import STEPS, heat, run_with_ase
from pipeline_core.calculator import load_calculator
from pipeline_core.cli import app
from plugins.test_predict import unpack
from tiers import exhaustive

TIMESTEP = 2.0  # fs

pytestmark = [pytest.mark.slow, exhaustive]


def make_alloy():
    """Copper and silver, close and hot: networks that were trained for a second pull little."""
    atoms = ase.build.bulk("Cu", "fcc", a=2.8, cubic=True)
    atoms.symbols = "CuAgCuAg"
    atoms.rattle(0.1, seed=3)
    heat(atoms, 2000)
    return atoms


@pytest.fixture(params=["chgnet", "mace"])
def model(request, tmp_path):
    return unpack(request.param, tmp_path) / "model.pt"


@pytest.fixture
def calculator(model):
    return load_calculator(model, dtype=torch.float64)


@pytest.fixture
def expected(model):
    """Potential energies of 50 steps with ASE, eV."""
    calculator, atoms = load_calculator(model, dtype=torch.float64), make_alloy()
    energies, _ = run_with_ase(atoms, calculator, STEPS, TIMESTEP)
    atoms.positions += STEPS * TIMESTEP * units.fs * atoms.get_velocities()
    atoms.calc = calculator
    assert abs(atoms.get_potential_energy() - energies[-1]) > 1e-5  # forces matter
    return energies


def test_lammps(calculator, expected, tmp_path):
    from core.engines.lammps_runs import list_energies, run_lammps

    with run_lammps(make_alloy(), tmp_path, calculator, ["Ag", "Cu"]) as lmp:
        energies = list_energies(lmp, STEPS, TIMESTEP / 1000)
    assert np.allclose(energies, expected, rtol=0, atol=1e-6)


def test_ipi_by_the_command(model, expected, tmp_path):
    atoms, file = make_alloy(), tmp_path / "start.xyz"
    ase.io.write(file, atoms)
    with run_ipi(atoms, tmp_path, STEPS, TIMESTEP) as address:
        words = ["driver", model, file, "--address", address, "--double", "--device", "cpu"]
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == 0, result.output
    assert result.output == f"calculated {STEPS + 1} structures for {address}\n"
    assert np.allclose(read_energies(tmp_path), expected, rtol=0, atol=1e-6)


def test_torch_sim(calculator, expected):
    pytest.importorskip("torch_sim", reason="needs the extra `torch-sim`", exc_type=ImportError)
    from core.engines.torch_sim_runs import list_energies
    from pipeline_core.engines.torch_sim import TorchSimModel

    energies = list_energies(TorchSimModel(calculator), [make_alloy()], STEPS, TIMESTEP)
    assert np.allclose(energies[:, 0], expected, rtol=0, atol=1e-6)
