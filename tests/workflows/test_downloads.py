"""Raw files that Snakemake fetches before it imports. Oracle: Snakemake's own plan and jobs."""

import hashlib
from types import SimpleNamespace

import pytest
import yaml

from fake_packages import ATOMS
from pipeline_core.stages.builtin import load_registry
from pipeline_core.workflow.rules import Plan
from workflows.toy import plan_jobs, snakemake


def write(project, name, **content):
    path = project / "workflows" / "datasets" / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"description": "d", **content}))


@pytest.fixture
def remote(fresh):
    """A project whose dataset `water` has one of its two raw files on a server."""
    server = fresh / "server.xyz"
    server.write_text("from afar")
    sha256 = hashlib.sha256(server.read_bytes()).hexdigest()
    declared = {"water/a+b.xyz": {"url": f"file://{server}", "sha256": sha256}}
    sources = [{"path": "raw.xyz"}, {"path": "water/*.xyz"}]
    write(fresh, "water", sources=sources, downloads=declared)
    (fresh / "workflows" / "datasets" / "broken.yaml").write_text("description: d\nsorces: []\n")
    return fresh


TARGET = "results/datasets/water/data.h5"


@pytest.mark.slow
def test_missing_raw_files_are_fetched_first(remote):
    assert plan_jobs(remote, TARGET) == {"download": 1, "data": 1}
    snakemake(remote, TARGET)
    path = remote / "workflows" / "datasets" / "water" / "a+b.xyz"
    assert path.read_text() == "from afar"
    other = TARGET.replace("results", "elsewhere")
    assert plan_jobs(remote, other, "--config", "results=elsewhere") == {"data": 1}


@pytest.mark.slow
def test_files_that_were_put_there_by_hand_stay(remote):
    path = remote / "workflows" / "datasets" / "water" / "a+b.xyz"
    path.parent.mkdir()
    path.write_text("from afar")
    (remote / "server.xyz").unlink()
    snakemake(remote, TARGET, "--forceall")
    assert path.read_text() == "from afar"
    assert "is there" in (remote / "results" / "downloads" / "water" / "a+b.xyz.log").read_text()


@pytest.mark.slow
def test_a_wrong_file_stops_the_workflow(remote):
    (remote / "server.xyz").write_text("another file")
    text = snakemake(remote, TARGET, ok=False)
    assert "gave another file than the dataset file declares" in text
    assert not (remote / TARGET).exists()
    assert not (remote / "workflows" / "datasets" / "water" / "a+b.xyz").exists()


@pytest.mark.slow
def test_a_mixture_needs_the_files_of_its_parts(remote):
    (remote / "workflows" / "datasets" / "more.xyz").write_text("more")
    write(remote, "more", sources=[{"path": "more.xyz"}])
    write(remote, "both", parts=[{"dataset": "water"}, {"dataset": "more"}])
    assert plan_jobs(remote, "results/datasets/both/data.h5") == {"download": 1, "data": 1}


def test_a_mixture_is_imported_again_when_a_part_changes(remote):
    config = {name: str(remote / name) for name in ("workflows", "results")}
    plan = Plan({"experiments": [], **config}, load_registry([ATOMS]))
    both = SimpleNamespace(dataset="both")
    write(remote, "more", sources=[{"path": "raw.xyz"}])
    write(remote, "both", parts=[{"dataset": "more"}])
    before = plan.dataset(both)
    write(remote, "more", sources=[{"path": "raw.xyz"}], licence="CC0")
    assert plan.dataset(both) == before
    write(remote, "more", sources=[{"path": "raw.xyz"}], split={"seed": 8})
    assert plan.dataset(both) != before
