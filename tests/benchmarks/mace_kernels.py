"""The kernels of MACE alone against the modules of mace-torch, on the same numbers.

    make peers
    python tests/benchmarks/mace_kernels.py [--atoms 400] [--correlations 2 3] [--small]

Channelwise tensor product of both layers (with gather and scatter) on the graph of MPtrj structures
with cutoff 4.5 Å: with weights of each edge, and "mixed", with weights that are a linear map of 64
features, which both edges of a pair share (mace-torch maps those of each edge). Symmetric
contraction for both correlations with the elements of these. 128 channels, single precision, on the
CPU. `forward`; `forward and backward` by all operands; `training`, what a loss of forces takes:
derivatives by the operands that depend on positions, and derivatives of these by all operands and
the cotangent.

The last line printed is one JSON object, with a list for each figure: one entry a case. Times are
medians of calls in turn, also as µs for each edge (tensor product) or atom (contraction). `gflops`
counts operations as `mace/operations.py` says; `roofline_share` compares them with the rate of a
large product of matrices, measured in the same run. `deviation` is how far results are apart,
relative to the largest.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from harness.calls import measure_calls
from harness.command import find_mptrj, make_parser, read_arguments
from harness.graphs import build_samples
from harness.report import collect_columns, print_report, scale_times, show
from harness.sides import Place
from harness.structures import draw_atoms
from pipeline_atoms.graphs import find_reverse_edges, number_bonds
from pipeline_core.batch import collate
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from subjects.mace.networks import CUTOFF, list_places, read_mace_versions
from subjects.mace.operations import (
    count_contraction,
    count_contraction_calls,
    count_map_calls,
    count_product,
    count_product_calls,
)
from subjects.mace.ours import find_polynomial

N_ELEMENTS = 89
N_FEATURES = 64  # of the radial network
HARMONICS = "0e+1o+2e+3o"


class Case(NamedTuple):
    """A kernel and its operands.

    Attributes:
        name: For people.
        kind: Class of `mace/ours.py` and `mace/peer.py`.
        arrays: Operands.
        options: What else describes the kernel.
        rows: Edges or atoms.
        flop: Operations of each call.
    """

    name: str
    kind: str
    arrays: dict[str, np.ndarray]
    options: dict[str, Any]
    rows: int
    flop: dict[str, int]


def iterate_cases(args: Namespace) -> Iterator[Case]:
    """Yield all kernels."""
    samples = build_samples(draw_atoms(args.data, args.atoms), cutoff=CUTOFF)
    batch = collate(samples, torch.float32)
    receivers, senders = batch["edge_index"].numpy().T
    ends = {"senders": senders, "receivers": receivers}
    reverse = find_reverse_edges(batch["edge_index"].numpy(), batch["edge_shift"].numpy())
    rows, _ = number_bonds(reverse)
    n_atoms = len(batch["atomic_numbers"])
    for layer, features, moving in ((1, "0e", ["Y", "w"]), (2, "0e+1o", ["h", "Y", "w"])):
        product = make_product(layer, features, moving, ends, n_atoms, args.channels)
        yield product
        yield mix_weights(product, rows)
    element = batch["atomic_numbers"].numpy() % N_ELEMENTS
    for correlation in args.correlations:
        yield make_contraction(correlation, element, args.channels)


def make_product(
    layer: int,
    features: str,
    moving: list[str],
    ends: dict[str, np.ndarray],
    n_atoms: int,
    channels: int,
) -> Case:
    """Return the tensor product of a layer with random operands."""
    plan, n_edges = ProductPlan.of(features, 3, HARMONICS), len(ends["senders"])
    options = {"features": features, "lmax": 3, "targets": HARMONICS, "moving": moving}
    arrays = {
        "h": draw_normal(n_atoms, plan.dim_in, channels),
        "Y": draw_normal(n_edges, plan.dim_sh),
        "w": draw_normal(n_edges, plan.n_paths, channels),
        "cotangent": draw_normal(n_atoms, plan.dim_out, channels),
    }
    value = n_edges * count_product(plan, channels)
    flop = {call: times * value for call, times in count_product_calls(len(moving)).items()}
    return Case(f"tensor product {layer}", "Product", arrays | ends, options, n_edges, flop)


def mix_weights(product: Case, rows: np.ndarray) -> Case:
    """Return the product with weights that are a linear map of features of each pair."""
    _, n_paths, channels = product.arrays["w"].shape
    arrays = {name: x for name, x in product.arrays.items() if name != "w"}
    arrays |= {"rows": rows, "x": draw_normal(rows.max() + 1, N_FEATURES)}
    arrays["A"] = draw_normal(N_FEATURES, n_paths * channels) / N_FEATURES**0.5
    moving = ["x" if name == "w" else name for name in product.options["moving"]]
    options = product.options | {"moving": moving}
    mapped = 2 * len(arrays["x"]) * arrays["A"].size
    flop = {call: product.flop[call] + n * mapped for call, n in count_map_calls().items()}
    name = product.name.replace("tensor", "mixed")
    return Case(name, "MixedProduct", arrays, options, product.rows, flop)


def make_contraction(correlation: int, element: np.ndarray, channels: int) -> Case:
    """Return a contraction of the first layer with random operands."""
    options = {"inputs": HARMONICS, "outputs": "0e+1o", "correlation": correlation}
    polynomial, n_atoms = find_polynomial(options), len(element)
    options["blocks"] = [block.n_weights for block in polynomial.blocks]
    arrays = {
        "element": element,
        "x": draw_normal(n_atoms, polynomial.n_inputs, channels),
        "weights": draw_normal(N_ELEMENTS, polynomial.n_weights, channels),
        "cotangent": draw_normal(n_atoms, polynomial.n_outputs, channels),
    }
    value = n_atoms * count_contraction(polynomial, channels)
    flop = {call: times * value for call, times in count_contraction_calls().items()}
    return Case(f"contraction {correlation}", "Contraction", arrays, options, n_atoms, flop)


def draw_normal(*shape: int) -> np.ndarray:
    """Return random numbers, the same for every call."""
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def measure(places: dict[str, Place], case: Case, args: Namespace) -> list[dict[str, Any]]:
    """Measure all calls of a kernel."""
    sides = {name: Place(one.module, case.options, one.python) for name, one in places.items()}
    groups = [case.flop] if args.small else [{call: n} for call, n in case.flop.items()]
    kinds = {"threads": args.threads, "repeats": args.repeats}
    result = measure_calls(sides, case.kind, case.arrays, groups, **kinds)
    return [
        {"cases": f"{case.name}, {call}", **row, "rows": case.rows}
        | scale_times(row, 1e6 / case.rows, "us_per_row")
        | {"gflops": case.flop[call] / row["ours_s"] / 1e9}
        for call, row in result.items()
    ]


def main() -> None:
    """Measure all kernels and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=5, peers=True)
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj, if not the usual one")
    parser.add_argument("--atoms", type=int, default=400)
    parser.add_argument("--correlations", type=int, nargs="+", choices=[2, 3], default=[2, 3])
    parser.add_argument("--channels", type=int, default=128)
    small = {"atoms": 30, "correlations": [2], "channels": 8, "repeats": 1}
    args = read_arguments(parser, small)
    args.data = args.data or find_mptrj()
    places, rows = list_places(args), []
    for case in iterate_cases(args):
        for row in measure(places, case, args):
            rows.append(row)
            show(row)
    figures = collect_columns(rows) | {"peer": "e3nn and mace-torch" if "peer" in places else None}
    figures |= {"channels": args.channels, "repeats": args.repeats}
    versions = read_mace_versions(places)
    print_report("mace_kernels", figures, threads=args.threads, versions=versions)


if __name__ == "__main__":
    main()
