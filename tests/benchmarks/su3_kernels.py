"""Kernels of SU(3) against torch.linalg, alternated on the same matrices.

    python tests/benchmarks/su3_kernels.py [--device cuda] [--n 16384] [--dtypes complex128] ...

| case                       | ours           | peer                                               |
|----------------------------|----------------|----------------------------------------------------|
| eigenangles with gradient  | `eigenangles`  | angles of the eigenvalues of `torch.linalg.eig`    |
| polar projection           | `polar`        | `U Vh` of `torch.linalg.svd`                       |
| spectral map               | `spectral_map` | the same by `torch.linalg.eig` and plain PyTorch   |
| spectral map with gradient | `spectral_map` | as before, differentiated by autograd              |

Matrices are drawn from the Haar measure, those to project from normal numbers, parameters of the
splines (8 bins) too. The last line printed is one JSON object, with a list for each figure: one
entry a case. Times are the smallest of all repeats. `difference` is the largest between a result of
ours and of the peer, which calculates in the type of the matrices, ours in double. `roofline_share`
is the time that a copy of as many bytes takes on this machine, over ours; only bytes that must move
count: each input read once, each output written once.
"""

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

import numba
import torch
from message_ops import copy_bandwidth, name_hardware, time_fastest
from torch import Tensor

from pipeline_kernels.su3 import draw_haar, eigenangles, polar, spectral_map
from pipeline_kernels.su3.splines import MIN_SLOPE, MIN_WIDTH

DTYPES = {"complex128": torch.complex128, "complex64": torch.complex64}
BINS = 8
TURN = 2 * math.pi


def compute_eig_angles(U: Tensor) -> tuple[Tensor, Tensor]:
    """Return angles in the canonical cell, and eigenvectors."""
    values, vectors = torch.linalg.eig(U)
    angles, order = values.angle().double().sort(-1, descending=True)
    vectors = torch.take_along_dim(vectors, order[:, None, :], -1)
    turns = (angles.sum(-1, keepdim=True) / TURN).round().long()
    # One turn less for the first where the sum is a turn, one more for the last where minus one.
    place = torch.arange(3, device=U.device)
    shift = ((turns < 0) & (place == 2)).double() - ((turns > 0) & (place == 0)).double()
    angles = angles + TURN * shift
    rolled = torch.remainder(place + turns, 3)
    return angles.gather(-1, rolled), torch.take_along_dim(vectors, rolled[:, None, :], -1)


def apply_plain_spline(x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Return a rational-quadratic spline and its slope (Durkan et al., arXiv:1906.04032, eq. 4)."""
    widths, heights = (
        MIN_WIDTH + (1 - BINS * MIN_WIDTH) * parameters[:, part].softmax(-1)
        for part in (slice(BINS), slice(BINS, 2 * BINS))
    )
    shift = math.log(math.expm1(1 - MIN_SLOPE))
    slopes = MIN_SLOPE + torch.nn.functional.softplus(parameters[:, 2 * BINS :] + shift)
    starts, ends = widths.cumsum(-1) - widths, heights.cumsum(-1) - heights
    k = (starts[:, 1:] <= x[:, None]).sum(-1, keepdim=True)
    X, Y, w, h, left, right = (
        y.gather(-1, k)[:, 0] for y in (starts, ends, widths, heights, slopes, slopes[:, 1:])
    )
    s, xi = h / w, (x - X) / w
    eta = 1 - xi
    D = s + (left + right - 2 * s) * xi * eta
    y = Y + h * (s * xi**2 + left * xi * eta) / D
    return y, s**2 * (right * xi**2 + 2 * s * xi * eta + left * eta**2) / D**2


def apply_eig_map(L: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Return W and log-determinants of the spectral map by eigenvectors."""
    angles, vectors = compute_eig_angles(L)
    a, b = angles[:, 0] - angles[:, 1], angles[:, 1] - angles[:, 2]
    s, r = (a + b) / TURN, a / (a + b)
    s_new, s_slope = apply_plain_spline(s, parameters[:, 0])
    r_new, r_slope = apply_plain_spline(r, parameters[:, 1])
    a_new, b_new = TURN * s_new * r_new, TURN * s_new * (1 - r_new)
    moved = torch.stack([2 * a_new + b_new, b_new - a_new, -a_new - 2 * b_new], -1) / 3
    W = (vectors * torch.exp(1j * (moved - angles)).to(L.dtype)[:, None, :]) @ vectors.mH
    log_det = (s_slope * r_slope * s_new / s).log()
    for old, new in ((a, a_new), (b, b_new), (a + b, a_new + b_new)):
        log_det = log_det + 2 * ((new / 2).sin() / (old / 2).sin()).log()
    return W, log_det


def project_by_svd(M: Tensor) -> Tensor:
    """Return the unitary factor by singular values."""
    U, _, Vh = torch.linalg.svd(M)
    return U @ Vh


def iterate_cases(n: int, dtype: torch.dtype, device: str) -> list[dict[str, Any]]:
    """Pairs of functions, ours and torch's, with the bytes that each must move."""
    generator = torch.Generator(device).manual_seed(0)
    U = draw_haar(n, 3, generator, dtype)
    M = torch.randn(n, 3, 3, generator=generator, dtype=dtype, device=device)
    sizes = (n, 2, 3 * BINS + 1)
    parameters = torch.randn(sizes, generator=generator, dtype=torch.float64, device=device)
    weights = torch.randn(n, 3, generator=generator, dtype=torch.float64, device=device)
    by_W, by_log_det = torch.randn_like(U), torch.randn_like(weights[:, 0])
    leaves = [U.clone().requires_grad_(), parameters.clone().requires_grad_()]

    def angles(function: Callable) -> Callable:
        def gradient() -> list[Tensor]:
            result = function(leaves[0])
            return [result.detach(), *torch.autograd.grad(result, leaves[0], weights)]

        return gradient

    def mapped(function: Callable) -> Callable:
        def gradient() -> tuple[Tensor, ...]:
            return torch.autograd.grad(function(*leaves), leaves, (by_W, by_log_det))

        return gradient

    rows, sizes = U.nbytes, parameters.nbytes
    return [
        {
            "case": "eigenangles with gradient",
            "ours": angles(eigenangles),
            "peer": angles(lambda U: compute_eig_angles(U)[0]),
            "by": U,
            "bytes": 3 * rows + 2 * weights.nbytes,
        },
        {
            "case": "polar projection",
            "ours": lambda: [polar(M)],
            "peer": lambda: [project_by_svd(M)],
            "bytes": 2 * rows,
        },
        {
            "case": "spectral map",
            "ours": lambda: spectral_map(U, parameters),
            "peer": lambda: apply_eig_map(U, parameters),
            "bytes": 2 * rows + sizes + by_log_det.nbytes,
        },
        {
            "case": "spectral map with gradient",
            "ours": mapped(spectral_map),
            "peer": mapped(apply_eig_map),
            "by": U,
            "bytes": 5 * rows + 3 * sizes + 2 * by_log_det.nbytes,
        },
    ]


def measure_difference(ours: Any, theirs: Any, U: Tensor | None) -> float:
    """Return the largest difference of any two numbers, over the largest number or one.

    Of derivatives by special unitary matrices it counts what is tangent to the group: the rest
    depends on how a function is continued beyond it.
    """
    pairs = [[project_to_tangent(x, U) for x in pair] for pair in zip(ours, theirs, strict=True)]
    return max(float((x - y).abs().max() / max(1.0, float(y.abs().max()))) for x, y in pairs)


def project_to_tangent(x: Tensor, U: Tensor | None) -> Tensor:
    """Return the part along the group at U, traceless, of derivatives by U; other numbers as is."""
    if U is None or x.shape != U.shape:
        return x
    x = U.mH @ x
    x = (x - x.mH) / 2
    trace = x.diagonal(dim1=-2, dim2=-1).mean(-1)
    return x - trace[:, None, None] * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def measure(case: dict[str, Any], args: argparse.Namespace, bandwidth: float) -> dict[str, Any]:
    """Time both sides of one case in turn."""
    apart = measure_difference(case["ours"](), case["peer"](), case.get("by"))
    ours_s, peer_s = time_fastest([case["ours"], case["peer"]], args.device, args.repeats)
    return {
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "ns_per_matrix": 1e9 * ours_s / args.n,
        "peer_ns_per_matrix": 1e9 * peer_s / args.n,
        "roofline_share": case["bytes"] / bandwidth / ours_s,
        "difference": apart,
    }


def main() -> None:
    """Measure all cases and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtypes", nargs="+", choices=[*DTYPES], default=[*DTYPES])
    parser.add_argument("--n", type=int, default=16_384)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    bandwidth = copy_bandwidth(args.device, args.repeats)
    rows = {}
    for name in args.dtypes:
        for case in iterate_cases(args.n, DTYPES[name], args.device):
            rows[f"{case['case']}, {name}"] = row = measure(case, args, bandwidth)
            print(f"{case['case']}, {name}: {row['ns_per_matrix']:.0f} ns, {row['ratio']:.1f} x")
    keys = next(iter(rows.values())).keys()
    report = {
        "name": "su3_kernels",
        "cases": list(rows),
        "peer": "torch.linalg.eig, torch.linalg.svd",
        **{key: [row[key] for row in rows.values()] for key in keys},
        "copy_bytes_per_s": bandwidth,
        "n": args.n,
        "repeats": args.repeats,
        "device": args.device,
        "threads": torch.get_num_threads(),
        "hardware": name_hardware(args.device),
        "versions": {"torch": torch.__version__, "numba": numba.__version__},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
