"""The nearest of some names to a misspelled one, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message on an unknown name: "; did you mean 'energy'?".

    Args:
        name: The unknown name.
        names: Possible names.
        otherwise: Words before the list of all names, where none is near; if empty, there is no
            list.
    """
    choices = list(names)
    for near in get_close_matches(name, choices, n=1, cutoff=0.5):
        return f"; did you mean {near!r}?"
    return f"; {otherwise} {', '.join(choices)}" if otherwise else ""
