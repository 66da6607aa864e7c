"""The spectral map on the CPU: C, with matrices as lanes of vectors."""

from torch import Tensor

from pipeline_kernels.su3 import lanes
from pipeline_kernels.su3.splines import count_bins


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Implement `reference.spectral_map`."""
    W, log_det = L.new_empty(L.shape), parameters.new_empty(L.shape[0])
    arrays = [L, parameters, W, log_det]
    n_bins = count_bins(parameters.shape[2])
    lanes.run_matrices("spectral", "spectral_map", arrays, n_bins, inverse)
    return W, log_det


def spectral_gradient(
    L: Tensor, parameters: Tensor, by_W: Tensor, by_log_det: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Implement `reference.spectral_gradient`."""
    by_L, by_parameters = L.new_empty(L.shape), parameters.new_empty(parameters.shape)
    arrays = [L, parameters, by_W, by_log_det, by_L, by_parameters]
    n_bins = count_bins(parameters.shape[2])
    lanes.run_matrices("spectral", "spectral_gradient", arrays, n_bins, inverse)
    return by_L, by_parameters
