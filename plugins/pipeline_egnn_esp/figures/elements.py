"""Elements of matrices on the held-out split, with the distance and the orbitals of each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ase.data import atomic_numbers as number_of
from numpy.typing import NDArray

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_core.figures import results
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Elements:
    """Elements of all blocks of a split, one of each hermitian pair.

    Attributes:
        run: Run that predicted them.
        split: Name of the split.
        cutoff: Cutoff of the model, Å.
        distance: Distance of the two atoms, Å, (n,); zero for on-site elements.
        pair: Degrees of the two orbitals, the lower one first, (n, 2).
        label: Elements of the data, eV, (n,).
        predicted: Predictions of the model, eV, (n,).
        two_centre: Predictions of the two-centre baseline, eV, (n,).
    """

    run: Run
    split: str
    cutoff: float
    distance: Floats
    pair: Ints
    label: Floats
    predicted: Floats
    two_centre: Floats

    @property
    def on_site(self) -> NDArray[np.bool_]:
        """Mask of on-site elements."""
        return np.asarray(self.distance == 0)

    @property
    def error(self) -> Floats:
        """Magnitude of the model's error, eV."""
        return np.abs(self.predicted - self.label)


def read_elements(experiment: ExperimentRun) -> Elements | None:
    """Return the elements of the first run that learned Hamiltonians and was evaluated."""
    for run in experiment.runs.values():
        content = results.read_json(run.metrics)
        about = content.get("matrices") if isinstance(content, dict) else None
        report = results.read_metrics(run)
        split = report.held_out if report else None
        if about and split and about["target"] == "hamiltonian" and run.predictions.exists():
            return _read_split(run, split, about)
    return None


def _read_split(run: Run, split: str, about: dict[str, Any]) -> Elements:
    degrees = {
        number_of[symbol]: np.repeat(shells, [2 * degree + 1 for degree in shells])
        for symbol, shells in about["basis"].items()
    }
    with SampleFile(run.predictions, "predictions") as file:
        chosen = file.read_column("split") == SPLITS.index(split)
        rows = {kind: np.repeat(chosen, file.count_rows(kind)) for kind in ("block", "entry")}
        atom_offsets = np.cumsum(file.count_rows("atom")) - file.count_rows("atom")
        starts = np.repeat(atom_offsets, file.count_rows("block"))[rows["block"]]
        atoms = file.read_column("block_atoms")[rows["block"]].astype(np.int64) + starts[:, None]
        numbers = file.read_column("atomic_numbers")[atoms]
        lengths = file.read_column("block_length")[rows["block"]].astype(np.float64)
        label, predicted, two_centre = (
            file.read_column(f"hamiltonian_{name}")[rows["entry"]].astype(np.float64)
            for name in ("label", "predicted", "two_centre")
        )
    sizes = np.array([[len(degrees[z]) for z in pair] for pair in numbers.tolist()]).prod(axis=1)
    return Elements(
        run=run,
        split=split,
        cutoff=about["cutoff"],
        distance=np.repeat(lengths, sizes),
        pair=_name_pairs(numbers, sizes, degrees),
        label=label,
        predicted=predicted,
        two_centre=two_centre,
    )


def _name_pairs(numbers: Ints, sizes: Ints, degrees: dict[int, Ints]) -> Ints:
    """Return the degrees of the orbitals of each element of blocks, by rows."""
    pairs = np.empty((sizes.sum(), 2), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for first, second in np.unique(numbers, axis=0).tolist():
        block = np.stack(np.meshgrid(degrees[first], degrees[second], indexing="ij"), axis=-1)
        mine = starts[(numbers == (first, second)).all(axis=1)]
        places = mine[:, None] + np.arange(block[..., 0].size)
        pairs[places] = np.sort(block.reshape(-1, 2), axis=1)
    return pairs
