"""Parts that our models name for `train.freeze`: each parameter is in one, and pages name them."""

import re

import pytest

from docs.pages import DOCS
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.stages.builtin import load_registry
from pipeline_core.training.freezing import freeze
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEGraphOptions, MACEOptions

SMALL = {"atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4}
MODULES = {
    "chgnet": lambda: CHGNet(CHGNetOptions(**SMALL, heads="pair"), CHGNetGraphOptions()),
    "mace": lambda: MACE(MACEOptions(channels=2), Facts(("H", "O"), 10.0), MACEGraphOptions()),
}


@pytest.mark.parametrize("name", MODULES)
def test_each_parameter_is_in_one_part(name):
    parts = load_registry().get_model_info(name).parts
    frozen = [p for part in parts for p in freeze(MODULES[name](), [part], parts)]
    assert sorted(frozen) == sorted(dict(MODULES[name]().named_parameters()))


@pytest.mark.parametrize("name", ["chgnet", "mace", "egnn_esp"])
def test_the_page_names_the_parts(name):
    page = (DOCS / "how_to/fine_tune.md").read_text()
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(load_registry().get_model_info(name).parts)
