"""What the figures of plugins show, taken out of their tables and drawings."""


def rows(table, **wanted):
    """Return the rows of a table with these values, as dicts."""
    result = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    return [row for row in result if all(row[key] == value for key, value in wanted.items())]


def only(table, **wanted):
    """Return the one row with these values."""
    (row,) = rows(table, **wanted)
    return row


def titles(figure):
    """Return the title of each panel."""
    return [axes.get_title(loc="left") for axes in figure.axes]
