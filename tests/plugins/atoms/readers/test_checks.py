"""What a frame must satisfy."""

from dataclasses import replace

import numpy as np
import pytest
from ase.data import atomic_numbers as ase_numbers
from ase.stress import voigt_6_to_full_3x3_stress

from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.frame_checks import (
    check_frame,
    find_atomic_numbers,
    make_stress_matrix,
    parse_label,
    parse_numbers,
    select_plain,
)

GOOD = Frame(
    atomic_numbers=np.array([8, 1], np.int32),
    positions=np.arange(6.0).reshape(2, 3),
    cell=5 * np.eye(3),
    pbc=np.ones(3, bool),
    labels={"energy": np.array(1.0), "forces": np.zeros((2, 3)), "stress": np.eye(3)},
    index=7,
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": {"forces": np.full((2, 3), np.nan)}}, "NaN in forces"),
        ({"labels": {"energy": np.array(np.inf)}}, "infinity in energy"),
        ({"labels": {"forces": np.zeros((3, 3))}}, "forces has shape (3, 3), expected (2, 3)"),
        ({"labels": {"magmoms": np.zeros((2, 3))}}, "magmoms has shape (2, 3), expected (2,)"),
        ({"labels": {"energy": np.zeros(2)}}, "energy has shape (2,), expected ()"),
        ({"positions": np.full((2, 3), np.nan)}, "NaN in positions"),
        (
            {"atomic_numbers": np.zeros(0, np.int32), "positions": np.zeros((0, 3)), "labels": {}},
            "has no atoms",
        ),
    ],
)
def test_frames_that_cannot_be_used(changes, reason):
    assert check_frame(replace(GOOD, **changes)) == BadFrame(7, reason)


@pytest.mark.parametrize(
    ("vectors", "pbc", "good"),
    [
        (np.zeros((3, 3)), (False, False, False), True),  # a molecule
        (np.zeros((3, 3)), (True, True, True), False),
        (np.diag([3.0, 4.0, 0.0]), (True, True, False), True),  # a slab without a third vector
        (np.diag([3.0, 4.0, 0.0]), (True, True, True), False),
        ([[1, 0, 0], [2, 0, 0], [0, 0, 1]], (True, True, False), False),
        ([[1, 0, 0], [2, 0, 0], [0, 0, 1]], (True, False, True), True),
        (1e-3 * np.eye(3), (True, True, True), True),  # small, not flat
        ([[100, 0, 0], [100, 0.1, 0], [0, 0, 1]], (True, True, True), True),  # acute, not flat
    ],
)
def test_periodic_vectors_must_span_a_volume(vectors, pbc, good):
    frame = replace(GOOD, cell=np.array(vectors, float), pbc=np.array(pbc))
    expected = frame if good else BadFrame(7, "is periodic, but its cell has no volume")
    assert check_frame(frame) == expected if not good else check_frame(frame) is frame


def test_every_element_is_known_in_any_case():
    symbols = [symbol for symbol, z in ase_numbers.items() if z > 0]
    expected = [ase_numbers[symbol] for symbol in symbols]  # oracle: ASE's table
    assert find_atomic_numbers(symbols).tolist() == expected
    assert find_atomic_numbers([symbol.upper() for symbol in symbols]).tolist() == expected


@pytest.mark.parametrize("symbol", ["X", "Q1", "", "3"])
def test_what_is_no_element_is_named(symbol):
    with pytest.raises(ValueError, match=f"'{symbol}' is not a chemical element"):
        find_atomic_numbers(["H", symbol])


def test_six_numbers_are_in_voigt_order():
    voigt = np.arange(6.0)
    assert np.array_equal(make_stress_matrix(voigt), voigt_6_to_full_3x3_stress(voigt))  # ASE's
    with pytest.raises(ValueError, match="stress has 5 numbers, expected 9, or 6 in Voigt order"):
        make_stress_matrix(np.zeros(5))


@pytest.mark.parametrize("value", [None, "much", ["a", "b"], {"a": 1}, [[1.0], [2.0, 3.0]]])
def test_what_is_not_numeric_is_no_label(value):
    assert parse_numbers(value) is None
    with pytest.raises(ValueError, match="forces is not numeric"):
        parse_label("forces", value)


def test_information_is_reduced_to_plain_values():
    info = {"a": np.float64(1.5), "b": np.int32(2), "c": "text", "d": True}
    plain = select_plain(info | {"e": np.zeros(3), "f": []})
    assert plain == {"a": 1.5, "b": 2, "c": "text", "d": True}
    assert [type(value) for value in plain.values()] == [float, int, str, bool]
