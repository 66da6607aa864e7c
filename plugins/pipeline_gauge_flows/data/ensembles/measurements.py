"""Measurements on every configuration in the data stage, and their estimates for the ensemble."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction, multiply_gradients
from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.ensembles.origins import Sample
from pipeline_gauge_flows.data.ensembles.statistics import Estimate, compute_drift, estimate
from pipeline_gauge_flows.data.fermions.pseudofermions import Pseudofermions, split_action
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.observables import average_plaquettes
from pipeline_gauge_flows.data.theory import compute_known

Floats = NDArray[np.float64]

_SEED: Final = 0
"""Seed of the pseudofermions with which the action is checked."""
_SIGMAS: Final = 6.0
"""Deviation from the identity of the action that is allowed, in standard errors."""
_RELATIVE: Final = 1e-3
"""Relative deviation that is always allowed, however small the errors are."""
_DRIFT: Final = 4.0
_LOW_ACCEPTANCE: Final = 0.5
_IRREVERSIBLE: Final = 1e-8
_THERMALISATION: Final = 20
"""Recommended length of the thermalisation in autocorrelation times."""


class Measurements:
    """Time series of each Markov chain.

    Args:
        action: Expected action of the configurations.
        lattice: The lattice.
    """

    def __init__(self, action: ActionOptions, lattice: Lattice) -> None:
        self.action = GaugeAction(action, lattice)
        self._quarks = split_action(action, lattice)[1:]
        self._generator = torch.Generator().manual_seed(_SEED)
        self._series: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self._check = self.action.rectangle_weight == 0 or min(lattice.extents) > 2

    def add(self, drawn: Sample) -> dict[str, Floats]:
        """Measure a configuration and return its fields.

        Raises:
            ValueError: Its action is not finite.
        """
        links = torch.from_numpy(drawn.links)[None]
        planes = average_plaquettes(links, self.action.lattice)[0].numpy()
        action = self.action(links)[0].numpy()
        if not np.isfinite(action):
            raise ValueError(
                f"{drawn.source}: its action is {action}; correct `action`, or remove the file"
            )
        self._append(drawn.chain, planes=planes, plaquette=planes.mean(), action=float(action))
        if self._check:
            square, laplacian = (
                value.item() for value in self.action.compute_identity_terms(links)
            )
            product = sum(self._multiply_forces(links, quarks) for quarks in self._quarks)
            self._append(drawn.chain, square=square, product=product, laplacian=laplacian)
        return {"plaquette": planes, "action": action}

    def _multiply_forces(self, links: Tensor, quarks: GaugeAction | Pseudofermions) -> float:
        quarks.refresh(links, self._generator)
        return multiply_gradients(self.action.force(links), quarks.force(links)).item()

    def _append(self, chain: int, **values: Any) -> None:
        for name, value in values.items():
            self._series[name][chain].append(value)

    def list_chains(self, name: str) -> list[Floats]:
        """Return the values of a quantity in order, one array per chain."""
        return [np.array(values) for _, values in sorted(self._series[name].items())]

    def summarize(self) -> dict[str, Any]:
        """Return estimates for the report, JSON-able."""
        plaquette = estimate(self.list_chains("plaquette"))
        planes = self.list_chains("planes")
        return {
            "chains": len(planes),
            "plaquette": plaquette.to_dict(),
            "plaquette_by_plane": {
                f"{mu}{nu}": estimate([chain[:, i] for chain in planes]).to_dict()
                for i, (mu, nu) in enumerate(self.action.lattice.planes)
            },
            "known_plaquette": self._find_known_plaquette(plaquette),
            "action": estimate(self.list_chains("action")).to_dict(),
            "drift_sigmas": compute_drift(self.list_chains("plaquette")),
            "identity": self.compute_identity(),
        }

    def compute_identity(self) -> dict[str, Any] | None:
        """Return <grad S . grad S_all> and <Laplacian of S>, S the action of the gauge field.

        They are equal in ensembles of the whole action S_all. For the gradient of the quarks,
        pseudofermions are drawn for each configuration: it is the same on average. None if beta is
        0, or if rectangles wind around the lattice.
        """
        if not self._check or self.action.options.beta == 0:
            return None
        names = "square", "product", "laplacian"
        rows = [self.list_chains(name) for name in names]
        difference = estimate([a + b - c for a, b, c in zip(*rows, strict=True)])
        square, product, laplacian = (estimate(chains).mean for chains in rows)
        return {
            "gradient_square": square + product,
            "laplacian": laplacian,
            "sigmas": difference.mean / difference.error if difference.error > 0 else 0.0,
            # Coupling at which the identity holds, for this form of the action and these quarks.
            "beta": self.action.options.beta * (laplacian - product) / square,
        }

    def require_action(self) -> None:
        """Check the identity.

        Raises:
            ValueError: The configurations belong to another action.
        """
        identity = self.compute_identity()
        if identity is None:
            return
        deviation = abs(identity["gradient_square"] / identity["laplacian"] - 1)
        if abs(identity["sigmas"]) > _SIGMAS and deviation > _RELATIVE:
            options = self.action.options
            raise ValueError(
                f"sources: the configurations are not of the action {options!r}: <|grad S|^2> is "
                f"{identity['gradient_square']:.6g} where <Laplacian S> is "
                f"{identity['laplacian']:.6g}, {abs(identity['sigmas']):.0f} standard errors "
                "apart; with this form of the action they look like beta = "
                f"{identity['beta']:.4g}. Correct `action`, or set check_action: false "
                "if they are too few or too correlated for such a test"
            )

    def _find_known_plaquette(self, measured: Estimate) -> dict[str, Any] | None:
        """Return the plaquette from theory; None without a prediction."""
        known = compute_known(self.action)
        if known is None or known.plaquette_uncertainty > measured.error / 2:
            return None
        value = float(known.planes.mean())
        sigmas = (measured.mean - value) / measured.error if measured.error > 0 else None
        return {"how": known.how, "value": value, "sigmas": sigmas}


def find_warnings(statistics: Mapping[str, Any], updates: int | None) -> Iterator[str]:
    """Yield warnings about an ensemble that was written.

    Args:
        statistics: Summary of the measurements, and of the `origin`.
        updates: Updates of the thermalisation in units of the separation; None for files.
    """
    plaquette, theory = statistics["plaquette"], statistics["known_plaquette"]
    facts, drift = statistics["origin"], statistics["drift_sigmas"]
    if plaquette["tau_int"] is None:
        yield "too few configurations per chain for an autocorrelation time: errors neglect it"
    elif updates is not None and updates < _THERMALISATION * plaquette["tau_int"]:
        yield (
            f"thermalisation is shorter than {_THERMALISATION} autocorrelation times of the "
            f"plaquette ({plaquette['tau_int']:.2g} configurations); raise generate.thermalisation"
        )
    if drift is not None and abs(drift) > _DRIFT:
        yield (
            f"the plaquette of the second halves of the chains differs from the first by "
            f"{abs(drift):.1f} standard errors; thermalise longer"
        )
    if theory is not None and theory["sigmas"] is not None and abs(theory["sigmas"]) > _SIGMAS:
        yield (
            f"the plaquette {plaquette['mean']:.6f} is {abs(theory['sigmas']):.1f} standard errors "
            f"from {theory['value']:.6f} ({theory['how']})"
        )
    if facts.get("acceptance", 1.0) < _LOW_ACCEPTANCE:
        yield f"acceptance {facts['acceptance']:.2f} is low; raise generate.n_steps"
    if facts.get("irreversibility", 0.0) > _IRREVERSIBLE:
        yield (
            f"trajectories are reversible to {facts['irreversibility']:.1g} only; raise "
            "generate.n_steps, or shorten generate.tau"
        )
