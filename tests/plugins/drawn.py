"""What the figures of plugins show, taken out of their tables and drawings."""

from pipeline_core.figures import savers


def select_rows(table, **wanted):
    """Return the rows of a table with these values, as dicts."""
    result = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    return [row for row in result if all(row[key] == value for key, value in wanted.items())]


def find_row(table, **wanted):
    """Return the one row with these values."""
    (row,) = select_rows(table, **wanted)
    return row


def list_titles(figure):
    """Return the title of each panel."""
    return [axes.get_title(loc="left") for axes in figure.axes]


def check_bytes(first, again):
    """Check that two drawings of the same results are the same files, with a table of them."""
    for drawing, _ in (first, again):
        savers.settle_layout(drawing)
    assert savers.encode_image(first[0], "svg") == savers.encode_image(again[0], "svg")
    assert savers.encode_table(first[1]) == savers.encode_table(again[1])
    assert len(first[1]) > 1
    assert {len(row) for row in first[1]} == {len(first[1][0])}
