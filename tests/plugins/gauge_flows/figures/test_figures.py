"""Figures of gauge flows: the numbers that they show.

Oracles: closed forms for normal weights and for a shift of normal numbers (`made_up`).
"""

import json

import numpy as np
import pytest

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
from pipeline_gauge_flows.plugin import figures
from plugins.drawn import select_rows
from plugins.gauge_flows import made_up

SIGMAS = 4.0

pytestmark = pytest.mark.usefixtures("figure_style")


def test_variants_that_differ_in_the_seed_alone_are_repeats(tmp_path):
    slow = {"train": {"optimizer": {"lr": 1e-5}}}
    content = made_up.replace_variants(
        **made_up.LOOPS["variants"], more_samples={"evaluate": {"samples": 100}},
        slow_seed0=slow, slow_seed1={**slow, "seed": 1}, deep={"graph": {"repeats": 3}},
    )  # fmt: skip
    fixed, learned, *others = runs.group_runs(made_up.write_experiment(tmp_path, content))
    assert [run.variant for run in fixed.runs] == ["base", "fixed_seed1", "more_samples"]
    assert [run.variant for run in fixed.repeats] == ["base", "fixed_seed1"]
    assert [run.variant for run in learned.repeats] == ["loops_seed0", "loops_seed1"]
    # Loops do not tell these from the first group.
    assert [group.name for group in others] == ["slow", "deep"]
    assert len({group.colour for group in (fixed, learned, *others)}) == 4


@pytest.mark.parametrize(
    ("terms", "ess"),
    [
        ([1e-130, 1e-260, -500.0, 500.0**2 + 40], np.nan),  # below double precision
        ([1e130, 1.6e260, 299.0, 299.0**2 + 9], np.nan),  # half of them cut off
        ([4.0, 20.0, 0.0, 1.0], 0.8),
    ],
)
def test_effective_sample_sizes_of_a_history(tmp_path, terms, ess):
    """Beyond double precision there is none."""
    run = made_up.write_experiment(tmp_path, made_up.replace_variants()).runs["base"]
    made_up.write_training(run)
    names = ("weight", "weight_square", "log_weight", "log_weight_square")
    means = {"reverse_kl": 3.0, **dict(zip(names, terms, strict=True))}
    record = {"epoch": 1, "lr": 0.1, "train": means, "val": None}
    run.history.write_text(json.dumps(record))
    curve = curves.read_curve(run)
    np.testing.assert_allclose(curve.ess, [ess])
    assert (curve.loss.tolist(), curve.split) == ([3.0], "train")


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
    steps = ["0", "1/16", "1/8", "1/4", "1/2", "1", "1"]
    assert [label.get_text() for label in first.get_xticklabels()] == steps
    by_label = {line.get_label(): line for line in ratios.lines}
    drawn = by_label["error: ε-reweighting, same step"]
    assert drawn.get_xdata()[1] == pytest.approx(same["error_over_flow"])


def test_without_a_second_ensemble_there_is_none_in_the_figures(tmp_path):
    experiment = made_up.write_derivatives(tmp_path, second=False)
    figure, table = derivatives.draw(experiment)
    words = " ".join(made_up.read_legend(figure))
    assert "independent" not in words
    assert "the paper" not in words
    assert select_rows(table, estimator="independent") == []


def test_independent_configurations_are_priced(loops):
    """One flow beside a slow heat bath, where it pays for its training, the others beside fast."""
    _, table = costs.draw(loops)
    (flow,) = select_rows(table, variant="loops_seed0", by="flow")
    expected = np.exp(made_up.VARIANCES["learned"])
    assert flow["needed_reweighted"] == pytest.approx(expected, rel=0.1)
    assert flow["seconds_per_independent"] == pytest.approx(1e-3 * flow["needed_reweighted"])
    assert flow["break_even"] is None
    (heatbath,) = select_rows(table, variant="loops_seed0", by="heat bath")
    assert heatbath["seconds_per_independent"] == 1e-4
    (pays,) = select_rows(table, variant=made_up.PAYS, by="flow")
    assert pays["break_even"] == pytest.approx(16 / (5e-3 - pays["seconds_per_independent"]))
    flows = select_rows(table, by="flow")
    assert sum(row["break_even"] is None for row in flows) == 3


def test_log_z_lies_between_its_bounds(loops):
    figure, table = partition_function.draw(loops)
    for variant in loops.runs:
        rows = select_rows(table, variant=variant, lattice="4×4")
        values = {(row["quantity"], row["how"]): row["value"] for row in rows}
        # Oracle: the notes' value for the torus, log Z = 19.77424353.
        assert values["known", "exact"] == pytest.approx(19.77424353)
        assert values["elbo", "flow"] < values["known", "exact"] < values["eubo", "ensemble"]
        assert values["estimate", "flow"] == pytest.approx(19.774, abs=0.1)
    assert made_up.read_legend(figure)[-2:] == [
        "upper bound, by an ensemble", "estimate by an ensemble",
    ]  # fmt: skip


def test_averages_stand_in_standard_errors_from_what_they_should_be(loops):
    figure, table = observables.draw(loops)
    rows = select_rows(table, variant="base", lattice="4×4", observable="plaquette")
    theory, flow = (next(row for row in rows if row["by"] == by) for by in ("theory", "flow"))
    # Oracle: the notes' plaquette of the torus.
    assert theory["value"] == pytest.approx(0.42253206)
    assert theory["sigmas"] == pytest.approx((flow["value"] - theory["value"]) / flow["error"])
    assert theory["sigmas"] in {float(line.get_xdata()[0]) for line in figure.axes[0].lines}


def test_the_volume_law_holds_for_weights_whose_variance_grows_with_the_volume(loops):
    _, table = volumes.draw(loops)
    for row in select_rows(table, lattice="8×4"):
        assert abs(row["sigmas"]) < SIGMAS
        (first,) = select_rows(table, variant=row["variant"], lattice="4×4")
        assert row["expected"] == pytest.approx(first["ess"] ** 2)


def test_densities_of_weights_differ_by_the_weight(loops):
    """Oracle: the means of log w under both are -s²/2 and s²/2."""
    _, table = weights.draw(loops)
    for variant, loop in (("base", "plaquette"), ("loops_seed0", "learned")):
        mean = {}
        for source in ("flow", "target"):
            bins = select_rows(table, variant=variant, **{"from": source})
            x, density = (
                np.array([row[key] for row in bins]) for key in ("log_weight_less_log_z", "density")
            )
            assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=0.01)
            mean[source] = (x * density).sum() / density.sum()
        difference = mean["target"] - mean["flow"]
        assert difference == pytest.approx(made_up.VARIANCES[loop], rel=0.1)
    assert select_rows(table, variant="loops_seed1") == []


def test_without_results_there_is_nothing_to_draw(tmp_path):
    experiment = made_up.write_experiment(tmp_path, made_up.LOOPS)
    assert [figure.draw(experiment) for figure in figures()] == [None] * 8


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
