"""Trained models as files: whole or refused, and checked by their own predictions."""

import json
from contextlib import nullcontext

import pytest
import torch

import toy_potential as toy
from pipeline_core.artifacts.store import write_sealed
from pipeline_core.config.sections import TrainOptions
from pipeline_core.task import build_task
from pipeline_core.training.model_file import check_probe, load_model, save_archive
from pipeline_core.training.start import initialize_weights
from pipeline_core.training.trainer import train_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return toy.train(tmp_path_factory.mktemp("trained"), {"precision": "32-true"})


def test_content_and_that_the_probe_is_what_the_weights_predict(trained):
    content = load_model(trained.model)
    assert content["plugin"] == "toy"
    assert content["metadata"]["options"]["width"] == 8
    assert content["elements"] == ["H"]
    assert content["dtype"] == "float32"
    assert (content["experiment"], content["variant"]) == ("pairs", "base")
    provenance = json.loads(content["provenance"])
    assert (provenance["stage"], provenance["ranks"]) == ("train", 1)
    task = build_task(trained)
    task.module.load_state_dict(content["weights"])
    probe = content["probe"]
    outputs = task.module(task.samples(probe["split"]).batch(probe["numbers"]))
    assert len(probe["numbers"]) == 4
    assert probe["outputs"].keys() == {"energy", "forces"}
    for name, expected in probe["outputs"].items():
        torch.testing.assert_close(outputs[name], expected)


def damage(edit):
    """Make a file of the bytes of a model, after an edit of them."""

    def write(path, model):
        content = bytearray(model.read_bytes())
        edit(content)
        path.write_bytes(content)

    return write


def save(content):
    def write(path, model):
        with write_sealed(path, {}) as file:
            torch.save(content, file)

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path, model: None, "no such file; run the stage 'train'"),
        (damage(lambda c: c.clear()), "damaged"),
        (damage(lambda c: c.__delitem__(slice(len(c) // 2, None))), "damaged"),
        (damage(lambda c: c.__setitem__(slice(2000, 2200), bytes(200))), "damaged"),
        (damage(lambda c: c.__setitem__(slice(None), b"weights")), "another program has written"),
        (save({"weights": torch.zeros(2)}), "not a model; give the path"),
        (save([1, 2]), "damaged"),
        (save({"weights": print}), "not written by this package"),  # would run code
    ],
)
def test_damaged_and_other_files_are_refused(trained, tmp_path, write, message):
    path = tmp_path / "model.pt"
    write(path, trained.model)
    with pytest.raises(ValueError, match=f"model.pt: .*{message}"):
        load_model(path)


@pytest.mark.parametrize("choice", ["model", "dataset"])
def test_fine_tuning_on_another_level_of_theory(trained, tmp_path, caplog, choice):
    """Of elements that the model does not know it takes those of the dataset in any case."""
    content = load_model(trained.model)
    content["weights"]["atom_energies"][1] = -7.0
    content["probe"]["outputs"] = {}
    save_archive(tmp_path / "model.pt", content, {})
    run = toy.make_run(tmp_path)
    module = build_task(run).module
    module.atom_energies[1:3] = torch.tensor([493.0, -3.0])
    start = {"start_from": str(tmp_path / "model.pt"), "reference_energies": choice}
    initialize_weights(module, TrainOptions(**start), run.model_info, fresh=True)
    assert module.atom_energies[1:3].tolist() == [493.0 if choice == "dataset" else -7.0, -3.0]
    warned = "differ from those of the model by up to 500.0 eV (H)" in caplog.text
    assert warned == (choice == "model")


def test_weights_that_do_not_fit_are_refused(trained, tmp_path):
    content = load_model(trained.model)
    content["weights"]["net.2.weight"][0, 0] += 0.01
    save_archive(tmp_path / "model.pt", content, {})
    tuned = toy.make_run(tmp_path, {"start_from": str(tmp_path / "model.pt")})
    with pytest.raises(ValueError, match=r"does not reproduce .*: energy by .* forces by"):
        train_run(tuned)
    wide = toy.make_run(tmp_path, {"start_from": str(trained.model)}, model={"width": 5})
    with pytest.raises(ValueError, match=r"(?s)do not fit the module .*size mismatch"):
        train_run(wide)


class Vanishing(torch.nn.Module):
    """Predicts no force on four atoms."""

    def forward(self, batch):
        return {"forces": torch.zeros(4, 3)}


def test_rounding_of_forces_that_vanish_by_symmetry_is_no_deviation(tmp_path):
    """Another processor rounds the sum of opposite forces differently."""
    content = {"dtype": "float32", "weights": {}, "metadata": {}}
    for stored, fits in ((2e-7, True), (1e-3, False)):
        probe = {"batch": {}, "outputs": {"forces": torch.full((4, 3), stored)}}
        expected = nullcontext() if fits else pytest.raises(ValueError, match=r"forces by 0\.001")
        with expected:
            check_probe(Vanishing(), content | {"probe": probe}, tmp_path / "model.pt")


@pytest.mark.slow
def test_a_model_to_start_from_that_has_changed_starts_afresh(trained, tmp_path, caplog):
    path = tmp_path / "model.pt"
    path.write_bytes(trained.model.read_bytes())
    tuned = toy.train(tmp_path, {"start_from": str(path)})
    content = load_model(path)
    save_archive(path, content | {"variant": "other"}, {})
    train_run(tuned)
    assert "another model.pt" in caplog.text


@pytest.mark.slow
def test_published_weights(tmp_path, monkeypatch):
    train = {"start_from": "published:ones", "epochs": 1, "optimizer": {"lr": 1e-12}}
    run = toy.train(tmp_path, train)
    assert (load_model(run.model)["weights"]["net.0.weight"] - 1).abs().max() < 1e-9
    as_they_are = toy.make_run(tmp_path / "ones", train | {"epochs": 0})
    summary = train_run(as_they_are)
    assert (summary["epochs"], summary["best_loss"]) == (0, None)
    assert as_they_are.history.read_text() == ""
    assert (load_model(as_they_are.model)["weights"]["net.0.weight"] == 1).all()
    unknown = toy.make_run(tmp_path, train | {"start_from": "published:twos"})
    with pytest.raises(ValueError, match="unknown published weights 'twos'"):
        train_run(unknown)
    monkeypatch.delattr(toy.PairPotential, "load_published")
    # The plugin is a second copy of this module only in other processes, so the change reaches it.
    with pytest.raises(ValueError, match="the model has no published weights"):
        train_run(toy.make_run(tmp_path / "none", train))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"epochs: 0 trains nothing; set train\.start_from"),
        ({"reference_energies": "dataset"}, r"remove the key, or set train\.start_from"),
    ],
)
def test_options_of_weights_that_are_not_there(options, message):
    with pytest.raises(ValueError, match=message):
        TrainOptions(**options)
