"""Equal frames: found by content, reported, never divided. Oracle: frames copied on purpose."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline_atoms.importing.columns import hash_frame
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.config.raw_files import match_files
from pipeline_core.data.duplicates import (
    Duplicates,
    describe_duplicates,
    find_first_rows,
    hash_content,
)
from plugins.atoms.importing.conftest import change_results


def read_splits(run) -> np.ndarray:
    with SampleFile(run.data, "data") as samples:
        return samples.read_column("split")


@pytest.mark.parametrize("method", ["random", "composition", "energy", "group"])
def test_frames_of_a_copied_file_are_in_one_split(workshop, alloys, method):
    path = workshop.write("raw/a.xyz", alloys[:30])
    shutil.copy(path, path.with_name("b.xyz"))
    for i in range(3, 6):
        workshop.write(f"raw/c{i}.xyz", alloys[10 * i : 10 * i + 10])
    run, summary = workshop.import_(
        sources=[{"path": "raw/*.xyz", "group": "file"}],
        split={"method": method, "val": 0.2, "test": 0.2},
    )
    splits = read_splits(run)
    np.testing.assert_array_equal(splits[:30], splits[30:60])
    assert len(set(splits)) == 3
    (warning,) = summary["warnings"]
    assert "30 samples have the structure of an earlier one (30 in raw/a.xyz and raw/b" in warning
    assert json.loads(run.report.read_text())["duplicates"] == {
        "samples": 30,
        "with_other_labels": 0,
        "files": {"raw/a.xyz and raw/b.xyz": 30},
    }


def test_what_is_held_out_anywhere_is_held_out_everywhere(workshop, alloys):
    other = change_results(alloys[4], energy=alloys[4].get_potential_energy() + 0.3)
    workshop.write("raw/a.xyz", alloys)
    workshop.write("raw/b.xyz", [*alloys[:4], other, *alloys[5:20]])
    sources = [{"path": "raw/a.xyz", "split": "train"}, {"path": "raw/b.xyz", "split": "test"}]
    run, _ = workshop.import_(sources=sources)
    assert read_splits(run).tolist() == [2] * 20 + [0] * 40 + [2] * 20
    duplicates = json.loads(run.report.read_text())["duplicates"]
    assert (duplicates["samples"], duplicates["with_other_labels"]) == (20, 1)


def test_parts_of_a_mixture_do_not_divide_equal_frames(workshop, alloys):
    workshop.write("one/a.xyz", alloys[:40])
    workshop.write("two/a.xyz", alloys[20:])
    for name, split in (("one", {"val": 0.2, "test": 0.2}), ("two", {"val": 0.1, "seed": 1})):
        content = {"description": "", "sources": [{"path": f"{name}/*.xyz"}], "split": split}
        (workshop.datasets / f"{name}.yaml").write_text(json.dumps(content))
    mixture = {"description": "", "parts": [{"dataset": "one"}, {"dataset": "two"}]}
    (workshop.datasets / "both.yaml").write_text(json.dumps(mixture))
    run = workshop.project.load_dataset("both")
    workshop.registry.select_hook("data", None)(run=run)
    splits = read_splits(run)
    np.testing.assert_array_equal(splits[20:40], splits[40:60])
    parts = json.loads(run.report.read_text())["parts"]
    assert sum(parts["two"]["splits"].values()) == 40
    assert parts["one"]["splits"]["test"] == int((splits[:40] == 2).sum())


def test_linked_folders_count_once(workshop, alloys):
    workshop.write("raw/run/a.xyz", alloys)
    folder = workshop.datasets / "raw"
    (folder / "again").symlink_to(folder / "run")
    (folder / "run" / "loop").symlink_to(folder)
    (folder / "run" / "other").symlink_to(folder)
    run, summary = workshop.import_(sources=[{"path": "raw/**/*.xyz"}])
    assert summary["samples"] == 60
    (warning,) = summary["warnings"]
    assert "raw/again/a.xyz is raw/run/a.xyz" not in warning  # the shorter, then the earlier name
    assert "raw/run/a.xyz is raw/again/a.xyz" in warning
    assert list(match_files(run.path, "sources.0.path", "raw/**/*.xyz")) == ["raw/again/a.xyz"]


def test_content_is_compared_to_a_hundred_millionth_of_an_angstrom():
    structure = {
        "atomic_numbers": np.array([1, 1], np.int32),
        "pbc": np.zeros(3, bool),
        "cell": np.zeros((3, 3)),
        "positions": np.array([[0.0, 0, 0], [0, 0, 0.74]]),
    }
    duplicates = Duplicates()
    for shift in (0.0, 1e-10, 1e-7):
        moved = structure | {"positions": structure["positions"] + shift}
        duplicates.add("a", hash_frame(moved), 1)
    minus_zero = structure | {"cell": np.array([[-0.0, 0, 0]] * 3)}
    duplicates.add("b", hash_frame(minus_zero), 1)
    assert duplicates.find_first().tolist() == [0, 0, 2, 0]
    both = Duplicates()
    both.append(duplicates)
    both.append(duplicates)
    assert both.find_first(4).tolist() == [0, 0, 2, 0]
    assert both.report()["files"] == {"a": 4, "a and b": 2}


def test_samples_of_any_kind_are_found_and_described():
    links, duplicates = np.exp(1j * np.arange(6.0)).reshape(2, 3), Duplicates()
    for file, values in (("a", links), ("b", 2 * links), ("b", links + 1e-11j)):
        duplicates.add(file, hash_content([values], [np.array(values.imag.sum())]))
    assert duplicates.find_first().tolist() == [0, 1, 0]
    (text,) = describe_duplicates(duplicates.report(), "the links")
    assert text.startswith("1 samples have the links of an earlier one")
    assert "(1 in a and b); equal samples are in one split" in text
    assert not list(describe_duplicates(Duplicates().report(), "the links"))
    rows = np.array([[1.0, 2.0], [0.0, 3.0], [1.0 + 1e-12, 2.0], [-0.0, 3.0], [1.0, 2.1]])
    assert find_first_rows(rows).tolist() == [0, 1, 0, 1, 4]
