"""Learning curves, errors by element, group and force, molecular dynamics, balance, dataset."""

import io
import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from core.figures import synthetic
from pipeline_atoms.figures import dynamics
from pipeline_atoms.figures.errors import average_errors, draw_by_element
from pipeline_core.artifacts.store import read_json
from pipeline_core.figures import balance, dataset, errors, learning, results
from pipeline_core.report.numbers import collect_training

pytestmark = pytest.mark.usefixtures("figure_style")


def list_lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_learning_curves_show_every_epoch_of_every_variant(experiment):
    figure, table = learning.draw(experiment)
    loss, energy, forces, stress, rate = figure.axes[:5]
    assert [a.get_ylabel() for a in (energy, forces, stress, rate)] == [
        "energy MAE (meV/atom)",
        "force MAE (meV/Å)",
        "stress MAE (GPa)",
        "learning rate",
    ]
    assert all(axes.get_yscale() == "log" for axes in (loss, energy, forces, stress, rate))
    history = results.read_history(experiment.runs["wide"])
    expected = [1000 * record["mae"]["forces"] for record in history]
    assert np.array_equal(list_lines(forces)["wide"].get_ydata(), expected)
    assert len(loss.lines) == 4  # training and validation of two variants
    assert len(table) == 1 + 2 * 40


def test_errors_before_the_first_step_are_points_at_epoch_zero(folder, experiment):
    """Times, numbers of epochs and the training loss leave them out."""
    copy = synthetic.load(folder)
    run = copy.runs["wide"]
    start = {"epoch": 0, "train": None, "val": {"loss": 9.0}, "mae": {"forces": 4.0}}
    start["mae"] |= {"energy": None, "stress": 1.0}
    run.history.write_text(json.dumps(start) + "\n" + run.history.read_text())
    figure, table = learning.draw(copy)
    losses = [line for line in figure.axes[0].lines if line.get_label() == "wide"]
    assert sorted(line.get_xdata()[0] for line in losses) == [0, 1]
    forces = list_lines(figure.axes[2])["wide"]
    assert (forces.get_xdata()[0], forces.get_ydata()[0]) == (0, 4000.0)
    assert len(table) == 1 + 1 + 2 * 40
    before = experiment.runs["wide"]
    assert results.compute_epoch_seconds(run) == results.compute_epoch_seconds(before)
    assert list(collect_training(run)) == list(collect_training(before))


def test_points_have_no_atoms(experiment):
    info = replace(experiment.model_info, data_kind="point")
    points = replace(experiment, model_info=info)
    figure, _ = learning.draw(points)
    assert figure.axes[1].get_ylabel() == "energy MAE (meV)"
    assert dataset.draw(points)[0].axes[0].get_xlabel() == "points"
    assert dataset.draw(experiment)[0].axes[0].get_xlabel() == "frames"
    assert [results.name_reference(e) for e in (points, experiment)] == ["reference", "DFT"]


@pytest.mark.parametrize(
    ("absent", "shown"),
    [(("energy_per_atom",), {"energy", "forces"}), (("energy_per_atom", "energy", "forces"), None)],
)
def test_groups_of_samples_without_atoms_are_compared_by_their_energy(folder, absent, shown):
    experiment = synthetic.load(folder)
    for run in experiment.runs.values():
        text = json.dumps(read_json(run.metrics))
        for name in absent:
            text = text.replace(f'"{name}"', f'"unused {name}"')
        run.metrics.write_text(text)
    drawn = errors.draw_by_group(experiment)
    if shown is None:
        assert drawn is None
        return
    assert drawn[0].axes[0].get_xlabel() == "energy MAE (meV)"
    assert {row[1] for row in drawn[1][1:]} == shown


def test_learning_without_validation_has_one_curve_a_variant(folder, experiment):
    for run in (copy := synthetic.load(folder)).runs.values():
        text = run.history.read_text().replace('"val": {', '"val": {}, "unused": {')
        run.history.write_text(text.replace('"mae": {', '"mae": {}, "unused_too": {'))
    figure, table = learning.draw(copy)
    drawn = [line for line in figure.axes[0].lines if len(line.get_xdata())]
    assert len(drawn) == 2
    assert table[0] == ["variant", "epoch", "train_loss", "val_loss", "lr", "grad_norm", "seconds"]


def test_elements_are_in_order_of_their_number_with_counts_of_atoms(experiment):
    figure, table = draw_by_element(experiment)
    labels = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    # 72 test frames of 8 Cu and 4 Au.
    assert labels == ["Cu\n576", "Au\n288"]
    mae = results.read_metrics(experiment.runs["base"]).splits["test"].elements["Au"]["forces"].mae
    heights = {bar.get_height() for bar in figure.axes[0].patches}
    assert 1000 * mae in heights
    assert len(table) == 1 + 2 * 2


def test_groups_of_all_splits_are_shown_with_their_split(experiment):
    figure, table = errors.draw_by_group(experiment)
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == [
        "cubic-0600K (val)",
        "cubic-2000K (val)",
        "tetragonal-0600K (test)",
        "tetragonal-2000K (test)",
    ]
    assert {row[1] for row in table[1:]} == {"energy_per_atom", "forces"}
    assert table[0].count("quantity") == 1
    assert len(table) == 1 + 2 * 2 * 4


def test_binned_errors_of_proportional_errors_are_exact():
    # Oracle: predictions that are a tenth too large are wrong by a tenth of every force.
    label = np.random.default_rng(0).normal(size=(500, 3))
    rows = average_errors(label, 1.1 * label)
    assert np.allclose(rows[:, 1], 0.1 * rows[:, 0])
    assert rows[:, 4].sum() == 500
    assert np.all(np.diff(rows[:, 0]) > 0)
    assert np.all((rows[:, 2] <= rows[:, 1]) & (rows[:, 1] <= rows[:, 3]))


def test_the_drawn_drift_is_the_slope_of_the_drawn_energy(experiment):
    """Oracle: numpy.polyfit of what is drawn, in picoseconds and meV an atom."""
    figure, table = dynamics.draw_conservation(experiment)
    left = figure.axes[2]
    assert left.get_title(loc="left").startswith("nve: NVE, 32 atoms")
    curve, fit = left.lines[:2]
    slope, offset = np.polyfit(curve.get_xdata(), curve.get_ydata(), 1)
    assert np.allclose(fit.get_ydata(), offset + slope * fit.get_xdata(), atol=1e-6)
    row = dict(zip(table[0], next(r for r in table if r[:2] == ["nve", "base"]), strict=True))
    assert row["drift_meV_per_atom_per_ps"] == pytest.approx(slope)
    assert row["steps"] == 100
    _, wide = dynamics.read_trajectories(experiment)["nve"]
    assert wide.time[-1] == pytest.approx(100 * 4.0 / 1000)
    with results.open_inference(experiment.runs["wide"]) as file:
        change = file["nve/conserved"][-1] - file["nve/conserved"][0]
    assert wide.conserved[-1] == pytest.approx(1000 * change / 32)


def test_each_pair_of_elements_has_its_radial_distribution(experiment):
    figure, table = dynamics.draw_rdf(experiment)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:3] == ["heat bath: Au–Au", "Cu–Au", "Cu–Cu"]
    with results.open_inference(experiment.runs["base"]) as file:
        expected = file["heat_bath/rdf/Cu-Au"][:]
        errors = file["heat_bath/rdf_error/Cu-Au"][:]
    assert np.array_equal(list_lines(figure.axes[1])["base"].get_ydata(), expected)
    assert {row[2] for row in table[1:]} == {"Au-Au", "Cu-Au", "Cu-Cu"}
    rows = [row for row in table[1:] if row[:3] == ["heat_bath", "base", "Cu-Au"]]
    assert [row[5] for row in rows] == errors.tolist()
    band = figure.axes[1].collections[0].get_paths()[0].get_extents()
    assert band.y1 == pytest.approx((expected + 2 * errors).max())


def test_variants_with_the_same_balance_share_its_curves(experiment):
    figure, table = balance.draw(experiment)
    (axes,) = figure.axes
    shown = list_lines(axes)
    assert list(shown) == [
        "equal numbers",
        "next fit (PyG, fairchem)",
        "smallest + largest (FastCHGNet)",
        "iterative packing (MACE)",
        "balanced",
        "balanced, steps of equal cost",
    ]
    assert np.array_equal(shown["balanced"].get_xdata(), [1, 2, 4, 8, 16, 32, 64])
    assert len(table) == 1 + 6 * 7
    figure.savefig(io.BytesIO(), dpi=100)
    (legend,) = figure.legends
    words = [text.get_window_extent() for text in legend.get_texts()]
    assert not any(a.overlaps(b) for a, b in combinations([*words, axes.get_tightbbox()], 2))
    assert all(word.x1 <= figure.bbox.x1 for word in words)


def test_the_dataset_shows_every_frame(experiment):
    figure, table = dataset.draw(experiment)
    bars = figure.axes[0].patches
    n_samples = sum(results.read_import_report(experiment).splits.values())
    assert sum(bar.get_width() for bar in bars) == n_samples
    assert sum(sum(row[1:]) for row in table[1:]) == n_samples


def test_small_groups_are_shown_together():
    many = {f"group{i:03}": {"train": 200 - i, "val": 1, "test": 0} for i in range(100)}
    totals = {s: sum(group[s] for group in many.values()) for s in ("train", "val", "test")}
    report = results.Groups(count=100, largest=many)
    groups = dataset.count_by_group(results.ImportReport(splits=totals, groups=report))
    assert len(groups) == dataset.MOST_GROUPS
    assert list(groups)[-1] == "77 others"
    assert {s: sum(g[s] for g in groups.values()) for s in totals} == totals
