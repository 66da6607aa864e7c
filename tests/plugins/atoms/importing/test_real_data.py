"""Imports of published sets. Oracles: the energies of the sets, and what their authors state."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from ase.build import bulk

from pipeline_core.artifacts.provenance import hash_file
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.project.project import Project
from real_data import find
from tiers import exhaustive

ROOT = Path(__file__).parents[4]
IRON = "fitsnap/Fe_Linear_NPJ2021.json.tar.gz"
TUNGSTEN = "fitsnap/WBe_PRB2019.json.tar.gz"
MPTRJ = "mattersim_benchmarks/mptrj-random-1k.xyz"


def test_the_shipped_hafnia_with_the_wrong_sign_is_refused(workshop):
    pattern = f"{ROOT}/workflows/datasets/hfo2/strain/outputs/**/*.log.gz"
    source = {"path": pattern, "units": {"stress_sign": "tension"}}
    with pytest.raises(ValueError, match=r"stress: wrong sign.*units.stress_sign: pressure"):
        workshop.import_(sources=[source])


@pytest.mark.slow
def test_repeated_hafnia_mixes_sizes_and_keeps_runs_together(workshop, tmp_path):
    """Oracle: the energies per atom of the same frames unrepeated."""
    project = Project(ROOT / "workflows", tmp_path / "results", workshop.registry)
    energies = {}
    for name in ("hfo2", "hfo2_sizes"):
        run = project.load_dataset(name)
        workshop.registry.select_hook("data", None)(run=run)
        with SampleFile(run.data, "data") as samples:
            per_atom = samples.read_column("energy") / samples.count_rows("atom")
            energies[name] = dict(zip(samples.read_column("source"), per_atom, strict=True))
    assert energies["hfo2_sizes"] == pytest.approx(energies["hfo2"], rel=1e-12)
    report = json.loads(run.report.read_text())
    sizes = report["parts"]["hfo2_sizes"]["sizes"]
    assert list(sizes) == ["12", "24", "48", "96", "192"]
    assert sizes["12"] > 4 * sizes["192"] > 0
    divided = report["groups"]["largest"].values()
    assert all(sum(n > 0 for n in splits.values()) == 1 for splits in divided)


@pytest.mark.parametrize(
    ("name", "folder"), [("acac", "botnet/dataset_acac"), ("mptrj_1k", "mattersim_benchmarks")]
)
def test_the_hashes_of_downloads_are_those_of_the_published_files(workshop, tmp_path, name, folder):
    run = Project(ROOT / "workflows", tmp_path, workshop.registry).load_dataset(name)
    assert run.options.downloads
    for file, download in run.options.downloads.items():
        path = find(folder) / Path(file).name
        assert hash_file(path) == download.sha256
        assert download.url.endswith(f"/{path.name}")


@pytest.mark.slow
def test_forces_and_stress_of_iron_agree_with_its_energies(workshop):
    labels = ["energy", "forces", "stress", "magmoms"]
    run, summary = workshop.import_(sources=[{"path": str(find(IRON))}], labels=labels)
    assert summary["samples"] == 2517
    (source,) = json.loads(run.report.read_text())["sources"]
    result = source["agreement_with_energies"]
    assert {name: f["verdict"] for name, f in result.items()} == {
        "forces": "confirmed",
        "stress": "confirmed",
    }
    assert result["forces"]["factor"] == pytest.approx(1, abs=0.01)
    assert result["stress"]["factor"] == pytest.approx(1, abs=0.02)


def import_shipped(workshop, name, archive):
    """Import a dataset as its shipped file says, from real data that lie elsewhere."""
    text = (ROOT / f"workflows/datasets/{name}.yaml").read_text()
    (workshop.datasets / f"{name}.yaml").write_text(text)
    (source,) = yaml.safe_load(text)["sources"]
    path = workshop.datasets / source["path"]
    path.parent.mkdir()
    path.symlink_to(archive)
    run = workshop.project.load_dataset(name)
    workshop.registry.select_hook("data", None)(run=run)
    return run


@exhaustive
@pytest.mark.slow
def test_no_material_of_mptrj_is_on_both_sides_of_the_split(workshop):
    run = import_shipped(workshop, "mptrj_1k_materials", find(MPTRJ))
    with SampleFile(run.data, "data") as samples:
        references = json.loads(samples.attributes["reference_energies"])
        split, groups = samples.read_column("split"), np.array(samples.read_column("group"))
    assert np.bincount(split).tolist() == [800, 100, 100]
    assert len(references) == 85
    by_split = [set(groups[split == code]) for code in range(3)]
    assert len(set.union(*by_split)) == sum(map(len, by_split))


@exhaustive
def test_the_stated_unit_of_tungsten_beryllium_is_found_wrong(workshop):
    """Most groups of the set hold kbar under the name bar; the energies tell."""
    with pytest.raises(ValueError, match=r"units.stress is bar, kbar would fit"):
        workshop.import_(sources=[{"path": str(find(TUNGSTEN))}])


@pytest.mark.slow
def test_corrections_of_the_materials_project(workshop):
    """Oracle: MP2020 by hand, for an oxide -0.687 eV an O, for iron oxides with U -2.256 an Fe."""
    from ase.calculators.singlepoint import SinglePointCalculator

    frames = []
    for name in ("MgO", "FeO", "NaCl"):
        atoms = bulk(name, "rocksalt", {"MgO": 4.2, "FeO": 4.3, "NaCl": 5.6}[name])
        atoms.calc = SinglePointCalculator(atoms, energy=-10.0)
        frames.append(atoms)
    workshop.write("raw/crystals.xyz", frames)
    run, _ = workshop.import_(
        sources=[{"path": "raw/crystals.xyz", "energy_corrections": "mp2020"}],
        labels=["energy"],
        split={"val": 0.0, "test": 0.0},
        reference_energies="none",
    )
    with SampleFile(run.data, "data") as samples:
        energies = samples.read_column("energy")
    assert energies == pytest.approx([-10.687, -10.687 - 2.256, -10 - 0.614], abs=1e-6)
