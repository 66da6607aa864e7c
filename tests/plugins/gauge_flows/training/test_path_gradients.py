"""Path gradients: the same expectation, no variance where the flow is exact (arXiv:2207.08219).

The oracles are the inverse flow by torch's autograd, and a target that a flow reaches exactly since
it is that flow's own density; where it is not exact, differences: `test_marginal`.
"""

from itertools import product

import pytest
import torch

from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.model.layer import project_tangent
from pipeline_gauge_flows.model.network import GaugeModule
from pipeline_gauge_flows.training.objective import Divergence
from pipeline_gauge_flows.training.samples import make_batch
from plugins.gauge_flows.small import OwnDensity, draw_links, make_flow
from tiers import run_first

LATTICE = Lattice((4, 4), 3)
MEMORY = ["graph", "recompute"]
BLOCKS = {
    "plaquette": [("direction", 1), ("location", 1)],
    "learned": [("direction", 1)],
    "residual": [("direction", 1)],
}


class Reached(Divergence):
    """The reverse divergence of a flow from its own density."""

    def __init__(self, flow):
        super().__init__(OwnDensity(flow), None, 0.0)


def compute_gradients(module, objective, base):
    """Return the gradient of the loss of each configuration, (n, weights)."""
    weights, rows = list(module.parameters()), []
    for links in base.split(1):
        batch = make_batch(links, module.flow.lattice)
        loss = objective.sums(module(batch), batch)["reverse_kl"]
        by_weights = torch.autograd.grad(loss, weights, allow_unused=True)
        rows.append(torch.cat([g.flatten() for g in by_weights if g is not None]))
    return torch.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", run_first(product(MEMORY, BLOCKS), *zip(MEMORY, BLOCKS, strict=False))
)
def test_the_score_is_the_gradient_of_the_log_density(case):
    """By torch's autograd through the inverse of the whole flow, and a start of its own density."""
    memory, kind = case
    flow, links = make_flow(kind, LATTICE, BLOCKS[kind], memory), draw_links(LATTICE)
    action = GaugeAction(ActionOptions(beta=0.7), LATTICE)
    start = links.clone().requires_grad_()
    (score,) = torch.autograd.grad(-action(start).sum(), start)
    for base, given in ((None, None), (action, score)):
        moved, log_det, end_score = flow.map_with_score(links, given)
        leaf = moved.detach().requires_grad_()
        back, opposite = flow.inverse(leaf)
        log_q = opposite if base is None else opposite - base(back)
        (expected,) = torch.autograd.grad(log_q.sum(), leaf)
        torch.testing.assert_close(
            end_score, project_tangent(expected, leaf.detach()), rtol=0, atol=1e-10
        )
        torch.testing.assert_close(log_det, flow(links)[1])
        assert moved.requires_grad
        assert not log_det.requires_grad
        assert not end_score.requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKS)
def test_no_variance_where_the_flow_is_exact(kind):
    flow = make_flow(kind, LATTICE, BLOCKS[kind])
    exact = Reached(make_flow(kind, LATTICE, BLOCKS[kind]).requires_grad_(False))
    base = draw_links(LATTICE, 3)
    by_path = compute_gradients(GaugeModule(flow, by_path=True), exact, base)
    ordinary = compute_gradients(GaugeModule(flow), exact, base)
    assert ordinary.norm(dim=1).min() > 0.1
    assert by_path.norm(dim=1).max() < 1e-10 * ordinary.norm(dim=1).max()
