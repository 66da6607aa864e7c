"""Sites as lanes of vectors. Oracle: arithmetic of coordinates, site by site."""

import itertools
import math

import pytest
import torch

from pipeline_kernels.dirac.lanes import choose_cuts, make_lanes


@pytest.mark.parametrize(
    ("extents", "n_lanes", "n_parts"),
    [
        ((4, 4, 4, 4), 16, 16),
        ((4, 4, 4, 4), 8, 8),
        ((8, 8, 8, 8), 16, 16),
        ((16, 4), 16, 16),
        ((16, 2), 16, 8),
        ((4, 4), 16, 4),
        ((2, 6, 2, 2), 8, 1),
        ((4, 4, 4, 4), 1, 1),
    ],
)
def test_parts_fill_the_lanes_where_extents_allow(extents, n_lanes, n_parts):
    assert math.prod(choose_cuts(extents, n_lanes)) == n_parts


@pytest.mark.parametrize(
    ("extents", "n_lanes"), [((8, 4), 8), ((16, 2), 8), ((4, 6, 2, 8), 4), ((4, 4, 4, 4), 16)]
)
def test_neighbours_are_those_of_all_lanes(extents, n_lanes):
    lanes = make_lanes(extents, n_lanes)
    coordinates = list(itertools.product(*map(range, extents)))
    numbers = {x: n for n, x in enumerate(coordinates)}
    assert sorted(lanes.sites.flatten().tolist()) == list(numbers.values())
    for p, n in itertools.product(range(2), range(lanes.half)):
        for lane in range(n_lanes):
            x = coordinates[lanes.sites[p, n, lane % lanes.n_parts]]
            assert sum(x) % 2 == p
            for mu, (way, step) in itertools.product(range(len(extents)), enumerate((1, -1))):
                code = int(lanes.neighbours[p, n, mu, way])
                source = int(lanes.permutations[mu, way, lane]) if code % 2 else lane
                assert source // lanes.n_parts == lane // lanes.n_parts  # the same field
                there = lanes.sites[1 - p, code // 2, source % lanes.n_parts]
                moved = tuple((x[d] + step * (d == mu)) % extents[d] for d in range(len(extents)))
                assert numbers[moved] == there


def test_tables_made_in_inference_mode_serve_a_training():
    with torch.inference_mode():
        lanes = make_lanes((6, 10), 4)
    assert not any(x.is_inference() for x in (lanes.sites, lanes.neighbours, lanes.permutations))
