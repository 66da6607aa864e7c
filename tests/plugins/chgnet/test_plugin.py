"""The hooks and the options."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pipeline_chgnet import plugin
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions, check_cutoffs
from pipeline_core.config.sections import GraphOptions, TrainOptions


def test_it_describes_itself():
    info = plugin.model()

    assert info.name == "chgnet"
    assert info.options is CHGNetOptions
    assert info.predicts == ("energy", "forces", "stress", "magmoms")


def test_registration_imports_nothing_heavy():
    code = "import sys, pipeline_chgnet.plugin as p; p.model(); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_default_sections_agree():
    check_cutoffs(CHGNetOptions(), CHGNetGraphOptions())


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"cutoff": 5.0}, r"model\.cutoff is 6 Å but graph\.cutoff is 5"),
        ({"angle_cutoff": 2.5}, r"model\.angle_cutoff is 3 Å but graph\.angle_cutoff is 2\.5"),
    ],
)
def test_other_cutoffs_of_the_graph_are_explained(graph, message):
    with pytest.raises(ValueError, match=message):
        check_cutoffs(CHGNetOptions(), CHGNetGraphOptions(**graph))


def test_a_graph_without_angles_is_explained():
    with pytest.raises(ValueError, match=r"graph\.angle_cutoff is None"):
        check_cutoffs(CHGNetOptions(), GraphOptions())


def test_mixed_precision_is_refused_without_heads():
    sections = {
        "model": CHGNetOptions(),
        "graph": CHGNetGraphOptions(),
        "train": TrainOptions(precision="bf16-mixed"),
    }
    run = SimpleNamespace(get_section=lambda stage, _: sections[stage])

    with pytest.raises(ValueError, match=r"set it to '32-true' or '64-true'"):
        plugin.task(run)


@pytest.mark.parametrize(
    ("key", "value"),
    [("angular_functions", 30), ("readout_features", []), ("convolutions", 0), ("width", 64)],
)
def test_wrong_options_are_refused(key, value):
    with pytest.raises(ValidationError, match=key):
        CHGNetOptions(**{key: value})
