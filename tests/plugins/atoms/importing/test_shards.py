"""An import is the same however its files are divided. Oracle: all of them read at once, here."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_atoms import workers
from pipeline_atoms.importing import dataset, shards
from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import identify

WHOLE = {"_SHARD": 1 << 60, "_LARGE": 1 << 60}
DIVISIONS = {
    "a file each": {"_SHARD": 1, "_LARGE": 1 << 60},
    "two files each": {"_SHARD": 8_000, "_LARGE": 1 << 60},
    "some frames each": {"_SHARD": 1, "_LARGE": 0, "_ATOMS": 10},
}
CONTENT = {
    "sources": [
        {"path": "raw/*.xyz", "group": "composition"},
        {"path": "more/*.xyz", "group": "file", "repeat": [1, 1, 2]},
    ],
    "split": {"method": "group", "val": 0.2, "test": 0.2},
    "strict": False,
    "stress_check_samples": 7,
}


@pytest.fixture
def files(workshop, alloys):
    """Files of several sizes, some frames twice, some bad, one file that ends within a frame."""
    for number, stop in enumerate((3, 4, 10, 25, 40)):
        workshop.write(f"raw/{number}.xyz", alloys[number:stop])
    bad = alloys[41].copy()
    bad.arrays["forces"] = np.full((4, 3), np.nan)
    path = workshop.write("more/a.xyz", [*alloys[40:50], bad])
    path.write_bytes(path.read_bytes() + b"4\ncut=T\nCu 0 0 0\n")
    workshop.write("more/b.xyz", alloys[45:])
    return workshop


def divide(monkeypatch, division) -> None:
    for name, value in division.items():
        monkeypatch.setattr(shards, name, value)


def import_all(workshop) -> tuple[str, dict, dict]:
    run, summary = workshop.import_(**CONTENT)
    return identify(run.data), store.read_json(run.report), summary


@pytest.mark.parametrize("division", DIVISIONS.values(), ids=DIVISIONS)
def test_shards_change_nothing(files, monkeypatch, division):
    divide(monkeypatch, WHOLE)
    whole = import_all(files)
    assert whole[2]["skipped"] == 2
    divide(monkeypatch, division)
    assert import_all(files) == whole


@pytest.mark.slow
def test_processes_change_nothing(files, monkeypatch):
    divide(monkeypatch, WHOLE)
    whole = import_all(files)
    monkeypatch.setattr(dataset, "_LARGE", 0)
    monkeypatch.setattr(workers, "count_cores", lambda: 2)
    divide(monkeypatch, {"_SHARD": 1, "_LARGE": 6_000, "_ATOMS": 10})
    assert import_all(files) == whole


@pytest.mark.parametrize("division", DIVISIONS.values(), ids=DIVISIONS)
def test_the_first_problem_stops_the_import(workshop, alloys, monkeypatch, division):
    workshop.write("raw/a.xyz", alloys[:20])
    path = workshop.write("raw/b.xyz", alloys[20:23])
    path.write_text(path.read_text().replace("Cu ", "Qq ", 1))
    (workshop.datasets / "raw/c.xyz").write_text("")
    divide(monkeypatch, division)
    with pytest.raises(ValueError, match=r"b\.xyz: frame \d: 'Qq' is not a chemical element"):
        workshop.import_(strict=True)
    with pytest.raises(ValueError, match=r"c\.xyz: holds no frames"):
        workshop.import_()
