"""Tables as pictures.

Oracle: matplotlib, which says where it has drawn each text.
"""

from pipeline_core.figures import style, tables

WIDTHS = [0.12, 0.26, 0.11, 0.51]
CELLS = ["Aaaaaaaaaaaaaaaa " * 3, "many WIDE words " * 9, "x" * 40, "short"]


def test_no_cell_touches_the_next():
    starts = [sum(WIDTHS[:n]) for n in range(5)]
    with style.apply_style():
        figure = tables.draw(CELLS, [CELLS, ["", "a", "b", "c"]], WIDTHS)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        for text in axes.texts:
            column = min(range(4), key=lambda n: abs(starts[n] - text.get_position()[0]))
            box = text.get_window_extent().transformed(axes.transData.inverted())
            assert box.x1 < starts[column + 1]
    assert "".join(text.get_text() for text in axes.texts).count("x") == 2 * 40


def test_a_table_keeps_all_words_and_stays_on_the_page():
    rows = [["short", "many words " * 30], ["", "the end"]]
    with style.apply_style():
        figure = tables.draw(["what", "value"], rows, [0.3, 0.7])
        figure.draw_without_rendering()
        texts = figure.axes[0].texts
        inside = [figure.bbox.padded(1).contains(*text.get_window_extent().max) for text in texts]
    assert all(inside)
    words = " ".join(text.get_text() for text in texts).split()
    assert words.count("many") == 30
    assert {"what", "value", "short", "end"} <= set(words)
