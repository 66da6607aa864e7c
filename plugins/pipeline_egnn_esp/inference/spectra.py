"""Levels, density of states and bands of predicted matrices, beside those of the data if any."""

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from ase.dft.kpoints import monkhorst_pack
from numpy.typing import NDArray

from pipeline_egnn_esp.data.bands import (
    compute_density_of_states,
    compute_levels,
    compute_levels_near,
    make_band_path,
)
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.inference.options import (
    Bands,
    DensityOfStates,
    Levels,
    PredictedStructure,
)

Floats = NDArray[np.float64]
Matrices = Mapping[str, BlockMatrix]


def is_dense(options: PredictedStructure) -> bool:
    """Return True if all levels are calculated, with dense matrices."""
    near = options.levels is not None and options.levels.energy is not None
    wanted = options.levels, options.density_of_states, options.bands
    return sum(one is not None for one in wanted) > near


def is_complex(options: PredictedStructure) -> bool:
    """Return True if levels are calculated at other k-points than the Gamma point."""
    density = options.density_of_states
    return options.bands is not None or (density is not None and max(density.k_points) > 1)


def write_spectra(
    group: h5py.Group, options: PredictedStructure, matrices: Matrices
) -> dict[str, Any]:
    """Write levels, density of states and bands where requested.

    Args:
        group: Group of the structure.
        options: Requested outputs.
        matrices: `predicted`, and `reference` if the data have it.

    Returns:
        Figures for the screen.
    """
    summary: dict[str, Any] = {}
    if options.levels is not None:
        summary |= _write_levels(group.create_group("levels"), options.levels, matrices)
    if options.density_of_states is not None:
        _write_density(group.create_group("density"), options.density_of_states, matrices)
    if options.bands is not None:
        summary |= _write_bands(group.create_group("bands"), options.bands, matrices)
    return summary


def _write_levels(group: h5py.Group, options: Levels, matrices: Matrices) -> dict[str, Any]:
    energies = {}
    for name, matrix in matrices.items():
        if options.energy is None:
            energies[name] = compute_levels(matrix)
        else:
            energies[name] = compute_levels_near(matrix, options.energy, options.count)
        group.create_dataset(name, data=energies[name])
    # The levels nearest to an energy may differ between the two.
    return _compute_error("levels_mae_eV", energies) if options.energy is None else {}


def _write_density(group: h5py.Group, options: DensityOfStates, matrices: Matrices) -> None:
    points = monkhorst_pack(options.k_points)
    energies = {name: compute_levels(matrix, points) for name, matrix in matrices.items()}
    margin = 5 * options.width
    low = min(own.min() for own in energies.values()) - margin
    high = max(own.max() for own in energies.values()) + margin
    grid = np.linspace(low, high, options.points)
    group.create_dataset("energy", data=grid)
    for name, own in energies.items():
        group.create_dataset(name, data=compute_density_of_states(own, grid, options.width))


def _write_bands(group: h5py.Group, options: Bands, matrices: Matrices) -> dict[str, Any]:
    path = make_band_path(matrices["predicted"], options.points, options.path)
    x, ticks, labels = path.get_linear_kpoint_axis()
    for name, values in (("k", path.kpts), ("x", x), ("ticks", ticks)):
        group.create_dataset(name, data=values)
    group.attrs["labels"] = labels
    energies = {name: compute_levels(matrix, path.kpts) for name, matrix in matrices.items()}
    for name, own in energies.items():
        group.create_dataset(name, data=own)
    return _compute_error("bands_mae_eV", energies)


def _compute_error(name: str, energies: Mapping[str, Floats]) -> dict[str, Any]:
    if "reference" not in energies:
        return {}
    return {name: float(np.abs(energies["predicted"] - energies["reference"]).mean())}
