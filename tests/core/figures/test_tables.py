"""Tables as pictures.

Oracle: matplotlib, which says where it has drawn each text.
"""

from pipeline_core.figures import style, tables

WIDTHS = [0.12, 0.26, 0.11, 0.51]
CELLS = ["Aaaaaaaaaaaaaaaa " * 3, "many WIDE words " * 9, "x" * 40, "short"]


def test_no_cell_touches_the_next_and_the_table_keeps_all_words_on_the_page():
    starts = [sum(WIDTHS[:n]) for n in range(5)]
    with style.apply_style():
        figure = tables.draw(CELLS, [CELLS, ["", "a", "b", "the end"]], WIDTHS)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        for text in axes.texts:
            column = min(range(4), key=lambda n: abs(starts[n] - text.get_position()[0]))
            extent = text.get_window_extent()
            assert extent.transformed(axes.transData.inverted()).x1 < starts[column + 1]
            assert figure.bbox.padded(1).contains(*extent.max)
    words = " ".join(text.get_text() for text in axes.texts)
    assert words.count("x") == 2 * 40
    assert words.split().count("many") == 2 * 9
    assert {"short", "a", "b", "end"} <= set(words.split())
