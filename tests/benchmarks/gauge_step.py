"""A training step of a gauge flow against the same flow in plain PyTorch, in turn, same weights.

    python tests/benchmarks/gauge_step.py [--cases 2d 4d_plaquette ...] [--small]

| case           | SU(3) flow                                                                  |
|----------------|-----------------------------------------------------------------------------|
| `2d`           | 4x4, learned loops of one layer                                             |
| `4d_plaquette` | 4^4, a fixed plaquette                                                      |
| `4d_learned`   | 4^4, learned loops of one layer                                             |
| `4d_staples`   | 2x2x4x4, staple networks of the paper: three layers, width 8                |
| `4d_residual`  | 4^4, residual layers: steps along the gradient of all plaquettes            |

| call      | what                                                                              |
|-----------|-----------------------------------------------------------------------------------|
| `step`    | reverse divergence with path gradients, backward pass and Adam, as in a training  |
| `forward` | links mapped, with the log-determinant, nothing differentiated                    |
| `draw`    | the same from random numbers, with the weights                                    |

Each flow is one sweep of the mask `direction`. The peer is the same module with other operators:
`torch.linalg.eig` and autograd for the spectral map, `torch.linalg.svd` for the projection,
`torch.linalg.slogdet` of the 8 x 8 Jacobian for the residual step, indexed products for paths and
staples. Both map complex64 links; the peer's angles are of that type, ours
of double precision. `deviation` is the largest difference of links, log-determinants and, for a
step, gradients, in double precision, relative to the largest number or one.

The last line printed is one JSON object. Times are medians of calls in turn; memory is the growth
of the resident memory during a call. `roofline_share` is the time that a copy of the bytes takes on
this machine that must move, over ours: all links once for each pass through a layer, of which a
step has five, two of them backwards and twice as much.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from harness.command import make_parser, read_arguments
from harness.report import collect_columns, print_report, read_versions, show
from harness.timing import measure_copy, time_call
from pipeline_core.profiling.memory import measure_peak
from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot
from pipeline_gauge_flows.graph.layout import FlowLayout
from pipeline_gauge_flows.graph.masks import list_updates
from pipeline_gauge_flows.model.network import GaugeModule, build_flow
from pipeline_gauge_flows.options import ResidualOptions, SpectralOptions, StapleOptions
from pipeline_gauge_flows.training.objective import Divergence
from pipeline_gauge_flows.training.samples import make_batch
from pipeline_kernels.su3.paths import reference as paths_reference
from pipeline_kernels.su3.residual import reference as residual_reference
from pipeline_kernels.su3.splines import evaluate_spline
from pipeline_kernels.su3.staples import reference as staples_reference
from subjects.su3.plain import apply_eig_map

PASSES = {"step": 7, "forward": 1, "draw": 1}


class Case(NamedTuple):
    """A flow.

    Attributes:
        extents: Of its lattice.
        batch: Configurations.
        layers: Of staple networks; 0 for a fixed plaquette.
        width: Of staple networks.
        is_residual: Whether its layers are residual ones, not spectral ones.
    """

    extents: tuple[int, ...]
    batch: int
    layers: int
    width: int = 8
    is_residual: bool = False


CASES = {
    "2d": Case((4, 4), 128, 1),
    "4d_plaquette": Case((4, 4, 4, 4), 16, 0),
    "4d_learned": Case((4, 4, 4, 4), 16, 1),
    "4d_staples": Case((2, 2, 4, 4), 16, 3),
    "4d_residual": Case((4, 4, 4, 4), 16, 0, is_residual=True),
}


class Subject:
    """What is measured: a flow with random weights, and the calls.

    Args:
        case: Its sizes.
        dtype: Of weights and links, real.
    """

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        lattice = Lattice(case.extents, 3)
        staples = StapleOptions(n_layers=max(1, case.layers), width=case.width)
        loops = "learned" if case.layers else "plaquette"
        options = (
            ResidualOptions() if case.is_residual else SpectralOptions(loops=loops, staples=staples)
        )
        updates = tuple(list_updates([("direction", 1)], lattice.dimension))
        torch.manual_seed(0)
        self.flow = build_flow(options, FlowLayout(lattice, updates)).to(dtype)
        self._module = GaugeModule(self.flow, by_path=True)
        with torch.no_grad():
            for weight in self._module.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
        self._action = GaugeAction(ActionOptions(beta=1.0), lattice)
        self._objective = Divergence(self._action, None, 0.0)
        self._adam = torch.optim.Adam(self._module.parameters(), lr=1e-6, fused=True)
        self._complex, self._n = dtype.to_complex(), case.batch
        self._links = self._drawn()

    def gradients(self) -> list[Tensor]:
        """Return the gradient of the mean divergence by each weight."""
        batch = make_batch(self._links, self.flow.lattice)
        self._adam.zero_grad()
        loss = self._objective.sums(self._module(batch), batch)["reverse_kl"] / self._n
        loss.backward()
        return [p.grad for p in self._module.parameters() if p.grad is not None]

    def step(self) -> None:
        """Do an optimizer step."""
        self.gradients()
        self._adam.step()

    def forward(self) -> tuple[Tensor, Tensor]:
        """Map links."""
        with torch.no_grad():
            return self.flow(self._links)

    def draw(self) -> Tensor:
        """Draw configurations, and their weights."""
        with torch.no_grad():
            links, log_det = self.flow(self._drawn())
            return log_det - self._action(links)

    @property
    def bytes(self) -> int:
        """Those of the links that one pass through all layers reads."""
        return len(self.flow.layers) * self._links.nbytes

    def _drawn(self) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return draw_hot(self.flow.lattice, self._n, generator, self._complex)


def apply_plain_map(L: Tensor, parameters: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return W and log-determinants of the spectral map, or of its inverse, by eigenvectors."""

    def apply_spline(x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        moved = evaluate_spline(x, 1 - x, numbers, inverse)
        return x * (1 + moved.low), moved.slope

    return apply_eig_map(L, parameters, apply_spline)


def project_by_svd(M: Tensor) -> Tensor:
    """Return M projected to SU(3) by singular values."""
    left, _, right = torch.linalg.svd(M)
    U = left @ right
    angle = torch.linalg.det(U).angle() / 3
    return U * torch.polar(torch.ones_like(angle), -angle)[..., None, None]


def apply_plain_step(
    U: Tensor, paths: Tensor, weights: Tensor, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Return moved links and log-determinants of the residual step, or of its inverse."""
    if not inverse:
        return residual_reference.residual_step(U, paths, weights, False)
    with torch.no_grad():
        source, _ = residual_reference.residual_step(U.to(torch.complex128), paths, weights, True)
    if torch.is_grad_enabled():
        source = attach_derivatives(source, U, paths, weights)
    _, log_det = residual_reference.residual_step(source, paths, weights, False)
    return source.to(U.dtype), -log_det


def attach_derivatives(source: Tensor, U: Tensor, paths: Tensor, weights: Tensor) -> Tensor:
    """Return the source with its derivatives: one step of Newton's iteration, of constant slope."""
    sigma = (weights[..., None, None] * paths).sum(1)
    g, slope = residual_reference.compute_slope(source @ sigma.mH)
    turn = torch.matrix_exp(residual_reference.make_element(g, 3))
    error = residual_reference.compute_components(source @ U.to(turn.dtype).mH @ turn)
    step = torch.linalg.solve(slope.detach(), error)
    return source - residual_reference.make_element(step, 3) @ source


def apply_plain_staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return combinations of links and staples."""
    everywhere = torch.ones_like(forward, dtype=torch.bool)
    mask = everywhere if mask is None else mask
    return staples_reference.staple_layer(S, coefficients, forward, backward, mask)


@contextmanager
def use_plain_torch() -> Iterator[None]:
    """Let flows calculate with plain PyTorch."""
    package = "pipeline_gauge_flows"
    spectral = {"spectral_map": apply_plain_map, "project": project_by_svd}
    with (
        patch.multiple(f"{package}.model.spectral", **spectral),
        patch(f"{package}.model.staples.staple_layer", apply_plain_staple_layer),
        patch(f"{package}.model.residual.residual_step", apply_plain_step),
        patch(f"{package}.graph.frozen_paths.path_products", paths_reference.path_products),
        patch("pipeline_kernels.su3.haar.project", project_by_svd),
    ):
        yield


SIDES = {"ours": nullcontext, "peer": use_plain_torch}


def measure_deviation(case: Case, call: str) -> float:
    """Return how far results of both sides are apart in double precision."""
    result = []
    for side in SIDES.values():
        with side():
            subject = Subject(case, torch.float64)
            one = {"step": subject.gradients, "forward": subject.forward}.get(call, subject.draw)()
            result.append([one] if isinstance(one, Tensor) else [x.clone() for x in one])
    pairs = zip(*result, strict=True)
    return max(float((x - y).abs().max() / max(1.0, float(y.abs().max()))) for x, y in pairs)


def measure(name: str, call: str, repeats: int, bandwidth: float) -> dict[str, Any]:
    """Measure one call of a case on both sides."""
    case = CASES[name]
    subject = Subject(case, torch.float32)
    function = getattr(subject, call)
    memory, times = {}, {side: [] for side in SIDES}
    for side, context in SIDES.items():
        with context():
            function()
            memory[side] = measure_peak(function, torch.device("cpu"))
    for _ in range(repeats):
        for side, context in SIDES.items():
            with context():
                times[side].append(time_call(function))
    ours_s, peer_s = (statistics.median(times[side]) for side in SIDES)
    links = len(subject.flow.layers) * case.batch
    return {
        "cases": f"{call}, {name}",
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "ours_us_per_sample_layer": 1e6 * ours_s / links,
        "ours_bytes": memory["ours"],
        "peer_bytes": memory["peer"],
        "memory_ratio": memory["peer"] / memory["ours"] if memory["ours"] else None,
        "deviation": measure_deviation(case, call),
        "roofline_share": PASSES[call] * subject.bytes / bandwidth / ours_s,
    }


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--cases", nargs="+", choices=[*CASES], default=[*CASES])
    args = read_arguments(parser, {"cases": ["2d"], "repeats": 1})
    torch.set_num_threads(args.threads)
    bandwidth = measure_copy("cpu", args.repeats)
    rows = []
    for name in args.cases:
        for call in PASSES:
            rows.append(measure(name, call, args.repeats, bandwidth))
            show(rows[-1])
    figures = {
        **collect_columns(rows),
        "peer": "the same flow by torch.linalg and autograd",
        "copy_bytes_per_s": bandwidth,
        "repeats": args.repeats,
    }
    print_report("gauge_step", figures, threads=args.threads, versions=read_versions("torch"))


if __name__ == "__main__":
    main()
