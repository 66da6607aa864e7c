"""One page by hand, from what the stage `figures` has left."""

import pytest

from core.report import made_up


@pytest.fixture
def drawn(folder):
    made_up.write_chapters(folder / "results", "alpha/first", "alpha/second")
    return folder


def test_experiments_and_the_file_can_be_chosen(drawn, call):
    assert call("report").output == "results/report.html\n"
    text = (drawn / "results" / "report.html").read_text()
    assert 'id="alpha/first"' in text
    assert 'href="alpha/second/figures/parity.pdf"' in text
    assert call("report", "alpha/second", "--output", "page.html").exit_code == 0
    text = (drawn / "page.html").read_text()
    assert 'id="alpha/first"' not in text
    assert 'href="results/alpha/second/figures/parity.pdf"' in text


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ((), "results: no figures of any experiment; run snakemake"),
        (("alpha/third",), "draw it: pipeline-core figures --experiment alpha/third"),
    ],
)
def test_what_has_not_been_drawn_is_named_with_the_cure(folder, call, words, cure):
    result = call("report", *words)
    assert result.exit_code == 1
    assert cure in result.output
    assert not (folder / "results" / "report.html").exists()
