"""The conformance suite accepts a right potential and finds each mistake that it is there for.

The oracle is a potential whose mistakes are put in by hand, one at a time.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from ase import Atoms

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.potential import Potential, compute_forces, compute_stress
from pipeline_atoms.testing import PotentialConformance
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_atoms.testing.potentials import build_batch
from pipeline_core.batch import count_samples

CUTOFF = 4.0
SUITE = PotentialConformance()


class Pairs(Potential):
    """A pair potential that can be spoilt."""

    def __init__(self, mistake: str = "none", direct: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.mistake, self.direct = mistake, direct
        self.scale = torch.nn.Parameter(torch.tensor(1.3))

    def energies(self, batch, vectors):
        lengths = vectors.norm(dim=1)
        if self.mistake == "turns":
            lengths = (vectors * vectors.new_tensor([1.0, 1.1, 1.0])).norm(dim=1)
        ends = (1 - (lengths / CUTOFF) ** 2).clamp(min=0) ** 3
        if self.mistake == "jumps":
            ends = torch.ones_like(ends)
        receivers = batch["edge_index"][:, 0]
        edges = self.scale * ends * torch.sin(3 * lengths)
        if self.mistake == "counts atoms":
            edges = edges * (1 + 0.1 * receivers)
        atoms = edges.new_zeros(len(batch["atomic_numbers"])).index_add(0, receivers, edges)
        if self.mistake == "nearest image":
            inside = (batch["edge_shift"] == 0).all(1)
            atoms = atoms.new_zeros(len(atoms)).index_add(0, receivers[inside], edges[inside])
        energy = atoms.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], atoms)
        if self.mistake == "hears others":
            energy = energy + 0.1 * energy.mean() * (count_samples(batch) > 1)
        edge_gradients = (ends * torch.sin(2 * lengths) / lengths)[:, None] * vectors
        if self.mistake == "records":
            with torch.enable_grad():
                energy = energy + 0 * self.scale.square()
        direct = {
            "forces": compute_forces(batch, edge_gradients),
            "stress": compute_stress(batch, vectors, edge_gradients),
        }
        return {"energy": energy, **{name: direct[name] for name in self.direct}}

    def compile_inference(self):
        mistake = "wrong sign" if self.mistake == "another model" else self.mistake
        return Pairs(mistake, self.direct).double()

    def forward(self, batch):
        outputs = super().forward(batch)
        if self.mistake == "wrong sign":
            outputs["forces"] = -outputs["forces"]
        if self.mistake == "twice":
            outputs["stress"] = 2 * outputs["stress"]
        if self.mistake == "curls":
            outputs["forces"] = outputs["forces"].roll(1, dims=1)
        if self.mistake == "drifts":
            outputs["forces"] = outputs["forces"] + 0.01
        if self.mistake == "changes input":
            batch["positions"] += 1.0
        if self.mistake == "imprecise" and outputs["forces"].dtype == torch.float32:
            outputs["energy"] = outputs["energy"] + 0.01
        if self.mistake == "not there":
            del outputs["stress"]
        return outputs


CRYSTAL = make_alloys(1, seed=1)[0]
CLUSTER = Atoms(CRYSTAL.numbers, CRYSTAL.positions)


class _Run(SimpleNamespace):
    model_info = SimpleNamespace(predicts=("energy", "forces", "stress"))

    def get_section(self, stage, kind):
        return GraphOptions(cutoff=CUTOFF)


def check(test: str, mistake: str, direct: frozenset[str] = frozenset()) -> None:
    """Run one test of the suite on a potential."""
    module = Pairs(mistake, direct).double()

    def predict(*structures):
        with torch.no_grad():
            return module(build_batch(structures, GraphOptions(cutoff=CUTOFF), torch.float64))

    offered = {
        "predict": predict, "module": module, "run": _Run(), "crystal": CRYSTAL, "cluster": CLUSTER,
        "record_testsuite_property": lambda name, value: None,
    }  # fmt: skip
    method = getattr(SUITE, test)
    names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    if "kind" in names:
        request = SimpleNamespace(getfixturevalue=offered.__getitem__)
        method(predict, module, "crystal", request)
    else:
        method(**{name: offered[name] for name in names})


MISTAKES = {
    "test_all_that_is_promised_is_predicted": "not there",
    "test_rotation_and_reflection": "turns",
    "test_translation_and_wrapping": "nearest image",
    "test_permutation": "counts atoms",
    "test_a_repeated_cell_is_the_same_crystal": "nearest image",
    "test_a_batch_equals_its_samples": "hears others",
    "test_forces_are_minus_the_gradient": "wrong sign",
    "test_forces_add_up_to_zero": "drifts",
    "test_only_direct_forces_have_a_curl": "curls",
    "test_stress_is_the_derivative_by_strain": "twice",
    "test_atoms_leave_smoothly": "jumps",
    "test_an_atom_out_of_reach_is_alone": "drifts",
    "test_a_compiled_model_predicts_the_same": "another model",
    "test_single_precision_agrees_with_double": "imprecise",
    "test_nothing_that_comes_in_is_changed": "changes input",
}


@pytest.mark.parametrize("test", MISTAKES)
def test_a_right_potential_is_accepted(test):
    check(test, "none")


@pytest.mark.parametrize(("test", "mistake"), MISTAKES.items())
def test_each_mistake_is_found(test, mistake):
    with pytest.raises(AssertionError):
        check(test, mistake)


DIRECT = frozenset({"forces", "stress"})


@pytest.mark.parametrize(
    "test", [*MISTAKES, "test_inference_records_a_graph_for_derivatives_alone"]
)
def test_direct_forces_of_pairs_are_accepted(test):
    """Those of another pair potential than the energy: symmetric, without curl, no derivatives."""
    if "minus_the_gradient" in test or "by_strain" in test:
        with pytest.raises(pytest.skip.Exception, match=r"not (a )?derivative"):
            check(test, "none", DIRECT)
    else:
        check(test, "none", DIRECT)


def test_a_graph_that_nobody_needs_is_found():
    with pytest.raises(AssertionError, match="records a graph"):
        check("test_inference_records_a_graph_for_derivatives_alone", "records", DIRECT)


@pytest.mark.parametrize("kept", ["forces", "stress"])
def test_only_what_is_not_direct_is_differentiated(kept):
    batch = build_batch([CRYSTAL], GraphOptions(cutoff=CUTOFF), torch.float64)
    expected = Pairs().double()(batch)[kept]
    outputs = Pairs(direct=DIRECT - {kept}).double()(batch)
    direct = Pairs(direct=DIRECT).double()(batch)
    for name in DIRECT:
        torch.testing.assert_close(outputs[name], expected if name == kept else direct[name])


def test_a_parameter_without_effect_is_found(monkeypatch):
    module = Pairs().double()
    SUITE.test_every_parameter_can_learn(module, _Run())
    module.idle = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(AssertionError, match="no prediction depends on idle"):
        SUITE.test_every_parameter_can_learn(module, _Run())
