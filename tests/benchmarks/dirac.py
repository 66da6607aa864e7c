"""Wilson's operator against plain PyTorch, and against qcd_ml where there is one, in turn.

    python tests/benchmarks/dirac.py [--threads 1] [--repeats 20] [--qcd-ml PYTHON]

| case                    | lattice, right-hand sides | call                                       |
|-------------------------|---------------------------|--------------------------------------------|
| operator                | 8^4, 12 and 4^4, 1        | M psi, of prepared links, SU(3)            |
| derivative              | the same                  | of Re(chi^dagger M psi) by the links       |

The peer is the faster of two ways to write the operator in plain PyTorch (`_dirac_plain.py`); for
the derivative, its own backward pass, forward included. Each side has the order of numbers that it
likes best, prepared links, and the same threads.

`gflops` counts 1320 operations a site and right-hand side for the hops and 48 for the rest, as is
usual. `roofline_share` is the time that this machine needs at least, over ours: for as many
operations at the rate of a large product of real matrices of this precision, or for a copy of as
many bytes (spinors read and written once, links read once), whichever takes longer.

`--qcd-ml` names the Python of an environment that has qcd_ml, which is not on PyPI:
`pip install git+https://github.com/daknuett/qcd_ml`. It calculates in double precision, with a
periodic boundary, one right-hand side after the other; `qcd_ml_ratio` is its time over ours for the
operator. The last line printed is one JSON object, with a list for each figure: one entry a case.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _dirac_plain import AllAtOnce, DirectionByDirection, order_plain
from _sides import Side
from message_ops import copy_bandwidth, name_hardware, time_fastest
from torch import Tensor

from pipeline_kernels.dirac import DiracOperator
from pipeline_kernels.dirac.reference import make_gammas
from pipeline_kernels.su3 import draw_haar

DTYPES = {"complex64": torch.complex64, "complex128": torch.complex128}
SIZES = (((8, 8, 8, 8), 12), ((4, 4, 4, 4), 1))
KAPPA = 0.125
FLOPS = 1320 + 48  # a site and right-hand side
PERIODIC = (1, 1, 1, 1)

Call = Callable[[], Any]


def draw_case(extents: tuple[int, ...], n_rhs: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return links and two fields of spinors."""
    generator = torch.Generator().manual_seed(0)
    V = int(np.prod(extents))
    links = draw_haar(4 * V, 3, generator, torch.complex128).reshape(1, 4, V, 3, 3)
    psi, chi = torch.randn(2, 1, n_rhs, V, 4, 3, generator=generator, dtype=torch.complex128)
    return links.to(dtype), psi.to(dtype), chi.to(dtype)


def measure_limits(repeats: int) -> dict[torch.dtype, float]:
    """Return operations a second of a product of real matrices, by the type of complex numbers."""
    rates = {}
    for dtype in DTYPES.values():
        a = torch.rand(1024, 1024, dtype=dtype.to_real())
        rates[dtype] = 2 * 1024**3 / time_fastest([lambda a=a: a @ a], "cpu", repeats)[0]
    return rates


def measure_size(
    extents: tuple[int, ...], n_rhs: int, dtype: torch.dtype, args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Time both sides of both cases in turn."""
    links, psi, chi = draw_case(extents, n_rhs, dtype)
    operator = DiracOperator(links, extents, KAPPA, boundary=PERIODIC)
    plain = [kind(links, extents, KAPPA, PERIODIC) for kind in (DirectionByDirection, AllAtOnce)]
    ordered = order_plain(psi)
    expected = order_plain(operator.apply(psi))
    difference = max(float((way(ordered) - expected).abs().max()) for way in plain)
    calls: list[Call] = [lambda: operator.apply(psi), *(lambda w=w: w(ordered) for w in plain)]
    ours, *peers = time_fastest(calls, "cpu", args.repeats)
    best = plain[peers.index(min(peers))]
    slope = time_fastest(
        [
            lambda: operator.differentiate(chi, psi),
            lambda: differentiate_plain(type(best), links, extents, ordered, order_plain(chi)),
        ],
        "cpu",
        args.repeats,
    )
    flops = FLOPS * psi.shape[2] * n_rhs
    n_bytes = 2 * psi.nbytes + links.nbytes
    least = max(flops / args.rates[dtype], n_bytes / args.bandwidth)
    label = f"{extents[0]}^4, {n_rhs} right-hand sides, {str(dtype).removeprefix('torch.')}"
    return {
        f"operator, {label}": {
            "ours_s": ours,
            "peer_s": min(peers),
            "ratio": min(peers) / ours,
            "gflops": flops / ours / 1e9,
            "roofline_share": least / ours,
            "difference": difference,
            "qcd_ml_ratio": measure_qcd_ml(links, psi, extents, ours, operator, args),
        },
        f"derivative, {label}": {
            "ours_s": slope[0],
            "peer_s": slope[1],
            "ratio": slope[1] / slope[0],
            "gflops": None,
            "roofline_share": None,
            "difference": None,
            "qcd_ml_ratio": None,
        },
    }


def differentiate_plain(
    kind: type, links: Tensor, extents: tuple[int, ...], psi: Tensor, chi: Tensor
) -> Tensor:
    """Return the derivative of Re(chi^dagger M psi) by autograd."""
    leaf = links.detach().requires_grad_()
    value = torch.view_as_real(kind(leaf, extents, KAPPA, PERIODIC)(psi))
    return torch.autograd.grad((value * torch.view_as_real(chi)).sum(), leaf)[0]


def measure_qcd_ml(
    links: Tensor,
    psi: Tensor,
    extents: tuple[int, ...],
    ours_s: float,
    operator: DiracOperator,
    args: argparse.Namespace,
) -> float | None:
    """Return the time of qcd_ml over ours, in double precision."""
    if args.qcd_ml is None or links.dtype != torch.complex128:
        return None
    gammas, _ = make_gammas(4, links.device)
    with (
        tempfile.TemporaryDirectory() as folder,
        Side(Path(args.qcd_ml), "_dirac_qcd_ml", args.threads, {}) as side,
    ):
        file = Path(folder) / "case.npz"
        arrays = {"links": links[0], "psi": psi[0], "gammas": gammas}
        np.savez(file, **{name: x.numpy() for name, x in arrays.items()})
        side.ask("make", "Operator", str(file), {"extents": extents, "kappa": KAPPA})
        seconds = min(side.ask("seconds", "operator") for _ in range(max(3, args.repeats // 4)))
        side.ask("result", str(file))
        with np.load(file) as result:
            theirs = torch.tensor(result["psi"])
        apart = float((theirs - operator.apply(psi)[0]).abs().max())
        if not apart < 1e-10:
            raise RuntimeError(f"qcd_ml does not compute the same: {apart}")
    return seconds / ours_s


def main() -> None:
    """Measure all cases and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--qcd-ml", help="Python of an environment that has qcd_ml")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.rates, args.bandwidth = measure_limits(args.repeats), copy_bandwidth("cpu", args.repeats)
    rows: dict[str, dict[str, Any]] = {}
    for extents, n_rhs in SIZES:
        for dtype in DTYPES.values():
            rows |= measure_size(extents, n_rhs, dtype, args)
    for name, row in rows.items():
        print(f"{name}: {1e6 * row['ours_s']:.0f} us, {row['ratio']:.1f} x, {row['gflops']}")
    keys = next(iter(rows.values())).keys()
    report = {
        "name": "dirac",
        "cases": list(rows),
        "peer": "plain PyTorch",
        **{key: [row[key] for row in rows.values()] for key in keys},
        "copy_bytes_per_s": args.bandwidth,
        "flops_per_s": {str(dtype): rate for dtype, rate in args.rates.items()},
        "repeats": args.repeats,
        "threads": args.threads,
        "hardware": name_hardware("cpu"),
        "versions": {"torch": torch.__version__},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
