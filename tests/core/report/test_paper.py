"""A paper's numbers beside ours of several experiments."""

import pytest

from core.report.test_page import Page
from pipeline_core.artifacts import store
from pipeline_core.report import paper
from pipeline_core.report.chapter import Chapter, write_chapter
from pipeline_core.report.collect import write_report

PLACES = {"forces": "toy/alloy", "step": "toy/speed", "memory": "toy/speed", "hours": None}


def make_report(experiment, **ours):
    """Return what an experiment writes: four numbers, of which it has some."""
    entries = [make_row(name, place, experiment, ours) for name, place in PLACES.items()]
    facts = {"paper": "On toys", "citation": "arXiv:1955"}
    return {"experiment": experiment, "scale": "laptop", **facts, "entries": entries}


def make_row(name, place, experiment, ours):
    value, status = ours.get(name), "measured"
    if place is None:
        status = paper.NOT_ATTEMPTED
    elif value is None:
        status = paper.NOT_RUN if place == experiment else paper.ELSEWHERE
    theirs = {"paper": 4.0, "paper_scale": "much", "paper_hardware": "a GPU", "unit": "s"}
    here = {"our_scale": "laptop", "our_hardware": "2 cores"} if value else {}
    about = {"where": "Table 1", "quantity": f"the {name}", "differs": f"why of {name}"}
    ratio = None if value is None else value / 4.0
    found = {"id": name, "ours": value, "ratio": ratio, "status": status, "experiment": place}
    return {**about, **theirs, "our_scale": None, "our_hardware": None, **here, **found}


@pytest.fixture
def folders(tmp_path):
    """The figures of two experiments of one paper and of one whose paper has no number of ours."""
    reports = [
        make_report("toy/alloy", forces=2.0),
        make_report("toy/speed", step=6.0),
        make_report("other/first"),
    ]
    for report in reports:
        name = report["experiment"]
        folder = tmp_path / "results" / name / "figures"
        folder.mkdir(parents=True)
        store.write_json(folder / paper.NAME, report)
        write_chapter(folder, Chapter(experiment=name))
    return {r["experiment"]: tmp_path / "results" / r["experiment"] / "figures" for r in reports}


def test_each_number_is_that_of_the_experiment_that_has_it(folders):
    reports = paper.read_reports(folders.values())
    merged = paper.merge_reports(reports)
    assert list(merged) == ["toy"]
    rows = {row["id"]: row for row in merged["toy"]["entries"]}
    ours = {"forces": 2.0, "step": 6.0, "memory": None, "hours": None}
    assert {name: row["ours"] for name, row in rows.items()} == ours
    statuses = [rows[name]["status"] for name in ("memory", "hours")]
    assert statuses == ["not computed yet", "not attempted"]
    assert paper.format_counts(merged["toy"]) == (
        "2 of 4 numbers have ours beside them: 2 measured, 1 not computed yet, 1 not attempted."
    )
    backwards = paper.merge_reports(reports[::-1])  # the order of experiments changes nothing
    assert backwards["toy"]["entries"] == merged["toy"]["entries"]


def test_what_projections_take_from_the_paper_is_no_result():
    report = make_report("toy/speed", step=6.0, memory=4.0)
    rows = {row["id"]: row for row in report["entries"]}
    rows["memory"].update(status=paper.INPUT, ratio=None)
    report["counts"] = {"measured": 1, "input": 1}
    assert paper.format_counts(report).startswith("1 of 4 numbers have ours beside them")
    ours, left = paper.make_tables(report)
    assert [row[1] for row in ours.rows] == ["the step"]
    assert ["Table 1", "the memory", "4 s", "input", "why of memory"] in left.rows


def test_the_report_has_a_chapter_a_paper(folders, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, folders)
    page = Page(path.read_text())
    assert page.find("article", "id") == [*folders, "toy and its paper"]
    text = " ".join(page.words)
    for word in ("6.00 s", "1.50", "toy/speed", "a GPU", "by toy/speed", "why of hours"):
        assert word in text
    assert "3 experiments" in text


def test_an_older_file_is_named_and_drawn_again(folders, tmp_path, caplog):
    path = folders["toy/alloy"] / paper.NAME
    content = store.read_json(path)
    del content["entries"][0]["experiment"]
    store.write_json(path, content)
    with pytest.raises(ValueError, match=r"older version; .* figures --experiment toy/alloy$"):
        paper.read_reports(folders.values())
    write_report(tmp_path / "report.html", folders)
    assert "of an older version" in caplog.text


@pytest.mark.parametrize(
    ("number", "text"), [(1_580_310, "1580310"), (2.65e6, "2650000"), (0.1, "0.1"), (74, "74")]
)
def test_a_number_of_the_paper_has_all_its_digits(number, text):
    facts = {"where": "Table 3", "quantity": "graphs", "status": "not run", "differs": ""}
    row = {**facts, "paper": number, "ours": None, "unit": "1"}
    assert paper.format_row(row)[2] == text
