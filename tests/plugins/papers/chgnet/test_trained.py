"""Figures 6 and 7 of FastCHGNet, equal budgets and magnetic moments, from made-up trainings."""

import pytest

from pipeline_core.config.sections import TrainOptions
from pipeline_core.figures import reproduction
from pipeline_papers.chgnet.figures import accuracy, budgets, rates
from pipeline_papers.chgnet.figures.courses import read_courses
from plugins.drawn import find_row, select_rows
from plugins.papers.chgnet import made_up

pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Return an experiment that tests leave as it is."""
    return made_up.write_trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def epochs(experiment):
    runs = experiment.runs.items()
    return {name: run.get_section("train", TrainOptions).epochs for name, run in runs}


def test_two_stages_are_one_course(experiment, epochs):
    courses = {course.run.variant: course for course in read_courses(experiment)}
    two = courses["heads_then_conservative"]
    assert [stage.variant for stage in two.stages] == ["base", "heads_then_conservative"]
    n_epochs = epochs["base"] + epochs["heads_then_conservative"]
    assert (two.kind, two.epochs) == ("heads, then conservative", n_epochs)
    assert two.seconds.tolist() == [10.0 * n for n in range(1, n_epochs + 1)]
    kinds = {variant: course.kind for variant, course in courses.items()}
    assert kinds["base"] == kinds["heads"] == kinds["batch_64"] == "with heads"
    assert kinds["without_heads"] == "without heads"
    assert kinds["reference"] == "reference"


def test_a_course_whose_first_stage_is_missing_is_none(tmp_path):
    changed = made_up.write_trained(tmp_path)
    changed.runs["base"].history.unlink()
    variants = {course.run.variant for course in read_courses(changed)}
    assert not variants & {"base", "heads_then_conservative"}
    assert "heads" in variants


def test_budgets_are_compared_by_epoch_and_by_time(experiment, epochs):
    figure, table = budgets.draw(experiment)
    last = find_row(table, variant="reference", epoch=epochs["reference"])
    assert last["seconds"] == 10 * epochs["reference"]
    assert last["forces_mae"] == pytest.approx(2 * 2 / epochs["reference"])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 5  # trainings with other batches are left out
    assert labels[0] == f"reference, {epochs['reference']} epochs"
    above, below = figure.axes[1], figure.axes[4]
    assert above.lines[0].get_ydata().tolist() == below.lines[0].get_ydata().tolist()
    assert below.lines[0].get_xdata()[-1] == 10 * epochs["reference"]


def test_errors_of_budgets_stand_side_by_side(experiment):
    _, table = budgets.draw_table(experiment)
    ours = find_row(table, variant="heads_then_conservative")
    assert ours["split"] == "test"
    assert ours["energy MAE (meV/atom)"] == pytest.approx(2)
    assert ours["force MAE (meV/Å)"] == pytest.approx(4)
    assert ours["stress MAE (GPa)"] == pytest.approx(6e-3 * 160.21766208)


@pytest.mark.parametrize("name", ["chgnet/heads", "chgnet/smoke"])
def test_networks_of_one_kind_have_no_budgets(tmp_path, name):
    alike = made_up.write_trained(tmp_path, name)
    assert budgets.draw(alike) is None
    assert budgets.draw_table(alike) is None
    assert rates.draw(alike) is None


def test_figure_6_scales_the_rate_with_the_batch(experiment):
    figure, table = rates.draw(experiment)
    base = experiment.runs["base"].get_section("train", TrainOptions)
    used = {(row["batch_size"], row["rate"]) for row in select_rows(table)}
    scaled = {(n, base.optimizer.lr * n / base.batch_size) for n in (16, 64)}
    assert used == scaled | {(n, base.optimizer.lr) for n in (base.batch_size, 16, 64)}
    assert len(figure.axes) == 3


def test_figure_7_shows_the_longest_training_of_each_kind(experiment, epochs):
    figure, table = accuracy.draw_parity(experiment)
    shown = {row["variant"] for row in select_rows(table)}
    assert shown >= {f"with heads, {epochs['heads']} epochs"}
    assert len(shown) == 4
    assert {row["split"] for row in select_rows(table)} == {"test"}
    assert len([axes for axes in figure.axes if axes.get_xlabel()]) == 8


def test_numbers_of_large_batches_are_measured(experiment):
    entries = {row["id"]: row for row in reproduction.compare(experiment)["entries"]}
    ours = {name: row["ours"] for name, row in entries.items() if row["ours"] is not None}
    assert ours == pytest.approx(
        {
            f"{rate}_rate_{name}": value
            for rate in ("default", "scaled")
            for name, value in (("energy", 2), ("force", 4), ("stress", 6e-3 * 160.21766208))
        }
    )


def test_iron_gives_the_moments_of_table_1(tmp_path):
    iron = made_up.write_trained(tmp_path, "chgnet/iron")
    _, table = accuracy.draw_table_1(iron)
    with_heads = find_row(table, whose="ours", network="FastCHGNet with heads")
    without = find_row(table, whose="ours", network="FastCHGNet without heads")
    assert with_heads["moment MAE (mµB)"] == pytest.approx(8)
    assert without["moment MAE (mµB)"] == pytest.approx(4)
    assert len(budgets.draw(iron)[0].axes) == 8
