"""What an environment offers: plugins and readers."""

from __future__ import annotations

from types import SimpleNamespace

from fake_packages import install
from pipeline_core.cli import listings
from pipeline_core.registry import Plugin


def test_plugins_are_listed_with_hooks_and_broken_ones_with_their_error(folder, call):
    install(folder / "site", "broken", "raise RuntimeError('boom')", version="0.3")
    lines = {line.split()[0]: line for line in call("plugins").output.splitlines()}
    assert lines["name"].split() == ["name", "status", "distribution", "version", "hooks", "about"]
    assert lines["alpha"].split()[1:5] == ["ok", "alpha", "1.0", "model"]
    assert "A test model (none)" in lines["alpha"]  # the summary and what to cite
    assert lines["broken"].split()[1:5] == ["broken", "broken", "0.3", "-"]
    assert "RuntimeError: boom" in lines["broken"]


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
