"""A new plugin is a package that installs, passes the conformance suite and runs to figures.

The oracles are pip, ruff, mypy, Snakemake and the suite itself.
"""

from __future__ import annotations

import json
import re

import pytest

from built_packages import Package
from pipeline_core.cli.new_plugin import KINDS, render_files
from tiers import exhaustive, run_first

STAGES = {
    "potential": {"data", "graph", "partition", "train", "evaluate", "infer", "figures", "all"},
    "samples": {"data", "partition", "train", "evaluate", "figures", "all"},
    "solver": {"data", "train", "evaluate", "figures", "all"},
}
FIGURES = {
    "potential": {"summary", "dataset", "parity", "learning", "md_conservation"},
    "samples": {"summary", "dataset", "parity", "learning"},
    "solver": {"summary", "dataset", "parity"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_modules_tests_an_experiment_with_data_and_a_readme(kind):
    files = render_files("my_model", kind)
    assert {"pyproject.toml", "README.md", ".github/workflows/test.yml"} <= set(files)
    assert {"my_model/plugin.py", "tests/test_plugin.py", "workflows/config.yaml"} <= set(files)
    unfilled = [n for n, text in files.items() if "$" in text.replace("${{", "")]
    assert not unfilled
    for path in files:
        if path.startswith("my_model/") and not path.endswith("__init__.py"):
            assert f"| `{path}` |" in files["README.md"]


@pytest.mark.parametrize("name", ["My_model", "1st", "my-model", "my model"])
def test_a_name_that_python_cannot_import_is_refused(call, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = call("new-plugin", name)
    assert result.exit_code == 1
    assert "is not a lower-case identifier" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alpha", "a plugin of this name is installed, from alpha 1.0"),
        ("alpha_plugin", "an installed module of this name"),
        ("numpy", "an installed module of this name"),
        ("json", "an installed module of this name"),
        ("class", "Python has a keyword or an installed module of this name"),
    ],
)
def test_a_name_that_is_taken_is_refused(call, folder, name, message):
    result = call("new-plugin", name)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (folder / name).exists()


def test_an_existing_folder_is_left_alone(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model").mkdir()
    assert "exists already" in call("new-plugin", "my_model").stderr
    assert not list((tmp_path / "my_model").iterdir())
    assert call("new-plugin", "my_model", "--folder", "elsewhere").exit_code == 0
    assert (tmp_path / "elsewhere/my_model/plugin.py").exists()


@pytest.fixture(scope="module", params=run_first(KINDS, "solver"))
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def package(kind, tmp_path_factory) -> Package:
    """A new plugin of each kind, installed."""
    folder = tmp_path_factory.mktemp(kind)
    result = Package(folder / "my_model", folder / "site")
    command = ["pipeline_core.cli", "new-plugin", "my_model", "--kind", kind]
    said = result.run(*command, folder=folder)
    assert "pip install -e 'my_model[test]' && pytest my_model\n" in said
    result.install()
    return result


@pytest.mark.slow
def test_it_passes_its_tests(package):
    text = package.run("pytest", "-rs", "-W", "error", "my_model", folder=package.folder.parent)
    assert " passed" in text
    reasons = [line for line in text.splitlines() if line.startswith("SKIPPED")]
    known = ("the other run has the same", "has another source", "trains the model itself")
    absent = ("has no stage 'graph'", "has no stage 'infer'", "stores the model itself")
    assert all(line.endswith((*known, *absent)) for line in reasons), reasons


@exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["solver"], indirect=True)
def test_it_is_checked_by_its_name(package):
    said = package.run("pipeline_core.cli", "plugins", "--check", "my-model")
    row = re.search(r"^my_model: Plugin +(\d+) +0 +0 ", said, re.MULTILINE)
    assert int(row[1]) > 5


@exhaustive
@pytest.mark.slow
def test_its_files_are_clean(package):
    package.run("ruff", "check", ".")
    package.run("ruff", "format", "--check", ".")
    cache = ["--cache-dir", str(package.folder.parents[1] / "mypy")]
    package.run("mypy", "--strict", "--ignore-missing-imports", *cache, "my_model")


@exhaustive
@pytest.mark.slow
def test_its_experiment_runs_to_figures(package, kind):
    package.run("pipeline_core.cli", "init")
    planned = package.run("snakemake", "--cores", "1", "-n")
    table = planned.split("Job stats:")[1].split("total")[0]
    assert set(re.findall(r"^(\w+) +\d+$", table, re.MULTILINE)) == STAGES[kind]
    package.run("snakemake", "--cores", "1")
    folder = package.folder / "results/my_model/first/figures"
    drawn = {entry["name"] for entry in json.loads((folder / "index.json").read_text())}
    assert FIGURES[kind] <= drawn
    assert "Nothing to be done" in package.run("snakemake", "--cores", "1", "-n")
