"""Files to start from: what is written is valid at once, and says what it took for granted."""

import json
from pathlib import Path

import pytest
import yaml

from core.cli.conftest import FRAME
from pipeline_atoms.cli.new_dataset import find_patterns
from pipeline_atoms.plugin import SECTIONS as OF_ATOMS
from pipeline_core.cli.yaml_templates import format_section
from pipeline_core.config.experiments import ENGINE_SECTIONS
from plugins.atoms.readers.deepmd_systems import make_frames, write_system

SECTIONS = {**ENGINE_SECTIONS, **OF_ATOMS["structure"]}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_written_with_comments_reads_as_its_defaults(name):
    model = SECTIONS[name]
    read = yaml.safe_load("\n".join(format_section(model)))
    assert model.model_validate_json(json.dumps(read)) == model()


def test_inspect_finds_labels_under_other_names(folder, call, refuse):
    result = call("inspect", folder / "workflows/datasets/water.xyz")
    assert result.exit_code == 0, result.output
    lines = [line.split(maxsplit=1) for line in result.output.splitlines() if "  " in line]
    facts = {name: value.strip() for name, value in lines}
    assert facts["energy"] == "REF_energy"
    assert facts["forces"] == "REF_forces"
    assert facts["stress"] == "not found"
    assert facts["elements"] == "H O"
    assert facts["format"] == "extxyz"
    (folder / "water.qqq").write_text("")
    refuse(["inspect", folder / "water.qqq"], "extxyz")


NAMELESS = "name the reader (--reader, or"


@pytest.mark.parametrize(
    ("name", "content", "words", "message"),
    [
        ("cut.xyz", FRAME[:-20], [], "no frame can be read as 'extxyz', of 1 frame looked at: "),
        ("water.qqq", "", [], f"no format has this ending; {NAMELESS}"),
        ("water.npy", "", [], NAMELESS),
        ("table.csv", "a,b\n1,2\n", ["--reader", "extxyz"], "no frame can be read as 'extxyz'"),
        ("folder/a.xyz", FRAME, [], "folder: is a folder without type.raw; name the raw"),
        ("", "", [], "nothing.xyz: no such file"),
    ],
)
def test_what_cannot_be_read_makes_no_dataset(folder, refuse, name, content, words, message):
    path = folder / (name or "nothing.xyz")
    if name:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    shown = path.parent if path.parent != folder else path
    refuse(["new-dataset", "mine", shown, *words], message)
    assert not (folder / "workflows/datasets/mine.yaml").exists()


def make_dataset(call, *paths):
    """Write a dataset of files; return what has been written, which can be imported as it is."""
    result = call("new-dataset", "mine", *paths)
    assert result.exit_code == 0, result.output
    result = call("data", "--dataset", "mine")
    assert result.exit_code == 0, result.output
    return yaml.safe_load(Path("workflows/datasets/mine.yaml").read_text())


def test_a_new_dataset_can_be_imported_as_it_is(folder, call):
    (folder / "raw").mkdir()
    frames = (folder / "workflows/datasets/water.xyz").read_text()
    for number in range(3):
        (folder / f"raw/run{number}.xyz").write_text(frames)
    written = make_dataset(call, *sorted((folder / "raw").glob("*.xyz")))
    assert [s["path"] for s in written["sources"]] == ["../../raw/run*.xyz"]
    assert written["sources"][0]["keys"] == {"energy": "REF_energy", "forces": "REF_forces"}
    assert written["labels"] == ["energy", "forces"]


@pytest.mark.slow
def test_labels_that_some_frames_lack_are_partial_and_nothing_is_overwritten(folder, call, refuse):
    path = folder / "workflows/datasets/water.xyz"
    before = path.with_suffix(".yaml").read_text()
    path.write_text(path.read_text().replace(" REF_energy=-15.0", ""))
    assert make_dataset(call, path)["partial"] == ["energy"]
    refuse(["new-dataset", "water", path], "exists already")
    assert path.with_suffix(".yaml").read_text() == before


@pytest.mark.slow
def test_a_folder_of_systems_becomes_a_dataset(folder, call):
    for seed in range(2):
        write_system(folder / f"deepmd/{seed}", make_frames(8, seed=seed))
    written = make_dataset(call, folder / "deepmd")
    (source,) = written["sources"]
    assert source == {"path": "../../deepmd/*/type.raw", "reader": "deepmd", "group": "folder"}
    assert written["labels"] == ["energy", "forces", "stress"]
    assert "Al Cu" in call("inspect", folder / "deepmd").output


@pytest.mark.parametrize(
    ("there", "chosen", "expected"),
    [
        (["a/OUTCAR", "b/OUTCAR"], ["a/OUTCAR", "b/OUTCAR"], ["*/OUTCAR"]),
        (["a/OUTCAR", "b/OUTCAR", "c/OUTCAR"], ["a/OUTCAR", "b/OUTCAR"], ["a/OUTCAR", "b/OUTCAR"]),
        (["010.log", "020.log"], ["010.log", "020.log"], ["*.log"]),
        (["run1.xyz", "run2.xyz"], ["run1.xyz", "run2.xyz"], ["run*.xyz"]),
        (["a.xyz"], ["a.xyz"], ["a.xyz"]),
        (["a.xyz", "b/c.xyz"], ["a.xyz", "b/c.xyz"], ["a.xyz", "b/c.xyz"]),
    ],
)
def test_files_become_the_pattern_that_matches_no_others(tmp_path, there, chosen, expected):
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_patterns([Path(name) for name in chosen], tmp_path) == expected


def test_a_new_experiment_is_valid_and_holds_every_option(folder, call):
    words = ["--plugin", "alpha", "--dataset", "water", "--scale", "smoke"]
    result = call("new-experiment", "alpha/second", *words)
    assert result.exit_code == 0, result.output
    path = folder / "workflows/experiments/alpha/second.yaml"
    written = yaml.safe_load(path.read_text())
    assert written["model"] == {"width": 8}
    assert written["train"]["epochs"] == 2
    assert set(written) >= {"graph", "partition", "train", "evaluate", "infer", "figures"}
    assert "# Neurons." in path.read_text()
    assert call("validate", "alpha/second").exit_code == 0


@pytest.mark.parametrize(
    ("name", "plugin", "dataset", "message"),
    [
        ("beta/second", "alpha", "water", "belong in the folder"),
        ("second", "alhpa", "water", "did you mean 'alpha'?"),
        ("second", "alpha", "watr", "did you mean"),
    ],
)
def test_a_mistake_writes_nothing(folder, refuse, name, plugin, dataset, message):
    refuse(["new-experiment", name, "--plugin", plugin, "--dataset", dataset], message)
    assert len(list((folder / "workflows/experiments").rglob("*.yaml"))) == 1
