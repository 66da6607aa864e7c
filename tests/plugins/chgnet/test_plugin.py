"""The hooks and the options."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions, check
from pipeline_core.config.inference import InferOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.testing.projects import write_project


def test_registration_imports_nothing_heavy():
    code = "import sys, pipeline_chgnet.plugin as p; p.model(); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def make_sections(**changed):
    sections = {"model": CHGNetOptions(), "graph": CHGNetGraphOptions(), "train": TrainOptions()}
    return sections | {"infer": InferOptions()} | changed


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"cutoff": 5.0}, r"model\.cutoff is 6 Å but graph\.cutoff is 5"),
        ({"angle_cutoff": 2.5}, r"model\.angle_cutoff is 3 Å but graph\.angle_cutoff is 2\.5"),
    ],
)
def test_other_cutoffs_of_the_graph_are_explained(graph, message):
    with pytest.raises(ValueError, match=message):
        check(make_sections(graph=CHGNetGraphOptions(**graph)))


def test_mixed_precision_is_refused_without_heads():
    mixed = TrainOptions(precision="bf16-mixed")
    with pytest.raises(ValueError, match=r"set it to '32-true' or '64-true'"):
        check(make_sections(train=mixed))
    check(make_sections(train=mixed, model=CHGNetOptions(heads="pair")))


def test_use_of_a_model_with_several_heads_of_energies_names_one():
    model = CHGNetOptions(energy_heads=["low", "high"])
    relax = [{"name": "one", "structures": ["one.cif"]}]
    check(make_sections(model=model))
    check(make_sections(model=model, infer=InferOptions(relax=relax, head="high")))
    with pytest.raises(ValueError, match=r"infer\.head: the model has the heads low, high"):
        check(make_sections(model=model, infer=InferOptions(relax=relax)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"energy_heads": ["low", "low"]}, "a name is given twice"),
        ({"energy_heads": ["low", "high"], "heads": "pair"}, "gives forces of one level of theory"),
    ],
)
def test_heads_of_energies_that_cannot_be_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        CHGNetOptions(**options)


def test_an_experiment_that_does_not_fit_together_is_not_valid(tmp_path):
    sections = {"model": {"cutoff": 6.0}, "graph": {"cutoff": 5.0}}
    project = write_project(tmp_path, "chgnet", sections)
    with pytest.raises(ValueError, match=r"conformance\.yaml.*: model\.cutoff is 6 Å but"):
        project.load_experiment("chgnet/conformance")


@pytest.mark.parametrize(
    ("key", "value"),
    [("angular_functions", 30), ("readout_features", []), ("convolutions", 0), ("width", 64)],
)
def test_wrong_options_are_refused(key, value):
    with pytest.raises(ValidationError, match=key):
        CHGNetOptions(**{key: value})
