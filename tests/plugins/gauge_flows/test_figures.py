"""Figures of gauge flows: the numbers that they show.

Oracles: closed forms for normal weights and for a shift of normal numbers (`made_up`).
"""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest

from pipeline_core.figures import story, style
from pipeline_core.figures.drawing import draw_experiment
from pipeline_core.samples import SampleFile
from pipeline_gauge_flows.figures import (
    FIGURES,
    costs,
    derivatives,
    learning,
    observables,
    partition_function,
    runs,
    training,
    volumes,
    weights,
)
from plugins.drawn import rows
from plugins.gauge_flows import made_up

SIGMAS = 4.0


@pytest.fixture(autouse=True)
def _style():
    with style.apply_style():
        yield


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """Return an experiment that tests leave as it is."""
    expected = made_up.EXPECTED.read_text()
    return made_up.loops(tmp_path_factory.mktemp("loops"), expected=expected)


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """Return an experiment with derivatives that tests leave as it is."""
    expected = made_up.EXPECTED.read_text()
    return made_up.derivatives(tmp_path_factory.mktemp("derivatives"), expected=expected)


def words(axes):
    return [text.get_text() for text in axes.texts]


def legend(figure):
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def changed(**variants):
    return {**deepcopy(made_up.LOOPS), "variants": variants}


def test_variants_that_differ_in_the_seed_alone_are_repeats(tmp_path):
    again = {"evaluate": {"samples": 100}}
    content = changed(**made_up.LOOPS["variants"], more_samples=again)
    fixed, learned = runs.groups(made_up.experiment(tmp_path, content))
    assert [run.variant for run in fixed.runs] == ["base", "fixed_seed1", "more_samples"]
    assert [run.variant for run in fixed.repeats] == ["base", "fixed_seed1"]
    assert [run.variant for run in learned.repeats] == ["loops_seed0", "loops_seed1"]
    assert (fixed.name, learned.name) == ("fixed plaquette", "learned loops")


def test_groups_that_loops_do_not_tell_apart_are_called_as_their_variants(tmp_path):
    slow = {"train": {"optimizer": {"lr": 1e-5}}}
    content = changed(
        slow_seed0=slow, slow_seed1={**slow, "seed": 1}, deep={"graph": {"repeats": 3}}
    )
    found = runs.groups(made_up.experiment(tmp_path, content))
    assert [group.name for group in found] == ["base", "slow", "deep"]
    assert len({group.colour for group in found}) == 3


def test_figure_1_shows_what_the_history_and_the_evaluation_hold(loops):
    figure, table = training.draw(loops)
    assert legend(figure) == ["fixed plaquette, 2 seeds", "learned loops, 2 seeds"]
    curve = rows(table, variant="fixed_seed1", split="val")
    assert [row["steps"] for row in curve] == [4 * (1 + n) for n in range(made_up.EPOCHS)]
    for epoch, row in enumerate(curve, 1):
        # 250 draws in batches of 64 are four steps.
        assert row["ess"] == pytest.approx(made_up.ess_at(epoch, seed=1))
        assert row["kl"] == pytest.approx(2 / epoch)
    for loop, variant in (("plaquette", "base"), ("learned", "loops_seed1")):
        (end,) = rows(table, variant=variant, split="evaluated")
        variance = made_up.VARIANCES[loop]
        assert abs(end["ess"] - np.exp(-variance)) < SIGMAS * end["ess_error"]
        assert abs(end["kl"] - variance / 2) < SIGMAS * end["kl_error"]
    left, ends, right, _ = figure.axes
    means = [line for line in left.lines if line.get_linewidth() > 1]
    seeds = [made_up.ess_at(made_up.EPOCHS, seed) for seed in (0, 1)]
    assert len(left.lines) == 6
    assert means[0].get_ydata()[-1] == pytest.approx(np.mean(seeds))
    assert left.get_ylim() == ends.get_ylim()
    assert right.get_yscale() == "log"
    assert left.get_title(loc="left") == "4×4, β = 6"


def test_the_papers_values_stand_beside_its_own_theory_alone(tmp_path, loops):
    content = deepcopy(made_up.LOOPS)
    content["model"]["action"]["beta"] = 2.0
    content["graph"]["lattice"]["extents"] = [4, 4, 4, 4]
    found = made_up.loops(tmp_path, content, made_up.EXPECTED.read_text())
    figure, _ = training.draw(found)
    marks = {line.get_ydata()[0] for line in figure.axes[0].lines if line.get_linestyle() == ":"}
    assert marks == {0.2, 0.8}
    assert "learned loops, the paper" in legend(figure)
    elsewhere, _ = training.draw(loops)
    assert not any("the paper" in label for label in legend(elsewhere))


PAPERS = {
    "prior": "haar",
    "action": {"name": "wilson", "beta": 2.0, "anisotropy": 0.0},
    "lattices": [{"extents": [4, 4, 4, 4], "n_colours": 3}],
}


@pytest.mark.parametrize(("changes", "title"), [
    ({"prior": "ensemble"}, "4×4×4×4, β = 2"),
    ({"action": {**PAPERS["action"], "name": "iwasaki"}}, "4×4×4×4, β = 2, Iwasaki"),
    ({"action": {**PAPERS["action"], "anisotropy": 0.1}}, "4×4×4×4, β = 2, λ = 0.1"),
    ({"lattices": [{"extents": [4, 4, 4, 4], "n_colours": 2}]}, "SU(2), 4×4×4×4, β = 2"),
])  # fmt: skip
def test_the_papers_theory_is_no_other(changes, title):
    assert training._is_papers(PAPERS)
    assert not training._is_papers(PAPERS | changes)
    assert runs.described(PAPERS | changes) == title


def test_a_theory_has_a_row_of_its_own(tmp_path):
    weak = {"model": {"action": {"beta": 3.0}}}
    figure, _ = training.draw(made_up.loops(tmp_path, changed(weak=weak)))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[::4] == ["4×4, β = 6", "4×4, β = 3"]


def test_weights_beyond_double_precision_have_no_effective_sample_size(tmp_path):
    found = made_up.experiment(tmp_path, changed())
    run = found.runs["base"]
    made_up.write_training(run)
    record = json.loads(run.history.read_text().splitlines()[0])
    same = {"weight": 1e-130, "weight_square": 1e-260, "log_weight": -500.0}
    record["val"] |= {**same, "log_weight_square": 500.0**2 + 40}
    run.history.write_text(json.dumps(record))
    assert np.isnan(training.curve(run).ess).all()
    # Half of them cut off.
    record["val"] |= {"weight": 1e130, "weight_square": 1.6e260, "log_weight": 299.0}
    record["val"]["log_weight_square"] = 299.0**2 + 9
    run.history.write_text(json.dumps(record))
    assert np.isnan(training.curve(run).ess).all()


def test_forward_training_has_its_own_effective_sample_size(tmp_path):
    found = made_up.experiment(tmp_path, changed())
    run = found.runs["base"]
    made_up.write_training(run)
    terms = {"loss": 3.0, "forward_kl": 3.0, "weight": 4.0, "inverse_weight": 0.5}
    terms |= {"log_weight": 0.0, "log_weight_square": 1.0}
    record = {"epoch": 1, "lr": 0.1, "train": terms, "val": None}
    run.history.write_text(json.dumps(record))
    curve = training.curve(run)
    # 1 / (<w> <1/w>)
    assert (curve.ess.tolist(), curve.loss, curve.split) == ([0.5], None, "train")


def test_learning_curves_have_every_variant(loops):
    figure, table = learning.draw(loops)
    assert {row["variant"] for row in rows(table)} == set(loops.runs)
    (last,) = rows(table, variant="base", epoch=made_up.EPOCHS)
    log_z = made_up.log_z(loops.runs["base"])
    assert last["val_loss"] == pytest.approx(2 / made_up.EPOCHS - log_z)
    loss, ess, *_ = figure.axes
    assert (len(loss.lines), len(ess.lines)) == (8, 4)


def test_derivatives_are_those_of_shifted_normal_numbers(between):
    figure, table = derivatives.draw(between)
    for estimator in ("flow", "epsilon", "epsilon_limit", "fluctuations_mean_of_ends"):
        for row in rows(table, observable="plaquette", estimator=estimator):
            assert abs(row["value"] - 1) < SIGMAS * row["error"], row
    (same,) = rows(table, observable="plaquette", estimator="epsilon", part_of_step=1.0)
    # A fifth of the shift is left to be reweighted, so errors are a fifth.
    assert same["error_over_flow"] == pytest.approx(5, rel=0.2)
    assert rows(table, observable="plaquette", estimator="theory")[0]["value"] == 1.0
    first, second, ratios = figure.axes
    assert first.get_title(loc="left") == "d⟨dS/dλ⟩/dλ"
    assert second.get_title(loc="left") == "d⟨plaquette⟩/dλ"
    assert [label.get_text() for label in first.get_xticklabels()] == ["0", "1/4", "1/2", "1", "1"]
    assert "λ = 0 → 0.2" in first.get_xlabel()
    assert {"flow", "ε-reweighting", "independent ensembles"} <= set(legend(figure))
    by_label = {line.get_label(): line for line in ratios.lines}
    drawn = by_label["error: ε-reweighting, same step"]
    assert drawn.get_xdata()[1] == pytest.approx(same["error_over_flow"])


def test_without_a_second_ensemble_there_is_none_in_the_figures(tmp_path):
    found = made_up.derivatives(tmp_path, second=False)
    figure, table = derivatives.draw(found)
    assert not any("independent" in label for label in legend(figure))
    assert not any("the paper" in label for label in legend(figure))
    assert rows(table, estimator="independent") == []
    _, table = costs.draw_derivatives(found)
    (row,) = rows(table, term="sampled")
    assert row["base_seconds"] is None


def test_the_papers_costs_are_what_it_concludes_from_them(between):
    # Oracle: "around 2 times more" a configuration, and an advantage "after 4k configurations".
    _, table = costs.draw_derivatives(between)
    theirs = {row["term"]: row["paper_gpu_hours"] for row in rows(table)}
    assert round(theirs["flows"] / theirs["sampled"]) == 2
    assert theirs["pays_beside_epsilon"] == pytest.approx(4000, rel=0.02)
    assert theirs["pays_beside_independent"] is None


def test_our_costs_follow_from_measured_times_and_errors(between):
    figure, table = costs.draw_derivatives(between)
    ours = {row["term"]: row["base_seconds"] for row in rows(table)}
    assert (ours["sampled"], ours["mapped"], ours["training"]) == (1e-3, 3e-3, 16.0)
    assert (ours["flows"], ours["independent"]) == (4e-3, 2e-3)
    # Of -x a fifth of the shift, and two ensembles with twice the variance over its square.
    assert ours["epsilon_ratio"] == pytest.approx(25, rel=0.4)
    saved = ours["epsilon_ratio"] * 1e-3 - 4e-3
    assert ours["pays_beside_epsilon"] == pytest.approx(16.0 / saved)
    assert f"{16.0 / saved:,.0f} configurations" in words(figure.axes[0])


def test_a_flow_that_saves_nothing_never_pays():
    terms = costs.Terms(1.0, 0.0, 1.5, 10.0, epsilon_ratio=2.0, independent_ratio=2.0)
    assert terms.pays_beside_epsilon == float("inf")
    assert terms.pays_beside_independent == pytest.approx(10 / 1.5)


def test_independent_configurations_are_priced(loops):
    figure, table = costs.draw_samplers(loops)
    (flow,) = rows(table, variant="loops_seed0", by="flow")
    expected = np.exp(made_up.VARIANCES["learned"])
    assert flow["needed_reweighted"] == pytest.approx(expected, rel=0.1)
    assert flow["seconds_per_independent"] == pytest.approx(1e-3 * flow["needed_reweighted"])
    assert flow["break_even"] is None
    (heatbath,) = rows(table, variant="loops_seed0", by="heat bath")
    assert heatbath["seconds_per_independent"] == 1e-4
    shown = words(figure.axes[0])
    assert {"flow: loops_seed0", "heat bath", "HMC", "100 µs", "3.0: 2 τ"} <= set(shown)
    assert sum(text.startswith("never") for text in shown) == 4


def test_a_flow_that_pays_says_when(tmp_path):
    found = made_up.loops(tmp_path, changed())
    run = found.runs["base"]
    content = json.loads(run.metrics.read_text())
    content["flow"]["cost"] = made_up.cost(content["flow"]["lattices"][0], heatbath=5e-3)
    run.metrics.write_text(json.dumps(content))
    figure, table = costs.draw_samplers(found)
    (flow,) = rows(table, by="flow")
    assert flow["break_even"] == pytest.approx(16 / (5e-3 - flow["seconds_per_independent"]))
    joined = " ".join(words(figure.axes[0]))
    assert f"{flow['break_even']:,.0f} configurations" in joined
    assert "never" not in joined


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (3.1e-7, "0.31 µs"), (4.5e-5, "45 µs"), (0.0123, "12 ms"), (2.0, "2.0 s")],
)
def test_times_are_readable(seconds, text):
    assert costs.time(seconds) == text
    assert costs.time(7200.0) == "2.0 h"


def test_log_z_lies_between_its_bounds(loops):
    figure, table = partition_function.draw(loops)
    for variant in loops.runs:
        found = {
            (row["quantity"], row["how"]): row["value"]
            for row in rows(table, variant=variant, lattice="4×4")
        }
        # Oracle: the notes' value for the torus, log Z = 19.77424353.
        assert found["known", "exact"] == pytest.approx(19.77424353)
        assert found["elbo", "flow"] < found["known", "exact"] < found["eubo", "ensemble"]
        assert found["estimate", "flow"] == pytest.approx(19.774, abs=0.1)
    bounds, _ = figure.axes
    assert bounds.get_xlabel() == "log Z less the exact one"
    assert legend(figure)[-2:] == ["upper bound, by an ensemble", "estimate by an ensemble"]


def test_averages_stand_in_standard_errors_from_what_they_should_be(loops):
    figure, table = observables.draw(loops)
    (theory,) = rows(table, variant="base", lattice="4×4", observable="plaquette", by="theory")
    # Oracle: the notes' plaquette of the torus.
    assert theory["value"] == pytest.approx(0.42253206)
    (flow,) = rows(table, variant="base", lattice="4×4", observable="plaquette", by="flow")
    distance = (flow["value"] - theory["value"]) / flow["error"]
    assert theory["sigmas"] == pytest.approx(distance)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plaquette", "Polyakov loop"]
    drawn = {float(line.get_xdata()[0]) for line in axes.lines}
    assert theory["sigmas"] in drawn


def test_the_volume_law_holds_for_weights_whose_variance_grows_with_the_volume(loops):
    figure, table = volumes.draw(loops)
    for row in rows(table, lattice="8×4"):
        assert abs(row["sigmas"]) < SIGMAS
        (first,) = rows(table, variant=row["variant"], lattice="4×4")
        assert row["expected"] == pytest.approx(first["ess"] ** 2)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4×4", "8×4"]


def test_densities_of_weights_differ_by_the_weight(loops):
    _, table = weights.draw(loops)
    for variant in ("base", "loops_seed0"):
        mean = {}
        for source in ("flow", "target"):
            found = rows(table, variant=variant, **{"from": source})
            x = np.array([row["log_weight_less_log_z"] for row in found])
            density = np.array([row["density"] for row in found])
            assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=0.01)
            mean[source] = (x * density).sum() / density.sum()
        # Oracle: the means of log w under both are -s²/2 and s²/2.
        loop = "plaquette" if variant == "base" else "learned"
        variance = made_up.VARIANCES[loop]
        assert mean["target"] - mean["flow"] == pytest.approx(variance, rel=0.1)
    assert rows(table, variant="loops_seed1") == []


def test_without_results_there_is_nothing_to_draw(tmp_path):
    found = made_up.experiment(tmp_path, made_up.LOOPS)
    assert [figure.draw(found) for figure in FIGURES] == [None] * len(FIGURES)


def test_all_figures_are_drawn_into_the_report(tmp_path):
    found = made_up.loops(tmp_path, made_up.LOOPS)
    with SampleFile(found.runs["base"].predictions, "predictions") as file:
        assert len(file.column("log_weight")) == 2.5 * made_up.N
    summary = draw_experiment(found)
    named = {figure.name for figure in FIGURES}
    assert named - set(summary["drawn"]) == {"derivatives", "cost_derivatives"}
    assert story.judge(found) == ("Made up.", "unknown")
    captions = json.loads((found.folder / "index.json").read_text())
    learned = next(entry for entry in captions if entry["name"] == "learning")
    assert "effective sample size" in learned["caption"].lower()
