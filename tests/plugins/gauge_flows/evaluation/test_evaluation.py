"""The stage `evaluate`.

Oracles: exact partition functions and plaquettes of the two-dimensional torus, which give the
effective sample size of a flow that maps nothing too; a heat bath; one rank.
"""

import json
import math
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.figures import predictions, results
from pipeline_core.report import numbers
from pipeline_core.report.summary import collect_findings
from pipeline_gauge_flows.data.exact import compute_torus_log_z, compute_torus_plaquette
from pipeline_gauge_flows.evaluation.evaluate import evaluate_flow
from pipeline_gauge_flows.evaluation.headline import make_headline
from pipeline_gauge_flows.model.flow import Flow
from plugins.gauge_flows.small import load_project
from plugins.gauge_flows.trained import (
    HEATBATH,
    SIGMAS,
    SQUARE,
    THEORY,
    call_evaluate,
    compute_sigmas,
    make_fresh_run,
    replace_options,
    run_on_two_ranks,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


@pytest.fixture(scope="module")
def measured(identity):
    """Its evaluation, on two lattices."""
    return call_evaluate(identity, samples=3000, lattices=[[4, 8], [4, 4]], resamples=300)


def test_without_a_coupling_there_is_nothing_to_do(tmp_path):
    """ESS = 1 and log Z = 0, up to what the training moved."""
    run = make_fresh_run(tmp_path, model={"action": {"beta": 0.0}}, graph=SQUARE)
    _, metrics = call_evaluate(run, samples=50)
    (report,) = metrics["flow"]["lattices"]
    assert report["ess"] == pytest.approx({"value": 1, "error": 0}, abs=1e-9)
    assert report["log_z"]["estimate"] == pytest.approx({"value": 0, "error": 0}, abs=1e-9)
    assert report["kl"]["reverse"] == pytest.approx({"value": 0, "error": 0}, abs=1e-9)
    assert report["metropolis"]["acceptance"] == 1
    assert report["k_hat"] is None
    assert metrics["headline"]["verdict"].startswith("On 4x4 the effective sample size is 1 of 50")


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_flow_that_maps_nothing_has_the_exact_figures(measured, number):
    """Z is <w>, and <w²> is the Z of twice the coupling."""
    report = measured[1]["flow"]["lattices"][number]
    n = report["volume"]
    assert n == (16, 32)[number]
    log_z, double = compute_torus_log_z(1.0, 3, n), compute_torus_log_z(2.0, 3, n)
    assert compute_sigmas(report["ess"], math.exp(2 * log_z - double)) < SIGMAS
    assert compute_sigmas(report["log_z"]["estimate"], log_z) < SIGMAS
    assert report["log_z"]["known"]["value"] == pytest.approx(log_z)
    assert compute_sigmas(report["log_z"]["elbo"], 0.0) < SIGMAS  # -<S> with the Haar measure
    assert compute_sigmas(report["kl"]["reverse"], log_z) < SIGMAS
    # -<S>_p, the mean of the plaquettes.
    assert compute_sigmas(report["log_z"]["eubo"], n * compute_torus_plaquette(1.0, 3, n)) < SIGMAS
    plaquettes = report["observables"]["plaquette"]
    assert compute_sigmas(plaquettes["flow"], compute_torus_plaquette(1.0, 3, n)) < SIGMAS
    assert abs(plaquettes["sigmas"]["known"]) < SIGMAS
    assert compute_sigmas(report["observables"]["polyakov"]["flow"], 0.0) < SIGMAS
    assert (
        compute_sigmas(report["log_weight_variance"], n / 18) < SIGMAS
    )  # beta² / 9 / 2 a plaquette
    chain = plaquettes["chain"]
    stuck = report["metropolis"]["longest_stay"] > 0.05 * report["n_samples"]
    assert stuck == (number == 1) == (chain["error"] is None)
    if not stuck:
        assert abs(chain["mean"] - compute_torus_plaquette(1.0, 3, n)) < SIGMAS * chain["error"]


def test_the_ensemble_speaks_for_the_other_side(measured):
    report = measured[1]["flow"]["lattices"][0]
    log_z, forward = compute_torus_log_z(1.0, 3, 16), report["forward"]
    # The training has seen none of the configurations.
    assert forward["n_configurations"] == 400
    assert (
        compute_sigmas(forward["ess"], math.exp(2 * log_z - compute_torus_log_z(2.0, 3, 16)))
        < SIGMAS
    )
    assert compute_sigmas(forward["log_z"], log_z) < SIGMAS
    assert report["log_z"]["eubo"]["from"] == "ensemble"
    assert report["log_z"]["elbo"]["value"] < log_z < report["log_z"]["eubo"]["value"]
    for one in report["observables"].values():
        assert abs(one["sigmas"]["ensemble"]) < SIGMAS
    assert measured[1]["flow"]["lattices"][1]["forward"] is None


def test_predictions_hold_every_configuration(identity, measured):
    with SampleFile(identity.predictions, "predictions") as file:
        assert len(file) == 3000 + 400 + 3000
        assert json.loads(file.attributes["lattices"]) == [[4, 4], [4, 8]]
        lattice, forward = file.read_column("lattice"), file.read_column("from_ensemble")
        np.testing.assert_array_equal(np.bincount(lattice), [3400, 3000])
        assert forward.sum() == 400
        own = (lattice == 0) & ~forward
        log_weight, planes = file.read_column("log_weight")[own], file.read_column("plaquette")[own]
        np.testing.assert_allclose(file.read_column("action")[own], -16 * planes[:, 0], atol=1e-9)
        np.testing.assert_allclose(log_weight, 16 * planes[:, 0], atol=1e-9)
    report = measured[1]["flow"]["lattices"][0]
    ess = np.exp(log_weight).sum() ** 2 / np.exp(2 * log_weight).sum() / 3000
    assert report["ess"]["value"] == pytest.approx(ess)


def test_what_is_said_first(identity, measured):
    summary, metrics = measured
    assert summary["samples"] == 3000
    assert summary["log_Z_known"] == compute_torus_log_z(1.0, 3, 16)
    assert metrics["n_parameters"] > 0
    assert make_headline(metrics["flow"]) == metrics["headline"]
    titles = [number["title"] for number in metrics["headline"]["numbers"]]
    assert titles == [
        "Effective sample size", "Forward effective sample size", "log Z", "KL(q, p)",
        "Acceptance", "Plaquette", "The same on 4x8",
    ]  # fmt: skip
    # The engine's figures of errors have nothing to say of it, and do not fail.
    assert results.read_metrics(identity) is None
    assert predictions.read_comparisons(identity) == []
    experiment = load_project(identity.folder.parents[2]).load_experiment("flow")
    found = numbers.collect_numbers(experiment, collect_findings(experiment))
    assert any(number.title == "Data" for number in found)


def test_what_cannot_be_evaluated_is_refused(identity):
    with pytest.raises(ValueError, match=r"evaluate\.lattices: .*mask 'direction' repeats"):
        call_evaluate(identity, samples=4, lattices=[[4, 5]])
    with pytest.raises(ValueError, match=r"evaluate\.lattices: .* cannot act on SU\(3\) in 3"):
        call_evaluate(identity, samples=4, lattices=[[4, 4, 4]])
    with pytest.raises(ValueError, match=r"evaluate\.ensembles: the flow starts from the Haar"):
        call_evaluate(identity, ensembles=["ensemble"])


def test_want_of_memory_is_named_with_the_cure(identity, monkeypatch):
    def run_out(self, links):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(Flow, "forward", run_out)
    message = r"out of memory in the evaluation of .*; lower evaluate\.batch_size \(now 7\) \["
    with pytest.raises(ValueError, match=message):
        call_evaluate(identity, samples=14, batch_size=7)


@pytest.mark.slow
def test_an_ensemble_of_another_theory_is_left_alone(tmp_path):
    """The flow's target is that of `model.action`, whatever the dataset holds."""
    dataset = {**THEORY, "generate": {**HEATBATH, "n_configurations": 8}}
    run = make_fresh_run(tmp_path, dataset, graph=SQUARE, model={"action": {"beta": 1.5}})
    _, metrics = call_evaluate(run, samples=20)
    (report,) = metrics["flow"]["lattices"]
    assert report["forward"] is None
    assert report["log_z"]["eubo"]["from"] == "reweighted"


@pytest.mark.slow
def test_two_ranks_write_what_one_does(identity, monkeypatch):
    """All but times and the name of what was run; ranks are threads."""
    options = {"samples": 50, "batch_size": 8, "lattices": [[4, 8]]}
    _, expected = call_evaluate(identity, **options)
    identity.metrics.unlink()
    of_thread = threading.local()
    place = "pipeline_gauge_flows.evaluation.evaluate.connect_ranks"
    monkeypatch.setattr(place, lambda *_: nullcontext(of_thread.ranks))

    def work(ranks):
        of_thread.ranks = ranks
        return evaluate_flow(replace_options(identity, **options))

    assert run_on_two_ranks(work)[1] == {}
    metrics = json.loads(identity.metrics.read_text())
    assert metrics["flow"] == expected["flow"]
    with SampleFile(identity.predictions, "predictions") as file:
        assert len(file) == 50 + 400 + 50
