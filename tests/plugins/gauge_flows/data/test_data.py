"""The data stage of lattice gauge theories, which makes ensembles, and mistakes in dataset files.

Oracles: exact plaquettes of the two-dimensional torus.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_gauge_flows.data.actions import ActionOptions
from pipeline_gauge_flows.data.ensembles.measurements import Measurements
from pipeline_gauge_flows.data.ensembles.origins import Sample
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.exact import compute_torus_plaquette
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.observables import average_plaquettes
from pipeline_gauge_flows.data.stage import make_data
from plugins.gauge_flows.theories import QUARKS, SMALL, read_report
from resealed import edit_sealed

GENERATE = {
    "heatbath": {"method": "heatbath", "n_configurations": 600, "chains": 2, "separation": 2},
    "hmc": {
        "method": "hmc",
        "n_configurations": 960,
        "chains": 32,
        "n_steps": 5,
        "thermalisation": 30,
        "start": "cold",
    },
}


def test_a_file_of_a_version_without_chains_has_one_of_each_group(dataset):
    generate = {"method": "heatbath", "n_configurations": 6, "chains": 2}
    run = dataset(**SMALL, generate=generate)
    make_data(run)
    with Ensemble(run.data) as ensemble:
        chains = ensemble.chain.tolist()
    with edit_sealed(run.data) as file:
        del file["chain"]
    with Ensemble(run.data) as ensemble:
        assert ensemble.chain.tolist() == chains
    assert sorted(set(chains)) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("method", GENERATE)
def test_generated_ensemble_has_the_exact_plaquette(dataset, method):
    run = dataset(**SMALL, generate=GENERATE[method], split={"val": 0.1, "test": 0.2})
    summary = make_data(run)
    content = read_report(run)
    n, chains = (GENERATE[method][key] for key in ("n_configurations", "chains"))
    assert content["samples"] == summary["samples"] == n
    # Configurations that repeat the one before, as their updates were not accepted, stay together.
    parts = np.array([content["splits"][name] for name in SPLITS]) / n
    np.testing.assert_allclose(parts, [0.7, 0.1, 0.2], atol=0.02 if method == "hmc" else 1e-9)
    statistics = content["statistics"]
    plaquette, known = statistics["plaquette"], statistics["known_plaquette"]
    assert known["value"] == pytest.approx(compute_torus_plaquette(6.0, 3, 16), abs=1e-12)
    assert known["how"] == "exact"
    assert abs(plaquette["mean"] - known["value"]) < 4 * plaquette["error"] < 0.02
    assert statistics["chains"] == chains
    assert abs(statistics["identity"]["sigmas"]) < 4
    assert statistics["identity"]["beta"] == pytest.approx(6.0, rel=0.05)
    assert content["warnings"] == []
    origin = statistics["origin"]
    if method == "hmc":
        assert 0.6 < origin["acceptance"] < 1
        assert origin["irreversibility"] < 1e-12
        weight = origin["exp_minus_violation"]
        assert abs(weight["mean"] - 1) < 4 * weight["error"] < 0.1
        assert origin["energy_violation"]["not_finite"] == 0
    with Ensemble(run.data) as ensemble:
        assert len(ensemble) == n
        assert (ensemble.lattice, ensemble.action) == (Lattice((4, 4), 3), ActionOptions(beta=6.0))
        links = ensemble.read_links([3, 0])
        assert links.dtype == torch.complex128
        expected = average_plaquettes(links, ensemble.lattice).numpy()
        assert len(ensemble.select("val", "test")) == n - content["splits"]["train"]
        assert set(ensemble.chain) == set(range(chains))
        assert ensemble.tau_int == plaquette["tau_int"]
    with SampleFile(run.data, "data") as file:
        planes = file.read_column("plaquette")
        assert set(file.read_column("group")) == {f"chain-{i:04d}" for i in range(chains)}
        assert json.loads(file.attributes["statistics"]) == statistics
    np.testing.assert_allclose(planes[[3, 0]], expected, rtol=1e-12)
    np.testing.assert_allclose(planes.mean(), plaquette["mean"], rtol=1e-12)


@pytest.mark.slow
def test_quarks_are_in_the_ensemble(dataset):
    """The identity holds with them, and not without."""
    generate = {
        "method": "hmc", "n_configurations": 320, "chains": 32, "thermalisation": 10,
        "masses": [0.6], "n_steps": [1, 1, 2], "start": "cold",
    }  # fmt: skip
    run = dataset(**{**SMALL, "action": QUARKS}, generate=generate)
    summary = make_data(run)
    statistics = read_report(run)["statistics"]
    assert statistics["known_plaquette"] is None
    assert abs(statistics["identity"]["sigmas"]) < 4
    assert statistics["identity"]["beta"] == pytest.approx(2.0, rel=0.1)
    weight = statistics["origin"]["exp_minus_violation"]
    assert abs(weight["mean"] - 1) < 4 * weight["error"]
    assert summary["irreversibility"] < 1e-9
    with Ensemble(run.data) as ensemble:
        assert ensemble.action == ActionOptions.model_validate(QUARKS)
        pure = Measurements(ActionOptions(beta=2.0), ensemble.lattice)
        links = ensemble.read_links(range(len(ensemble))).numpy()
        for chain, one in zip(ensemble.chain, links, strict=True):
            pure.add(Sample(one, int(chain), "", ""))
    with pytest.raises(ValueError, match="the configurations are not of the action"):
        pure.require_action()


@pytest.mark.slow
def test_same_seed_gives_the_same_links(dataset):
    def links(**generate: Any) -> torch.Tensor:
        run = dataset(**SMALL, generate={"n_configurations": 2, "thermalisation": 3, **generate})
        make_data(run)
        with Ensemble(run.data) as ensemble:
            return ensemble.read_links(range(len(ensemble)))

    for method in GENERATE:
        first = links(method=method)
        assert torch.equal(first, links(method=method))
        assert not torch.allclose(first, links(method=method, seed=1))
        identity = torch.eye(3, dtype=first.dtype).expand_as(first)
        torch.testing.assert_close(first @ first.mH, identity, rtol=0, atol=1e-14)


def test_chains_can_be_kept_together(dataset):
    run = dataset(
        **SMALL,
        generate={"method": "heatbath", "n_configurations": 40, "chains": 4},
        split={"method": "group", "val": 0.25, "test": 0.25},
    )
    make_data(run)
    with Ensemble(run.data) as ensemble:
        for number in range(4):
            assert len(set(ensemble.split[ensemble.chain == number])) == 1
        assert np.bincount(ensemble.split).tolist() == [20, 10, 10]
    groups = read_report(run)["groups"]
    assert groups["count"] == 4
    assert sorted(sum(counts.values()) for counts in groups["largest"].values()) == [10] * 4
    assert sum(counts["val"] for counts in groups["largest"].values()) == 10


def test_action_alone_is_a_dataset(dataset):
    run = dataset(lattice={"extents": [4, 4, 4, 4], "n_colours": 2}, action={"beta": 1.0})
    assert make_data(run) == {"samples": 0, "train": 0, "val": 0, "test": 0, "warnings": []}
    assert read_report(run)["statistics"] is None
    assert read_report(run)["groups"] == {"count": 0, "largest": {}}
    with Ensemble(run.data) as ensemble:
        assert len(ensemble) == len(ensemble.select(*SPLITS)) == 0
        assert ensemble.lattice == Lattice((4, 4, 4, 4), 2)
        assert ensemble.read_links([]).shape == (0, 4, 256, 2, 2)


def test_warnings_tell_of_chains_that_are_too_short(dataset):
    generate = {"method": "heatbath", "n_configurations": 40, "thermalisation": 1}
    run = dataset(**SMALL, generate=generate, split={"val": 0.01, "test": 0.0})
    make_data(run)
    text = " ".join(read_report(run)["warnings"])
    assert "raise generate.thermalisation" in text
    assert "no configuration is in the split 'val'" in text
    run = dataset(**SMALL, generate={**generate, "n_configurations": 4, "thermalisation": 50})
    make_data(run)
    assert "too few configurations per chain" in " ".join(read_report(run)["warnings"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"lattice": {"extents": [4]}}, "lattice.extents"),
        ({"lattice": {"extents": [4, 1]}}, "lattice.extents.1"),
        ({"lattice": {"extents": [4, 4], "n_colours": 4}}, "lattice.n_colours"),
        ({"action": {"beta": 1.0, "name": "dbw2"}}, "action.name"),
        ({"action": {"beta": float("nan")}}, "action.beta"),
        ({"generate": {"method": "metropolis", "n_configurations": 1}}, "generate"),
        ({"generate": {"method": "heatbath"}}, "n_configurations"),
        (
            {"generate": {"method": "heatbath", "n_configurations": 5, "chains": 2}},
            "cannot be divided evenly",
        ),
        (
            {
                "generate": {"method": "heatbath", "n_configurations": 1},
                "action": {"name": "iwasaki", "beta": 2.0},
            },
            "choose method: hmc",
        ),
        (
            {"generate": {"method": "heatbath", "n_configurations": 1}, "action": QUARKS},
            "'heatbath' does not support quarks; choose method: hmc",
        ),
        (
            {"lattice": {"extents": [3, 4]}, "action": QUARKS},
            r"even-odd preconditioned .* extents \[3, 4\]; make them even",
        ),
        (
            {"generate": {"method": "hmc", "n_configurations": 1, "masses": [0.5]}},
            "no quarks to be preconditioned",
        ),
        (
            {
                "generate": {"method": "hmc", "n_configurations": 1, "masses": [0.3, 0.5]},
                "action": QUARKS,
            },
            "each has to be above the next",
        ),
        (
            {
                "generate": {"method": "hmc", "n_configurations": 1, "n_steps": [1, 2, 3]},
                "action": QUARKS,
            },
            r"n_steps \[1, 2, 3\]: this action has 2 terms",
        ),
        ({"sources": [{"reader": "ildg", "path": "*"}]}, "hold four dimensions, not 2"),
        (
            {
                "lattice": {"extents": [2, 2, 2, 2], "n_colours": 2},
                "sources": [{"reader": "ildg", "path": "*"}],
            },
            r"ILDG files hold SU\(3\), not SU\(2\); use NERSC",
        ),
        (
            {
                "generate": {"method": "heatbath", "n_configurations": 1},
                "sources": [{"reader": "ildg", "path": "*"}],
            },
            "exclude each other",
        ),
        ({"split": {"method": "energy"}}, "neither compositions nor energies"),
        ({"generat": {}}, "did you mean 'generate'"),
    ],
)
def test_wrong_dataset_files_are_refused(dataset, content, message):
    with pytest.raises(ValueError, match=message):
        dataset(**{**SMALL, **content})
