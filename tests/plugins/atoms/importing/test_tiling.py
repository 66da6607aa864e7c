"""Copies of periodic cells. Oracle: what ASE's EMT gives for cells that ASE has repeated."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from hypothesis import given
from hypothesis import strategies as st

from pipeline_atoms.config.datasets import Source
from pipeline_atoms.importing.tiling import count_copies, tile_sample
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.system import memory
from plugins.atoms.importing.conftest import change_results


def make_structure(atoms: Atoms) -> dict:
    """A sample without labels."""
    return {
        "atomic_numbers": atoms.numbers,
        "positions": atoms.positions,
        "cell": atoms.cell.array,
        "pbc": atoms.pbc,
    }


def sample(atoms: Atoms, calculator) -> dict:
    """A sample with what a calculator says of it, and made-up moments."""
    atoms = atoms.copy()
    atoms.calc = calculator
    result = make_structure(atoms) | {
        "energy": np.asarray(atoms.get_potential_energy()),
        "forces": atoms.get_forces(),
        "magmoms": np.arange(len(atoms)) * 0.1,
    }
    return result | ({"stress": atoms.get_stress(voigt=False)} if atoms.pbc.all() else {})


SHEAR = [[1, 0.03, 0], [0, 1.02, -0.05], [0.01, 0, 0.97]]
CELLS = {
    "argon": (bulk("Ar", cubic=True, a=5.3), lambda: LennardJones(sigma=3.4, epsilon=0.01, rc=8.0)),
    "copper": (bulk("Cu", "hcp", a=2.5, c=4.1), EMT),
    "slab": (fcc111("Cu", (1, 2, 3), vacuum=6), EMT),
}
CELLS["argon"][0].set_cell(CELLS["argon"][0].cell.array @ SHEAR, scale_atoms=True)


@pytest.mark.parametrize("numbers", [(1, 1, 1), (2, 1, 1), (1, 2, 3), (3, 2, 1)])
@pytest.mark.parametrize("name", CELLS)
def test_labels_of_copies_are_those_of_the_repeated_cell(name, numbers):
    atoms, calculator = CELLS[name][0].copy(), CELLS[name][1]
    atoms.rattle(0.05, seed=1)
    if not atoms.pbc.all():
        numbers = (*numbers[:2], 1)
    result = tile_sample(sample(atoms, calculator()), numbers)
    repeated = atoms.repeat(numbers)
    repeated.set_array("moments", np.tile(np.arange(len(atoms)) * 0.1, np.prod(numbers)))
    expected = sample(repeated, calculator())
    expected["magmoms"] = repeated.get_array("moments")
    assert result.keys() == expected.keys()
    for label, value in expected.items():
        np.testing.assert_allclose(result[label], value, rtol=1e-9, atol=1e-9, err_msg=label)


@pytest.mark.slow
@given(
    lengths=st.lists(st.sampled_from([2.5, 4.0, 5.0, 7.3, 30.0]), min_size=3, max_size=3),
    pbc=st.lists(st.booleans(), min_size=3, max_size=3).filter(any),
    most=st.integers(1, 60),
    n_atoms=st.integers(1, 3),
)
def test_the_copies_are_the_best_of_all(lengths, pbc, most, n_atoms):
    """Oracle: a search over all that are no longer than twice their width, or than the cell was."""
    atoms, lengths = Atoms(f"Cu{n_atoms}", cell=lengths, pbc=pbc), np.array(lengths)
    source = Source(path="a", repeat_to=n_atoms * most + n_atoms - 1)
    result = count_copies(source, make_structure(atoms))

    before = lengths[pbc].max() / lengths[pbc].min()
    ranges = [range(1, (most if one else 1) + 1) for one in pbc]
    edges = {
        n: (np.array(n) * lengths)[pbc] for n in product(*ranges) if n[0] * n[1] * n[2] <= most
    }
    ratio = {n: round(e.max() / e.min(), 9) for n, e in edges.items()}
    good = [n for n in ratio if ratio[n] <= max(2, round(before, 9))]
    assert result == min(good, key=lambda n: (-np.prod(n), ratio[n], n))


def test_copies_for_which_there_is_no_memory_are_refused(monkeypatch):
    assert count_copies(Source(path="a", repeat_to=8), make_structure(Atoms("H"))) == (1, 1, 1)
    million = Source(path="a", repeat_to=10**6)  # found at once
    one = make_structure(Atoms("H", cell=[4, 5, 6], pbc=True))
    assert count_copies(million, one) == (125, 100, 80)
    cell = make_structure(Atoms("Cu12", cell=[4, 4, 4], pbc=True))
    monkeypatch.setattr(memory, "find_free_memory", lambda: 2e10)
    source = Source(path="a", repeat=(100_000, 100, 1))
    message = r"^120000000 atoms, which 10000000 copies have, take at least 24 GB, and 20 GB"
    with pytest.raises(ValueError, match=message):
        count_copies(source, cell)


@pytest.mark.slow
def test_a_source_makes_copies_and_leaves_groups_splits_and_energies_of_atoms(workshop, alloys):
    workshop.write("raw/cold/a.xyz", alloys[:30])
    workshop.write("raw/hot/b.xyz", alloys[30:])
    sources = [{"path": "raw/**/*.xyz", "group": "folder"}]
    plain, _ = workshop.import_(sources=sources)
    with SampleFile(plain.data, "data") as samples:
        splits, groups = samples.read_column("split"), samples.read_column("group")
        references = json.loads(samples.attributes["reference_energies"])
    run, summary = workshop.import_(sources=[{**sources[0], "repeat": [2, 1, 2]}])
    with SampleFile(run.data, "data") as samples:
        np.testing.assert_array_equal(samples.read_column("split"), splits)
        np.testing.assert_array_equal(samples.read_column("group"), groups)
        assert set(samples.count_rows("atom")) == {16}
        result = json.loads(samples.attributes["reference_energies"])
        assert result == pytest.approx(references)
        for i in (0, 17, 59):
            repeated = alloys[i].repeat((2, 1, 2))
            repeated.calc = EMT()
            one = samples.read(i)
            assert float(one["energy"]) == pytest.approx(repeated.get_potential_energy())
            np.testing.assert_allclose(one["forces"], repeated.get_forces(), atol=1e-7)
            np.testing.assert_allclose(one["stress"], repeated.get_stress(voigt=False), atol=1e-9)
            np.testing.assert_array_equal(one["atomic_numbers"], repeated.numbers)
            np.testing.assert_allclose(one["positions"], repeated.positions, atol=1e-7)
    assert summary["stress"] == ["confirmed"]
    (source,) = json.loads(run.report.read_text())["sources"]
    assert source["repeat"] == [2, 1, 2]


def test_what_is_not_periodic_cannot_be_repeated(workshop, alloys):
    flat = change_results(alloys[3])
    flat.pbc = [True, True, False]
    workshop.write("raw/a.xyz", [*alloys[:3], flat])
    source = {"path": "raw/*.xyz", "repeat": [1, 1, 2]}
    with pytest.raises(ValueError, match=r"raw/a.xyz:3: repeat: \[1, 1, 2\].*vector 2.*periodic"):
        workshop.import_(sources=[source], partial=["stress"])
    with pytest.raises(ValueError, match=r"repeat and repeat_to exclude each other"):
        workshop.dataset(sources=[source | {"repeat_to": 8}])
    run, _ = workshop.import_(
        sources=[{"path": "raw/*.xyz", "repeat_to": 36}], partial=["stress"], split={"val": 0.0}
    )
    with SampleFile(run.data, "data") as samples:
        assert samples.count_rows("atom").tolist() == [32, 32, 32, 36]


@pytest.mark.slow
def test_copies_of_a_frame_stay_in_one_split(workshop, alloys):
    for i in range(6):
        workshop.write(f"raw/run{i}/a.xyz", alloys[10 * i : 10 * i + 10])
    sources = [
        {"path": "raw/**/*.xyz", "group": "folder"},
        {"path": "./raw/**/*.xyz", "group": "folder", "repeat": [1, 1, 2]},
    ]
    for method in ("random", "group", "composition"):
        split = {"method": method, "val": 0.2, "test": 0.2}
        run, _ = workshop.import_(sources=sources, split=split)
        with SampleFile(run.data, "data") as samples:
            split = samples.read_column("split")
        assert split[:60].tolist() == split[60:].tolist()
        assert set(split) == {0, 1, 2}
        assert json.loads(run.report.read_text())["duplicates"]["samples"] == 0
    with pytest.raises(ValueError, match=r"would count twice"):
        workshop.import_(sources=[sources[0], sources[0]])
