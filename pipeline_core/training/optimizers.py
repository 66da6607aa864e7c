"""Optimizers and learning-rate schedules, by their names in experiments."""

import math
from collections.abc import Iterable
from typing import Any, Final

from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from pipeline_core.config.sections import Schedule, TrainOptions

_KINDS: Final = {"adam": optim.Adam, "adamw": optim.AdamW}
_FUSED_ON: Final = ("cpu", "cuda")
_WARMUP_START: Final = 0.1


def make_optimizer(
    options: TrainOptions, parameters: Iterable[nn.Parameter], *, fused: bool = True
) -> optim.Optimizer:
    """Return the optimizer of an experiment.

    Args:
        options: The section `train`.
        parameters: Parameters; frozen ones are left out.
        fused: Whether each parameter is updated in one pass over memory, where torch can. Such an
            optimizer does not accept gradients that were unscaled before.
    """
    kind: type[optim.Adam] = _KINDS[options.optimizer.name]
    trained = [p for p in parameters if p.requires_grad]
    can = all(p.is_floating_point() and p.device.type in _FUSED_ON for p in trained)
    return kind(
        trained,
        lr=options.learning_rate,
        betas=options.optimizer.betas,
        weight_decay=options.optimizer.weight_decay,
        fused=True if fused and can else None,  # False would keep torch from its next best way
    )


class LearningRate:
    """Learning-rate schedule by epochs: a linear warmup, then the named schedule.

    After warmup, with e of E epochs done and f = final_fraction, the rate over the first rate is

        constant   1
        cosine     f + (1 - f) (1 + cos(pi x)) / 2, x = e / (E - 1) [Loshchilov, Hutter, ICLR 2017]
        step       max(factor^floor(e / every), f)
        plateau    times factor after `every` epochs without a better loss, never below f

    With a time budget x is the used share of the budget, if that is larger.

    Args:
        optimizer: Its rates are set, now and after each epoch.
        options: The schedule.
        epochs: Length of the training.

    Attributes:
        share: Used share of a time budget, from 0 to 1; the caller sets it before a step.
    """

    def __init__(self, optimizer: optim.Optimizer, options: Schedule, epochs: int) -> None:
        self._optimizer, self._warmup = optimizer, options.warmup_epochs
        self.share = 0.0
        self._curve = LambdaLR(
            optimizer, lambda epoch: _compute_fraction(options, epoch, epochs, self.share)
        )
        self._plateau = None
        if options.name == "plateau":
            self._plateau = ReduceLROnPlateau(
                optimizer,
                factor=options.factor,
                patience=options.every - 1,  # torch reduces at the first epoch beyond its patience
                threshold=0.0,
                min_lr=[options.final_fraction * float(rate) for rate in self._curve.base_lrs],
            )

    @property
    def value(self) -> float:
        """The rate of the running epoch."""
        return float(self._optimizer.param_groups[0]["lr"])

    def step(self, loss: float) -> None:
        """Advance to the next epoch, after one that ended with this validation loss."""
        if self._plateau is not None and self._curve.last_epoch >= self._warmup:
            self._plateau.step(loss)
        else:
            self._curve.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the content for `load_state_dict`."""
        plateau = self._plateau.state_dict() if self._plateau is not None else None
        return {"curve": self._curve.state_dict(), "plateau": plateau, "share": self.share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the saved schedule was; the rate itself is in the optimizer's state.

        If the experiment now has another first rate, the present rate changes in proportion.
        """
        first = [float(rate) for rate in self._curve.base_lrs]
        self._curve.load_state_dict(state["curve"])
        self.share = state["share"]
        if self._plateau is not None:
            self._plateau.load_state_dict(state["plateau"])
        if first != self._curve.base_lrs:
            self._scale(first)

    def _scale(self, first: list[float]) -> None:
        """Rescale a schedule as if it had begun with these rates, one per group."""
        groups, before = self._optimizer.param_groups, [float(x) for x in self._curve.base_lrs]
        for group, now, then in zip(groups, first, before, strict=True):
            group["lr"], group["initial_lr"] = group["lr"] * now / then, now
        self._curve.base_lrs = [*first]
        if self._plateau is not None:
            self._plateau.min_lrs = [
                float(least) * now / then
                for least, now, then in zip(self._plateau.min_lrs, first, before, strict=True)
            ]


def _compute_fraction(options: Schedule, epoch: int, epochs: int, share: float) -> float:
    done = epoch - options.warmup_epochs
    if done < 0:
        return _WARMUP_START + (1 - _WARMUP_START) * epoch / options.warmup_epochs
    if options.name == "cosine":
        last = max(1, epochs - options.warmup_epochs - 1)
        wave = (1 + math.cos(math.pi * max(min(done, last) / last, share))) / 2
        return options.final_fraction + (1 - options.final_fraction) * wave
    if options.name == "step":
        return max(float(options.factor ** (done // options.every)), options.final_fraction)
    return 1.0
