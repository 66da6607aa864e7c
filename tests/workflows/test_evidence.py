"""Figures from evidence in a working folder: nothing is trained, and what is altered is named."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from forked_programs import start_programs
from pipeline_core.figures import reproduction
from pipeline_core.figures.archives import unpack_archive, write_archive
from pipeline_core.figures.evidence import check_evidence, list_drift, list_evidence, load_evidence
from pipeline_core.figures.expected import read_expected
from pipeline_core.project.project import Project
from pipeline_core.project.working_folder import make_folder
from pipeline_core.stages.builtin import load_registry
from tiers import run_first
from workflows.toy import plan_jobs, snakemake

NAME = "htfbr/smoke"
LITTLE = {"cuts": [["tau"]], "cut_points": 3, "stationary_points": False, "export": False}
"""A use of a fitted surface without searches, which take longest and are in no figure here."""
WITHOUT = "mace/smoke"
EVIDENCE = ("--config", "evidence=true")
WORKFLOWS = Path(__file__).parents[2] / "workflows"
FIRST = "egnn_esp/overlap"
"""The experiment whose evidence is drawn soonest."""
KEPT = list_evidence(WORKFLOWS)

pytestmark = pytest.mark.slow


def call(folder, command, *words):
    place = ["--workflows", folder / "workflows", "--results", folder / "results"]
    program = start_programs() / "pipeline-core"
    return subprocess.run(
        [program, command, *words, *place], capture_output=True, text=True, check=False
    )


def test_a_paper_is_drawn_from_evidence_alone(tmp_path):
    folder = tmp_path / "work"
    make_folder(folder, [NAME, WITHOUT], load_registry())
    path = folder / f"workflows/experiments/{NAME}.yaml"
    figures = {"names": ["parity", "fits"], "formats": ["svg"]}
    short = {"variants": {}, "figures": figures, "infer": LITTLE}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | short))
    text = snakemake(folder, "-n", "papers", *EVIDENCE, ok=False)
    assert "no evidence in workflows/evidence/htfbr/smoke.tar.xz" in text
    snakemake(folder, "--config", f"experiments={NAME}")
    assert call(folder, "keep-evidence", NAME).returncode == 0
    shutil.move(folder / "results", tmp_path / "computed")
    assert plan_jobs(folder, "papers", *EVIDENCE) == {"papers": 1, "figures": 1}
    text = snakemake(folder, "papers", *EVIDENCE)
    assert "papers leaves out mace: no evidence in workflows/evidence/mace" in text
    figures = folder / "results/htfbr/smoke/figures"
    assert list(figures.parent.iterdir()) == [figures, figures.with_suffix(".log")]
    for table in figures.glob("*.csv"):
        before = tmp_path / "computed/htfbr/smoke/figures" / table.name
        assert table.read_bytes() == before.read_bytes()
    # Evidence draws whatever is forced; without it everything is computed.
    assert plan_jobs(folder, "papers", "--forceall", *EVIDENCE) == {"papers": 1, "figures": 1}
    assert plan_jobs(folder, "paper_htfbr", "--config", "scale=smoke")["train"] == 1
    snakemake(folder, "papers", *EVIDENCE, "--report", "report.html")
    assert f'id="{NAME}"' in (folder / "report.html").read_text()
    done = call(folder, "check-evidence")
    assert done.returncode == 0
    assert done.stdout == "htfbr/smoke: as it was kept\n"
    done = call(folder, "keep-evidence", "--redrawn", NAME)
    assert done.stdout == "htfbr/smoke: drawn otherwise than before: nothing\n"
    path = folder / "workflows/evidence/htfbr/smoke.tar.xz"
    unpacked = shutil.copytree(unpack_archive(path), tmp_path / "unpacked")
    metrics = unpacked / NAME / "base/metrics.json"
    metrics.write_text(metrics.read_text().replace("0.0", "0.1", 1))
    write_archive(unpacked, path)
    done = call(folder, "check-evidence", NAME)
    assert done.returncode == 1
    assert f"{path}: {NAME}/base/metrics.json: not the file that was kept" in done.stdout


@pytest.mark.parametrize("name", run_first(KEPT, FIRST))
def test_what_the_repository_keeps_is_as_it_was_kept(name, tmp_path):
    project = Project(WORKFLOWS, tmp_path, load_registry())
    assert check_evidence(name, project) == []
    if drift := list_drift(name, project):
        print(f"{name}: made before changes of {', '.join(drift)}")


@pytest.mark.parametrize("name", run_first(KEPT, "mace/acac"))
def test_each_measure_of_a_paper_leads_to_a_number_of_ours(name, tmp_path):
    report = reproduction.compare(
        load_evidence(name, Project(WORKFLOWS, tmp_path, load_registry()))
    )
    ours = {row["id"]: row["ours"] for row in report["entries"]}
    path = WORKFLOWS / "experiments" / Path(name).parent / "expected.yaml"
    measured = [one for one in read_expected(path).entries if one.measure is not None]
    here = [one.id for one in measured if one.measure.experiment == name]
    assert [one for one in here if ours[one] is None] == []
