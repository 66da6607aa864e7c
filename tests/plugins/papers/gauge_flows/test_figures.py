"""Figures of the paper's page: the numbers that they show.

Oracles: closed forms for normal weights and for a shift of normal numbers (`made_up`).
"""

import numpy as np
import pytest

from pipeline_gauge_flows.figures import derivatives, runs
from pipeline_papers.gauge_flows.figures import equation19, figure1, figure2
from plugins.drawn import select_rows
from plugins.gauge_flows import made_up

SIGMAS = 4.0
PAPERS = {
    "prior": "haar",
    "action": {"name": "wilson", "beta": 2.0, "anisotropy": 0.0},
    "lattices": [{"extents": [4, 4, 4, 4], "n_colours": 3}],
}

pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.mark.slow
def test_figure_1_shows_what_the_history_and_the_evaluation_hold(loops):
    figure, table = figure1.draw(loops)
    assert made_up.read_legend(figure) == ["fixed plaquette, 2 seeds", "learned loops, 2 seeds"]
    curve = select_rows(table, variant="fixed_seed1", split="val")
    assert [row["steps"] for row in curve] == [4 * (1 + n) for n in range(made_up.EPOCHS)]
    for epoch, row in enumerate(curve, 1):
        # 250 draws in batches of 64 are four steps.
        assert row["ess"] == pytest.approx(made_up.compute_ess(epoch, seed=1))
        assert row["kl"] == pytest.approx(2 / epoch)
    for loop, variant in (("plaquette", "base"), ("learned", "loops_seed1")):
        (end,) = select_rows(table, variant=variant, split="evaluated")
        variance = made_up.VARIANCES[loop]
        assert abs(end["ess"] - np.exp(-variance)) < SIGMAS * end["ess_error"]
        assert abs(end["kl"] - variance / 2) < SIGMAS * end["kl_error"]
    left = figure.axes[0]
    mean = next(line for line in left.lines if line.get_linewidth() > 1)
    seeds = [made_up.compute_ess(made_up.EPOCHS, seed) for seed in (0, 1)]
    assert mean.get_ydata()[-1] == pytest.approx(np.mean(seeds))
    assert left.get_title(loc="left") == "4×4, β = 6"


@pytest.mark.slow
def test_the_papers_values_stand_beside_its_own_theory_alone(tmp_path, loops):
    weak = {"model": {"action": {"beta": 3.0}}}
    content = made_up.replace_variants(**made_up.LOOPS["variants"], weak=weak)
    content["model"]["action"]["beta"] = 2.0
    content["graph"]["lattice"]["extents"] = [4, 4, 4, 4]
    experiment = made_up.write_loops(tmp_path, content, made_up.EXPECTED.read_text())
    figure, _ = figure1.draw(experiment)
    marks = {line.get_ydata()[0] for line in figure.axes[0].lines if line.get_linestyle() == ":"}
    assert marks == {0.2, 0.8}
    assert all(axes.get_ylim()[1] > 0.8 for axes in figure.axes[:2]), "both are in view"
    assert "loops, the paper" in made_up.read_legend(figure)
    # A theory has a row of its own.
    titles = [axes.get_title(loc="left") for axes in figure.axes[::4]]
    assert titles == ["4×4×4×4, β = 2", "4×4×4×4, β = 3"]
    elsewhere, _ = figure1.draw(loops)
    assert not any("the paper" in label for label in made_up.read_legend(elsewhere))


@pytest.mark.parametrize(("changes", "title"), [
    ({"prior": "ensemble"}, "4×4×4×4, β = 2"),
    ({"action": {**PAPERS["action"], "name": "iwasaki"}}, "4×4×4×4, β = 2, Iwasaki"),
    ({"action": {**PAPERS["action"], "anisotropy": 0.1}}, "4×4×4×4, β = 2, λ = 0.1"),
    (
        {"action": {**PAPERS["action"], "fermions": {"kappa": 0.16, "two_kappa_mu": 0.02}}},
        "4×4×4×4, β = 2, κ = 0.16, 2κμ = 0.02",
    ),
    ({"lattices": [{"extents": [4, 4, 4, 4], "n_colours": 2}]}, "SU(2), 4×4×4×4, β = 2"),
])  # fmt: skip
def test_the_papers_theory_is_no_other(changes, title):
    assert not figure1._match_paper(PAPERS | changes)
    assert runs.describe_theory(PAPERS | changes) == title


def test_the_papers_costs_are_what_it_concludes_from_them(between):
    # Oracle: "around 2 times more" a configuration, and an advantage "after 4k configurations".
    _, table = equation19.draw(between)
    theirs = {row["term"]: row["paper_times_in_gpu_hours"] for row in select_rows(table)}
    assert round(theirs["flows"] / theirs["sampled"]) == 2
    assert theirs["pays_beside_epsilon"] == pytest.approx(4000, rel=0.02)
    assert theirs["pays_beside_independent"] is None


def test_our_costs_follow_from_measured_times_and_errors(between):
    _, table = equation19.draw(between)
    ours = {row["term"]: row["base_times_in_s"] for row in select_rows(table)}
    assert (ours["sampled"], ours["training"]) == (1e-3, 16.0)
    assert (ours["measurement"], ours["reweighting"]) == (2e-4, 1e-3)
    assert (ours["flows"], ours["independent"]) == (4e-3, 2e-3)
    # Of -x a fifth of the shift, and two ensembles with twice the variance over its square.
    assert ours["epsilon_ratio"] == pytest.approx(25, rel=0.4)
    saved = ours["epsilon_ratio"] * 1e-3 - 4e-3
    assert ours["pays_beside_epsilon"] == pytest.approx(16.0 / saved)


@pytest.mark.slow
def test_figure_2_shows_the_meson_of_each_range(tmp_path):
    expected = made_up.EXPECTED.read_text()
    experiment = made_up.write_derivatives(tmp_path, expected=expected, pion=True)
    _, table = figure2.draw(experiment)
    fraction = -2 / 3 * made_up.SLOPE / made_up.MASS
    rows = select_rows(table, estimator="flow")
    assert [row["t_min"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert abs(row["value"] - fraction) < SIGMAS * row["error"] + 0.02 * abs(fraction)
        assert row["mass"] == pytest.approx(made_up.MASS, rel=0.02)
    others = select_rows(table, estimator="epsilon_best")
    assert all(row["error_over_flow"] > 1 for row in others)
    (ratio,) = select_rows(equation19.draw(experiment)[1], term="epsilon_ratio")
    best = next(row["error_over_flow"] for row in others if row["t_min"] == 2)
    assert ratio["base_times_in_s"] == pytest.approx(best**2)
    # What is made of links has panels of its own, without the pion.
    figure, table = derivatives.draw(experiment)
    labels = [text.get_text() for text in figure.axes[2].get_yticklabels()]
    assert "plaquette" in labels
    assert not any("pion" in label for label in labels)
    assert select_rows(table, observable="pion_mass_1", estimator="flow")


def test_a_flow_that_saves_nothing_never_pays():
    terms = equation19.Terms(
        generation=0.8, measurement=0.2, flow=1.0, reweighting=0.3, training=10.0,
        epsilon_ratio=2.0, independent_ratio=2.0,
    )  # fmt: skip
    assert terms.pays_beside_epsilon == float("inf")
    assert terms.pays_beside_independent == pytest.approx(10 / 1.5)


def test_without_a_second_ensemble_sampling_it_costs_nothing(tmp_path):
    experiment = made_up.write_derivatives(tmp_path, second=False)
    (row,) = select_rows(equation19.draw(experiment)[1], term="sampled")
    assert row["base_times_in_s"] is None
