"""Wall-time budget of a training (`train.minutes`), the same on all ranks."""

from collections.abc import Sequence
from itertools import pairwise

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.status.pace import Position
from pipeline_core.training.history import Record


class Budget:
    """Used part of the time budget of a training, by the clock of rank 0.

    It is read at the end of epochs, and counts all starts of the training. With budget T, used time
    t and the shortest time d of an epoch so far, the training ends as soon as t + d > T: the next
    epoch would end too late. The first epoch is trained in any case. So the last epoch begins near
    T - d, where a schedule that follows t / (T - d) ends.

    Args:
        seconds: T; None for no limit.
        ranks: Ranks that train.

    Attributes:
        seconds: T.
        share: t / (T - d), from 0 to 1; 0 without a limit.
        is_spent: Whether the training ends.
    """

    def __init__(self, seconds: float | None, ranks: Ranks) -> None:
        self.seconds, self._ranks = seconds, ranks
        self.share, self.is_spent = 0.0, False

    def read(self, position: Position, history: Sequence[Record]) -> None:
        """Read the clock of rank 0; all ranks call it.

        Args:
            position: Position of the training.
            history: Lines of its epochs.
        """
        if self.seconds is None:
            return
        used, epoch = position.elapsed, _find_least_epoch(position, history)
        share = min(1.0, used / max(self.seconds - epoch, 1e-9))
        is_spent = position.epoch > 0 and used + epoch > self.seconds
        self.share, self.is_spent = self._ranks.broadcast((share, is_spent))


def _find_least_epoch(position: Position, history: Sequence[Record]) -> float:
    """Return the shortest time between two lines, or of an epoch without one-time costs, s."""
    ends = [0.0, *(record["elapsed"] for record in history if "elapsed" in record)]
    times = [end - begin for begin, end in pairwise(ends)]
    if (estimated := position.estimate_epoch()) is not None:
        times.append(estimated)
    return min(times, default=0.0)
