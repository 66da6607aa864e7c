"""Progress of a training: its speed, its position and the time left.

An epoch consists of its optimizer steps and a rest: validation, saving, planning. Both are measured
in the running process alone, so that an earlier start on another machine does not count, and
without the first step, which includes compilation and caching. Measurements older than a minute and
a quarter of the time so far have little weight, because a shared machine changes its speed. The
time left is then

    (n m - k) t + n r

and at most the remaining budget of time.

| symbol | meaning                                    | in `Position`            |
|--------|--------------------------------------------|--------------------------|
| n      | epochs that are not finished               | epochs - epoch           |
| m      | steps of an epoch                          | steps                    |
| k      | finished steps of the epoch under way      | step                     |
| t      | mean time of a step, s                     | step_seconds             |
| r      | mean time of the rest of an epoch, s       | rest_seconds             |
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

Clock = Callable[[], float]

_LEAST_MEMORY: Final = 60.0
"""Shortest time in which a measurement loses weight by 1/e, s."""
_MEMORY: Final = 0.25
"""The same as a fraction of the time of the process so far, if that is longer."""


@dataclass(frozen=True, kw_only=True)
class TrainingStatus:
    """Part of a training that is done, its losses and its speed.

    Attributes:
        epoch: Finished epochs.
        epochs: All epochs; None where time alone ends the training. Early stopping may end it
            before.
        step: Finished steps of the epoch under way.
        steps: Steps of an epoch; 0 where the training does not count them.
        loss: Training loss of the last step or epoch that was reported.
        val_loss: Loss of the last validation.
        samples_per_s: Recent samples per second of all ranks, while steps are taken.
    """

    epoch: int
    epochs: int | None
    step: int = 0
    steps: int = 0
    loss: float | None = None
    val_loss: float | None = None
    samples_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Position(TrainingStatus):
    """Position and speed of a training, as the process that trains measures them.

    Attributes:
        elapsed: Time of the training so far, over all its starts, s.
        step_seconds: Recent mean time of a step, s; None if none has been measured yet.
        rest_seconds: Recent mean time of an epoch besides its steps, s, an estimate until an epoch
            has ended; None if there is none.
        updated: Time of this position, in seconds since 1970.
        budget: Longest time of the training, s; None for no limit.
    """

    elapsed: float
    step_seconds: float | None
    rest_seconds: float | None
    updated: float
    budget: float | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return the position that a file holds.

        Raises:
            KeyError: Something is missing.
        """
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    @property
    def fraction(self) -> float:
        """Part of the training that is done, from 0 to 1."""
        used = min(1.0, self.elapsed / self.budget) if self.budget else 0.0
        if self.epochs is None:
            return used
        within = self.step / self.steps if self.steps else 0.0
        return max(used, (self.epoch + within) / self.epochs if self.epochs else 1.0)

    @property
    def until(self) -> float | None:
        """Expected end of the training, in seconds since 1970; None without a budget."""
        left = self.estimate_left()
        return None if self.budget is None or left is None else self.updated + left

    def estimate_epoch(self) -> float | None:
        """Return the time of an epoch, s; None if it is unknown or steps are not counted."""
        if not self.steps or self.step_seconds is None or self.rest_seconds is None:
            return None
        return self.steps * self.step_seconds + self.rest_seconds

    def estimate_left(self) -> float | None:
        """Return the time left, s; None until enough has been measured."""
        left = None if self.epochs is None else self._estimate_epochs_left(self.epochs)
        if self.budget is None:
            return left
        within = max(0.0, self.budget - self.elapsed)
        return within if left is None else min(left, within)

    def _estimate_epochs_left(self, epochs: int) -> float | None:
        n_epochs = max(0, epochs - self.epoch)
        step = self.step_seconds if self.steps else 0.0
        if n_epochs == 0:
            return 0.0
        if step is None or self.rest_seconds is None:
            return None
        return (n_epochs * self.steps - self.step) * step + n_epochs * self.rest_seconds


class Pace:
    """Clock of a training, which measures steps and the rest of epochs separately.

    Args:
        elapsed: Time that earlier starts took up to the point where this one resumes, s.
        rest: Assumed ratio of the rest of an epoch to its steps, until it is measured.
        clock: Counts seconds.
    """

    def __init__(
        self, elapsed: float = 0.0, rest: float = 0.0, clock: Clock = time.perf_counter
    ) -> None:
        self._clock, self._assumed_rest = clock, rest
        self._begin = self._mark = clock()
        self._earlier = elapsed
        self._is_warm = False
        # Sums, each term with its weight.
        self._step_seconds, self._n_steps, self._n_samples = 0.0, 0.0, 0.0
        self._first_rest: float | None = None
        self._rest_seconds, self._n_epochs, self._epoch_end = 0.0, 0.0, self._begin

    @property
    def elapsed(self) -> float:
        """Time of the training so far, over all its starts, s."""
        return self._earlier + self._clock() - self._begin

    def count_step(self, n_samples: int) -> None:
        """Count a step that has just ended; the first one of this process only starts the clock."""
        seconds = self._read()
        if self._is_warm:
            kept = self._weigh(seconds)
            self._step_seconds = kept * self._step_seconds + seconds
            self._n_steps = kept * self._n_steps + 1
            self._n_samples = kept * self._n_samples + n_samples
        self._is_warm = True

    def count_epochs(self, count: int) -> None:
        """Count epochs that have just ended, including all time since their last step."""
        seconds = self._read()
        if self._first_rest is None:
            self._first_rest = seconds / count
        else:
            kept = self._weigh(self._mark - self._epoch_end)
            self._rest_seconds = kept * self._rest_seconds + seconds
            self._n_epochs = kept * self._n_epochs + count
        self._epoch_end = self._mark

    def locate(
        self,
        done: tuple[int, int],
        of: tuple[int | None, int],
        losses: tuple[float | None, float | None] = (None, None),
        budget: float | None = None,
    ) -> Position:
        """Return the position of the training.

        Args:
            done: Finished epochs, and finished steps of the epoch under way.
            of: All epochs, None if they are not limited, and steps of an epoch.
            losses: Losses of the training and of the last validation.
            budget: Time that the training may take, s.
        """
        step_seconds = self._step_seconds / self._n_steps if self._n_steps else None
        return Position(
            epoch=done[0],
            epochs=of[0],
            step=done[1],
            steps=of[1],
            elapsed=self.elapsed,
            step_seconds=step_seconds,
            rest_seconds=self._estimate_rest(step_seconds, of[1]),
            samples_per_s=self._n_samples / self._step_seconds if self._step_seconds else None,
            loss=losses[0],
            val_loss=losses[1],
            updated=time.time(),
            budget=budget,
        )

    def _estimate_rest(self, step_seconds: float | None, n_steps: int) -> float | None:
        if self._n_epochs:
            return self._rest_seconds / self._n_epochs
        if self._first_rest is not None or step_seconds is None:
            return self._first_rest
        return self._assumed_rest * n_steps * step_seconds

    def _weigh(self, seconds: float) -> float:
        """Return the remaining weight of a measurement of that age."""
        return math.exp(-seconds / max(_LEAST_MEMORY, _MEMORY * (self._mark - self._begin)))

    def _read(self) -> float:
        """Return the time since the last call, s."""
        now = self._clock()
        seconds, self._mark = now - self._mark, now
        return seconds


def count_done(word: str, done: tuple[int, int], of: tuple[int | None, int]) -> str:
    """Return the position of a training as text, such as "epoch  3/10 40%".

    Args:
        word: Unit that is counted.
        done: Number of finished units, and of finished steps of the one under way.
        of: Number of all units, None if unknown; steps of one unit, 0 if they are not counted.
    """
    (number, step), (total, steps) = done, of
    within = bool(steps) and number != total
    share = f" {100 * step // steps}%" if within else ""
    shown = str(number + 1 if within else number)
    if total is None:
        return f"{word} {shown}{share}"
    return f"{word} {shown:>{len(str(total))}}/{total}{share}"


def format_duration(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
