"""The potential energy surface of ethene by GFN2-xTB, in its twelve normal modes.

C. Bannwarth, S. Ehlert and S. Grimme, J. Chem. Theory Comput. 15, 1652 (2019),
doi:10.1021/acs.jctc.8b01176, as in tblite. The coordinates are rectilinear and dimensionless,

    x = x⁰ + Σ_i q_i m^(-1/2) l_i / sqrt(ω_i),    H = Σ_i ω_i p_i²/2 + V(q)    (atomic units),

with the minimum x⁰ and the normal modes l_i there, in rising order of frequency ω_i. The
sign of a mode is fixed: of its large components (at least three quarters of the largest), the
first in the order C C H H H H, x y z, is positive. Components are those of m^(1/2) x.
"""

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.units import BOHR, DALTON, HARTREE, find_factor
from pipeline_htfbr.data.molecule import Molecule, NormalModes, freeze
from pipeline_htfbr.data.points import Coordinate

Floats = NDArray[np.float64]
Energy = Callable[[Floats], tuple[float, Floats]]

N_MODES: Final = 12
_SYMBOLS: Final = ("C", "C", "H", "H", "H", "H")
_NUMBERS: Final = np.array([6, 6, 1, 1, 1, 1])
# ¹²C and ¹H, atomic mass evaluation of 2020.
_MASSES: Final = (12.0, 12.0, *[1.00782503190] * 4)
_START: Final = (
    np.array(
        [
            [0.0, 0.0, 0.67],
            [0.0, 0.0, -0.67],
            [0.0, 0.93, 1.23],
            [0.0, -0.93, 1.23],
            [0.0, 0.93, -1.23],
            [0.0, -0.93, -1.23],
        ]
    )
    / BOHR
)
_HESSIAN_STEP: Final = 5e-3
"""bohr"""
_GRADIENT_LEFT: Final = 1e-5
"""Largest gradient at the minimum, hartree/bohr"""


class Gfn2:
    """GFN2-xTB for ethene.

    Raises:
        ValueError: tblite is not installed.
    """

    def __init__(self) -> None:
        require_tblite()
        from tblite.interface import Calculator

        self._calculator = Calculator("GFN2-xTB", _NUMBERS, _START)
        self._calculator.set("verbosity", 0)
        self._calculator.set("accuracy", 0.1)
        self._last: Any = None

    def forget(self) -> None:
        """Start the next calculation from superposed atoms, independent of earlier ones."""
        self._last = None

    def __call__(self, positions: Floats) -> tuple[float, Floats]:
        """Return energy and gradient, starting from the charges of the last call.

        Args:
            positions: (6, 3) bohr.

        Returns:
            Energy, hartree, and gradient, (6, 3) hartree/bohr.

        Raises:
            RuntimeError: The charges do not converge.
        """
        self._calculator.update(positions)
        self._last = self._calculator.singlepoint(self._last)
        return float(self._last.get("energy")), self._last.get("gradient")


@dataclass(frozen=True)
class Ethene:
    """The surface, as an `ExactSurface`.

    Attributes:
        minimum: x⁰, (6, 3) bohr.
        lowest: Energy there, hartree.
        directions: ∂x/∂q, (12, 6, 3) bohr.
        frequencies: ħω, (12,) eV.
    """

    minimum: Floats
    lowest: float
    directions: Floats
    frequencies: Floats

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Twelve normal modes, without a domain."""
        return tuple(Coordinate(name=f"q{i + 1}", unit="1") for i in range(N_MODES))

    @property
    def grid(self) -> None:
        """None: twelve modes are too many for a grid."""
        return

    @property
    def molecule(self) -> Molecule:
        """Ethene, with the modes as its variables."""
        wavenumbers = self.frequencies / find_factor("energy", "cm^-1")
        return Molecule(
            _SYMBOLS,
            _MASSES,
            freeze((self.minimum * BOHR).tolist()),
            NormalModes(freeze((self.directions * BOHR).tolist()), tuple(wavenumbers.tolist())),
        )

    def energies(self, x: Floats) -> Floats:
        """Return the energies at points (n, 12) above the minimum, (n,) eV.

        They are NaN where the charges do not converge, which happens only far from the minimum.
        """
        return np.array([self._evaluate_alone(q)[0] for q in x])

    def gradients(self, x: Floats) -> Floats:
        """Return the gradients at points (n, 12), (n, 12) eV; NaN where the energies are."""
        return np.array([self._evaluate_alone(q)[1] for q in x]).reshape(-1, N_MODES)

    def evaluate(self, q: Floats, energy: Energy) -> tuple[float, Floats]:
        """Return energy above the minimum and gradient at a point.

        Args:
            q: (12,)
            energy: A `Gfn2`.

        Returns:
            Energy, eV, and gradient, (12,) eV.

        Raises:
            RuntimeError: The charges do not converge.
        """
        value, slope = energy(self.minimum + np.tensordot(q, self.directions, 1))
        return (value - self.lowest) * HARTREE, np.tensordot(self.directions, slope, 2) * HARTREE

    def _evaluate_alone(self, q: Floats) -> tuple[float, Floats]:
        """Run `evaluate` so that the result does not depend on other points."""
        calculator = make_gfn2()
        calculator.forget()
        try:
            return self.evaluate(q, calculator)
        except RuntimeError:
            return np.nan, np.full(N_MODES, np.nan)


def require_tblite() -> None:
    """Check that tblite is installed.

    Raises:
        ValueError: It is not.
    """
    if find_spec("tblite") is None:
        raise ValueError(
            "ethene by GFN2-xTB needs tblite, which is not installed; "
            "pip install 'pipeline-core[quantum-chemistry]'"
        )


def load_ethene() -> Ethene | None:
    """Return the surface; None without tblite."""
    return None if find_spec("tblite") is None else find_ethene()


@lru_cache(maxsize=1)
def make_gfn2() -> Gfn2:
    """Return the calculator of this process."""
    # tblite cannot free its memory after the interpreter has begun to unload modules.
    atexit.register(make_gfn2.cache_clear)
    return Gfn2()


@lru_cache(maxsize=1)
def find_ethene() -> Ethene:
    """Find the minimum and its normal modes.

    Raises:
        ValueError: tblite is not installed, or no minimum is found.
    """
    calculator = make_gfn2()
    calculator.forget()
    minimum, lowest = _find_minimum(calculator)
    modes, omega = _compute_modes(minimum, calculator)
    mass = np.array(_MASSES) * DALTON
    directions = modes / np.sqrt(mass)[:, None] / np.sqrt(omega)[:, None, None]
    return Ethene(minimum, lowest, directions, omega * HARTREE)


def _find_minimum(energy: Energy) -> tuple[Floats, float]:
    """Return positions, (6, 3) bohr, and energy, hartree, of the minimum."""
    from scipy.optimize import minimize

    def function(x: Floats) -> tuple[float, Floats]:
        value, slope = energy(x.reshape(-1, 3))
        return value, slope.ravel()

    optimum = minimize(function, _START.ravel(), jac=True, method="BFGS", options={"gtol": 1e-7})
    if np.abs(optimum.jac).max() > _GRADIENT_LEFT:
        raise ValueError(
            f"ethene: the gradient at the minimum is {np.abs(optimum.jac).max():.1e} hartree/bohr, "
            "expected 0; check the installation of tblite"
        )
    return optimum.x.reshape(-1, 3), float(optimum.fun)


def _compute_modes(minimum: Floats, energy: Energy) -> tuple[Floats, Floats]:
    """Return mass-weighted modes, (12, 6, 3), and angular frequencies, (12,) hartree."""
    root = np.repeat(np.sqrt(np.array(_MASSES) * DALTON), 3)
    rigid = _span_rigid_motions(minimum, root)
    inner = np.eye(len(root)) - rigid @ rigid.T
    hessian = inner @ (_differentiate(minimum, energy) / np.outer(root, root)) @ inner
    values, vectors = np.linalg.eigh(hessian)
    # The six rigid motions have eigenvalue zero, the lowest of all at a minimum.
    modes = vectors[:, -N_MODES:].T
    larger = np.abs(modes) > 0.75 * np.abs(modes).max(axis=1, keepdims=True)
    signs = np.sign(modes[np.arange(N_MODES), larger.argmax(axis=1)])
    return (modes * signs[:, None]).reshape(N_MODES, -1, 3), np.sqrt(values[-N_MODES:])


def _differentiate(minimum: Floats, energy: Energy) -> Floats:
    """Return the Hessian by central differences of gradients, (18, 18) hartree/bohr²."""
    columns = []
    for step in _HESSIAN_STEP * np.eye(minimum.size).reshape(-1, *minimum.shape):
        ahead, behind = energy(minimum + step)[1], energy(minimum - step)[1]
        columns.append((ahead - behind).ravel() / (2 * _HESSIAN_STEP))
    hessian = np.array(columns)
    return (hessian + hessian.T) / 2


def _span_rigid_motions(positions: Floats, root: Floats) -> Floats:
    """Return an orthonormal basis of translations and rotations, mass-weighted, (18, 6)."""
    centred = positions - np.average(positions, axis=0, weights=_MASSES)
    shifts = [np.broadcast_to(axis, positions.shape) for axis in np.eye(3)]
    turns = [np.cross(axis, centred) for axis in np.eye(3)]
    motions = np.array([motion.ravel() * root for motion in (*shifts, *turns)])
    return np.linalg.qr(motions.T)[0]
