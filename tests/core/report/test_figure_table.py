"""Tables of figures without a picture: what is a number, and how it is written."""

import pytest

from pipeline_core.figures import Figure
from pipeline_core.figures.savers import encode_table
from pipeline_core.report.figure_table import make_table

WRITTEN = {
    0.000123456: "0.0001235", -1.5: "−1.5", 1e-9: "1e−09", 12345.678: "12,346", 2980: "2,980",
    9999.9: "10,000", 1_000_000: "1,000,000", float("inf"): "∞", None: "–",
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [*WRITTEN.items(), *((name, name) for name in ("1_2", "007", "base", "1e5x"))],
)
def test_numbers_are_short_and_names_stay(value, text):
    figure = Figure(name="sizes", title="Sizes", caption="All.", category="Data", draw=None)
    table = make_table(figure, encode_table([["error_cm-1"], [value]]))
    assert table.rows == [[text]]
    assert table.header == ["error (cm⁻¹)"]
    assert table.file == "sizes.csv"
