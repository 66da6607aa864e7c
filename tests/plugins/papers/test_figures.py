"""Which experiments have figures of a paper, and that their numbers are those of its text."""

import re

import pytest

from pipeline_core.figures.drawing import choose_figures
from pipeline_papers.chgnet import figures as chgnet
from pipeline_papers.egnn_esp import figures as egnn_esp
from pipeline_papers.gauge_flows import figures as gauge_flows
from pipeline_papers.htfbr import figures as htfbr
from pipeline_papers.mace import figures as mace
from plugins.drawn import load_shipped, read_numbers
from real_data import read_paper

FIGURES = {
    "chgnet/mptrj": chgnet.FIGURES,
    "egnn_esp/scaling": egnn_esp.FIGURES,
    "gauge_flows/loops": gauge_flows.FIGURES,
    "htfbr/hono": htfbr.FIGURES,
    "mace/scaling": mace.FIGURES,
}
SAID = {
    "saturation_16": "10^5",
    "messages_128": "1.1×10^5",
    "embeddings_512": "21k",
    "gain_128": "10.8%",
    "structure_atoms": "24k",
    "metis_64": "8.54 sec",
    "plan_seconds": "about one second",
}
"""Numbers that the text of a paper writes otherwise."""


@pytest.mark.parametrize("plugin", ["egnn_esp", "mace"])
def test_every_number_stands_in_the_paper(plugin):
    text = re.sub(r"(?<=\d),(?=\d{3})", "", read_paper(plugin)).replace(r"\times", "x")
    for name, entry in read_numbers(plugin).items():
        forms = {f"{entry.value:.12g}", f"{entry.value / 1e6:.12g}M"}
        forms = {SAID[name]} if name in SAID else forms
        assert any(re.search(rf"(?<![\d.]){re.escape(f)}(?!\d)", text) for f in forms), entry


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_without_results_nothing_is_drawn(tmp_path, name):
    experiment = load_shipped(tmp_path, name)
    chosen = {figure.name for figure in choose_figures(experiment)}
    assert {figure.name for figure in FIGURES[name]} <= chosen
    assert [figure.draw(experiment) for figure in FIGURES[name]] == [None] * len(FIGURES[name])


DRAWN = {
    "mace/hfo2": 0,
    "mace/smoke": 0,
    "chgnet/smoke": 0,
    "chgnet/convergence_hfo2": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "has_figures"), DRAWN.items())
def test_experiments_of_a_paper_alone_have_its_figures(tmp_path, name, has_figures):
    chosen = choose_figures(load_shipped(tmp_path, name))
    assert any(figure.paper for figure in chosen) == has_figures
