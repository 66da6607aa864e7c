"""Trained models as ASE calculators, loaded from a file alone, on one rank or on several."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from ase.calculators.calculator import Calculator

from pipeline_atoms.calculators.calculator import make_calculator
from pipeline_atoms.calculators.divided import DividedCalculator, can_be_divided
from pipeline_atoms.calculators.potentials import load_potential, make_file_run
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry
from pipeline_core.system.seeds import capture_generators, set_generator_states
from pipeline_core.training.trained_model import find_model_file


def load_calculator(
    path: str | Path,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    registry: Registry | None = None,
    compile: bool = False,  # noqa: A002 (the name of the option)
    head: str | None = None,
) -> Calculator:
    """Load a trained model as an ASE calculator; only the file and its plugin are needed.

    Args:
        path: A `model.pt`, or the folder of a run. While a training is not finished, the best model
            so far is used, with a warning.
        device: A torch device name.
        dtype: Floating-point type of a `Potential`; the type used in training if None.
        registry: Plugins to choose from; the installed plugins if None.
        compile: Whether to compile the model for inference, several times faster on a CPU.
        head: Name of the head to predict with, such as a level of theory, if there are several.

    Raises:
        ValueError: The file is not a model, its plugin is not installed, it has several heads and
            none is named, it is not a potential and its plugin has no calculator of its own, or it
            cannot be compiled.
    """
    registry, cpu = registry or load_registry(), torch.device("cpu")
    run = make_file_run(find_model_file(Path(path)), registry, head)
    states = capture_generators(cpu)  # the caller's random generators must not change
    try:
        if dtype is not None or compile:
            potential = load_potential(run)
            return make_calculator(potential, device, dtype or potential.dtype, head, compile)
        return registry.select_hook("calculator", run.model_info.name)(run=run, device=device)
    finally:
        set_generator_states(states, cpu)


@contextmanager
def share_calculator(
    path: str | Path,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    registry: Registry | None = None,
    compile: bool = False,  # noqa: A002 (the name of the option)
    head: str | None = None,
) -> Iterator[Calculator | None]:
    """Load a trained potential as an ASE calculator with domain decomposition over all ranks.

    All ranks of a script started by srun, mpiexec or torchrun call this. Rank 0 gets the calculator
    and uses it as a script of one rank would. All others calculate what rank 0 requests, and get
    None when it has finished:

        with share_calculator("model.pt") as calculator:
            if calculator is not None:
                atoms.calc = calculator
                VelocityVerlet(atoms, 1 * units.fs).run(1000)

    Args:
        path: A `model.pt`, in a folder that all ranks can read.
        device: "cpu", "cuda", or "auto" for a GPU if all ranks have one.
        dtype: As for `load_calculator`.
        registry: As for `load_calculator`.
        compile: As for `load_calculator`.
        head: As for `load_calculator`.

    Raises:
        ValueError: As for `load_calculator`, or structures of the model cannot be divided.
    """
    with connect_ranks(device, Path(path).absolute().parent) as ranks:
        calculator = load_calculator(path, str(ranks.device), dtype, registry, compile, head)
        if ranks.size == 1:
            yield calculator
            return
        if not can_be_divided(calculator):
            raise ValueError(
                f"{path}: ranks cannot divide structures of this model: it neither takes domains "
                "nor states how far atoms influence each other (receptive_field); start one rank"
            )
        divided = DividedCalculator(calculator, ranks)
        if not ranks.is_rank_zero:
            divided.follow()
            yield None
            return
        with divided.lead():
            yield divided
