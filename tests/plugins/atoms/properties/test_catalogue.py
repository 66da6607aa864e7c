"""The stage: properties of structures that an experiment names; oracle: the module itself alone."""

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from pipeline_atoms.simulations import simulate_run
from pipeline_core.artifacts import store
from plugins.atoms.argon import make_run
from plugins.atoms.calculators.test_committee import make_committee

ALL = ("relax", "eos", "elastic", "phonons", "vacancies", "surfaces", "neb", "melt_quench")
GLASS = {
    "supercell_length": 8.0,
    "melt_temperature": 310.0,
    "melt_steps": 20,
    "anneal_steps": 20,
    "timestep": 4.0,
}


def ask(folder, *names, **options):
    """Return a section `infer` that asks for properties of a crystal and of a dimer."""
    paths = []
    for name, atoms in {
        "argon": bulk("Ar", a=5.3),
        "dimer": Atoms("Ar2", positions=[(0, 0, 0), (0, 0, 3.9)]),
    }.items():
        paths.append(str(folder / f"{name}.extxyz"))
        ase.io.write(paths[-1], atoms)
    entry = {"name": "cold", "structures": paths, **options}
    sections = {name: [dict(entry)] for name in names}
    if "surfaces" in names:
        sections["surfaces"][0]["miller"] = [(1, 1, 1)]
    if "melt_quench" in names:
        sections["melt_quench"][0] |= GLASS
    return sections


@pytest.mark.slow
def test_all_properties_of_a_trained_model(tmp_path):
    pytest.importorskip("phonopy")
    infer = ask(tmp_path, *ALL)
    infer["eos"][0]["volume_range"] = 0.02  # beyond, shells of neighbours reach the cutoff
    run = make_run(tmp_path, infer=infer)
    found = simulate_run(run)["properties"]

    assert list(found) == list(ALL)
    crystal = {
        name: next(s for n, s in found[name]["cold"].items() if n.startswith("argon"))
        for name in ALL
    }
    assert not [name for name, summary in crystal.items() if "problem" in summary]
    volume = crystal["relax"]["volume_per_atom_A3"]
    assert crystal["eos"]["volume_per_atom_A3"] == pytest.approx(volume, rel=1e-3)
    modulus = crystal["eos"]["bulk_modulus_GPa"]
    assert crystal["elastic"]["bulk_modulus_GPa"] == pytest.approx(modulus, rel=0.02)
    assert not crystal["phonons"]["imaginary"]
    # Of pairs without relaxation: all bonds of one atom, of which an atom of the crystal has half.
    energy = -crystal["vacancies"]["chemical_potential_eV"] - 14_000.25
    assert crystal["vacancies"]["unrelaxed_energy_eV"] == pytest.approx(energy, rel=0.01)

    assert crystal["surfaces"]["unrelaxed_energy_J_per_m2"] > 0

    assert "set relax.cell: false" in found["relax"]["cold"]["dimer"]["problem"]
    for name in ALL[1:]:
        problem = found[name]["cold"]["dimer"]["problem"]
        assert "crystal" in problem or "relax.cell" in problem
    with store.open_artifact(run.inference, "inference") as file:
        group = file["properties/eos/cold/argon"]
        assert group.attrs["bulk_modulus_GPa"] == modulus
        assert group["volumes"].attrs["unit"] == "Å³/atom"
        assert "problem" in file["properties/eos/cold/dimer"].attrs


@pytest.mark.slow
def test_a_committee_has_the_properties_of_its_mean(tmp_path):
    run = make_committee(tmp_path, infer=ask(tmp_path, "eos", relax=None))
    found = simulate_run(run)["properties"]["eos"]["cold"]["argon"]
    with store.open_artifact(run.inference, "inference") as file:
        assert np.isfinite(file["properties/eos/cold/argon/energies"][:]).all()
    assert found["bulk_modulus_GPa"] > 0


def test_names_and_structures_are_checked(tmp_path):
    infer = ask(tmp_path, "eos")
    with pytest.raises(ValueError, match=r"names cold, cold have to differ"):
        make_run(tmp_path, infer={"eos": infer["eos"] * 2})
    twice = infer["eos"][0] | {"structures": ["a/si.cif", "b/si.cif"]}
    with pytest.raises(ValueError, match=r"two are called 'si'"):
        make_run(tmp_path, infer={"eos": [twice]})
    with pytest.raises(ValueError, match=r"null leaves nothing to do"):
        make_run(tmp_path, infer=ask(tmp_path, "relax", relax=None))
    with pytest.raises(ValueError, match=r"'properties' is that of other results"):
        make_run(tmp_path, infer={"md": [{"name": "properties"}]})


@pytest.mark.slow
def test_an_unknown_element_and_a_missing_structure_are_named(tmp_path):
    ase.io.write(tmp_path / "si.extxyz", bulk("Si", a=5.43))
    entry = {"name": "cold", "structures": [str(tmp_path / "si.extxyz")]}
    run = make_run(tmp_path, infer={"relax": [entry]})
    problem = simulate_run(run)["properties"]["relax"]["cold"]["si"]["problem"]
    assert problem.startswith("the model was trained on Ar, Kr, not on Si")
    missing = entry | {"structures": ["missing.cif"]}
    run = make_run(tmp_path / "missing", infer={"elastic": [missing]})
    with pytest.raises(ValueError, match=r"infer\.elastic: start 'missing\.cif' is neither"):
        simulate_run(run)
