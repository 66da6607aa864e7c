"""Figures 3 and 5 to 8: the numbers that they show, and those of the paper."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pipeline_core.figures import reproduction
from pipeline_papers.egnn_esp.figures import (
    domains,
    partitions,
    pictures,
    strong,
    throughput,
    tiled,
    topology,
    weak,
)
from pipeline_papers.egnn_esp.figures.results import read_domains
from plugins.drawn import find_row, list_titles, read_numbers, select_rows
from plugins.egnn_esp import trained
from plugins.papers.egnn_esp import made_up

pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    return made_up.write(tmp_path_factory.mktemp("scaling"))


@pytest.fixture(scope="module")
def expected():
    return read_numbers("egnn_esp")


def test_each_measure_leads_to_a_number(scaling, tmp_path, expected):
    both = {one.experiment: one for one in (scaling, made_up.write_hfo2(tmp_path))}
    for name, experiment in both.items():
        report = {row["id"]: row for row in reproduction.compare(experiment)["entries"]}
        here = [k for k, e in expected.items() if e.measure and e.measure.experiment == name]
        assert here
        assert all(report[one]["ours"] is not None for one in here)
    report = {row["id"]: row for row in reproduction.compare(scaling)["entries"]}
    assert report["message_16"]["ours"] == report["message_16"]["paper"] == 4.8
    assert report["message_128"]["ours"] == report["message_128"]["paper"]
    assert report["box_atoms"]["ours"] == report["box_atoms"]["paper"]
    assert report["metis_64"]["ours"] == pytest.approx(0.01 * 64 * 1.2)
    assert report["low_nn_64"]["our_hardware"] == "A processor, 2 cores"
    compute = made_up.EDGE * 600 * 24_000 / 128
    slower, faster = (compute + 8e-3 * f * 128**0.5 for f in (1.2, 1.0))
    assert report["gain_128"]["ours"] == pytest.approx(slower / faster)
    compute = made_up.EDGE * 600 * 375
    efficiency = (compute + 8e-3 * 2) / (compute + 8e-3 * 26)
    assert report["weak_efficiency_512"]["ours"] == pytest.approx(100 * efficiency)
    assert report["weak_efficiency_512"]["status"] == "projected"
    assert report["volume_512"]["ours"] == pytest.approx(26e5 / 2**20)


def test_most_numbers_of_the_paper_have_one_of_ours(scaling, tmp_path, expected):
    assert len(expected) == 27
    assert sum(entry.measure is not None for entry in expected.values()) >= 24
    reports = [reproduction.compare(e) for e in (scaling, made_up.write_hfo2(tmp_path))]
    of_scaling, of_hfo2 = ({row["id"]: row["ours"] for row in one["entries"]} for one in reports)
    # Ranks that were measured; those of projections are more.
    assert of_scaling["ranks_strong"] == of_scaling["ranks_weak"] == 4
    assert (of_hfo2["gst_atoms"], of_hfo2["gst_gpus"], of_hfo2["gst_steps"]) == (12, 2, 2080)
    assert of_hfo2["tiled_rows"] == 4608


def test_figure_3_marks_where_throughput_is_saturated(scaling):
    figure, table = throughput.draw(scaling)
    # n / (n + 100) passes nine tenths of its last value at the first n above 900.
    marks = [line.get_xdata()[0] for line in figure.axes[0].lines[1::2]]
    assert marks == [1024] * 4
    row = find_row(table, channels=16, messages=1024)
    assert row["rate"] == pytest.approx(1024 / row["seconds"])


def test_figure_5_has_a_row_for_each_cutoff(scaling):
    figure, table = partitions.draw(scaling)
    assert list_titles(figure)[::4] == [
        "24,000 atoms, 14,400,000 edges within 12 Å",
        "24,000 atoms, 22,866,666 edges within 14 Å",
    ]
    assert len(table) == 1 + 2 * 6 * 4
    line = figure.axes[0].lines[0]  # Low-NN, the first of the methods
    assert line.get_ydata() == pytest.approx(np.sqrt([16, 32, 64, 128, 256, 512]))


def test_the_domains_are_those_of_all_atoms(scaling):
    figure, table = domains.draw(scaling)
    for method in ("low_nn", "metis", "grid", "auto"):
        parts = select_rows(table, method=method)
        assert len(parts) == 16
        assert sum(part["atoms"] for part in parts) == 250
    shown = {len(axes.collections[0].get_offsets()) for axes in figure.axes}
    assert len(shown) == 1
    assert shown.pop() < 250
    assert len({to_hex(c) for c in pictures.make_part_colours(128)}) == 128


def test_only_atoms_at_the_faces_that_are_seen_are_shown():
    """Against each face: a point just inside is seen if its normal points to the viewer."""
    cell = np.array([[10.0, 0, 0], [2, 12, 0], [1, -1, 9]])
    for axis in range(3):
        for side, place in ((-1, 0.01), (1, 0.99)):
            point = np.full(3, 0.5)
            point[axis] = place
            normal = side * np.linalg.inv(cell)[:, axis]
            towards = pictures.project(normal[None])[0, 2] > 0
            assert pictures.find_near_faces((point @ cell)[None], cell, 1.0) == [towards]
    assert not pictures.find_near_faces(np.array([[0.5, 0.5, 0.5]]) @ cell, cell, 1.0).any()


def test_atoms_are_boxed():
    """In periodic directions by their cell, in others with room around them."""
    rng = np.random.default_rng(4)
    cell = np.array([[4.0, 0, 0], [1, 5, 0], [0, 0, 0]])
    pbc = np.array([True, True, False])
    positions = rng.uniform(-9, 9, (20, 3))
    points, box = pictures.wrap_into_box(positions, cell, pbc)
    np.testing.assert_allclose(box[:2], cell[:2])
    np.testing.assert_allclose(box[2], [0, 0, np.ptp(positions[:, 2]) + 2])
    places = points @ np.linalg.inv(box)
    assert (places >= 0).all()
    assert (places < 1).all()
    moved = (points - positions + [0, 0, positions[:, 2].min() - 1]) @ np.linalg.inv(box)
    np.testing.assert_allclose(moved, np.rint(moved), atol=1e-9)


def test_the_topology_has_each_message_once(scaling):
    figure, table = topology.draw(scaling)
    traffic = read_domains(scaling).traffic["low_nn"]
    mine = select_rows(table, method="low_nn")
    assert sum(row["atoms"] for row in mine) == traffic.sum()
    assert len(figure.axes[0].collections[0].get_segments()) == len(mine) / 2  # both ways


def test_a_ring_of_parts_is_drawn_as_a_ring():
    """Oracle: the symmetry of the ring; its parts come in a scrambled order."""
    n = 12
    ring = 5 * np.arange(n) % n  # the place of each part
    apart = np.abs(ring[:, None] - ring) % n
    places = topology.lay_out_parts(np.where((apart == 1) | (apart == n - 1), 100, 0))
    by_angle = np.argsort(np.arctan2(places[:, 1], places[:, 0]))
    steps = np.diff(ring[by_angle], append=ring[by_angle[0]]) % n
    assert set(steps.tolist()) in ({1}, {n - 1})


def test_figure_6_keeps_measured_and_projected_apart(scaling):
    figure, table = strong.draw(scaling)
    _, *points = figure.axes[0].lines
    assert [p.get_ydata()[0] for p in points] == pytest.approx([6.6, 3.3, 3.3])
    assert len(select_rows(table, status="measured")) == 3
    actual = find_row(table, status="projected", method="metis", cutoff=12.0, ranks=64)
    assert actual["seconds"] == pytest.approx(22.5 + 8e-3 * 1.2 * 8)
    messages = figure.axes[4].lines[0].get_ydata()  # of Low-NN, ms
    assert messages == pytest.approx(6 * np.sqrt([16, 32, 64, 128, 256, 512]))
    assert figure.axes[3].get_title(loc="left") == "link, measured: 1e+03 µs, 1 GB/s"


def test_figure_7_puts_the_papers_efficiency_beside_ours(scaling, expected):
    figure, table = weak.draw(scaling)
    cross = figure.axes[2].lines[1]
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (512, 87)
    lines = select_rows(table, status="projected", copies="line")
    assert [row["efficiency"] for row in lines] == [1.0] * 4
    measured = select_rows(table, status="measured")
    assert [row["efficiency"] for row in measured] == pytest.approx([1, 1, 0.5])
    share = figure.axes[3].patches[-1]  # of waiting, on 512 ranks
    whole = made_up.EDGE * 600 * 375 + 8e-3 * 26
    assert share.get_height() == pytest.approx(100 * 2e-3 * 26 / whole)


@pytest.mark.slow
def test_figure_8_shows_the_whole_matrix(tmp_path):
    figure, table = tiled.draw(trained.train_and_tile(tmp_path))
    assert find_row(table)["orbitals"] == 144
    assert list_titles(figure)[1] == "predicted H, 144 orbitals"
