"""Wrong tables and dataset files. Oracle: the mistake that each test makes, and where it stands."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline_htfbr.data.table_files import read_table
from plugins.htfbr.fits import import_points

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


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return the folder of the dataset file, with a table."""
    made = tmp_path / "workflows/datasets"
    made.mkdir(parents=True)
    (made / "points.csv").write_text("\n".join([*ROWS, ""]))
    return made


@pytest.fixture
def refuse(dataset, folder, tmp_path) -> Callable[..., None]:
    """Check that a message names all its parts, in order, and that nothing is written."""

    def refuse(message: str, source: dict[str, Any], **more: Any) -> None:
        pattern = ".*".join(re.escape(part) for part in message.split(" ... "))
        with pytest.raises(ValueError, match=f"(?s){pattern}"):
            import_points(dataset(source, **more))
        files = [path.name for path in (tmp_path / "results").rglob("*") if path.is_file()]
        assert set(files) <= {".data.failed"}  # why, for `pipeline-core status`

    return refuse


def test_the_table_without_mistakes_is_read(dataset, folder):
    assert len(import_points(dataset(SOURCE)).x) == N


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
        (0, "r,phi,E,E", "points.csv: two columns are named 'E'"),
        (0, "r,phi,e,run", "points.csv: source.energy.key 'E' is not in the file, which holds r, "
                           "phi, e, run"),
        (0, "r,phy,E,run", "points.csv: source.coordinates 'phi' is not in the file ... did you "
                           "mean 'phy'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_is_named_with_its_line(refuse, folder, row, text, message):
    rows = [*ROWS[:row], text, *ROWS[row + 1 :]]
    (folder / "points.csv").write_text("\n".join([*rows, ""]))
    refuse(message, SOURCE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "points.csv: is empty, expected a header row"),
        (ROWS[0], "points.csv: holds no points; remove the file"),
        ("\xff\xfe", "points.csv: cannot be read"),
    ],
)
def test_a_file_without_points(refuse, folder, text, message):
    (folder / "points.csv").write_bytes(text.encode("latin-1"))
    refuse(message, SOURCE)


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
        ({"path": "set.yaml"}, "set.yaml: unknown extension '.yaml'; choose from .csv, .h5, .hdf5"),
        ({"group": "runs"}, "source.group 'runs' is not in the file ... did you mean 'run'?"),
        ({"array": "r"}, "source.array 'r' has the shape (4,), expected (4, 2)"),
        ({"reader": "tables"}, "set.yaml:3: source: Input tag 'tables' ... 'hono', 'ethene_xtb', "
                               "'points'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_dataset_file_is_named(refuse, change, message):
    refuse(message, SOURCE | change)


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ({"unit": "furlong"}, {}, "source.coordinates.0.unit: Input should be 'bohr'"),
        ({"units": "bohr"}, {}, "coordinates.0.units: unknown key; did you mean 'unit'?"),
        ({"lower": 3.5}, {}, "source.coordinates.0: r: lower 3.5 is not below upper 3"),
        ({"period": 0}, {}, "coordinates.0.period: Input should be greater than 0"),
        ({"name": "phi"}, {}, "source: two coordinates are named 'phi'"),
        ({"key": "r"}, {"array": "x"},
         "array 'x' holds all coordinates, but 'r' has a key of its own"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_coordinate_is_named(refuse, change, more, message):
    first, second = SOURCE["coordinates"]
    refuse(message, SOURCE | more | {"coordinates": [first | change, second]})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"E": np.zeros((N, 2))}, "points.npz: 'E' has the shape (4, 2), expected one energy per"),
        ({"r": np.zeros(N - 1)}, "source.coordinates 'r' has the shape (3,), expected (4,)"),
        ({"phi": np.zeros((N, 1))}, "'phi' has the shape (4, 1), expected (4,)"),
        ({"E": np.zeros(N, complex)}, "'E' holds complex128, expected real numbers"),
        ({"E": np.array(0.0)}, "'E' has the shape (), expected one energy per point"),
        ({"dr": np.full(N, np.nan)}, "the gradient by r is nan at 4 of 4 points, first at "
                                     "points.npz, row 0"),
        ({"run": np.array(["a"])}, "source.group 'run' has 1 names for 4 energies"),
        ({"run": np.zeros((N, 2))}, "'run' has the shape (4, 2), expected one name per point"),
    ],
)  # fmt: skip
def test_wrong_shapes_and_types_of_arrays(refuse, folder, arrays, message):
    right = {name: np.ones(N) for name in ("r", "phi", "E", "dr", "dphi")}
    np.savez(folder / "points.npz", **{"run": np.array(["a"] * N)} | right | arrays)
    source = SOURCE | {
        "path": "points.npz",
        "gradient": {"keys": ["dr", "dphi"]},
        "group": "run",
    }
    refuse(message, source)


@pytest.mark.parametrize("name", ["points.npz", "points.h5"])
def test_damaged_files(refuse, folder, name):
    path = folder / name
    if name.endswith("npz"):
        np.savez(path, E=np.zeros(1000))
    else:
        with h5py.File(path, "w") as file:
            file["E"] = np.zeros(1000)
    path.write_bytes(path.read_bytes()[:500])
    refuse(f"{name}: cannot be read", SOURCE | {"path": name})


def test_arrays_of_objects_are_not_unpickled(refuse, folder):
    np.savez(folder / "points.npz", E=np.array([{}], dtype=object))
    refuse("points.npz: cannot be read", SOURCE | {"path": "points.npz"})


HONO = {"reader": "hono"}


@pytest.mark.parametrize(
    ("source", "split", "message"),
    [
        (SOURCE, {"method": "composition"}, "the file: split.method 'composition': points"),
        (SOURCE, {"method": "group"}, "'group' needs groups ... or set source.group"),
        (HONO, {"method": "group"}, "'group' needs groups ... random or energy"),
        (SOURCE | {"group": "run"}, {"method": "list", "val_groups": ["A"]},
         "set.yaml: split.val_groups: no group matches 'A'"),
        (SOURCE, {"val": 0.1, "test": 0.89}, "set.yaml: the split leaves no sample"),
        (HONO | {"points": 65, "grid": 2}, {},
         "set.yaml:3: source: points: 65 of a grid of 64; lower it"),
        (HONO | {"grid": [2, 2]}, {}, "source: grid: 2 numbers for 6 coordinates"),
        (HONO | {"grid": 1}, {}, "source.grid"),
        (HONO | {"sampling": "sobol"}, {},
         "source.sampling: Input should be 'grid' or 'uniform'"),
        (HONO | {"pionts": 5}, {},
         "set.yaml:5: source.pionts: unknown key; did you mean 'points'?"),
    ],
)  # fmt: skip
def test_splits_that_do_not_fit_and_mistakes_in_the_source_of_hono(refuse, source, split, message):
    refuse(message, source, **({"split": split} if split else {}))


def test_ethene_without_tblite_names_the_extra(refuse, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "pipeline_htfbr.data.ethene.find_spec",
        lambda name: None if name == "tblite" else find(name),
    )
    from pipeline_htfbr.data.surfaces import find_exact_surface

    assert find_exact_surface("ethene_xtb") is None
    message = "pip install 'pipeline-core[quantum-chemistry]'"
    refuse(f"set.yaml: ethene ... needs tblite ... {message}", {"reader": "ethene_xtb"})


@pytest.mark.slow
def test_a_time_step_that_blows_up_is_named(refuse):
    pytest.importorskip("tblite")
    source = {"reader": "ethene_xtb", "points": 4, "timestep": 1000.0, "processes": 1}
    refuse("none of 4 trajectories ... lower source.timestep", source)


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
