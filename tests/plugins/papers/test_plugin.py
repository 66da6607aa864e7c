"""Models beside their papers, and without them."""

from importlib.metadata import EntryPoint

import pytest

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.figures.drawing import choose_figures
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_htfbr.options import HTTrainOptions
from plugins.drawn import ROOT, load_shipped

MODELS = ("chgnet", "egnn_esp", "gauge_flows", "htfbr", "mace")
POINTS = [
    EntryPoint(name, f"pipeline_{name}.plugin", "pipeline_core") for name in ("atoms", *MODELS)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_papers_draws_the_same_but_for_them(tmp_path, name):
    alone = Project(ROOT / "workflows", tmp_path, load_registry(POINTS))
    for file in sorted((ROOT / f"workflows/experiments/{name}").glob("smoke.yaml")):
        experiment = f"{name}/{file.stem}"
        without = choose_figures(alone.load_experiment(experiment))
        together = choose_figures(load_shipped(tmp_path, experiment))
        assert [f.name for f in without] == [f.name for f in together if not f.paper]


def test_options_of_studies_belong_to_the_papers(tmp_path):
    alone = load_registry(POINTS).get_model_info("htfbr")
    together = load_registry().get_model_info("htfbr")
    assert alone.section_models["profile"] is ProfileOptions
    assert alone.section_models["train"] is HTTrainOptions
    assert "shares" in together.section_models["profile"].model_fields
    with pytest.raises(ValueError, match=r"profile\.shares: unknown key"):
        Project(ROOT / "workflows", tmp_path, load_registry(POINTS)).load_experiment("htfbr/hono")


def test_the_source_of_a_study_counts_to_its_model():
    extensions = {plugin.name: plugin.extensions for plugin in load_registry().plugins}
    assert {name: packages for name, packages in extensions.items() if packages} == {
        "egnn_esp": ("pipeline_papers.egnn_esp.studies",),
        "htfbr": ("pipeline_papers.htfbr.studies",),
    }
