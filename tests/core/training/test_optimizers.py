"""Learning rates. Oracle: torch's own schedulers."""

import pytest
import torch
from torch.optim import lr_scheduler

from pipeline_core.config.sections import Optimizer, Schedule, TrainOptions
from pipeline_core.training.optimizers import LearningRate, make_optimizer

ADAMW = Optimizer(name="adamw", lr=0.1, weight_decay=0.2)


def make_parameter_optimizer(lr=0.5):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def record_rates(schedule, losses):
    """Return the rate of each epoch."""
    ours = make_parameter_optimizer()
    rate = LearningRate(ours, schedule, epochs=len(losses))
    result = []
    for loss in losses:
        result.append(rate.value)
        ours.step()
        rate.step(loss)
    return result


def record_torch_rates(make, n, *metrics):
    theirs = make_parameter_optimizer()
    scheduler = make(theirs)
    result = []
    for epoch in range(n):
        result.append(theirs.param_groups[0]["lr"])
        theirs.step()
        scheduler.step(*(values[epoch] for values in metrics))
    return result


LOSSES = [3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0, 1.0, 1.0, 1.0, 1.0]


def make_plateau(optimizer):
    return lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, threshold=0, min_lr=0.1
    )


@pytest.mark.parametrize(
    ("schedule", "make", "known"),
    [
        (
            {"name": "cosine", "final_fraction": 0.1},
            lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=10, eta_min=0.05),
            {-1: 0.05},
        ),
        (
            {"name": "step", "factor": 0.2, "every": 3, "final_fraction": 0.0},
            lambda o: lr_scheduler.StepLR(o, 3, 0.2),
            {},
        ),
        (
            {"name": "step", "factor": 0.5, "every": 2, "final_fraction": 0.2},
            lambda o: lr_scheduler.StepLR(o, 2, 0.5),
            {5: 0.125, 6: 0.1},  # where it stops
        ),
        (
            {"name": "plateau", "every": 2, "factor": 0.5, "final_fraction": 0.2},
            make_plateau,
            {4: 0.25, -1: 0.1},  # after two epochs that were not better
        ),
    ],
)
def test_schedules_are_those_of_torch(schedule, make, known):
    metrics = [LOSSES] if schedule["name"] == "plateau" else []
    expected = record_torch_rates(make, len(LOSSES), *metrics)
    rates = record_rates(Schedule(**schedule), LOSSES)
    lowest = 0.5 * schedule["final_fraction"]
    assert rates == pytest.approx([max(rate, lowest) for rate in expected])
    for epoch, rate in known.items():
        assert rates[epoch] == pytest.approx(rate)


@pytest.mark.parametrize("name", ["constant", "cosine", "step", "plateau"])
def test_warmup_rises_from_a_tenth_and_the_schedule_starts_then(name):
    losses = [1.0 - 0.01 * epoch for epoch in range(9)]
    result = record_rates(Schedule(name=name, warmup_epochs=4), losses)
    assert result[:5] == pytest.approx([0.05, 0.1625, 0.275, 0.3875, 0.5])
    assert result[4:] == pytest.approx(record_rates(Schedule(name=name), losses[4:]))


def make_parameters(requires_grad=(True,)):
    return [torch.nn.Parameter(torch.zeros(1), requires_grad=needed) for needed in requires_grad]


def test_optimizers_by_name():
    parameters = make_parameters((True, False))
    adamw = make_optimizer(TrainOptions(optimizer=ADAMW), parameters)
    assert type(adamw) is torch.optim.AdamW
    assert adamw.param_groups[0]["weight_decay"] == 0.2
    assert len(adamw.param_groups[0]["params"]) == 1  # the other one is frozen
    assert type(make_optimizer(TrainOptions(), parameters)) is torch.optim.Adam
    links = torch.nn.Parameter(torch.ones(1, dtype=torch.complex128))  # which torch does not fuse
    links.grad = torch.ones_like(links)
    make_optimizer(TrainOptions(optimizer=ADAMW), [links]).step()
    assert links.item() == pytest.approx(1 - 0.1 * 0.2 - 0.1)


def test_the_rate_grows_with_the_batch_as_published():
    """Zhou et al., arXiv:2412.20796: equation (14) gives 0.0048 at the batch size 2048."""
    published = Optimizer(lr=3e-4, lr_batch_size=128)
    options = TrainOptions(batch_size=2048, optimizer=published)
    adam = make_optimizer(options, [torch.nn.Parameter(torch.zeros(1))])
    assert adam.param_groups[0]["lr"] == pytest.approx(0.0048)
    assert TrainOptions(batch_size=2048).learning_rate == Optimizer().lr
    with pytest.raises(ValueError, match=r"give train\.batch_size as a number"):
        TrainOptions(batch_size="all", optimizer=published)
