"""The stage `infer`: derivatives by correlated ensembles, and configurations in files.

Oracles: a normal distribution that is shifted, where flows, weights and derivatives are known in
closed form; exact plaquettes of the two-dimensional torus; the derivative of <O> by the coupling of
O, which is minus the variance of O; readers of other programs' files; one rank.
"""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from pipeline_core import store
from pipeline_core.fields import SPLITS
from pipeline_core.samples import SampleFile
from pipeline_gauge_flows.actions import ActionOptions
from pipeline_gauge_flows.datasets import FermionOptions
from pipeline_gauge_flows.ensembles.statistics import ChainRows
from pipeline_gauge_flows.ensembles.storage import Ensemble
from pipeline_gauge_flows.evaluation.inputs import load_flow
from pipeline_gauge_flows.evaluation.resampling import Value, compute_value
from pipeline_gauge_flows.exact import compute_torus_plaquette
from pipeline_gauge_flows.formats import READERS
from pipeline_gauge_flows.inference.derivative import (
    CONJUGATE,
    DerivativeEstimates,
    Step,
    compute_independent,
    find_step,
)
from pipeline_gauge_flows.inference.infer import SCHEMA, infer_flow
from pipeline_gauge_flows.inference.options import (
    DerivativeOptions,
    GaugeInferOptions,
    SampleOptions,
)
from pipeline_gauge_flows.inference.sample import write_samples
from plugins.gauge_flows.made_up import STEP, draw_shift
from plugins.gauge_flows.trained import (
    ONE,
    add_ensemble,
    make_fresh_run,
    replace_section,
    run_on_two_ranks,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")
SIGMAS = 4.0
SQUARE = {"lattice": {"extents": [4, 4]}, "masks": [{"mask": "direction"}]}


def call_infer(run, **options):
    summary = infer_flow(replace_section(run, "infer", GaugeInferOptions(**options)))
    return summary, run


def make_estimates(part: float, n: int = 4000, seed: int = 0) -> DerivativeEstimates:
    chains = ChainRows([np.arange(n // 2), np.arange(n // 2, n)])
    return DerivativeEstimates(draw_shift(n, part, seed), STEP, chains, [1.0, 0.25], 200, (seed,))


def test_an_exact_flow_has_no_error_where_it_shifts():
    """d<x>/dlambda = 1, and the difference of <x²> = 1 + lambda² is 2 lambda_1 + step."""
    estimates = make_estimates(1.0)
    report = estimates.report("plaquette")
    assert report["flow"] == pytest.approx({"value": 1.0, "error": 0.0}, abs=1e-12)
    square = compute_value(estimates.flow_derivative("square"))
    assert abs(square.measure_distance(STEP.length)) < SIGMAS
    assert square.error == pytest.approx(2 / 4000**0.5, rel=0.15)  # 2 x
    # The conjugate is -x.
    assert estimates.report(CONJUGATE)["flow"]["value"] == pytest.approx(-1.0)


@pytest.mark.parametrize("part", [0.0, 0.8, 1.3])
def test_a_flow_that_is_not_exact_is_reweighted(part):
    report = make_estimates(part).report("plaquette")
    for key in ("flow", "epsilon_same_step", "epsilon_limit", "epsilon_best"):
        assert abs(report[key]["value"] - 1) < SIGMAS * report[key]["error"]
    assert abs(report["ends"]["sigmas"]) < SIGMAS
    for entry in report["epsilon_scan"]:
        assert abs(entry["value"] - 1) < SIGMAS * entry["error"]
    ratios = report["error_ratio"]
    if part == 0:
        assert report["flow"] == pytest.approx(report["epsilon_same_step"])
        assert ratios["same_step"] == pytest.approx(1)
    else:
        # What is left of the shift is reweighted: the variance falls with its square.
        assert ratios["same_step"] == pytest.approx(1 / abs(1 - part), rel=0.15)
        assert 1 < ratios["best"] <= ratios["same_step"]


def test_both_ends_have_their_covariances():
    """Of x² with -C = x: 2 lambda, and 2 lambda_2 at the end; their mean is the difference."""
    estimates = make_estimates(0.8, 40_000)
    report = estimates.report("square")
    assert abs(report["ends"]["start"]["value"]) < SIGMAS * report["ends"]["start"]["error"]
    end = report["ends"]["end"]
    assert abs(end["value"] - 2 * STEP.length) < SIGMAS * end["error"]
    mean = report["ends"]["mean"]
    assert abs(mean["value"] - STEP.length) < SIGMAS * mean["error"]
    assert mean["error"] < max(report["ends"]["start"]["error"], end["error"])


def test_errors_are_those_of_many_repetitions():
    repetitions = [make_estimates(0.8, 500, seed) for seed in range(40)]
    values = [compute_value(one.flow_derivative("plaquette")) for one in repetitions]
    spread = np.std([one.value for one in values])
    assert np.mean([one.error for one in values]) == pytest.approx(spread, rel=0.3)


def test_two_ensembles():
    difference = compute_independent(Value(1.0, 0.03), Value(1.4, 0.04), STEP)
    assert (difference.value, difference.error) == pytest.approx((2.0, 0.25))


def test_the_step_is_in_one_parameter():
    base = ActionOptions(beta=2.0)
    assert find_step(base, ActionOptions(beta=2.5)) == Step("beta", 2.0, 2.5)
    step = find_step(base, ActionOptions(beta=2.0, anisotropy=0.1))
    assert step == Step("anisotropy", 0.0, 0.1)
    two = ActionOptions(beta=2.1, anisotropy=0.1)
    quarks = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=0.15))
    for other in (base, two, ActionOptions(name="iwasaki", beta=2.1), quarks):
        with pytest.raises(ValueError, match="differ in one of beta, anisotropy, kappa, two_kappa"):
            find_step(base, other)
    twisted = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=0.15, two_kappa_mu=0.1))
    assert find_step(quarks, twisted) == Step("two_kappa_mu", 0.0, 0.1)


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
    options = DerivativeOptions(ensemble="long", resamples=100, fractions=[1.0])
    _, run = call_infer(run, derivatives=options)
    with store.open_artifact(run.inference, SCHEMA) as file:
        report = json.loads(file["derivatives"].attrs["report"])
    assert (report["dataset"], report["n_configurations"]) == ("long", 600)
    assert report["independent_configurations"] == 1200
    conjugate = report["observables"][CONJUGATE]
    assert abs(conjugate["ends"]["sigmas"]) < SIGMAS
    difference = conjugate["flow"]["value"] - conjugate["independent"]["value"]
    error = np.hypot(conjugate["flow"]["error"], conjugate["independent"]["error"])
    assert abs(difference) < SIGMAS * error
    with pytest.raises(ValueError, match="splits: of the dataset of the experiment"):
        DerivativeOptions(ensemble="long", splits=["test"])


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
    _, run = call_infer(run, derivatives=DerivativeOptions(resamples=100, fractions=[1.0]))
    with store.open_artifact(run.inference, SCHEMA) as file:
        report = json.loads(file["derivatives"].attrs["report"])
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
    options = DerivativeOptions(resamples=300, fractions=[1.0, 0.5])
    summary, run = call_infer(between, derivatives=options)
    with store.open_artifact(run.inference, SCHEMA) as file:
        group = file["derivatives"]
        return summary, json.loads(group.attrs["report"]), {
            name: group[name][:] for name in ("log_weight", "start/plaquette", "end/base")
        }  # fmt: skip


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


@pytest.mark.slow
def test_a_trained_flow_has_smaller_errors(tmp_path):
    """By a step of the anisotropy to 0.2, at equal configurations, against the best of the rest."""
    run = make_fresh_run(
        tmp_path,
        {
            "lattice": {"extents": [4, 4]}, "action": {"beta": 2.0},
            "generate": {"method": "heatbath", "n_configurations": 1500, "thermalisation": 30},
            "split": {"val": 0.1, "test": 0.6},
        },
        graph=SQUARE,
        model={
            "layers": {"hidden": [16]}, "prior": "ensemble",
            "action": {"beta": 2.0, "anisotropy": 0.2},
        },
        train={
            "epochs": 16, "batch_size": 50, "gradient": "path", "optimizer": {"lr": 2.5e-3},
            "schedule": {"name": "cosine"},
        },
    )  # fmt: skip
    summary, _ = call_infer(run, derivatives=DerivativeOptions())
    with store.open_artifact(run.inference, SCHEMA) as file:
        content = json.loads(file["derivatives"].attrs["report"])
    for name in (CONJUGATE, "plaquette"):
        one = content["observables"][name]
        assert abs(one["known_sigmas"]) < SIGMAS
        assert abs(one["ends"]["sigmas"]) < SIGMAS
        ratios = one["error_ratio"]
        assert 3 < ratios["best"] <= ratios["same_step"]
        assert ratios["independent"] > ratios["best"]
    assert summary["ESS"] > 0.98 > summary["ESS_identity"]
    print({name: one["error_ratio"] for name, one in content["observables"].items()})


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A flow that maps nothing, on its way to beta = 0.3 in four dimensions."""
    return make_fresh_run(
        tmp_path_factory.mktemp("four"),
        model={"action": {"beta": 0.3}},
        graph={"lattice": {"extents": [2, 2, 4, 2]}, "masks": [{"mask": "direction"}]},
    )


@pytest.mark.slow
def test_a_markov_chain_is_an_ensemble(tmp_path):
    """With the plaquette of the torus; written in the layout of the data stage."""
    run = make_fresh_run(tmp_path, model={"action": {"beta": 1.0}}, graph=SQUARE)
    options = SampleOptions(n_configurations=500, separation=3, thermalisation=30, batch_size=100)
    summary, _ = call_infer(run, samples=options)
    with Ensemble(run.folder / "samples/ensemble.h5") as ensemble:
        assert (len(ensemble), ensemble.action) == (500, ActionOptions(beta=1.0))
        assert (ensemble.split == SPLITS.index("train")).all()
        links = ensemble.read_links([0, 499])
    with SampleFile(run.folder / "samples/ensemble.h5", "data") as file:
        statistics = json.loads(file.attributes["statistics"])
    plaquette = statistics["plaquette"]
    assert (
        abs(plaquette["mean"] - compute_torus_plaquette(1.0, 3, 16)) < SIGMAS * plaquette["error"]
    )
    assert statistics["origin"]["acceptance"] == summary["acceptance"]
    assert 0.2 < summary["acceptance"] < 0.8
    eye = np.broadcast_to(np.eye(3), links.shape)
    np.testing.assert_allclose((links @ links.mH).numpy(), eye, atol=1e-12)
    with h5py.File(run.inference) as file:
        numbers, log_weight = (file["samples"][name][:] for name in ("number", "log_weight"))
    assert len(numbers) == 500
    assert (np.diff(numbers) >= 0).all()
    assert numbers[-1] <= 30 + 3 * 500
    # The chain prefers large weights: the mean of log w is that under p.
    assert log_weight.mean() > 16 * compute_torus_plaquette(1.0, 3, 16) / 2


def test_other_programs_can_read_configurations(four):
    options = SampleOptions(n_configurations=2, thermalisation=1, formats=["hdf5", "ildg", "nersc"])
    call_infer(four, samples=options)
    folder = four.folder / "samples"
    names = [f"{i:05d}.{kind}" for i in range(2) for kind in ("ildg", "nersc")]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "ensemble.h5"]
    with Ensemble(folder / "ensemble.h5") as ensemble:
        for name in names:
            configuration = READERS[name[6:]](folder / name)
            assert configuration.lattice == ensemble.lattice
            assert configuration.action == ActionOptions(beta=0.3)
            expected = ensemble.read_links([int(name[:5])])[0]
            np.testing.assert_allclose(configuration.links, expected.numpy(), atol=1e-14)


def test_proposals_have_weights(four):
    options = SampleOptions(
        n_configurations=3, method="proposals", formats=["nersc", "hdf5"], extents=[2, 2, 2, 2]
    )
    call_infer(four, samples=options)
    folder = four.folder / "samples"
    assert sorted(path.name for path in folder.iterdir()) == [
        "00000.nersc", "00001.nersc", "00002.nersc", "proposals.h5",
    ]  # fmt: skip
    with SampleFile(folder / "proposals.h5", "plugin/gauge_flows/proposals") as file:
        np.testing.assert_allclose(
            file.read_column("log_weight"), -file.read_column("action"), atol=1e-8
        )
        assert file.read_column("links").shape == (3, 4, 16, 3, 3)
    assert READERS["nersc"](folder / "00001.nersc").action is None
    with pytest.raises(ValueError, match="expected 'data'"):
        Ensemble(folder / "proposals.h5")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["metropolis", "proposals"])
def test_samples_are_those_of_any_number_of_ranks(four, method):
    _, flow = load_flow(four, ONE.device)
    options = SampleOptions(n_configurations=7, method=method, batch_size=3)

    def written(ranks):
        with h5py.File.in_memory() as file:
            write_samples(four, flow, options, ranks, file if ranks.is_rank_zero else None)
            if not ranks.is_rank_zero:
                return None
            place = "ensemble" if method == "metropolis" else "proposals"
            with h5py.File(four.folder / f"samples/{place}.h5") as data:
                return file["samples/number"][:], data["links"][:]

    alone, shared = written(ONE), run_on_two_ranks(written)[0]
    for ours, theirs in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_asked_for_is_nothing_done(four):
    summary, run = call_infer(four)
    assert summary == {}
    with store.open_artifact(run.inference, SCHEMA) as file:
        assert list(file) == []


def test_what_cannot_be_is_refused(between, four, tmp_path):
    with pytest.raises(ValueError, match=r"infer\.samples: the flow starts from an ensemble"):
        call_infer(between, samples=SampleOptions(n_configurations=2))
    with pytest.raises(ValueError, match=r"infer\.derivatives: the flow does not start from"):
        call_infer(four, derivatives=DerivativeOptions())
    with pytest.raises(ValueError, match=r"infer\.samples\.extents: .*mask 'direction' repeats"):
        call_infer(four, samples=SampleOptions(n_configurations=2, extents=[2, 2, 2, 3]))
    empty = make_fresh_run(
        tmp_path,
        {
            "lattice": {"extents": [4, 4]}, "action": {"beta": 2.0},
            "generate": {"method": "heatbath", "n_configurations": 4},
            "split": {"val": 0.0, "test": 0.5},
        },
        graph=SQUARE, model={"prior": "ensemble", "action": {"beta": 2.1}},
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"derivatives\.splits: 0 configurations in val"):
        call_infer(empty, derivatives=DerivativeOptions(splits=["val"]))
    flat = make_fresh_run(tmp_path / "flat", model={"action": {"beta": 1.0}}, graph=SQUARE)
    with pytest.raises(ValueError, match=r"formats: 'ildg' does not hold SU\(3\) in 2"):
        call_infer(flat, samples=SampleOptions(n_configurations=2, formats=["ildg"]))
    assert not flat.inference.exists()
    with pytest.raises(ValueError, match="separation: of a Markov chain, but method"):
        SampleOptions(n_configurations=2, method="proposals", separation=2)
