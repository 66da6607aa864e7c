"""Surfaces; oracles: the order of those of fcc metals, and a count of broken bonds."""

import pytest
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones

from pipeline_atoms.config.properties import SurfaceOptions
from pipeline_atoms.properties.surfaces import list_surfaces


def compute_all(atoms, calculator, **options):
    """Return the summary of each surface by its name."""
    chosen = SurfaceOptions(name="a", structures=["a.xyz"], **options)
    return {n: compute().summary for n, compute in list_surfaces(atoms, calculator, chosen)}


@pytest.mark.slow
def test_close_packed_surfaces_of_copper_are_the_lowest():
    summaries = compute_all(bulk("Cu", cubic=True), EMT(), thickness=8.0)
    energies = {name: one["surface_energy_J_per_m2"] for name, one in summaries.items()}
    assert list(energies) == ["(1 0 0)", "(1 1 0)", "(1 1 1)"]
    assert energies["(1 1 1)"] < energies["(1 0 0)"] < energies["(1 1 0)"]
    assert all(
        one["surface_energy_J_per_m2"] <= one["unrelaxed_energy_J_per_m2"]
        for one in summaries.values()
    )


def test_bonds_to_nearest_neighbours_are_counted():
    # Nearest neighbours alone: an atom of (100) has lost 4 of 12 bonds, one of (111) 3.
    lattice, depth = 5.0, 0.1
    pair = LennardJones(sigma=lattice / 2**0.5 / 2 ** (1 / 6), epsilon=depth, rc=4.0, smooth=False)
    shift = pair.get_property("energy", bulk("Ar", a=lattice)) / 6  # of a bond, with ASE's shift
    summaries = compute_all(
        bulk("Ar", a=lattice, cubic=True), pair, relax=None, miller=[(1, 0, 0), (1, 1, 1)]
    )
    area = {"(1 0 0)": lattice**2 / 2, "(1 1 1)": lattice**2 * 3**0.5 / 4}
    lost = {"(1 0 0)": 4, "(1 1 1)": 3}
    for name, one in summaries.items():
        exact = -shift * lost[name] / 2 / area[name] * units.m**2 / units.J
        assert one["unrelaxed_energy_J_per_m2"] == pytest.approx(exact), name
        assert one["symmetric"]


def test_planes_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"\(0, 0, 0\) is not a plane"):
        SurfaceOptions(name="a", structures=["a.xyz"], miller=[(0, 0, 0)])
    with pytest.raises(ValueError, match=r"\[1, 1\] is not a plane; give three indices"):
        SurfaceOptions(name="a", structures=["a.xyz"], miller=[[1, 0, 0], [1, 1]])


def test_planes_of_a_file_are_read():
    """Through JSON, as `infer.surfaces` of an experiment is read."""
    content = '{"name": "a", "structures": ["a.xyz"], "miller": [[1, 0, 0], [1, 1, 1]]}'
    assert SurfaceOptions.model_validate_json(content).miller == [(1, 0, 0), (1, 1, 1)]
