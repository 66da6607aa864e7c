"""Many chapters from their folders, and what happens where one cannot be read."""

import json
import logging

import pytest

from core.report import made_up
from core.report.test_page import Page
from pipeline_core.report.chapter import Chapter, read_chapter
from pipeline_core.report.collect import find_figures, write_report


@pytest.fixture
def results(tmp_path):
    """Return a folder of results with the chapters of two experiments."""
    return made_up.write_chapters(tmp_path / "results", "toy/alloy", "other/first")


def test_all_experiments_with_figures_are_found(results):
    (results / "datasets" / "alloy").mkdir(parents=True)
    (results / "toy" / "undrawn" / "base").mkdir(parents=True)
    assert list(find_figures(results)) == ["other/first", "toy/alloy"]
    folder = results / "toy/alloy/figures"
    assert read_chapter(folder, "toy/alloy") == made_up.make_chapter()
    (folder / "summary.json").write_text(json.dumps({"experiment": "toy/alloy", "colour": "blue"}))
    with pytest.raises(ValueError, match=r"colour.*pipeline-core figures --experiment toy/alloy"):
        read_chapter(folder, "toy/alloy")  # of another version


def test_the_order_is_that_of_the_caller(results):
    figures = find_figures(results)
    path = results / "report.html"
    write_report(path, {name: figures[name] for name in ("toy/alloy", "other/first")})
    page = Page(path.read_text())
    assert page.find("article", "id") == ["toy/alloy", "other/first"]
    assert any(word.startswith("2 experiments, 4 warnings") for word in page.words)


@pytest.mark.parametrize("damage", ["cut", "of another version"])
def test_a_chapter_that_cannot_be_read_is_a_warning_on_the_page(results, damage, caplog):
    path = results / "toy/alloy/figures/summary.json"
    if damage == "cut":
        path.write_text(path.read_text()[:500])
    else:
        path.write_text(json.dumps({"experiment": "toy/alloy", "colour": "blue"}))
    with caplog.at_level(logging.WARNING):
        write_report(results / "report.html", find_figures(results))
    page = Page((results / "report.html").read_text())
    (told,) = [word for word in page.words if word.startswith(str(path))]
    assert told in caplog.text
    assert "Force error" in page.words  # of the other experiment


def test_of_a_plugin_that_draws_by_itself_the_folder_is_told(tmp_path):
    chapter = read_chapter(tmp_path, "toy/first")
    told = f"There is no summary.json: what the plugin has drawn lies in {tmp_path}."
    assert chapter == Chapter(experiment="toy/first", warnings=[told])
