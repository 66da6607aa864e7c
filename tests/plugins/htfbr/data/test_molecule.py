"""From positions to variables. Oracles: ASE's geometry, ASE's and torch's finite differences."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule as ase_molecule

from pipeline_core.units import BOHR
from pipeline_htfbr.data.geometry import compute_variables, differentiate_variables, find_positions
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.molecule import Internal, Molecule, NormalModes
from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.inference.vibrations import compute_frequencies
from plugins.htfbr.additive import draw_modes

KINDS = (
    Internal("distance", (0, 2)),
    Internal("angle", (0, 1, 2)),
    Internal("cosine", (1, 2, 3)),
    Internal("dihedral", (0, 1, 2, 3)),
    Internal("dihedral", (3, 1, 0, 2)),
)
COORDINATES = (
    Coordinate(name="r", unit="bohr"),
    Coordinate(name="a", unit="degree"),
    Coordinate(name="c", unit="1"),
    Coordinate(name="t", unit="radian", period=2 * np.pi),
    Coordinate(name="u", unit="degree", period=360.0),
)


def draw_positions(seed=0):
    return np.random.default_rng(seed).normal(size=(4, 3))


def make_molecule(positions):
    return Molecule(("H", "C", "N", "O"), (1.0, 12.0, 14.0, 16.0), positions, KINDS)


def make_tensor(positions):
    return torch.tensor(positions, dtype=torch.float64, requires_grad=True)


def wrap_angle(angle):
    return (angle + 180) % 360 - 180


@pytest.mark.parametrize("seed", range(5))
def test_internal_coordinates_are_those_of_ase(seed):
    positions = draw_positions(seed)
    atoms = Atoms("HCNO", positions=positions)

    r, a, c, t, u = compute_variables(
        make_tensor(positions), make_molecule(positions), COORDINATES
    ).tolist()

    assert r * BOHR == pytest.approx(atoms.get_distance(0, 2))
    assert a == pytest.approx(atoms.get_angle(0, 1, 2))
    assert c == pytest.approx(np.cos(np.radians(atoms.get_angle(1, 2, 3))))
    assert np.degrees(t) == pytest.approx(wrap_angle(atoms.get_dihedral(0, 1, 2, 3)))
    assert u == pytest.approx(wrap_angle(atoms.get_dihedral(3, 1, 0, 2)))


def test_first_and_second_derivatives_are_those_of_finite_differences():
    positions = draw_positions()

    def function(p):
        return compute_variables(p, make_molecule(positions), COORDINATES)

    assert torch.autograd.gradcheck(function, (make_tensor(positions),))
    assert torch.autograd.gradgradcheck(function, (make_tensor(positions),))


@pytest.mark.slow
def test_planar_torsions_have_derivatives():
    hono, coordinates = HONO().molecule, HONO().coordinates
    for tau in (0.0, np.pi):
        x = np.array([2.7, 1.8, 2.2, -0.2, -0.35, tau])
        _, by_positions = differentiate_variables(
            find_positions(x, hono, coordinates), hono, coordinates
        )
        assert np.isfinite(by_positions).all()
        assert np.linalg.matrix_rank(by_positions) == 6


@pytest.mark.slow
def test_positions_follow_from_variables_and_back():
    hono, coordinates = HONO().molecule, HONO().coordinates
    rng = np.random.default_rng(1)
    lower, upper = np.array([(c.lower, c.upper) for c in coordinates]).T
    for x in rng.uniform(lower, upper, (5, 6)):
        result, _ = differentiate_variables(find_positions(x, hono, coordinates), hono, coordinates)
        assert np.allclose(result, x, atol=1e-10)


ON_A_LINE = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2.5], [1, 0, 3.0]])


@pytest.mark.parametrize(
    ("kind", "positions", "message"),
    [
        ("angle", ON_A_LINE, "three of its atoms lie on a line"),
        ("dihedral", ON_A_LINE, "three of its atoms lie on a line"),
        ("distance", np.zeros((4, 3)), "two of its atoms lie at the same place"),
    ],
)
def test_atoms_that_have_no_such_coordinate_are_explained(kind, positions, message):
    n_atoms = {"distance": 2, "angle": 3, "dihedral": 4}[kind]
    one = Internal(kind, tuple(range(n_atoms)))
    molecule = Molecule(("H",) * 4, (1.0,) * 4, positions, (one,))
    unit = "bohr" if kind == "distance" else "radian"
    with pytest.raises(ValueError, match=f"coordinate bend: {message}"):
        compute_variables(make_tensor(positions), molecule, [Coordinate(name="bend", unit=unit)])


ETHENE = ase_molecule("C2H4")  # planar, and its moments of inertia have no symmetry to spare


def draw_ethene(count=12):
    modes = draw_modes(ETHENE.positions, ETHENE.get_masses(), count)
    symbols = tuple(ETHENE.symbols)
    return Molecule(symbols, tuple(ETHENE.get_masses()), ETHENE.positions, modes)


NAMES = [Coordinate(name=f"q{i}", unit="1") for i in range(12)]


def test_normal_coordinates_survive_translation_and_rotation():
    """Oracle: the coordinates from which the positions were made, and ASE's rotation."""
    molecule, q = draw_ethene(), np.random.default_rng(3).normal(size=12)
    atoms = Atoms(molecule.symbols, positions=find_positions(q, molecule, NAMES))
    atoms.rotate(77, (1, 2, -0.5))
    atoms.translate([3, -1, 0.2])

    result = compute_variables(make_tensor(atoms.positions), molecule, NAMES)

    assert np.allclose(result.detach(), q, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["reference", "displaced"])
def test_normal_coordinates_are_differentiable_twice(geometry):
    molecule = draw_ethene()
    q = np.random.default_rng(4).normal(size=12) * (geometry == "displaced")
    positions = find_positions(q, molecule, NAMES)

    def function(p):
        return compute_variables(p, molecule, NAMES)

    assert torch.autograd.gradcheck(function, (make_tensor(positions),))
    assert torch.autograd.gradgradcheck(function, (make_tensor(positions),))


def test_frequencies_of_normal_modes_are_their_own():
    """V = Σ ħω q²/2 with displacements sqrt(ħ/ω) l / sqrt(m) has the frequencies ω."""
    molecule, omega = draw_ethene(), np.linspace(500, 3500, 12)
    # ħ²/(amu Å² cm⁻¹ h c), CODATA 2018: ħ/(4π c) = 16.857629 cm⁻¹ amu Å².
    lengths = np.sqrt(2 * 16.857629 / omega) / 0.1
    scaled = np.array(molecule.variables.displacements) * lengths[:, None, None]
    modes = NormalModes(scaled, tuple(omega))
    molecule = Molecule(molecule.symbols, molecule.masses, molecule.reference, modes)

    result = compute_frequencies(np.zeros(12), np.diag(omega) * 1.239841984e-4, molecule, NAMES)

    assert np.allclose(result, omega, rtol=1e-6)


def test_frequencies_of_water_follow_wilsons_formulas():
    """Oracle: closed form for bent XY₂, E. B. Wilson et al., Molecular Vibrations (1955), ch. 4."""
    m_h, m_o, r, angle = 1.00782503, 15.99491462, 0.9584, np.radians(104.45)
    half = angle / 2
    positions = r * np.array(
        [[np.sin(half), np.cos(half), 0], [0, 0, 0], [-np.sin(half), np.cos(half), 0]]
    )
    variables = (
        Internal("distance", (0, 1)),
        Internal("distance", (1, 2)),
        Internal("angle", (0, 1, 2)),
    )
    coordinates = [
        Coordinate(name="r1", unit="angstrom"),
        Coordinate(name="r2", unit="angstrom"),
        Coordinate(name="a", unit="radian"),
    ]
    molecule = Molecule(("H", "O", "H"), (m_h, m_o, m_h), positions, variables)
    stretch, bend, both = 52.8, 4.75, -0.63  # eV/Å², eV, eV/Å²

    hessian = np.array([[stretch, both, 0], [both, stretch, 0], [0, 0, bend]])
    result = compute_frequencies(np.array([r, r, angle]), hessian, molecule, coordinates)

    h, o = 1 / m_h, 1 / m_o
    odd = (stretch - both) * (h + o * (1 - np.cos(angle)))
    g11 = h + o * (1 + np.cos(angle))
    g22 = 2 / r**2 * (h + o * (1 - np.cos(angle)))
    g12 = -np.sqrt(2) / r * o * np.sin(angle)
    even = np.linalg.eigvals(
        np.array([[stretch + both, 0], [0, bend]]) @ np.array([[g11, g12], [g12, g22]])
    )
    unit = 521.4708983725065  # sqrt(eV/(Å² Da)) / (2π c), cm⁻¹, as in the ase.vibrations of ASE
    assert np.allclose(result, np.sort(np.sqrt([odd, *even])) * unit, rtol=1e-6)


@pytest.mark.slow
def test_a_geometry_that_cannot_be_is_explained():
    hono = HONO()
    x = np.array([2.7, 1.8, 2.2, 1.5, -0.35, np.pi])  # a cosine above one
    with pytest.raises(ValueError, match=r"no geometry of the molecule was found that has .*1\.5"):
        find_positions(x, hono.molecule, hono.coordinates)
