"""How numbers are written for readers."""

import pytest

from pipeline_core.figures.formats import format_number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0"),
        (226.8, "227"),
        (16.64, "16.6"),
        (9.996, "10.0"),
        (0.0123456, "0.0123"),
        (-0.5, "−0.500"),
        (411_200, "4.11e+05"),
        (12_345, "12345"),
        (1.234e-7, "1.23e−07"),
    ],
)
def test_numbers_have_three_digits(number, text):
    assert format_number(number) == text
