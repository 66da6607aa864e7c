"""The data stage of points. Oracles: what was written into a table; the exact surface; HDF5."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.fields import SPLITS
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_htfbr.data.hono import HONO
from plugins.htfbr.fits import import_points
from tiers import exhaustive

ROOT = Path(__file__).parents[4]
HARTREE, HARTREE_IN_CM = 27.211386245988, 219474.6313632
X = np.random.default_rng(0).uniform(0.5, 2.5, (40, 2))
ENERGY = X[:, 0] ** 2 + 3 * X[:, 1]
GRADIENT = np.stack([2 * X[:, 0], np.full(40, 3.0)], axis=1)
COORDINATES = [
    {"name": "r", "unit": "angstrom", "lower": 0.5, "upper": 2.5},
    {"name": "phi", "unit": "degree", "period": 360},
]
TABLE = {"reader": "points", "coordinates": COORDINATES, "energy": {"key": "E", "unit": "hartree"}}


def write_csv(path: Path, rows: slice = slice(None), **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {"r": X[rows, 0], "phi": X[rows, 1], "E": ENERGY[rows]} | columns
    lines = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    path.write_text("\n".join([", ".join(table), *lines, ""]))


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["geometry/r"], file["geometry/phi"], file["E"] = X[:, 0], X[:, 1], ENERGY
        file["run"] = ["a"] * 15 + ["b"] * 25


def test_points_of_the_grid_of_hono(dataset):
    run = dataset(
        {"reader": "hono", "points": 500, "grid": [3, 4, 5, 4, 3, 2], "gradients": True},
        split={"val": 0.05, "test": 0.5},
    )
    points = import_points(run)
    for values, one, count in zip(
        points.x.T, points.coordinates, run.options.source.grid, strict=True
    ):
        assert_allclose(np.unique(values), np.linspace(one.lower, one.upper, count), rtol=1e-15)
    assert len(np.unique(points.x, axis=0)) == 500
    assert_array_equal(points.energy, HONO().energies(points.x))
    assert_array_equal(points.gradient, HONO().gradients(points.x))
    assert np.bincount(points.split).tolist() == [225, 25, 250]
    assert points.surface == "hono"
    assert points.molecule == HONO().molecule
    report = json.loads(run.report.read_text())
    assert report["splits"] == {"train": 225, "val": 25, "test": 250}
    assert report["energy"]["cm^-1"]["largest"] == pytest.approx(
        points.energy.max() / HARTREE * HARTREE_IN_CM
    )
    assert report["repeated_points"]["points"] == 0


def test_points_off_the_grid_fill_the_domain(dataset):
    points = import_points(dataset({"reader": "hono", "points": 2000, "sampling": "uniform"}))
    for values, one in zip(points.x.T, points.coordinates, strict=True):
        assert len(np.unique(values)) == 2000
        width = one.upper - one.lower
        assert one.lower <= values.min() < one.lower + 0.01 * width
        assert one.upper - 0.01 * width < values.max() <= one.upper
    assert points.gradient is None


def test_the_seed_decides(dataset):
    first, again = (import_points(dataset({"reader": "hono", "points": 50})).x for _ in range(2))
    other = import_points(dataset({"reader": "hono", "points": 50, "seed": 1})).x
    assert_array_equal(first, again)
    assert (first != other).any()


def test_a_csv_table_in_other_units(dataset, tmp_path):
    path = tmp_path / "tables/a.csv"
    write_csv(path, dr=GRADIENT[:, 0], dphi=GRADIENT[:, 1], name=["x"] * 20 + ["y"] * 20)
    source = TABLE | {
        "path": "../../tables/a.csv",
        "gradient": {"keys": ["dr", "dphi"], "unit": "eV"},
        "group": "name",
    }
    run = dataset(source, split={"method": "group", "val": 0.0, "test": 0.5})
    points = import_points(run)
    assert_array_equal(points.x, X)
    assert_allclose(points.energy, ENERGY * HARTREE)
    assert_allclose(points.gradient, GRADIENT)
    assert points.group.tolist() == ["x"] * 20 + ["y"] * 20
    assert points.coordinates[0].upper == 2.5
    assert points.coordinates[1].period == 360
    assert points.surface == ""
    assert points.molecule is None
    inputs = read_provenance(run.data)["inputs"]
    assert inputs == {"../../tables/a.csv": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert [file.resolve() for file in [*run.find_raw_files().values()]] == [path]
    assert json.loads(run.report.read_text())["groups"]["count"] == 2


@pytest.mark.parametrize("form", ["hdf5", "npz", "matrix"])
def test_other_formats_hold_the_same(dataset, tmp_path, form):
    folder = tmp_path / "workflows/datasets"
    folder.mkdir(parents=True)
    source = TABLE | {"path": "points.npz"}
    match form:
        case "hdf5":
            write_hdf5(folder / "points.h5")
            keys = [c | {"key": f"geometry/{c['name']}"} for c in COORDINATES]
            source |= {"path": "points.h5", "coordinates": keys, "group": "run"}
        case "npz":
            np.savez(folder / "points.npz", r=X[:, 0], phi=X[:, 1].astype("f8"), E=ENERGY)
        case "matrix":
            np.savez(folder / "points.npz", both=X, E=ENERGY, slope=GRADIENT)
            source |= {"array": "both", "gradient": {"keys": "slope"}}
    points = import_points(dataset(source))
    assert_array_equal(points.x, X)
    assert_allclose(points.energy, ENERGY * HARTREE)
    if form == "matrix":
        assert_allclose(points.gradient, GRADIENT * HARTREE)
    if form == "hdf5":
        assert points.group.tolist() == ["a"] * 15 + ["b"] * 25


def test_files_are_groups_that_can_be_held_out(dataset, tmp_path):
    for i in range(4):
        write_csv(tmp_path / f"workflows/datasets/raw/run{i}.csv", slice(10 * i, 10 * i + 10))
    run = dataset(
        TABLE | {"path": "raw/*.csv", "group": "file"},
        split={"method": "list", "val_groups": ["*run1.csv"], "test_groups": ["*run3.csv"]},
    )
    points = import_points(run)
    assert_array_equal(points.x, X)
    for split, number in (("val", 1), ("test", 3)):
        assert points.find_rows(split).tolist() == list(range(10 * number, 10 * number + 10))
    with SampleFile(run.data, "data") as file:
        places = [file.read_field("source", row) for row in (0, 10, 39)]
    assert places == ["raw/run0.csv, line 2", "raw/run1.csv, line 2", "raw/run3.csv, line 11"]


def test_the_highest_energies_can_be_held_out(dataset, tmp_path):
    write_csv(tmp_path / "workflows/datasets/points.csv")
    split = {"method": "energy", "val": 0.25, "test": 0.25}
    points = import_points(dataset(TABLE | {"path": "points.csv"}, split=split))
    train, val, test = (np.sort(points.energy[points.find_rows(name)]) for name in SPLITS)
    assert (len(train), len(val), len(test)) == (20, 10, 10)
    assert train[-1] < val[0]
    assert val[-1] < test[0]


def test_repeated_points_and_strange_units_are_mentioned(dataset, tmp_path):
    path = tmp_path / "workflows/datasets/points.csv"
    write_csv(path, E=ENERGY * 100)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1], ""]))
    run = dataset(TABLE | {"path": "points.csv"})
    import_points(run)
    report = json.loads(run.report.read_text())
    assert report["repeated_points"]["points"] == 1
    assert report["repeated_points"]["largest_difference_eV"] == 0
    assert "1 points equal an earlier one" in report["warnings"][0]
    assert "is their unit right?" in report["warnings"][1]


@pytest.mark.parametrize("method", ["random", "energy"])
def test_equal_points_are_in_one_split(dataset, tmp_path, method):
    path = tmp_path / "workflows/datasets/points.csv"
    write_csv(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, *lines[1:], ""]))
    split = {"method": method, "val": 0.25, "test": 0.25}
    points = import_points(dataset(TABLE | {"path": "points.csv"}, split=split))
    n = len(points.x) // 2
    assert np.array_equal(points.x[:n], points.x[n:])
    assert np.array_equal(points.split[:n], points.split[n:])
    assert set(points.split) == {0, 1, 2}


@exhaustive
@pytest.mark.parametrize(
    ("name", "expected"), [("hono", [9000, 1000, 10_000]), ("hono_smoke", [2100, 300, 600])]
)
def test_the_shipped_datasets_of_hono(tmp_path, name, expected):
    run = Project(ROOT / "workflows", tmp_path, load_registry()).load_dataset(name)
    assert np.bincount(import_points(run).split).tolist() == expected


@exhaustive
def test_the_shipped_datasets_of_ethene_hold_out_whole_trajectories(tmp_path):
    pytest.importorskip("tblite")
    project = Project(ROOT / "workflows", tmp_path, load_registry())
    assert project.load_dataset("ethene").options.source.points == 42_907
    points = import_points(project.load_dataset("ethene_smoke"))
    by_split = [set(points.group[points.find_rows(name)]) for name in SPLITS]
    assert len(points.x) == sum(len(points.find_rows(name)) for name in SPLITS) == 1500
    assert all(by_split)
    assert not by_split[0] & by_split[1] | by_split[0] & by_split[2] | by_split[1] & by_split[2]
