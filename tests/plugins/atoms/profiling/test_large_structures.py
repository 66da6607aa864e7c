"""Plans of large structures. Oracles: the halo that a cut really has, and what a part computes."""

import json

import numpy as np
import pytest
from ase.build import bulk

from pipeline_atoms.cli.plan_structure import format_structure_plan
from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.profiling import large_structures
from pipeline_atoms.profiling.large_structures import (
    MeasuredPart,
    count_halo,
    measure_reach,
    plan_structure,
)
from pipeline_atoms.structure import Structure
from pipeline_core.config.sections import Link
from pipeline_core.testing.projects import prepare, write_project

CUTOFF = 4.0
MACE = {"model": {"channels": 4, "lmax": 2, "correlation": 1}}


class Nobody:
    """A transport that nothing is given to."""

    rank, size, bytes_sent = 0, 2, 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    sections = {**MACE, "graph": {"cutoff": CUTOFF}}
    run = write_project(folder, "mace", sections).run("mace/conformance", "base")
    prepare(run)
    return run


def test_the_halo_of_a_cube_is_that_of_a_cut():
    """Within a twelfth, of a cube of another size than the one that is measured."""
    atoms = bulk("Cu", "fcc", a=3.6, cubic=True).repeat((12, 12, 12))
    atoms.rattle(0.2, seed=0)
    structure = Structure(
        atoms.numbers.astype(np.int32), atoms.positions, atoms.cell[:], np.array(atoms.pbc)
    )
    inside = (np.abs(atoms.positions - 3.6 * 6) < 3.6 * 3).all(axis=1)
    domain = build_domain(structure, CUTOFF, np.where(inside, 0, 1), Nobody())
    reach = measure_reach(structure, CUTOFF)
    assert 0.6 * CUTOFF < reach < CUTOFF
    expected = count_halo(domain.n_own, len(atoms) / atoms.get_volume(), reach)
    assert domain.atoms.n_halo == pytest.approx(expected, rel=1 / 12)


@pytest.mark.slow
def test_a_plan_of_a_run(run, monkeypatch):
    monkeypatch.setattr(large_structures, "_SIZES", (20, 60))
    before = sorted(run.folder.rglob("*"))
    content = plan_structure(run, 10_000, [1, 2, 8, 64])
    assert sorted(run.folder.rglob("*")) == before, "a plan writes nothing"
    one, *rest = content["ranks"]
    assert (one["own"], one["halo"], one["messages_s"], one["moving_s"]) == (10_000, 0, 0.0, 0.0)
    assert one["speedup"] == one["efficiency"] == 1.0
    for row in rest:
        assert row["own"] == -(-10_000 // row["ranks"])
        assert 0 < row["halo"] < 10_000
        assert row["efficiency"] == pytest.approx(one["step_s"] / row["step_s"] / row["ranks"])
    for part in content["parts"]:
        # Features of four components and channels between the two layers, their derivatives back
        # for as many rows, and three numbers of each force.
        assert part["exchanges"] == 3
        assert part["received"] >= 4 * part["halo"] * 4 * 4
    text = format_structure_plan(json.loads(json.dumps(content)))
    assert max(map(len, text.splitlines())) <= 80
    assert "20 us, 10 GB/s, assumed" in text


def test_times_are_those_of_the_parts():
    """Linear times and memory go on; messages take latency and bandwidth."""
    parts = [
        MeasuredPart(100, 50, 0.1, 1000, 4000, 3),
        MeasuredPart(400, 100, 0.4, 4000, 8000, 3),
    ]
    link = Link(latency=1e-3, bandwidth=1e6)
    projector = large_structures._Projector(parts, 0.1, CUTOFF, link)
    whole, half = (projector.project(1000, n) for n in (1, 2))
    assert whole["step_s"] == pytest.approx(1.0, rel=1e-3)
    assert whole["memory"] == 10_000
    assert half["compute_s"] == pytest.approx(0.5, rel=1e-3)
    assert half["messages_s"] == pytest.approx(3 * 1e-3 + half["halo"] * 80 / 1e6)
    assert half["moving_s"] == pytest.approx(48 * 1000 / 1e6)


def test_what_exchanges_nothing_or_cannot_be_repeated_is_refused(run, monkeypatch):
    with monkeypatch.context() as patch:
        molecule = {"pbc": np.zeros(3, bool), "positions": np.zeros((1, 3))}
        patch.setattr(large_structures.SampleFile, "read", lambda *_: molecule)
        with pytest.raises(ValueError, match="periodic in three directions"):
            plan_structure(run, 1000, [1])
    monkeypatch.setattr("pipeline_mace.model.network.MACE.takes_domains", False)
    with pytest.raises(ValueError, match="exchange no features"):
        plan_structure(run, 1000, [1])
