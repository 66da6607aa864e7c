"""`pipeline-core download`, and what `validate` says of files that are still to be fetched."""

import hashlib
import shutil

import pytest
import yaml


@pytest.fixture
def remote(folder):
    """The dataset `water`, its raw file on a server."""
    datasets = folder / "workflows" / "datasets"
    shutil.move(datasets / "water.xyz", folder / "server.xyz")
    content = yaml.safe_load((datasets / "water.yaml").read_text())
    sha256 = hashlib.sha256((folder / "server.xyz").read_bytes()).hexdigest()
    url = f"file://{folder / 'server.xyz'}"
    content["downloads"] = {"water.xyz": {"url": url, "sha256": sha256}}
    (datasets / "water.yaml").write_text(yaml.safe_dump(content))
    (datasets / "both.yaml").write_text("description: d\nparts: [{dataset: water}]\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["water", "both"])
def test_what_is_missing_is_fetched(remote, call, dataset):
    """And `validate` accepts what can be fetched."""
    experiment = remote / "workflows" / "experiments" / "alpha" / "first.yaml"
    experiment.write_text(experiment.read_text().replace("dataset: water", f"dataset: {dataset}"))
    shown = call("validate", "alpha/first").output
    cure = f"pipeline-core download --dataset {dataset}"
    assert f"dataset {dataset} (to be imported; data missing: {cure})" in shown
    path = "workflows/datasets/water.xyz"
    assert "download --dataset water" in call("data", "--dataset", dataset).stderr
    shown = call("download", "--dataset", dataset).output
    assert f"{path}: fetched" in shown
    assert "1 file fetched" in shown
    shown = call("download", "--dataset", dataset, "--file", "water.xyz").output
    assert f"{path}: is there" in shown
    shown = call("validate", "alpha/first").output
    assert f"dataset {dataset} (1 raw file, 0.0 MB, to be imported)" in shown
    assert "samples" in call("data", "--dataset", dataset).output


def test_an_endless_answer_ends_and_leaves_nothing(remote, refuse):
    datasets = remote / "workflows" / "datasets"
    content = yaml.safe_load((datasets / "water.yaml").read_text())
    content["downloads"]["water.xyz"] |= {"url": "file:///dev/zero", "max_gb": 0.01}
    (datasets / "water.yaml").write_text(yaml.safe_dump(content))
    before = sorted(datasets.iterdir())
    message = "file:///dev/zero: gives more than 0.01 GB; nothing was kept"
    refuse(["download", "--dataset", "water"], message)
    assert sorted(datasets.iterdir()) == before
