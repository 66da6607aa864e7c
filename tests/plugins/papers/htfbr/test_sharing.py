"""Epochs on several devices: what is measured, and what is added to it."""

import numpy as np
import pytest

from pipeline_core.artifacts import store
from pipeline_core.config.sections import Link
from pipeline_htfbr.plugin import train
from pipeline_papers.htfbr.studies import sharing
from pipeline_papers.htfbr.studies.options import SharingOptions
from pipeline_papers.plugin import profile

LINK = {"latency": 1e-3, "bandwidth": 1e6}


@pytest.fixture
def trained(fit, monkeypatch):
    """Make a trained run that asks for shares; epochs are measured for as short as can be."""
    monkeypatch.setattr(sharing, "_SECONDS", 0.0)

    def make(**profile_options):
        steps = {"method": "resident", "epochs": 4, "batch_size": 30}
        run = fit(train=steps, profile={"shares": [1, 2, 4], "network": LINK, **profile_options})
        train(run=run)
        return run

    return make


@pytest.mark.slow
def test_an_epoch_is_that_of_a_share_and_the_adding_of_gradients(trained):
    run = trained()
    summary = profile(run=run)
    content = store.read_json(run.profile)
    records = content["projection"]
    assert [(r["strategy"], r["ranks"]) for r in records] == [
        (method, n) for method in ("resident", "dataloader") for n in (1, 2, 4)
    ]
    n_train = records[0]["points"]  # one device takes all of them
    for record in records:
        assert record["steps"] == -(-n_train // 30)
        # The largest share of each step, which has 30 points or what is left.
        sizes = [30] * (n_train // 30) + [n_train % 30] * (n_train % 30 > 0)
        assert record["points"] == sum(-(-size // record["ranks"]) for size in sizes)
        ring = Link(**LINK).time_ring(content["gradient_bytes"], record["ranks"])
        assert record["communication"] == pytest.approx(record["steps"] * ring)
        assert record["seconds"] == pytest.approx(record["compute"] + record["communication"])
        assert record["compute"] > 0
    assert records[0]["communication"] == 0
    assert summary["resident"]["1 devices"] == records[0]["seconds"]


@pytest.mark.slow
def test_the_trained_surface_stays_as_it_is(trained):
    run = trained(shares=[2])
    before = run.model.read_bytes()
    profile(run=run)
    assert run.model.read_bytes() == before
    assert np.isfinite([r["seconds"] for r in store.read_json(run.profile)["projection"]]).all()


@pytest.mark.slow
def test_what_cannot_be_measured_is_refused(trained):
    with pytest.raises(ValueError, match=r"profile\.samples: points have no sizes"):
        trained(samples=[1, 2])
    assert profile(run=trained(shares=[])) is None


def test_nothing_is_measured_unless_asked_for():
    assert not SharingOptions().has_work
    assert SharingOptions(shares=[2]).has_work
