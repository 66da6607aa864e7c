"""Self-diffusion from mean square displacements, with errors from blocks of a run."""

from typing import Final

import h5py
import numpy as np
from ase.data import atomic_masses, chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.dynamics.blocks import BLOCKS, find_block_error

Floats = NDArray[np.float64]

_FRAMES: Final = 20
"""Smallest number of frames of a block."""
_MOST_FRAMES: Final = 2000
_MOST_POSITIONS: Final = 10_000_000
"""Largest number of frames times atoms; of larger structures every second atom, and so on."""
_WINDOW: Final = (0.1, 0.5)
"""Range of lags of the linear fit, over the length of a block: at shorter lags motion is ballistic
or a vibration; at longer lags few origins are left."""
_MOVED: Final = 0.3
"""Displacement over the second half of a run, over the mean distance of atoms, below which atoms
only vibrate: a crystal melts at about half of it (Lindemann)."""
_M2_PER_S: Final = 1e-8
"""Å²/ps in m²/s."""
_NUMBERS: Final = ("m2_per_s", "error_m2_per_s", "exponent")


def store_diffusion(group: h5py.Group) -> dict[str, float | None]:
    """Add mean square displacements over the second half of a run to its group.

        D = 1/6 d<|r(t + τ) - r(t)|²> / dτ

    of each element, averaged over its atoms and all origins t; r is relative to the centre of mass.
    If the cell changes, displacements are those of fractional coordinates in the mean cell. Values
    are means over `BLOCKS` blocks, with their standard errors.

    Args:
        group: Group of a run that is periodic in three directions, filled by `Frames`.

    Returns:
        Name with unit -> number, for the summary: root mean square displacements, coefficients,
        their errors and exponents α of <r²> ~ τ^α, 1 for diffusion. All but displacements are None
        for atoms that only vibrate; empty if the run is too short.
    """
    times = group["time"][:]
    settled = np.arange(len(times) // 2, len(times))
    settled = settled[:: max(1, -(-len(settled) // _MOST_FRAMES))]
    length = len(settled) // BLOCKS
    if length < _FRAMES:
        return {}
    settled = settled[-BLOCKS * length :]
    spacings = np.diff(times[settled])
    if not np.allclose(spacings, spacings[0]):  # the last interval of a stopped run is shorter
        return {}
    numbers = group["atomic_numbers"][:]
    chosen = np.arange(0, len(numbers), max(1, len(settled) * len(numbers) // _MOST_POSITIONS))
    paths = _read_paths(group, settled, numbers, chosen)
    lags = np.arange(1, round(_WINDOW[1] * length) + 1) * spacings[0] / 1000  # ps
    group.create_dataset("diffusion/lag", data=lags).attrs["unit"] = "ps"
    spacing = (group["volume"][:].mean() / len(numbers)) ** (1 / 3)
    summary: dict[str, float | None] = {}
    for z in np.unique(numbers[chosen]):
        of_element, symbol = paths[:, numbers[chosen] == z], chemical_symbols[z]
        squares = np.stack([compute_msd(b, len(lags)) for b in np.split(of_element, BLOCKS)])
        _store_element(group["diffusion"], symbol, squares)
        moved = float(np.sqrt(((of_element[-1] - of_element[0]) ** 2).sum(axis=1).mean()))
        fitted = _fit_element(lags, squares) if moved > _MOVED * spacing else (None, None, None)
        summary |= {f"diffusion_{symbol}_displacement_A": moved}
        summary |= {f"diffusion_{symbol}_{k}": x for k, x in zip(_NUMBERS, fitted, strict=True)}
    return summary


def compute_msd(paths: Floats, n_lags: int) -> Floats:
    """Compute mean square displacements over lags of 1 to `n_lags` frames, (n_lags,).

    Args:
        paths: (n_frames, n_atoms, 3), not wrapped into a cell.
        n_lags: Number of lags, less than the number of frames.
    """
    assert 0 < n_lags < len(paths)
    return np.array(
        [((paths[lag:] - paths[:-lag]) ** 2).sum(axis=2).mean() for lag in range(1, n_lags + 1)]
    )


def _read_paths(
    group: h5py.Group,
    frames: NDArray[np.int64],
    numbers: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> Floats:
    """Return paths relative to the centre of mass, (n_frames, n_atoms, 3) Å."""
    masses = atomic_masses[numbers] / atomic_masses[numbers].sum()
    cells = np.stack([group["cell"][n] for n in frames]).astype(float)
    mean, still = cells.mean(axis=0), bool((cells == cells[0]).all())
    paths = np.empty((len(frames), len(chosen), 3))
    for row, n in enumerate(frames):
        positions = group["positions"][n].astype(float)
        if not still:
            positions = np.linalg.solve(cells[row].T, positions.T).T @ mean
        paths[row] = positions[chosen] - masses @ positions
    return paths


def _store_element(group: h5py.Group, symbol: str, squares: Floats) -> None:
    """Store the mean square displacements of an element, with their standard errors."""
    for name, values in (
        (symbol, squares.mean(axis=0)),
        (f"{symbol}_error", find_block_error(squares)),
    ):
        group.create_dataset(name, data=values).attrs["unit"] = "Å²"


def _fit_element(lags: Floats, squares: Floats) -> tuple[float, float, float]:
    """Fit the coefficient, its error and the exponent of an element, in the order of `_NUMBERS`."""
    fitted = lags >= _WINDOW[0] / _WINDOW[1] * lags[-1]
    coefficients = np.polyfit(lags[fitted], squares[:, fitted].T, 1)[0] / 6 * _M2_PER_S
    mean = squares.mean(axis=0)
    exponent = np.polyfit(np.log(lags[fitted]), np.log(mean[fitted]), 1)[0]
    return float(coefficients.mean()), float(find_block_error(coefficients)), float(exponent)
