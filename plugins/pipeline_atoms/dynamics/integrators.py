"""The integrators of molecular dynamics: ASE's, with the total momentum at rest.

Forces of a potential add up to zero, so the total momentum stays at zero and a system of N atoms
has 3 (N - 1) degrees of freedom. Thermostats and temperatures here count exactly these; a
thermostat that counts 3 N heats a cell of eight atoms to 8/7 of the wanted temperature.

| ensemble | integrator | conserved |
|---|---|---|
| nve | velocity Verlet | E = K + U |
| nvt_langevin | BAOAB splitting [1] | E minus the heat from the thermostat [2] |
| nvt_nose_hoover | Nosé-Hoover chain of three [3] | E + energy of the chain |
| npt | Martyna-Tobias-Klein, all of the cell moves [4] | E + P V + energies of cell and chains |

[1] B. Leimkuhler, C. Matthews, J. Chem. Phys. 138, 174102 (2013), doi:10.1063/1.4802990.
[2] G. Bussi, M. Parrinello, Phys. Rev. E 75, 056707 (2007), doi:10.1103/PhysRevE.75.056707.
[3] G. J. Martyna, M. L. Klein, M. Tuckerman, J. Chem. Phys. 97, 2635 (1992), doi:10.1063/1.463940.
[4] G. J. Martyna, D. J. Tobias, M. L. Klein, J. Chem. Phys. 101, 4177 (1994), doi:10.1063/1.467468.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

import numpy as np
from ase import Atoms, units
from ase.md.md import MolecularDynamics as Integrator
from ase.md.nose_hoover_chain import MTKNPT, NoseHooverChainNVT, NoseHooverChainThermostat
from ase.md.verlet import VelocityVerlet
from numpy.random import Generator
from numpy.typing import NDArray

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_core.units import GPA

Floats = NDArray[np.float64]

_CHAIN: Final = ("_q", "_p", "_thermostat._eta", "_thermostat._p_eta")
_OWN_STATE: Final[Mapping[str, tuple[str, ...]]] = {
    "nve": (),
    "nvt_langevin": ("_heat",),
    "nvt_nose_hoover": _CHAIN,
    "npt": (*_CHAIN, "_h", "_p_g", "_barostat._xi", "_barostat._p_xi"),
}
"""State of integrators besides the atoms: private attributes of ASE, which has no other access."""


def make_integrator(
    atoms: Atoms, options: MolecularDynamics, rng: Generator
) -> tuple[Integrator, Callable[[], float]]:
    """Make the integrator of an ensemble.

    Args:
        atoms: Atoms with calculator and momenta, which the integrator moves.
        options: Ensemble, time step and couplings.
        rng: Source of the thermostat's random numbers.

    Returns:
        The integrator, and a function that returns its conserved energy in eV.
    """
    timestep = options.timestep * units.fs
    heat_bath = {"temperature_K": options.temperature, "tdamp": options.damping * units.fs}
    match options.ensemble:
        case "nve":
            return VelocityVerlet(atoms, timestep), atoms.get_total_energy
        case "nvt_langevin":
            langevin = Langevin(
                atoms, timestep, options.temperature, options.friction / units.fs, rng
            )
            return langevin, langevin.get_conserved_energy
        case "nvt_nose_hoover":
            chain = NoseHooverChainNVT(atoms, timestep, **heat_bath)
        case "npt":
            barostat = {
                "pressure_au": options.pressure * GPA,
                "pdamp": options.barostat_damping * units.fs,
            }
            chain = MTKNPT(atoms, timestep, **heat_bath, **barostat)
    # ASE's chain counts 3 N degrees of freedom; a chain for N - 1 atoms counts 3 (N - 1).
    chain._thermostat = NoseHooverChainThermostat(
        num_atoms_global=len(atoms) - 1, masses=atoms.get_masses()[:, None], **heat_bath
    )
    return chain, chain.get_conserved_energy


def capture_state(dynamics: Integrator, options: MolecularDynamics) -> dict[str, NDArray[Any]]:
    """Return the full state of an integrator and its atoms, by name."""
    atoms = dynamics.atoms
    moving = {"positions": atoms.positions, "momenta": atoms.get_momenta(), "cell": atoms.cell[:]}
    own = {name: attrgetter(name)(dynamics) for name in _OWN_STATE[options.ensemble]}
    return {name: np.array(value) for name, value in (moving | own).items()}


def restore_state(
    dynamics: Integrator, options: MolecularDynamics, state: Mapping[str, NDArray[Any]], step: int
) -> None:
    """Restore the state that `capture_state` returned after `step` steps."""
    atoms = dynamics.atoms
    atoms.set_cell(state["cell"])
    atoms.set_positions(state["positions"])
    atoms.set_momenta(state["momenta"])
    for name in _OWN_STATE[options.ensemble]:
        *parts, last = name.split(".")
        owner = attrgetter(".".join(parts))(dynamics) if parts else dynamics
        setattr(owner, last, np.array(state[name]))
    dynamics.nsteps = step


class Langevin(Integrator):  # type: ignore[misc] # ASE is not typed
    """Langevin dynamics by the BAOAB splitting, at total momentum zero, with its heat counted.

    One step: half a kick (B), half a drift (A), exact Ornstein-Uhlenbeck exchange with the bath
    (O), half a drift, half a kick. The exchange is

        p <- c p + sqrt((1 - c²) m kT) ξ,   c = exp(-γ dt),   ξ normal;   then   p <- p - m P / M

    The projection onto zero total momentum P is orthogonal in p / sqrt(m), so that the canonical
    distribution of the other 3 (N - 1) degrees of freedom is kept exactly.

    | symbol | variable |
    |---|---|
    | dt, time step, ASE's unit | `dt` |
    | γ, friction, 1 / ASE's unit of time | `friction` |
    | T, K | `temperature` |

    Args:
        atoms: Atoms with calculator and momenta.
        timestep: Time step, in ASE's unit of time.
        temperature: Temperature of the bath, K.
        friction: Friction γ, in inverse units of ASE's time.
        rng: Source of ξ.

    Attributes:
        temperature: Temperature of the bath, K.
    """

    def __init__(
        self, atoms: Atoms, timestep: float, temperature: float, friction: float, rng: Generator
    ) -> None:
        super().__init__(atoms, timestep)
        self._rng = rng
        self._kept = np.exp(-friction * timestep)
        self._heat = 0.0
        self.set_temperature(temperature)

    def set_temperature(self, temperature: float) -> None:
        """Set the temperature of the bath, K, from the next step on."""
        self.temperature = temperature
        self._noise = np.sqrt((1 - self._kept**2) * self.masses * units.kB * temperature)

    def step(self, *_: Any) -> None:
        """Do one time step."""
        atoms, half = self.atoms, self.dt / 2
        momenta = atoms.get_momenta() + half * atoms.get_forces()
        positions = atoms.get_positions() + half * momenta / self.masses
        momenta = self._exchange(momenta)
        atoms.set_positions(positions + half * momenta / self.masses)
        atoms.set_momenta(momenta + half * atoms.get_forces())

    def get_conserved_energy(self) -> float:
        """Return the total energy minus the heat that came from the bath, eV."""
        return float(self.atoms.get_total_energy() - self._heat)

    def _exchange(self, momenta: Floats) -> Floats:
        noise = self._noise * self._rng.standard_normal(momenta.shape)
        exchanged = remove_drift(self._kept * momenta + noise, self.masses)
        self._heat += float(((exchanged**2 - momenta**2) / (2 * self.masses)).sum())
        return exchanged


def remove_drift(momenta: Floats, masses: Floats) -> Floats:
    """Return momenta (n_atoms, 3) without the motion of the centre of mass; masses (n_atoms, 1)."""
    resting: Floats = momenta - masses * (momenta.sum(axis=0) / masses.sum())
    return resting


def draw_momenta(atoms: Atoms, temperature: float, rng: Generator) -> Floats:
    """Draw Maxwell-Boltzmann momenta with total momentum zero, scaled to exactly `temperature`.

    Args:
        atoms: At least two atoms.
        temperature: Temperature, K.
        rng: Source of randomness.

    Returns:
        Momenta, (n_atoms, 3), in ASE's unit.
    """
    masses = atoms.get_masses()[:, None]
    momenta = np.sqrt(masses) * rng.standard_normal((len(atoms), 3))
    momenta = remove_drift(momenta, masses)
    scaled: Floats = momenta * np.sqrt(temperature / compute_temperature(momenta, masses))
    return scaled


def compute_temperature(momenta: Floats, masses: Floats) -> float:
    """Compute the temperature, K, of 3 (N - 1) degrees of freedom."""
    return float((momenta**2 / masses).sum() / (3 * (len(masses) - 1) * units.kB))
