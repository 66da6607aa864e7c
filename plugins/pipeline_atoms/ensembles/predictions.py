"""Ensemble (committee) against labels: mean prediction of its members, and its uncertainty.

Everything is read from the prediction files of the members, which each of them has written.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.ensembles.calibration import (
    LEVEL,
    Calibration,
    calibrate,
    pool_components,
    report_coverage,
)
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.seals import identify
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run

Floats = NDArray[np.float64]

UNITS: Final = {"energy_per_atom": "eV/atom", "forces": "eV/Å"}
"""Split for the calibration."""
_CALIBRATED_ON: Final = "val"


@dataclass(frozen=True)
class Joint:
    """Mean and spread of a committee for one quantity on one split; each force component is one.

    Attributes:
        label: (n,)
        mean: (n,) over members.
        spread: (n,) standard deviation over members; for forces, of their atom.
    """

    label: Floats
    mean: Floats
    spread: Floats


def calibrate_committee(run: Run) -> dict[str, Any]:
    """Return the committee's part of the metrics of its first member.

    Args:
        run: The first member; its predictions and those of the others are there.

    Returns:
        `members`: name, path from the folder of `run` and identity of each model; `calibration` by
        quantity; `splits`: of each split by quantity what `report_coverage` returns.

    Raises:
        ValueError: Predictions are missing or of other samples, or cannot be calibrated.
    """
    runs = [run, *run.members]
    calibrations: dict[str, Calibration] = {}
    measured = read_joint(runs, _CALIBRATED_ON)
    for name, joint in measured.items():
        error = joint.mean - joint.label
        try:
            calibrations[name] = calibrate(error, joint.spread, UNITS[name], _CALIBRATED_ON)
        except ValueError as problem:
            raise ValueError(f"{run.predictions}: {name} of the split val: {problem}") from problem
    splits = {split: read_joint(runs, split) for split in SPLITS}
    return {
        "level": LEVEL,
        "members": [
            {
                "variant": one.variant,
                "model": os.path.relpath(one.model, run.folder),
                "identity": identify(one.model),
            }
            for one in runs
        ],
        "calibration": {n: one.model_dump(mode="json") for n, one in calibrations.items()},
        "splits": {
            split: {
                name: report_coverage(joint.mean - joint.label, joint.spread, calibrations[name])
                for name, joint in joints.items()
                if name in calibrations and len(joint.label)
            }
            for split, joints in splits.items()
            if joints
        },
    }


def read_joint(runs: Sequence[Run], split: str) -> dict[str, Joint]:
    """Read joint predictions of the members on a split: `UNITS` by name; empty without samples.

    Args:
        runs: The members, which must have predicted the same samples.
        split: Name of the split.

    Raises:
        ValueError: A file is missing, or of other samples or another layout.
    """
    read = [_read_member(run, split) for run in runs]
    joints: dict[str, Joint] = {}
    for name in read[0]:
        labels = [one[name][0] for one in read]
        if any(not np.array_equal(labels[0], other, equal_nan=True) for other in labels[1:]):
            raise ValueError(
                f"{runs[0].folder.parent}: the members of the committee have predicted {name} of "
                "different samples; evaluate them again"
            )
        predicted = np.stack([one[name][1] for one in read])  # (n_members, n[, 3])
        joints[name] = _join(labels[0], predicted)
    return joints


def _join(label: Floats, predicted: Floats) -> Joint:
    spread = predicted.std(axis=0, ddof=1)
    if spread.ndim == 2:
        spread = np.repeat(pool_components(spread), 3)
    label, mean = label.ravel(), predicted.mean(axis=0).ravel()
    present = ~np.isnan(label)
    return Joint(label[present], mean[present], spread[present])


def _read_member(run: Run, split: str) -> dict[str, tuple[Floats, Floats]]:
    """Return label and prediction by name: (n_samples,) eV/atom and (n_atoms, 3) eV/Å."""
    if not store.has_schema(run.predictions, "predictions"):
        raise ValueError(f"{run.predictions}: no predictions; {run.name_command('evaluate')}")
    with SampleFile(run.predictions, "predictions") as file:
        chosen = file.read_column("split") == SPLITS.index(split)
        if not chosen.any():
            return {}
        n_atoms = file.count_rows("atom")
        rows = np.repeat(chosen, n_atoms)

        def read(name: str) -> tuple[Floats, Floats]:
            label, predicted = (
                file.read_column(f"{name}_{role}").astype(np.float64)
                for role in ("label", "predicted")
            )
            if name == "energy":
                return label[chosen] / n_atoms[chosen], predicted[chosen] / n_atoms[chosen]
            return label[rows], predicted[rows]

        names = {"energy_per_atom": "energy", "forces": "forces"}
        return {k: read(n) for k, n in names.items() if f"{n}_label" in file.fields}
