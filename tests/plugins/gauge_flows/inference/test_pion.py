"""The pion among the observables of the stage `infer`, in the two-dimensional theory.

Oracles: free quarks, whose correlator is known; estimators that know nothing of each other; all
points of a slice.
"""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pipeline_core.artifacts import store
from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot
from pipeline_gauge_flows.inference.infer import SCHEMA, infer_flow
from pipeline_gauge_flows.inference.options import DerivativeOptions, GaugeInferOptions, PionOptions
from pipeline_gauge_flows.inference.pion import ELEMENT, MASS, make_correlator
from plugins.gauge_flows.trained import make_fresh_run, replace_section

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*lossy_conversion")]
SIGMAS = 4.0
QUARKS = FermionOptions(kappa=0.2)
ACTION = ActionOptions(beta=2.0)
LATTICE = Lattice((8, 4), 3)


def build_correlator(**options):
    return make_correlator(PionOptions(quarks=QUARKS, **options), ACTION, LATTICE, (0,))


def test_sources_follow_from_the_number_of_a_configuration():
    links = draw_hot(LATTICE, 3, torch.Generator().manual_seed(1))
    correlator = build_correlator(n_sources=2)
    together = correlator(links, [4, 9, 2])["pion"]
    assert_close(correlator(links[[1]], [9])["pion"], together[[1]], rtol=1e-9, atol=0)
    other = correlator(links[[1]], [8])["pion"]
    assert (other - together[[1]]).abs().max() > 1e-3 * together.max()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """By a flow that maps nothing."""
    run = make_fresh_run(
        tmp_path_factory.mktemp("pion"),
        {
            "lattice": {"extents": [8, 4]}, "action": {"beta": 2.0},
            "generate": {
                "method": "heatbath", "n_configurations": 400, "thermalisation": 30, "chains": 4,
            },
            "split": {"val": 0.05, "test": 0.9},
        },
        graph={"lattice": {"extents": [8, 4]}, "masks": [{"mask": "direction"}]},
        model={"prior": "ensemble", "action": {"beta": 2.0, "anisotropy": 0.1}},
    )  # fmt: skip
    pion = PionOptions(quarks=QUARKS, n_sources=4)
    options = DerivativeOptions(resamples=100, pion=pion)
    infer_flow(replace_section(run, "infer", GaugeInferOptions(derivatives=options)))
    with store.open_artifact(run.inference, SCHEMA) as file:
        group = file["derivatives"]
        columns = group["start/pion"][:], group["end/pion"][:]
        return json.loads(group.attrs["report"]), columns


@pytest.mark.slow
def test_three_estimators_agree(report):
    content, _ = report
    for t_min in (1, 2, 3):
        for name in (f"{MASS}_{t_min}", f"{ELEMENT}_{t_min}"):
            one = content["observables"][name]
            difference = one["flow"]["value"] - one["independent"]["value"]
            error = np.hypot(one["flow"]["error"], one["independent"]["error"])
            assert abs(difference) < SIGMAS * error
            assert abs(one["ends"]["sigmas"]) < SIGMAS
            assert one["error_ratio"]["same_step"] == pytest.approx(1, rel=1e-4)  # maps nothing
            # Of the same configurations: reweighted by a small part of the step, or not at all.
            small = one["epsilon_scan"][-1]
            limit = one["epsilon_limit"]
            assert small["fraction"] == 0.0625
            assert small["value"] == pytest.approx(limit["value"], abs=0.3 * limit["error"])


@pytest.mark.slow
def test_masses_of_all_ranges_are_reported(report):
    content, (start, end) = report
    pion = content["pion"]
    assert (pion["t_min"], pion["n_sources"]) == (2, 4)
    assert pion["quarks"] == {"kappa": 0.2, "two_kappa_mu": 0.0}
    assert [one["t_min"] for one in pion["masses"]] == [1, 2, 3]
    effective = [one["value"] for one in pion["effective_masses"]]
    means = start.mean(0)
    for t, mass in enumerate(effective):  # Both times are met.
        ratio = np.cosh(mass * (4 - t)) / np.cosh(mass * (3 - t))
        assert ratio == pytest.approx(means[t] / means[t + 1], rel=1e-6)
    last = pion["masses"][-1]
    assert (last["dof"], last["start"]["value"]) == (0, pytest.approx(effective[3]))
    slope = content["observables"][f"{MASS}_2"]["flow"]["value"]
    step = pion["masses"][1]["end"]["value"] - pion["masses"][1]["start"]["value"]
    assert slope == pytest.approx(step / 0.1)
    # The same sources before and after a flow that maps nothing.
    np.testing.assert_allclose(end, start, rtol=1e-8)
    assert all(content["seconds"][name] > 0 for name in ("flow", "measurement", "generation"))


def test_what_has_no_pion_is_refused():
    with pytest.raises(ValueError, match=r"pion\.quarks: the action has no quarks"):
        make_correlator(PionOptions(), ACTION, LATTICE, (0,))
    quarks = PionOptions(quarks=QUARKS)
    with pytest.raises(ValueError, match=r"derivatives\.pion: Wilson's operator is even-odd"):
        make_correlator(quarks, ACTION, Lattice((8, 4, 4), 3), (0,))
    with pytest.raises(ValueError, match="2 sites in time leave no range to fit a mass in"):
        make_correlator(quarks, ACTION, Lattice((2, 4), 3), (0,))
    of_the_sea = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=0.15))
    assert make_correlator(PionOptions(), of_the_sea, LATTICE, (0,)).quarks.kappa == 0.15
