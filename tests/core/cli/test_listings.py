"""What an environment offers: plugins and readers."""

from __future__ import annotations

from fake_packages import install


def test_plugins_are_listed_with_hooks_and_broken_ones_with_their_error(folder, call):
    install(folder / "site", "broken", "raise RuntimeError('boom')", version="0.3")
    lines = {line.split()[0]: line for line in call("plugins").output.splitlines()}
    assert lines["name"].split() == ["name", "status", "distribution", "version", "hooks", "about"]
    assert lines["alpha"].split()[1:5] == ["ok", "alpha", "1.0", "model"]
    assert "A test model (none)" in lines["alpha"]  # the summary and what to cite
    assert lines["broken"].split()[1:5] == ["broken", "broken", "0.3", "-"]
    assert "RuntimeError: boom" in lines["broken"]


def test_readers_are_listed_with_units_and_the_sign_of_stress(call):
    text = call("readers").output
    for name in ("extxyz", "vasp", "cp2k", "ase", "fitsnap", "mptrj", "deepmd"):
        assert any(line.startswith(f"{name} ") for line in text.splitlines())
    vasp = next(line for line in text.splitlines() if line.startswith("vasp "))
    assert "kbar (pressure)" in vasp  # VASP prints stress as pressure, in kbar
