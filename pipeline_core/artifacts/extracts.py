"""Extracts: reduced data behind figures of large files, small enough to be kept as evidence.

A parity plot of a million numbers shows the counts of a few hundred cells. Figures read predictions
through `Run.extract` or `ExperimentRun.extract`: results are reduced to the drawn numbers, which
are kept and read again where the results are not there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Content = TypeVar("Content")

BULK: Final = "bulk"
"""Attribute of groups and datasets of `inference.h5` that figures read only through extracts;
evidence does not contain them."""
_ARRAY: Final = "array"


class Extracts:
    """Extracts of an experiment by name.

    Args:
        path: The file that holds them; None to collect them while figures are drawn from results.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._kept: dict[str, Any] = {} if path is None else json.loads(path.read_text())

    def get(self, name: str, compute: Callable[[], Content]) -> Content:
        """Return an extract: the kept one, or the result of `compute`.

        Args:
            name: Its name.
            compute: Returns trees of dictionaries, lists, arrays, numbers and strings.

        Raises:
            ValueError: The file does not hold it.
        """
        if self.path is None:
            content = compute()
            self._kept[name] = _encode(content)
            return content
        if name not in self._kept:
            raise ValueError(
                f"{self.path}: no extract {name!r}: a figure reads what was not kept; compute the "
                "experiment, then pipeline-core keep-evidence"
            )
        kept: Content = _decode(self._kept[name])
        return kept

    def write(self, path: Path) -> None:
        """Write the collected extracts."""
        text = json.dumps(self._kept, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")


def shorten(values: NDArray[Any], digits: int = 5) -> NDArray[np.float64]:
    """Round numbers that are drawn to a number of significant digits."""
    flat = [float(f"{value:.{digits}g}") for value in np.ravel(values).tolist()]
    return np.asarray(flat, dtype=np.float64).reshape(np.shape(values))


def _encode(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _encode(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_encode(value) for value in tree]
    if isinstance(tree, np.ndarray):
        return {_ARRAY: tree.dtype.str, "shape": list(tree.shape), "values": tree.ravel().tolist()}
    return tree.item() if isinstance(tree, np.generic) else tree


def _decode(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_decode(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if _ARRAY in tree:
        return np.asarray(tree["values"], dtype=tree[_ARRAY]).reshape(tree["shape"])
    return {key: _decode(value) for key, value in tree.items()}
