"""Oracle: what the libraries themselves say."""

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from pipeline_core.distributed.threads import limit_numpy_threads


def count_blas_threads():
    return {blas.num_threads for blas in select_numpy().lib_controllers}


def select_numpy():
    return ThreadpoolController().select(prefix="libscipy_openblas")


@pytest.mark.skipif(not count_blas_threads(), reason="this numpy brings no OpenBLAS")
def test_only_numpy_is_limited_and_only_for_a_while():
    before = torch.get_num_threads()
    with select_numpy().limit(limits=2):
        with limit_numpy_threads():
            assert count_blas_threads() == {1}
            assert torch.get_num_threads() == before
            assert np.array_equal(np.eye(3) @ np.ones((3, 2)), np.ones((3, 2)))
        assert count_blas_threads() == {2}
