"""The time left of a training. Oracle: clocks that were written down, run to their end."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline_core.status.pace import Pace, Position, format_duration


class RecordedClock:
    """Stands still until a recorded training lets time pass."""

    now = 1000.0

    def __call__(self):
        return self.now


def replay(steps, rests, *, first=0.0, elapsed=0.0, rest=0.0, done=(0, 0)):
    """Yield each position of a recorded training and the time that was really left, s.

    `steps` (n_epochs, n_steps) and `rests` (n_epochs,) are times, `first` what the first step takes
    in addition, `done` epochs and steps of earlier starts.
    """
    clock = RecordedClock()
    pace = Pace(elapsed, rest, clock)
    n_epochs, n_steps = steps.shape
    epoch, step = done
    left = steps.ravel()[epoch * n_steps + step :].sum() + rests[epoch:].sum()
    late = first
    for number in range(epoch, n_epochs):
        for k in range(step if number == epoch else 0, n_steps):
            clock.now += steps[number, k] + late
            left, late = left - steps[number, k], 0.0
            pace.count_step(8)
            yield pace.locate((number, k + 1), (n_epochs, n_steps)), left
        clock.now += rests[number]
        left -= rests[number]
        pace.count_epochs(1)
        yield pace.locate((number + 1, 0), (n_epochs, n_steps)), left


def find_worst(recorded):
    """Return the largest relative error of the time left, from a tenth of the training on."""
    errors = [
        abs(position.estimate_left() / left - 1)
        for position, left in recorded
        if position.fraction >= 0.1 and left > 1e-6  # 0 but for rounding
    ]
    assert len(errors) > 5
    return max(errors)


def draw(n_epochs, n_steps, scatter=0.3, seed=0):
    """Return times of steps and of rests that scatter as on a busy machine."""
    rng = np.random.default_rng(seed)
    noise = rng.lognormal(0.0, scatter, (n_epochs, n_steps))
    return 0.2 * noise, 0.1 * 0.2 * n_steps * rng.lognormal(0.0, scatter, n_epochs)


@pytest.mark.parametrize("shape", [(1, 200), (3, 100), (10, 60), (40, 30), (400, 5)])
def test_it_is_right_within_a_fifth_after_a_tenth(shape):
    """Where one epoch is longer than that, what validation takes is assumed."""
    steps, rests = draw(*shape)
    for start in (0.0, 60.0):
        recorded = list(replay(steps, rests, first=start, rest=0.12))
        # What is left near the end is so little that it scatters by itself.
        until = [(p, left) for p, left in recorded if p.fraction < 0.75]
        assert find_worst(until) < 0.2


def test_a_machine_that_becomes_slower():
    """Steps take twice as long from the half on: a quarter later that is known."""
    steps, rests = draw(10, 1500, scatter=0.0)
    steps[5:] *= 2
    rests[5:] *= 2
    recorded = [(p, left) for p, left in replay(steps, rests) if p.fraction > 0.75]
    assert find_worst(recorded) < 0.2


def test_a_slow_first_step_and_an_earlier_start_do_not_count():
    """The first part was four times slower, as on another machine, and the process compiles."""
    steps, rests = draw(10, 20)
    recorded = list(replay(steps, rests, first=500.0, elapsed=8000.0, rest=0.1, done=(5, 10)))
    assert find_worst(recorded[2:-20]) < 0.2
    position, _ = recorded[1]
    assert position.elapsed == pytest.approx(8500.0 + steps[5, 10:12].sum())


def test_by_hand():
    """Two epochs of three steps: 1 s a step, 2 s more for the first one, validation of 1.5 s."""
    steps, rests = np.ones((2, 3)), np.full(2, 1.5)
    positions = [position for position, _ in replay(steps, rests, first=2.0, rest=0.5)]
    assert positions[0].estimate_left() is None
    assert positions[0].samples_per_s is None
    assert positions[1].step_seconds == 1.0
    assert positions[1].samples_per_s == 8.0
    assert positions[1].rest_seconds == 1.5  # assumed
    assert positions[1].estimate_left() == 1 + 1.5 + 3 + 1.5
    assert positions[1].fraction == pytest.approx(1 / 3)
    assert positions[3].estimate_left() == 4.5
    assert positions[3].elapsed == 6.5
    assert positions[-1].estimate_left() == 0.0
    assert positions[-1].fraction == 1.0


def test_a_training_that_counts_no_steps():
    """Records come every ten epochs; the first ten are warm-up.

    The first validation pays for its own start, and counts until there is another.
    """
    clock, left = RecordedClock(), []
    pace = Pace(clock=clock)
    for number, seconds in enumerate([30.0, 5.0, 5.0, 5.0], 1):
        clock.now += seconds
        pace.count_epochs(10)
        left.append(pace.locate((10 * number, 0), (100, 0)).estimate_left())
    assert left == pytest.approx([270.0, 40.0, 35.0, 30.0])


def test_a_budget_of_time_ends_what_epochs_would_not():
    """Two of ten epochs are done, 20 s each; by hand."""
    position = Position(
        epoch=2,
        epochs=10,
        steps=4,
        elapsed=40.0,
        step_seconds=4.0,
        rest_seconds=4.0,
        samples_per_s=8.0,
        updated=1000.0,
    )
    assert (position.estimate_epoch(), position.estimate_left(), position.until) == (20, 160, None)
    shorter = replace(position, budget=100.0)
    assert (shorter.estimate_left(), shorter.until, shorter.fraction) == (60.0, 1060.0, 0.4)
    longer = replace(position, budget=400.0)
    assert (longer.estimate_left(), longer.until, longer.fraction) == (160.0, 1160.0, 0.2)
    alone = replace(shorter, epochs=None, step_seconds=None)
    assert (alone.estimate_left(), alone.fraction) == (60.0, 0.4)
    assert replace(alone, elapsed=120.0).estimate_left() == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (59.6, "0:01:00"), (3599.5, "1:00:00"), (100 * 3600 + 61, "100:01:01")],
)
def test_duration(seconds, text):
    assert format_duration(seconds) == text
