"""Derivatives by correlated ensembles.

Oracles: exact plaquettes of the two-dimensional torus; the derivative of <O> by the coupling of O,
which is minus the variance of O.
"""

import json

import numpy as np
import pytest
import torch

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.exact import compute_torus_plaquette
from pipeline_gauge_flows.inference import infer
from pipeline_gauge_flows.inference.derivative import CONJUGATE
from pipeline_gauge_flows.inference.infer import SCHEMA
from pipeline_gauge_flows.inference.options import DerivativeOptions, SampleOptions
from plugins.gauge_flows.trained import SIGMAS, SQUARE, add_ensemble, call_infer, make_fresh_run
from tiers import exhaustive

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


def read_report(run):
    with store.open_artifact(run.inference, SCHEMA) as file:
        return json.loads(file["derivatives"].attrs["report"])


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """A flow that maps nothing, by a step of the anisotropy."""
    return make_fresh_run(
        tmp_path_factory.mktemp("between"),
        {
            "lattice": {"extents": [4, 4]}, "action": {"beta": 2.0},
            "generate": {
                "method": "heatbath", "n_configurations": 900, "thermalisation": 30, "chains": 3,
            },
            "split": {"val": 0.05, "test": 0.9},
        },
        graph=SQUARE,
        model={"prior": "ensemble", "action": {"beta": 2.0, "anisotropy": 0.1}},
    )  # fmt: skip


@pytest.mark.slow
def test_derivatives_on_an_ensemble_of_another_volume(between):
    """Oracle: the covariance at both ends, which needs no flow; nothing is trained again."""
    chain = {
        "method": "heatbath", "n_configurations": 600, "thermalisation": 30, "chains": 3,
    }  # fmt: skip
    theory = {"lattice": {"extents": [4, 8]}, "action": {"beta": 2.0}, "generate": chain}
    run = add_ensemble(between, "long", theory)
    options = DerivativeOptions(ensemble="long", resamples=100)
    _, run = call_infer(run, derivatives=options)
    report = read_report(run)
    assert (report["dataset"], report["n_configurations"]) == ("long", 600)
    assert report["independent_configurations"] == 1200
    conjugate = report["observables"][CONJUGATE]
    assert abs(conjugate["ends"]["sigmas"]) < SIGMAS
    difference = conjugate["flow"]["value"] - conjugate["independent"]["value"]
    error = np.hypot(conjugate["flow"]["error"], conjugate["independent"]["error"])
    assert abs(difference) < SIGMAS * error


@exhaustive
@pytest.mark.slow
def test_derivatives_by_a_mass_of_quarks(tmp_path):
    """Exact determinants reweight what pseudofermions drew at the other mass, and agree."""
    theory = {
        "lattice": {"extents": [4, 4], "n_colours": 2},
        "action": {"beta": 2.0, "fermions": {"kappa": 0.3, "two_kappa_mu": 0.3}},
        "generate": {
            "method": "hmc", "n_configurations": 960, "chains": 16, "thermalisation": 20,
            "n_steps": 4, "start": "cold",
        },
        "split": {"val": 0.05, "test": 0.9},
    }  # fmt: skip
    end = {"beta": 2.0, "fermions": {"kappa": 0.3, "two_kappa_mu": 0.4}}
    model = {"prior": "ensemble", "action": end}
    run = make_fresh_run(tmp_path, theory, graph=SQUARE, model=model)
    _, run = call_infer(run, derivatives=DerivativeOptions(resamples=100))
    report = read_report(run)
    assert report["parameter"] == "two_kappa_mu"
    assert 0.5 < report["weights"]["flow"]["ess"]["value"] < 0.999
    conjugate = report["observables"][CONJUGATE]
    assert conjugate["known"] is None
    flow, independent = (conjugate[key] for key in ("flow", "independent"))
    error = np.hypot(flow["error"], independent["error"])
    assert abs(flow["value"] - independent["value"]) < SIGMAS * error
    assert error < 0.4 * abs(flow["value"])


@pytest.fixture(scope="module")
def report(between):
    options = DerivativeOptions(resamples=300)
    summary, run = call_infer(between, derivatives=options)
    with store.open_artifact(run.inference, SCHEMA) as file:
        names = ("log_weight", "start/plaquette", "end/base")
        series = {name: file["derivatives"][name][:] for name in names}
    return summary, read_report(run), series


@pytest.mark.slow
def test_the_derivative_of_an_operator_by_its_coupling_is_minus_its_variance(report):
    """O of Eq. 16 by the anisotropy: in two dimensions beta grows by the factor 1 + lambda."""
    summary, content, _ = report
    assert (content["parameter"], content["start"], content["end"]) == ("anisotropy", 0.0, 0.1)
    assert content["n_configurations"] == 855
    operator = content["observables"][CONJUGATE]
    start, end = (compute_torus_plaquette(beta, 3, 16) for beta in (2.0, 2.2))
    exact = -2.0 * 16 * (end - start) / 0.1
    assert operator["known"] == pytest.approx(exact)
    for key in ("flow", "epsilon_same_step", "epsilon_limit", "independent"):
        one = operator[key]
        assert abs(one["value"] - exact) < SIGMAS * one["error"] + (
            0.05 * abs(exact) if key == "epsilon_limit" else 0
        )
    assert abs(operator["ends"]["sigmas"]) < SIGMAS
    assert summary["sigmas_from_variance"] == operator["ends"]["sigmas"]
    # Two ensembles know nothing of each other.
    assert operator["error_ratio"]["independent"] > 3
    assert content["independent_configurations"] == 2 * 855


def test_plaquettes_have_the_exact_difference(report):
    plaquettes = report[1]["observables"]["plaquette"]
    start, end = (compute_torus_plaquette(beta, 3, 16) for beta in (2.0, 2.2))
    assert plaquettes["known"] == pytest.approx((end - start) / 0.1)
    assert abs(plaquettes["known_sigmas"]) < SIGMAS
    assert plaquettes["error_ratio"]["same_step"] == pytest.approx(1, rel=1e-6)  # maps nothing
    ess = report[1]["weights"]
    assert 0.8 < ess["flow"]["ess"]["value"] < 1
    assert ess["flow"]["ess"]["value"] == pytest.approx(ess["identity"]["ess"]["value"])
    assert report[1]["observables"]["polyakov"]["known"] is None


def test_series_are_kept(report, between):
    with Ensemble(between.data) as ensemble:
        chosen = ensemble.select("val", "test")
    with SampleFile(between.data, "data") as file:
        planes = file.read_column("plaquette")
    np.testing.assert_allclose(report[2]["start/plaquette"], planes[chosen][:, 0])
    action = -2 * 16 * report[2]["start/plaquette"]
    np.testing.assert_allclose(report[2]["end/base"], action, atol=1e-8)
    np.testing.assert_allclose(report[2]["log_weight"], -0.1 * action, atol=1e-8)


@pytest.mark.parametrize("work", ["samples", "derivatives"])
def test_want_of_memory_is_named_with_the_cure(identity, between, monkeypatch, work):
    def run_out(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    for name in ("write_samples", "differentiate"):
        monkeypatch.setattr(infer, name, run_out)
    options = {
        "samples": (identity, SampleOptions(n_configurations=4, batch_size=2)),
        "derivatives": (between, DerivativeOptions(batch_size=2)),
    }
    run, section = options[work]
    with pytest.raises(ValueError, match=rf"in infer\.{work}; .*{work}\.batch_size \(now 2\)"):
        call_infer(run, **{work: section})


@pytest.mark.slow
def test_what_cannot_be_derived_is_refused(between, tmp_path):
    with pytest.raises(ValueError, match=r"infer\.samples: the flow starts from an ensemble"):
        call_infer(between, samples=SampleOptions(n_configurations=2))
    empty = make_fresh_run(
        tmp_path,
        {
            "lattice": {"extents": [4, 4]}, "action": {"beta": 2.0},
            "generate": {"method": "heatbath", "n_configurations": 4},
            "split": {"val": 0.0, "test": 0.25},
        },
        graph=SQUARE, model={"prior": "ensemble", "action": {"beta": 2.1}},
    )  # fmt: skip
    with pytest.raises(ValueError, match="1 configurations in val and test of its dataset"):
        call_infer(empty, derivatives=DerivativeOptions())
