"""Messages as CHGNet has them, and the plain formula."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import silu

from pipeline_kernels.message import Segments
from pipeline_kernels.message.gated import Route, gated_messages

KINDS = ["atom convolution", "bond convolution", "angle update"]
NORM_EPSILON = 1e-5
PROJECTED = [f"projected {kind}" for kind in KINDS]


@dataclass
class Case:
    """The three layers of CHGNet: without targets, hidden layer and factors, or with.

    Projected, the last table holds features.
    """

    route: Route
    tables: list[Tensor]
    gain: Tensor
    shift: Tensor
    hidden: tuple[Tensor, Tensor] | None
    factors: Tensor | None
    projection: Tensor | None = None

    @classmethod
    def of(cls, kind, n_messages=20, widths=(4, 3), n_features=5, generator=None):
        generator = generator or torch.Generator().manual_seed(0)

        def random(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        def plan(n, *, ascending=False):
            index = torch.randint(n, (n_messages,), generator=generator)
            return Segments.of(index.sort().values if ascending else index, n)

        projected, kind = kind.startswith("projected "), kind.removeprefix("projected ")
        (width, n_hidden), hidden = widths, kind != "angle update"
        sizes = [5, 6, 8 if kind == "atom convolution" else n_messages]
        plans = plan(5, ascending=True), plan(6), plan(8) if sizes[2] == 8 else None
        columns = 2 * (n_hidden if hidden else width)
        case = cls(
            Route(plans, plan(7) if hidden else None, plan(5) if hidden else None, n_messages),
            [
                random(sizes[0], columns),
                random(sizes[1], columns),
                random(sizes[2], n_features if projected else columns),
            ],
            random(2, 1, width),
            random(2, 1, width),
            (random(2, n_hidden, width), random(2, 1, width)) if hidden else None,
            random(7, width) if hidden else None,
            random(2, n_features, columns // 2) if projected else None,
        )
        return case.replace([x.requires_grad_() for x in case.inputs])

    @property
    def data(self):
        return self.tables if self.factors is None else [*self.tables, self.factors]

    @property
    def parameters(self):
        projection = [] if self.projection is None else [self.projection]
        return [*projection, self.gain, self.shift, *(self.hidden or ())]

    @property
    def inputs(self):
        return [*self.data, *self.parameters]

    def replace(self, inputs):
        tables, others = list(inputs[:3]), list(inputs[3:])
        factors = None if self.factors is None else others.pop(0)
        projection = None if self.projection is None else others.pop(0)
        gain, shift, *hidden = others
        return Case(self.route, tables, gain, shift, tuple(hidden) or None, factors, projection)

    def to(self, target):
        """Return the same on another device, or in another type."""
        moved = self.replace([x.detach().to(target).requires_grad_() for x in self.inputs])
        if isinstance(target, torch.dtype):
            return moved
        plans = [None if plan is None else plan.to(target) for plan in self.route.plans]
        return replace(moved, route=Route(tuple(plans[:3]), *plans[3:], self.route.n_messages))


def centred(tensor, dim=-1):
    return tensor - tensor.mean(dim, keepdim=True)


def ours(case):
    tables, hidden, projection = case.tables, case.hidden, case.projection
    if hidden is None:
        n = 3 if projection is None else 2
        halves = [centred(table.unflatten(1, (2, -1))).flatten(1) for table in tables[:n]]
        tables = [*halves, *tables[n:]]
        projection = None if projection is None else centred(projection)
    else:
        hidden = centred(hidden[0]), centred(hidden[1])
    return gated_messages(
        tables, case.route, case.gain, case.shift, hidden, case.factors, projection
    )


def plain(case):
    """The formula of a gated perceptron, edge by edge, with nothing centred."""
    route, width = case.route, case.gain.shape[2]
    tables = list(case.tables)
    if case.projection is not None:
        tables[2] = torch.cat([tables[2] @ half for half in case.projection], dim=1)
    plans = zip(tables, route.tables, strict=True)
    core, gate = sum(t if p is None else t[p.index] for t, p in plans).chunk(2, dim=1)
    if case.hidden is not None:
        weight, bias = case.hidden
        core, gate = silu(core) @ weight[0] + bias[0], silu(gate) @ weight[1] + bias[1]
    (gain, gate_gain), (shift, gate_shift) = case.gain[:, 0], case.shift[:, 0]
    core = gain * normalize(core) + shift
    gate = gate_gain * normalize(gate) + gate_shift
    messages = silu(core) * torch.sigmoid(gate)
    if case.factors is not None:
        messages = messages * case.factors[route.factors.index]
    if route.targets is None:
        return messages
    sums = messages.new_zeros(route.targets.n_segments, width)
    return sums.index_add(0, route.targets.index, messages)


def normalize(x):
    """Return the layer normalisation; the third derivative of torch's own (2.13) is wrong."""
    x = centred(x)
    return x * (x.square().mean(-1, keepdim=True) + NORM_EPSILON).rsqrt()
