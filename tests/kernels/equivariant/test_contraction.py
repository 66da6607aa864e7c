"""The symmetric contraction: C, and the reference where there is none.

Oracles: outputs of mace-torch 0.3.16 (`make_contraction_mace.py`), the sum over all couplings as
the paper writes it (`sum_all_couplings`), rotations and inversion, PyTorch's automatic
differentiation and finite differences.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.equivariant.clebsch_gordan import Irrep, clebsch_gordan
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

DTYPES = [torch.float32, torch.float64]


def parse_irreps(names: str) -> tuple[Irrep, ...]:
    return tuple(Irrep.parse(name) for name in names.split("+"))


INPUTS = parse_irreps("0e+1o+2e+3o")
MODEL = Polynomial(INPUTS, parse_irreps("0e+1o"), 3)
SMALL = Polynomial(parse_irreps("0e+1o"), parse_irreps("0e+1o"), 3)


@dataclass
class Case:
    """Random numbers for a polynomial, and all that operators take at the end."""

    polynomial: Polynomial
    element: Tensor
    atoms: AtomsByElement
    features: Tensor
    coefficients: Tensor
    weights: Tensor
    direction: Tensor

    @classmethod
    def of(cls, polynomial, element, n_channels, dtype=torch.float64, seed=0) -> "Case":
        generator = torch.Generator().manual_seed(seed)

        def random(*sizes):
            return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)

        element = torch.as_tensor(element, dtype=torch.int64)
        atoms, n_atoms = AtomsByElement.of(element), len(element)
        return cls(
            polynomial,
            element,
            atoms,
            random(n_atoms, polynomial.n_inputs, n_channels),
            random(len(atoms.elements), polynomial.n_terms, n_channels),
            random(n_atoms, polynomial.n_outputs, n_channels),
            random(n_atoms, polynomial.n_inputs, n_channels),
        )

    @property
    def tail(self):
        code = self.polynomial.make_code(torch.device("cpu"))
        return self.atoms.order, self.atoms.chunks, code, self.polynomial.sizes

    def results(self) -> list[Tensor]:
        """Value, its derivatives by features and coefficients, and the changes of all three."""
        x, c, g = self.features, self.coefficients, self.weights
        return [
            op._value(x, c, *self.tail),
            op._by_features(x, c, g, *self.tail),
            op._by_coefficients(x, g, len(c), *self.tail),
            *op._tangents(x, c, g, self.direction, *self.tail),
        ]


def compute_expected(case: Case) -> list[Tensor]:
    """`Case.results`, by automatic differentiation of the formula in float64."""
    x, c, g, u = (
        t.double().detach().requires_grad_()
        for t in (case.features, case.coefficients, case.weights, case.direction)
    )
    rows, tables = op._read_batch(*case.tail)
    value = reference.value(x, c, rows, tables)
    by_x, by_c = torch.autograd.grad(value, (x, c), g, create_graph=True)
    changes = torch.autograd.grad(by_x, (g, x, c), u, materialize_grads=True)
    return [t.detach() for t in (value, by_x, by_c, *changes)]


def sum_magnitudes(case: Case) -> list[Tensor]:
    """The same sums with every number taken by its magnitude, which is how roundings add up."""
    tensors = (case.features, case.coefficients, case.weights, case.direction)
    return compute_expected(
        Case(case.polynomial, case.element, case.atoms, *(t.abs() for t in tensors))
    )


def check(case: Case) -> None:
    tolerance = 64 * torch.finfo(case.features.dtype).eps  # 8e-6 or 1e-14
    for ours, exact, size in zip(
        case.results(), compute_expected(case), sum_magnitudes(case), strict=True
    ):
        assert ours.dtype == case.features.dtype
        assert ours.shape == exact.shape
        assert ours.is_contiguous()
        assert ((ours - exact).abs() <= tolerance * size).all()


@pytest.fixture(scope="module", params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        yield


# ---- the polynomial ----


@pytest.mark.parametrize("name", "abcd")
def test_equals_mace(name):
    with np.load(Path(__file__).with_name("contraction_mace.npz")) as file:
        mace = {key[2:]: file[key] for key in file if key.startswith(name)}
    polynomial = Polynomial(INPUTS, parse_irreps(str(mace["irreps_out"])), int(mace["correlation"]))
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


@settings(deadline=None, max_examples=25)
@given(
    polynomial=polynomials(),
    element=st.lists(st.sampled_from([0, 2, 3]), max_size=9),
    n_channels=st.integers(1, 3),
)
def test_equals_the_sum_over_all_couplings(implementation, polynomial, element, n_channels):
    case = Case.of(polynomial, element, n_channels)
    weights = torch.randn(4, polynomial.n_weights, n_channels, dtype=torch.float64)
    combined = combine_coefficients(weights, polynomial, case.atoms)
    ours = contract(case.features, combined, polynomial, case.atoms)
    theirs = sum_all_couplings(case.features, weights[case.element], polynomial)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def build_representation(of: tuple[Irrep, ...], rotation: np.ndarray, inverted: bool) -> Tensor:
    """A degree is what the product of the one below with a vector contains."""
    matrices = [np.ones((1, 1))]
    for degree in range(1, 1 + max(irrep.l for irrep in of)):
        C = clebsch_gordan(degree - 1, 1, degree) * np.sqrt(2 * degree + 1)
        matrices.append(np.einsum("abm,aA,bB,ABM->mM", C, matrices[-1], rotation, C))
    signs = [irrep.parity if inverted else 1 for irrep in of]
    blocks = [sign * matrices[irrep.l] for sign, irrep in zip(signs, of, strict=True)]
    return torch.block_diag(*map(torch.from_numpy, blocks))


@pytest.mark.slow
@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("correlation", [1, 2, 3])
def test_outputs_rotate_as_they_should(correlation, inverted):
    polynomial = Polynomial(
        parse_irreps("0e+1o+2e+3o+1e"), parse_irreps("0e+1o+2e+1e"), correlation, independent=True
    )
    case = Case.of(polynomial, [0, 1, 1, 0], 5)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(2, polynomial.n_weights, 5, dtype=torch.float64, generator=generator)
    combined = combine_coefficients(weights, polynomial, case.atoms)
    rotation = Rotation.from_euler("zxz", [0.3, 1.1, -2.0]).as_matrix()
    D_in, D_out = (
        build_representation(of, rotation, inverted)
        for of in (polynomial.irreps_in, polynomial.irreps_out)
    )
    before = contract(case.features, combined, polynomial, case.atoms)
    after = contract(D_in @ case.features, combined, polynomial, case.atoms)
    assert before.abs().amax((0, 2)).min() > 0.1
    assert_close(after, D_out @ before, rtol=1e-10, atol=1e-10)


# ---- kernels ----


@settings(deadline=None, max_examples=20)
@given(
    polynomial=polynomials(),
    element=st.lists(st.sampled_from([0, 2, 3]), max_size=30),
    n_channels=st.sampled_from([0, 1, 2, 7, 8, 16, 17, 33]),
    dtype=st.sampled_from(DTYPES),
    threads=st.sampled_from([1, 2]),
)
def test_equals_automatic_differentiation(
    use_threads, implementation, polynomial, element, n_channels, dtype, threads
):
    with use_threads(threads):
        check(Case.of(polynomial, element, n_channels, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_channels", [16, 40])
def test_the_polynomial_of_a_model(use_threads, implementation, n_channels, dtype):
    element = torch.arange(27) % 5 % 2 * 3
    with use_threads(2):
        check(Case.of(MODEL, element, n_channels, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_does_not_depend_on_the_threads(use_threads, use_implementation, dtype):
    element = torch.arange(3 * plan.CHUNK) % 7 // 5
    case = Case.of(SMALL, element, 24, dtype)
    assert len(case.atoms.chunks) == 4
    results = []
    for threads in (1, 2, 3):
        with use_implementation("C"), use_threads(threads):
            results.append(case.results())
    check(case)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_arguments_need_not_be_contiguous(implementation):
    case = Case.of(SMALL, [1, 0, 1], 6)
    for name in ("features", "coefficients", "weights", "direction"):
        tensor = getattr(case, name)
        setattr(case, name, tensor.mT.contiguous().mT)
    case.weights = case.weights[:, :, :1].expand(-1, -1, 6)
    check(case)


@pytest.mark.slow
def test_derivatives_of_any_order(implementation):
    case = Case.of(SMALL, [3, 0, 3], 2)
    inputs = [case.features.requires_grad_(), case.coefficients.requires_grad_()]

    def value(x, c):
        return contract(x, c, SMALL, case.atoms)

    def forces(x, c):
        return torch.autograd.grad(value(x, c).square().sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(forces, inputs)


def test_training_of_forces(implementation):
    """The gradients of a loss of forces, against those through the formula."""
    case = Case.of(MODEL, [1, 0, 1, 1], 3)
    rows, tables = op._read_batch(*case.tail)

    def gradients(evaluate):
        x, c = case.features.clone().requires_grad_(), case.coefficients.clone().requires_grad_()
        (forces,) = torch.autograd.grad(evaluate(x, c).pow(2).sum(), x, create_graph=True)
        loss = (forces * case.direction).sum()
        return torch.autograd.grad(loss, (x, c))

    ours = gradients(lambda x, c: contract(x, c, MODEL, case.atoms))
    theirs = gradients(lambda x, c: reference.value(x, c, rows, tables))
    assert_close(ours, theirs)


def test_forces_do_not_wait_for_the_gradient_of_coefficients(monkeypatch):
    case = Case.of(SMALL, [0, 1], 4)
    inputs = [case.features.requires_grad_(), case.coefficients.requires_grad_()]
    total = contract(inputs[0], inputs[1].exp(), SMALL, case.atoms).sum()
    calls = []
    original = cpu._run
    monkeypatch.setattr(cpu, "_run", lambda *a, **k: calls.append(a[0]) or original(*a, **k))
    torch.autograd.grad(total, inputs[0], retain_graph=True)
    assert "by_coefficients" not in calls
    torch.autograd.grad(total, inputs)
    assert calls.count("by_coefficients") == 1


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch(implementation):
    case = Case.of(SMALL, [4, 0, 4, 4], 5, torch.float32)
    x, c, g, u = (
        t.requires_grad_() for t in (case.features, case.coefficients, case.weights, case.direction)
    )
    opcheck(op._value, (x, c, *case.tail))
    opcheck(op._by_features, (x, c, g, *case.tail))
    opcheck(op._by_coefficients, (x, g, len(c), *case.tail))
    opcheck(op._tangents, (x, c, g, u, *case.tail))


def test_training_can_follow_inference():
    fresh = Polynomial(parse_irreps("0e+1o"), parse_irreps("1o"), 2)
    atoms = AtomsByElement.of(torch.tensor([0, 1]))
    x, weights = torch.randn(2, 4, 3), torch.randn(2, fresh.n_weights, 3)
    with torch.inference_mode():
        inferred = contract(x, combine_coefficients(weights, fresh, atoms), fresh, atoms)
    weights.requires_grad_()
    trained = contract(x, combine_coefficients(weights, fresh, atoms), fresh, atoms)
    trained.sum().backward()
    assert torch.equal(trained, inferred)
    assert weights.grad.any()


@pytest.mark.parametrize("level", LEVELS)
def test_processors_with_shorter_vectors(use_level, level):
    with use_level(level):
        check(Case.of(MODEL, [0, 1, 1, 1, 1, 1, 1, 1], 19, torch.float32))


def test_infinity_stays_with_its_atom_and_channel(implementation):
    case = Case.of(SMALL, [0] * 7, 20)
    case.features[4, 0, 7] = torch.inf
    finite = contract(case.features, case.coefficients, SMALL, case.atoms).isfinite().all(1)
    assert (~finite).nonzero().tolist() == [[4, 7]]


# ---- arguments ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, c: (x.float(), c), "expected one dtype"),
        (lambda x, c: (x.half(), c.half()), "expected one dtype"),
        (lambda x, c: (x[:2], c), r"features: expected \(3, 4, n_channels\)"),
        (lambda x, c: (x[:, :3], c), r"features: expected \(3, 4, n_channels\)"),
        (lambda x, c: (x, c[:1]), r"coefficients: expected \(2, \d+, 2\)"),
        (lambda x, c: (x[..., :1], c), r"coefficients: expected \(2, \d+, 1\)"),
        (lambda x, c: (x, c.to("meta")), "expected device cpu"),
    ],
)
def test_wrong_arguments(change, message):
    case = Case.of(SMALL, [3, 0, 3], 2)
    with pytest.raises(ValueError, match=message):
        contract(*change(case.features, case.coefficients), SMALL, case.atoms)


def test_wrong_weights():
    atoms, n_weights = AtomsByElement.of(torch.tensor([4])), SMALL.n_weights
    with pytest.raises(ValueError, match="expected some for element 4 too, got 4"):
        combine_coefficients(torch.ones(4, n_weights, 2), SMALL, atoms)
    with pytest.raises(ValueError, match=rf"expected \(n_elements, {n_weights}, n_channels\)"):
        combine_coefficients(torch.ones(5, n_weights + 1, 2), SMALL, atoms)
