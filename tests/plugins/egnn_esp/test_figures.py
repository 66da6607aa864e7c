"""Figures 3 and 5 to 8: the numbers that they show, and those of the paper."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from matplotlib.colors import to_hex

from pipeline_core.figures import reproduction, results
from pipeline_core.testing.projects import call
from pipeline_egnn_esp.figures import distances, spectra, violins
from pipeline_egnn_esp.figures.elements import read_elements
from pipeline_egnn_esp.inference import infer_run
from pipeline_egnn_esp.inference.collect import read_matrices
from pipeline_egnn_esp.inference.picture import write_picture
from pipeline_egnn_esp.options import ESPEvaluateOptions
from pipeline_egnn_esp.paper import (
    domains,
    partitions,
    pictures,
    strong,
    throughput,
    tiled,
    topology,
    weak,
)
from pipeline_egnn_esp.paper.results import read_domains
from plugins.drawn import find_row, list_titles, read_numbers, select_rows
from plugins.egnn_esp import made_up_results, reference, trained

ELECTRONS = {"Hf": 12, "O": 6}
WANTED = {
    "name": "cell",
    "density_of_states": {"width": 0.3},
    "bands": {"path": "XGY", "points": 9},
}


pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    return made_up_results.write(tmp_path_factory.mktemp("scaling"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """An experiment whose model was trained for a step, evaluated and used."""
    folder = tmp_path_factory.mktemp("learned")
    trained.train(folder)
    tiles = {"name": "tiled", "repeat": [2, 1, 1], "picture": 1000}
    run = trained.open_run(folder, {"structures": [WANTED, tiles]})
    section = ESPEvaluateOptions.model_validate({"k_points": (1, 1, 1), "electrons": ELECTRONS})
    run = replace(run, sections={**run.sections, "evaluate": section})
    call(run, "evaluate")
    infer_run(run)
    experiment = trained.project(folder).load_experiment(trained.NAME)
    return replace(experiment, runs={"base": run})


@pytest.fixture(scope="module")
def expected():
    return read_numbers("egnn_esp")


def test_each_measure_leads_to_a_number(scaling, tmp_path, expected):
    both = {one.experiment: one for one in (scaling, made_up_results.write_hfo2(tmp_path))}
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
    compute = made_up_results.EDGE * 600 * 24_000 / 128
    slower, faster = (compute + 8e-3 * f * 128**0.5 for f in (1.2, 1.0))
    assert report["gain_128"]["ours"] == pytest.approx(slower / faster)
    compute = made_up_results.EDGE * 600 * 375
    efficiency = (compute + 8e-3 * 2) / (compute + 8e-3 * 26)
    assert report["weak_efficiency_512"]["ours"] == pytest.approx(100 * efficiency)
    assert report["weak_efficiency_512"]["status"] == "projected"
    assert report["volume_512"]["ours"] == pytest.approx(26e5 / 2**20)


def test_most_numbers_of_the_paper_have_one_of_ours(scaling, tmp_path, expected):
    assert len(expected) == 27
    assert sum(entry.measure is not None for entry in expected.values()) >= 24
    reports = [reproduction.compare(e) for e in (scaling, made_up_results.write_hfo2(tmp_path))]
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
    whole = made_up_results.EDGE * 600 * 375 + 8e-3 * 26
    assert share.get_height() == pytest.approx(100 * 2e-3 * 26 / whole)


@pytest.mark.slow
def test_elements_have_their_distance_and_their_orbitals(learned):
    """Against the blocks of the shipped frame, one by one."""
    actual = read_elements(learned)
    matrix = reference.read_shipped("tetragonal-2000K")
    assert (actual.split, actual.cutoff) == ("test", trained.CUTOFF)
    start = 0
    for number, block in enumerate(matrix.iterate_blocks("hamiltonian")):
        own = slice(start, start + block.size)
        np.testing.assert_allclose(actual.distance[own], matrix.lengths[number], atol=1e-5)
        degrees = [
            np.repeat(shells, [2 * one + 1 for one in shells])
            for z in matrix.structure.atomic_numbers[matrix.block_atoms[number]]
            for shells in [reference.HAFNIA["Hf" if z == 72 else "O"]]
        ]
        pairs = [sorted((a, b)) for a in degrees[0].tolist() for b in degrees[1].tolist()]
        np.testing.assert_array_equal(actual.pair[own], pairs)
        start += block.size
    assert start == len(actual.label)
    assert np.count_nonzero(actual.on_site) == 4 * 100 + 8 * 16


def test_violins_have_the_means_of_the_report(learned):
    """Oracle: the errors by shell that the evaluation reports."""
    _, table = violins.draw(learned)
    report = results.read_json(learned.runs["base"].metrics)["matrices"]["splits"]["test"]
    for shell in report["shells"]:
        row = find_row(table, group=f"{shell['from']:g}–{shell['to']:g}")
        assert row["elements"] == shell["count"]
        assert row["mean_meV"] == pytest.approx(1e3 * shell["model"], rel=1e-5)
    own = select_rows(table, by="orbitals", of="of atoms")
    assert [row["group"] for row in own] == ["ss", "sp", "sd", "pp", "pd", "dd"]
    total = sum(row["elements"] * row["mean_meV"] for row in own)
    assert total / 528 == pytest.approx(1e3 * report["on_site"]["model"], rel=1e-5)


def test_means_over_distance_are_those_of_the_elements(learned):
    figure, table = distances.draw(learned)
    actual = read_elements(learned)
    beyond = [row for row in select_rows(table) if row["distance"] > trained.CUTOFF + 0.5]
    assert beyond
    for row in beyond:  # where zero is predicted
        assert row["model"] == row["distances_alone"] == pytest.approx(row["data"])
    first = select_rows(table)[0]
    inside = ~actual.on_site & (np.abs(actual.distance - first["distance"]) < 0.25)
    assert first["data"] == pytest.approx(1e3 * np.abs(actual.label[inside]).mean())
    counts = figure.axes[0].collections[0].get_array()
    assert counts.sum() == np.count_nonzero(~actual.on_site)


def test_the_picture_is_the_matrix(learned):
    """With a pixel for each element: the dense matrix, put together block by block."""
    run = learned.runs["base"]
    matrix = read_matrices(run.folder / "matrices/tiled.h5", "tiled", reference.BASIS)
    dense = np.zeros((matrix.n_orbitals, matrix.n_orbitals))
    row, column = matrix.find_entry_orbitals()
    for i, j, value in zip(row, column, np.abs(matrix.hamiltonian), strict=True):
        dense[i, j] = max(dense[i, j], value)
        dense[j, i] = max(dense[j, i], value)
    with h5py.File(run.inference) as file:
        np.testing.assert_allclose(file["tiled/picture/elements"][:], dense, rtol=1e-6)
    figure, table = tiled.draw(learned)
    assert find_row(table)["orbitals"] == 144
    assert list_titles(figure)[1] == "predicted H, 144 orbitals"


def test_a_picture_of_few_pixels_has_the_largest_elements(learned, tmp_path):
    run = learned.runs["base"]
    with h5py.File(run.inference) as file:
        fine = file["tiled/picture/elements"][:]
    with h5py.File(tmp_path / "picture.h5", "w") as file:
        path = run.folder / "matrices/tiled.h5"
        write_picture(file.create_group("one"), path, "tiled", reference.BASIS, 12)
        coarse = file["one/picture/elements"][:]
    np.testing.assert_array_equal(coarse, fine.reshape(12, 12, 12, 12).max(axis=(1, 3)))


def test_spectra_are_shown_around_the_gap(learned):
    figure, table = spectra.draw(learned)
    with h5py.File(learned.runs["base"].inference) as file:
        reference_levels = file["cell/bands/reference"][:]
    low, high = figure.axes[0].get_ylim()
    # 4 Hf with 12 and 8 O with 6 electrons fill 48 of 72 levels.
    assert low == pytest.approx(reference_levels[:, :48].max() - 7)
    assert high == pytest.approx(reference_levels[:, 48:].min() + 7)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["X", "Γ", "Y"]
    bands = select_rows(table, quantity="band_eV")
    assert len(bands) == 9 * 72
    assert bands[0]["reference"] == pytest.approx(reference_levels[0, 0])
