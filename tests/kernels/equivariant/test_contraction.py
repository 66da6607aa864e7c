"""The symmetric contraction: value, derivatives and Triton kernels.

Oracles: outputs of mace-torch 0.3.16 (`make_contraction_mace.py`), the sum over all couplings as
the paper writes it (`sum_all_couplings`), rotations and inversion, PyTorch's automatic
differentiation of the formula in float64, and finite differences.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from kernels.equivariant.product_case import represent
from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    basis,
    combine_coefficients,
    contract,
    cpu,
    op,
    plan,
    reference,
)
from tiers import run_first


def parse_irreps(names: str) -> tuple[Irrep, ...]:
    return tuple(Irrep.parse(name) for name in names.split("+"))


def build_polynomial(inputs: str, outputs: str, correlation: int) -> Polynomial:
    return Polynomial(parse_irreps(inputs), parse_irreps(outputs), correlation)


MODEL = build_polynomial("0e+1o+2e+3o", "0e+1o", 3)
SMALL = build_polynomial("0e+1o", "0e+1o", 3)
PAIRS = build_polynomial("0e+1o", "0e+1o", 2)
NORM = build_polynomial("1o", "0e", 2)
POLYNOMIALS = {"small": SMALL, "model": MODEL}


@st.composite
def polynomials(draw):
    """Few inputs of any parity, outputs that they can form."""
    names = st.sampled_from(["0e", "0o", "1e", "1o", "2e"])
    inputs = draw(st.lists(names, min_size=1, max_size=3))
    correlation = draw(st.integers(1, 3))
    of_inputs = tuple(map(Irrep.parse, inputs))
    result = {
        irrep
        for name in ("0e", "0o", "1e", "1o", "2e", "2o")
        for irrep in parse_irreps(name)
        for degree in range(1, correlation + 1)
        if basis.collect_terms(basis.compute_couplings(of_inputs, irrep, degree))[1].any()
    }
    outputs = draw(st.lists(st.sampled_from(sorted(result)), min_size=1, max_size=3, unique=True))
    return Polynomial(of_inputs, tuple(outputs), correlation)


def evaluate(features, coefficients, polynomial, element):
    return contract(features, coefficients, polynomial, AtomsByElement.of(element))


def evaluate_plainly(features, coefficients, polynomial, element):
    atoms, code = AtomsByElement.of(element), polynomial.make_code(element.device)
    rows, tables = op._read_batch(atoms.order, atoms.chunks, code, polynomial.sizes)
    return reference.value(features, coefficients, rows, tables)


class TestContraction(KernelContract):
    folder = "equivariant/contraction"
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-13}
    options = {"polynomial": [*POLYNOMIALS], "n_channels": [19, 16], "n_atoms": [9, 27]}
    few = {"polynomial": PAIRS, "n_channels": 2, "n_atoms": 3}
    many = {"n_channels": 24, "n_atoms": 3 * plan.CHUNK}
    empty, third = {"n_atoms": 0}, True
    untraced = ("_tangents",)
    random = {
        "polynomial": polynomials(),
        "n_atoms": st.integers(0, 30),
        "n_channels": st.sampled_from([0, 1, 2, 7, 8, 16, 17, 33]),
    }
    lanes = ({"polynomial": "model"},)
    interpreted = [
        {"polynomial": NORM, "n_atoms": 3, "n_channels": 3},
        {"polynomial": build_polynomial("1o", "1o", 3), "n_atoms": 12, "n_channels": 17},
        {"polynomial": NORM, "n_atoms": plan.CHUNK + 2, "n_channels": 2},
        {"polynomial": PAIRS, "n_atoms": 3, "n_channels": 65},
        {"polynomial": PAIRS, "n_atoms": 0},
    ]
    refused = [
        (0, torch.Tensor.float, "coefficients: expected .* of torch.float32"),
        (0, lambda x: x[:2], r"features: expected \(9, 4, n_channels\)"),
        (0, lambda x: x[:, :3], r"features: expected \(9, 4, n_channels\)"),
        (1, torch.Tensor.half, "coefficients: expected .* got .* of torch.float16"),
        (1, lambda c: c[:1], r"coefficients: expected \(2, \d+, 19\)"),
        (1, lambda c: c[..., :1], r"coefficients: expected \(2, \d+, 19\)"),
        (1, lambda c: c.to("meta"), "expected .* on cpu, got .* on meta"),
    ]
    without = {"test_compiles_without_a_graph_break": "elements are counted as atoms are sorted"}

    def draw(self, generator, polynomial, n_atoms, n_channels):
        """Atoms of two elements, of which none has the numbers between."""
        polynomial = POLYNOMIALS.get(polynomial, polynomial)
        element = torch.arange(n_atoms) % 7 // 5 * 3
        shapes = [
            (n_atoms, polynomial.n_inputs, n_channels),
            (len(element.unique()), polynomial.n_terms, n_channels),
        ]
        tensors = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        return Call(evaluate, evaluate_plainly, tensors, [polynomial, element])


# ---- the polynomial ----


@pytest.mark.parametrize("name", "abcd")
def test_equals_mace(name):
    with np.load(Path(__file__).with_name("contraction_mace.npz")) as file:
        mace = {key[2:]: file[key] for key in file if key.startswith(name)}
    outputs = parse_irreps(str(mace["irreps_out"]))
    polynomial = Polynomial(MODEL.irreps_in, outputs, int(mace["correlation"]))
    atoms = AtomsByElement.of(torch.from_numpy(mace["element"]))
    combined = combine_coefficients(torch.from_numpy(mace["weights"]), polynomial, atoms)
    ours = contract(torch.from_numpy(mace["features"]), combined, polynomial, atoms)
    assert_close(ours, torch.from_numpy(mace["outputs"]), rtol=1e-12, atol=1e-12)


def sum_all_couplings(features: Tensor, weights: Tensor, polynomial: Polynomial) -> Tensor:
    """The formula with all couplings, `weights` for each atom."""
    outputs = []
    for irrep in polynomial.irreps_out:
        total = 0
        for block in polynomial.blocks:
            if block.irrep != irrep:
                continue
            U = torch.from_numpy(basis.compute_couplings(polynomial.irreps_in, irrep, block.degree))
            part = weights[:, block.first : block.first + block.n_weights]
            inputs = "xyz"[: block.degree]
            factors = ",".join(f"n{i}c" for i in inputs)
            total = total + torch.einsum(
                f"o{inputs}k,nkc,{factors}->noc", U, part, *[features] * block.degree
            )
        outputs.append(total)
    return torch.cat(outputs, 1)


def draw_weights(polynomial, element, n_channels):
    """Return features, a weight for each element and coupling, and the atoms."""
    generator = torch.Generator().manual_seed(0)
    shapes = (
        (len(element), polynomial.n_inputs),
        (max(element, default=0) + 1, polynomial.n_weights),
    )
    x, weights = (
        torch.randn(*shape, n_channels, generator=generator, dtype=torch.float64)
        for shape in shapes
    )
    return x, weights, AtomsByElement.of(torch.tensor(element, dtype=torch.int64))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    polynomial=polynomials(),
    element=st.lists(st.sampled_from([0, 2, 3]), max_size=9),
    n_channels=st.integers(1, 3),
)
def test_equals_the_sum_over_all_couplings(polynomial, element, n_channels):
    x, weights, atoms = draw_weights(polynomial, element, n_channels)
    ours = contract(x, combine_coefficients(weights, polynomial, atoms), polynomial, atoms)
    theirs = sum_all_couplings(x, weights[element], polynomial)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", run_first([1, 2, 3], 1, 2))
def test_outputs_rotate_as_they_should(double_precision, correlation):
    polynomial = Polynomial(
        parse_irreps("0e+1o+2e+3o+1e"), parse_irreps("0e+1o+2e+1e"), correlation, independent=True
    )
    x, weights, atoms = draw_weights(polynomial, [0, 1, 1, 0], 5)
    combined = combine_coefficients(weights, polynomial, atoms)
    rotation = torch.from_numpy(Rotation.from_euler("zxz", [0.3, 1.1, -2.0]).as_matrix())
    before = contract(x, combined, polynomial, atoms)
    assert before.abs().amax((0, 2)).min() > 0.1
    for turn in (rotation, -rotation):
        D_in, D_out = (represent(x, turn) for x in (polynomial.irreps_in, polynomial.irreps_out))
        after = contract(D_in @ x, combined, polynomial, atoms)
        assert_close(after, D_out @ before, rtol=1e-10, atol=1e-10)


# ---- derivatives, and what a network relies on ----


def test_forces_do_not_wait_for_the_gradient_of_coefficients(use_implementation, monkeypatch):
    call = TestContraction().make()
    x, c = (tensor.requires_grad_() for tensor in call.tensors)
    calls = []
    original = cpu._run
    monkeypatch.setattr(cpu, "_run", lambda *a, **k: calls.append(a[0]) or original(*a, **k))
    with use_implementation("C"):
        total = call.function(x, c.exp(), *call.constants).sum()
        torch.autograd.grad(total, x, retain_graph=True)
        assert "by_coefficients" not in calls
        torch.autograd.grad(total, [x, c])
    assert calls.count("by_coefficients") == 1


def test_training_can_follow_inference():
    fresh = build_polynomial("0e+1o", "1o", 2)
    x, weights, atoms = draw_weights(fresh, [0, 1], 3)
    with torch.inference_mode():
        inferred = contract(x, combine_coefficients(weights, fresh, atoms), fresh, atoms)
    weights.requires_grad_()
    trained = contract(x, combine_coefficients(weights, fresh, atoms), fresh, atoms)
    trained.sum().backward()
    assert torch.equal(trained, inferred)
    assert weights.grad.any()


def test_infinity_stays_with_its_atom_and_channel(implementation):
    call = TestContraction().make()
    call.tensors[0][4, 0, 7] = torch.inf
    finite = call.function(*call.tensors, *call.constants).isfinite().all(1)
    assert (~finite).nonzero().tolist() == [[4, 7]]


def test_wrong_weights():
    atoms, n_weights = AtomsByElement.of(torch.tensor([4])), SMALL.n_weights
    with pytest.raises(ValueError, match="expected some for element 4 too, got 4"):
        combine_coefficients(torch.ones(4, n_weights, 2), SMALL, atoms)
    with pytest.raises(ValueError, match=rf"expected \(n_elements, {n_weights}, n_channels\)"):
        combine_coefficients(torch.ones(5, n_weights + 1, 2), SMALL, atoms)


@pytest.mark.parametrize("element", [torch.tensor([1.0]), torch.tensor([[1]]), torch.tensor([-1])])
def test_wrong_elements(element):
    with pytest.raises(ValueError, match="element: expected"):
        AtomsByElement.of(element)


def test_atoms_are_sorted_by_element():
    element = torch.tensor([3, 1, 3, 5] * plan.CHUNK)
    atoms = AtomsByElement.of(element)
    assert atoms.elements.tolist() == [1, 3, 5]
    assert atoms.n_elements == 6
    row, first, last = atoms.chunks.T
    assert (last - first).max() <= plan.CHUNK
    assert first.tolist() == [0, *last[:-1].tolist()]
    for e, begin, end in zip(row, first, last, strict=True):
        assert (element[atoms.order[begin:end]] == atoms.elements[e]).all()
    assert_close(atoms.elements[reference.find_rows(atoms.order, atoms.chunks)], element)
