"""Figures of gauge flows: the numbers that they show.

Oracles: closed forms for normal weights and for a shift of normal numbers (`made_up`).
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeline_core.figures import story
from pipeline_core.figures.drawing import draw_experiment
from pipeline_core.samples import SampleFile
from pipeline_core.store import read_json
from pipeline_gauge_flows.figures import (
    costs,
    curves,
    derivatives,
    learning,
    observables,
    partition_function,
    runs,
    shots,
    volumes,
    weights,
)
from pipeline_gauge_flows.paper import equation19
from pipeline_gauge_flows.plugin import figures
from plugins.drawn import select_rows
from plugins.gauge_flows import made_up

SIGMAS = 4.0

pytestmark = pytest.mark.usefixtures("figure_style")


def test_variants_that_differ_in_the_seed_alone_are_repeats(tmp_path):
    again = {"evaluate": {"samples": 100}}
    content = made_up.replace_variants(**made_up.LOOPS["variants"], more_samples=again)
    fixed, learned = runs.group_runs(made_up.write_experiment(tmp_path, content))
    assert [run.variant for run in fixed.runs] == ["base", "fixed_seed1", "more_samples"]
    assert [run.variant for run in fixed.repeats] == ["base", "fixed_seed1"]
    assert [run.variant for run in learned.repeats] == ["loops_seed0", "loops_seed1"]
    assert (fixed.name, learned.name) == ("fixed plaquette", "learned loops")


def test_groups_that_loops_do_not_tell_apart_are_called_as_their_variants(tmp_path):
    slow = {"train": {"optimizer": {"lr": 1e-5}}}
    content = made_up.replace_variants(
        slow_seed0=slow, slow_seed1={**slow, "seed": 1}, deep={"graph": {"repeats": 3}}
    )
    groups = runs.group_runs(made_up.write_experiment(tmp_path, content))
    assert [group.name for group in groups] == ["base", "slow", "deep"]
    assert len({group.colour for group in groups}) == 3


def test_weights_beyond_double_precision_have_no_effective_sample_size(tmp_path):
    experiment = made_up.write_experiment(tmp_path, made_up.replace_variants())
    run = experiment.runs["base"]
    made_up.write_training(run)
    record = json.loads(run.history.read_text().splitlines()[0])
    same = {"weight": 1e-130, "weight_square": 1e-260, "log_weight": -500.0}
    record["val"] |= {**same, "log_weight_square": 500.0**2 + 40}
    run.history.write_text(json.dumps(record))
    assert np.isnan(curves.read_curve(run).ess).all()
    # Half of them cut off.
    record["val"] |= {"weight": 1e130, "weight_square": 1.6e260, "log_weight": 299.0}
    record["val"]["log_weight_square"] = 299.0**2 + 9
    run.history.write_text(json.dumps(record))
    assert np.isnan(curves.read_curve(run).ess).all()


def test_forward_training_has_its_own_effective_sample_size(tmp_path):
    experiment = made_up.write_experiment(tmp_path, made_up.replace_variants())
    run = experiment.runs["base"]
    made_up.write_training(run)
    terms = {"loss": 3.0, "forward_kl": 3.0, "weight": 4.0, "inverse_weight": 0.5}
    terms |= {"log_weight": 0.0, "log_weight_square": 1.0}
    record = {"epoch": 1, "lr": 0.1, "train": terms, "val": None}
    run.history.write_text(json.dumps(record))
    curve = curves.read_curve(run)
    # 1 / (<w> <1/w>)
    assert (curve.ess.tolist(), curve.loss, curve.split) == ([0.5], None, "train")


def test_learning_curves_have_every_variant(loops):
    figure, table = learning.draw(loops)
    assert {row["variant"] for row in select_rows(table)} == set(loops.runs)
    (last,) = select_rows(table, variant="base", epoch=made_up.EPOCHS)
    log_z = made_up.compute_log_z(loops.runs["base"])
    assert last["val_loss"] == pytest.approx(2 / made_up.EPOCHS - log_z)
    loss, ess, *_ = figure.axes
    assert (len(loss.lines), len(ess.lines)) == (8, 4)


@pytest.mark.slow
def test_derivatives_are_those_of_shifted_normal_numbers(between):
    figure, table = derivatives.draw(between)
    for estimator in ("flow", "epsilon", "epsilon_limit", "fluctuations_mean_of_ends"):
        for row in select_rows(table, observable="plaquette", estimator=estimator):
            assert abs(row["value"] - 1) < SIGMAS * row["error"], row
    (same,) = select_rows(table, observable="plaquette", estimator="epsilon", part_of_step=1.0)
    # A fifth of the shift is left to be reweighted, so errors are a fifth.
    assert same["error_over_flow"] == pytest.approx(5, rel=0.2)
    assert select_rows(table, observable="plaquette", estimator="theory")[0]["value"] == 1.0
    first, second, ratios = figure.axes
    assert first.get_title(loc="left") == "d⟨dS/dλ⟩/dλ"
    assert second.get_title(loc="left") == "d⟨plaquette⟩/dλ"
    assert [label.get_text() for label in first.get_xticklabels()] == ["0", "1/4", "1/2", "1", "1"]
    assert "λ = 0 → 0.2" in first.get_xlabel()
    assert {"flow", "ε-reweighting", "independent ensembles"} <= set(made_up.read_legend(figure))
    by_label = {line.get_label(): line for line in ratios.lines}
    drawn = by_label["error: ε-reweighting, same step"]
    assert drawn.get_xdata()[1] == pytest.approx(same["error_over_flow"])


def test_without_a_second_ensemble_there_is_none_in_the_figures(tmp_path):
    experiment = made_up.write_derivatives(tmp_path, second=False)
    figure, table = derivatives.draw(experiment)
    assert not any("independent" in label for label in made_up.read_legend(figure))
    assert not any("the paper" in label for label in made_up.read_legend(figure))
    assert select_rows(table, estimator="independent") == []
    _, table = equation19.draw(experiment)
    (row,) = select_rows(table, term="sampled")
    assert row["base_seconds"] is None


def test_independent_configurations_are_priced(loops):
    figure, table = costs.draw(loops)
    (flow,) = select_rows(table, variant="loops_seed0", by="flow")
    expected = np.exp(made_up.VARIANCES["learned"])
    assert flow["needed_reweighted"] == pytest.approx(expected, rel=0.1)
    assert flow["seconds_per_independent"] == pytest.approx(1e-3 * flow["needed_reweighted"])
    assert flow["break_even"] is None
    (heatbath,) = select_rows(table, variant="loops_seed0", by="heat bath")
    assert heatbath["seconds_per_independent"] == 1e-4
    shown = made_up.read_words(figure.axes[0])
    assert {"flow: loops_seed0", "heat bath", "HMC", "100 µs", "3.0: 2 τ"} <= set(shown)
    assert sum(text.startswith("never") for text in shown) == 4


def test_a_flow_that_pays_says_when(tmp_path):
    experiment = made_up.write_loops(tmp_path, made_up.replace_variants())
    run = experiment.runs["base"]
    content = read_json(run.metrics)
    content["flow"]["cost"] = made_up.make_cost(content["flow"]["lattices"][0], heatbath=5e-3)
    run.metrics.write_text(json.dumps(content))
    figure, table = costs.draw(experiment)
    (flow,) = select_rows(table, by="flow")
    assert flow["break_even"] == pytest.approx(16 / (5e-3 - flow["seconds_per_independent"]))
    joined = " ".join(made_up.read_words(figure.axes[0]))
    assert f"{flow['break_even']:,.0f} configurations" in joined
    assert "never" not in joined


def test_log_z_lies_between_its_bounds(loops):
    figure, table = partition_function.draw(loops)
    for variant in loops.runs:
        values = {
            (row["quantity"], row["how"]): row["value"]
            for row in select_rows(table, variant=variant, lattice="4×4")
        }
        # Oracle: the notes' value for the torus, log Z = 19.77424353.
        assert values["known", "exact"] == pytest.approx(19.77424353)
        assert values["elbo", "flow"] < values["known", "exact"] < values["eubo", "ensemble"]
        assert values["estimate", "flow"] == pytest.approx(19.774, abs=0.1)
    bounds, _ = figure.axes
    assert bounds.get_xlabel() == "log Z less the exact one"
    assert made_up.read_legend(figure)[-2:] == [
        "upper bound, by an ensemble",
        "estimate by an ensemble",
    ]


def test_averages_stand_in_standard_errors_from_what_they_should_be(loops):
    figure, table = observables.draw(loops)
    (theory,) = select_rows(
        table, variant="base", lattice="4×4", observable="plaquette", by="theory"
    )
    # Oracle: the notes' plaquette of the torus.
    assert theory["value"] == pytest.approx(0.42253206)
    (flow,) = select_rows(table, variant="base", lattice="4×4", observable="plaquette", by="flow")
    distance = (flow["value"] - theory["value"]) / flow["error"]
    assert theory["sigmas"] == pytest.approx(distance)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plaquette", "Polyakov loop"]
    drawn = {float(line.get_xdata()[0]) for line in axes.lines}
    assert theory["sigmas"] in drawn


def test_the_volume_law_holds_for_weights_whose_variance_grows_with_the_volume(loops):
    figure, table = volumes.draw(loops)
    for row in select_rows(table, lattice="8×4"):
        assert abs(row["sigmas"]) < SIGMAS
        (first,) = select_rows(table, variant=row["variant"], lattice="4×4")
        assert row["expected"] == pytest.approx(first["ess"] ** 2)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4×4", "8×4"]


def test_densities_of_weights_differ_by_the_weight(loops):
    _, table = weights.draw(loops)
    for variant in ("base", "loops_seed0"):
        mean = {}
        for source in ("flow", "target"):
            bins = select_rows(table, variant=variant, **{"from": source})
            x = np.array([row["log_weight_less_log_z"] for row in bins])
            density = np.array([row["density"] for row in bins])
            assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=0.01)
            mean[source] = (x * density).sum() / density.sum()
        # Oracle: the means of log w under both are -s²/2 and s²/2.
        loop = "plaquette" if variant == "base" else "learned"
        variance = made_up.VARIANCES[loop]
        assert mean["target"] - mean["flow"] == pytest.approx(variance, rel=0.1)
    assert select_rows(table, variant="loops_seed1") == []


def test_without_results_there_is_nothing_to_draw(tmp_path):
    experiment = made_up.write_experiment(tmp_path, made_up.LOOPS)
    drawn = [figure.draw(experiment) for figure in figures()]
    assert drawn == [None] * 11


@pytest.mark.slow
def test_all_figures_are_drawn_into_the_report(tmp_path):
    experiment = made_up.write_loops(tmp_path, made_up.LOOPS)
    with SampleFile(experiment.runs["base"].predictions, "predictions") as file:
        assert len(file.read_column("log_weight")) == 2.5 * made_up.N
    summary = draw_experiment(experiment)
    named = {figure.name for figure in figures()}
    assert named - set(summary["drawn"]) == {
        "derivatives", "cost_derivatives", "figure1", "figure2", "noise_shots",
    }  # fmt: skip
    assert story.judge(experiment) == ("Made up.", "unknown")
    captions = json.loads((experiment.folder / "index.json").read_text())
    learned = next(entry for entry in captions if entry["name"] == "learning")
    assert "effective sample size" in learned["caption"].lower()


@pytest.mark.slow
def test_the_pion_is_in_a_figure_of_its_own(tmp_path):
    experiment = made_up.write_derivatives(tmp_path, pion=True)
    figure, table = derivatives.draw(experiment)
    labels = [text.get_text() for text in figure.axes[2].get_yticklabels()]
    assert "plaquette" in labels
    assert not any("pion" in label for label in labels)
    assert select_rows(table, observable="pion_mass_1", estimator="flow")


def test_noise_shots_raise_the_effective_sample_size(tmp_path):
    """<W>^2 / <W^2> of normal log w, and of log r of variance v in n shots, on average 1."""
    experiment = made_up.write_shots(tmp_path)
    figure, table = shots.draw(experiment)
    for kind, v in made_up.NOISE.items():
        for row in select_rows(table, by=kind):
            noise = 1 + np.expm1(v) / row["shots"]
            expected = np.exp(-made_up.VARIANCES["learned"]) / noise
            assert abs(row["ess"] - expected) < SIGMAS * row["error"]
            assert row["error"] < 0.1 * expected
    assert [row["shots"] for row in select_rows(table, by="flow")] == [1, 2, 4]
    labels = made_up.read_legend(figure)
    assert labels == ["exact determinants", "flow of pseudofermions", "none"]
    report = runs.read_flow(experiment.runs["loops_seed0"])["lattices"][0]["pseudofermions"]
    assert report["given_links"]["gain_sigmas"] > SIGMAS
    for mean in report["mean"].values():
        assert abs(mean["value"] - 1) < SIGMAS * mean["error"]
