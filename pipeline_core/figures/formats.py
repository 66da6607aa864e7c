"""Numbers formatted for readers."""

from math import floor, log10


def format_number(number: float | None, digits: int = 3) -> str:
    """Format a number with so many significant digits; a dash for None."""
    if number is None:
        return "–"
    if number == 0 or not 1e-4 <= abs(number) < 1e5:
        text = f"{number:.{digits - 1}e}" if number else "0"
    else:
        decimals = digits - 1 - floor(log10(abs(float(f"{number:.{digits - 1}e}"))))
        text = f"{number:.{max(0, decimals)}f}"
    return text.replace("-", "−")
