"""Making batches ahead of time."""

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from pipeline_core.training.loader import load_steps, prefetch
from pipeline_core.training.micro_batches import MicroBatch


def test_order_does_not_depend_on_speed():
    def make(number):
        time.sleep(0.01 if number % 2 else 0)
        return number

    assert list(prefetch(make, range(12))) == list(range(12))
    assert list(prefetch(make, [])) == []


def test_made_in_another_thread_and_not_too_far_ahead():
    made = []

    def make(number):
        made.append(number)
        return threading.get_ident()

    results = prefetch(make, range(50))
    assert next(results) != threading.get_ident()
    time.sleep(0.05)
    assert len(made) <= 4
    results.close()
    time.sleep(0.05)
    assert len(made) <= 4


def test_an_error_arrives_where_its_result_would():
    def make(number):
        if number == 2:
            raise ValueError("damaged sample")
        return number

    results = prefetch(make, range(9))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="damaged sample"):
        next(results)


class Plan:
    """Three steps of two micro-batches each."""

    def __len__(self):
        return 3

    def step(self, number):
        return SimpleNamespace(items=[number], number=number)


def load_few_steps(device):
    def share(step):
        return SimpleNamespace(micro_batches=[2 * step.number, 2 * step.number + 1], loads=None)

    objective = SimpleNamespace(
        weights={"energy": 1.0},
        counts=lambda batch: {"energy": torch.tensor(len(batch["energy"]))},
    )
    steps = load_steps(
        Plan(),
        share,
        lambda number: MicroBatch({"energy": torch.full((3,), float(number))}),
        objective,
        torch.device(device),
    )
    for number, step in enumerate(steps):
        assert step.counts.tolist() == [6.0]
        yield number, step


def test_steps_hold_their_pieces_in_order():
    for number, step in load_few_steps("cpu"):
        for place, piece in enumerate(step.pieces):
            assert piece.batch["energy"].tolist() == [2.0 * number + place] * 3


def test_computation_waits_until_a_step_has_been_copied(monkeypatch):
    """Streams that write down what is asked of them stand for those of a GPU."""
    copied, computed, chosen = [], [], threading.local()

    class CopyingStream:
        def record_event(self):
            copied.append("event")
            return len(copied)

    @contextmanager
    def choose(stream):
        chosen.stream = stream
        yield
        chosen.stream = None

    def move(piece, device):
        assert isinstance(chosen.stream, CopyingStream)
        copied.append("copy")
        return piece

    computing = SimpleNamespace(wait_event=computed.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: CopyingStream())
    monkeypatch.setattr(torch.cuda, "stream", choose)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(MicroBatch, "pin_memory", lambda piece: copied.append("pin") or piece)
    monkeypatch.setattr(MicroBatch, "to", move)
    monkeypatch.setattr(MicroBatch, "record_stream", lambda piece, stream: computed.append("keep"))
    for number, _ in load_few_steps("cuda"):
        assert computed[-3:] == [5 * (number + 1), "keep", "keep"]
    assert copied == ["pin", "pin", "copy", "copy", "event"] * 3


@pytest.mark.gpu
def test_steps_arrive_on_a_gpu_while_it_computes():
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    busy = torch.rand(4000, 4000, device="cuda")
    for number, step in load_few_steps("cuda"):
        busy = busy @ busy / 4000
        for place, piece in enumerate(step.pieces):
            assert piece.batch["energy"].is_cuda
            assert piece.batch["energy"].tolist() == [2.0 * number + place] * 3
