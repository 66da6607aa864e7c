"""CP2K outputs that are cut, damaged, incomplete or of several runs."""

import re

import numpy as np
import pytest

from pipeline_atoms.readers import BadFrame, Frame
from plugins.atoms.readers.cp2k_files import RUNS, read_frames
from tiers import cover_pairs


def test_an_output_that_was_cut_loses_its_last_evaluation(cp2k_run):
    path = cp2k_run("md")
    text = path.read_text()
    path.write_text(text[: text.rindex("STRESS| Analytical")])
    *frames, last = read_frames(path)
    assert [type(frame) for frame in frames] == [Frame, Frame]
    assert last == BadFrame(2, "truncated: the output ends before the program did")


def test_a_run_without_results_is_bad(cp2k_run):
    (frame,) = read_frames(RUNS / "unconverged.out.gz")
    assert frame == BadFrame(0, "the self-consistency loop did not converge")
    path = cp2k_run("md")
    path.write_text("nothing\n")
    (frame,) = read_frames(path)
    assert "holds no energy" in frame.reason


def test_a_second_run_in_one_file_does_not_inherit_the_failure_of_the_first(cp2k_run):
    path = cp2k_run("md")
    text = path.read_text()
    failed = text[: text.index("ENERGY| Total")] + " *** WARNING :: SCF run NOT converged ***\n"
    path.write_text(failed + text)
    assert all(isinstance(frame, Frame) for frame in read_frames(path))
    path.write_text(text + failed)
    assert all(isinstance(frame, Frame) for frame in read_frames(path))
    path.write_text(text[: text.rindex("STRESS| Analytical")] + failed)
    assert "truncated" in read_frames(path)[2].reason


@pytest.mark.parametrize(
    ("name", "lost", "reasons"),
    [
        ("md", ["md-pos-1.xyz"], ["", "positions are unknown", "positions are unknown"]),
        ("md", ["md.inp", "md-pos-1.xyz"], ["no input md.inp", "positions", "positions"]),
        ("md", ["md.inp"], ["the cell is unknown"] * 3),
        ("npt", ["npt-1.cell"], ["", "the cell is unknown", "the cell is unknown"]),
        ("geo_opt", ["geo_opt.inp"], ["", "", ""]),
        ("cell_opt", ["cell_opt.inp"], ["", "", ""]),
    ],
)
def test_what_is_neither_printed_nor_beside_the_output_is_never_guessed(
    cp2k_run, name, lost, reasons
):
    path = cp2k_run(name)
    for file_name in lost:
        path.with_name(file_name).unlink()
    for frame, reason in zip(read_frames(path), reasons, strict=True):
        if reason:
            assert isinstance(frame, BadFrame)
            assert reason in frame.reason
        else:
            assert isinstance(frame, Frame), frame


def test_snapshots_of_an_earlier_run_are_passed_over(cp2k_run):
    path = cp2k_run("md")
    snapshots = path.with_name("md-pos-1.xyz")
    earlier = snapshots.read_text().replace("E =       -17", "E =       -16")
    expected = read_frames(path)
    snapshots.write_text(earlier + snapshots.read_text())
    for frame, reference in zip(read_frames(path), expected, strict=True):
        assert np.array_equal(frame.positions, reference.positions)


def test_an_input_of_other_elements_is_noticed(cp2k_run):
    path = cp2k_run("md")
    path.with_name("md-pos-1.xyz").unlink()
    input_file = path.with_name("md.inp")
    input_file.write_text(
        input_file.read_text().replace("      O 0.0 0.0 0.0", "      S 0.0 0.0 0.0")
    )
    assert "names other elements than the input" in read_frames(path)[0].reason


@pytest.mark.parametrize(
    ("name", "number", "change"),
    cover_pairs(
        ["md", "geo_opt", "npt"],
        [0, 1, 2],
        [
            ("-17.1", "-17.1x"),
            ("-17.1", "-17 .1"),
            (" ENERGY| Total FORCE_EVAL", " ENERQY| Total FORC_EVAL"),
            (" ENERGY|.*\n", ""),
        ],
    ),
)
def test_what_belongs_to_a_damaged_energy_never_reaches_another(cp2k_run, name, number, change):
    old, new = change
    path = cp2k_run(name)
    expected = read_frames(path)
    parts = re.split(r"(?= ENERGY\| Total)", path.read_text())
    parts[number + 1] = re.sub(
        old.replace(".1", r"\.\d").replace("|", r"\|"), new, parts[number + 1], count=1
    )
    path.write_text("".join(parts))
    frames = read_frames(path)
    assert len(frames) == 3
    assert isinstance(frames[number], BadFrame)
    assert "ENERGY" in frames[number].reason
    assert "line " in frames[number].reason
    for frame, whole in zip(frames, expected, strict=True):
        if isinstance(frame, Frame):
            for label, value in whole.labels.items():
                assert np.array_equal(frame.labels[label], value), label
            assert np.array_equal(frame.positions, whole.positions)


@pytest.mark.parametrize(
    ("pattern", "new", "reason"),
    [
        (r"      2      2      H .*\n", "", "the table of the forces is not whole"),
        (r"(      2      2      H .*\n)", r"\1\1", "the table of the forces is not whole"),
        (r"0\.08014287", "0_08014287", "is not a number"),
        (r" STRESS\|      y   .*\n", "", "the rows x, y and z of the stress do not follow"),
        (r" STRESS\|      y  ", " STRESS|      y 1", "the rows x, y and z of the stress"),
        (r" SUM OF ATOMIC", " SUN OF ATOMIC", "the table of the forces is not whole"),
    ],
)
def test_a_damaged_table(cp2k_run, pattern, new, reason):
    path = cp2k_run("md")
    text = re.sub(pattern, new, path.read_text(), count=1)
    path.write_text(text)
    first, *others = read_frames(path)
    assert reason in first.reason
    assert "line " in first.reason
    assert all(isinstance(frame, Frame) for frame in others)


def test_empty_and_damaged_lines_beside_the_output(cp2k_run):
    path = cp2k_run("npt")
    expected = read_frames(path)[1].cell
    cells = path.with_name("npt-1.cell")
    text = cells.read_text()
    cells.write_text(text.replace("\n", "\n\n"))
    assert np.array_equal(read_frames(path)[1].cell, expected)
    cells.write_text(text.replace("5.0280508303", "5.9280508303"))
    assert "npt-1.cell: '1       0.500        5.928" in read_frames(path)[1].reason
    cells.write_text(text)
    snapshots = path.with_name("npt-pos-1.xyz")
    snapshots.write_text("0\n i = 0, time = 0.0, E = -17.1110612\n" + snapshots.read_text())
    assert all(isinstance(frame, Frame) for frame in read_frames(path))
