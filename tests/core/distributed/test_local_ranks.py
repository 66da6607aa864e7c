"""Functions on ranks of this machine; oracle: the numbers of the ranks."""

from operator import attrgetter

import pytest

from pipeline_core.distributed.local_ranks import call_on_ranks


@pytest.mark.slow
def test_results_are_in_the_order_of_the_ranks():
    assert call_on_ranks(attrgetter("rank", "size"), 2) == [(0, 2), (1, 2)]


@pytest.mark.slow
def test_an_error_of_a_rank_is_raised_here():
    with pytest.raises(RuntimeError, match="no attribute 'absent'"):
        call_on_ranks(attrgetter("absent"), 1)
