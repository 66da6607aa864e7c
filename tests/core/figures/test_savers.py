"""The same figure gives the same bytes: in another process, in any order, under any settings."""

import hashlib
import os
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from pipeline_core.figures import savers, style

KINDS = ("png", "svg", "pdf")
IN_ANOTHER_PROCESS = """
import sys
from core.figures.test_savers import KINDS, compute_hashes
assert "torch" not in sys.modules
print(compute_hashes(KINDS))
"""


def draw_curves():
    with style.apply_style():
        figure, ((left, right),) = style.make_canvas(1, 2, width=style.PAGE)
        left.plot([0, 1, 2], [1, 10, 3], label="a first curve")
        left.plot([0, 1, 2], [2, 3, 30], label="a second curve")
        left.set(xlabel="time (ps)", ylabel="energy (meV/Å)", yscale="log")
        x = np.linspace(-1, 1, 400)
        right.hexbin(x, x**3, gridsize=9, mincnt=1)
        style.add_legend_above(figure, left)
        savers.settle_layout(figure)
    return figure


def compute_hashes(kinds):
    figure = draw_curves()
    with style.apply_style():
        result = {
            kind: hashlib.sha256(savers.encode_image(figure, kind)).hexdigest() for kind in kinds
        }
    return {kind: result[kind] for kind in sorted(result)}


@pytest.mark.slow
def test_the_bytes_are_the_same_in_another_process_with_other_settings(tmp_path):
    settings = tmp_path / "matplotlibrc"
    settings.write_text("font.size: 20\nlines.linewidth: 5\nsvg.fonttype: none\n")
    environment = os.environ | {"MATPLOTLIBRC": str(settings), "PYTHONHASHSEED": "7"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == str(compute_hashes(KINDS))


@pytest.mark.slow
def test_bytes_depend_on_the_figure_alone():
    """On no format saved before, and no date; settings of the caller stay as they were."""
    before = dict(mpl.rcParams)
    assert compute_hashes(KINDS) == compute_hashes(KINDS[::-1])
    figure = draw_curves()
    with style.apply_style():
        images = {kind: savers.encode_image(figure, kind) for kind in KINDS}
        figure.axes[0].set_xlabel("another label")
        assert savers.encode_image(figure, "png") != images["png"]
    for image in images.values():
        assert b"<dc:date>" not in image
        assert b"CreationDate" not in image
    assert dict(mpl.rcParams) == before


def test_tables_keep_all_digits_and_leave_what_is_missing_empty():
    rows = [["what", "number"], ["a, b", 0.1 + 0.2], ["c", None]]
    assert savers.encode_table(rows) == b'what,number\n"a, b",0.30000000000000004\nc,\n'
