"""Measured training steps; oracle: NumPy's quantiles, counted steps, memory that is known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.profiling.test_projection import make_sizes
from pipeline_atoms.potential.task import count_rows
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.profiling.calls import Measurement
from pipeline_core.profiling.measure import (
    StepTimer,
    choose_probes,
    find_memory_limit,
    measure_classes,
)
from pipeline_core.profiling.steps import SizeProbe, collect_totals, fit_memory
from pipeline_core.training.learner import Learner
from plugins.atoms.argon import make_run, make_structures

CPU = torch.device("cpu")
TRAIN = {"loss": {"energy": {}, "forces": {}}, "ema_decay": 0.9, "clip_norm": 1.0, "profile": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("argon")
    return make_run(folder, make_structures(), np.zeros(12, np.int8), train=TRAIN)


@pytest.fixture(scope="module")
def task(run):
    return load_trained_task(run, CPU)


def make_timer(run, task):
    return StepTimer(task, run.get_section("train", TrainOptions), CPU)


def test_probes_are_the_quantiles():
    atoms = np.random.default_rng(0).permutation(np.arange(1, 102) ** 2)
    task = SimpleNamespace(cost=count_rows)
    probes = choose_probes(task, make_sizes(*atoms), 5)
    quantiles = np.quantile(atoms, [0, 0.25, 0.5, 0.75, 1])
    assert [p.atoms for p in probes] == quantiles.tolist()
    assert [atoms[p.sample] for p in probes] == quantiles.tolist()
    assert [p.sizes for p in probes] == [{"atom": n, "edge": 10 * n} for n in quantiles]
    assert [p.cost for p in probes] == (11 * quantiles).tolist()
    (median,) = choose_probes(task, make_sizes(*atoms), 1)
    assert median.atoms == np.median(atoms)
    sizes = {"atom": np.full(5, 8), "edge": np.array([90, 10, 50, 70, 30])}
    (probe,) = choose_probes(task, sizes, 3)  # of equal sizes the median cost
    assert (probe.sample, probe.sizes["edge"], probe.cost) == (2, 50, 58.0)


@pytest.mark.slow
def test_steps_of_real_samples(run, task, monkeypatch):
    seen, step = [], Learner.step

    def recorded(self, part, totals):
        seen.append([len(piece.batch["cell"]) for piece in part.pieces])
        return step(self, part, totals)

    monkeypatch.setattr(Learner, "step", recorded)
    before = {name: weight.clone() for name, weight in task.module.state_dict().items()}
    samples = task.samples("train")
    options = ProfileOptions(samples=[4, 1], classes=2, repeats=3)
    probes = choose_probes(task, samples.sizes(), 2)
    assert [p.atoms for p in probes] == [2, 8]
    timer = make_timer(run, task)
    records, limits = measure_classes(timer, samples, probes, options, None)

    assert seen == 2 * (5 * [[1]] + 5 * [[4]])  # two warm-up steps and three that count
    assert limits == [None, None]
    assert [(r["class"], r["class_atoms"], r["samples"], r["atoms"]) for r in records] == [
        (0, 2, 1, 2),
        (0, 2, 4, 8),
        (1, 8, 1, 8),
        (1, 8, 4, 32),
    ]
    for record in records:
        assert record["seconds"] == np.median(record["seconds_all"]) > 0
        assert len(record["seconds_all"]) == 3
        batch = samples.batch([probes[record["class"]].sample] * record["samples"])
        assert record["edges"] == len(batch["edge_index"])
        assert record["angles"] == 0
    assert collect_totals(probes, records)["edge"].tolist() == [r["edges"] for r in records]
    # The task is as it was: what learned is a copy.
    assert all(torch.equal(w, before[n]) for n, w in task.module.state_dict().items())
    assert not task.module.training
    assert all(p.grad is None for p in task.module.parameters())


@pytest.mark.slow
def test_no_batch_is_larger_than_one_that_took_too_long(run, task):
    samples, timer = task.samples("train"), make_timer(run, task)
    options = ProfileOptions(samples=[1, 2, 4], classes=2, repeats=1, seconds_limit=1e-9)
    probes = choose_probes(task, samples.sizes(), 2)
    (weight,) = (p for p in timer._learner._module.parameters() if p.requires_grad)
    before = weight.item()
    records, limits = measure_classes(timer, samples, probes, options, None)
    assert [(one["class"], one["samples"]) for one in records] == [(0, 1), (1, 1)]
    assert limits == ["time", "time"]
    # What is measured is a whole step: without an optimizer it would learn nothing.
    assert weight.item() != before


class Full:
    """A device whose memory others use, too."""

    def measure(self, samples, numbers, repeats):
        raise torch.OutOfMemoryError("others use it too")


class KnownMemory:
    """Steps that need 500 bytes and 3 bytes a unit of cost."""

    def __init__(self, probes):
        self.costs = {p.sample: p.cost for p in probes}
        self.asked = []

    def measure(self, samples, numbers, repeats):
        memory = 500 + 3 * int(sum(self.costs[n] for n in numbers))
        self.asked.append(memory)
        return Measurement((1.0,) * repeats, memory)


def test_no_batch_is_tried_that_would_not_fit():
    probes = [SizeProbe(n, {"atom": n, "edge": 9 * n}, 10.0 * n) for n in (1, 10, 100, 1000)]
    known, limit = KnownMemory(probes), 20_000
    options = ProfileOptions(samples=[1, 2, 4, 8, 16])

    records, limits = measure_classes(known, None, probes, options, limit)
    assert max(known.asked) <= limit
    # 500 + 30 n 16 fits; 500 + 3000 n fits up to 6 samples; of the largest not one.
    assert [one["class"] for one in records] == [0] * 5 + [1] * 5 + [2] * 3
    assert limits == [None, None, "memory", "memory"]
    line = fit_memory(2, probes[2], records)
    assert line.predict({"sample": 6}) == pytest.approx(500 + 3000 * 6)


def test_memory_from_one_step_and_from_none():
    probe, smaller = SizeProbe(0, {"atom": 4}, 4.0), SizeProbe(1, {"atom": 2}, 2.0)
    one, other = (p.record(0, 2, Measurement((1.0,), 800)) for p in (probe, smaller))
    assert fit_memory(0, probe, [one]).predict({"sample": 4}) == 1600
    assert fit_memory(1, probe, [other]).predict({"sample": 3}) == 3 * 4 * 800 / (2 * 2)
    assert fit_memory(0, probe, []) is None
    assert fit_memory(0, probe, [one | {"memory": None}]) is None
    options = ProfileOptions(samples=[1, 2])
    assert measure_classes(Full(), None, [probe], options, None) == ([], ["memory"])
    assert find_memory_limit(ProfileOptions(memory_limit=1e9), CPU) == 1e9
    free = find_memory_limit(options, CPU)
    assert free is None or free > 0
