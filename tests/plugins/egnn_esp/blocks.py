"""Comparison of matrices block by block."""

import numpy as np


def name_blocks(matrix, quantity):
    names = np.concatenate([matrix.block_shift, matrix.block_atoms], axis=1)
    return dict(zip(map(tuple, names.tolist()), matrix.iterate_blocks(quantity), strict=True))


def assert_same_blocks(ours, expected, quantity, tolerance):
    ours, expected = name_blocks(ours, quantity), name_blocks(expected, quantity)
    assert ours.keys() == expected.keys()
    for name, block in expected.items():
        np.testing.assert_allclose(ours[name], block, rtol=0, atol=tolerance)
