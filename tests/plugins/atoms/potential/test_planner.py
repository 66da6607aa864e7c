"""Plans of batches that have the same graph."""

import pytest
import torch

from pipeline_atoms.potential.planner import Planner


def make_planner():
    made = []

    def make(batch):
        made.append(batch)
        return len(made)

    return Planner(make, ["edge_index"])


def test_a_plan_serves_while_its_fields_are_the_same_tensors():
    planner, index = make_planner(), torch.zeros(4, 2)
    assert planner.plan({"edge_index": index, "positions": torch.zeros(1)}) == 1
    assert planner.plan({"edge_index": index, "positions": torch.ones(1)}) == 1
    index[0] = 1  # it ends when somebody writes to a field
    assert planner.plan({"edge_index": index}) == 2
    assert planner.plan({"edge_index": index.clone()}) == 3
    with torch.inference_mode():
        batch = {"edge_index": torch.zeros(4, 2)}
        assert [planner.plan(batch), planner.plan(batch)] == [4, 4]


@pytest.mark.slow
def test_compilers_see_the_plan_being_made():
    planner = Planner(lambda batch: batch["edge_index"] + 1, ["edge_index"])
    compiled = torch.compile(planner.plan, fullgraph=True, backend="eager")
    batch = {"edge_index": torch.zeros(4, 2)}
    planner.plan(batch)

    assert torch.equal(compiled(batch), torch.ones(4, 2))
    batch["edge_index"] += 1
    assert torch.equal(compiled(batch), torch.full((4, 2), 2.0))
