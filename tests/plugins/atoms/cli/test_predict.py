"""`pipeline-core predict` on a model of Lennard-Jones pairs; the oracle is ASE's calculator."""

import json
from pathlib import Path

import ase.build
import ase.io
import numpy as np
import pytest
import torch

from fake_packages import install
from pipeline_core.training.model_file import save_archive
from plugins.atoms.argon import REFERENCES, SCALE, make_run, make_structures
from plugins.atoms.lennard_jones import make_ase_lennard_jones


@pytest.fixture
def model(folder):
    """The folder of a trained run, and its plugin among those that are installed."""
    install(folder / "site", "argon", "from plugins.atoms.argon import model, task")
    return make_run(folder).model.parent


@pytest.fixture
def crystals(folder):
    """A file of six structures with energies of other references, and exact forces."""
    frames = make_structures(6)
    for atoms in frames:
        atoms.get_stress()  # and all else, for the file to hold
    ase.io.write(folder / "crystals.traj", frames)
    return frames


def read_table(text):
    return [line.split() for line in text.split("\n\n")[0].splitlines()[1:]]


def test_the_table_and_the_file_say_what_ase_says(model, crystals, call):
    result = call("predict", model, "crystals.traj")
    assert result.exit_code == 0, result.stderr
    assert result.output.endswith("wrote predictions.xyz: 6 frames\n")
    rows, written = read_table(result.output), ase.io.read("predictions.xyz", ":")
    for number, (row, atoms, ours) in enumerate(zip(rows, crystals, written, strict=True)):
        energy = SCALE * atoms.get_potential_energy() + sum(REFERENCES[s] for s in atoms.symbols)
        largest = SCALE * np.linalg.norm(atoms.get_forces(), axis=1).max()
        assert row[:3] == [str(number), atoms.get_chemical_formula(), str(len(atoms))]
        assert float(row[3]) == pytest.approx(energy / len(atoms), abs=1e-5)
        assert float(row[4]) == pytest.approx(largest, abs=1e-4)
        assert ours.get_potential_energy() == pytest.approx(energy, abs=1e-5)
        assert np.allclose(ours.get_forces(), SCALE * atoms.get_forces(), atol=1e-5)
        assert np.allclose(ours.get_stress(), SCALE * atoms.get_stress(), atol=1e-6)


def test_errors_are_shown_with_what_to_make_of_energies(model, crystals, call):
    text = call("predict", model / "model.pt", "crystals.traj").output
    forces = np.concatenate([atoms.get_forces() for atoms in crystals])
    error = 1000 * (SCALE - 1) * np.abs(forces).mean()
    line = next(line for line in text.splitlines() if line.startswith("force "))
    assert float(line.split()[1]) == pytest.approx(error, rel=1e-3)
    assert line.endswith("meV/Å")
    assert "without the mean difference of" in text
    assert "differ by a constant of each element" in text


@pytest.mark.slow
def test_of_a_training_that_lasts_the_best_model_so_far_predicts(model, crystals, call):
    finished = call("predict", model, "crystals.traj")
    (model / "state").mkdir(exist_ok=True)
    (model / "model.pt").rename(model / "state/best.pt")
    for path in (model, model / "model.pt", model / "state/best.pt"):
        result = call("predict", path, "crystals.traj")
        assert result.exit_code == 0, result.stderr
        assert result.output.splitlines()[-9:] == finished.output.splitlines()[-9:]
    content = json.loads(call("predict", model, "crystals.traj", "--json").stdout)
    assert content["model"] == str(model / "state/best.pt")


def test_json_holds_paths_frames_and_errors(model, crystals, call):
    words = ["predict", model, "crystals.traj", "--json", "--output", "new/of_crystals.extxyz"]
    content = json.loads(call(*words).output)
    assert content["output"] == "new/of_crystals.extxyz"
    assert content["model"] == str(model / "model.pt")
    assert [one["frame"] for one in content["frames"]] == list(range(6))
    assert content["frames"][0].keys() == {
        "file", "frame", "formula", "n_atoms", "energy_per_atom", "largest_force",
        "energy_uncertainty", "force_uncertainty",
    }  # fmt: skip
    assert content["errors"]["forces"]["unit"] == "eV/Å"
    assert content["errors"]["stress"]["count"] == 9 * 6
    assert len(ase.io.read("new/of_crystals.extxyz", ":")) == 6


@pytest.mark.slow
def test_long_and_several_files(model, crystals, call):
    """A long file is not printed in full; of several files each frame names its own."""
    ase.io.write("long.xyz", make_structures(23), format="extxyz")
    text = call("predict", model, "long.xyz").output
    assert len(read_table(text)) == 20 + 1
    assert "... and 3 more" in text
    assert len(ase.io.read("predictions.xyz", ":")) == 23
    ase.io.write("one.traj", crystals[:1])
    ase.io.write("two.xyz", crystals[1:3], format="extxyz")
    text = call("predict", model, "one.traj", "two.xyz").output
    assert [row[:2] for row in read_table(text)] == [
        ["one.traj", "0"], ["two.xyz", "0"], ["two.xyz", "1"],
    ]  # fmt: skip
    assert "wrote predictions.xyz: 3 frames" in text


def test_a_file_that_no_reader_claims_is_left_to_ase(model, call):
    atoms = ase.build.bulk("Ar", "fcc", 5.3, cubic=True)
    ase.io.write("POSCAR", atoms)
    text = call("predict", model, "POSCAR").output
    assert "mean absolute errors" not in text  # it says nothing to compare with
    assert "constant" not in text
    atoms.calc = make_ase_lennard_jones()
    energy = SCALE * atoms.get_potential_energy() / 4 + REFERENCES["Ar"]
    assert float(read_table(text)[0][3]) == pytest.approx(energy, abs=1e-5)


def write_renamed(frames):
    for atoms in frames:
        atoms.info = {"REF_energy": atoms.get_potential_energy()}
        atoms.arrays["REF_forces"] = atoms.get_forces()
        atoms.calc = None
    ase.io.write("renamed.xyz", frames, format="extxyz")


@pytest.mark.slow
def test_labels_of_other_names_are_compared_when_they_are_named(model, crystals, call):
    write_renamed(crystals)
    assert "mean absolute errors" not in call("predict", model, "renamed.xyz").output
    words = ["--key", "energy=REF_energy", "--key", "forces=REF_forces"]
    text = call("predict", model, "renamed.xyz", *words).output
    assert "mean absolute errors" in text
    assert "\nforce " in text


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["energy"], "--key energy: expected LABEL=NAME"),
        (["energy="], "--key energy=: expected LABEL=NAME"),
        (["energy=a", "energy=b"], "energy is given twice"),
        (["energy=REF_energie"], "energy was found under 'REF_energie' in 0 of 6 frames"),
        (["enrgy=REF_energy"], "keys: enrgy unknown; labels are energy, forces, stress, magmoms"),
    ],
)
def test_a_wrong_key_is_explained(model, crystals, refuse, keys, message):
    write_renamed(crystals)
    words = [word for key in keys for word in ("--key", key)]
    refuse(["predict", model, "renamed.xyz", *words], message)


@pytest.mark.slow
def test_what_is_no_model_and_no_structure_is_refused_with_the_cure(
    model, crystals, folder, refuse
):
    save_archive(Path("last.pt"), {"step": 3}, {})
    (folder / "empty.xyz").write_text("")
    (folder / "notes").write_text("not a structure\n")
    ase.io.write("iron.traj", ase.build.bulk("Fe", cubic=True))
    no_model = "crystals.traj: is not a model; give a model.pt or the folder of a run first"
    no_head = "one head, without a name, and no 'pbe'; leave the head"
    unknown = "iron.traj: frame 0 (Fe2): the model was trained on Ar, Kr, not on Fe (atom 0 of 2)"
    for words, message in (
        (["nothing.pt", "crystals.traj"], "nothing.pt: no such file or folder"),
        (["crystals.traj", model / "model.pt"], no_model),
        ([model.parent, "crystals.traj"], f"holds no model.pt; name {model}"),
        (["site", "crystals.traj"], "holds no model.pt; train one"),
        (["last.pt", "crystals.traj"], "last.pt: not a model; give the path of a model.pt"),
        ([model, "nothing.xyz"], "nothing.xyz: no such file"),
        ([model, "site"], "site: is a folder; name a file in it"),
        ([model, "empty.xyz"], "empty.xyz: holds no frames of format 'extxyz'"),
        ([model, "notes"], "notes: frame 0: ASE cannot read it"),
        ([model, "iron.traj"], unknown),
        ([model, "iron.traj", "--head", "pbe"], no_head),
        ([model, "iron.traj", "--reader", "nothing"], "no reader 'nothing'"),
    ):
        refuse(["predict", *words], message)
        assert not (folder / "predictions.xyz").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("crystals.xyz", "is an input file; choose another name"),
        ("predictions.traj", "the output is extended XYZ; its name must end in .xyz or .extxyz"),
    ],
)
def test_an_output_that_cannot_be_is_refused_first(model, crystals, refuse, output, message):
    ase.io.write("crystals.xyz", crystals, format="extxyz")
    before = Path("crystals.xyz").read_text()
    words = ["predict", model, "crystals.xyz", "--output", output]
    refuse(words, f"--output {output}: {message}")
    assert Path("crystals.xyz").read_text() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(model, crystals, refuse):
    words = ["predict", model, "crystals.traj", "--device", "cuda"]
    refuse(words, "device 'cuda': no GPU is visible")
