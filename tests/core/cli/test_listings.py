"""What an environment offers: plugins and readers; what a folder offers: experiments."""

import json
from types import SimpleNamespace

from fake_packages import install
from pipeline_core.cli import listings
from pipeline_core.registry import Plugin


def test_plugins_are_listed_with_hooks_and_broken_ones_with_their_error(folder, call):
    install(folder / "site", "broken", "raise RuntimeError('boom')", version="0.3")
    output = call("plugins").output
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert lines["name"].split() == ["name", "status", "distribution", "version", "hooks", "about"]
    assert lines["alpha"].split()[1:5] == ["ok", "alpha", "1.0", "model"]
    assert "A test model (none)" in lines["alpha"]  # the summary and what to cite
    assert lines["broken"].split()[1:5] == ["broken", "broken", "0.3", "-"]
    assert "RuntimeError: boom" in lines["broken"]
    plugins = {one["name"]: one for one in json.loads(call("plugins", "--json").output)}
    assert plugins["alpha"]["status"] == "ok"
    assert plugins["alpha"]["hooks"] == ["model"]
    assert plugins["alpha"]["model"]["summary"] == "A test model"
    assert plugins["broken"]["status"] == "broken"
    assert plugins["broken"]["error"] == "RuntimeError: boom"
    assert plugins["broken"]["model"] is None


def test_a_plugin_that_a_later_version_will_not_take_is_listed_with_the_cure(call, monkeypatch):
    cure = "hook 'prepare' goes in 2.0: implement 'data' instead"
    plugin = Plugin("old", "old.plugin", "old-package", "1.0", ("prepare",), deprecated=(cure,))
    monkeypatch.setattr(listings, "load_registry", lambda: SimpleNamespace(plugins=[plugin]))
    _, line = call("plugins").output.splitlines()
    assert line.split()[1:4] == ["deprecated", "old-package", "1.0"]
    assert line.endswith(cure)


def test_readers_are_listed_with_units_and_the_sign_of_stress(call):
    text = call("readers").output
    for name in ("extxyz", "vasp", "cp2k", "ase", "fitsnap", "mptrj", "deepmd"):
        assert any(line.startswith(f"{name} ") for line in text.splitlines())
    vasp = next(line for line in text.splitlines() if line.startswith("vasp "))
    assert "kbar (pressure)" in vasp  # VASP prints stress as pressure, in kbar
    readers = {one["name"]: one for one in json.loads(call("readers", "--json").output)}
    assert readers["vasp"]["units"]["stress"] == "kbar"
    assert readers["vasp"]["units"]["stress_sign"] == "pressure"
    assert ".xyz" in readers["extxyz"]["suffixes"]
    assert "set.*/*.npy" in readers["deepmd"]["beside"]


def test_experiments_are_listed_and_the_configured_ones_marked(folder, call):
    experiments = folder / "workflows/experiments/alpha"
    text = (experiments / "first.yaml").read_text()
    (experiments / "second.yaml").write_text(text.replace("A first test", "A second\n  test"))
    (experiments / "third.yaml").write_text("description: [")
    (folder / "workflows/config.yaml").write_text("experiments: alpha/second\n")
    lines = [" ".join(line.split()) for line in call("experiments").output.splitlines()]
    assert lines[:3] == [
        "name plugin dataset scale variants about",
        "alpha/first alpha water laptop 2 A first test",
        "* alpha/second alpha water laptop 2 A second test",
    ]
    assert lines[3].startswith("alpha/third - - - 0 broken:")
    first, second, third = json.loads(call("experiments", "--json").output)
    assert first == {
        "name": "alpha/first", "plugin": "alpha", "dataset": "water", "scale": "laptop",
        "variants": ["wide", "longer"], "description": "A first test", "error": None,
        "configured": False,
    }  # fmt: skip
    assert second["configured"]
    assert "third.yaml: cannot be read as YAML" in third["error"]
