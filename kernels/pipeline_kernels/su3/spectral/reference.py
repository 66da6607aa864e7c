"""The spectral map in plain PyTorch, by the formulas of `op.spectral_map`."""

import torch
from torch import Tensor

from pipeline_kernels.su3.spectral.decomposition import TURN, decompose
from pipeline_kernels.su3.splines import Spline, evaluate_spline

TINY = 1e-30  # keeps the box coordinates of coinciding angles defined
SMALL = 0.03  # below: series of the logarithm of sin(x / 2) / (x / 2)


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Return W `(n, N, N)`, with the new matrices W L, and log-determinants `(n,)`."""
    angles, projectors = decompose(L)
    gaps = _compute_gaps(angles)
    box = _compute_box(gaps)
    splines = [evaluate_spline(*pair, parameters[:, i], inverse) for i, pair in enumerate(box)]
    growths = _compute_growths(splines)
    changes = gaps[:, :-1] * growths[:, :-1]
    moved = _sum_gaps(changes)
    phases = torch.polar(torch.ones_like(moved), moved) - 1
    one = torch.eye(L.shape[-1], dtype=torch.complex128, device=L.device)
    W = one + torch.einsum("nk,nkij->nij", phases, projectors)
    by_box = torch.stack([s.slope for s in splines]).log().sum(0)
    if len(splines) == 2:
        by_box = by_box + torch.log1p(splines[0].low)
    return W.to(L.dtype), by_box + 2 * _sum_log_sines(gaps, growths)


def spectral_gradient(
    L: Tensor, parameters: Tensor, by_W: Tensor, by_log_det: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Return the derivatives by L and parameters of `Re <by_W, W> + <by_log_det, log det>`.

    Itself differentiable by all arguments, any number of times.
    """
    # Unlike torch.autograd.grad it also works inside an operator, below automatic differentiation.
    pull = torch.func.vjp(lambda *x: spectral_map(x[0], x[1], inverse), L, parameters)[1]
    by_L, by_parameters = pull((by_W, by_log_det))
    return by_L, by_parameters


def _compute_gaps(angles: Tensor) -> Tensor:
    """Return the distances of neighbours on the circle, `(n, 2)` or `(n, 3)`."""
    inner = -angles.diff(dim=-1)
    outer = TURN - (angles[:, :1] - angles[:, -1:])
    return torch.cat([inner, outer], -1).clamp(min=TINY)


def _compute_box(gaps: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return box coordinates in [0, 1], each with its distance from 1."""
    if gaps.shape[1] == 2:
        return [(gaps[:, 0] / TURN, gaps[:, 1] / TURN)]
    a, b, c = gaps.unbind(-1)
    return [((a + b) / TURN, c / TURN), (a / (a + b), b / (a + b))]


def _compute_growths(splines: list[Spline]) -> Tensor:
    """Return the relative growth of each gap."""
    if len(splines) == 1:
        return torch.stack([splines[0].low, splines[0].high], -1)
    s, r = splines
    a, b = (s.low + inner + s.low * inner for inner in (r.low, r.high))
    return torch.stack([a, b, s.high], -1)


def _sum_gaps(gaps: Tensor) -> Tensor:
    """Return angles whose sum is zero from the differences of consecutive ones."""
    if gaps.shape[1] == 1:
        return torch.cat([gaps, -gaps], -1) / 2
    a, b = gaps.unbind(-1)
    return torch.stack([2 * a + b, b - a, -a - 2 * b], -1) / 3


def _sum_log_sines(gaps: Tensor, growths: Tensor) -> Tensor:
    """Return the sum over pairs of the logarithm of `sin(gap' / 2) / sin(gap / 2)`."""
    n_pairs = gaps.shape[1] * (gaps.shape[1] - 1) // 2
    # The sine of a gap above pi is that of all others together, whose digits are not lost.
    rest = _sum_others(gaps)
    rest_growth = _sum_others(gaps * growths) / rest
    wide = gaps > torch.pi
    arc, growth = torch.where(wide, rest, gaps), torch.where(wide, rest_growth, growths)
    logs = growth.log1p() + _log_sinc(arc * (1 + growth)) - _log_sinc(arc)
    return logs[:, :n_pairs].sum(-1)


def _sum_others(gaps: Tensor) -> Tensor:
    if gaps.shape[1] == 2:
        return gaps.flip(-1)
    a, b, c = gaps.unbind(-1)
    return torch.stack([b + c, c + a, a + b], -1)


def _log_sinc(x: Tensor) -> Tensor:
    """Return the logarithm of `sin(x / 2) / (x / 2)`."""
    small = x < SMALL
    square = x * x
    series = -square / 24 * (1 + square / 120 * (1 + square * (2 / 63)))
    half = torch.where(small, 1, x) / 2
    return torch.where(small, series, (half.sin() / half).log())
