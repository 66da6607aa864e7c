"""Published weights. That they are read rightly is tested against the peer in `test_parity`."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
import torch

from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.model.published import VERSIONS, read_published
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions


@pytest.mark.parametrize("version", VERSIONS)
def test_they_fill_the_whole_model(version):
    pytest.importorskip("chgnet", reason="needs the extra 'peers'")
    model = CHGNet.published(version)

    state = read_published(version)

    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_a_network_of_other_sizes_is_refused():
    pytest.importorskip("chgnet", reason="needs the extra 'peers'")

    with pytest.raises(ValueError, match=r"default options; remove graph\.cutoff$"):
        CHGNet(CHGNetOptions(), CHGNetGraphOptions(cutoff=5.0)).load_published("0.3.0")
    with pytest.raises(ValueError, match=r"default options; remove model\.atom_features"):
        CHGNet(CHGNetOptions(atom_features=32), CHGNetGraphOptions()).load_published("0.3.0")


def test_an_unknown_version_is_explained():
    with pytest.raises(ValueError, match=r"unknown published weights '0\.1'.*available: 0\.3\.0"):
        read_published("0.1")


def test_a_missing_package_is_explained(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(ValueError, match=r"pip install 'pipeline-core\[peers\]'"):
        read_published()


def test_an_incomplete_package_is_explained(monkeypatch, tmp_path):
    spec = ModuleSpec("chgnet", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)

    with pytest.raises(ValueError, match=r"lacks the weights '0\.3\.0'; run: pip install"):
        read_published()
