"""Frames of unchanged files are taken from the import before. Oracle: a fresh import, by bits."""

from __future__ import annotations

import shutil

import pytest

from pipeline_atoms.importing import dataset, shards
from pipeline_atoms.importing import import_cache as kept
from pipeline_atoms.readers import catalogue
from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import identify

CONTENT = {
    "sources": [{"path": "raw/**/*.xyz", "group": "folder"}],
    "split": {"method": "group", "val": 0.2, "test": 0.2},
    "labels": ["energy", "forces", "stress"],
    "partial": ["stress"],
}


@pytest.fixture
def files(workshop, alloys, monkeypatch):
    """A large dataset, as it were: three folders of two files each, some without stress."""
    monkeypatch.setattr(dataset, "_LARGE", 0)
    monkeypatch.setattr("pipeline_atoms.workers.count_cores", lambda: 1)
    monkeypatch.setattr(kept, "_MOST", 7)
    for number in range(6):
        frames = [atoms.copy() for atoms in alloys[10 * number : 10 * number + 10]]
        for frame, atoms in zip(frames, alloys[10 * number :], strict=False):
            frame.info["energy"] = atoms.get_potential_energy()
            frame.arrays["forces"] = atoms.get_forces()
            if number != 3:
                frame.info["stress"] = atoms.get_stress(voigt=False)
        workshop.write(f"raw/{number // 2}/{number}.xyz", frames)
    return workshop


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The names of the files that are read."""
    names = []

    def open_frames(path, *rest):
        names.append(path.name)
        return catalogue.open_frames(path, *rest)

    monkeypatch.setattr(shards, "open_frames", open_frames)
    return names


def import_again(workshop, read, **changes) -> list[str]:
    """Import with what is kept and without; return the files that were read, and compare."""
    content = CONTENT | changes
    read.clear()
    run, summary = workshop.import_(**content)
    names, with_kept = list(read), (identify(run.data), store.read_json(run.report))
    unchanged = summary.pop("unchanged_files", 0)
    assert unchanged == len(run.find_raw_files()) - len(names)
    kept.locate_kept(run).rename(run.folder / "before")
    _, fresh = workshop.import_(**content)
    assert (identify(run.data), store.read_json(run.report)) == with_kept
    assert fresh == summary
    return names


def change_energy(path) -> None:
    frames = path.read_text()
    path.write_text(frames.replace("energy=", "energy=1", 1))


@pytest.mark.slow
def test_new_and_changed_files_alone_are_read(files, read, monkeypatch):
    with monkeypatch.context() as small:
        small.setattr(dataset, "_LARGE", 1 << 40)
        run, _ = files.import_(**CONTENT)
        assert not kept.locate_kept(run).exists()
    assert len(import_again(files, read)) == 6
    assert import_again(files, read) == []
    # What has no effect on a frame may change.
    assert import_again(files, read, split={"val": 0.3, "test": 0.1}) == []
    narrower = [{"path": "raw/**/[0-4].xyz", "group": "folder"}]
    assert import_again(files, read, sources=narrower) == []
    files.import_(**CONTENT)
    shutil.copy(files.datasets / "raw/1/3.xyz", files.datasets / "raw/1/35.xyz")
    change_energy(files.datasets / "raw/0/1.xyz")
    assert import_again(files, read) == ["1.xyz", "35.xyz"]
    (files.datasets / "raw/1/2.xyz").unlink()
    assert import_again(files, read) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"sources": [{"path": "raw/**/*.xyz", "group": "file"}]},
        {"sources": [{"path": "raw/**/*.xyz", "group": "folder", "limits": {"force": 900}}]},
        {"labels": ["energy", "forces"], "partial": []},
    ],
    ids=["group", "limits", "labels"],
)
def test_what_changes_frames_has_all_read(files, read, changes):
    files.import_(**CONTENT)
    assert len(import_again(files, read, **changes)) == 6


@pytest.mark.slow
def test_files_with_bad_frames_and_copies_are_read_again(files, read):
    path = files.datasets / "raw/0/0.xyz"
    path.write_text(path.read_text().replace("Cu ", "Qq ", 1))
    files.import_(**CONTENT)
    assert import_again(files, read) == ["0.xyz"]
    copies = [{"path": "raw/**/*.xyz", "group": "folder", "repeat": [1, 1, 2]}]
    files.import_(**CONTENT | {"sources": copies})
    assert len(import_again(files, read, sources=copies)) == 6


@pytest.mark.slow
def test_what_is_kept_outlives_the_artifact_and_may_be_damaged(files, read, caplog):
    run, _ = files.import_(**CONTENT)
    assert kept.locate_kept(run).samefile(run.data)
    run.data.unlink()
    assert import_again(files, read) == []
    content = bytearray(kept.locate_kept(run).read_bytes())
    content[len(content) // 3] ^= 1
    kept.locate_kept(run).write_bytes(content)
    assert len(import_again(files, read)) == 6
    assert "all raw files are read" in caplog.text


def test_parts_of_a_mixture_are_kept_by_their_names(files, read):
    files.dataset(**CONTENT)
    (files.datasets / "alloys.yaml").rename(files.datasets / "one.yaml")
    text = "description: mixed\nparts: [{dataset: one}, {dataset: two}]\n"
    (files.datasets / "two.yaml").write_text(
        (files.datasets / "one.yaml").read_text().replace("raw/**", "other/**")
    )
    (files.datasets / "mixed.yaml").write_text(text)
    shutil.copytree(files.datasets / "raw/0", files.datasets / "other/0")
    run = files.project.load_dataset("mixed")
    hook = files.registry.select_hook("data", None)
    hook(run=run)
    before = identify(run.data)
    read.clear()
    assert hook(run=run)["unchanged_files"] == 8
    assert (read, identify(run.data)) == ([], before)
