"""What a plugin says of its model: stages that it does without."""

from __future__ import annotations

import pytest

from pipeline_core.config.experiments import ENGINE_SECTIONS
from pipeline_core.config.sections import Section
from pipeline_core.model_info import ModelInfo


class Options(Section):
    width: int = 8


def describe(**facts) -> ModelInfo:
    return ModelInfo(name="toy", summary="A toy", citation="none", options=Options, **facts)


def test_a_model_has_the_sections_of_the_engine_unless_it_brings_its_own():
    class Train(Section):
        penalty: float = 1.0

    models = describe(sections={"train": Train}).section_models
    assert models == {"model": Options, **ENGINE_SECTIONS, "train": Train}
    for stage in ("train", "evaluate", "figures", "data", "grahp"):  # which cannot be absent
        with pytest.raises(ValueError, match=rf"omits \['{stage}'\]; .*'graph', 'partition'"):
            describe(without=(stage,))
