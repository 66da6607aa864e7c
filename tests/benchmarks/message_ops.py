"""Message passing against torch's own gather and scatter, alternated on the same data.

    python tests/benchmarks/message_ops.py [--device cuda] [--n-edges 60000] [--width 128] ...

The last line printed is one JSON object. `roofline_share` is the time that a copy of as many bytes
takes on this machine, over ours. Only bytes that must move count: each input read once, each output
written once. The copy is too large for any cache, so a case that fits one can exceed 1. Both sides
keep memory that they free, as what the commands run does.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from harness.command import make_parser, read_arguments
from harness.report import print_report, read_versions
from harness.timing import measure_copy, time_fastest
from pipeline_core.system.memory import keep_freed_memory
from pipeline_kernels.message import Segments, gather_sum, segment_sum

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def iterate_cases(
    n_edges: int, n_atoms: int, width: int, dtype: torch.dtype, device: str
) -> list[dict]:
    """Pairs of functions, ours and torch's, with the bytes that each must move."""
    generator = torch.Generator().manual_seed(0)
    index = [torch.randint(n_atoms, (n_edges,), generator=generator).to(device) for _ in range(2)]
    plans = [Segments.of(i, n_atoms) for i in index]
    tables = [torch.rand(n_atoms, width, generator=generator).to(device, dtype) for _ in range(2)]
    values = torch.rand(n_edges, width, generator=generator).to(device, dtype)
    leaves = [table.clone().requires_grad_() for table in tables]
    rows, nodes, ids = n_edges * values[0].nbytes, n_atoms * values[0].nbytes, index[0].nbytes

    def torch_gather(tables: list[Tensor]) -> Tensor:
        h = torch.index_select(tables[0], 0, index[0])
        return h.add_(torch.index_select(tables[1], 0, index[1]))

    def torch_sum(values: Tensor) -> Tensor:
        return values.new_zeros(n_atoms, width).index_add_(0, index[0], values)

    def gradient(gather: Callable, scatter: Callable) -> Callable:
        return lambda: torch.autograd.grad(scatter(gather(leaves)), leaves, tables[0])

    def ours_gather(tables: list[Tensor]) -> Tensor:
        return gather_sum(tables, plans)

    def ours_sum(values: Tensor) -> Tensor:
        return segment_sum(values, plans[0])

    return [
        {
            "case": "gather_sum",
            "ours": lambda: ours_gather(tables),
            "peer": lambda: torch_gather(tables),
            "bytes": rows + 2 * nodes + 2 * ids,
        },
        {
            "case": "segment_sum",
            "ours": lambda: ours_sum(values),
            "peer": lambda: torch_sum(values),
            "bytes": rows + nodes + ids,
        },
        {
            "case": "both and their gradient",
            "ours": gradient(ours_gather, ours_sum),
            "peer": gradient(torch_gather, torch_sum),
            "bytes": 5 * rows + 6 * nodes + 6 * ids,
        },
    ]


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=20, device=True)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--n-edges", type=int, default=60_000)
    parser.add_argument("--n-atoms", type=int, default=1_000)
    parser.add_argument("--width", type=int, default=128)
    args = read_arguments(parser, {"n_edges": 2_000, "n_atoms": 100, "width": 32, "repeats": 2})
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    work = iterate_cases(args.n_edges, args.n_atoms, args.width, DTYPES[args.dtype], args.device)
    times = [time_fastest([case["ours"], case["peer"]], args.device, args.repeats) for case in work]
    ours_s, peer_s = zip(*times, strict=True)
    bandwidth = measure_copy(args.device, args.repeats)
    index = torch.randint(args.n_atoms, (args.n_edges,), device=args.device)
    plan = [lambda: Segments.of(index, args.n_atoms)]
    figures = {
        "cases": [case["case"] for case in work],
        "ours_s": ours_s,
        "peer": "torch.index_select/index_add_",
        "peer_s": peer_s,
        "ratio": [peer / ours for ours, peer in times],
        "roofline_share": [
            case["bytes"] / bandwidth / ours for case, ours in zip(work, ours_s, strict=True)
        ],
        "copy_bytes_per_s": bandwidth,
        "plan_s": time_fastest(plan, args.device, args.repeats)[0],
        **{name: getattr(args, name) for name in ("dtype", "n_edges", "n_atoms", "width")},
        "device": args.device,
        "repeats": args.repeats,
    }
    versions = read_versions("torch", "numba")
    print_report(
        "message_ops", figures, threads=args.threads, versions=versions, device=args.device
    )


if __name__ == "__main__":
    main()
