"""Parity plots show all numbers, once, on equal axes, with the errors of the metrics."""

import json

import numpy as np
import pytest

from core.figures import synthetic
from pipeline_core.artifacts.store import read_json
from pipeline_core.figures import parity, predictions, style
from pipeline_core.figures.predictions import Comparison
from pipeline_core.figures.quantities import find_quantity
from pipeline_core.figures.results import Errors


def make_comparison(label, predicted, name="forces"):
    error = predicted - label
    errors = Errors(
        unit="eV/Å",
        count=len(label),
        mae=np.abs(error).mean(),
        rmse=np.sqrt((error**2).mean()),
        r2=1 - (error**2).sum() / ((label - label.mean()) ** 2).sum(),
        label_mean_absolute=np.abs(label).mean(),
    )
    return Comparison(find_quantity(name), "test", label, predicted, errors)


def draw_parity(compared):
    with style.apply_style():
        figure, ((axes,),) = style.make_canvas()
        limits = parity.find_common_range([compared], 0.0)
        panel = parity.read_panel(parity.make_panel(compared, limits))
        density = parity.draw_panel(axes, panel)
        figure.draw_without_rendering()
    return axes, density


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    label = rng.normal(size=5000)
    return label, label + 0.05 * rng.normal(size=5000)


def test_few_numbers_are_points(numbers):
    label, predicted = (n[:100] for n in numbers)
    axes, density = draw_parity(make_comparison(label, predicted))
    (points,) = axes.collections
    assert density is None
    expected = np.stack([label, predicted], axis=1)
    np.testing.assert_allclose(points.get_offsets(), expected, rtol=1e-4)


def test_many_numbers_are_a_density_on_equal_axes(numbers):
    """Oracle: matplotlib's own density of the numbers themselves."""
    axes, density = draw_parity(make_comparison(*numbers))
    assert density is axes.collections[0]
    assert density.get_array().sum() == 5000  # each counts once
    extent = (*axes.get_xlim(), *axes.get_ylim())
    other = style.make_canvas()[1][0][0].hexbin(*numbers, gridsize=60, extent=extent, mincnt=1)
    np.testing.assert_array_equal(density.get_array(), other.get_array())
    np.testing.assert_allclose(density.get_offsets(), other.get_offsets())
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_aspect() == 1
    low, high = axes.get_xlim()
    assert low < min(map(np.min, numbers)) < max(map(np.max, numbers)) < high
    # Oracle: a slope of 1 and an offset of 0.1 give MAE = RMSE = 0.1 exactly.
    label = numbers[0]
    axes, _ = draw_parity(make_comparison(label, label + 0.1))
    (text,) = (t.get_text() for t in axes.texts)
    assert text.splitlines()[:2] == ["MAE 100 meV/Å", "RMSE 100 meV/Å"]
    assert text.splitlines()[2] == f"R² {1 - 0.01 / label.var():.3f}"


def test_all_variants_share_the_axes_of_a_quantity(experiment):
    with style.apply_style():
        figure, table = parity.draw(experiment)
        of_forces, table_of_forces = parity.draw_quantity(experiment, "forces")
    panels = [axes for axes in figure.axes if axes.get_xlabel()]
    labels = [axes.get_xlabel() for axes in panels[:3]]
    assert labels == ["DFT energy − mean (eV/atom)", "DFT force (eV/Å)", "DFT stress (GPa)"]
    for base, wide in zip(panels[:3], panels[3:6], strict=True):
        assert base.get_xlim() == wide.get_xlim()
    assert len(table) == 1 + 2 * 3
    assert [a.get_title(loc="left") for a in of_forces.axes[:2]] == ["base", "wide"]
    assert [row[0] for row in table_of_forces] == ["variant", "base", "wide"]


def test_the_errors_are_those_of_the_predictions(experiment):
    # Oracle: NumPy on the numbers that are drawn, against the metrics that are printed.
    for compared in predictions.read_comparisons(experiment.runs["base"]):
        scale = compared.quantity.factor
        errors = compared.predicted - compared.label
        assert len(errors) == compared.errors.count
        assert np.abs(errors).mean() == pytest.approx(scale * compared.errors.mae, rel=1e-6)
        correlation = 1 - (errors**2).sum() / ((compared.label - compared.label.mean()) ** 2).sum()
        assert correlation == pytest.approx(compared.errors.r2, rel=1e-6)


def test_a_single_quantity_has_its_variants_side_by_side(folder):
    experiment = synthetic.load(folder)
    for run in experiment.runs.values():
        content = read_json(run.metrics)
        energy = content["splits"]["test"]["quantities"]["energy"]
        content["splits"]["test"]["quantities"] = {"energy": energy}
        run.metrics.write_text(json.dumps(content))
    with style.apply_style():
        figure, table = parity.draw(experiment)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["base", "wide"]
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert {place.rowspan.start for place in places} == {0}
    assert {row[2] for row in table[1:]} == {"energy"}
