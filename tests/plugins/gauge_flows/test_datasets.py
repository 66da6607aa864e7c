"""Mistakes in dataset files of lattice gauge theories are named."""

from __future__ import annotations

import pytest

from pipeline_gauge_flows.actions import ActionOptions
from pipeline_gauge_flows.data import make_data
from pipeline_gauge_flows.ensembles.storage import Ensemble
from pipeline_gauge_flows.lattice import Lattice
from plugins.gauge_flows.theories import QUARKS, SMALL


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
            "cannot be shared evenly",
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
            "'heatbath' has no quarks; choose method: hmc",
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


def test_experiments_with_another_theory_are_refused(dataset):
    run = dataset(**SMALL, generate={"method": "heatbath", "n_configurations": 2})
    make_data(run)
    with Ensemble(run.data) as ensemble:
        ensemble.require(Lattice((4, 4), 3), ActionOptions(beta=6.0))
        with pytest.raises(ValueError, match=r"of lattice .*\(4, 4\).*not .*\(4, 8\)"):
            ensemble.require(Lattice((4, 8), 3), ActionOptions(beta=6.0))
        with pytest.raises(ValueError, match=r"of action .*6.0.*not .*5.0"):
            ensemble.require(Lattice((4, 4), 3), ActionOptions(beta=5.0))
