"""Flows from one ensemble to another theory, on ensembles of other volumes and of files.

Oracles: exact partition functions and plaquettes of the torus; configurations before they were
written to files.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline_core.artifacts.samples import SampleFile
from pipeline_gauge_flows.data.exact import compute_torus_log_z, compute_torus_plaquette
from pipeline_gauge_flows.evaluation.options import CostOptions
from plugins.gauge_flows.trained import (
    HEATBATH,
    SIGMAS,
    SQUARE,
    THEORY,
    add_ensemble,
    call_evaluate,
    compute_sigmas,
    make_fresh_run,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """A flow that maps nothing, from beta = 1 to 1.1."""
    return make_fresh_run(
        tmp_path_factory.mktemp("between"),
        {**THEORY, "generate": HEATBATH, "split": {"val": 0.4, "test": 0.4}},
        graph=SQUARE,
        model={"prior": "ensemble", "action": {"beta": 1.1}},
    )


@pytest.mark.slow
def test_a_flow_between_couplings_has_the_ratio_of_partition_functions(between):
    _, metrics = call_evaluate(between)
    (report,) = metrics["flow"]["lattices"]
    assert report["n_samples"] == 320  # not those that it has been trained on
    a, b, c = (compute_torus_log_z(beta, 3, 16) for beta in (1.0, 1.1, 1.2))
    assert compute_sigmas(report["log_z"]["estimate"], b - a) < SIGMAS
    assert report["log_z"]["known"]["value"] == pytest.approx(b - a)
    assert compute_sigmas(report["ess"], math.exp(2 * (b - a) - (c - a))) < SIGMAS
    assert report["identity"]["ess"] == pytest.approx(report["ess"], rel=1e-6)
    plaquettes = report["observables"]["plaquette"]
    assert compute_sigmas(plaquettes["flow"], compute_torus_plaquette(1.1, 3, 16)) < SIGMAS
    assert (report["metropolis"], report["forward"], metrics["flow"]["cost"]) == (None, None, None)
    assert metrics["flow"]["start"]["beta"] == 1.0


@pytest.fixture(scope="module")
def transferred(between):
    """The same flow, which may name ensembles that fit and some that do not."""
    run = add_ensemble(
        between, "long", {**THEORY, "lattice": {"extents": [4, 8]}, "generate": HEATBATH}
    )
    few = {**HEATBATH, "n_configurations": 2}
    for name, extents, change in (
        ("group", [4, 4], {"n_colours": 2}),
        ("dimension", [4, 4, 4], {}),
        ("mask", [4, 5], {}),
    ):
        lattice = {"extents": extents, **change}
        run = add_ensemble(run, name, {**THEORY, "lattice": lattice, "generate": few})
    run = add_ensemble(run, "action", {**THEORY, "action": {"beta": 1.2}, "generate": few})
    return add_ensemble(run, "none", THEORY)


@pytest.mark.slow
def test_a_flow_acts_on_an_ensemble_of_another_volume(transferred):
    """Oracle: exact partition functions of twice the volume, where the volume law is exact too."""
    _, metrics = call_evaluate(transferred, ensembles=["long"])
    first, second = metrics["flow"]["lattices"]
    assert (first["dataset"], second["dataset"]) == ("ensemble", "long")
    assert (second["extents"], second["n_samples"]) == ([4, 8], 400)
    a, b, c = (compute_torus_log_z(beta, 3, 32) for beta in (1.0, 1.1, 1.2))
    assert compute_sigmas(second["ess"], math.exp(2 * (b - a) - (c - a))) < SIGMAS
    assert compute_sigmas(second["log_z"]["estimate"], b - a) < SIGMAS
    law = metrics["flow"]["volume_law"]
    assert law[0]["sigmas"] is None
    assert law[1]["expected"]["value"] == pytest.approx(first["ess"]["value"] ** 2)
    assert abs(law[1]["sigmas"]) < SIGMAS
    titles = [number["title"] for number in metrics["headline"]["numbers"]]
    assert "The same on 4x8" in titles
    with SampleFile(transferred.predictions, "predictions") as file:
        np.testing.assert_array_equal(np.bincount(file.read_column("lattice")), [320, 400])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("group", r"'group': a flow of SU\(3\) in 2 dimensions cannot act on SU\(2\) in 2"),
        ("dimension", r"'dimension': a flow of SU\(3\) in 2 dimensions cannot act on .* in 3"),
        ("mask", r"'mask': extents \[4, 5\]: the mask 'direction' repeats after 2 sites"),
        ("action", r"'action': .* the action .*beta=1.2.*, not .*beta=1.0.*choose another"),
        ("none", r"'none': .*holds 0 configurations"),
        ("ensemble", r"'ensemble' is the dataset of the experiment"),
    ],
)
def test_ensembles_that_do_not_fit_are_refused(transferred, name, message):
    run = replace(transferred, further={**transferred.further, "ensemble": transferred.dataset})
    with pytest.raises(ValueError, match=rf"evaluate\.ensembles: .*{message}"):
        call_evaluate(run, ensembles=[name], resamples=50)


def test_what_a_flow_from_an_ensemble_cannot_do_is_refused(between):
    with pytest.raises(ValueError, match=r"evaluate\.lattices: the flow starts from an ensemble"):
        call_evaluate(between, lattices=[[4, 8]])
    with pytest.raises(ValueError, match=r"evaluate\.cost: the flow starts from an ensemble"):
        call_evaluate(between, cost=CostOptions())
