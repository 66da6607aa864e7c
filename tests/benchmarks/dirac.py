"""Wilson's operator against plain PyTorch, and against qcd_ml where there is one, in turn.

    python tests/benchmarks/dirac.py [--threads 1] [--repeats 20] [--qcd-ml PYTHON]

| case                    | lattice, right-hand sides | call                                       |
|-------------------------|---------------------------|--------------------------------------------|
| operator                | 8^4, 12 and 4^4, 1        | M psi, of prepared links, SU(3)            |
| derivative              | the same                  | of Re(chi^dagger M psi) by the links       |

| figure         | time over ours                                                              |
|----------------|-----------------------------------------------------------------------------|
| `ratio`        | of the formula in plain PyTorch, which also runs where there is no C        |
| `tuned_ratio`  | of the faster of two ways to write it in PyTorch for speed: half spinors,   |
|                | prepared links, the order of numbers that suits it (`dirac/plain.py`)      |
| `qcd_ml_ratio` | of qcd_ml                                                                   |

The peers' derivative is their own backward pass, forward included. All have the same threads. On
4^4 a call is one of many in a row, as a solver makes them.

`gflops` counts 1320 operations a site and right-hand side for the hops and 48 for the rest, as is
usual. `roofline_share` is the time that this machine needs at least, over ours: for as many
operations at the best rate of a product of real matrices of this precision, or for a copy of as
many bytes (spinors read and written once, links read once), whichever takes longer.

`--qcd-ml` names the Python of an environment that has qcd_ml, which is not on PyPI:
`pip install git+https://github.com/daknuett/qcd_ml`. It calculates in double precision, with a
periodic boundary, one right-hand side after the other. The last line printed is one JSON object,
with a list for each figure: one entry a case.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.command import make_parser, read_arguments
from harness.report import collect_columns, print_report, read_versions, show
from harness.sides import Place, open_sides
from harness.timing import measure_copy, time_fastest
from pipeline_kernels.dirac import DiracOperator, reference
from pipeline_kernels.dirac.geometry import ALL
from pipeline_kernels.dirac.op import gather_gradient
from pipeline_kernels.dirac.reference import make_gammas
from pipeline_kernels.su3 import draw_haar
from subjects.dirac.plain import AllAtOnce, DirectionByDirection, order_plain

DTYPES = {"complex64": torch.complex64, "complex128": torch.complex128}
SIZES = (((8, 8, 8, 8), 12), ((4, 4, 4, 4), 1))
PRODUCTS = (256, 512, 1024)  # rows of the matrices whose product gives the rate of the machine
TUNED = (DirectionByDirection, AllAtOnce)
KAPPA = 0.125
FLOPS = 1320 + 48  # a site and right-hand side
PERIODIC = (1, 1, 1, 1)

Call = Callable[[], Any]
SMALL = 100_000  # numbers of spinors
MANY = 20  # calls in a row, of a small lattice


def draw_fields(extents: tuple[int, ...], n_rhs: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
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
        products = [torch.rand(n, n, dtype=dtype.to_real()) for n in PRODUCTS]
        seconds = time_fastest([lambda a=a: a @ a for a in products], "cpu", repeats)
        rates[dtype] = max(2 * n**3 / s for n, s in zip(PRODUCTS, seconds, strict=True))
    return rates


class Case(NamedTuple):
    """A lattice of a precision, and what the operator has there.

    Attributes:
        extents: Of the lattice.
        links: (1, 4, V, 3, 3).
        psi: (1, n_rhs, V, 4, 3).
        chi: Of the same shape.
    """

    extents: tuple[int, ...]
    links: Tensor
    psi: Tensor
    chi: Tensor

    @property
    def label(self) -> str:
        """Its name in the report."""
        type_name = str(self.psi.dtype).removeprefix("torch.")
        return f"{self.extents[0]}^4, {self.psi.shape[1]} right-hand sides, {type_name}"


def time_calls(calls: Sequence[Call], case: Case, repeats: int) -> list[float]:
    """Return the smallest time of each call, in turn."""
    n = 1 if case.psi.numel() > SMALL else MANY
    rows = [lambda call=call: [call() for _ in range(n)] for call in calls]
    return [seconds / n for seconds in time_fastest(rows, "cpu", repeats)]


def apply_formula(case: Case, links: Tensor) -> Tensor:
    """Return M psi by the formula."""
    factors, where = (-KAPPA, 0.0, 1.0, 0.0), (case.extents, PERIODIC, ALL, False)
    return reference.combine_hops(case.psi, case.psi, links, None, factors, *where)


def differentiate_by_torch(apply: Callable[[Tensor], Tensor], links: Tensor, chi: Tensor) -> Tensor:
    """Return the derivative of Re(chi^dagger M psi) by autograd."""
    leaf = links.detach().requires_grad_()
    value = torch.view_as_real(apply(leaf)) * torch.view_as_real(chi)
    return torch.autograd.grad(value.sum(), leaf)[0]


def measure_operator(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Time the operator on all sides in turn."""
    operator = DiracOperator(case.links, case.extents, KAPPA, boundary=PERIODIC)
    tuned = [kind(case.links, case.extents, KAPPA, PERIODIC) for kind in TUNED]
    ordered, result = order_plain(case.psi), operator.apply(case.psi)
    apart = [(way(ordered) - order_plain(result)).abs().max() for way in tuned]
    apart.append((apply_formula(case, case.links) - result).abs().max())
    calls: list[Call] = [lambda: operator.apply(case.psi), *(lambda w=w: w(ordered) for w in tuned)]
    ours, *others = time_calls(calls, case, args.repeats)
    slow = [calls[0], lambda: apply_formula(case, case.links)]
    again, formula = time_calls(slow, case, max(3, args.repeats // 4))
    ours = min(ours, again)
    flops = FLOPS * case.psi[..., 0, 0].numel()
    n_bytes = 2 * case.psi.nbytes + case.links.nbytes
    least = max(flops / args.rates[case.psi.dtype], n_bytes / args.bandwidth)
    return {
        "ours_s": ours,
        "peer_s": formula,
        "ratio": formula / ours,
        "tuned_ratio": min(others) / ours,
        "qcd_ml_ratio": measure_qcd_ml(case, ours, operator, args),
        "gflops": flops / ours / 1e9,
        "roofline_share": least / ours,
        "difference": float(max(apart)),
    }


def measure_derivative(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Time the derivative by links on all sides in turn."""
    operator = DiracOperator(case.links, case.extents, KAPPA, boundary=PERIODIC)
    ordered, weights = order_plain(case.psi), order_plain(case.chi)
    tables = [*operator.extents], [*operator.boundary]

    def differentiate_tuned(kind: type) -> Tensor:
        make = lambda links: kind(links, case.extents, KAPPA, PERIODIC)  # noqa: E731
        return differentiate_by_torch(lambda links: make(links)(ordered), case.links, weights)

    calls: list[Call] = [
        lambda: -KAPPA * gather_gradient(case.chi, case.psi, *tables, ALL, False),
        lambda: differentiate_by_torch(partial(apply_formula, case), case.links, case.chi),
        *(partial(differentiate_tuned, kind) for kind in TUNED),
    ]
    expected, *results = (call() for call in calls)
    ours, formula, *others = time_calls(calls, case, max(3, args.repeats // 4))
    return {
        "ours_s": ours,
        "peer_s": formula,
        "ratio": formula / ours,
        "tuned_ratio": min(others) / ours,
        "qcd_ml_ratio": None,
        "gflops": None,
        "roofline_share": None,
        "difference": float(max((x - expected).abs().max() for x in results)),
    }


def measure_qcd_ml(
    case: Case, ours_s: float, operator: DiracOperator, args: argparse.Namespace
) -> float | None:
    """Return the time of qcd_ml over ours, in double precision."""
    if args.qcd_ml is None or case.psi.dtype != torch.complex128:
        return None
    extents, links, psi, _ = case
    gammas, _ = make_gammas(4, links.device)
    arrays = {"links": links[0], "psi": psi[0], "gammas": gammas}
    place = Place("subjects.dirac.qcd_ml", {"extents": extents, "kappa": KAPPA}, Path(args.qcd_ml))
    with open_sides({"peer": place}, "Operator", arrays, args.threads) as sides:
        side = sides["peer"]
        seconds = min(side.ask("seconds", "operator") for _ in range(max(3, args.repeats // 4)))
        theirs = torch.tensor(side.compute()["psi"])
        apart = float((theirs - operator.apply(psi)[0]).abs().max())
        if not apart < 1e-10:
            raise RuntimeError(f"qcd_ml does not compute the same: {apart}")
    return seconds / ours_s


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--qcd-ml", help="Python of an environment that has qcd_ml")
    parser.set_defaults(sizes=SIZES)
    args = read_arguments(parser, {"sizes": SIZES[1:], "repeats": 1})
    torch.set_num_threads(args.threads)
    args.rates, args.bandwidth = measure_limits(args.repeats), measure_copy("cpu", args.repeats)
    rows: list[dict[str, Any]] = []
    for extents, n_rhs in args.sizes:
        for dtype in DTYPES.values():
            case = Case(extents, *draw_fields(extents, n_rhs, dtype))
            for name, measure in (
                ("operator", measure_operator),
                ("derivative", measure_derivative),
            ):
                rows.append({"cases": f"{name}, {case.label}"} | measure(case, args))
                show(rows[-1])
    figures = {
        **collect_columns(rows),
        "peer": "the formula in plain PyTorch",
        "copy_bytes_per_s": args.bandwidth,
        "flops_per_s": {str(dtype): rate for dtype, rate in args.rates.items()},
        "repeats": args.repeats,
    }
    print_report("dirac", figures, threads=args.threads, versions=read_versions("torch"))


if __name__ == "__main__":
    main()
