"""Oracles: numbers of plaquettes and rectangles, paths of forces, counts of layers in the papers.

That no loop of a layer has two active links is what makes it invertible: `test_layers`.
"""

import json
from pathlib import Path

import pytest
import torch
import yaml

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import multiply_path
from pipeline_gauge_flows.graph.context import find_frozen_numbers, make_context
from pipeline_gauge_flows.graph.frozen_paths import list_plaquette_paths, list_rectangle_paths
from pipeline_gauge_flows.graph.layout import FlowLayout
from pipeline_gauge_flows.graph.masks import Update, list_updates
from plugins.gauge_flows.small import draw_links, multiply_plaquettes

EXPERIMENTS = Path(__file__).parents[4] / "workflows/experiments/gauge_flows"


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
    context = make_context(update, lattice)
    place = context.paths.numbers.index(update.plaquette)
    links = torch.cat([context.paths.groups[0].links[:, :, place], context.active[None]])
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


@pytest.mark.parametrize("dimension", [2, 3, 4])
@pytest.mark.parametrize("step", [0, 3])
def test_masks_leave_as_many_paths_frozen_as_there_are(step, dimension):
    """M4 all of them, that by parity all plaquettes, that by location half of the plaquettes."""
    lattice, n_sides = Lattice((4,) * dimension, 2), 2 * (dimension - 1)

    def count(pattern, sweep=0):
        update = Update(pattern, sweep, step)
        return len(make_context(update, lattice, rectangles=True).paths.numbers)

    assert count("m4") == 4 * n_sides
    assert n_sides <= count("direction") < 4 * n_sides
    for sweep in (0, 1):  # R_nu lies on the side of x + nu
        numbers = find_frozen_numbers(Update("location", sweep, step), dimension)
        half = n_sides // 2
        assert numbers == tuple(range(half) if sweep else range(half, n_sides))


@pytest.mark.parametrize("pattern", ["direction", "location", "m4"])
def test_frozen_paths_are_those_of_the_action(pattern):
    """Site by site, as forces find their paths; closed by the links they are plaquettes."""
    lattice = Lattice((4, 4, 4), 3)
    update, links = Update(pattern, 1, 2), draw_links(lattice)
    context = make_context(update, lattice, rectangles=True)
    frozen = context.paths
    products = frozen.multiply_links(links.flatten(1, 2))
    for place, link in enumerate(context.active.tolist()):
        mu, site = divmod(link, lattice.volume)
        paths = list_plaquette_paths(mu, lattice.dimension) + list_rectangle_paths(
            mu, lattice.dimension
        )
        for k, number in enumerate(frozen.numbers):
            start = torch.tensor([site])
            expected = multiply_path(links, lattice, paths[number], start)[:, 0]
            torch.testing.assert_close(products[:, place, k], expected)
    if pattern == "m4":
        forward = multiply_plaquettes(links, lattice)  # of the plane (0, 1), which is the first
        context = make_context(Update("m4", 0, 0), lattice)
        paths = context.paths.multiply_links(links.flatten(1, 2))
        loops = links.flatten(1, 2)[:, context.active] @ paths[:, :, 0].mH
        torch.testing.assert_close(loops, forward[:, 0, context.active])


def test_paths_of_rectangles_are_not_empty_or_alike():
    paths = list_rectangle_paths(1, 4)
    assert len(set(paths)) == 3 * 6
    assert all(len(one) == 5 and sum(s == 1 for s in one) in (1, 2) for one in paths)
