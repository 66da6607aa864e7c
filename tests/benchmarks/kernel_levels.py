"""Kernels in C as they are shipped, against the same C compiled for this processor alone.

    python tests/benchmarks/kernel_levels.py [--n 4096] [--channels 32] [--repeats 15] [--only NAME]

Wheels hold each library for three levels of x86, of which the processor chooses; the peer is what
`-march=native` makes. A case is a call and its gradient, in one thread, by the C that stands behind
it. Both sides take turns: `ratio` is the median of the ratios of all pairs of calls, the peer's
time over ours, so that 0.9 means that the shipped library has nine tenths of the speed. The last
line printed is one JSON object, with a list for each figure: one entry a case.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor

from harness.command import make_parser, read_arguments
from harness.report import collect_columns, print_report, read_versions
from pipeline_kernels import compiler, native
from pipeline_kernels.dirac import DiracOperator
from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    combine_coefficients,
    contract,
)
from pipeline_kernels.equivariant.so2 import Layout, from_edges
from pipeline_kernels.equivariant.tensor_product import ProductPlan, tensor_product
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments
from pipeline_kernels.message.gated import Route, gated_messages
from pipeline_kernels.su3 import (
    draw_haar,
    exponential,
    path_products,
    project,
    residual_step,
    spectral_map,
    staple_layer,
)
from pipeline_kernels.tree import Node, TreeShape
from pipeline_kernels.tree import contract as contract_tree

NATIVE = "native"
EDGES_PER_ATOM = 16
BINS = 8
EXTENTS = (4, 4)
BATCH = 64

Call = Callable[[], object]


def make_gradient(function: Callable[..., Tensor | tuple[Tensor, ...]], *inputs: Tensor) -> Call:
    """Return a call of a function and of its gradient by its inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    values = function(*leaves)
    outputs = values if isinstance(values, tuple) else (values,)
    cotangents = [torch.randn_like(output) for output in outputs]

    def call() -> object:
        values = function(*leaves)
        return torch.autograd.grad(values, leaves, cotangents, allow_unused=True)

    return call


def make_segments(n: int, n_segments: int) -> Segments:
    """Return a random, sorted assignment."""
    return Segments.of(torch.randint(n_segments, (n,)).sort().values, n_segments)


def list_graph_cases(n: int, channels: int, dtype: torch.dtype) -> Iterator[tuple[str, Call]]:
    """Yield the kernels of messages and of equivariant features on `n` edges."""
    n_atoms = n // EDGES_PER_ATOM

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype)

    receivers, senders = make_segments(n, n_atoms), make_segments(n, n_atoms)
    plan = ProductPlan.of("0e+1o", 3, "0e+1o+2e+3o")
    yield (
        "tensor_product",
        make_gradient(
            lambda h, Y, w: tensor_product(h, Y, w, senders, receivers, plan),
            draw(n_atoms, plan.dim_in, channels),
            draw(n, plan.dim_sh),
            draw(n, plan.n_paths, channels),
        ),
    )
    inputs, outputs = (
        tuple(map(Irrep.parse, names)) for names in (("0e", "1o", "2e", "3o"), ("0e", "1o"))
    )
    polynomial, atoms = Polynomial(inputs, outputs, 3), AtomsByElement.of(torch.arange(n_atoms) % 4)
    shape = n_atoms, polynomial.n_inputs, channels
    yield (
        "contraction",
        make_gradient(
            lambda x, w: contract(x, combine_coefficients(w, polynomial, atoms), polynomial, atoms),
            draw(*shape),
            draw(4, polynomial.n_weights, channels),
        ),
    )
    layout = Layout(4, 4)
    frames = compute_edge_frames(torch.randn(n, 3, dtype=torch.float64), layout.lmax, dtype)
    yield (
        "so2",
        make_gradient(
            lambda y: from_edges(y, frames, layout, receivers),
            draw(n, layout.n_rows, channels),
        ),
    )
    route = Route((receivers, senders, None), make_segments(n, n_atoms), receivers, n)
    hidden = draw(2, channels, channels), draw(2, 1, channels)
    yield (
        "gated",
        make_gradient(
            lambda a, b, c, factors, gain: gated_messages(
                [a, b, c], route, gain, hidden[1], hidden, factors
            ),
            *(draw(rows, 2 * channels) for rows in (n_atoms, n_atoms, n)),
            draw(n_atoms, channels),
            draw(2, 1, channels),
        ),
    )
    nodes = Node(0, 1, 8), Node(2, 3, 8), Node(4, 5, 8), Node(6, 7, 8), Node(9, 8, 1)
    tree = TreeShape((8,) * 6, nodes)
    yield (
        "tree",
        make_gradient(
            lambda features, transfers: contract_tree(features, transfers, tree),
            draw(tree.n_features, n),
            draw(tree.n_transfers),
        ),
    )


def list_matrix_cases(n: int, n_colours: int, dtype: torch.dtype) -> Iterator[tuple[str, Call]]:
    """Yield the kernels of SU(N) on `n` matrices."""
    U = draw_haar(n, n_colours, torch.Generator().manual_seed(0), dtype)
    M = torch.randn(n, n_colours, n_colours, dtype=dtype)
    parameters = torch.randn(n, n_colours - 1, 3 * BINS + 1, dtype=torch.float64)
    yield "su3_exponential", make_gradient(exponential, M - M.mH)
    yield "su3_projection", make_gradient(project, M)
    paths = draw_haar(6 * n, n_colours, None, dtype).view(n, 6, n_colours, n_colours)
    steps = torch.rand(n, 6, dtype=torch.float64) / 6
    yield "su3_residual", make_gradient(residual_step, U, paths, steps)
    yield "su3_spectral", make_gradient(spectral_map, U, parameters)
    table = torch.randint(32, (4, 8, 16))
    adjoint = torch.rand(4, 16) < 0.5
    links = draw_haar(BATCH * 32, n_colours, None, dtype).view(BATCH, 32, n_colours, n_colours)
    yield "su3_paths", make_gradient(lambda x: path_products(x, table, adjoint), links)
    sites = torch.arange(16).view(EXTENTS)
    after, before = (torch.stack([sites.roll(by, d).flatten() for d in range(2)]) for by in (-1, 1))
    fields = torch.randn(BATCH, 2, 2, 16, n_colours, n_colours, dtype=dtype)
    mask = torch.ones(2, 16, dtype=torch.bool)
    weights = torch.randn(3, 6, dtype=torch.float64)
    yield (
        "su3_staples",
        make_gradient(lambda S, c: staple_layer(S, c, after, before, mask), fields, weights),
    )
    links = draw_haar(4 * 256, n_colours, None, dtype).view(1, 4, 256, n_colours, n_colours)
    psi = torch.randn(1, 4, 256, 4, n_colours, dtype=dtype)
    hop = lambda psi, U: DiracOperator(U, (4, 4, 4, 4), 1.0).hop(psi)  # noqa: E731
    yield "dirac", make_gradient(hop, psi, links)


def list_cases(args: argparse.Namespace) -> Iterator[tuple[str, Call]]:
    """Yield name and call of all cases."""
    for dtype in (torch.float32, torch.float64):
        for name, call in list_graph_cases(args.n, args.channels, dtype):
            yield f"{name}, {native.C_TYPES[dtype]}", call
    for n_colours in args.colours:
        for dtype in (torch.complex64, torch.complex128):
            for name, call in list_matrix_cases(args.n, n_colours, dtype):
                yield f"{name}, SU({n_colours}), {native.C_TYPES[dtype]}", call


def use_level(level: str) -> None:
    """Have operators load the libraries of a level from now on."""
    native.choose_level = lambda: level
    native.load_library.cache_clear()
    native.open_library.cache_clear()


def time_call(call: Call, level: str) -> float:
    """Return the seconds of a call, after one by which its library is loaded."""
    use_level(level)
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(call: Call, ours: str, repeats: int) -> dict[str, float]:
    """Time both sides in turn, in changing order."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats):
        order = (ours, NATIVE) if number % 2 == 0 else (NATIVE, ours)
        seconds = {level: time_call(call, level) for level in order}
        pairs.append((seconds[ours], seconds[NATIVE]))
    return {
        "ours_s": median(own for own, _ in pairs),
        "peer_s": median(peer for _, peer in pairs),
        "ratio": median(peer / own for own, peer in pairs),
    }


def main() -> None:
    """Measure all cases and print the report."""
    parser = make_parser(__doc__, repeats=15)
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--colours", type=int, nargs="*", default=[2, 3], help="of SU(N)")
    small = {"n": 64, "channels": 4, "repeats": 1, "only": "tree", "colours": []}
    args = read_arguments(parser, small)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours = native.choose_level()
    compiler.LEVELS = {**compiler.LEVELS, NATIVE: ("-march=native",)}
    rows: dict[str, dict[str, float]] = {}
    for name, call in list_cases(args):
        if name.startswith(args.only):
            rows[name] = measure(call, ours, args.repeats)
            print(f"{name}: {1e3 * rows[name]['ours_s']:.2f} ms, {rows[name]['ratio']:.2f}")
    figures = {"cases": list(rows), "peer": "-march=native"} | collect_columns([*rows.values()])
    figures |= {"level": ours, "n": args.n, "channels": args.channels, "repeats": args.repeats}
    print_report("kernel_levels", figures, threads=1, versions=read_versions("torch"))


if __name__ == "__main__":
    main()
