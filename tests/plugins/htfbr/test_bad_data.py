"""Wrong tables and dataset files. Oracle: the mistake that each test makes, and where it stands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from pipeline_core.builtin import load_registry
from pipeline_core.project import Project
from pipeline_htfbr.sources.table_files import read_table

ROWS = ["r,phi,E,run", "1.0,10,0.5,a", "1.5,20,0.7,a", "2.0,30,0.1,b", "2.5,40,0.2,b"]
SOURCE = {
    "reader": "points",
    "path": "points.csv",
    "coordinates": [
        {"name": "r", "unit": "bohr", "lower": 0.5, "upper": 3.0},
        {"name": "phi", "unit": "degree", "period": 360},
    ],
    "energy": {"key": "E", "unit": "hartree"},
}
N = 4


class Workshop:
    """A folder with a dataset file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder / "workflows/datasets", folder / "results"
        self.folder.mkdir(parents=True)

    def run(self, source: dict[str, Any], **more: Any) -> None:
        """Run the data stage."""
        content = {"description": "Points.", "plugin": "htfbr", "source": source, **more}
        (self.folder / "set.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        project = Project(self.folder.parent, self.results, load_registry())
        run = project.load_dataset("set")
        project.registry.select_hook("data", "htfbr")(run=run)

    def refuse(self, message: str, source: dict[str, Any], **more: Any) -> None:
        """Check that the message names all parts of `message`, in order, and nothing is written."""
        pattern = ".*".join(re.escape(part) for part in message.split(" ... "))
        with pytest.raises(ValueError, match=f"(?s){pattern}"):
            self.run(source, **more)
        files = [path.name for path in self.results.rglob("*") if path.is_file()]
        assert set(files) <= {".data.failed"}  # why, for `pipeline-core status`


@pytest.fixture
def workshop(tmp_path) -> Workshop:
    made = Workshop(tmp_path)
    (made.folder / "points.csv").write_text("\n".join([*ROWS, ""]))
    return made


def test_the_table_without_mistakes_is_read(workshop):
    workshop.run(SOURCE)
    assert (workshop.results / "datasets/set/data.h5").exists()


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (2, "1.5,20,nan,a", "set.yaml: the energy is nan at 1 of 4 points, first at points.csv, "
                            "line 3; remove"),
        (4, "2.5,40,inf,b", "the energy is inf at 1 of 4 points, first at points.csv, line 5"),
        (1, "nan,10,0.5,a", "coordinate r is nan at 1 of 4 points, first at points.csv, line 2"),
        (3, "3.2,30,0.1,b", "coordinate r is 3.2 at points.csv, line 4, outside its domain "
                            "[0.5, 3] bohr (1 of 4 points are); change source.coordinates.0.upper"),
        (3, "0.1,30,0.1,b", "outside its domain ... change source.coordinates.0.lower"),
        (3, "2.0,30,x,b", "points.csv, line 4: 'E' is 'x', expected a number"),
        (3, "2.0,30,,b", "points.csv, line 4: 'E' is '', expected a number"),
        (3, "2.0,30,1_0,b", "points.csv, line 4: 'E' is '1_0', expected a number"),
        (3, "2.0,30,\uff11,b", "points.csv, line 4: 'E' is '\uff11', expected a number"),
        (3, "2.0,30,0.1", "points.csv, line 4: 3 values for 4 columns"),
        (0, "r,phi,E,E", "points.csv: two columns are called 'E'"),
        (0, "r,phi,e,run", "points.csv: source.energy.key 'E' is not in the file, which holds r, "
                           "phi, e, run"),
        (0, "r,phy,E,run", "points.csv: source.coordinates 'phi' is not in the file ... did you "
                           "mean 'phy'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_is_named_with_its_line(workshop, row, text, message):
    rows = [*ROWS[:row], text, *ROWS[row + 1 :]]
    (workshop.folder / "points.csv").write_text("\n".join([*rows, ""]))
    workshop.refuse(message, SOURCE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "points.csv: is empty, expected a header row"),
        (ROWS[0], "points.csv: holds no points; remove the file"),
        ("\xff\xfe", "points.csv: cannot be read"),
    ],
)
def test_a_file_without_points(workshop, text, message):
    (workshop.folder / "points.csv").write_bytes(text.encode("latin-1"))
    workshop.refuse(message, SOURCE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"energy": {"key": "E"}}, "set.yaml:14: source.energy.unit: Field required"),
        ({"energy": {"key": "E", "unit": "hartre"}}, "source.energy.unit: unknown unit of energy "
                                                     "'hartre' ... did you mean 'hartree'?"),
        ({"gradient": {"keys": ["r", "phi"], "unit": "Ev"}}, "source.gradient.unit: unknown unit"),
        ({"gradient": {"keys": ["r"]}}, "source: gradient.keys: 1 keys for 2 coordinates"),
        ({"gradient": {"keys": ["r", "fi"]}}, "source.gradient.keys 'fi' is not in the file"),
        ({"pth": "points.csv"}, "set.yaml:17: source.pth: unknown key; did you mean 'path'?"),
        ({"path": "point*.cvs"}, "set.yaml:5: source.path: no file matches 'point*.cvs'"),
        ({"path": "set.yaml"}, "set.yaml: unknown ending '.yaml'; tables are .csv, .h5, .hdf5"),
        ({"group": "runs"}, "source.group 'runs' is not in the file ... did you mean 'run'?"),
        ({"array": "r"}, "source.array 'r' has the shape (4,), expected (4, 2)"),
        ({"reader": "tables"}, "set.yaml:3: source: Input tag 'tables' ... 'hono', 'ethene_xtb', "
                               "'points'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_dataset_file_is_named(workshop, change, message):
    workshop.refuse(message, SOURCE | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": "furlong"}, "source.coordinates.0.unit: Input should be 'bohr'"),
        ({"units": "bohr"}, "source.coordinates.0.units: unknown key; did you mean 'unit'?"),
        ({"lower": 3.5}, "source.coordinates.0: r: lower 3.5 is not below upper 3"),
        ({"period": 0}, "source.coordinates.0.period: Input should be greater than 0"),
        ({"name": "phi"}, "source: two coordinates are called 'phi'"),
    ],
)
def test_a_mistake_in_a_coordinate_is_named(workshop, change, message):
    first, second = SOURCE["coordinates"]
    workshop.refuse(message, SOURCE | {"coordinates": [first | change, second]})


def test_an_array_and_columns_exclude_each_other(workshop):
    first, second = SOURCE["coordinates"]
    source = SOURCE | {"array": "x", "coordinates": [first | {"key": "r"}, second]}
    workshop.refuse("array 'x' holds all coordinates, but 'r' has a key of its own", source)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"E": np.zeros((N, 2))}, "points.npz: 'E' has the shape (4, 2), expected one energy a"),
        ({"r": np.zeros(N - 1)}, "source.coordinates 'r' has the shape (3,), expected (4,)"),
        ({"phi": np.zeros((N, 1))}, "'phi' has the shape (4, 1), expected (4,)"),
        ({"E": np.zeros(N, complex)}, "'E' holds complex128, expected real numbers"),
        ({"E": np.array(0.0)}, "'E' has the shape (), expected one energy a point"),
        ({"dr": np.full(N, np.nan)}, "the gradient by r is nan at 4 of 4 points, first at "
                                     "points.npz, row 0"),
        ({"run": np.array(["a"])}, "source.group 'run' has 1 names for 4 energies"),
        ({"run": np.zeros((N, 2))}, "'run' has the shape (4, 2), expected one name a point"),
    ],
)  # fmt: skip
def test_wrong_shapes_and_types_of_arrays(workshop, arrays, message):
    right = {name: np.ones(N) for name in ("r", "phi", "E", "dr", "dphi")}
    np.savez(workshop.folder / "points.npz", **{"run": np.array(["a"] * N)} | right | arrays)
    source = SOURCE | {
        "path": "points.npz",
        "gradient": {"keys": ["dr", "dphi"]},
        "group": "run",
    }
    workshop.refuse(message, source)


@pytest.mark.parametrize("name", ["points.npz", "points.h5"])
def test_damaged_files(workshop, name):
    path = workshop.folder / name
    if name.endswith("npz"):
        np.savez(path, E=np.zeros(1000))
    else:
        with h5py.File(path, "w") as file:
            file["E"] = np.zeros(1000)
    path.write_bytes(path.read_bytes()[:500])
    workshop.refuse(f"{name}: cannot be read", SOURCE | {"path": name})


def test_arrays_of_objects_are_not_unpickled(workshop):
    np.savez(workshop.folder / "points.npz", E=np.array([{}], dtype=object))
    workshop.refuse("points.npz: cannot be read", SOURCE | {"path": "points.npz"})


@pytest.mark.parametrize(
    ("source", "split", "message"),
    [
        (SOURCE, {"method": "composition"}, "the file: split.method 'composition': points"),
        (SOURCE, {"method": "group"}, "'group' needs groups ... or set source.group"),
        ({"reader": "hono"}, {"method": "group"}, "'group' needs groups ... random or energy"),
        (SOURCE | {"group": "run"}, {"method": "list", "val_groups": ["A"]},
         "set.yaml: split.val_groups: no group matches 'A'"),
        (SOURCE, {"val": 0.1, "test": 0.89}, "set.yaml: the split leaves no sample"),
    ],
)  # fmt: skip
def test_splits_that_do_not_fit(workshop, source, split, message):
    workshop.refuse(message, source, split=split)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": 65, "grid": 2}, "set.yaml:3: source: points: 65 of a grid of 64; lower it"),
        ({"grid": [2, 2]}, "source: grid: 2 numbers for 6 coordinates"),
        ({"grid": 1}, "source.grid"),
        ({"sampling": "sobol"}, "source.sampling: Input should be 'grid' or 'uniform'"),
        ({"pionts": 5}, "set.yaml:5: source.pionts: unknown key; did you mean 'points'?"),
    ],
)
def test_mistakes_in_the_source_of_hono(workshop, change, message):
    workshop.refuse(message, {"reader": "hono"} | change)


def test_ethene_without_tblite_names_the_extra(workshop, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "pipeline_htfbr.ethene.find_spec", lambda name: None if name == "tblite" else find(name)
    )
    from pipeline_htfbr.surfaces import find_exact_surface

    assert find_exact_surface("ethene_xtb") is None
    message = "pip install 'pipeline-core[quantum-chemistry]'"
    workshop.refuse(f"set.yaml: ethene ... needs tblite ... {message}", {"reader": "ethene_xtb"})


@pytest.mark.slow
def test_a_time_step_that_blows_up_is_named(workshop):
    pytest.importorskip("tblite")
    source = {"reader": "ethene_xtb", "points": 4, "timestep": 1000.0, "processes": 1}
    workshop.refuse("none of 4 trajectories ... lower source.timestep", source)


@pytest.mark.parametrize("last", ["40", "4", "0.", "1_0"])
def test_a_table_cut_within_its_last_number(tmp_path, last):
    path = tmp_path / "points.csv"
    path.write_text(f"r,E\n1.25,10.50\n1.50,{last}")
    with pytest.raises(ValueError, match=r"points\.csv, line 3: truncated: .*echo >> FILE"):
        read_table("points.csv", path)
    path.write_text("r,E\n1.25,10.50\n1.50,11.75")
    assert read_table("points.csv", path).read_numbers("E", "key").tolist() == [10.5, 11.75]


def test_an_array_that_promises_more_than_its_file_holds(tmp_path):
    path = tmp_path / "points.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("E", shape=(1 << 40,), dtype="f8", chunks=(1024,))
    with pytest.raises(ValueError, match=r"points\.h5: .*more than its file can hold"):
        read_table("points.h5", path)
