"""`pipeline-core load` and `export`: one command makes a calculator of published weights."""

import re
import subprocess

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.artifacts.foreign import PublishedFile, hash_as_git
from pipeline_core.cli import app
from pipeline_core.training.model_file import load_model
from pipeline_mace.conversion.files import MACE_TORCH
from pipeline_mace.options import MACEOptions
from plugins.mace.recorded import read_structures

pytestmark = pytest.mark.slow  # a process writes the files


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def model(peer_files, tmp_path):
    """A converted network of two heads."""
    path = tmp_path / "model.pt"
    done = call("load", peer_files / "two_heads.model", "--head", "Default", "--output", path)
    assert done.exit_code == 0, done.output
    return path


def test_one_command_makes_a_calculator(model, recorded):
    """Oracle: mace-torch's own predictions."""
    calculator = load_calculator(model)
    for i, atoms in enumerate(read_structures(recorded)):
        atoms.calc = calculator
        energy = recorded["two_heads/Default/energy"][i]
        assert atoms.get_potential_energy() == pytest.approx(energy, rel=1e-10)
        forces = recorded["two_heads/Default/forces"][4 * i : 4 * i + 4]
        np.testing.assert_allclose(atoms.get_forces(), forces, rtol=0, atol=1e-10)


def test_it_says_what_it_found(peer_files, tmp_path):
    said = call("load", peer_files / "density.model", "-o", tmp_path / "m.pt").output
    assert "3: O, Al, Cu" in said
    assert re.search(r"SHA-256 +[0-9a-f]{64}\n", said)
    sections = yaml.safe_load(said[said.index("model:\n") : said.index("\nwrote")])
    assert MACEOptions(**sections["model"]).normalization == "density"
    assert load_model(tmp_path / "m.pt")["metadata"]["options"] == sections["model"]


def test_the_card_names_the_file(model):
    said = call("card", model).output
    assert "two_heads.model, SHA-256" in said
    assert "random weights" not in said


@pytest.mark.parametrize(("arguments", "message"), [
    (("two_heads.model",), "has the heads pt_head, Default"),
    (("two_heads.model", "--head", "x"), "has no head 'x'"),
    (("two_heads.model", "--output", "two_heads.model"), "is the file itself"),
    (("none.model",), "none.model: no such file"),
    (("none.bin",), "none.bin: unknown file type; supported endings: .model"),
    (("none.model", "--plugin", "chgnet"), "supported endings: none"),
])  # fmt: skip
def test_what_cannot_be_loaded_is_said(peer_files, arguments, message, tmp_path, monkeypatch):
    for path in peer_files.glob("two_heads.model"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    done = call("load", *arguments)
    assert done.exit_code == 1
    assert message in done.output
    assert not (tmp_path / "model.pt").exists()


def test_published_models_are_listed_with_their_addresses():
    said = call("load").output
    for one in MACE_TORCH.published:
        assert re.search(rf"^{re.escape(one.name)} .*{re.escape(one.address)}$", said, re.MULTILINE)
    assert "git hash-object FILE" in said


def test_a_published_file_is_known_by_its_hash(tmp_path):
    """Oracle: Git."""
    path = tmp_path / "a.model"
    path.write_bytes(bytes(range(256)) * 5000)
    command = ["git", "hash-object", "--no-filters", path]
    blob = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert hash_as_git(path) == blob
    facts = {"name": "a", "address": "https://a", "data": "none", "licence": "MIT"}
    published = PublishedFile(**facts, git_blob=blob)
    kind = MACE_TORCH.__class__(
        name="other", ending=".model", read=None, write=None, published=(published,)
    )
    assert kind.identify(path) is published
    assert MACE_TORCH.identify(path) is None


def test_what_was_exported_is_not_loaded_again(model, tmp_path):
    done = call("export", model, tmp_path / "ours.model")
    assert "for mace-torch" in done.output
    done = call("load", tmp_path / "ours.model", "-o", tmp_path / "again.pt")
    assert "like files of `pipeline-core export`" in done.output


def test_a_model_that_no_other_program_loads_is_not_exported(tmp_path, model):
    done = call("export", model, tmp_path / "ours.bin")
    assert "unknown file type" in done.output
    done = call("export", model, model)
    assert done.exit_code == 1
