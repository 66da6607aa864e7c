"""Flat gradients. Oracle: torch's own gradients and its `clip_grad_norm_`."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.training.gradients import FlatGradients, cut_buckets

ALONE = Ranks(World(), torch.device("cpu"))


class Twins(Ranks):
    """The view of one of two ranks that have the same gradients; keeps what was sent and when."""

    def __init__(self):
        super().__init__(World("torchrun", 0, 2), torch.device("cpu"))
        object.__setattr__(self, "sent", [])

    def start_all_reduce_sum(self, tensor):
        self.sent.append(len(tensor))
        return lambda: tensor.mul_(2)


def make_model_and_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())
    x = torch.randn(5, 3)
    return model, lambda m: m[1](m[0](x).double()).square().sum()


@pytest.mark.parametrize("bucket_bytes", [1, 20, 1 << 20])
@pytest.mark.parametrize("overlap", [False, True])
def test_sums_over_ranks_do_not_depend_on_how_they_are_sent(bucket_bytes, overlap):
    model, loss = make_model_and_loss()
    plain = deepcopy(model)
    loss(plain).backward()
    ranks = Twins()
    flat = FlatGradients(model.parameters(), ranks, bucket_bytes)
    for n_steps in (1, 2):
        flat.zero()
        loss(model).mul(0.25).backward()  # an earlier micro-batch
        if overlap:
            flat.overlap_sums()
        loss(model).mul(0.75).backward()
        if overlap:  # the last layer, of another type, is sent last
            assert len(ranks.sent) == n_steps * len(flat._buckets)
        flat.all_reduce_sum()
        assert len(ranks.sent) == n_steps * len(flat._buckets)
        for ours, torchs in zip(model.parameters(), plain.parameters(), strict=True):
            assert_close(ours.grad, 2 * torchs.grad)


def test_a_rank_without_samples_sends_the_same_in_the_same_order():
    sent = []
    for has_samples in (True, False):
        model, loss = make_model_and_loss()
        ranks = Twins()
        flat = FlatGradients(model.parameters(), ranks, bucket_bytes=16)
        flat.zero()
        if has_samples:
            flat.overlap_sums()
            loss(model).backward()
        flat.all_reduce_sum()
        sent.append(ranks.sent)
    assert sent[0] == sent[1]
    assert len(sent[0]) == 4


def test_a_parameter_without_influence_holds_back_the_sums_behind_it_alone():
    first, unused, last = (nn.Parameter(torch.ones(4)) for _ in range(3))
    ranks = Twins()
    flat = FlatGradients([first, unused, last], ranks, bucket_bytes=1)
    flat.overlap_sums()
    (first * last).sum().backward()
    assert ranks.sent == [4]  # that of `last`: `first` waits for its turn
    flat.all_reduce_sum()
    assert ranks.sent == [4, 4, 4]
    assert [p.grad.tolist() for p in (first, unused, last)] == [[2] * 4, [0] * 4, [2] * 4]
    # Buckets go from the last parameter to the first, and hold each once.
    assert list(cut_buckets([5, 1, 2, 3], 3)) == [range(3, 4), range(1, 3), range(1)]
    assert list(cut_buckets([5, 1, 2, 3], 100)) == [range(4)]
