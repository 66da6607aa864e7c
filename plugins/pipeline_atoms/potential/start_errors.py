"""Warnings that follow from zero-shot errors of a potential before fine-tuning.

| symbol | what                                          |
|--------|-----------------------------------------------|
| d      | prediction minus label, of an energy per atom |
| m      | mean of d over held-out samples               |
| s      | standard deviation of d, the scatter          |

Energies of another level of theory, program or pseudopotential differ by a constant for each
element. If nothing else differs, |m| is many times s, and other energies of free atoms are the
cure; training would spend epochs on it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pipeline_core.config.sections import TrainOptions
from pipeline_core.task import StartError

_SCATTERS: Final = 2.0
"""Ratio |m| / s above which a mean difference is reported."""
_LEAST: Final = 0.01
"""|m| in eV/atom below which it is not reported."""


def explain_start(options: TrainOptions, errors: Mapping[str, StartError]) -> Iterator[str]:
    """Yield each fault with its cure.

    Args:
        options: Options of the training.
        errors: Errors by quantity; of energies per atom.
    """
    if "energy" in errors:
        yield from _explain_energies(errors["energy"], options)
    if "forces" in errors:
        yield from _explain_forces(errors["forces"])


def _explain_energies(error: StartError, options: TrainOptions) -> Iterator[str]:
    if error.count < 2 or abs(error.mean) <= max(_SCATTERS * error.scatter, _LEAST):
        return
    if options.reference_energies == "model":
        cure = "set train.reference_energies: dataset"
    else:
        cure = "check `reference_energies` of the dataset file, and that its energies are in eV"
    yield (
        f"its energies differ from those of the dataset by {error.mean:+.3g} eV/atom, with a "
        f"scatter of {error.scatter:.2g}, as energies of another level of theory do: {cure}"
    )


def _explain_forces(error: StartError) -> Iterator[str]:
    if error.mae < error.label_mean_absolute:
        return
    yield (
        f"its forces are no better than zero: their mean absolute error is {error.mae:.3g} eV/Å, "
        f"the error of zero forces {error.label_mean_absolute:.3g}; unless heads for forces start "
        "at random, compare units of the dataset, elements and cutoffs with those of the weights, "
        "or remove train.start_from"
    )
