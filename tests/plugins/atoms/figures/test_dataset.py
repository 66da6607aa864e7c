"""The sizes of samples in the figure of the dataset. Oracle: the numbers that the import wrote."""

import json

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from core.figures import synthetic
from core.figures.synthetic import list_numbers
from pipeline_atoms.figures import dataset
from pipeline_core.artifacts.store import read_json
from pipeline_core.fields import SPLITS
from pipeline_core.figures import style
from pipeline_core.report import story

pytestmark = pytest.mark.usefixtures("figure_style")


def load_with_report(folder, **changes):
    """Return the experiment with a report that has these keys; those that are None are absent."""
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].dataset.report
    content = {k: v for k, v in {**read_json(path), **changes}.items() if v is not None}
    path.write_text(json.dumps(content))
    return experiment


def draw_sizes(folder, **parts):
    """Return the panel of the sizes, None if there is none, of a report with these parts."""
    sizes = {name: {"sizes": sizes} for name, sizes in parts.items()}
    experiment = load_with_report(folder, parts=sizes)
    figure, _ = dataset.draw(experiment)
    figure.draw_without_rendering()
    result = [axes for axes in figure.axes if axes.get_xlabel() == "number of atoms"]
    return result[0] if result else None


def read_outlines(axes):
    """Return the outline of each part: its counts and the edges of its bins."""
    patches = [p for p in axes.patches if isinstance(p, StepPatch) and not p.get_fill()]
    return {patch.get_label(): patch.get_data() for patch in patches}


def test_every_sample_of_every_part_is_shown_at_its_size(folder):
    rng = np.random.default_rng(1)
    small = {str(n): int(k) for n, k in zip(range(1, 60), rng.integers(1, 9, 59), strict=True)}
    large = {"20": 4, "257": 2, "740": 1}
    axes = draw_sizes(folder, small=small, large=large)
    totals = {"small": sum(small.values()), "large": 7}
    result = read_outlines(axes)
    assert list(result) == [f"{name} ({n:,})" for name, n in totals.items()]
    for (values, edges, _), sizes in zip(result.values(), (small, large), strict=True):
        atoms = np.repeat([int(n) for n in sizes], list(sizes.values()))
        np.testing.assert_array_equal(values, np.histogram(atoms, edges)[0])
        assert values.sum() == len(atoms)
        assert not set(edges % 1) - {0.5}
    assert axes.get_xscale() == "log"
    colours = {to_hex(patch.get_edgecolor()) for patch in axes.patches}
    assert not colours & {style.choose_colour(number).lower() for number in range(3)}


@pytest.mark.slow
def test_axes_are_those_that_show_all_sizes(folder):
    few = draw_sizes(folder, one={"12": 40, "24": 20, "96": 3})
    assert [text.get_text() for text in few.get_xticklabels()] == ["12", "24", "96"]
    assert few.get_legend() is None
    assert few.get_yscale() == "linear"
    hidden = draw_sizes(folder, one={"10": 5000, "12": 1, "14": 30})
    assert (hidden.get_xscale(), hidden.get_yscale()) == ("linear", "log")
    assert hidden.get_ylim()[0] < 1
    assert draw_sizes(folder, one={"15": 500}, other={"15": 3}) is None


@pytest.mark.parametrize("groups", [None, {}, {"count": 3}, {"largest": {}}])
def test_data_without_groups_are_one_bar(folder, groups):
    splits = {"train": 7, "val": 2, "test": 3}
    _, table = dataset.draw(load_with_report(folder, groups=groups, splits=splits))
    assert table == [["group", *SPLITS], ["all", 7, 2, 3]]


def test_what_a_plugin_does_not_count_is_not_drawn(folder):
    facts = {"dataset": None, "warnings": None, "parts": {"one": {"samples": 9}}}
    experiment = load_with_report(folder, splits={"train": 9}, groups=None, **facts)
    _, table = dataset.draw(experiment)
    assert table[1:] == [["all", 9, 0, 0]]
    (data,) = (n for n in list_numbers(experiment) if n.title == "Data")
    assert (data.value, data.note.partition(";")[0]) == ("9 frames", "9 training")
    assert story.list_limits(experiment)


def test_a_report_that_counts_nothing_is_no_figure_and_no_number(folder):
    experiment = load_with_report(folder, groups=["a", "b"])
    with pytest.raises(ValueError, match=r"import\.json.*: groups: Input should be an object"):
        dataset.draw(experiment)
    experiment.runs["base"].dataset.report.write_text('{"temperature": 300}')
    assert dataset.draw(experiment) is None
    assert "Data" not in {number.title for number in list_numbers(experiment)}
