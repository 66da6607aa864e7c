"""Names that a shell would execute, or that lead out of the results, are only names, or refused.

Oracle: files that the words between `$(` and `)` would make, looked for after Snakemake has run.
"""

import hashlib
import shutil

import pytest
import yaml

from pipeline_core.workflow.rules import Plan
from workflows.toy import plan_jobs, snakemake

EVIL = "all `touch evil` of $(touch evil) it's; touch evil #"
"""Without a slash, so that it is one folder."""

DATASET = {"description": "d", "sources": [{"path": "a.xyz"}]}


def has_executed(project):
    return list(project.rglob("evil"))


@pytest.mark.slow
def test_folders_with_blanks_and_commands_are_only_names(fresh):
    workflows, results = EVIL, f"{EVIL} too"
    shutil.copytree(fresh / "workflows", fresh / workflows)
    (fresh / "server.xyz").write_text("from afar")
    (fresh / workflows / "datasets/water.yaml").write_text(yaml.safe_dump(DATASET | {
        "downloads": {"a.xyz": {
            "url": f"file://{fresh}/server.xyz",
            "sha256": hashlib.sha256(b"from afar").hexdigest(),
        }},
    }))  # fmt: skip
    config = {"experiments": ["toy/first"], "workflows": workflows, "results": results}
    (fresh / "workflows/config.yaml").write_text(yaml.safe_dump(config))
    model = f"{results}/toy/first/base/model.pt"
    snakemake(fresh, model)
    assert (fresh / workflows / "datasets/a.xyz").read_text() == "from afar"
    assert (fresh / model).exists()
    assert (fresh / results / "toy/first/base/logs/train.log").exists()
    assert plan_jobs(fresh, model) == {}
    assert not has_executed(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["$(touch evil)", "-x", "..", "a b"])
def test_a_dataset_file_with_such_a_name_offers_no_downloads(fresh, name):
    declared = {"a.xyz": {"url": "https://localhost/a.xyz", "sha256": "0" * 64}}
    path = fresh / f"workflows/datasets/{name}.yaml"
    path.write_text(yaml.safe_dump(DATASET | {"downloads": declared}))
    assert "No rule to produce" in snakemake(fresh, "workflows/datasets/a.xyz", ok=False)
    assert not has_executed(fresh)


@pytest.mark.parametrize("key", ["results", "workflows"])
@pytest.mark.parametrize("folder", ["", "--help", "a{b}", "a<b>", "a*", "a\nb"])
def test_folders_that_snakemake_would_take_for_patterns_are_refused(key, folder):
    with pytest.raises(SystemExit, match=rf"^error: workflows/config.yaml.*{key}"):
        Plan({"experiments": [], key: folder})
