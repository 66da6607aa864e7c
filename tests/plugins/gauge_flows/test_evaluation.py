"""The stage `evaluate`.

Oracles: exact partition functions and plaquettes of the two-dimensional torus, which give the
effective sample size of a flow that maps nothing too; a strong-coupling series; a heat bath; one
rank.
"""

from __future__ import annotations

import json
import math
import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline_core.figures import results, story
from pipeline_core.samples import SampleFile
from pipeline_gauge_flows.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.ensembles.storage import Ensemble
from pipeline_gauge_flows.evaluation import cost as cost_module
from pipeline_gauge_flows.evaluation.cost import (
    compare_costs,
    compute_flow_cost,
    compute_training_cost,
    find_cheapest,
    read_training_seconds,
)
from pipeline_gauge_flows.evaluation.evaluate import evaluate_flow
from pipeline_gauge_flows.evaluation.headline import make_headline
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import (
    CostOptions,
    GaugeEvaluateOptions,
    ObservableOptions,
)
from pipeline_gauge_flows.evaluation.series import draw_series
from pipeline_gauge_flows.exact import (
    compute_torus_log_z,
    compute_torus_plaquette,
    expand_strong_coupling,
)
from pipeline_gauge_flows.formats.configuration import Configuration
from pipeline_gauge_flows.formats.nersc import write_nersc
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.samples import HaarSamples
from plugins.gauge_flows.small import load_project, make_flow
from plugins.gauge_flows.trained import (
    IDLE,
    ONE,
    add_ensemble,
    make_fresh_run,
    replace_section,
    run_on_two_ranks,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")
SQUARE = {"lattice": {"extents": [4, 4]}, "masks": [{"mask": "direction"}]}
HEATBATH = {"method": "heatbath", "n_configurations": 400, "thermalisation": 30}
THEORY = {"lattice": {"extents": [4, 4]}, "action": {"beta": 1.0}}
SIGMAS = 4.0


def replace_options(run, **options):
    options = {"cost": None, "resamples": 100, **options}
    return replace_section(run, "evaluate", GaugeEvaluateOptions(**options))


def call_evaluate(run, **options):
    return evaluate_flow(replace_options(run, **options)), json.loads(run.metrics.read_text())


def compute_sigmas(value: dict[str, float], expected: float) -> float:
    return abs(value["value"] - expected) / value["error"]


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    """A flow that maps nothing, on its way to beta = 1, and an ensemble of that."""
    folder = tmp_path_factory.mktemp("identity")
    return make_fresh_run(folder, {**THEORY, "generate": HEATBATH}, graph=SQUARE)


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


def test_effective_sample_sizes_follow_the_volume(measured):
    """Without a flow plaquettes are independent up to 1e-9, so that the law is exact."""
    first, second = measured[1]["flow"]["volume_law"]
    assert first["expected"] == first["ess"]
    assert second["extents"] == [4, 8]
    assert second["expected"]["value"] == pytest.approx(first["ess"]["value"] ** 2)
    assert abs(second["sigmas"]) < SIGMAS


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
    assert results.read_comparisons(identity) == []
    experiment = load_project(identity.folder.parents[2]).load_experiment("flow")
    assert any(number.title == "Data" for number in story.collect_numbers(experiment))


def test_results_are_those_of_any_number_of_ranks():
    flow = make_flow("plaquette", Lattice((4, 4), 3), [("direction", 1)])
    action = GaugeAction(ActionOptions(beta=1.0), flow.lattice)
    samples = HaarSamples(flow.lattice, 22, 5, "test", torch.complex128)
    observables = Observables(ObservableOptions(wilson_loops=[(1, 2)]), flow.lattice)

    def work(ranks):
        return draw_series(flow, action, samples, observables, 4, ranks)

    alone, shared = work(ONE), run_on_two_ranks(work)
    names = alone.keys() - {"seconds", "cpu_seconds"}
    assert {"log_weight", "action", "planes", "plaquette", "wilson_1x2", "polyakov"} <= names
    for columns in shared:
        assert columns.keys() == alone.keys()
        for name in names:
            np.testing.assert_array_equal(columns[name], alone[name])
    assert alone["log_weight"].shape == (22,)


def test_costs_are_measured(identity):
    costs = CostOptions(updates=64, thermalisation=10, hmc_chains=2, hmc_steps=4)
    _, metrics = call_evaluate(identity, samples=1000, cost=costs)
    cost = metrics["flow"]["cost"]
    for name in ("heatbath", "hmc"):
        one = cost[name]
        expected = one["cpu_seconds"] * max(1, 2 * one["tau_int"])
        assert one["seconds_per_independent"] == pytest.approx(expected)
        assert one["acceptance"] > 0.5
    ess = metrics["flow"]["lattices"][0]["ess"]["value"]
    own = cost["flow"]["seconds_per_independent"]["reweighted"]
    assert own == pytest.approx(cost["flow"]["cpu_seconds"] / ess)
    # Here the heat bath needs a hundred times less.
    assert cost["rival"] == "heatbath"
    assert cost["flow_over_rival"] > 1
    assert cost["break_even"] is None
    assert metrics["headline"]["numbers"][-1]["title"] == "Independent configuration"


def test_a_flow_pays_for_its_training_only_where_it_is_cheaper():
    flow = {"seconds_per_independent": {"reweighted": 0.2, "chain": None}}
    costs = {"flow": flow, "hmc": {"seconds_per_independent": 0.7}, "training_cost": 100.0}
    assert compare_costs(costs) == pytest.approx(
        {"rival": "hmc", "flow_over_rival": 2 / 7, "break_even": 200.0}
    )
    costs["heatbath"] = {"seconds_per_independent": 0.1}
    assert compare_costs(costs) == {"rival": "heatbath", "flow_over_rival": 2.0, "break_even": None}
    still = {"flow": flow, "hmc": {"seconds_per_independent": None}, "training_cost": 1.0}
    assert compare_costs(still)["rival"] is None
    unknown = {"seconds_per_independent": {"reweighted": None, "chain": None}}
    expected = {"rival": "heatbath", "flow_over_rival": None, "break_even": None}
    assert compare_costs({**costs, "flow": unknown}) == expected


def test_a_training_costs_the_time_of_all_cores(identity, monkeypatch):
    cpu, made = torch.device("cpu"), {"device": "cpu", "ranks": 2, "threads": 3}
    seconds = read_training_seconds(identity)
    for change, cost in (({}, 6 * seconds), ({"threads": None}, None), ({"device": "cuda"}, None)):
        content = {"provenance": json.dumps(made | change)}
        monkeypatch.setattr(cost_module, "load_model", lambda _, content=content: content)
        assert compute_training_cost(identity, cpu) == cost


def test_nothing_is_said_of_what_cannot_be_trusted():
    series = {name: np.full(4, 1e-3) for name in ("seconds", "cpu_seconds")}
    cost = compute_flow_cost(series, None, None, torch.device("cpu"))
    assert cost["seconds_per_independent"] == {"reweighted": None, "chain": None}
    assert find_cheapest({"flow": cost}) is None
    cost = compute_flow_cost(series, 0.5, 8.0, torch.device("cpu"))
    assert cost["seconds_per_independent"] == {"reweighted": 2e-3, "chain": 16e-3}
    assert find_cheapest({"flow": cost}) == 2e-3


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


@pytest.mark.slow
def test_a_flow_acts_on_an_imported_ensemble(tmp_path):
    """Oracle: the same configurations before NERSC files were made of them."""
    chain = {"method": "heatbath", "n_configurations": 12, "thermalisation": 5}
    small = {"action": {"beta": 1.0}, "lattice": {"extents": [2, 2, 2, 2]}}
    run = make_fresh_run(
        tmp_path,
        {**small, "generate": chain, "split": {"val": 0.4, "test": 0.4}},
        graph={"lattice": {"extents": [2, 2, 2, 2]}, "masks": [{"mask": "direction"}]},
        model={"prior": "ensemble", "action": {"beta": 1.5}, "layers": {"kind": "residual"}},
        train={**IDLE, "batch_size": 2, "optimizer": {"lr": 0.1}},
    )
    long = {**small, "lattice": {"extents": [4, 2, 2, 2]}}
    run = add_ensemble(run, "made", {**long, "generate": chain})
    (tmp_path / "raw").mkdir()
    with Ensemble(run.further["made"].data) as made:
        for number, links in enumerate(made.read_links(range(12)).numpy()):
            write_nersc(tmp_path / f"raw/lat.{number}", Configuration(made.lattice, links, None))
    files = {"sources": [{"reader": "nersc", "path": "../../raw/lat.*"}], "check_action": False}
    run = add_ensemble(run, "read", {**long, **files})
    _, metrics = call_evaluate(run, ensembles=["made", "read"])
    made, read = metrics["flow"]["lattices"][1:]
    assert abs(made["ess"]["value"] - made["identity"]["ess"]["value"]) > 0.01  # links are moved
    assert read["ess"]["value"] == pytest.approx(made["ess"]["value"], rel=1e-9)
    with SampleFile(run.predictions, "predictions") as file:
        lattice, weight = file.read_column("lattice"), file.read_column("log_weight")
    np.testing.assert_allclose(weight[lattice == 2], weight[lattice == 1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("group", r"'group': a flow of SU\(3\) in 2 dimensions cannot act on SU\(2\) in 2"),
        ("dimension", r"'dimension': a flow of SU\(3\) in 2 dimensions cannot act on .* in 3"),
        ("mask", r"'mask': extents \[4, 5\]: the mask 'direction' repeats after 2 sites"),
        ("action", r"'action': .* of action .*beta=1.2.*, not .*beta=1.0.*choose a dataset"),
        ("none", r"'none': .*holds 0 configurations"),
        ("ensemble", r"'ensemble' is the dataset of the experiment"),
    ],
)
def test_ensembles_that_do_not_fit_are_refused(transferred, name, message):
    run = replace(transferred, further={**transferred.further, "ensemble": transferred.dataset})
    with pytest.raises(ValueError, match=rf"evaluate\.ensembles: .*{message}"):
        call_evaluate(run, ensembles=[name], resamples=50)


def test_what_cannot_be_evaluated_is_refused(identity, between):
    with pytest.raises(ValueError, match=r"evaluate\.lattices: .*mask 'direction' repeats"):
        call_evaluate(identity, samples=4, lattices=[[4, 5]])
    with pytest.raises(ValueError, match=r"evaluate\.lattices: .* cannot act on SU\(3\) in 3"):
        call_evaluate(identity, samples=4, lattices=[[4, 4, 4]])
    with pytest.raises(ValueError, match=r"evaluate\.lattices: the flow starts from an ensemble"):
        call_evaluate(between, lattices=[[4, 8]])
    with pytest.raises(ValueError, match=r"evaluate\.ensembles: the flow starts from the Haar"):
        call_evaluate(identity, ensembles=["ensemble"])
    with pytest.raises(ValueError, match=r"evaluate\.cost: the flow starts from an ensemble"):
        call_evaluate(between, cost=CostOptions())


def test_an_ensemble_of_another_theory_is_left_alone(identity):
    """The flow's target is that of `model.action`, whatever the dataset holds."""
    options = identity.options.model_copy(update={"action": ActionOptions(beta=1.5)})
    sections = {**identity.sections, "model": options}
    folder = identity.folder.with_name("other")
    folder.mkdir()
    other = replace(identity, sections=sections, variant="other", folder=folder)
    _, metrics = call_evaluate(other, samples=20)
    (report,) = metrics["flow"]["lattices"]
    assert report["forward"] is None
    assert report["log_z"]["eubo"]["from"] == "reweighted"
    with pytest.raises(ValueError, match=r"evaluate\.splits: the dataset holds no configurations"):
        call_evaluate(other, samples=20, splits=["test"])
    with Ensemble(identity.data) as ensemble:
        assert len(ensemble) == 400


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


@pytest.mark.slow
def test_a_trained_flow_is_as_good_from_both_sides(tmp_path):
    """SU(3) on 4x4 at beta = 2."""
    run = make_fresh_run(
        tmp_path,
        {**THEORY, "action": {"beta": 2.0}, "generate": {**HEATBATH, "n_configurations": 1000}},
        graph={**SQUARE, "masks": [{"mask": "direction", "sweeps": 2}]},
        model={"layers": {"hidden": [32]}, "draws": {"train": 640, "val": 64}},
        train={
            "epochs": 5, "batch_size": 64, "gradient": "path", "optimizer": {"lr": 4e-3},
            "schedule": {"name": "cosine"},
        },
    )  # fmt: skip
    _, metrics = call_evaluate(run, samples=4000, lattices=[[4, 8]])
    report, log_z = metrics["flow"]["lattices"][0], compute_torus_log_z(2.0, 3, 16)
    reverse, forward = report["ess"], report["forward"]["ess"]
    assert reverse["value"] > 0.9
    error = math.hypot(reverse["error"], forward["error"])
    assert abs(reverse["value"] - forward["value"]) < SIGMAS * error
    assert compute_sigmas(report["log_z"]["estimate"], log_z) < SIGMAS
    bounds = report["log_z"]["elbo"], report["log_z"]["eubo"]
    assert bounds[0]["value"] < log_z + SIGMAS * bounds[0]["error"]
    assert bounds[1]["value"] > log_z - SIGMAS * bounds[1]["error"]
    assert report["k_hat"] < 0.5
    assert report["metropolis"]["acceptance"] > 0.8
    assert abs(metrics["flow"]["volume_law"][1]["sigmas"]) < 2 * SIGMAS  # a law of large volumes
    for one in report["observables"].values():
        assert abs(one["sigmas"]["ensemble"]) < SIGMAS


@pytest.mark.slow
def test_a_flow_brackets_log_z_in_four_dimensions(tmp_path):
    """SU(3) on 4^4 at beta = 1, where the series is known to 1e-4: ELBO, log Z and EUBO.

    200 samples and 100 configurations leave both bounds more than ten errors from log Z.
    """
    theory = {"lattice": {"extents": [4] * 4}, "action": {"beta": 1.0}}
    run = make_fresh_run(
        tmp_path,
        {**THEORY, **theory, "generate": {**HEATBATH, "n_configurations": 100}},
        graph={"masks": [{"mask": "direction", "sweeps": 2}]},
        model={"layers": {"hidden": [16]}, "draws": {"train": 160, "val": 8}},
        train={
            "epochs": 2, "batch_size": 8, "gradient": "path", "optimizer": {"lr": 1e-2},
            "precision": "32-true",
        },
    )  # fmt: skip
    _, metrics = call_evaluate(run, samples=200)
    log_z = metrics["flow"]["lattices"][0]["log_z"]
    expected = expand_strong_coupling(1.0, Lattice((4,) * 4, 3)).log_z
    assert log_z["known"]["value"] == pytest.approx(expected) == pytest.approx(45.020141, abs=1e-6)
    elbo, eubo = log_z["elbo"], log_z["eubo"]
    assert elbo["value"] + SIGMAS * elbo["error"] < expected
    assert expected < eubo["value"] - SIGMAS * eubo["error"]
    # Without training they are 0 and 90.
    print({name: log_z[name] for name in ("elbo", "estimate", "eubo")})
    assert eubo["value"] - elbo["value"] < 15
