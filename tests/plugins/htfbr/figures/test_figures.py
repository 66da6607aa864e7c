"""Figures of fits: the numbers that they show."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pipeline_core.config.sections import FiguresOptions
from pipeline_core.figures.drawing import choose_figures
from pipeline_core.report.experiment import draw_experiment
from pipeline_htfbr.figures import FIGURES, cuts, energies, overview, stationary
from plugins.drawn import select_rows
from plugins.htfbr import made_up

pytestmark = pytest.mark.usefixtures("figure_style")


def test_windows_without_points_are_left_out(hono):
    figure, table = energies.draw_windows(hono)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["test points", "whole grid", "off the grid"]
    labels = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert (labels[0], labels[-1]) == ("0–5\n2,000", "> 40\n2,000")
    (row,) = select_rows(table, variant="base", place="grid", **{"to_cm-1": 5000.0})
    assert row["RMSE_cm-1"] == pytest.approx(6.6e-4 * made_up.HARTREE_IN_CM / 8)


def test_the_fits_are_told_in_inverse_centimetres(hono):
    _, table = overview.draw(hono)
    (row,) = select_rows(table, variant="adaptive")
    assert row["ranks"] == "10, 10, 13, 10"
    assert row["test_rmse_cm-1"] == pytest.approx(3e-4 * made_up.HARTREE_IN_CM)
    assert row["largest_error_on"] == "off_grid"
    assert row["parameters"] == 4100 + list(hono.runs).index("adaptive")


def test_energies_are_counted_above_the_lowest(hono):
    made_up.write_predictions(hono.runs["base"])
    _, table = energies.draw_points(hono)
    for split in ("train", "val", "test"):
        counts = [row["points"] for row in select_rows(table, split=split)]
        assert sum(counts) == 200
    assert table[1][1] == 0.0
    assert table[-1][2] == pytest.approx(599.0)


def test_cuts_are_shown_above_the_minimum(hono):
    made_up.write_uses(hono.runs["base"])
    figure, table = cuts.draw(hono)
    line, well, exact = *figure.axes, figure.axes[0].lines[1]
    labels = line.get_xlabel(), well.get_xlabel(), well.get_ylabel()
    assert labels == ("r (bohr)", "r (bohr)", "t")
    r = line.lines[0].get_xdata()
    height = (r - 1.8) ** 2 / made_up.INVERSE_CM / 1000
    assert np.allclose(line.lines[0].get_ydata(), height)
    assert np.allclose(exact.get_ydata(), 1.1 * height)
    assert len(table) == 1 + 21 + 21 * 31


def test_stationary_points_stand_beside_those_of_the_exact_surface(hono):
    made_up.write_uses(hono.runs["base"])
    _, table = stationary.draw(hono)
    kinds = [row["kind"] for row in select_rows(table, variant="base")]
    assert kinds == ["minimum", "saddle point", "minimum", "minimum"]
    saddle = select_rows(table, kind="saddle point")[0]
    assert saddle["difference_cm-1"] == pytest.approx(-2.0)
    assert saddle["largest_frequency_difference_cm-1"] == pytest.approx(2.0)
    assert saddle["fitted_frequencies_cm-1"] == "540i, 1650"
    # The second minimum of each surface has no counterpart.
    assert [row["exact_cm-1"] for row in select_rows(table, **{"fitted_cm-1": 93.0})] == [None]


def test_uses_of_a_surface_that_is_known_by_its_points_alone(hono):
    made_up.write_uses(hono.runs["base"], exact=False)
    assert len(cuts.draw(hono)[0].axes[0].lines) == 1
    _, table = stationary.draw(hono)
    assert [row["exact_cm-1"] for row in select_rows(table)] == [None] * 3


@pytest.mark.slow
def test_without_results_nothing_is_drawn(tmp_path):
    experiment = made_up.load(tmp_path, "htfbr/hono")
    assert [figure.draw(experiment) for figure in FIGURES] == [None] * len(FIGURES)


@pytest.mark.slow
def test_the_report_of_points_speaks_of_no_atoms(hono):
    base = hono.runs["base"]
    made_up.write_predictions(base)
    once = replace(base, sections={**base.sections, "figures": FiguresOptions(formats=["svg"])})
    draw_experiment(replace(hono, runs={**hono.runs, "base": once}))
    texts = [path.read_text() for path in hono.folder.iterdir() if path.suffix in (".rst", ".csv")]
    page = (hono.folder / "summary.html").read_text()
    page = re.sub(r'src="[^"]*"', "", page)
    for text in [*texts, page]:
        assert not re.search(r"\bDFT\b|/atom|\bframes?\b", text)
    assert {f.name for f in choose_figures(hono)} >= {f.name for f in FIGURES}
