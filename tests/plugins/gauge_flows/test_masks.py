"""Oracles: plaquettes and rectangles counted site by site, the counts of layers in the papers."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
import torch
import yaml

from pipeline_gauge_flows.frozen_paths import (
    find_frozen_numbers,
    find_frozen_paths,
    list_plaquette_paths,
    list_rectangle_paths,
)
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.layout import FlowLayout
from pipeline_gauge_flows.loops import multiply_path
from pipeline_gauge_flows.masks import Update, count_steps, find_active_links, list_updates
from plugins.gauge_flows.small import draw_links, multiply_plaquettes

CPU = torch.device("cpu")
EXPERIMENTS = Path(__file__).parents[3] / "workflows/experiments/gauge_flows"
SMALLEST = {"direction": 2, "location": 2, "m4": 4}


def list_lattices(pattern):
    smallest = SMALLEST[pattern]
    return [Lattice((smallest,) * n, 2) for n in (2, 3, 4)] + [Lattice((4, 8, 4), 2)]


def find_loop(start, sides, lattice):
    """Return the links (mu, x) of a loop: sides are signed steps (mu, sign), x coordinates."""
    x, links = list(start), []
    for mu, sign in sides:
        step = [0] * len(x)
        step[mu] = sign
        end = [(a + b) % extent for a, b, extent in zip(x, step, lattice.extents, strict=True)]
        links.append((mu, tuple(x if sign > 0 else end)))
        x = end
    assert x == list(start)
    return links


def count_loops(active, lattice, long):
    """Return for each loop 1 x `long` how many of its links are active."""
    counts = {}
    table = active.view(lattice.dimension, *lattice.extents)
    for mu, nu in permutations(range(lattice.dimension), 2):
        sides = [(mu, 1)] * long + [(nu, 1)] + [(mu, -1)] * long + [(nu, -1)]
        for site in range(lattice.volume):
            start = tuple(lattice.coordinates[site].tolist())
            links = find_loop(start, sides, lattice)
            counts[mu, nu, start] = [link for link in links if table[link[0]][link[1]]]
    return counts


@pytest.mark.parametrize("pattern", ["direction", "m4"])
def test_no_plaquette_has_two_active_links(pattern):
    for lattice in list_lattices(pattern)[:3]:
        update = Update(pattern, 0, 3)
        counts = count_loops(update.find_active(lattice), lattice, long=1)
        assert max(map(len, counts.values())) == 1
        assert len(find_frozen_numbers(update, lattice.dimension)) == 2 * (lattice.dimension - 1)


def test_m4_leaves_rectangles_single_active_links():
    """Which the mask by parity does not: it is what M4 is for."""
    for lattice in (Lattice((4,) * 2, 2), Lattice((4,) * 3, 2), Lattice((4,) * 4, 2)):
        # In four dimensions some of the sixteen.
        for step in range(0, count_steps("m4", lattice.dimension), max(1, lattice.volume // 50)):
            active = Update("m4", 0, step).find_active(lattice)
            counts = count_loops(active, lattice, long=2)
            assert {len(links) for links in counts.values()} == {0, 1}
    counts = count_loops(
        Update("direction", 0, 0).find_active(Lattice((4, 4), 2)), Lattice((4, 4), 2), 2
    )
    assert max(map(len, counts.values())) == 2


@pytest.mark.parametrize("sweep", [0, 1])
@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_location_updates_have_half_their_plaquettes(dimension, sweep):
    """All links at a site are active: one of the two plaquettes of a plane has them both."""
    lattice, update = Lattice((4,) * dimension, 2), Update("location", sweep, 1)
    active = update.find_active(lattice)
    single: dict = {}
    for (mu, nu, _), links in count_loops(active, lattice, long=1).items():
        if mu < nu and len(links) == 1:
            single[links[0]] = single.get(links[0], 0) + 1
    assert len(single) == active.sum()
    assert set(single.values()) == {dimension - 1}
    backward = range(dimension - 1, 2 * (dimension - 1))
    expected = range(dimension - 1) if sweep else backward  # R_nu lies on the side of x + nu
    assert find_frozen_numbers(update, dimension) == tuple(expected)


def list_masks():
    """Return the blocks of layers of all experiments, and two of few sweeps."""
    blocks = {"two patterns": [("direction", 1), ("m4", 1)], "location": [("location", 2)]}
    for path in EXPERIMENTS.glob("*.yaml"):
        graph = yaml.safe_load(path.read_text()).get("graph")
        if graph is not None:
            masks = [(one["mask"], one.get("sweeps", 1)) for one in graph["masks"]]
            blocks[path.stem] = masks * graph.get("repeats", 1)
    assert {"loops", "loops_paper", "smoke"} <= blocks.keys()
    return blocks


def find_active_loops(update, lattice):
    """Return the links of the plaquettes by which a layer moves its links, rising, (4, n)."""
    frozen = find_frozen_paths(update, lattice, CPU)
    path = frozen.groups[0].links[:, :, frozen.numbers.index(update.plaquette)]
    links = torch.cat([path, find_active_links(update, lattice, CPU)[None]])
    return links.sort(dim=0).values


@pytest.mark.parametrize("dimension", [2, 3, 4])
@pytest.mark.parametrize("blocks", [pytest.param(b, id=name) for name, b in list_masks().items()])
def test_every_plaquette_is_an_active_loop_and_every_link_moves(blocks, dimension):
    """So is every plane. Oracle: the number of plaquettes, D (D - 1) / 2 at each site."""
    lattice = Lattice((4,) * dimension, 3)
    updates = list_updates(blocks, dimension)
    moved = sum(update.find_active(lattice).int() for update in updates)
    assert (moved == sum(n for _, n in blocks)).all()
    loops = torch.cat([find_active_loops(update, lattice) for update in updates], dim=1)
    planes = torch.stack([loops[0], loops[-1]]) // lattice.volume  # of the rising numbers
    assert planes.unique(dim=1).T.tolist() == [list(plane) for plane in lattice.planes]
    n_loops = loops.unique(dim=1).shape[1]
    assert n_loops == len(lattice.planes) * lattice.volume or {p for p, _ in blocks} == {"location"}


def test_each_plaquette_has_its_turn_twice_on_4_4():
    """In `loops`: 12 active loops at each site, and 6 plaquettes."""
    lattice = Lattice((4,) * 4, 3)
    updates = list_updates(list_masks()["loops"], 4)
    loops = torch.cat([find_active_loops(update, lattice) for update in updates], dim=1)
    counts = loops.unique(dim=1, return_counts=True)[1]
    assert counts.tolist() == [2] * lattice.n_plaquettes


def test_layouts_of_earlier_versions_keep_their_plaquettes():
    """Which their files do not name: they were the frozen ones of their sweeps' numbers."""
    updates = tuple(list_updates([("m4", 2), ("direction", 1), ("location", 2)], 4))
    layout = FlowLayout(Lattice((4,) * 4, 3), updates)
    content = json.loads(json.dumps(layout.to_dict()))
    assert FlowLayout.from_dict(content) == layout
    for update in content["updates"]:
        del update["plaquette"]
    old = FlowLayout.from_dict(content)
    # At x mod 2 with all links active frozen are those behind it, 3 to 5, then those before it.
    assert [u.plaquette for u in old.updates] == [0] * 16 + [1] * 16 + [0] * 8 + [3] * 16 + [1] * 16
    assert layout.take_plaquettes(old) == old
    assert FlowLayout(layout.lattice, updates[:8]).take_plaquettes(old).updates == updates[:8]


def test_numbers_of_layers():
    """192 layers of arXiv:2502.00263, section 2; 48 of the marginal flow of its section 3."""
    figure_1 = list_updates([("direction", 6), ("location", 1)] * 3, 4)
    assert len(figure_1) == 3 * (48 + 16) == 192
    assert len(list_updates([("direction", 1), ("m4", 1)] * 2, 4)) == 48
    assert [u.sweep for u in figure_1 if u.pattern == "location"][::16] == [0, 1, 2]


@pytest.mark.parametrize("pattern", SMALLEST)
def test_frozen_paths_are_those_of_the_action(pattern):
    """Site by site, as forces find their paths; closed by the links they are plaquettes."""
    lattice = Lattice((4, 4, 4), 3)
    update, links = Update(pattern, 1, 2), draw_links(lattice)
    frozen = find_frozen_paths(update, lattice, CPU, rectangles=True)
    products = frozen.multiply_links(links.flatten(1, 2))
    n_sides = 2 * (lattice.dimension - 1)
    for place, link in enumerate(find_active_links(update, lattice, CPU).tolist()):
        mu, site = divmod(link, lattice.volume)
        paths = list_plaquette_paths(mu, lattice.dimension) + list_rectangle_paths(
            mu, lattice.dimension
        )
        for k, number in enumerate(frozen.numbers):
            start = torch.tensor([site])
            expected = multiply_path(links, lattice, paths[number], start)[:, 0]
            torch.testing.assert_close(products[:, place, k], expected)
    if pattern == "m4":
        assert len(frozen.numbers) == 4 * n_sides
        forward = multiply_plaquettes(links, lattice)  # of the plane (0, 1), which is the first
        update = Update("m4", 0, 0)
        paths = find_frozen_paths(update, lattice, CPU).multiply_links(links.flatten(1, 2))
        active = find_active_links(update, lattice, CPU)
        loops = links.flatten(1, 2)[:, active] @ paths[:, :, 0].mH
        torch.testing.assert_close(loops, forward[:, 0, active])


def test_paths_of_rectangles_are_not_empty_or_alike():
    paths = list_rectangle_paths(1, 4)
    assert len(set(paths)) == 3 * 6
    assert all(len(one) == 5 and sum(s == 1 for s in one) in (1, 2) for one in paths)
