"""Kernels of SU(3) against torch.linalg, alternated on the same matrices.

    python tests/benchmarks/su3_kernels.py [--device cuda] [--n 16384 131072] [--repeats 5] ...

| case                       | ours            | peer                                              |
|----------------------------|-----------------|---------------------------------------------------|
| projection                 | `project`       | `torch.linalg.svd`, over the root of `det`        |
| spectral map               | `spectral_map`  | the same by `torch.linalg.eig` and plain PyTorch  |
| exponential                | `exponential`   | `torch.matrix_exp`                                |
| residual step              | `residual_step` | the same with `torch.linalg.slogdet`              |
| products along paths       | `path_products` | products of gathered links                        |
| layer of staples           | `staple_layer`  | the same, and `torch.einsum`                      |

With gradient: value and derivative, that of the peer by autograd. Matrices are drawn from the Haar
measure, those to project from normal numbers, parameters of the splines (8 bins) too; the lattice
has 4^4 sites, six staples for each link of one direction and parity, and eight channels. The last
line printed is one JSON object, with a list for each figure: one entry a case. `difference` is the
largest between a result of ours and of the peer, which calculates in the type of the matrices, ours
of single matrices in double. Both sides have what the commands give to whatever they run: memory
that is freed is kept, and threads of OpenMP that have nothing to do leave the cores to others at
once.

The sides take turns, each with some calls in a row, as a model makes them. Times are the smallest
of all repeats: `ours_s` and `peer_s` of any call but the first in a row, `ours_after_peer_s` of
the first. That one finds its data, its code and that of Python outside the caches. Of 16,384
matrices all stays in the caches of most processors, of 131,072 it does not.

`roofline_share` is the least time that this machine could take, over ours: the time that a copy
takes, in calls in a row too, of as many bytes, of which only those count that must move (each
kernel reads each input once and writes each output once), or if that is longer the time that as
many operations (`su3/operations.py`) take at the rate of a large product of matrices by torch, of
the type in which the kernel calculates, in as many threads. `share_after_peer` is the same for the
first call after the peer. Rates are measured before each case; the best of the run count.
`peak_gflops` is what multiply-adds in registers reach (`harness/peak.py`).
"""

import pipeline_core.cli  # noqa: F401  first: it says how OpenMP's threads wait

# isort: split

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.command import make_parser, read_arguments
from harness.peak import measure_peak
from harness.report import collect_columns, print_report, read_versions
from harness.timing import time_call, time_fastest
from pipeline_core.system.memory import keep_freed_memory
from subjects.su3.cases import Case, iterate_cases

DTYPES = {"complex128": torch.complex128, "complex64": torch.complex64}
PRODUCT_SIZES = (384, 512, 1024)
CALLS, ROW_S = 3, 0.02  # in a row, at least


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


class Limits:
    """What this machine can do: bytes copied and operations of large products a second.

    Args:
        device: Where.
        repeats: Of each measurement.

    Attributes:
        copies: For each number of bytes read and written the least time so far, s.
        rates: For each type the best one so far.
    """

    def __init__(self, device: str, repeats: int) -> None:
        self.device, self.repeats = device, repeats
        self.copies: dict[float, float] = {}
        self.rates = dict.fromkeys((torch.float64, torch.float32), 0.0)
        self._products = [
            torch.rand(size, size, dtype=dtype, device=device)
            for dtype in self.rates
            for size in PRODUCT_SIZES
        ]

    def measure(self, case: Case) -> None:
        """Measure once more: others may compute on this machine, now or before."""
        # Ones: pages of zeros that nobody has written are one page, in the caches.
        source = torch.ones(int(case.bytes // 2), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        copy_s = time_rows([lambda: target.copy_(source)], self.device, self.repeats)[0].row_s
        self.copies[case.bytes] = min(copy_s, self.copies.get(case.bytes, copy_s))
        calls = [lambda a=a: a @ a for a in self._products]
        times = time_fastest(calls, self.device, self.repeats)
        for a, seconds in zip(self._products, times, strict=True):
            self.rates[a.dtype] = max(self.rates[a.dtype], 2 * len(a) ** 3 / seconds)

    def find(self, case: Case) -> tuple[float, str]:
        """Return the least time for a case, s, and what it goes to."""
        compute_s = case.operations / self.rates[case.dtype]
        return max((self.copies[case.bytes], "bytes"), (compute_s, "operations"))


class Times(NamedTuple):
    """Smallest times of a function, s.

    Attributes:
        first_s: Of the first call in a row.
        row_s: Of the others.
    """

    first_s: float
    row_s: float


def time_rows(functions: Sequence[Callable[[], Any]], device: str, repeats: int) -> list[Times]:
    """Time functions that take turns, each with several calls in a row; the first turn compiles."""
    rows = [[time_row(function, device) for function in functions] for _ in range(repeats + 1)]
    return [
        Times(min(row[0] for row in turns[1:]), min(min(row[1:]) for row in turns[1:]))
        for turns in zip(*rows, strict=True)
    ]


def time_row(function: Callable[[], Any], device: str) -> list[float]:
    """Return the times of so many calls in a row."""
    times: list[float] = []
    while len(times) < CALLS or sum(times) < ROW_S:
        times.append(time_call(function, device))
    return times


def measure(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Time both sides of one case in turn."""
    apart = measure_difference(case.ours(), case.peer(), case.at)
    ours, peer = time_rows([case.ours, case.peer], args.device, args.repeats)
    return {
        "ours_s": ours.row_s,
        "peer_s": peer.row_s,
        "ratio": peer.row_s / ours.row_s,
        "ours_after_peer_s": ours.first_s,
        "ns_per_matrix": 1e9 * ours.row_s / case.matrices,
        "peer_ns_per_matrix": 1e9 * peer.row_s / case.matrices,
        "bytes_per_matrix": case.bytes / case.matrices,
        "operations_per_matrix": case.operations / case.matrices,
        "difference": apart,
    }


def main() -> None:
    """Measure all cases and print the report."""
    parser = make_parser(__doc__, repeats=3, device=True)
    parser.add_argument("--dtypes", nargs="+", choices=[*DTYPES], default=[*DTYPES])
    parser.add_argument(
        "--n", type=int, nargs="+", default=[16_384, 131_072], help="multiples of 1024"
    )
    args = read_arguments(parser, {"n": [1024], "dtypes": ["complex64"], "repeats": 1})
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    limits, rows = Limits(args.device, args.repeats), {}
    cases = [
        (f"{case.name}, {name}, {n}", case)
        for n in args.n
        for name in args.dtypes
        for case in iterate_cases(n, DTYPES[name], args.device)
    ]
    for name, case in cases:
        limits.measure(case)
        rows[name] = measure(case, args)
    for name, case in cases:
        row, (least_s, by) = rows[name], limits.find(case)
        row |= {
            "roofline_share": least_s / row["ours_s"],
            "share_after_peer": least_s / row["ours_after_peer_s"],
            "limited_by": by,
            "copy_bytes_per_s": case.bytes / limits.copies[case.bytes],
        }
        print(f"{name}: {row['ns_per_matrix']:.0f} ns, {row['roofline_share']:.2f} by {by}")
    figures = {
        "cases": list(rows),
        "peer": "torch.linalg and plain PyTorch",
        **collect_columns([*rows.values()]),
        "double_flop_per_s": limits.rates[torch.float64],
        "single_flop_per_s": limits.rates[torch.float32],
        "repeats": args.repeats,
        "device": args.device,
        "peak_gflops": {str(dtype): measure_peak(dtype, args.threads) for dtype in limits.rates}
        if args.device == "cpu"
        else None,
    }
    versions = read_versions("torch", "numba")
    print_report(
        "su3_kernels", figures, threads=args.threads, versions=versions, device=args.device
    )


if __name__ == "__main__":
    main()
