"""How fast a training goes, how far it has come, and how long it will still take.

An epoch takes its optimizer steps and a rest: validation, saving, planning. Both are measured in
the running process alone, so that what an earlier start did on another machine does not count, and
without its first step, which pays for what is compiled and cached. What is longer ago than a minute
and a quarter of the time so far weighs little: a machine that others use, too, is not always as
fast. The time left is then

    (n m - k) t + n r

and not more than what is left of a budget of time.

| symbol | meaning                                    | in `Position`            |
|--------|--------------------------------------------|--------------------------|
| n      | epochs that are not finished               | epochs - epoch           |
| m      | steps of an epoch                          | steps                    |
| k      | finished steps of the epoch under way      | step                     |
| t      | mean time of a step, s                     | step_seconds             |
| r      | mean time of the rest of an epoch, s       | rest_seconds             |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

Clock = Callable[[], float]

_LEAST_MEMORY: Final = 60.0
"""Time in which what was measured loses 1/e of its weight, at least, s."""
_MEMORY: Final = 0.25
"""That time over the time of the process so far, if it is longer."""


@dataclass(frozen=True)
class Position:
    """How far a training has come, and how fast it goes.

    Attributes:
        epoch: Finished epochs.
        epochs: All epochs; None where time alone ends the training. One that has no patience left
            ends before.
        step: Finished steps of the epoch under way.
        steps: Steps of an epoch; 0 where the training does not count them.
        elapsed: Time of the training so far, over all its starts, s.
        step_seconds: Mean time of a step of late, s; None as long as none has been measured.
        rest_seconds: Mean time of late of what an epoch takes besides its steps, s, an estimate as
            long as no epoch has ended; None if there is none.
        samples_per_s: Samples of all ranks of late, while steps are taken.
        loss: Of the training, in the last step or epoch that was looked at.
        val_loss: Of the last validation.
        updated: When that was, in seconds since 1970.
        budget: Time that the training may take, s; None for no limit.
    """

    epoch: int
    epochs: int | None
    step: int
    steps: int
    elapsed: float
    step_seconds: float | None
    rest_seconds: float | None
    samples_per_s: float | None
    loss: float | None
    val_loss: float | None
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
        """When the training will have ended, in seconds since 1970; None without a budget."""
        left = self.estimate_left()
        return None if self.budget is None or left is None else self.updated + left

    def estimate_epoch(self) -> float | None:
        """Return the time of an epoch, s; None where that is not known, or steps do not count."""
        if not self.steps or self.step_seconds is None or self.rest_seconds is None:
            return None
        return self.steps * self.step_seconds + self.rest_seconds

    def estimate_left(self) -> float | None:
        """Return the time left, s; None as long as too little has been measured."""
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
    """The clock of a training: it tells the steps of epochs from their rest.

    Args:
        elapsed: Time that earlier starts took to where this one goes on, s.
        rest: Time of the rest of an epoch over that of its steps, assumed until it is measured.
        clock: Counts seconds.
    """

    def __init__(
        self, elapsed: float = 0.0, rest: float = 0.0, clock: Clock = time.perf_counter
    ) -> None:
        self._clock, self._assumed_rest = clock, rest
        self._begin = self._mark = clock()
        self._earlier = elapsed
        self._is_warm = False
        # Sums, each part by its weight.
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
        """Count epochs that have just ended, all that has passed since their last step."""
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
        """Return where the training is.

        Args:
            done: Finished epochs, and finished steps of the epoch under way.
            of: All epochs, None if they are not limited, and steps of an epoch.
            losses: Of the training and of the last validation.
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
        """Return what is left of the weight of what was measured so long ago."""
        return math.exp(-seconds / max(_LEAST_MEMORY, _MEMORY * (self._mark - self._begin)))

    def _read(self) -> float:
        """Return the time since the last call, s."""
        now = self._clock()
        seconds, self._mark = now - self._mark, now
        return seconds


def count_done(word: str, done: tuple[int, int], of: tuple[int | None, int]) -> str:
    """Return what a training is in, such as "epoch  3/10 40%".

    Args:
        word: What is counted.
        done: How many are finished, and finished steps of the one under way.
        of: All of them, None if that is not known; steps of one, 0 if they are not counted.
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
