"""One configuration, and the order of its links in files.

Files number sites with x fastest and t slowest, and store the links of a site along x, y, z, t.
Here time is direction 0 and x, y, z are 1, 2, 3, the last one fastest.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.observables import plaquette
from pipeline_kernels.su3 import project

Complex = NDArray[np.complex128]

TOLERANCE: Final = 1e-5
"""Largest element of U U^dag - 1 and of det U - 1: rounding errors of single precision."""


@dataclass(frozen=True)
class Configuration:
    """Links of a four-dimensional lattice.

    Attributes:
        lattice: The lattice.
        links: (4, V, N, N) complex128.
        action: Action of the ensemble, if the file states it.
    """

    lattice: Lattice
    links: Complex
    action: ActionOptions | None = None

    @property
    def plaquette(self) -> float:
        """Mean of Re tr P / N."""
        return plaquette(torch.from_numpy(self.links)[None], self.lattice).item()

    @property
    def link_trace(self) -> float:
        """Mean of Re tr U / N over all links; depends on the gauge."""
        traces = np.trace(self.links, axis1=-2, axis2=-1).real
        return float(traces.mean() / self.lattice.n_colours)


def convert_to_file_order(configuration: Configuration) -> Complex:
    """Return the links in the order of files, (t, z, y, x, 4, N, N)."""
    n = configuration.lattice.n_colours
    links = configuration.links.reshape(4, *configuration.lattice.extents, n, n)  # mu, t, x, y, z
    return np.ascontiguousarray(links[[1, 2, 3, 0]].transpose(1, 4, 3, 2, 0, 5, 6))


def convert_from_file_order(raw: Complex) -> tuple[Lattice, Complex]:
    """Return the lattice and links (4, V, N, N) of an array (t, z, y, x, 4, N, N)."""
    t, z, y, x, _, n, _ = raw.shape
    links = raw.transpose(4, 0, 3, 2, 1, 5, 6)[[3, 0, 1, 2]]
    return Lattice((t, x, y, z), n), np.ascontiguousarray(links.reshape(4, t * x * y * z, n, n))


def require_special_unitary(path: Path, links: Complex) -> Complex:
    """Return links without rounding errors.

    Args:
        path: The file, for messages.
        links: (4, V, N, N).

    Raises:
        ValueError: They are not finite, or not in SU(N).
    """
    if not np.isfinite(links).all():
        direction, site = np.argwhere(~np.isfinite(links))[0, :2]
        raise ValueError(
            f"{path}: the link in direction {direction} at site {site} is not finite; get an "
            "intact copy of the file"
        )
    n = links.shape[-1]
    products = links @ links.conj().swapaxes(-2, -1) - np.eye(n)
    deviation = np.abs(products).max(axis=(-2, -1))
    deviation = np.maximum(deviation, np.abs(np.linalg.det(links) - 1))
    if deviation.max() > TOLERANCE:
        worst = np.unravel_index(int(deviation.argmax()), deviation.shape)
        raise ValueError(
            f"{path}: {np.count_nonzero(deviation > TOLERANCE)} of {deviation.size} links are not "
            f"in SU({n}); direction {worst[0]} at site {worst[1]} is off by {deviation.max():.2g}; "
            "is the byte order or the order of indices wrong? Get an intact copy of the file"
        )
    return project(torch.from_numpy(links)).numpy()


def read_action(path: Path, place: str, text: str | bytes) -> ActionOptions:
    """Read the action that a file states for its links.

    Args:
        path: The file, for messages.
        place: Place of the text in the file, for messages.
        text: JSON.

    Raises:
        ValueError: The text is not an action.
    """
    try:
        return ActionOptions.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{path}: {place} cannot be read ({error})") from None
