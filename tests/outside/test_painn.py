"""A model from outside: a repository of its own, beside CHGNet and MACE in one experiment.

It is built, installed and tested as its users would. The oracles are pip, ruff, mypy, the
conformance suite, and the data stage: labels and splits are those that it wrote.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from built_packages import Package
from docs.public_names import find_private_imports
from pipeline_core.artifacts.samples import SampleFile
from tiers import exhaustive

SOURCE = Path(__file__).with_name("painn")
VARIANTS = {"base": "painn", "chgnet": "chgnet", "mace": "mace"}
SUITES = ("Plugin", "Potential", "Run")
TEST = 2  # place of the split in the data


def test_it_imports_what_is_public_alone():
    sources = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    assert len(sources) > 4
    private = {p: names for p, text in sources.items() if (names := find_private_imports(text))}
    assert private == {}


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Package:
    """The repository, its wheel installed."""
    folder = tmp_path_factory.mktemp("outside")
    result = Package(folder / "painn", folder / "site")
    shutil.copytree(SOURCE, result.folder, ignore=shutil.ignore_patterns("__pycache__", "build"))
    assert result.install() == "painn_for_pipeline_core-0.1.0-py3-none-any.whl"
    return result


@pytest.mark.slow
def test_it_passes_the_conformance_suite(package):
    table = package.run("pytest", "-W", "error", "-p", "pipeline_core.testing.plugin")
    rows = re.findall(r"^painn: (\w+) +(\d+) +(\d+) ", table, re.MULTILINE)
    assert {name: int(failed) for name, _, failed in rows} == dict.fromkeys(SUITES, 0)
    assert all(int(passed) > 5 for _, passed, _ in rows)


@exhaustive
@pytest.mark.slow
def test_its_files_are_clean(package):
    package.run("ruff", "check", ".")
    package.run("ruff", "format", "--check", ".")
    package.run("mypy", "--strict", "--ignore-missing-imports", "painn")


@pytest.fixture(scope="module")
def results(package) -> Path:
    """What the workflow makes of its experiment, with the data of pipeline-core."""
    package.run("pipeline_core.cli", "init", "--experiment", "chgnet/hfo2")
    package.run("snakemake", "--cores", "2", "--config", "experiments=painn/hfo2")
    return package.folder / "results"


def read_metrics(results: Path, variant: str) -> dict:
    return json.loads((results / "painn/hfo2" / variant / "metrics.json").read_text())


@exhaustive
@pytest.mark.slow
def test_three_models_are_compared_on_one_split(results):
    with SampleFile(results / "datasets/hfo2/data.h5", "data") as file:
        energies = file.read_column("energy")[file.read_column("split") == TEST]
    assert len(energies) > 5
    for variant in VARIANTS:
        with SampleFile(results / f"painn/hfo2/{variant}/predictions.h5", "predictions") as file:
            labels = file.read_column("energy_label")[file.read_column("split") == TEST]
        np.testing.assert_allclose(np.sort(labels), np.sort(energies), rtol=1e-12)
    metrics = {variant: read_metrics(results, variant) for variant in VARIANTS}
    assert {variant: content["plugin"] for variant, content in metrics.items()} == VARIANTS
    forces = [content["splits"]["test"]["quantities"]["forces"] for content in metrics.values()]
    assert len({one["label_mean_absolute"] for one in forces}) == 1
    assert len({one["mae"] for one in forces}) == 3


@exhaustive
@pytest.mark.slow
def test_it_learns_as_the_others_do(results):
    forces = {
        variant: read_metrics(results, variant)["splits"]["test"]["quantities"]["forces"]
        for variant in VARIANTS
    }
    # No force at all would have the error 1; so short a training of so small a network halves it.
    errors = {v: one["mae"] / one["label_mean_absolute"] for v, one in forces.items()}
    assert all(error < 0.8 for error in errors.values()), errors


@exhaustive
@pytest.mark.slow
def test_one_report_shows_all_three(results):
    folder = results / "painn/hfo2/figures"
    for figure in ("parity", "learning"):
        with (folder / f"{figure}.csv").open() as file:
            assert {row["variant"] for row in csv.DictReader(file)} == {"painn", "chgnet", "mace"}
    page = (folder / "summary.html").read_text()
    for variant, plugin in VARIANTS.items():
        n_parameters = read_metrics(results, variant)["n_parameters"]
        assert f"{plugin}, {n_parameters:,} parameters" in page
    assert "arXiv:2102.03150" in (folder / "provenance.csv").read_text()
