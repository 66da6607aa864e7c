"""Oracles: exact predictions, a shift of all levels, labels themselves, the module's own output."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.batch import count_samples
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.figures import predictions
from pipeline_core.project.run import Run
from pipeline_core.testing.projects import call
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_egnn_esp.evaluation.comparison import Comparison, PredictedMatrix, require_electrons
from pipeline_egnn_esp.evaluation.evaluate import evaluate_matrices
from pipeline_egnn_esp.options import ESPEvaluateOptions, ESPOptions
from plugins.egnn_esp import trained
from plugins.egnn_esp.reference import BASIS, read_matrices_of, read_shipped

SECTION = ESPEvaluateOptions(k_points=(1, 1, 2), electrons={"Hf": 12, "O": 6})


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    evaluate = {"splits": ["val", "test"], "k_points": [1, 1, 1]}
    result = trained.prepare_run(tmp_path_factory.mktemp("evaluation"), evaluate=evaluate)
    call(result, "train")
    call(result, "evaluate")
    return result


def compare(*pairs, section=SECTION, **options):
    comparison = Comparison(ESPOptions(**options), section)
    for matrix, predicted in pairs:
        both = {"two_centre": np.zeros_like(predicted), "model": predicted}
        whole = PredictedMatrix(matrix, 0.0, both)
        comparison.add(whole, "a")
        if comparison.admit_levels(matrix):
            comparison.add_levels(whole)
    return comparison


def test_a_perfect_prediction_has_no_error():
    matrix = read_shipped("tetragonal-2000K")
    comparison = compare((matrix, matrix.hamiltonian))
    report = comparison.report()
    for part in ("on_site", "off_site"):
        assert report[part]["model"] == 0
    for kind in ("occupied", "all"):
        assert report["levels"]["model"][kind] == {"mae": 0, "aligned_mae": 0, "max_error": 0}
    assert comparison.report_quantities()["hamiltonian"]["r2"] == 1


@pytest.mark.slow
def test_a_multiple_of_the_overlap_moves_all_levels():
    """(H + 0.1 S) c = (ε + 0.1) S c."""
    matrix = read_shipped("cubic-2000K")
    levels = compare((matrix, matrix.hamiltonian + 0.1 * matrix.overlap)).report()["levels"]
    for kind in ("occupied", "all"):
        errors = levels["model"][kind]
        assert errors["mae"] == pytest.approx(0.1, abs=1e-9)
        assert errors["max_error"] == pytest.approx(0.1, abs=1e-8)
        assert errors["aligned_mae"] == pytest.approx(0, abs=1e-9)


def test_a_matrix_of_zeros_errs_by_the_labels():
    """Mean magnitudes by distance, element by element."""
    matrix = read_shipped("cubic-0600K")
    report = compare((matrix, 0.5 * matrix.hamiltonian)).report()
    blocks = [np.abs(block).ravel() for block in matrix.iterate_blocks("hamiltonian")]
    for row in report["shells"]:
        chosen = (matrix.lengths >= row["from"]) & (matrix.lengths < row["to"]) & ~matrix.is_on_site
        values = np.concatenate([blocks[b] for b in np.flatnonzero(chosen)])
        assert row["count"] == len(values)
        assert row["zero"] == pytest.approx(values.mean())
        assert row["model"] == pytest.approx(values.mean() / 2)
    assert [row["from"] for row in report["shells"]] == list(range(1, 10))
    own = np.concatenate([blocks[b] for b in np.flatnonzero(matrix.is_on_site)])
    assert report["on_site"]["count"] == len(own) == 4 * 100 + 8 * 16
    assert report["on_site"]["zero"] == pytest.approx(own.mean())
    assert report["relative"] == pytest.approx({"zero": 1, "two_centre": 1, "model": 0.5})


def test_both_of_a_hermitian_pair_count():
    matrix = read_shipped("cubic-0600K")
    actual = compare((matrix, 0 * matrix.hamiltonian)).report_quantities()
    on, off = actual["hamiltonian_on_site"], actual["hamiltonian_off_site"]
    whole = actual["hamiltonian"]
    assert whole["count"] == on["count"] + 2 * off["count"]
    total = on["count"] * on["mae"] + 2 * off["count"] * off["mae"]
    assert whole["mae"] == pytest.approx(total / whole["count"])
    is_own = np.repeat(matrix.is_on_site, matrix.shapes.prod(axis=1))
    report = compare((matrix, np.where(is_own, matrix.hamiltonian, 0))).report()
    own, others = (np.square(matrix.hamiltonian[rows]).sum() for rows in (is_own, ~is_own))
    error = 2 * others / (own + 2 * others)
    assert report["relative"]["model"] == pytest.approx(error**0.5)


def test_overlaps_have_no_levels():
    matrix = read_shipped("cubic-0600K")
    report = compare((matrix, 0.9 * matrix.overlap), target="overlap").report()
    assert report["levels"] is None


def test_electrons_decide_what_is_occupied():
    """48 of 72 levels of four Hf with 12 and eight O with 6 electrons; a mistake is explained."""
    matrix = read_shipped("cubic-0600K")
    pair = (matrix, 1.01 * matrix.hamiltonian)
    unknown = compare(pair, section=SECTION.model_copy(update={"electrons": {}})).report()
    assert set(unknown["levels"]["model"]) == {"all"}
    known = compare(pair).report()["levels"]["model"]
    from ase.dft.kpoints import monkhorst_pack

    from pipeline_egnn_esp.data.bands import compute_levels

    exact = compute_levels(matrix, monkhorst_pack((1, 1, 2)))
    assert known["all"]["mae"] == pytest.approx(0.01 * np.abs(exact).mean())
    assert known["occupied"]["mae"] == pytest.approx(0.01 * np.abs(exact[:, :48]).mean())


@pytest.mark.parametrize(("electrons", "words"), [
    ({"O": 6}, "lacks Hf; give"),
    ({"Hf": 72, "O": 8}, "72 of Hf, but its 10 orbitals hold 20; give the"),
])  # fmt: skip
def test_electrons_that_no_basis_holds(electrons, words):
    with pytest.raises(ValueError, match=words):
        require_electrons(read_shipped("cubic-0600K").basis, electrons)


def test_an_odd_number_of_electrons(water_runs):
    matrix = read_matrices_of(water_runs / "chain", cutoff=4.0)
    section = ESPEvaluateOptions(k_points=(1, 1, 1), electrons={"H": 2, "O": 7})
    with pytest.raises(ValueError, match=r"H\d*O\d*\) has \d+ electrons, an odd number.*half"):
        compare((matrix, matrix.hamiltonian), section=section)


def test_electrons_of_no_element():
    with pytest.raises(ValueError, match="'hf' is not an element"):
        ESPEvaluateOptions(electrons={"hf": 12})


def test_levels_of_large_structures_are_left_out():
    matrix = read_shipped("cubic-0600K")
    pair = (matrix, 1.01 * matrix.hamiltonian)
    comparison = compare(pair, section=SECTION.model_copy(update={"dense_orbitals": 71}))
    assert comparison.report()["levels"] is None
    assert comparison.report()["without_levels"] == 1
    assert "1 structures of more than" in comparison.summarize()["levels not compared"]
    assert compare(pair).report()["without_levels"] == 0


@pytest.mark.slow
def test_files_hold_what_the_module_predicts(run):
    """The matrix of the file, block by block, and the metrics computed from it."""
    task = load_trained_task(run, torch.device("cpu"))
    batch = task.samples("test").batch([0])
    with torch.no_grad():
        outputs = task.module(batch)
    edges = torch.cat([batch["edge_index"], batch["edge_shift"]], 1).tolist()
    number = {tuple(edge): n for n, edge in enumerate(edges)}
    with SampleFile(run.predictions, "predictions") as file:
        codes = file.read_column("split").tolist()
        sample = file.read(codes.index(2))
    assert codes == [1, 2]
    z, begin, n_edges, errors = sample["atomic_numbers"], 0, 0, []
    for (i, j), shift in zip(sample["block_atoms"], sample["block_shift"], strict=True):
        places = np.ix_(BASIS.find_orbitals(z[i]), BASIS.find_orbitals(z[j]))
        n, m = len(places[0]), places[1].shape[1]
        stored = sample["hamiltonian_predicted"][begin : begin + n * m].reshape(n, m)
        errors.append(stored.ravel() - sample["hamiltonian_label"][begin : begin + n * m])
        begin += n * m
        edge = number.get((int(i), int(j), *map(int, shift)))
        if i == j and not shift.any():
            expected = outputs["node_blocks"][i].numpy()[places]
        elif edge is None:  # beyond the cutoff of the model
            expected = np.zeros((n, m))
        else:
            n_edges += 1
            expected = outputs["edge_blocks"][edge].numpy()[places]
        np.testing.assert_allclose(stored, expected, atol=1e-5)
    assert begin == len(sample["hamiltonian_label"])
    assert 2 * n_edges == len(edges)
    i, j = sample["block_atoms"].T
    own = (i == j) & ~sample["block_shift"].any(1)
    on_site = [errors[number] for number in np.flatnonzero(own)]
    report = json.loads(run.metrics.read_text())
    actual = report["splits"]["test"]["quantities"]["hamiltonian_on_site"]
    assert actual["mae"] == pytest.approx(np.abs(np.concatenate(on_site)).mean(), rel=1e-5)
    assert report["matrices"]["splits"]["test"]["on_site"]["model"] == pytest.approx(actual["mae"])


def test_the_labels_of_the_file_are_those_of_the_data_less_their_zero(run):
    with SampleFile(run.predictions, "predictions") as file:
        sample = file.read(0)
    with SampleFile(run.data, "data") as data:
        numbers = np.flatnonzero(data.read_column("split") == 1)
        own = data.read(int(numbers[0]))
    expected = own["hamiltonian"] - sample["energy_zero"] * own["overlap"]
    np.testing.assert_allclose(sample["hamiltonian_label"], expected, atol=1e-5)
    assert abs(sample["energy_zero"]) > 0.1


def test_the_training_is_described(run):
    # Two frames of 12 atoms, one epoch in steps of one frame.
    content = store.read_json(run.metrics)
    assert content["training"] == {"structures": 2, "atoms": 12, "steps": 2}


def test_figures_find_the_comparison(run):
    (actual,) = predictions.read_comparisons(run)
    assert actual.quantity.name == "hamiltonian"
    assert actual.split == "test"
    assert len(actual.label) == len(actual.predicted) > 10_000
    assert actual.errors.unit == "eV"


@pytest.mark.slow
def test_want_of_memory_is_named_with_a_cure_that_helps(run, tmp_path, monkeypatch):
    predict, sizes = MicroBatch.predict, []
    splits = run.sections["evaluate"].model_copy(update={"splits": ["train"]})
    own = replace(run, folder=tmp_path, sections={**run.sections, "evaluate": splits})

    def run_out(self, module):
        sizes.append(count_samples(self.batch))
        if sizes[-1] > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return predict(self, module)

    monkeypatch.setattr(MicroBatch, "predict", run_out)
    with pytest.raises(ValueError, match=r"out of memory .* set partition\.capacity below") as said:
        evaluate_matrices(own)
    (cost,) = re.findall(r"capacity below (\S+),", str(said.value))
    section = run.sections["partition"].model_copy(update={"capacity": 0.4 * float(cost)})
    evaluate_matrices(replace(own, sections={**own.sections, "partition": section}))
    assert sizes[0] > 1
    assert sizes.count(1) == len(sizes) - 1


def test_want_of_memory_for_levels_is_named_with_the_cure(run, monkeypatch):
    def run_out(self, matrix):
        raise MemoryError

    monkeypatch.setattr(Comparison, "add_levels", run_out)
    with pytest.raises(ValueError, match=r"out of memory for levels .* evaluate\.dense_orbitals"):
        evaluate_matrices(run)


def test_nothing_to_compare_is_explained(run):
    section = run.sections["evaluate"].model_copy(update={"splits": []})
    with pytest.raises(ValueError, match=r"evaluate\.splits: no samples in no split"):
        call(replace(run, sections={**run.sections, "evaluate": section}), "evaluate")
