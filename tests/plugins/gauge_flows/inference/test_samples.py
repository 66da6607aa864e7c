"""Configurations that a flow draws, in files.

Oracles: exact plaquettes of the two-dimensional torus; readers of other programs' files; one rank.
"""

import json

import h5py
import numpy as np
import pytest

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_gauge_flows.data.actions import ActionOptions
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.exact import compute_torus_plaquette
from pipeline_gauge_flows.data.formats import READERS
from pipeline_gauge_flows.evaluation.inputs import load_flow
from pipeline_gauge_flows.inference.infer import SCHEMA
from pipeline_gauge_flows.inference.options import DerivativeOptions, SampleOptions
from pipeline_gauge_flows.inference.sample import write_samples
from plugins.gauge_flows.trained import (
    ONE,
    SIGMAS,
    SQUARE,
    call_infer,
    make_fresh_run,
    run_on_two_ranks,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


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
    options = SampleOptions(n_configurations=1500, thermalisation=30, batch_size=100)
    summary, _ = call_infer(run, samples=options)
    with Ensemble(run.folder / "samples/ensemble.h5") as ensemble:
        assert (len(ensemble), ensemble.action) == (1500, ActionOptions(beta=1.0))
        assert (ensemble.split == SPLITS.index("train")).all()
        links = ensemble.read_links([0, 1499])
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
    assert len(numbers) == 1500
    assert (np.diff(numbers) >= 0).all()
    assert numbers[-1] < 30 + 1500
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


@pytest.mark.slow
def test_samples_are_those_of_any_number_of_ranks(four):
    _, flow = load_flow(four, ONE.device)
    options = SampleOptions(n_configurations=7, thermalisation=2, batch_size=3)

    def written(ranks):
        with h5py.File.in_memory() as file:
            write_samples(four, flow, options, ranks, file if ranks.is_rank_zero else None)
            if not ranks.is_rank_zero:
                return None
            with h5py.File(four.folder / "samples/ensemble.h5") as data:
                return file["samples/number"][:], data["links"][:]

    alone, shared = written(ONE), run_on_two_ranks(written)[0]
    for ours, theirs in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_asked_for_is_nothing_done(four):
    summary, run = call_infer(four)
    assert summary == {}
    with store.open_artifact(run.inference, SCHEMA) as file:
        assert list(file) == []


def test_samples_that_cannot_be_are_refused(four, tmp_path):
    with pytest.raises(ValueError, match=r"infer\.derivatives: the flow does not start from"):
        call_infer(four, derivatives=DerivativeOptions())
    flat = make_fresh_run(tmp_path / "flat", model={"action": {"beta": 1.0}}, graph=SQUARE)
    with pytest.raises(ValueError, match=r"formats: 'ildg' does not support SU\(3\) in 2"):
        call_infer(flat, samples=SampleOptions(n_configurations=2, formats=["ildg"]))
    assert not flat.inference.exists()
