"""Coefficients that are zero; oracle: rules of selection by hand."""

import pytest

from pipeline_core.artifacts import store
from pipeline_core.testing.projects import call, write_project
from pipeline_mace.model.sparsity import count_coefficients, make_plan
from pipeline_mace.options import MACEOptions


def test_scalars_times_harmonics_have_as_many_as_components():
    # (2 l + 1)² coefficients of 0 x l -> l, of which the diagonal is not zero: l = 0 to 3.
    result = count_coefficients(MACEOptions(layers=1))
    assert result == {"all": 84, "nonzero": 16, "share": pytest.approx(16 / 84)}


def test_two_layers_of_the_paper_have_a_fifth():
    # 10 paths of 0e + 1o with harmonics up to degree 3: as many entries by the dimensions alone.
    result = count_coefficients(MACEOptions(layers=2))
    dims = [path.dims for path in make_plan(MACEOptions(), 1).paths]
    assert len(dims) == 10
    assert result["all"] == 84 + sum(a * b * c for a, b, c in dims)
    assert result["share"] == pytest.approx(0.2, abs=0.02)


@pytest.mark.slow
def test_the_profile_holds_the_share(tmp_path):
    model = {"channels": 4, "lmax": 2, "radial_functions": 4, "radial_features": [8]}
    sections = {
        "model": model,
        "graph": {"cutoff": 4.0},
        "train": {"epochs": 1, "loss": {"energy": {}}},
        "profile": {"samples": [1], "classes": 1, "repeats": 1},
    }
    run = write_project(tmp_path, "mace", sections).run("mace/conformance")
    for stage in ("data", "graph", "partition", "train", "profile"):
        call(run, stage)
    content = store.read_json(run.profile)
    assert content["coefficients"] == count_coefficients(MACEOptions(**model))
    assert len(content["steps"]) == 1
