"""Barriers; oracles: the published saddle points of Müller and Brown, and a saddle by symmetry."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT

from pipeline_atoms.config.properties import NebOptions, Relaxation
from pipeline_atoms.properties.barriers import (
    compute_barrier,
    list_hops,
    make_hop,
)
from pipeline_atoms.properties.relaxation import relax_converged

SCALE = 0.01
"""eV of a unit of the energy of Müller and Brown; the unit of length is an Å."""


class MuellerBrown(Calculator):
    """The surface of K. Müller and L. D. Brown, Theor. Chim. Acta 53, 75 (1979), in x and y."""

    implemented_properties = ("energy", "free_energy", "forces")
    terms = np.array(
        [
            [-200, -1, 0, -10, 1, 0],
            [-100, -1, 0, -10, 0, 0.5],
            [-170, -6.5, 11, -6.5, -0.5, 1.5],
            [15, 0.7, 0.6, 0.7, -1, 1],
        ]
    ).T

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        height, a, b, c, x0, y0 = self.terms
        x, y = self.atoms.positions[0, 0] - x0, self.atoms.positions[0, 1] - y0
        parts = SCALE * height * np.exp(a * x**2 + b * x * y + c * y**2)
        slopes = [parts @ (2 * a * x + b * y), parts @ (b * x + 2 * c * y), 0.0]
        energy = float(parts.sum())
        self.results = {"energy": energy, "free_energy": energy, "forces": -np.array([slopes])}


def make_options(**options):
    given = {"name": "a", "structures": ["a.cif"], "relax": {"max_force": 0.01}}
    return NebOptions.model_validate(given | options)


def place(x, y):
    return Atoms("H", positions=[(x, y, 0)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "saddle", "height"),
    [
        (((-0.6, 1.4), (-0.05, 0.45)), (-0.822, 0.624), -40.665 + 146.700),
        (((-0.05, 0.45), (0.6, 0.05)), (0.212, 0.293), -72.249 + 80.768),
    ],
)
def test_saddle_points_of_mueller_and_brown(ends, saddle, height):
    options = make_options(images=7)
    findings = compute_barrier(*(place(*end) for end in ends), MuellerBrown(), options)
    summary = findings.summary
    assert summary["converged"]
    assert summary["barrier_eV"] == pytest.approx(SCALE * height, abs=2e-3)
    highest = findings.arrays["positions"][summary["highest_image"], 0, :2]
    assert highest == pytest.approx(saddle, abs=0.02)


@pytest.mark.slow
def test_both_directions_are_told():
    minima = {"far": -146.700, "near": -80.768}
    findings = compute_barrier(place(-0.05, 0.45), place(-0.6, 1.4), MuellerBrown(), make_options())
    difference = SCALE * (minima["far"] - minima["near"])
    assert findings.summary["energy_difference_eV"] == pytest.approx(difference, abs=1e-3)
    back = findings.summary["barrier_eV"] - findings.summary["reverse_barrier_eV"]
    assert back == pytest.approx(difference, abs=1e-3)


@pytest.mark.slow
def test_the_barrier_of_a_vacancy_is_that_of_the_atom_between_its_places():
    options = make_options(images=3, supercell_length=7.0)
    ((name, compute),) = list_hops(bulk("Cu", cubic=True), EMT(), options)
    summary = compute().summary
    assert name == "Cu 0"
    assert summary["converged"]
    assert summary["energy_difference_eV"] == pytest.approx(0, abs=1e-4)

    whole = relax_converged(bulk("Cu", cubic=True), EMT(), Relaxation()).repeat((2, 2, 2))
    initial, final = make_hop(whole, 0)
    between = initial.copy()
    between.positions = (initial.positions + final.positions) / 2
    options = Relaxation(cell=False, symmetry=True, max_force=0.005)  # which keeps it there
    energies = [
        relax_converged(one, EMT(), options).get_potential_energy() for one in (initial, between)
    ]
    assert summary["barrier_eV"] == pytest.approx(energies[1] - energies[0], abs=0.005)
    moved = np.linalg.norm(final.positions - initial.positions, axis=1)
    assert sorted(moved)[-2:] == pytest.approx([0, whole.cell[0, 0] / 2 / 2**0.5])


def test_ends_that_are_no_ends_are_refused():
    options = make_options()
    one, other = Atoms("HO", positions=np.eye(2, 3)), Atoms("OH", positions=np.eye(2, 3))
    with pytest.raises(ValueError, match=r"other atoms, or another order; give them the same"):
        compute_barrier(one, other, EMT(), options)
    copper = bulk("Cu", cubic=True)
    wide = bulk("Cu", a=3.7, cubic=True)
    with pytest.raises(ValueError, match=r"the ends have different cells"):
        compute_barrier(copper, wide, EMT(), options)
    with pytest.raises(ValueError, match=r"both ends relax to one minimum"):
        compute_barrier(place(-0.6, 1.4), place(-0.5, 1.4), MuellerBrown(), options)
    with pytest.raises(ValueError, match=r"one atom of Cu in its supercell; raise"):
        make_hop(bulk("Cu"), 0)


def test_paths_are_checked():
    with pytest.raises(ValueError, match=r"there is no path; give structures, or paths"):
        make_options(structures=[])
    path = {"name": "a", "initial": "x.cif", "final": "y.cif"}
    with pytest.raises(ValueError, match=r"two results would be called 'a'"):
        make_options(paths=[path])
    assert make_options(paths=[path | {"name": "b"}]).starts == ["a.cif", "x.cif", "y.cif"]
