"""A committee of trained potentials as one ASE calculator, with uncertainties."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.potentials import make_file_run
from pipeline_atoms.ensembles.calibration import Calibration, pool_components
from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import identify
from pipeline_core.project.run import Run
from pipeline_core.registry import Registry

_JOINED: Final = ("energy", "free_energy", "forces", "stress", "magmoms")

Calibrations = Mapping[str, Calibration]


class Committee(Calculator):  # type: ignore[misc] # ASE is not typed
    """Mean and spread of the predictions of several potentials.

    A mean of potentials is a potential: its forces are the derivatives of its energy. Besides the
    properties of ASE, `results` hold standard deviations over the members (n - 1 in the
    denominator):

    - `energy_spread`, a number, eV an atom;
    - `forces_spread`, (n_atoms, 3), eV/Å;
    - `stress_spread`, (6,), eV/Å³;
    - if calibrated, half widths of the intervals that contain 95 % of held-out labels:
      `energy_uncertainty`, of the whole energy, eV; `forces_uncertainty`, (n_atoms,), of each
      component of the force on an atom, eV/Å.

    Args:
        members: At least two calculators of one model with different weights.
        calibrations: Calibrations of "energy_per_atom" and "forces", as in the metrics of a
            committee; empty for spreads alone.
    """

    def __init__(
        self, members: Sequence[Calculator], calibrations: Calibrations | None = None
    ) -> None:
        assert len(members) > 1, "a committee of one has no spread"
        super().__init__()
        self.members = tuple(members)
        self.calibrations = dict(calibrations or {})
        self.implemented_properties = [
            name
            for name in _JOINED
            if all(name in member.implemented_properties for member in members)
        ]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Compute all that the members predict for `atoms`.

        Raises:
            ValueError: A member refuses the structure.
        """
        super().calculate(atoms, properties, system_changes)
        results: dict[str, Any] = {}
        for name in self.implemented_properties:
            with suppress(PropertyNotImplementedError):  # such as the stress without a cell
                values = np.array([m.get_property(name, self.atoms) for m in self.members])
                mean = values.mean(axis=0)
                results[name] = mean if mean.ndim else float(mean)
                if name in ("energy", "forces", "stress"):
                    results[f"{name}_spread"] = values.std(axis=0, ddof=1)
        self.results = results
        self._calibrate(len(self.atoms))

    def _calibrate(self, n_atoms: int) -> None:
        results = self.results
        if "energy_spread" in results:
            results["energy_spread"] = float(results["energy_spread"]) / n_atoms
            if energy := self.calibrations.get("energy_per_atom"):
                half = energy.compute_half_widths(np.array(results["energy_spread"]))
                results["energy_uncertainty"] = n_atoms * float(half)
        if "forces_spread" in results and (forces := self.calibrations.get("forces")):
            pooled = pool_components(results["forces_spread"])
            results["forces_uncertainty"] = forces.compute_half_widths(pooled)

    def reset(self) -> None:
        """Discard all results, also those of the members."""
        super().reset()
        for member in self.members:
            member.reset()

    def forget(self) -> None:
        """Discard the neighbour lists, as `PotentialCalculator.forget` does."""
        for member in self.members:
            if isinstance(member, PotentialCalculator):
                member.forget()


def make_run_committee(run: Run, device: str) -> Committee:
    """Return the calibrated committee with the first member `run`.

    Raises:
        ValueError: A model is missing or not of its run, or the committee is not calibrated.
    """
    calculator_of = run.registry.select_hook("calculator", run.model_info.name)
    members = [calculator_of(run=one, device=device) for one in (run, *run.members)]
    return Committee(members, _read_calibrations(_read_committee(run.metrics)))


def is_committee(folder: Path) -> bool:
    """Return True if the folder belongs to the first member of a calibrated committee."""
    metrics = folder / "metrics.json"
    return metrics.is_file() and "committee" in store.read_json(metrics)


def load_committee(
    folder: Path, device: str, registry: Registry, head: str | None = None
) -> Committee:
    """Load the calibrated committee of a folder, from files alone.

    Args:
        folder: Folder of the first member; the others must lie where they were when evaluated.
        device: A torch device name.
        registry: The plugins.
        head: Name of the head to predict with, if models have several.

    Raises:
        ValueError: A model is missing, or differs from the calibrated one.
    """
    metrics = folder / "metrics.json"
    content = _read_committee(metrics)
    members = []
    for facts in content["members"]:
        path = folder / facts["model"]
        if not path.is_file() or identify(path) != facts["identity"]:
            raise ValueError(
                f"{path}: is not the model of {facts['variant']!r} that {metrics} was made with; "
                f"train and evaluate the committee, or name {folder / 'model.pt'} for one member"
            )
        run = make_file_run(path, registry, head)
        calculator_of = registry.select_hook("calculator", run.model_info.name)
        members.append(calculator_of(run=run, device=device))
    return Committee(members, _read_calibrations(content))


def _read_committee(metrics: Path) -> dict[str, Any]:
    content = store.read_json(metrics) if metrics.is_file() else {}
    if "committee" not in content:
        raise ValueError(f"{metrics}: contains no committee; run the stage evaluate")
    committee: dict[str, Any] = content["committee"]
    return committee


def _read_calibrations(committee: Mapping[str, Any]) -> dict[str, Calibration]:
    return {n: Calibration.model_validate(one) for n, one in committee["calibration"].items()}
