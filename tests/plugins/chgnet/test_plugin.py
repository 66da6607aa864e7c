"""The hooks and the options."""

import pytest

from pipeline_atoms.config.inference import InferOptions
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions, check
from pipeline_core.config.sections import TrainOptions


def make_sections(**changed):
    sections = {"model": CHGNetOptions(), "graph": CHGNetGraphOptions(), "train": TrainOptions()}
    return sections | {"infer": InferOptions()} | changed


USED = InferOptions(relax=[{"name": "one", "structures": ["one.cif"]}])
LEVELS = CHGNetOptions(energy_heads=["low", "high"])


@pytest.mark.parametrize(("sections", "message"), [
    ({"train": TrainOptions(precision="bf16-mixed")}, r"set it to '32-true' or '64-true'"),
    ({"model": LEVELS, "infer": USED}, r"infer\.head: the model has the heads low, high"),
])  # fmt: skip
def test_sections_that_do_not_fit_together_are_explained(sections, message):
    with pytest.raises(ValueError, match=message):
        check(make_sections(**sections))


@pytest.mark.parametrize("sections", [
    {"train": TrainOptions(precision="bf16-mixed"), "model": CHGNetOptions(heads="pair")},
    {"model": LEVELS},
    {"model": LEVELS, "infer": USED.model_copy(update={"head": "high"})},
])  # fmt: skip
def test_sections_that_fit_are_taken(sections):
    check(make_sections(**sections))


@pytest.mark.parametrize(("options", "message"), [
    ({"energy_heads": ["low", "low"]}, "names low, low have to differ"),
    ({"energy_heads": ["low", "high"], "heads": "pair"}, "gives forces of one level of theory"),
    ({"angular_functions": 30}, "angular_functions"),
    ({"readout_features": []}, "readout_features"),
])  # fmt: skip
def test_options_that_cannot_be_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        CHGNetOptions(**options)
