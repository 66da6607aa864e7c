"""Figures of a committee; oracle: the numbers that its metrics and its frames hold."""

import pytest

from pipeline_atoms.figures.committees import draw_reliability
from pipeline_atoms.figures.uncertainty import draw_dynamics
from pipeline_atoms.simulations import simulate_run
from pipeline_core.artifacts import store
from pipeline_core.figures import parity
from pipeline_core.figures.style import apply_style
from pipeline_core.project.project import Project
from pipeline_core.report import numbers, story
from pipeline_core.report.summary import collect_findings
from plugins.atoms.calculators.test_committee import MD, make_committee


def load(run):
    folder = run.folder.parents[1]
    return Project(folder.parent / "workflows", folder, run.registry).load_experiment("lj")


@pytest.mark.slow
def test_figures_and_numbers_of_a_committee(tmp_path):
    limits = {"flag_above": 1e-6, "stop_above": 1e-6}
    md = [MD, MD | {"name": "stopped", "uncertainty": limits}]
    run = make_committee(tmp_path, infer={"md": md})
    simulate_run(run)
    experiment = load(run)
    committee = store.read_json(run.metrics)["committee"]

    with apply_style():
        figure, rows = draw_reliability(experiment)
        figure.savefig(tmp_path / "reliability.png")
        moving, of_frames = draw_dynamics(experiment)
        moving.savefig(tmp_path / "dynamics.png")
        compared, table = parity.draw(experiment)
        compared.savefig(tmp_path / "parity.png")
    shares = {(r[2], r[3]): r[4] for r in rows[1:]}
    assert shares["forces", 0.95] == committee["splits"]["test"]["forces"]["coverage"]
    assert [row[-1] for row in of_frames[1:] if row[0] == "stopped"] == [True]
    assert {row[0] for row in table[1:]} == {"base"}  # in place of its members
    errors = {row[2]: row[4] for row in table[1:]}
    assert errors["forces"] == 1000 * committee["splits"]["test"]["forces"]["mae"]

    findings = collect_findings(experiment)
    given = {n.title: n for n in numbers.collect_numbers(experiment, findings)}
    coverage = committee["splits"]["test"]["forces"]["coverage"]
    assert given["Force within 95 % intervals"].value == f"{100 * coverage:.1f} %"
    words = " ".join(story.list_warnings(experiment, findings))
    assert "in 1 of 1 frames the committee does not know the forces, the first at 0 fs" in words
    assert "'stopped' was stopped at step 0" in words
