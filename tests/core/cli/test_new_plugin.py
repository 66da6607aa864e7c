"""A new plugin is a package that installs and passes the conformance suite as it is written.

The oracles are pip and the suite itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_core.cli.new_plugin import TEMPLATES, render_files


def test_a_plugin_has_a_module_a_model_tests_and_a_readme():
    files = render_files("my_model")
    assert set(files) == {
        "pyproject.toml", "README.md", "my_model/__init__.py", "my_model/plugin.py",
        "my_model/network.py", "tests/test_plugin.py",
    }  # fmt: skip
    assert not [name for name, text in files.items() if "$" in text]
    assert len(files) == len(TEMPLATES)


@pytest.mark.parametrize("name", ["My_model", "1st", "my-model", "my model"])
def test_a_name_that_python_cannot_import_is_refused(call, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = call("new-plugin", name)
    assert result.exit_code == 1
    assert "is not a lower-case identifier" in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_left_alone(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model").mkdir()
    assert "exists already" in call("new-plugin", "my_model").stderr
    assert not list((tmp_path / "my_model").iterdir())
    assert call("new-plugin", "my_model", "--folder", "elsewhere").exit_code == 0
    assert (tmp_path / "elsewhere/my_model/plugin.py").exists()


def run(*words: str, folder: Path, site: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_it_installs_and_passes_its_tests(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("new-plugin", "my_model").exit_code == 0
    site = tmp_path / "site"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    run("pip", "install", *options, "./my_model", folder=tmp_path, site=site)
    listed = run("pipeline_core.cli", "plugins", folder=tmp_path, site=site)
    row = next(line for line in listed.splitlines() if line.startswith("my_model "))
    assert row.split()[1:4] == ["ok", "my-model", "0.1.0"]
    text = run("pytest", "-rs", "-W", "error", folder=tmp_path / "my_model", site=site)
    assert " passed" in text
    reasons = [line for line in text.splitlines() if line.startswith("SKIPPED")]
    same = ("the other run has the same", "another plugin has another source")
    assert all(line.endswith(same) for line in reasons), reasons


@pytest.mark.slow
def test_its_files_are_clean(tmp_path):
    for name, text in render_files("my_model").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    run("ruff", "check", "--line-length", "100", ".", folder=tmp_path, site=tmp_path)
    run("ruff", "format", "--check", "--line-length", "100", ".", folder=tmp_path, site=tmp_path)
