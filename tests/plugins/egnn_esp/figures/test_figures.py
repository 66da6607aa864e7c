"""Figures of a trained model: the numbers that they show, against its matrices and levels."""

import h5py
import numpy as np
import pytest

from pipeline_core.figures import results
from pipeline_egnn_esp.figures import distances, spectra, violins
from pipeline_egnn_esp.figures.elements import read_elements
from pipeline_egnn_esp.inference.collect import read_matrices
from pipeline_egnn_esp.inference.picture import write_picture
from plugins.drawn import find_row, select_rows
from plugins.egnn_esp import reference, trained

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("figure_style")]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return trained.train_and_use(tmp_path_factory.mktemp("learned"))


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


@pytest.mark.slow
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
